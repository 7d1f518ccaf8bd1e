"""Which jobs and rules an operator may change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from ganger.rapi import scopes
from ganger.rapi.declarations import Right
from ganger.storage import errors
from ganger.storage.rapi_users import User
from ganger.transport.client.async_client import AsyncClient

OPERATOR = User("joe", options=frozenset({"operate"}), opcodes=frozenset({"OP_A", "OP_B"}))
ADMIN = User("ann", options=frozenset({"admin"}))
ALLOWED = frozenset({"OP_A", "OP_B"})


class Op(NamedTuple):
    op_id: str


class Job(NamedTuple):
    ops: list[Op]


class Rule(NamedTuple):
    uuid: str
    predicates: list[Any]


def for_(*names: str) -> list[Any]:
    return ["opcode", ["|", *(["=", "OP_ID", name] for name in names)]]


class Daemon:
    """Knows job 1 with OP_A, job 2 with OP_A and OP_C, a rule about OP_A and one about any."""

    async def job(self, job_id: int) -> Job:
        names = {1: "A", 2: "AC"}.get(job_id)
        if names is None:
            raise errors.UnknownJobError
        return Job([Op(f"OP_{name}") for name in names])

    async def filters(self) -> list[Rule]:
        return [Rule("0a-0A", [for_("OP_A")]), Rule("0b-0b", [])]


def refusal(
    right: Right,
    path: Mapping[str, str],
    body: object = msgspec.UNSET,
    user: User = OPERATOR,
) -> str | None:
    client = cast("AsyncClient", Daemon())
    return asyncio.run(scopes.refusal(client, user, right, path, body))


@pytest.mark.parametrize(
    ("job_id", "expected"),
    [
        ("1", None),
        ("2", "user joe may not change jobs with OP_C"),
        ("3", None),
        ("9" * 99, None),
    ],
)
def test_an_operator_changes_jobs_with_his_opcodes_only(job_id: str, expected: str | None) -> None:
    assert refusal(Right.CANCEL, {"job_id": job_id}) == expected
    assert refusal(Right.CANCEL, {"job_id": job_id}, user=ADMIN) is None


WORDS = "user joe may only keep filter rules for OP_A, OP_B"


@pytest.mark.parametrize(
    ("body", "uuid", "expected"),
    [
        ({"predicates": [for_("OP_A")]}, None, None),
        ({"predicates": []}, None, WORDS),
        ({}, None, WORDS),
        ({"predicates": [for_("OP_C")]}, None, WORDS),
        ({"predicates": [for_("OP_B")]}, "0c0c", None),
        ({"predicates": [for_("OP_B")]}, "0a0a", None),
        ({"predicates": [for_("OP_B")]}, "0B-0b", WORDS),
        (msgspec.UNSET, "0a-0a", None),
        (msgspec.UNSET, "{0B0B}", WORDS),
    ],
)
def test_an_operator_keeps_rules_for_his_opcodes_only(
    body: object, uuid: str | None, expected: str | None
) -> None:
    path = {} if uuid is None else {"uuid": uuid}
    assert refusal(Right.FILTERS, path, body) == expected
    assert refusal(Right.FILTERS, path, body, ADMIN) is None


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
    text = "user jim may only keep filter rules for no opcode"
    assert refusal(Right.FILTERS, {}, {"predicates": [for_("OP_A")]}, nobody) == text
