"""Which jobs and rules an operator may change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from ganger.rapi import scopes
from ganger.rapi.declarations import Call, Right
from ganger.rapi.filters import Rule
from ganger.rapi.rule_views import NewRule
from ganger.storage import errors
from ganger.storage.access.rapi_users import User
from ganger.transport.client.async_client import AsyncClient

OPERATOR = User("joe", options=frozenset({"operate"}), opcodes=frozenset({"OP_A", "OP_B"}))
ADMIN = User("ann", options=frozenset({"admin"}))
ALLOWED = frozenset({"OP_A", "OP_B"})


class Op(NamedTuple):
    op_id: str


class Job(NamedTuple):
    ops: list[Op]


class Stored(NamedTuple):
    uuid: str
    predicates: list[Any]
    name: str = ""


def for_(*names: str) -> list[Any]:
    return ["opcode", ["|", *(["=", "OP_ID", name] for name in names)]]


class Daemon:
    """Knows job 1 with OP_A, job 2 with OP_A and OP_C, a rule about OP_A and one about any."""

    async def job(self, job_id: int) -> Job:
        names = {1: "A", 2: "AC"}.get(job_id)
        if names is None:
            raise errors.UnknownJobError
        return Job([Op(f"OP_{name}") for name in names])

    async def filters(self) -> list[Stored]:
        return [
            Stored("0a0a0a0a-0000-4000-8000-000000000000", [for_("OP_A")], "nightly"),
            Stored("0b0b0b0b-0000-4000-8000-000000000000", [], "all-jobs"),
        ]


def refusal(
    right: Right,
    path: Mapping[str, str],
    body: object = msgspec.UNSET,
    user: User = OPERATOR,
) -> str | None:
    call = called(path, body, user)

    async def look() -> str | None:
        return await scopes.refusal(await scopes.settled(call, right), right)

    return asyncio.run(look())


def called(path: Mapping[str, str], body: object, user: User) -> Call:
    return Call(client=cast("AsyncClient", Daemon()), user=user, path=dict(path), body=body)


GRANTS = "who administers the server grants it: ganger rapi user change joe"
FOREIGN = f"user joe may not change jobs with OP_C; {GRANTS} --opcode OP_C"


@pytest.mark.parametrize(
    ("job_id", "expected"),
    [
        ("1", None),
        ("2", FOREIGN),
        ("0" * 17 + "2", FOREIGN),
        ("0" * 99 + "2", FOREIGN),
        ("0" * 99 + "1", None),
    ],
)
def test_an_operator_changes_jobs_with_his_opcodes_only(job_id: str, expected: str | None) -> None:
    assert refusal(Right.CANCEL, {"job_id": job_id}) == expected
    assert refusal(Right.CANCEL, {"job_id": job_id}, user=ADMIN) is None


@pytest.mark.parametrize("job_id", ["3", "0", "-2", "+2", " 2", "2_0", "٢", "２", "2.0", "9" * 99])  # noqa: RUF001 - other digits
def test_a_job_that_is_not_there_is_nobodys_to_change(job_id: str) -> None:
    """Between this look and the change, somebody else's job might get the id."""
    with pytest.raises(errors.UnknownJobError):
        refusal(Right.CANCEL, {"job_id": job_id})
    assert refusal(Right.CANCEL, {"job_id": job_id}, user=ADMIN) is None


WORDS = f"user joe may only keep filter rules for OP_A, OP_B; {GRANTS} --role admin"


@pytest.mark.parametrize(
    ("body", "uuid", "expected"),
    [
        (Rule(predicates=[for_("OP_A")]), None, None),
        (NewRule(predicates=[for_("OP_A")]), None, None),
        (Rule(), None, WORDS),
        (NewRule(), None, WORDS),
        (Rule(predicates=[for_("OP_C")]), None, WORDS),
        (Rule(predicates=[for_("OP_B")]), "0c0c0c0c-0000-4000-8000-000000000000", None),
        (Rule(predicates=[for_("OP_B")]), "0a0a0a0a-0000-4000-8000-000000000000", None),
        (Rule(predicates=[for_("OP_B")]), "0b0b0b0b-0000-4000-8000-000000000000", WORDS),
        (msgspec.UNSET, "0a0a0a0a-0000-4000-8000-000000000000", None),
        (msgspec.UNSET, "0b0b0b0b-0000-4000-8000-000000000000", WORDS),
        (msgspec.UNSET, "nightly", None),
        (msgspec.UNSET, "all-jobs", WORDS),
        (Rule(predicates=[for_("OP_B")]), "nightly", None),
        (Rule(predicates=[for_("OP_B")]), "all-jobs", WORDS),
        (Rule(), "nightly", WORDS),
        (Rule(predicates=[for_("OP_A")]), "", None),
    ],
)
def test_an_operator_keeps_rules_for_his_opcodes_only(
    body: object, uuid: str | None, expected: str | None
) -> None:
    path = {} if uuid is None else {"uuid": uuid}
    assert refusal(Right.FILTERS, path, body) == expected
    assert refusal(Right.FILTERS, path, body, ADMIN) is None


