"""What users with a role get the daemon to do, whatever ids and bodies they send.

The handlers are the real ones; the daemon notes what it is asked to change.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, NamedTuple, cast

import msgspec
import pytest
from tests.core_alone import NEEDS_HIDDEN
from tests.rapi.asked import Reply, ask, basic
from tests.rapi.noted import Noted
from tests.rapi.test_role_matrix import DECLARED, FULL, KNOWN, ROLES, Declared, Users, title

from ganger.rapi import table
from ganger.rapi.application import Service, application
from ganger.rapi.authentication import Authentication
from ganger.rapi.declarations import Right
from ganger.rapi.views import Views
from ganger.storage import errors
from ganger.storage.filters import rules
from ganger.transport.messages import CancelOutcome, PriorityOutcome

pytestmark = pytest.mark.slow

OWN, FOREIGN = 1, 7
"""A job that the operator may change, and a command, which he may not."""

OWN_RULE = "11111111-2222-4333-8444-555555555555"
FOREIGN_RULE = "01111111-2222-4333-8444-555555555555"
OPCODES = {"operator": {"OP_TAGS_SET", "OP_TEST_DELAY"}, "runner": {"OP_EXEC"}}
"""What those may submit who may submit named opcodes only."""

FOR_OWN = [["opcode", ["=", "OP_ID", "OP_TEST_DELAY"]]]


class Op(msgspec.Struct):
    op_id: str
    input: dict[str, Any] = {}
    result: None = None
    log: tuple[()] = ()


class Job(msgspec.Struct):
    ops: list[Op]


class Rule(NamedTuple):
    uuid: str
    predicates: list[Any]
    name: str


class Daemon:
    """Knows two jobs and two rules."""

    def __init__(self) -> None:
        self.changed: list[tuple[str, Any]] = []
        """The verb, and the job, rule or opcodes."""

    async def job(self, job_id: int) -> Job:
        assert isinstance(job_id, int)
        found = {OWN: "OP_TEST_DELAY", FOREIGN: "OP_EXEC"}.get(job_id)
        if found is None:
            raise errors.UnknownJobError
        return Job([Op(found)])

    async def filters(self) -> list[Rule]:
        return [Rule(OWN_RULE, FOR_OWN, "own"), Rule(FOREIGN_RULE, [], "foreign")]

    async def cancel(self, job_id: int, *, kill: bool = False) -> CancelOutcome:
        self.changed.append(("kill" if kill else "cancel", job_id))
        return CancelOutcome(accepted=True, text="")

    async def set_priority(self, job_id: int, _priority: int) -> PriorityOutcome:
        self.changed.append(("priority", job_id))
        return PriorityOutcome(accepted=True, text="")

    async def retry(self, job_id: int, **_more: Any) -> int:
        self.changed.append(("retry", job_id))
        return 8

    async def submit(self, ops: list[dict[str, Any]], **_more: Any) -> int:
        self.changed.append(("submit", [op["OP_ID"] for op in ops]))
        return 8

    async def add_filter(self, *, uuid: str | None, predicates: Any, **_more: Any) -> str:
        self.changed.append(("rule", (uuid, predicates)))
        return uuid or OWN_RULE

    async def delete_filter(self, uuid: str, **_more: Any) -> None:
        self.changed.append(("delete", uuid))


def asked(
    user: str, method: str, path: str, *, query: str = "", **more: Any
) -> tuple[Reply, list[tuple[str, Any]]]:
    """The reply, and what was changed."""
    daemon = Daemon()
    service = Service(
        authentication=Authentication(Users(), Noted(), is_required=True),
        notes=Noted(),
        views=Views(cast("Any", daemon)),
    )
    app = application(table.RESOURCES, service)
    header = basic(user, user)
    reply = asyncio.run(ask(app, method, path, authorization=header, query=query, **more))
    return reply, daemon.changed


def _json(body: Any) -> bytes:
    return b"" if body is ... else msgspec.json.encode(body)


# ---------------------------------------------------------------- jobs

SPELLINGS = ["{}", "0{}", "0" * 17 + "{}", "0" * 18 + "{}", "0" * 30 + "{}", "0" * 99 + "{}"]
"""Of an id."""

NO_IDS = [
    "+{}", "-{}", " {}", "{} ", "\t{}", "{}\n", "{}.0", "{}_0", "0x{}", "{}e0", "",
    "\u0667", "\u096d", "\uff17", "\u00b2", "0", "000", "0" * 100 + "{}", "1" + "0" * 18 + "{}",
    "{}/", "{};1", "1,{}", "../{}", "{}%00",
]  # fmt: skip
"""Texts that are no id, or that of no job; some are digits of other scripts."""

CHANGES = [
    ("cancel", "DELETE", "/2/jobs/{}", "", None),
    ("kill", "DELETE", "/2/jobs/{}", "kill=1", None),
    ("priority", "PUT", "/2/jobs/{}/priority", "", {"priority": -20}),
    ("retry", "POST", "/2/jobs/{}/retry", "", {"whole": True}),
]
Change = tuple[str, str, str, str, Any]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change[0])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_each_spelling_of_an_id_has_the_rights_of_the_one_job(
    spelling: str, change: Change
) -> None:
    verb, method, path, query, body = change
    for user, opcodes in OPCODES.items():
        for job_id, opcode in ((OWN, "OP_TEST_DELAY"), (FOREIGN, "OP_EXEC")):
            one = path.format(spelling.format(job_id))
            reply, changed = asked(user, method, one, query=query, body=body)
            if opcode in opcodes:
                assert changed == [(verb, job_id)], reply
            else:
                assert (reply.status, changed) == (403, [])
    reply, changed = asked(
        "admin", method, path.format(spelling.format(OWN)), query=query, body=body
    )
    assert changed == [(verb, OWN)], reply


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change[0])
@pytest.mark.parametrize("text", NO_IDS)
def test_what_is_no_id_changes_no_job(text: str, change: Change) -> None:
    _, method, path, query, body = change
    for user in sorted(KNOWN):
        one = path.format(text.format(FOREIGN))
        reply, changed = asked(user, method, one, query=query, body=body)
        assert changed == [], reply
        assert reply.status in {200, 403, 404, 501}
        if reply.status == HTTPStatus.OK:
            # Ganeti's answer, to those who may cancel any job.
            assert (user in FULL, reply.body[0]) == (True, False)


@pytest.mark.parametrize("body", [..., None, [], [1], 7, "x", {}, {"priority": "1"}])
def test_a_body_that_is_no_priority_changes_none(body: Any) -> None:
    for user in sorted(KNOWN):
        reply, changed = asked(user, "PUT", f"/2/jobs/{OWN}/priority", parts=[_json(body)])
        assert changed == []
        assert reply.status == (400 if user in FULL | set(OPCODES) else 403)


# ---------------------------------------------------------------- rules

BODIES: list[Any] = [
    ..., None, [], [{}], {}, 7, True, "x", {"predicates": None}, {"predicates": []},
    {"predicates": "x"}, {"predicates": {}}, {"predicates": [None]}, {"predicates": [[]]},
    {"predicates": [["jobid", [">", "id", 0]]]}, {"Predicates": FOR_OWN}, [FOR_OWN],
    {"predicates": [["opcode", ["|", ["=", "OP_ID", "OP_TEST_DELAY"], ["=", "OP_ID", "OP_EXEC"]]]]},
    {"predicates": [["opcode", ["!", ["=", "OP_ID", "OP_TEST_DELAY"]]]]},
]  # fmt: skip
"""Of which none is a rule that concerns the operator's opcodes only. ``...``: no body at all."""

