"""The rules in force: which jobs of a submission they reject, and which may start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ganger.actors.admission import submitting
from ganger.actors.rules.rules_in_force import RulesInForce
from ganger.storage import settings
from ganger.storage.filters.rules import FilterRule, parse_rule
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport.messages import ChosenUnder, GateAnswered, JobSpec

QUEUED, WAITING, RUNNING = JobStatus.QUEUED, JobStatus.WAITING, JobStatus.RUNNING
SUCCESS = JobStatus.SUCCESS

UUID = "aaaaaaaa-0000-4000-8000-000000000000"
OTHER = "bbbbbbbb-0000-4000-8000-000000000000"
DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0}
EXEC = {"OP_ID": "OP_EXEC", "argv": ["true"]}
NO_DELAYS = ["opcode", ["=", "OP_ID", "OP_TEST_DELAY"]]


def rule(uuid: str = UUID, **fields: Any) -> FilterRule:
    raw = {"uuid": uuid, "watermark": 5, "action": "REJECT", "predicates": [NO_DELAYS]}
    return parse_rule(raw | fields)


def in_force(
    known: Iterable[FilterRule], chain: int = 0, clock: Callable[[], float] = lambda: 1.5e9
) -> RulesInForce:
    return RulesInForce(known, chain, wall_clock=clock)


def rejected(*known: FilterRule, jobs: list[JobSpec], first_id: int = 6) -> dict[int, str]:
    rules = in_force(known)
    drafts = submitting.drafts(jobs, first_id=first_id, now=0.0, key=None)
    return rules.rejections([draft.job for draft in drafts])


def job(*ops: dict[str, Any], **fields: Any) -> JobSpec:
    return JobSpec(ops=list(ops), **fields)


def test_without_rules_no_job_is_rejected() -> None:
    assert rejected(jobs=[job(DELAY)]) == {}


def test_a_rejection_names_rule_priority_and_reason() -> None:
    trail = [["gnt:user", "full", 1], ["gnt:user", "ask Ann", 2], ["luxid", "", 3]]
    rejections = rejected(rule(priority=4, reason_trail=trail), jobs=[job(DELAY)])
    assert rejections == {0: f"rejected by filter rule {UUID} (priority 4, reason: full; ask Ann)"}
    assert rejected(rule(), jobs=[job(DELAY)]) == {
        0: f"rejected by filter rule {UUID} (priority 0)"
    }


def test_a_reason_of_several_lines_is_one() -> None:
    trail = [["gnt:user:ann", "disk\nof n7", 1]]
    [text] = rejected(rule(reason_trail=trail, name="n7"), jobs=[job(DELAY)]).values()
    assert text == "rejected by the rule 'n7' (disk of n7)"


def test_only_the_jobs_that_a_rule_rejects_are_turned_away() -> None:
    rejections = rejected(rule(), jobs=[job(EXEC), job(DELAY), job(EXEC, DELAY), job(EXEC)])
    assert sorted(rejections) == [1, 2]


@pytest.mark.parametrize("action", ["ACCEPT", "PAUSE", "CONTINUE", ["RATE_LIMIT", 1]])
def test_no_other_action_rejects_a_job(action: object) -> None:
    assert rejected(rule(action=action), jobs=[job(DELAY)]) == {}


def test_the_first_rule_in_order_decides_at_the_door_too() -> None:
    reason = [("gnt:user", "maintenance pink bunny", 1)]
    admit = rule(OTHER, predicates=[["reason", ["=~", "reason", "pink bunny"]]], action="ACCEPT")
    rejections = rejected(rule(priority=1), admit, jobs=[job(DELAY), job(DELAY, reason=reason)])
    assert list(rejections) == [0]


def test_jobs_are_judged_by_the_ids_that_they_would_get() -> None:
    late = rule(predicates=[["jobid", [">", "id", "watermark"]]])
    assert list(rejected(late, jobs=[job(EXEC)] * 3, first_id=4)) == [2]


def test_with_a_rejected_job_go_those_that_depend_on_it() -> None:
    on_the_first = job(EXEC, depends=[(-1, ["success"])])
    on_the_second = job(EXEC, depends=[(-1, ["error"])])
    rejections = rejected(rule(), jobs=[job(DELAY), on_the_first, on_the_second, job(EXEC)])
    assert sorted(rejections) == [0, 1, 2]
    assert rejections[1] == (
        "not stored, because it depends on job 0 of the submission, which is rejected"
    )
    assert "job 1 of the submission" in rejections[2]


def test_a_dependency_of_a_later_opcode_counts_too() -> None:
    later = job(EXEC, EXEC | {"depends": [[-1, ["success"]]]})
    assert sorted(rejected(rule(), jobs=[job(DELAY), later])) == [0, 1]


def test_a_dependency_on_an_older_job_rejects_no_job() -> None:
    assert rejected(rule(), jobs=[job(EXEC, depends=[(3, ["success"])])]) == {}


def test_a_rule_is_obeyed_from_the_first_to_the_last_moment_of_its_window() -> None:
    # Also when the word that it has opened is still on its way.
    now = [9.0]
    rules = in_force([rule(valid_from=10.0, valid_until=20.0)], clock=lambda: now[0])
    drafts = submitting.drafts([job(DELAY)], first_id=1, now=0.0, key=None)
    outcomes = []
    for moment in (9.0, 10.0, 19.9, 20.0):
        now[0] = moment
        outcomes.append(bool(rules.rejections([draft.job for draft in drafts])))
    assert outcomes == [False, True, True, False]


def test_the_time_at_which_a_rule_ends_by_itself_is_reported() -> None:
    times = {UUID: 1_800_000_000.0, OTHER: None}
    rules = in_force([rule(uuid, valid_until=until) for uuid, until in times.items()])
    assert rules.ends_at(UUID) == "2027-01-15 08:00:00 UTC"
    assert rules.ends_at(OTHER) == ""
    # Stored by another program, beyond every calendar.
    assert in_force([rule(valid_until=1e18)]).ends_at(UUID) == ""


# The gate.


def stored(*statuses: JobStatus, op: dict[str, Any] = DELAY) -> jobs.Job:
    ops = [jobs.OpcodeEntry(input=op, status=status) for status in statuses]
    return jobs.Job(id=7, ops=ops)


def passed(rules: RulesInForce, job: jobs.Job, chain: int = 0, limit: str = "") -> GateAnswered:
    return rules.gate(job, ChosenUnder(chain, limit), has_begun=job.has_begun)


def test_the_next_opcode_is_held_by_a_rule_that_pauses_the_job() -> None:
    rules = in_force([rule(action="PAUSE", priority=2), rule(OTHER, priority=3)], 5)
    for statuses in ([QUEUED], [WAITING], [SUCCESS, QUEUED]):
        answer = passed(rules, stored(*statuses))
        assert (answer.is_open, answer.is_rejected) == (False, False)
        assert answer.text == f"paused by filter rule {UUID} (priority 2)"
    assert passed(rules, stored(QUEUED, op=EXEC)) == GateAnswered(is_open=True, chain=5)


def test_a_rule_rejects_a_job_until_its_first_opcode_runs() -> None:
    rules = in_force([rule()])
    answer = passed(rules, stored(WAITING))
    assert (answer.is_open, answer.is_rejected) == (False, True)
    assert answer.text == f"rejected by filter rule {UUID} (priority 0)"
    assert passed(rules, stored(SUCCESS, WAITING)).is_open
    assert passed(rules, stored(RUNNING, QUEUED)).is_open


def test_a_job_that_was_not_chosen_under_the_limit_is_chosen_anew() -> None:
    rules = in_force([rule(action=["RATE_LIMIT", 3])])
    assert not passed(rules, stored(QUEUED)).is_open
    assert not passed(rules, stored(QUEUED), limit=f"{UUID} 4").is_open
    assert passed(rules, stored(QUEUED), limit=f"{UUID} 3").is_open
    # What runs is counted as it is.
    assert passed(rules, stored(SUCCESS, QUEUED)).is_open


def test_a_job_chosen_under_the_rules_in_force_is_not_looked_at() -> None:
    rules = in_force([rule(action="PAUSE")], 5)
    assert rules.lets_all_start(ChosenUnder(5))
    assert not rules.lets_all_start(ChosenUnder(4))
    unknown = in_force([rule(action="PAUSE")])
    assert not unknown.lets_all_start(ChosenUnder())
    assert in_force([rule(action="ACCEPT")]).lets_all_start(ChosenUnder())


def test_a_window_that_opens_stops_those_chosen_before_it() -> None:
    now = [9.0]
    rules = in_force([rule(action="PAUSE", valid_from=10.0)], 5, lambda: now[0])
    assert passed(rules, stored(QUEUED), chain=5) == GateAnswered(is_open=True, chain=5)
    now[0] = 10.0
    assert not passed(rules, stored(QUEUED), chain=5).is_open


def test_a_submission_that_takes_long_to_judge_is_let_in_to_be_judged_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "ADMISSION_STEPS_MAX", 5_000)
    monkeypatch.setattr(settings, "ADMISSION_STEPS_PER_JOB", 0)
    searched = rule(predicates=[["opcode", ["=~", "comment", "x$"]]])
    small, large = ({**DELAY, "comment": "x" * size} for size in (10, 10_000))
    # What was judged before the limit counts; what comes behind it is not looked at.
    assert list(rejected(searched, jobs=[job(small), job(large), job(small)])) == [0]


def test_the_limit_grows_with_the_jobs_of_the_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "ADMISSION_STEPS_MAX", 0)
    assert len(rejected(rule(), jobs=[job(DELAY)] * 500)) == 500


def test_what_takes_long_at_the_gate_goes_back_to_be_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "ADMISSION_STEPS_MAX", 5_000)
    searched = [["opcode", ["=~", "comment", "y"]]]
    rules = in_force([rule(action="PAUSE", predicates=searched)], 5)
    small = {**DELAY, "comment": "x"}
    assert passed(rules, stored(QUEUED, op=small)).is_open
    large = stored(QUEUED, op={**DELAY, "comment": "x" * 10_000})
    answer = passed(rules, large)
    assert not answer.is_open
    assert "takes too long to judge" in answer.text
    # Judged by the evaluator, and chosen under these rules, it starts.
    assert passed(rules, large, chain=5).is_open
    # To be explained, it is held by the rule that takes so long.
    assert rules.stopping(large) == [UUID]


def test_the_gate_uses_the_priority_that_an_opcode_has_now() -> None:
    rules = in_force([rule(action="PAUSE", predicates=[["opcode", ["<", "priority", 0]]])], 5)
    waiting = stored(QUEUED)
    assert passed(rules, waiting).is_open
    waiting.ops[0].priority = -5
    assert not passed(rules, waiting).is_open
    assert rules.stopping(waiting) == [UUID]
