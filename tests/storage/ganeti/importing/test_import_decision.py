"""What becomes of a job that Ganeti has left."""

from __future__ import annotations

from typing import Any

import pytest
from tests.storage.ganeti.importing.ganeti import DATA, job, opcode

from ganger.storage import opcodes
from ganger.storage.ganeti.importing import import_decision
from ganger.storage.ganeti.importing.import_decision import Outcome
from ganger.storage.jobs import job_ends, jobs
from ganger.storage.jobs.jobs import JobStatus

NOW = (1_800_000_000, 5)
LIVELOCK = "/var/run/ganeti/livelocks/job_000007_1795226694"
LUXIDS = "/var/run/ganeti/livelocks/luxi-daemon_1795226694"
BEGUN = "in Ganeti and may have begun, so it does not start again"
ENDED = opcode(status="success", result=[1], end_timestamp=[1, 0])


def made(*ops: dict[str, Any], **given: Any) -> jobs.Job:
    return jobs.decode_job(job(7, *ops, **given))


def settled(found: jobs.Job, *, is_archived: bool = False) -> jobs.Job:
    import_decision.settle(found, import_decision.fate(found, is_archived=is_archived), NOW)
    # What is written is a job file.
    return jobs.decode_job(jobs.encode_job(found))


def test_a_job_that_only_the_queue_had_is_pending_and_its_file_stays() -> None:
    found = made(opcode(), opcode())
    fate = import_decision.fate(found)
    assert fate.outcome is Outcome.PENDING
    assert not import_decision.is_rewritten(found, fate, is_archived=False)


def test_a_job_for_which_luxid_was_making_a_process_is_pending_without_that() -> None:
    found = made(livelock=LUXIDS)
    fate = import_decision.fate(found)
    assert fate.outcome is Outcome.PENDING
    assert import_decision.is_rewritten(found, fate, is_archived=False)
    assert settled(found).livelock is None


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (made(livelock=LIVELOCK), "had been given a process"),
        (made(process_id=12), "had been given a process"),
        (made(start_timestamp=[5, 0]), "had been given a process"),
        (made(opcode(start_timestamp=[5, 0])), "had been given a process"),
        (made(opcode(status="waiting"), livelock=LIVELOCK), "waited for its locks"),
        (made(opcode(status="waiting")), "waited for its locks"),
        (made(opcode(status="running"), livelock=LIVELOCK), "was running"),
        (made(opcode(status="running"), livelock=LUXIDS), "was running"),
        (made(ENDED, opcode(), livelock=LIVELOCK), "was between two opcodes"),
        (made(ENDED, opcode()), "was between two opcodes"),
        (made(ENDED, opcode(status="running"), opcode()), "was running"),
    ],
)
def test_a_job_that_may_have_begun_ends_in_an_error(found: jobs.Job, words: str) -> None:
    text = f"the job {words} {BEGUN}"
    assert import_decision.fate(found) == import_decision.Fate(
        Outcome.ENDED, text, ["OpExecError", [text]]
    )
    after = settled(found)
    assert after.status is JobStatus.ERROR
    assert (after.livelock, after.process_id, after.end_timestamp) == (None, None, NOW)


def test_what_an_opcode_has_done_stays_and_a_retry_goes_on_behind_it() -> None:
    after = settled(made(ENDED, opcode(status="running"), opcode(), livelock=LIVELOCK))
    assert [str(op.status) for op in after.ops] == ["success", "error", "error"]
    assert [op.result for op in after.ops][::2] == [[1], job_ends.PRECEDING_FAILED_RESULT]
    assert after.ops[0].end_timestamp == (1, 0)
    assert after.ops[1].input["reason"][-1][:2] == [
        import_decision.SOURCE,
        f"the job was running {BEGUN}",
    ]
    statuses = [op.status for op in after.ops]
    assert jobs.first_to_repeat(7, statuses, is_whole=False) == 1


def test_a_job_that_was_being_canceled_is_canceled() -> None:
    ops = [ENDED, opcode(status="canceling"), opcode(status="canceling")]
    after = settled(made(*ops, livelock=LIVELOCK))
    assert [str(op.status) for op in after.ops] == ["success", "canceled", "canceled"]
    assert after.ops[1].result == job_ends.CANCELED_RESULT
    entry = after.ops[1].input["reason"][-1]
    assert entry[:2] == [import_decision.SOURCE, "the job was being canceled in Ganeti"]
    assert after.status is JobStatus.CANCELED
    assert (after.livelock, after.end_timestamp) == (None, NOW)


