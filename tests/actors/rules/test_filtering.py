"""Which filter rule applies to a job: the predicates case by case, and the chain."""

from __future__ import annotations

from typing import Any

import pytest

from ganger.actors.rules.filtering import (
    ACCEPTED,
    JobFacts,
    RuleChain,
    Verdict,
    compile_chain,
    judge,
)
from ganger.storage.rules import ActionName, FilterRule, parse_rule

UUID_A = "aaaaaaaa-0000-4000-8000-000000000000"
UUID_B = "bbbbbbbb-0000-4000-8000-000000000000"
UUID_C = "cccccccc-0000-4000-8000-000000000000"


def rule(uuid: str = UUID_A, *, watermark: int = 100, **fields: Any) -> FilterRule:
    return parse_rule({"uuid": uuid, "watermark": watermark, "action": "PAUSE", **fields})


def verdict(*known: FilterRule, job: JobFacts, now: float = 0.0) -> Verdict:
    return judge(compile_chain(known, now), job)


# A job as the daemon stores it at submission: defaults filled in, unset parameters left out,
# except for `depends` and `comment`, which are null.
DELAY: dict[str, Any] = {
    "OP_ID": "OP_TEST_DELAY",
    "duration": 0.001,
    "on_master": True,
    "on_nodes": ["node1", "node2"],
    "repeat": 0,
    "no_locks": False,
    "priority": -10,
    "depends": [[99, ["success"]]],
    "comment": None,
    "dry_run": False,
    "debug_level": 2,
    "reason": [["gnt:user", "pink bunny", 50], ["gnt:opcode:test_delay", "job=101;index=0", 60]],
}
CREATE: dict[str, Any] = {
    "OP_ID": "OP_INSTANCE_CREATE",
    "instance_name": "web1",
    "hvparams": {"acpi": True, "boot": {"order": "disk"}, "vnc": None},
    "priority": 0,
    "depends": None,
    "comment": "second",
    "reason": [["gnt:user", "urgent", 70]],
}
JOB = JobFacts.of(101, [DELAY, CREATE])

