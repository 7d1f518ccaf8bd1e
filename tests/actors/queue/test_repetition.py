"""A queue that gets the same message twice: in one turn, or in two, it ends up as after one.

The replies to a repetition do not depend on whether it comes before the flush.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.actors.queue.queue_stage import DELAY, ENDED, PID, Queue, spec
from tests.actors.runtime.stage import Asker, Stage

from ganger.actors.store import job_classes
from ganger.storage.alive import lock_files
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages
from ganger.transport.messages import JobSpec, Message

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus

Scene = Callable[[Queue], Message]


def in_file(queue: Queue, message: messages.RecordState | messages.JobReturns) -> Message:
    """The process has flushed its file itself."""
    assert message.body is not None
    queue.write_as_process(message.job_id, message.body)
    return msgspec.structs.replace(message, body=None)


def submission(_: Queue) -> Message:
    return messages.SubmitJobs(jobs=[spec(), JobSpec(ops=[DELAY], priority=3)], key="mine")


def retry(queue: Queue) -> Message:
    queue.finish_new(ERROR)
    return messages.RetryJob(id=1, key="again")


def cancel_pending(queue: Queue) -> Message:
    queue.submitted(spec())
    return messages.CancelJob(id=1)


def cancel_starting(queue: Queue) -> Message:
    queue.submitted(spec())
    queue.choose(1)
    return messages.CancelJob(id=1)


def cancel_final(queue: Queue) -> Message:
    queue.finish_new()
    return messages.CancelJob(id=1)


def priority(queue: Queue) -> Message:
    queue.submitted(spec())
    return messages.ChangeJobPriority(id=1, priority=7)


def autoarchive(queue: Queue) -> Message:
    queue.finish_new()
    return messages.AutoArchiveJobs(age_seconds=-1)


def drain(_: Queue) -> Message:
    return messages.SetDrain(is_drained=True)


def running(queue: Queue) -> Message:
    queue.start_new()
    return state(queue, 10, RUNNING)


def running_in_file(queue: Queue) -> Message:
    queue.start_new()
    return in_file(queue, state(queue, 10, RUNNING))


def final(queue: Queue) -> Message:
    queue.run_new()
    return state(queue, 20, SUCCESS)


def final_in_file(queue: Queue) -> Message:
    queue.run_new()
    return in_file(queue, state(queue, 20, SUCCESS))


def state(queue: Queue, serial: int, *statuses: JobStatus) -> messages.RecordState:
    return queue.state(1, serial, *statuses, body=queue.body_of_process(1, serial, *statuses))


def waits(queue: Queue) -> Message:
    queue.start_new()
    body = queue.body_of_process(1, 10, WAITING)
    return messages.JobWaits(job_id=1, serial=10, body=body)


def returns(queue: Queue) -> Message:
    queue.start_new()
    body = queue.body_of_process(1, 10, QUEUED)
    return messages.JobReturns(job_id=1, serial=10, body=body)


def returns_in_file(queue: Queue) -> Message:
    message = returns(queue)
    assert isinstance(message, messages.JobReturns)
    return in_file(queue, message)


def logged(queue: Queue) -> Message:
    queue.run_new()
    entries: list[jobs.LogEntry] = [(1, (1, 2), "message", "hello")]
    return messages.JobLogAppended(job_id=1, op_index=0, entries=entries)


def hand_over(queue: Queue) -> Message:
    queue.submitted(spec())
    queue.choose(1)
    lock_file = queue.stage.places.lock_files / "job_000001_1"
    return messages.HandOverRequested(job_id=1, lock_file=str(lock_file), process_id=PID)


def exited(queue: Queue, *, has_left: bool = False) -> Message:
    held = queue.processes.pop(1)
    held.remove()
    return messages.JobExited(job_id=1, lock_file=held.path, has_left=has_left)


def left(queue: Queue) -> Message:
    queue.start_new()
    queue.write_as_process(1, queue.body_of_process(1, 10, SUCCESS))
    queue.recorded(1, 10, SUCCESS)
    return exited(queue, has_left=True)


def died_running(queue: Queue) -> Message:
    queue.run_new()
    return exited(queue)


def died_before_it_began(queue: Queue) -> Message:
    queue.start_new()
    return exited(queue)


def died_with_its_end_in_its_file(queue: Queue) -> Message:
    queue.run_new()
    queue.write_as_process(1, queue.body_of_process(1, 20, SUCCESS))
    return exited(queue)


def died_while_it_went_back(queue: Queue) -> Message:
    queue.start_new()
    job = queue.job(1)
    job.livelock = None
    job.extra[jobs.STATE_SERIAL_KEY] = 10
    queue.write_as_process(1, jobs.encode_job(job))
    return exited(queue)


def start_failed(queue: Queue) -> Message:
    queue.submitted(spec())
    queue.choose(1)
    return messages.StartFailed(job_id=1, text="no")


def rejected(queue: Queue) -> Message:
    queue.submitted(spec())
    return messages.JobsRejected(jobs=[(1, "a rule")])


def disk_retried(queue: Queue) -> Message:
    queue.submitted(spec())
    return messages.DiskRetried()


def reported(queue: Queue) -> Message:
    queue.start_new()
    return messages.ReportRunning()


# What is too late: the job has gone on since.


def older_state(queue: Queue) -> Message:
    queue.run_new()
    late = state(queue, 10, RUNNING)
    queue.recorded(1, 20, SUCCESS)
    return late


def older_wait(queue: Queue) -> Message:
    late = waits(queue)
    queue.recorded(1, 20, RUNNING)
    return late


def state_of_an_ended_job(queue: Queue) -> Message:
    queue.run_new()
    late = state(queue, 30, RUNNING)
    queue.actor.turn(exited(queue))
    return late


def return_of_an_earlier_process(queue: Queue) -> Message:
    late = returns(queue)
    queue.actor.ask(late)
    queue.actor.turn(exited(queue))
    queue.start_running(1)
    queue.recorded(1, 20, RUNNING)
    return late


def exit_of_an_earlier_process(queue: Queue) -> Message:
    late = died_before_it_began(queue)
    queue.actor.turn(late)
    queue.choose(1)
    held = lock_files.create(queue.stage.places.lock_files, "job_000001_2")
    queue.processes[1], queue.channels[1] = held, Asker()
    queue.ask_hand_over(1, held.path)
    queue.actor.end_turn()
    queue.recorded(1, 20, RUNNING)
    return late


def hand_over_of_another_process(queue: Queue) -> Message:
    lock_file = queue.start_new()
    return messages.HandOverRequested(job_id=1, lock_file=f"{lock_file}-2", process_id=PID)


def failure_of_a_start_that_succeeded(queue: Queue) -> Message:
    queue.start_new()
    return messages.StartFailed(job_id=1, text="no")


def rejection_of_a_running_job(queue: Queue) -> Message:
    queue.run_new()
    return messages.JobsRejected(jobs=[(1, "a rule")])


def choice_of_a_running_job(queue: Queue) -> Message:
    queue.run_new()
    report = queue.actor.component.store.announcements.report
    return messages.JobsChosen(
        start=[1], eligible=[1], unsatisfiable=[(1, "failed", "no")], report=report
    )


def exit_of_an_ended_job(queue: Queue) -> Message:
    late = died_running(queue)
    queue.actor.turn(late)
    return late


LATE_SCENES: list[Scene] = [
    older_state, older_wait, state_of_an_ended_job, return_of_an_earlier_process,
    exit_of_an_earlier_process, hand_over_of_another_process, failure_of_a_start_that_succeeded,
    rejection_of_a_running_job, choice_of_a_running_job, exit_of_an_ended_job,
]  # fmt: skip

SCENES: list[Scene] = [
    submission, retry, cancel_pending, cancel_starting, cancel_final, priority, autoarchive, drain,
    running, running_in_file, final, final_in_file, waits, returns, returns_in_file, logged,
    hand_over, left, died_running, died_before_it_began, died_with_its_end_in_its_file,
    died_while_it_went_back, start_failed, rejected, disk_retried, reported,
]  # fmt: skip


SCENES += LATE_SCENES


class Outcome(msgspec.Struct):
    """What came of a message: replies to each copy, what others heard, and what stays."""

    replies: list[list[Message]]
    told: set[str]
    rows: list[messages.JobSummary]
    documents: list[Any]
    serials: list[int]
    after_crash: list[messages.JobSummary]


def play(root: Path, scene: Scene, turns: list[int], patch: pytest.MonkeyPatch) -> Outcome:
    """Send the scene's message as often in each turn as ``turns`` says."""
    # Templates get numbers, which go on from one queue of this process to the next.
    patch.setattr(job_classes, "_templates", {})
    patch.setattr(job_classes, "_numbers", itertools.count(1))
    stage = Stage(root)
    queue = Queue(stage, patch)
    message = scene(queue)
    stage.sent.clear()
    askers: list[Asker] = []
    for count in turns:
        askers += [queue.actor.say(message) for _ in range(count)]
        queue.actor.end_turn()
    told = {f"{name}: {said!r}" for name, said in stage.sent}
    rows, documents = look(queue)
    serials = [row.serial for row in queue.actor.component.store.table]
    queue.crash_machine()
    after_crash, _ = look(queue)
    queue.actor.close()
    stage.daemon_lock.remove()
    shutil.rmtree(root)
    replies = [asker.answers for asker in askers]
    return Outcome(replies, told, rows, documents, serials, after_crash)


