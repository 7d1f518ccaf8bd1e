"""Each way in which a job ends has one outcome, which agrees with its status, and a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.storage.jobs import job_ends, jobs, outcomes
from ganger.storage.jobs.jobs import Job, JobStatus, OpcodeEntry
from ganger.storage.jobs.outcomes import Ending, Outcome
from ganger.storage.opcodes import declarations

NOW = (1_700_000_000, 250_000)
RULE = "rejected by filter rule r"


def job(count: int = 1) -> Job:
    ops = [OpcodeEntry(input={"OP_ID": "OP_EXEC"}, status=JobStatus.QUEUED) for _ in range(count)]
    return Job(id=17, ops=ops)


def running(count: int = 1, place: int = 0) -> Job:
    found = job(count)
    for op in found.ops[: place + 1]:
        op.status, op.exec_timestamp = JobStatus.RUNNING, NOW
    for op in found.ops[:place]:
        op.status = JobStatus.SUCCESS
    return found


def command(text: str, *, has_begun: bool = True, **details: Any) -> Job:
    known = {"exit_code": None, "signal": None, "timed_out": False, **details}
    return failed("OpExecError", text, known, has_begun=has_begun)


def failed(*result: Any, has_begun: bool = True) -> Job:
    found = running() if has_begun else job()
    name, *details = result
    job_ends.fail_from(found, 0, NOW, [name, details])
    return found


def without_process(source: str, text: str) -> Job:
    found = running()
    job_ends.fail_whole(found, NOW, source=source, text=text)
    return found


def succeeded() -> Job:
    found = job()
    found.ops[0].status = JobStatus.SUCCESS
    return found


def canceled(source: str = "", text: str = "") -> Job:
    found = job()
    job_ends.cancel_pending(found, NOW, source=source, text=text)
    return found


def canceled_between() -> Job:
    found = running(3, 0)
    found.ops[0].status = JobStatus.SUCCESS
    job_ends.cancel_from(found, 1, NOW)
    return found


def second_failed() -> Job:
    found = running(3, 1)
    job_ends.fail_from(found, 1, NOW, ["OpExecError", ["no"]])
    return found


def killed(found: Job) -> Job:
    ending = outcomes.killed(found)
    assert ending is not None
    outcomes.note(found, ending)
    return found


def noted(ending: Ending, found: Job) -> Job:
    outcomes.note(found, ending)
    return found


DEATH = "detected death of job 17 at 2026-01-01 00:00:00 UTC: its process ended without a result"
DEPENDENCY = "Dependency job 5 finished with status 'error', not one of 'success' as required"
TABLE: list[tuple[Callable[[], Job], Outcome, str, int | None]] = [
    (succeeded, Outcome.SUCCESS, "", None),
    (
        lambda: command("command exited with code 7", exit_code=7, stderr_tail="a\nboom\n\n"),
        Outcome.FAILED,
        "exit code 7; last line: boom",
        None,
    ),
    (
        lambda: command("command exited with code 7", exit_code=7, stdout_tail="half\r100 %"),
        Outcome.FAILED,
        "exit code 7; last line: 100 %",
        None,
    ),
    (
        lambda: command("command exited with code 1", exit_code=1),
        Outcome.FAILED,
        "exit code 1",
        None,
    ),
    (
        lambda: command("command was ended by SIGSEGV", signal=11),
        Outcome.FAILED,
        "ended by SIGSEGV",
        None,
    ),
    (
        lambda: command("command exceeded its time limit of 5 s", signal=15, timed_out=True),
        Outcome.TIMED_OUT,
        "exceeded its time limit of 5 s",
        None,
    ),
    (
        lambda: command("command was killed on request, and ended by SIGTERM", signal=15),
        Outcome.KILLED,
        "on request, and ended by SIGTERM",
        None,
    ),
    (lambda: failed("OpExecError", "killed on request"), Outcome.KILLED, "on request", None),
    (
        lambda: failed(
            "OpExecError", "command cannot be started: 'x' not found", {"shell_code": 127}
        ),
        Outcome.FAILED,
        "command cannot be started: 'x' not found",
        None,
    ),
    (
        lambda: failed("OpPrereqError", "no such node", "wrong_input"),
        Outcome.FAILED,
        "no such node",
        None,
    ),
    (lambda: failed("OpExecError"), Outcome.FAILED, "OpExecError", None),
    (second_failed, Outcome.FAILED, "opcode 2: no", None),
    (lambda: failed("OpExecError", DEPENDENCY, has_begun=False), Outcome.SKIPPED, DEPENDENCY, 5),
    # Its operation has said that, and has run.
    (lambda: failed("OpExecError", DEPENDENCY), Outcome.FAILED, DEPENDENCY, None),
    (
        lambda: without_process(outcomes.DEATH_SOURCE, DEATH),
        Outcome.LOST,
        DEATH,
        None,
    ),
    (
        lambda: without_process(outcomes.START_SOURCE, "job 17 failed to start: no room"),
        Outcome.LOST,
        "job 17 failed to start: no room",
        None,
    ),
    (
        lambda: without_process(outcomes.DEATH_SOURCE, "job 17 was killed on request at noon"),
        Outcome.KILLED,
        "on request; it did not react",
        None,
    ),
    (canceled, Outcome.CANCELED, "before it began", None),
    (canceled_between, Outcome.CANCELED, "before opcode 2 of 3", None),
    (lambda: canceled(jobs.FILTER_SOURCE, RULE), Outcome.REJECTED, RULE, None),
    # A user may write anything into a trail: the source that counts is that of the last entry.
    (lambda: canceled("me", "because"), Outcome.CANCELED, "before it began", None),
    (
        lambda: noted(outcomes.skipped(5, "EXEC(a)", Ending(Outcome.FAILED, "no")), canceled()),
        Outcome.SKIPPED,
        "EXEC(a) failed: job 5",
        5,
    ),
    (
        lambda: killed(canceled_between()),
        Outcome.KILLED,
        "on request; before opcode 2 of 3",
        None,
    ),
    (lambda: killed(second_failed()), Outcome.KILLED, "on request; opcode 2: no", None),
]


@pytest.mark.parametrize(("made", "outcome", "reason", "cause"), TABLE)
def test_each_end_has_its_outcome(
    made: Callable[[], Job], outcome: Outcome, reason: str, cause: int | None
) -> None:
    found = made()
    assert outcomes.ending_of(found) == Ending(outcome, reason, cause)
    assert outcome in outcomes.OF_STATUS[found.status]


def test_every_outcome_is_in_the_table() -> None:
    assert {outcome for _, outcome, _, _ in TABLE} == set(Outcome)


@pytest.mark.parametrize("status", [status for status in JobStatus if not status.is_final])
def test_a_job_that_has_not_ended_has_no_outcome(status: JobStatus) -> None:
    found = job()
    found.ops[0].status = status
    assert outcomes.ending_of(found) is None
    assert outcomes.end_of(status, None).outcome is None


def test_a_job_that_succeeds_although_it_was_to_be_killed_is_a_success() -> None:
    assert outcomes.killed(succeeded()) == outcomes.SUCCEEDED


def test_what_is_noted_survives_the_file() -> None:
    ending = Ending(Outcome.SKIPPED, "EXEC(a) failed: job 5", 5)
    body = jobs.encode_job(noted(ending, canceled()))
    assert outcomes.ending_of(jobs.decode_job(body)) == ending


@pytest.mark.parametrize(
    "strange",
    [
        None,
        7,
        [],
        {},
        {"outcome": "lost", "reason": "but it was canceled"},
        {"outcome": "skipped", "reason": ""},
        {"outcome": "no such outcome", "reason": "r"},
        {"outcome": "killed", "reason": 7},
    ],
)
def test_a_noted_ending_that_cannot_be_true_is_passed_over(strange: object) -> None:
    found = canceled()
    found.extra[jobs.ENDING_KEY] = strange
    assert outcomes.ending_of(found) == Ending(Outcome.CANCELED, "before it began")


def test_a_cause_that_is_no_id_is_passed_over() -> None:
    found = canceled()
    found.extra[jobs.ENDING_KEY] = {"outcome": "skipped", "reason": "r", "cause": "5"}
    assert outcomes.ending_of(found) == Ending(Outcome.SKIPPED, "r")


def test_a_chain_of_skipped_jobs_names_the_first_that_failed() -> None:
    second = outcomes.skipped(1, "restore", Ending(Outcome.FAILED, "exit code 1"))
    assert second == Ending(Outcome.SKIPPED, "restore failed: job 1", 1)
    assert outcomes.skipped(2, "start", second) == second


@pytest.mark.parametrize("outcome", [one for one in Outcome if one is not Outcome.SKIPPED])
def test_a_skipped_job_says_how_its_dependency_ended(outcome: Outcome) -> None:
    found = outcomes.skipped(5, "check", Ending(outcome, "r"))
    unneeded = "not needed, as " if outcome is Outcome.SUCCESS else ""
    assert found.reason == f"{unneeded}check {outcomes.VERBS[outcome]}: job 5"
    assert found.cause == 5


def test_a_dependency_that_is_gone_is_named() -> None:
    assert outcomes.skipped(5, "", None) == Ending(Outcome.SKIPPED, "job 5 does not exist", 5)


def test_the_words_of_dependencies_are_those_of_opcodes() -> None:
    assert set(outcomes.DEPENDENCY_WORDS) == set(declarations.DEPENDENCY_WORDS)
    assert len(outcomes.DEPENDENCY_WORDS) == len(declarations.DEPENDENCY_WORDS)
    assert outcomes.ANY_FAILED == declarations.ANY_FAILED


def test_a_status_has_outcomes_if_it_is_final() -> None:
    assert set(outcomes.OF_STATUS) == {status for status in JobStatus if status.is_final}
    assert {one for some in outcomes.OF_STATUS.values() for one in some} == set(Outcome)


PARTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
TAILS = st.fixed_dictionaries(
    {"exit_code": PARTS}, optional={"stderr_tail": PARTS, "timed_out": PARTS}
)
RESULTS = (
    PARTS
    | st.tuples(st.text(), st.lists(st.text() | PARTS, max_size=2)).map(list)
    | st.tuples(st.text(), st.tuples(st.text(), TAILS).map(list)).map(list)
)
ENDS = st.sampled_from([status for status in JobStatus if status.is_final])


@given(
    ops=st.lists(st.tuples(ENDS, RESULTS, PARTS, st.booleans()), max_size=4),
    note=PARTS | st.fixed_dictionaries({"outcome": st.text() | ENDS, "reason": PARTS}),
)
def test_whatever_a_file_holds_its_outcome_agrees_with_its_status_and_has_a_reason(
    ops: list[tuple[JobStatus, Any, Any, bool]], note: Any
) -> None:
    entries = [
        OpcodeEntry(
            input={"reason": trail},
            status=status,
            result=result,
            exec_timestamp=NOW if has_begun else None,
        )
        for status, result, trail, has_begun in ops
    ]
    found = Job(id=1, ops=entries, extra={jobs.ENDING_KEY: note})
    ending = outcomes.ending_of(found)
    assert ending is not None
    assert ending.outcome in outcomes.OF_STATUS[found.status]
    assert (not ending.reason) is (ending.outcome is Outcome.SUCCESS)
    assert len(ending.reason) <= outcomes.REASON_CHARACTERS_MAX
    assert ending.reason.isprintable()
    msgspec.json.encode(ending)