# Each case was tried on a running Ganeti 3.0.2, or follows from the rules found there; those
# marked "differs" are where Ganger has been decided to do otherwise (design, section 9).
CASES: list[tuple[str, list[Any], bool]] = [
    # jobid: the id, compared with integers and with the watermark (100).
    ("the watermark stands for its number", ["jobid", [">", "id", "watermark"]], True),
    ("not below the watermark", ["jobid", ["<=", "id", "watermark"]], False),
    ("equal to an integer", ["jobid", ["=", "id", 101]], True),
    ("negated by !=", ["jobid", ["!=", "id", 101]], False),
    ("null is every job", ["jobid", None], True),
    ("and, or, not", ["jobid", ["&", [">=", "id", 1], ["!", ["<", "id", 50]]]], True),
    ("a number as a string is invalid", ["jobid", [">", "id", "12"]], False),
    ("also under !", ["jobid", ["!", [">", "id", "12"]]], False),
    ("true before invalid", ["jobid", ["|", [">", "id", 1], [">", "id", "12"]]], True),
    ("invalid before true", ["jobid", ["|", [">", "id", "12"], [">", "id", 1]]], False),
    ("false before invalid", ["jobid", ["!", ["&", ["<", "id", 1], ["?", "id"]]]], True),
    ("invalid before false", ["jobid", ["!", ["&", ["?", "id"], ["<", "id", 1]]]], False),
    ("an id is no truth", ["jobid", ["!", ["?", "id"]]], False),
    ("an id is no list", ["jobid", ["!", ["=[]", "id", 101]]], False),
    ("an id has text (differs)", ["jobid", ["=~", "id", "^1.1$"]], True),
    ("that is searched (differs)", ["jobid", ["!", ["=~", "id", "2"]]], True),
    ("there is no other field", ["jobid", ["==", "zzz", 101]], False),
    ("and ! of that is true (differs)", ["jobid", ["!", ["==", "zzz", 101]]], True),
    # reason: some entry of the trail of some opcode.
    ("a reason's text", ["reason", ["=", "reason", "urgent"]], True),
    ("a reason's source", ["reason", ["=", "source", "gnt:opcode:test_delay"]], True),
    (
        "all of one entry",
        ["reason", ["&", ["=", "reason", "urgent"], ["=", "timestamp", 70]]],
        True,
    ),
    ("not across two", ["reason", ["&", ["=", "reason", "urgent"], ["=", "timestamp", 50]]], False),
    ("a reason's time", ["reason", [">", "timestamp", 69]], True),
    ("no reason that late", ["reason", [">", "timestamp", 70]], False),
    ("text is below numbers", ["reason", ["<", "reason", 5]], True),
    ("and never above", ["reason", [">", "reason", 5]], False),
    ("a time is above text", ["reason", [">", "timestamp", "zzz"]], True),
    ("and equal to none", ["reason", ["==", "reason", 5]], False),
    ("! holds for another entry", ["reason", ["!", ["=", "reason", "urgent"]]], True),
    ("searched text (differs)", ["reason", ["=~", "reason", "pink"]], True),
    ("text not found (differs)", ["reason", ["=~", "reason", "^bunny"]], False),
    ("also under ! (differs)", ["reason", ["!", ["=~", "reason", "."]]], False),
    ("a time has text (differs)", ["reason", ["=~", "timestamp", "^7"]], True),
    ("a text is no truth", ["reason", ["!", ["?", "reason"]]], False),
    ("a missing field, negated (differs)", ["reason", ["!", ["=", "owner", "x"]]], True),
    # opcode: some opcode.
    ("an opcode's kind", ["opcode", ["=", "OP_ID", "OP_INSTANCE_CREATE"]], True),
    ("another kind", ["opcode", ["=", "OP_ID", "OP_NODE_ADD"]], False),
    ("a kind is searched", ["opcode", ["=~", "OP_ID", "DELAY"]], True),
    ("a fraction compares as a number", ["opcode", ["<", "duration", 1]], True),
    ("a string is above numbers", ["opcode", [">", "OP_ID", 5]], True),
    ("a number is below strings", ["opcode", ["<", "repeat", "0"]], True),
    ("equality needs one type", ["opcode", ["==", "repeat", "0"]], False),
    ("a true parameter", ["opcode", ["?", "on_master"]], True),
    ("a false parameter", ["opcode", ["?", "no_locks"]], False),
    ("a non-boolean is no truth", ["opcode", ["&", ["?", "repeat"]]], False),
    ("a list with the value", ["opcode", ["=[]", "on_nodes", "node2"]], True),
    (
        "a list of texts holds no number",
        ["opcode", ["&", ["?", "on_master"], ["!", ["=[]", "on_nodes", 2]]]],
        False,
    ),
    ("a number is not searched", ["opcode", ["=~", "repeat", "0"]], False),
    ("also under !", ["opcode", ["&", ["?", "on_master"], ["!", ["=~", "repeat", "0"]]]], False),
    ("a list without it", ["opcode", ["=[]", "on_nodes", "node3"]], False),
    ("all of one opcode", ["opcode", ["&", ["?", "on_master"], ["=", "repeat", 0]]], True),
    ("not across two", ["opcode", ["&", ["?", "on_master"], ["=", "comment", "second"]]], False),
    ("dots lead into objects", ["opcode", ["?", "hvparams.acpi"]], True),
    ("and deeper", ["opcode", ["=", "hvparams.boot.order", "disk"]], True),
    ("but not into texts", ["opcode", ["=", "instance_name.x", "web1"]], False),
    ("nor beyond the last dot", ["opcode", ["=~", "instance_name.", "."]], False),
    ("null inside is a value", ["opcode", ["<", "hvparams.vnc", 0]], True),
    ("filled in later: missing", ["opcode", ["=[]", "on_node_uuids", "x"]], False),
    ("missing or (differs)", ["opcode", ["|", ["=", "zzz", 1], ["=", "repeat", 0]]], True),
    ("missing, negated (differs)", ["opcode", ["!", ["=", "zzz", 1]]], True),
    ("unset: missing", ["opcode", ["&", ["?", "on_master"], ["<", "comment", 1]]], False),
    ("common: priority (differs)", ["opcode", ["<", "priority", 0]], True),
    ("common: comment (differs)", ["opcode", ["=", "comment", "second"]], True),
    ("common: dry_run (differs)", ["opcode", ["!", ["?", "dry_run"]]], True),
    ("common: debug_level (differs)", ["opcode", ["=", "debug_level", 2]], True),
    ("common: depends (differs)", ["opcode", [">", "depends", "any text"]], True),
    ("the other spelling (differs)", ["opcode", [">", "depend", "any text"]], True),
]


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [case[1:] for case in CASES],
    ids=[f"{case[1][0]}: {case[0]}" for case in CASES],
)
def test_a_predicate_matches_a_job(predicate: list[Any], *, expected: bool) -> None:
    is_paused = verdict(rule(predicates=[predicate]), job=JOB).action is ActionName.PAUSE
    assert is_paused is expected


