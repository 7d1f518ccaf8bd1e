"""Locks of tasks on nodes after a loss of power of the master: neither they nor marks were flushed.

The next daemon makes the mark anew from the job's file, and takes the locks back before any job
begins.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.actors.locks.lock_stage import Locks
from tests.actors.queue.queue_stage import Queue, spec
from tests.actors.runtime.stage import Stage

from ganger.actors.execution.executor import Executor
from ganger.actors.job.job_context import JobContext
from ganger.actors.job.running_job import RunningJob
from ganger.actors.locks.lock_manager import LockManager
from ganger.actors.runtime.mailbox import Expired
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.locks.locks import Owner
from ganger.storage.nodes import task_marks
from ganger.storage.nodes.task_marks import MarkedTask
from ganger.transport import messages

LOCKS = [("cluster/BGL", "shared"), ("instance/i1", "exclusive"), ("node/web1", "shared")]
EARLIER_BOOT = "2147483647.1.1a2b3c4d"
FIRST: dict[str, object] = {
    "OP_ID": "OP_EXEC",
    "argv": ["true"],
    "node": "web1",
    "locks": {"instance": {"exclusive": ["i1"]}},
}


@pytest.fixture(name="locks")
def lock_manager(stage: Stage) -> Locks:
    return Locks(stage)


def lock_file(stage: Stage, job_id: int) -> str:
    return str(stage.places.lock_files / f"job_{job_id:06}_1_{EARLIER_BOOT}")


def test_locks_of_a_marked_task_are_taken_before_the_lock_manager_answers_anybody(
    locks: Locks,
) -> None:
    lost = lock_file(locks.stage, 1)
    task_marks.write(lost, [MarkedTask("web1", "key", 1.0, LOCKS)])
    locks.actor = locks.stage.start(LockManager, 2)
    assert locks.on_disk() == {1: [name for name, _ in LOCKS]}
    two = locks.owner(2)
    asker = locks.ask(two, ("instance/i1", "exclusive"))
    assert isinstance(asker.answer, messages.LocksPending)
    task_marks.remove(lost)
    locks.actor.turn(messages.OwnerEnded(lock_file=lost))
    assert asker.answers[1:] == [messages.LocksGranted()]
    assert locks.on_disk() == {2: ["instance/i1"]}


def test_of_two_tasks_whose_marks_want_the_same_one_is_first_in_line(locks: Locks) -> None:
    """The first one's task had ended: the loss of power has brought its mark back."""
    lost = [lock_file(locks.stage, one) for one in (1, 2)]
    for one in lost:
        task_marks.write(one, [MarkedTask("web1", "key", 1.0, LOCKS)])
    urgent = locks.owner(3)
    locks.actor.ask(messages.TakeLocksOfTasks())
    asker = locks.ask(urgent, ("instance/i1", "exclusive"), priority=-20)
    task_marks.remove(lost[0])
    locks.actor.turn(messages.OwnerEnded(lock_file=lost[0]))
    assert locks.on_disk() == {2: [name for name, _ in LOCKS]}
    task_marks.remove(lost[1])
    locks.actor.turn(messages.OwnerEnded(lock_file=lost[1]))
    assert asker.answers[1:] == [messages.LocksGranted()]


def test_no_mark_is_read_of_a_process_that_lives(locks: Locks) -> None:
    one = locks.owner(1)
    task_marks.write(one.lock_file, [MarkedTask("web1", "key", 1.0, LOCKS)])
    assert locks.actor.ask(messages.TakeLocksOfTasks()).answer == messages.Done()
    assert locks.on_disk() == {}


def test_a_damaged_mark_keeps_nobody_from_the_locks_of_the_others(locks: Locks) -> None:
    lost = [lock_file(locks.stage, one) for one in (1, 2)]
    for one in lost:
        task_marks.write(one, [MarkedTask("web1", "key", 1.0, LOCKS)])
    Path(task_marks.path_of(lost[0])).write_bytes(b"")
    locks.actor.ask(messages.TakeLocksOfTasks())
    assert locks.on_disk() == {2: [name for name, _ in LOCKS]}
    assert "the locks of a task on a node are not known" in locks.stage.log_stream.getvalue()


def lose_power(queue: Queue, running: dict[str, object]) -> str:
    """Job 1 runs this opcode, and job 2 is pending, when the machine loses its power."""
    queue.actor.turn(messages.NodesChanged(nodes={"web1": ""}))
    queue.submitted(messages.JobSpec(ops=[running]), spec())
    queue.start(1)
    body = queue.actor.component.store.reader.document(1).body
    job = jobs.decode_job(body)
    job.livelock = lock_file(queue.stage, 1)
    job.extra[jobs.STATE_SERIAL_KEY] = 10
    job.ops[0].status = JobStatus.RUNNING
    job.ops[0].exec_timestamp = (12, 500_000)
    body = jobs.encode_job(job)
    queue.actor.ask(queue.state(1, 10, JobStatus.RUNNING, body=body))
    queue.crash_machine()
    return job.livelock


def test_no_job_begins_before_the_locks_of_tasks_are_taken(queue: Queue, locks: Locks) -> None:
    lost = lose_power(queue, FIRST)
    [found] = task_marks.read(lost)
    assert (found.node, found.began, found.locks) == ("web1", 12.5, LOCKS)
    queue.choose(2)
    queue.hand_over(2)
    assert queue.channels[2].answers == []
    [asked] = queue.stage.take_requests(messages.TakeLocksOfTasks)
    locks.actor.actor.handle(asked)
    locks.actor.end_turn()
    assert locks.on_disk() == {1: [name for name, _ in LOCKS]}
    queue.actor.handle_mail()
    queue.actor.end_turn()
    queue.channels[2].answer_as(messages.JobGo)