RULES = [
    ("POST", "/2/filters"),
    ("POST", "/2/rules"),
    ("PUT", f"/2/filters/{OWN_RULE}"),
    ("PUT", f"/2/filters/{FOREIGN_RULE}"),
    ("PUT", "/2/filters/own"),
    ("PUT", "/2/filters/foreign"),
]


@pytest.mark.parametrize(("method", "path"), RULES)
@pytest.mark.parametrize("body", BODIES, ids=repr)
def test_who_has_a_role_stores_no_rule_for_jobs_of_others(
    body: Any, method: str, path: str
) -> None:
    for user in sorted(KNOWN - FULL):
        reply, changed = asked(user, method, path, parts=[_json(body)])
        assert changed == []
        assert reply.status in {400, 403}


@pytest.mark.parametrize(("method", "path"), RULES)
def test_who_has_a_role_stores_rules_for_his_own(method: str, path: str) -> None:
    reply, changed = asked("operator", method, path, body={"predicates": FOR_OWN})
    if path.endswith((FOREIGN_RULE, "foreign")):
        assert (reply.status, changed) == (403, [])
    else:
        [(verb, (uuid, predicates))] = changed
        assert uuid == (None if method == "POST" else OWN_RULE)
        assert (reply.status, verb, predicates) == (200, "rule", FOR_OWN)


@pytest.mark.parametrize("body", [..., None, [], {"predicates": FOR_OWN}], ids=repr)
def test_who_has_a_role_deletes_his_own_rules(body: Any) -> None:
    for rule in (OWN_RULE, "own"):
        reply, changed = asked("operator", "DELETE", f"/2/filters/{rule}", parts=[_json(body)])
        assert (reply.status, changed) == (200, [("delete", OWN_RULE)])
    for rule, status in ((FOREIGN_RULE, 403), ("foreign", 403), ("neither", 404)):
        reply, changed = asked("operator", "DELETE", f"/2/filters/{rule}", parts=[_json(body)])
        assert (reply.status, changed) == (status, [])


