"""Processes that have left their job: which the executor keeps, for what, and for how long."""

from __future__ import annotations

import contextlib
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.actors.execution.watched_executor import (
    JOB,
    WatchedExecutor,
    confirmed,
    exits,
    hello,
    kill_server,
)

from ganger.actors.execution import watching
from ganger.actors.execution.children import ChannelAddress
from ganger.actors.execution.executor import Executor
from ganger.actors.execution.idle_processes import IdleProcess, IdleProcesses
from ganger.actors.execution.watching import ChildPhase
from ganger.actors.processes import channels, control_groups
from ganger.storage import settings
from ganger.storage.alive import process_identity
from ganger.storage.disk import descriptors
from ganger.transport import frames, messages

if TYPE_CHECKING:
    from tests.actors.processes.lock_owner import LockOwner
    from tests.actors.runtime.stage import Stage

LEFT = messages.JobLeft(job_id=JOB, has_locks=True, has_group=False, is_free=True)


@pytest.fixture
def line(subject: WatchedExecutor, process: LockOwner) -> Any:
    """The process's end of the channel; it has a job that lets another one follow."""
    confirmed(subject, process)
    child = subject._children[JOB]
    child.reuses = True
    subject._children.drop_channel(child)
    ours, theirs = channels.pair()
    child.channel = ChannelAddress(ours)
    subject._children.by_descriptor[ours.fileno()] = child
    subject.stage.sent.clear()
    with contextlib.closing(theirs):
        yield channels.Channel(theirs)


def leave(subject: WatchedExecutor, process: LockOwner, **changed: Any) -> None:
    """It gives its lock file up, and says that it is free."""
    os.unlink(process.lock_file)
    subject.hear(msgspec.structs.replace(LEFT, **changed))


def start_next(subject: WatchedExecutor, job_id: int = JOB + 1) -> None:
    subject.hear(messages.StartJobs(jobs=[(job_id, False)], reusing=[job_id]))


def heard(line: channels.Channel) -> list[messages.Message]:
    """What the executor has said; fails if it has closed the channel."""
    found = []
    while (frame := line.receive()) is not None:
        found.append(frames.decode(frame, messages.ToJob).message)
    return found


def is_closed(line: channels.Channel) -> bool:
    try:
        heard(line)
    except channels.ChannelClosedError:
        return True
    return False


def test_a_free_process_gets_the_next_job_over_its_channel(
    subject: WatchedExecutor,
    process: LockOwner,
    line: channels.Channel,
) -> None:
    leave(subject, process)
    ended = messages.OwnerEnded(lock_file=process.lock_file)
    exited = messages.JobExited(job_id=JOB, lock_file=process.lock_file, has_left=True)
    assert subject.sent == [("lock_manager", ended), ("job_queue", exited)]
    start_next(subject)
    assert heard(line) == [messages.NextJob(job_id=JOB + 1)]
    child = subject._children[JOB + 1]
    assert (child.pid, child.place, child.was_watched) == (process.pid, 2, True)
    # Its end is noticed as that of any other.
    assert subject._children.by_descriptor[child.pidfd] is child


def test_a_job_that_must_have_a_fresh_process_gets_none_that_was_used(
    subject: WatchedExecutor,
    process: LockOwner,
    line: channels.Channel,
) -> None:
    leave(subject, process)
    subject.hear(messages.StartJobs(jobs=[(JOB + 1, False)]))
    subject.hear(messages.StartJobs(jobs=[(JOB + 2, True)], reusing=[JOB + 2]))
    assert heard(line) == []


def test_the_process_that_came_last_is_taken_first(stage: Stage) -> None:
    pool = IdleProcesses(stage.make(Executor).component.runtime)
    with ExitStack() as stack:
        processes = []
        for template in ("lean", "full", "lean"):
            ours, theirs = channels.pair()
            stack.callback(ours.close)
            stack.callback(theirs.close)
            processes.append(_idle(template, ours))
            pool.add(processes[-1])
        assert pool.take("lean") is processes[2]
        assert pool.take("lean") is processes[0]
        assert pool.take("lean") is None
        assert len(pool) == 1


