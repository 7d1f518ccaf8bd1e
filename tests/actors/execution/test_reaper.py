"""What follows the end of a process, with real ones that do nothing."""

from __future__ import annotations

import contextlib
import os
from unittest import mock

import pytest
from tests.actors.execution.watched_executor import (
    DEAD,
    JOB,
    REAL_POPEN,
    WatchedExecutor,
    confirmed,
    exits,
    hello,
    kill_server,
    refuse,
    sent_to_itself,
    start,
    start_greeted,
    stray_after,
    take_end,
    watched_pid,
)
from tests.actors.processes.lock_owner import LockOwner

from ganger.actors.execution.children import ChannelAddress
from ganger.actors.execution.watching import ChildPhase
from ganger.actors.processes import channels, control_groups
from ganger.storage.alive import lock_files, process_identity
from ganger.transport import frames, messages


def test_a_process_that_left_before_its_server_reported_it_is_looked_for_once(
    subject: WatchedExecutor, process: LockOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_greeted(subject, process)
    subject.hear(messages.HandOverConfirmed(job_id=JOB, lock_file=process.lock_file))
    subject.hear(messages.JobLeft(job_id=JOB))
    process.end()
    look = mock.Mock(side_effect=lock_files.is_dead)
    monkeypatch.setattr(lock_files, "is_dead", look)
    subject._reaper.watch_unwatched(subject._children[JOB])
    assert [one.has_left for one in exits(subject)] == [True]
    look.assert_called_once_with(process.lock_file)


def test_an_end_is_not_believed_while_the_lock_file_is_held(
    subject: WatchedExecutor, process: LockOwner
) -> None:
    start_greeted(subject, process)
    stranger = REAL_POPEN(["true"])
    subject._note_process(JOB, stranger.pid, process_identity.open_pidfd(stranger.pid))
    stranger.wait()
    subject.sent.clear()
    take_end(subject)
    assert subject.sent == []
    assert os.path.exists(process.lock_file)
    assert watched_pid(subject) == process.pid
    subject._reaper._forget(subject._children[JOB])
    subject.carry_out()
    assert exits(subject) == []


def test_a_real_end_is_reported_to_the_lock_manager_and_the_queue(
    subject: WatchedExecutor, process: LockOwner
) -> None:
    start_greeted(subject, process)
    subject._note_process(JOB, process.pid, process_identity.open_pidfd(process.pid))
    subject._children[JOB].phase = ChildPhase.CONFIRMED
    process.end()
    subject.sent.clear()
    take_end(subject)
    assert subject.sent == [
        ("lock_manager", messages.OwnerEnded(lock_file=process.lock_file)),
        (
            "job_queue",
            messages.JobExited(job_id=JOB, lock_file=process.lock_file, has_left=False),
        ),
    ]
    assert not os.path.exists(process.lock_file)
    assert JOB not in subject._children


def test_the_exit_status_of_a_process_is_reported(
    subject: WatchedExecutor, process: LockOwner
) -> None:
    confirmed(subject, process)
    process.end()
    take_end(subject, 7 << 8)
    assert [one.exit_code for one in exits(subject)] == [7]


def test_no_status_is_asked_for_after_a_job_left_message(
    subject: WatchedExecutor, process: LockOwner
) -> None:
    confirmed(subject, process)
    subject.hear(messages.JobLeft(job_id=JOB))
    process.end()
    subject.find_dead()
    assert [one.exit_code for one in exits(subject)] == [None]


def test_the_last_messages_of_a_process_are_read_before_its_end_is_judged(
    subject: WatchedExecutor, process: LockOwner
) -> None:
    confirmed(subject, process)
    child = subject._children[JOB]
    ours, theirs = channels.pair()
    subject._children.drop_channel(child)
    child.channel = ChannelAddress(ours)
    subject._children.by_descriptor[ours.fileno()] = child
    with contextlib.closing(theirs):
        channels.Channel(theirs).send(frames.encode(messages.JobLeft(job_id=JOB)))
    process.end()
    subject._take_end(child)
    assert [one.has_left for one in exits(subject)] == [True]


@pytest.mark.parametrize("how", ["the server dies", "the server is silent"])
def test_an_end_is_reported_also_without_a_status(
    subject: WatchedExecutor, process: LockOwner, how: str
) -> None:
    confirmed(subject, process)
    subject.stage.timers.clear()
    process.end()
    subject.find_dead()
    assert exits(subject) == []
    if how == "the server dies":
        kill_server(subject)
    else:
        [late] = sent_to_itself(subject)
        subject.hear(late)
    # What comes then changes nothing.
    subject._reaper.note_status(process.pid, 7 << 8)
    assert [one.exit_code for one in exits(subject)] == [None]


@pytest.mark.parametrize("another_runs", [True, False])
def test_lock_files_of_processes_that_died_unheard_go_when_nothing_runs(
    subject: WatchedExecutor, process: LockOwner, *, another_runs: bool
) -> None:
    unheard = subject.places.lock_files / lock_files.job_stem(JOB + 1, 0, DEAD)
    unheard.touch()
    start(subject)
    if another_runs:
        # The file of its process may be one that is made at this moment.
        subject._start(JOB + 2, needs_user_opcodes=False)
    subject._greet(hello(process))
    subject._note_process(JOB, process.pid, process_identity.open_pidfd(process.pid))
    subject._children[JOB].phase = ChildPhase.CONFIRMED
    process.end()
    take_end(subject)
    assert unheard.exists() == another_runs


def test_the_end_of_a_process_without_locks_is_not_sent_to_the_lock_manager(
    subject: WatchedExecutor, process: LockOwner
) -> None:
    subject._adopt(JOB, process.lock_file, process.pid)
    subject.hear(messages.JobLeft(job_id=JOB, has_locks=False))
    process.end()
    subject.sent.clear()
    take_end(subject)
    assert subject.sent == [
        (
            "job_queue",
            messages.JobExited(job_id=JOB, lock_file=process.lock_file, has_left=True),
        )
    ]


def test_a_greeted_process_that_cannot_be_watched_is_looked_for_until_it_can(
    subject: WatchedExecutor, exhausted: pytest.MonkeyPatch, process: LockOwner
) -> None:
    start_greeted(subject, process)
    due = messages.WatchDue(job_id=JOB, lock_file=process.lock_file)
    subject._note_process(JOB, process.pid, -1)
    assert sent_to_itself(subject) == [due]
    subject.hear(due)
    assert sent_to_itself(subject) == [due]
    exhausted.undo()
    subject.hear(due)
    assert watched_pid(subject) == process.pid
    # One that is watched is not looked for again.
    subject.hear(due)
    assert sent_to_itself(subject) == []


def test_no_process_is_declared_dead_without_descriptors_to_look(
    subject: WatchedExecutor, exhausted: pytest.MonkeyPatch, process: LockOwner
) -> None:
    subject._adopt(JOB, process.lock_file, process.pid)
    due = messages.WatchDue(job_id=JOB, lock_file=process.lock_file)
    assert sent_to_itself(subject) == [due]
    process.end()
    exhausted.undo()
    subject.sent.clear()
    subject.hear(due)
    assert [type(message) for _, message in subject.sent] == [
        messages.OwnerEnded,
        messages.JobExited,
    ]


def test_locks_are_not_free_before_it_was_seen_what_a_dead_process_left_running(
    subject: WatchedExecutor, exhausted: pytest.MonkeyPatch, process: LockOwner
) -> None:
    exhausted.undo()
    subject._adopt(JOB, process.lock_file, process.pid)
    process.end()
    with mock.patch("ganger.actors.execution.left_over.sessions.end_left_over", refuse):
        take_end(subject)
    [due] = sent_to_itself(subject)
    assert os.path.exists(process.lock_file)
    subject.hear(due)
    assert [name for name, _ in subject.sent] == ["lock_manager", "job_queue"]


def test_the_end_of_a_dead_job_waits_for_what_it_left_running_and_others_do_not(
    subject: WatchedExecutor, process: LockOwner
) -> None:
    subject._adopt(JOB, process.lock_file, process.pid)
    process.end()
    subject.sent.clear()
    subject._take_end(subject._children[JOB])
    # One request, after any number of looks.
    subject._reaper._forget(subject._children[JOB])
    [work] = subject.works()
    assert subject.sent == []
    stranger = messages.LeftOverEnded(job_id=JOB, lock_file="another", ended=[])
    subject.hear(stranger)
    assert subject.sent == []
    work.run_out()
    ended = subject.stage.take_one(messages.LeftOverEnded)
    subject.hear(ended)
    assert [name for name, _ in subject.sent] == ["lock_manager", "job_queue"]
    subject.hear(ended)
    assert len(subject.sent) == 2


def test_lock_files_of_unheard_processes_are_looked_for_when_one_died(
    subject: WatchedExecutor, process: LockOwner
) -> None:
    assert not stray_after(subject, process, says_goodbye=False)


def test_lock_files_of_unheard_processes_cost_a_job_that_ends_well_nothing(
    subject: WatchedExecutor, process: LockOwner
) -> None:
    assert stray_after(subject, process, says_goodbye=True)


@pytest.mark.parametrize("has_group", [True, False])
def test_a_control_group_is_removed_if_the_job_may_have_made_one(
    subject: WatchedExecutor,
    process: LockOwner,
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_group: bool,
) -> None:
    removed: list[object] = []
    monkeypatch.setattr(control_groups, "remove", removed.append)
    confirmed(subject, process)
    subject.hear(messages.JobLeft(job_id=JOB, has_group=has_group))
    process.end()
    subject.find_dead()
    assert bool(removed) == has_group