def test_depend_is_found_under_either_spelling() -> None:
    pause = rule(predicates=[["opcode", [">", "depends", "any text"]]])
    job = JobFacts.of(1, [{"OP_ID": "OP_EXEC", "depend": [[-1, ["success"]]]}])
    assert verdict(pause, job=job).action is ActionName.PAUSE


def test_an_unset_parameter_is_missing_whether_left_out_or_null() -> None:
    pause = rule(predicates=[["opcode", ["!", ["=~", "comment", "."]]]])
    for opcode in ({"OP_ID": "OP_EXEC"}, {"OP_ID": "OP_EXEC", "comment": None}):
        assert verdict(pause, job=JobFacts.of(1, [opcode])).action is ActionName.PAUSE


@pytest.mark.parametrize("trail", [None, "x", [["only", "two"]], [7], [None]])
def test_a_broken_trail_has_no_reasons(trail: object) -> None:
    pause = rule(predicates=[["reason", None]])
    job = JobFacts.of(1, [{"OP_ID": "OP_EXEC", "reason": trail}])
    assert verdict(pause, job=job) == ACCEPTED


def test_without_rules_every_job_is_accepted() -> None:
    assert judge(RuleChain(), JOB) == ACCEPTED
    assert compile_chain([], 0.0) == RuleChain()


def test_a_rule_without_predicates_matches_every_job() -> None:
    assert verdict(rule(), job=JOB) == Verdict(UUID_A, ActionName.PAUSE)


def test_all_predicates_of_a_rule_must_match() -> None:
    both = rule(predicates=[["jobid", ["=", "id", 101]], ["reason", ["=", "reason", "vip"]]])
    assert verdict(both, job=JOB) == ACCEPTED


def test_a_continue_rule_never_applies() -> None:
    known = rule(action="CONTINUE"), rule(UUID_B, priority=1, action="REJECT")
    assert verdict(*known, job=JOB) == Verdict(UUID_B, ActionName.REJECT)


def test_a_verdict_carries_the_number_of_its_limit() -> None:
    limited = rule(action=["RATE_LIMIT", 4])
    assert verdict(limited, job=JOB) == Verdict(UUID_A, ActionName.RATE_LIMIT, 4)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"uuid": UUID_B, "priority": 1, "watermark": 900}, {"uuid": UUID_A, "priority": 2}),
        ({"uuid": UUID_B, "watermark": 8}, {"uuid": UUID_A, "watermark": 9}),
        ({"uuid": UUID_A}, {"uuid": UUID_B}),
    ],
    ids=["by priority", "then by watermark", "then by UUID"],
)
def test_the_first_rule_in_order_applies(first: dict[str, Any], second: dict[str, Any]) -> None:
    for known in ((rule(**first), rule(**second)), (rule(**second), rule(**first))):
        assert verdict(*known, job=JOB).rule == first["uuid"]