@pytest.mark.parametrize(
    "why", ["last", "killed", "not confirmed", "not reusing", "no server", "locked"]
)
def test_a_process_that_may_not_go_on_ends_with_its_channel(
    subject: WatchedExecutor,
    process: LockOwner,
    line: channels.Channel,
    why: str,
) -> None:
    child = subject._children[JOB]
    match why:
        case "last":
            child.place = settings.REUSED_PROCESS_JOBS_MAX
        case "killed":
            subject._kill_later(child)
        case "not confirmed":
            child.phase = ChildPhase.GREETED
        case "not reusing":
            child.reuses = False
        case "no server":
            subject._servers.end("lean")
    if why == "locked":
        subject.hear(LEFT)
    else:
        leave(subject, process)
    assert is_closed(line)
    # Its end is reported when it has ended.
    assert exits(subject) == []
    assert len(subject._idle) == 0


def unreport(subject: WatchedExecutor) -> None:
    """As if the fork server's report of the process were still on its way."""
    child = subject._children[JOB]
    del subject._children.by_descriptor[child.pidfd]
    os.close(child.pidfd)
    child.pidfd = -1


def test_a_process_that_was_faster_than_its_report_is_kept_when_that_comes(
    subject: WatchedExecutor,
    process: LockOwner,
    line: channels.Channel,
) -> None:
    """A short job ends before the fork server has told of its process."""
    unreport(subject)
    leave(subject, process)
    assert len(subject._idle) == 0
    assert exits(subject) == []
    assert heard(line) == []
    subject._note_process(JOB, process.pid, process_identity.open_pidfd(process.pid))
    assert len(subject._idle) == 1
    assert [exited.has_left for exited in exits(subject)] == [True]
    start_next(subject)
    assert heard(line) == [messages.NextJob(job_id=JOB + 1)]


@pytest.mark.parametrize("why", ["no descriptor", "the server dies", "it dies"])
def test_a_process_that_is_never_reported_ends_with_its_channel(
    subject: WatchedExecutor,
    process: LockOwner,
    line: channels.Channel,
    why: str,
) -> None:
    unreport(subject)
    leave(subject, process)
    match why:
        case "no descriptor":
            subject._note_process(JOB, process.pid, -1)
        case "the server dies":
            kill_server(subject)
        case "it dies":
            line.give_up()
            subject.readable([_channel_of(subject)])
    subject.carry_out()
    assert JOB not in subject._children
    assert len(subject._idle) == 0
    assert len(exits(subject)) == 1
    if why != "it dies":
        assert is_closed(line)


def _channel_of(subject: WatchedExecutor) -> int:
    address = subject._children[JOB].channel
    assert address is not None
    return address.channel.fileno()


@pytest.mark.parametrize("how", ["it dies", "its channel closes", "it speaks"])
def test_an_idle_process_that_ends_or_speaks_gets_no_job(
    subject: WatchedExecutor,
    process: LockOwner,
    line: channels.Channel,
    how: str,
) -> None:
    leave(subject, process)
    [idle] = subject._idle._idle
    channel = idle.channel.channel.fileno()
    if how == "it dies":
        process.end()
        subject.readable([idle.pidfd])
    else:
        if how == "it speaks":
            line.send(frames.encode(LEFT))
        subject.readable([channel])
        assert is_closed(line)
        # Its pidfd stays until it has ended.
        assert len(subject._idle) == 1
        subject.readable([idle.pidfd])
    assert len(subject._idle) == 0
    assert not _is_open(idle.pidfd)
    start_next(subject)
    assert subject._children[JOB + 1].pidfd == -1