def test_what_an_operator_calls_by_its_name_is_one_rule_from_then_on() -> None:
    """Another rule might get the name before the change is made."""
    given = called({"uuid": "nightly"}, Rule(predicates=[for_("OP_B")]), OPERATOR)
    call = asyncio.run(scopes.settled(given, Right.FILTERS))
    assert call.path == {"uuid": "0a0a0a0a-0000-4000-8000-000000000000"}
    assert call.body == Rule(predicates=[for_("OP_B")], name="nightly")
    renamed = called({"uuid": "nightly"}, Rule(predicates=[], name="daily"), OPERATOR)
    assert asyncio.run(scopes.settled(renamed, Right.FILTERS)).body.name == "daily"
    for user, right in ((ADMIN, Right.FILTERS), (OPERATOR, Right.READ)):
        call = called({"uuid": "nightly"}, msgspec.UNSET, user)
        assert asyncio.run(scopes.settled(call, right)) is call


def test_a_name_that_no_rule_has_is_nobodys_to_change() -> None:
    call = called({"uuid": "weekly"}, msgspec.UNSET, OPERATOR)
    with pytest.raises(errors.UnknownFilterError, match="UUID or name 'weekly'"):
        asyncio.run(scopes.settled(call, Right.FILTERS))


@pytest.mark.parametrize(
    ("options", "opcodes", "job", "expected"),
    [
        ("read", "", "OP_A", []),
        ("operate", "OP_A", "OP_A", ["cancel", "filters", "submit"]),
        ("operate", "OP_A", "OP_A OP_B", []),
        ("operate exec", "OP_A", "OP_A OP_EXEC", ["cancel", "filters", "submit"]),
        ("exec", "", "OP_EXEC", []),
        ("admin", "", "OP_A OP_EXEC", ["cancel", "filters"]),
        ("admin", "", "OP_A", ["cancel", "filters", "submit"]),
        ("write exec", "", "OP_EXEC", ["cancel", "filters", "submit"]),
    ],
)
def test_what_a_user_may_do_with_a_job(
    options: str, opcodes: str, job: str, expected: list[str]
) -> None:
    user = User("jim", options=frozenset(options.split()), opcodes=frozenset(opcodes.split()))
    assert [right.value for right in scopes.job_rights(user, job.split())] == expected


def test_who_may_change_a_rule() -> None:
    reader = User("jim", options=frozenset({"read"}))
    for predicates, may in (([for_("OP_A")], True), ([for_("OP_C")], False), ([], False)):
        assert scopes.may_change_rule(OPERATOR, predicates) is may
        assert scopes.may_change_rule(ADMIN, predicates)
        assert not scopes.may_change_rule(reader, predicates)


def test_looking_and_submitting_ask_nobody() -> None:
    for right in (Right.READ, Right.WAIT, Right.SUBMIT, Right.NOTHING):
        assert refusal(right, {"job_id": "2"}) is None


@pytest.mark.parametrize(
    ("predicates", "expected"),
    [
        ([for_("OP_A")], True),
        ([for_("OP_A", "OP_B")], True),
        ([for_("OP_A", "OP_C")], False),
        ([["opcode", ["==", "OP_ID", "OP_A"]]], True),
        ([["jobid", [">", "id", 1]], for_("OP_A")], True),
        ([["opcode", ["&", ["=", "OP_ID", "OP_A"], ["=", "x", 1]]]], True),
        ([["opcode", ["&", ["=", "x", 1]]]], False),
        ([["opcode", ["&"]]], False),
        ([["opcode", ["|"]]], False),
        ([["opcode", ["|", ["=", "OP_ID", "OP_A"], ["=", "x", 1]]]], False),
        ([["opcode", ["!", ["=", "OP_ID", "OP_C"]]]], False),
        ([["opcode", ["!=", "OP_ID", "OP_C"]]], False),
        ([["opcode", ["=~", "OP_ID", "OP_A"]]], False),
        ([["opcode", ["=", "comment", "OP_A"]]], False),
        ([["opcode", ["=", "OP_ID", 7]]], False),
        ([["reason", ["=", "OP_ID", "OP_A"]]], False),
        ([["opcode"]], False),
        ([7], False),
        ("opcode", False),
        (None, False),
        ([], False),
    ],
)
def test_a_rule_concerns_what_each_job_that_it_matches_must_have(
    predicates: object,
    expected: bool,  # noqa: FBT001
) -> None:
    assert scopes.concerns_only(predicates, ALLOWED) is expected


def test_a_rule_that_is_nested_too_deeply_concerns_anything() -> None:
    expression: list[Any] = ["=", "OP_ID", "OP_A"]
    for _ in range(5_000):
        expression = ["|", expression]
    assert scopes.concerns_only([["opcode", expression]], ALLOWED) is False


def test_an_operator_without_opcodes_keeps_no_rules() -> None:
    nobody = User("jim", options=frozenset({"operate"}))
    text = f"user jim may only keep filter rules for no opcode; {GRANTS[:-3]}jim --role admin"
    assert refusal(Right.FILTERS, {}, Rule(predicates=[for_("OP_A")]), nobody) == text