@pytest.mark.parametrize(
    "uuid",
    [
        "ABCDEF00-2222-4333-8444-555555555555",
        FOREIGN_RULE.replace("-", ""),
        f"{{{FOREIGN_RULE}}}",
        f"urn:uuid:{FOREIGN_RULE}",
        f"0_{FOREIGN_RULE[1:]}",
        f" {FOREIGN_RULE}",
        f"{FOREIGN_RULE}\n",
    ],
)
def test_a_rule_has_one_spelling_so_rights_and_daemon_read_the_same(uuid: str) -> None:
    with pytest.raises(errors.FilterRuleError):
        rules.parse_uuid(uuid)
    _, changed = asked("operator", "DELETE", f"/2/filters/{uuid}")
    assert changed in ([], [("delete", uuid)])


def test_without_a_body_an_administrator_stores_a_rule_for_all_jobs_as_in_ganeti() -> None:
    for body in (..., None):
        reply, changed = asked("admin", "POST", "/2/filters", parts=[_json(body)])
        assert (reply.status, changed) == (200, [("rule", (None, []))])


# ---------------------------------------------------------------- submissions


def submitted(user: str, *opcodes: Any) -> tuple[Reply, list[tuple[str, Any]]]:
    return asked(user, "POST", "/2/jobs", body={"ops": [{"OP_ID": opcode} for opcode in opcodes]})


@pytest.mark.parametrize("user", sorted(KNOWN))
def test_who_may_run_commands(user: str) -> None:
    reply, changed = submitted(user, "OP_EXEC")
    may = user in {"runner", "runner-admin"}
    assert (reply.status, bool(changed)) == (200 if may else 403, may)


@pytest.mark.parametrize("user", sorted(KNOWN))
def test_who_may_submit_any_and_named_opcodes(user: str) -> None:
    assert (submitted(user, "OP_CLUSTER_VERIFY")[0].status == 200) == (user in FULL)
    assert (submitted(user, "OP_TEST_DELAY")[0].status == 200) == (user in FULL | {"operator"})
    both = submitted(user, "OP_TEST_DELAY", "OP_CLUSTER_VERIFY")
    assert (both[0].status == 200) == (user in FULL)


def test_a_refusal_repeats_only_the_beginning_of_an_opcode() -> None:
    reply, _ = submitted("operator", "OP_" + "X" * 300_000)
    assert reply.status == 403
    assert reply.body["message"].startswith("user operator may not submit OP_XXX")
    assert len(reply.text) < 1_000


@pytest.mark.parametrize(
    "body", [..., None, [], [{"OP_ID": "OP_EXEC"}], 7, {"ops": None}], ids=repr
)
def test_a_body_that_is_no_job_submits_none(body: Any) -> None:
    for user in sorted(KNOWN):
        reply, changed = asked(user, "POST", "/2/jobs", parts=[_json(body)])
        assert (reply.status in {400, 403}, changed) == (True, [])


COMMAND = {"OP_ID": "OP_EXEC", "argv": ["id"]}
SUBMITTING = [one for one in DECLARED if one[2].right is Right.SUBMIT and one[2].opcode]


@pytest.mark.parametrize("one", SUBMITTING, ids=title)
def test_a_resource_submits_the_opcodes_that_it_declares_whatever_the_body_says(
    one: Declared,
) -> None:
    resource, name, method = one
    bodies: list[Any] = [
        COMMAND,
        {**COMMAND, "__version__": 1},
        {"instances": [COMMAND]},
        {"ops": [COMMAND]},
        {"op_id": "OP_EXEC", "argv": ["id"]},
        [COMMAND],
        "OP_EXEC",
    ]
    path = "/".join("7" if part.startswith("{") else part for part in resource.path.split("/"))
    for user in sorted(KNOWN):
        for body in bodies:
            _, changed = asked(
                user, name, path, body=body, query="tag=a&storage_type=lvm-vg&name=x"
            )
            for _, opcodes in changed:
                assert set(opcodes) <= set(method.opcodes)
                assert user in FULL or set(opcodes) <= OPCODES[user]


@NEEDS_HIDDEN
def test_who_may_not_run_commands_runs_none_by_way_of_another_resource() -> None:
    body = {**COMMAND, "__version__": 1}
    for user in ("writer", "admin", "runner-admin"):
        reply, changed = asked(user, "POST", "/2/instances", body=body)
        assert (reply.status, changed) == (400, [])
        assert "OP_ID" in reply.body["message"]


def test_every_user_of_the_matrix_is_tried() -> None:
    assert set(OPCODES) | FULL | {"plain", "reader", "commander", "nobody"} == set(ROLES)