def test_another_process_follows_one_that_dies_before_it_greets(
    subject: WatchedExecutor,
    process: LockOwner,
    line: channels.Channel,
) -> None:
    leave(subject, process)
    start_next(subject)
    child = subject._children[JOB + 1]
    process.end()
    subject.readable([child.pidfd])
    assert is_closed(line)
    assert child.channel is not None
    assert (child.phase, child.attempts, child.pidfd) == (ChildPhase.ASKED, 2, -1)


def test_an_idle_process_ends_after_its_time(
    subject: WatchedExecutor,
    process: LockOwner,
    line: channels.Channel,
) -> None:
    leave(subject, process)
    subject.stage.now += settings.REUSED_IDLE_SECONDS / 2
    subject.hear(messages.IdleProcessesDue())
    assert not is_closed(line)
    subject.stage.now += settings.REUSED_IDLE_SECONDS / 2
    subject.hear(messages.IdleProcessesDue())
    assert is_closed(line)


def test_idle_processes_end_with_their_fork_server(
    subject: WatchedExecutor,
    process: LockOwner,
    line: channels.Channel,
) -> None:
    leave(subject, process)
    kill_server(subject)
    assert is_closed(line)


def test_idle_processes_end_with_the_executor(
    subject: WatchedExecutor,
    process: LockOwner,
    line: channels.Channel,
) -> None:
    leave(subject, process)
    subject.close()
    assert is_closed(line)
    subject._children.clear()
    subject._idle._idle.clear()


def test_the_group_of_an_idle_process_goes_when_it_has_ended(
    subject: WatchedExecutor,
    process: LockOwner,
    line: channels.Channel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    removed: list[object] = []
    monkeypatch.setattr(control_groups, "remove", removed.append)
    leave(subject, process, has_group=True)
    [idle] = subject._idle._idle
    idle.identity = "of the process"  # type: ignore[assignment]
    process.end()
    assert removed == []
    subject.readable([idle.pidfd])
    assert removed == ["of the process"]
    assert is_closed(line)


@pytest.mark.parametrize(("run_slots", "is_kept"), [(None, True), (2, True), (1, False)])
def test_idle_processes_take_no_descriptors_from_jobs(
    subject: WatchedExecutor,
    process: LockOwner,
    line: channels.Channel,
    monkeypatch: pytest.MonkeyPatch,
    *,
    run_slots: int | None,
    is_kept: bool,
) -> None:
    budget = None
    if run_slots is not None:
        budget = descriptors.DescriptorBudget(limit=128, listener=1, run_slots=run_slots)
    monkeypatch.setattr(type(subject.runtime.host), "budget", budget)
    leave(subject, process)
    assert is_closed(line) != is_kept


def test_what_a_job_has_changed_is_in_the_log(
    subject: WatchedExecutor,
    process: LockOwner,
    line: channels.Channel,
) -> None:
    subject.hear(messages.JobLeft(job_id=JOB, unclean="umask"))
    assert '"changed": "umask"' in subject.stage.log_stream.getvalue()
    assert not is_closed(line)
    assert hello(process).job_id == JOB


class Free:
    """A process that may go on."""

    phase = ChildPhase.CONFIRMED
    reuses = True
    place = 1
    is_to_be_killed = False
    pidfd = 5


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"place": 9}, True),
        ({"place": 10}, False),
        ({"reuses": False}, False),
        ({"is_to_be_killed": True}, False),
        ({"pidfd": -1}, False),
        ({"phase": ChildPhase.GREETED}, False),
    ],
)
def test_which_process_may_have_another_job(changed: dict[str, Any], *, expected: bool) -> None:
    free = Free()
    vars(free).update(changed)
    assert watching.may_serve_another(free, 10, has_room=True) is expected
    assert not watching.may_serve_another(free, 10, has_room=False)


def _idle(template: str, end: channels.End) -> IdleProcess:
    return IdleProcess(
        template=template,
        channel=ChannelAddress(end),
        pid=1,
        pidfd=end.fileno() + 1_000_000,
        served=1,
        identity=None,
        has_group=False,
        since=0.0,
    )


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