def look(queue: Queue) -> tuple[list[messages.JobSummary], list[Any]]:
    listed = queue.actor.say(messages.ListJobs()).answer_as(messages.JobRows).rows
    documents = [msgspec.json.decode(jobs.encode_job(queue.job(row.id))) for row in listed]
    for document in documents:
        # A change that was made twice has another serial.
        del document[jobs.STATE_SERIAL_KEY], document[jobs.CHECKSUM_KEY]
    return listed, documents


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_message_that_comes_twice_does_what_it_does_once(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: ENDED)
    monkeypatch.setattr("time.time_ns", lambda: int(ENDED * 1e9))
    once, together, apart = (
        play(tmp_path / "same", scene, turns, monkeypatch) for turns in ([1], [2], [1, 1])
    )
    if scene in LATE_SCENES:
        none = play(tmp_path / "same", scene, [], monkeypatch)
        assert (once.rows, once.documents) == (none.rows, none.documents)
        assert (once.serials, once.after_crash) == (none.serials, none.after_crash)
    for twice in (together, apart):
        assert twice.replies[0] == once.replies[0]
        assert (twice.rows, twice.documents) == (once.rows, once.documents)
        assert twice.after_crash == once.after_crash
        assert twice.told >= once.told
    if scene is not autoarchive:
        # It names the jobs again while their archival waits for the flush.
        assert together.replies[1] == apart.replies[1]