@pytest.mark.parametrize("lost_by", ["lock manager", "queue", "time"])
def test_a_question_for_the_locks_of_tasks_that_is_lost_is_asked_again(
    queue: Queue, locks: Locks, lost_by: str
) -> None:
    lose_power(queue, FIRST)
    [asked] = queue.stage.take_requests(messages.TakeLocksOfTasks)
    if lost_by == "lock manager":
        locks.actor = queue.stage.start(LockManager, 2)
        queue.actor.hear_of_restart("lock_manager")
    elif lost_by == "queue":
        queue.restart(3)
    else:
        queue.actor.handle(Expired(asked.number))
    queue.choose(2)
    queue.hand_over(2)
    assert queue.channels[2].answers == []
    [asked] = queue.stage.take_requests(messages.TakeLocksOfTasks)
    locks.actor.actor.handle(asked)
    locks.actor.end_turn()
    queue.actor.handle_mail()
    queue.actor.end_turn()
    queue.channels[2].answer_as(messages.JobGo)


def test_a_queue_without_tasks_asks_for_no_locks(queue: Queue) -> None:
    lose_power(queue, {"OP_ID": "OP_EXEC", "argv": ["true"]})
    assert queue.stage.take_requests(messages.TakeLocksOfTasks) == []
    queue.choose(2)
    queue.hand_over(2)
    queue.channels[2].answer_as(messages.JobGo)


def test_a_mark_that_a_power_loss_has_damaged_is_removed_if_no_job_needs_it(stage: Stage) -> None:
    """It was not flushed: its job has ended, and knew that the task had."""
    lost = lock_file(stage, 1)
    task_marks.write(lost, [MarkedTask("web1", "key", 1.0, LOCKS)])
    Path(task_marks.path_of(lost)).write_bytes(b"")
    reaper = stage.make(Executor).component
    reaper.boot()
    try:
        reaper._adopt_all(messages.AdoptJobs(jobs=[]))
    finally:
        reaper.close()
    assert not task_marks.is_marked(lost)
    stage.take_one(messages.OwnerEnded, to="lock_manager")


@pytest.fixture(name="flushes")
def flushes_of_marks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each mark was flushed, in order."""
    flushes: list[bool] = []
    write = task_marks.write

    def written(lock_file: str, tasks: list[MarkedTask], *, flush: bool) -> None:
        flushes.append(flush)
        write(lock_file, tasks, flush=flush)

    monkeypatch.setattr(task_marks, "write", written)
    return flushes


def context_of(stage: Stage, fields: dict[str, Any]) -> JobContext:
    """That of job 1, which runs this opcode."""
    op = jobs.OpcodeEntry(input=fields, status=JobStatus.RUNNING, exec_timestamp=(12, 500_000))
    job = jobs.Job(id=1, ops=[op], received_timestamp=(1, 2))
    running = RunningJob(job, Owner(1, lock_file(stage, 1), 1))
    nobody: Any = None
    return JobContext(running, nobody, nobody, str(stage.places.queue))


@pytest.mark.parametrize(
    "fields",
    [
        {"OP_ID": "OP_EXEC", "argv": ["true"], "node": "web1"},
        {"OP_ID": "OP_EXEC", "argv": ["true"], "nodes": ["web1", "web2"]},
        {"OP_ID": "OP_NODE_CALL", "name": "version", "node": "web1"},
        {"OP_ID": "OP_NODE_CALL", "name": "version", "nodes": ["web1"]},
        {"OP_ID": "OP_NODE_COPY", "content": "x", "path": "/x", "node": "web1"},
        {"OP_ID": "OP_NODE_COPY", "content": "x", "path": "/x", "nodes": ["web1", "web2"]},
        {"OP_ID": "OP_RESTRICTED_COMMAND", "command": "c", "nodes": ["web1", "web2"]},
        {"OP_ID": "OP_TEST_DELAY", "duration": 1.0, "on_master": False, "on_nodes": ["web1"]},
        {"OP_ID": "OP_CLUSTER_REDIST_CONF"},
        {"OP_ID": "OP_CLUSTER_VERIFY"},
    ],
    ids=lambda fields: " ".join(map(str, fields.values())),
)
def test_a_mark_is_flushed_unless_the_jobs_file_tells_its_task(
    stage: Stage, flushes: list[bool], fields: dict[str, Any]
) -> None:
    context = context_of(stage, fields)
    context.mark_task("web1")
    [marked] = task_marks.read(lock_file(stage, 1))
    again = task_marks.jobs_task(context._running.job)
    is_known = again is not None and (again.node, again.key, again.began) == (
        (marked.node, marked.key, marked.began)
    )
    assert [is_known] == [not flushed for flushed in flushes]
    context.mark_task("web2")
    assert flushes[1:] == [True]


def test_a_mark_of_several_tasks_stays_flushed_until_all_have_ended(
    stage: Stage, flushes: list[bool]
) -> None:
    path = lock_file(stage, 1)
    context = context_of(stage, {})
    first, second = context.mark_task("web1"), context.mark_task("web2")
    context.unmark_task(first)
    assert flushes == [True, True]
    assert second in {one.key for one in task_marks.read(path)}
    context.unmark_task(second)
    assert not task_marks.is_marked(path)