def test_a_job_whose_opcode_ran_is_not_canceled_whatever_follows() -> None:
    after = settled(made(opcode(status="running"), opcode(status="canceling")))
    assert after.status is JobStatus.ERROR


@pytest.mark.parametrize("status", ["success", "error", "canceled"])
def test_an_ended_job_stays_as_it_is_but_for_the_name_of_its_lock_file(status: str) -> None:
    found = made(opcode(status=status, result="x"), livelock=LIVELOCK, process_id=12, strange=[1])
    fate = import_decision.fate(found)
    assert fate.outcome is Outcome.FINAL
    assert import_decision.is_rewritten(found, fate, is_archived=False)
    assert not import_decision.is_rewritten(found, fate, is_archived=True)
    before = jobs.job_document(found)
    after = settled(found)
    after.extra.pop(jobs.CHECKSUM_KEY, None)
    assert jobs.job_document(after) == {**before, "livelock": None}


def test_a_job_without_opcodes_has_ended() -> None:
    found = jobs.decode_job(b'{"id": 7, "ops": []}')
    assert import_decision.fate(found).outcome is Outcome.FINAL


@pytest.mark.parametrize("status", ["queued", "waiting", "canceling", "running"])
def test_an_archived_job_that_had_not_ended_ends(status: str) -> None:
    found = made(opcode(status=status), livelock=LIVELOCK)
    assert import_decision.is_rewritten(
        found, import_decision.fate(found, is_archived=True), is_archived=True
    )
    assert settled(found, is_archived=True).status is JobStatus.ERROR


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"OP_ID": "OP_EXEC", "argv": ["true"]}, "OP_EXEC: not an opcode of Ganeti"),
        ({"OP_ID": "OP_FROM_A_FORK"}, "OP_FROM_A_FORK: not an opcode of Ganeti"),
        ({"OP_ID": 5}, "OP_ID: expected str, got int"),
        ({"OP_ID": "OP_NODE_ADD", "node_name": "n"}, "nothing on this system can run it"),
        ({"OP_ID": "OP_TEST_DELAY"}, "missing parameter 'duration'"),
        ({"OP_ID": "OP_TEST_DELAY", "duration": 1, "x": 1}, "unknown parameter 'x'"),
        ({"OP_ID": "OP_TEST_DELAY", "duration": 1, "depends": [[9, []]]}, "depends on job 9"),
        ({"OP_ID": "OP_TEST_DELAY", "duration": 1, "depends": [[-1, []]]}, "depends on job -1"),
    ],
)
def test_a_job_that_cannot_run_here_ends_with_the_reason(
    fields: dict[str, Any], words: str
) -> None:
    found = made(opcode(), {**opcode(), "input": fields})
    fate = import_decision.fate(found)
    assert fate.outcome is Outcome.ENDED
    assert fate.why.startswith("opcode 1: ")
    assert words in fate.why
    after = settled(found)
    assert after.ops[0].result == ["OpPrereqError", [fate.why, "wrong_input"]]
    assert [str(op.status) for op in after.ops] == ["error", "error"]


def test_a_lost_secret_keeps_a_job_from_running(monkeypatch: pytest.MonkeyPatch) -> None:
    # No opcode that runs here has a secret parameter.
    monkeypatch.setattr(opcodes, "check_opcode", lambda _: {})
    fields = {"OP_ID": "OP_INSTANCE_REINSTALL", "osparams_secret": {"root": "<redacted>"}}
    why = import_decision.fate(made({**opcode(), "input": fields})).why
    assert why == "OP_INSTANCE_REINSTALL: osparams_secret is secret, and only Ganeti's LuxiD had it"


@pytest.mark.parametrize(("given", "kept"), [(-100, -20), (1000, 19)])
def test_a_priority_that_ganger_does_not_have_becomes_the_nearest(given: int, kept: int) -> None:
    found = made(opcode(priority=given), opcode(priority=5))
    assert import_decision.is_rewritten(found, import_decision.fate(found), is_archived=False)
    after = settled(found)
    assert [op.priority for op in after.ops] == [kept, 5]
    assert after.status is JobStatus.QUEUED


@pytest.mark.parametrize(
    "path", sorted((DATA / "job-states").iterdir()), ids=lambda path: path.name
)
def test_recorded_jobs(path: Any) -> None:
    expected = {
        "running-holding-lock": Outcome.ENDED,
        "waiting-for-lock": Outcome.ENDED,
        "queued-on-dependency": Outcome.PENDING,
        "paused-two-ops": Outcome.PENDING,
    }
    found = import_decision.fate(jobs.decode_job(path.read_bytes()))
    assert found.outcome is expected.get(path.suffix[1:], Outcome.FINAL)