def test_a_rule_outside_its_window_does_not_apply() -> None:
    known = rule(valid_from=10, valid_until=20), rule(UUID_B, priority=1, action="ACCEPT")
    applying = [verdict(*known, job=JOB, now=now).rule for now in (9.0, 10.0, 19.0, 20.0)]
    assert applying == [UUID_B, UUID_A, UUID_A, UUID_B]


def test_a_chain_tells_when_it_has_to_be_compiled_again() -> None:
    known = [rule(valid_from=10, valid_until=30), rule(UUID_B, valid_until=20), rule(UUID_C)]
    moments = [compile_chain(known, now).changes_at for now in (0.0, 10.0, 20.0, 30.0)]
    assert moments == [10.0, 20.0, 30.0, None]


def test_a_chain_tells_whether_ids_are_enough() -> None:
    drain = rule(predicates=[["jobid", [">", "id", "watermark"]]])
    opcode = rule(UUID_B, predicates=[["opcode", None]], action="ACCEPT")
    asleep = rule(UUID_C, predicates=[["reason", None]], action="CONTINUE")
    assert not compile_chain([drain, asleep], 0.0).reads_opcodes
    assert compile_chain([drain, opcode], 0.0).reads_opcodes
    assert verdict(drain, job=JobFacts(101)).action is ActionName.PAUSE


# The examples of the job filter design document.


def job(job_id: int, op_id: str = "OP_TEST_DELAY", reason: str = "") -> JobFacts:
    return JobFacts.of(job_id, [{"OP_ID": op_id, "reason": [["gnt:user", reason, 1]]}])


@pytest.mark.parametrize("action", ["REJECT", "PAUSE"], ids=["drain", "soft drain"])
def test_example_draining_the_queue_spares_what_was_there_before(action: str) -> None:
    drain = rule(predicates=[["jobid", [">", "id", "watermark"]]], action=action)
    assert verdict(drain, job=job(101)) == Verdict(UUID_A, ActionName(action))
    assert verdict(drain, job=job(100)) == ACCEPTED


def test_example_new_jobs_wait_unless_they_belong_to_the_maintenance() -> None:
    belongs = ["reason", ["=~", "reason", "maintenance pink bunny"]]
    known = (
        rule(UUID_A, priority=0, predicates=[belongs], action="ACCEPT"),
        rule(UUID_B, priority=1, predicates=[["jobid", [">", "id", "watermark"]]]),
    )
    member = job(101, reason="for maintenance pink bunny, step 2")
    assert verdict(*known, job=member) == Verdict(UUID_A, ActionName.ACCEPT)
    assert verdict(*known, job=job(102)) == Verdict(UUID_B, ActionName.PAUSE)
    assert verdict(*known, job=job(99)) == ACCEPTED


def test_example_instance_creations_are_canceled_and_refused() -> None:
    creation = ["opcode", ["=", "OP_ID", "OP_INSTANCE_CREATE"]]
    refuse = rule(priority=1, predicates=[creation], action="REJECT")
    for job_id in (99, 101):
        refused = verdict(refuse, job=job(job_id, "OP_INSTANCE_CREATE"))
        assert refused == Verdict(UUID_A, ActionName.REJECT)
    assert verdict(refuse, job=job(101)) == ACCEPTED


def test_example_disk_replacements_are_limited_to_ten() -> None:
    replacement = ["opcode", ["=", "OP_ID", "OP_INSTANCE_REPLACE_DISKS"]]
    limit = rule(priority=99, predicates=[replacement], action=["RATE_LIMIT", 10])
    limited = verdict(limit, job=job(5, "OP_INSTANCE_REPLACE_DISKS"))
    assert limited == Verdict(UUID_A, ActionName.RATE_LIMIT, 10)
    assert verdict(limit, job=job(5)) == ACCEPTED
