"""What the executor believes about processes, with real ones that do nothing."""

from __future__ import annotations

import os
import subprocess
from typing import Any
from unittest import mock

import pytest
from tests.actors.execution.watched_executor import (
    JOB,
    REAL_POPEN,
    START,
    WatchedExecutor,
    as_known,
    confirmed,
    hello,
    kill_server,
    refuse,
    sent_to_itself,
    start,
    start_greeted,
    watched_pid,
)
from tests.actors.processes.lock_owner import LockOwner

from ganger.actors.execution import watching
from ganger.actors.execution.watching import ChildPhase
from ganger.storage import settings
from ganger.storage.alive import lock_files, process_identity
from ganger.transport import messages
from ganger.transport.envelopes import Envelope


def test_after_the_death_of_a_fork_server_the_second_process_is_watched_not_the_first(
    subject: WatchedExecutor, process: LockOwner
) -> None:
    first = REAL_POPEN(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    start(subject)
    subject._note_process(JOB, first.pid, process_identity.open_pidfd(first.pid))
    kill_server(subject)
    subject._start_server("lean")
    subject._note_process(JOB, process.pid, process_identity.open_pidfd(process.pid))
    subject._greet(hello(process))
    first.communicate()
    assert watched_pid(subject) == process.pid


def test_a_process_that_the_dead_server_never_reported_is_found_by_its_lock_file(
    subject: WatchedExecutor, process: LockOwner
) -> None:
    start_greeted(subject, process)
    assert subject._children[JOB].pidfd == -1
    kill_server(subject)
    assert watched_pid(subject) == process.pid


def test_a_greeting_after_the_death_of_the_server_is_watched_too(
    subject: WatchedExecutor, process: LockOwner
) -> None:
    start(subject)
    kill_server(subject)
    subject._greet(hello(process))
    assert watched_pid(subject) == process.pid


def test_a_new_process_that_cannot_be_watched_is_given_up_and_another_one_asked_for(
    subject: WatchedExecutor, exhausted: pytest.MonkeyPatch, process: LockOwner
) -> None:
    start(subject)
    channel = subject._children[JOB].channel
    assert channel is not None
    subject._note_process(JOB, process.pid, -1)
    # So it ends.
    assert channel.channel.fileno() == -1
    assert sent_to_itself(subject) == [messages.RequestDue(job_id=JOB)]
    exhausted.undo()
    subject._request(subject._children[JOB])
    subject._note_process(JOB, process.pid, process_identity.open_pidfd(process.pid))
    assert watched_pid(subject) == process.pid


def test_a_fork_server_that_cannot_be_started_is_tried_again(
    subject: WatchedExecutor, exhausted: pytest.MonkeyPatch
) -> None:
    exhausted.setattr("_socket.socketpair", refuse)
    subject._start_server("lean")
    assert sent_to_itself(subject) == [messages.StartForkServer(template="lean")]
    exhausted.undo()
    subject.hear(messages.StartForkServer(template="lean"))
    assert "lean" in subject._servers


def test_a_report_does_not_need_descriptors(
    subject: WatchedExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganger.actors.processes.machine.psutil.Process", refuse)
    report = messages.ExecutorReport(pid=os.getpid(), memory={"daemon": 0})
    assert subject._servers.report() == report


def test_a_message_about_an_earlier_process_does_not_concern_the_next_one(
    subject: WatchedExecutor, process: LockOwner
) -> None:
    start_greeted(subject, process)
    child = subject._children[JOB]
    earlier = f"{process.lock_file}-of-an-earlier-one"
    subject.hear(messages.HandOverConfirmed(job_id=JOB, lock_file=earlier))
    assert child.phase is ChildPhase.GREETED
    subject.hear(messages.RefuseHandOver(job_id=JOB, lock_file=earlier))
    assert child.channel is not None
    subject._note_process(JOB, process.pid, process_identity.open_pidfd(process.pid))
    subject.hear(messages.KillDue(job_id=JOB, lock_file=earlier))
    assert not child.was_killed
    subject.hear(messages.RefuseHandOver(job_id=JOB, lock_file=process.lock_file))
    assert child.channel is None


@pytest.mark.parametrize(
    "name",
    ["StartJobs", "AdoptJobs", "HandOverConfirmed", "RefuseHandOver", "JobHello", "JobLeft",
     "KillDue", "WatchDue", "RequestDue", "LeftOverEnded", "ComponentReplaced", "StartForkServer"],
)  # fmt: skip
def test_a_message_that_comes_twice_changes_nothing_more(
    subject: WatchedExecutor, process: LockOwner, name: str
) -> None:
    here: dict[str, Any] = {"job_id": JOB, "lock_file": process.lock_file}
    said: dict[str, messages.Message] = {
        "StartJobs": START,
        "AdoptJobs": messages.AdoptJobs(jobs=[(JOB, process.lock_file, process.pid)]),
        "HandOverConfirmed": messages.HandOverConfirmed(**here),
        "RefuseHandOver": messages.RefuseHandOver(**here),
        "JobHello": hello(process),
        "JobLeft": messages.JobLeft(job_id=JOB, has_locks=True, has_group=False),
        "KillDue": messages.KillDue(**here),
        "WatchDue": messages.WatchDue(**here),
        "RequestDue": messages.RequestDue(job_id=JOB),
        "LeftOverEnded": messages.LeftOverEnded(**here, ended=[], error=None),
        "ComponentReplaced": messages.ComponentReplaced(component="job_queue"),
        "StartForkServer": messages.StartForkServer(template="lean"),
    }
    start(subject)
    if name != "RequestDue":
        subject._greet(hello(process))
    subject.sent.clear()
    subject.hear(said[name])
    once, told = as_known(subject), list(subject.sent)
    subject.sent.clear()
    subject.hear(said[name])
    assert as_known(subject) == once
    assert set(map(repr, subject.sent)) <= set(map(repr, told))


def test_a_queue_that_asks_again_for_a_process_hears_again_that_it_waits(
    subject: WatchedExecutor, process: LockOwner
) -> None:
    start_greeted(subject, process)
    subject.sent.clear()
    for _ in range(2):
        subject.hear(START)
        asked = subject.stage.take_one(messages.HandOverRequested, to="job_queue")
        assert (asked.job_id, asked.lock_file) == (JOB, process.lock_file)


def test_a_confirmed_job_is_not_taken_back(subject: WatchedExecutor, process: LockOwner) -> None:
    start_greeted(subject, process)
    child = subject._children[JOB]
    confirmed = messages.HandOverConfirmed(job_id=JOB, lock_file=process.lock_file)
    subject.hear(confirmed)
    subject.hear(messages.RefuseHandOver(job_id=JOB, lock_file=process.lock_file))
    assert (child.phase, child.channel is not None) == (ChildPhase.CONFIRMED, True)


@pytest.mark.parametrize("component", ["lock_manager", "job_queue"])
def test_jobs_hear_of_a_replaced_component_and_a_new_queue_is_asked_what_runs(
    subject: WatchedExecutor, process: LockOwner, component: str
) -> None:
    confirmed(subject, process)
    subject._children.drop_channel(subject._children[JOB])
    wire = subject._children[JOB].wire = mock.Mock()
    subject.sent.clear()
    subject.receive(Envelope(messages.ComponentReplaced(component=component)))
    wire.tell.assert_called_once_with(Envelope(messages.ResendRequested()))
    asked = [("job_queue", messages.ReportRunning())]
    assert subject.sent == (asked if component == "job_queue" else [])


def test_a_job_whose_processes_end_before_they_take_it_over_fails(
    subject: WatchedExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(subject)
    request = mock.Mock()
    monkeypatch.setattr(subject._servers, "request", request)
    for attempt in range(1, watching.ATTEMPTS_MAX + 1):
        assert JOB in subject._children
        subject.find_dead()
        assert request.call_count == min(attempt, watching.ATTEMPTS_MAX - 1)
    assert JOB not in subject._children
    failed = subject.stage.take_one(messages.StartFailed, to="job_queue")
    assert failed.job_id == JOB


@pytest.mark.parametrize("is_early", [False, True])
def test_a_job_that_attaches_itself_is_answered_when_it_is_known(
    subject: WatchedExecutor, process: LockOwner, *, is_early: bool
) -> None:
    asker = mock.Mock()
    attach = messages.AttachJob(job_id=JOB, lock_file=process.lock_file, process_id=process.pid)
    adopt = messages.AdoptJobs(jobs=[(JOB, process.lock_file, process.pid)])
    both: list[Any] = [Envelope(attach, asker, 3), Envelope(adopt)]
    first, second = both if is_early else reversed(both)
    subject.receive(first)
    assert not asker.tell.called
    subject.receive(second)
    asker.tell.assert_called_once_with(Envelope(messages.Done(), number=3))
    assert subject._children[JOB].address is asker
    assert subject._attachments == {}


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (messages.CancelRequested(token=1), messages.CancelAnswered),
        (messages.PriorityRequested(token=2, priority=3), messages.PriorityAnswered),
        (messages.GateChanged(), None),
    ],
)
def test_a_request_to_a_job_that_cannot_be_reached_is_refused(
    subject: WatchedExecutor, asked: Any, answer: Any
) -> None:
    subject.hear(messages.DeliverToJob(job_id=JOB, message=asked))
    if answer is not None:
        refused = subject.stage.take_one(answer, to="job_queue")
        assert (refused.accepted, refused.token) == (False, asked.token)
    assert subject.sent == []


@pytest.mark.parametrize("kill", [False, True])
def test_a_process_that_ignores_its_kill_is_killed_later(
    subject: WatchedExecutor, process: LockOwner, monkeypatch: pytest.MonkeyPatch, *, kill: bool
) -> None:
    confirmed(subject, process)
    due: list[tuple[float, Any]] = []
    monkeypatch.setattr(subject.runtime, "later", lambda *alarm: due.append(alarm))
    asked = messages.CancelRequested(token=1, kill=kill)
    subject.receive(Envelope(messages.DeliverToJob(job_id=JOB, message=asked)))
    message = messages.KillDue(job_id=JOB, lock_file=process.lock_file)
    assert due == ([(settings.KILL_SECONDS, message)] if kill else [])
    if kill:
        subject.receive(Envelope(message))
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert subject._children[JOB].was_killed


@pytest.mark.parametrize("is_watched", [False, True])
def test_the_kill_of_a_process_that_cannot_be_reached_is_no_refusal(
    subject: WatchedExecutor,
    process: LockOwner,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_watched: bool,
) -> None:
    confirmed(subject, process)
    child = subject._children[JOB]
    subject._children.drop_channel(child)
    watched, child.pidfd = child.pidfd, child.pidfd if is_watched else -1
    due: list[tuple[float, Any]] = []
    monkeypatch.setattr(subject.runtime, "later", lambda *alarm: due.append(alarm))
    asked = messages.CancelRequested(token=1, kill=True)
    subject.hear(messages.DeliverToJob(job_id=JOB, message=asked))
    answer = subject.stage.take_one(messages.CancelAnswered, to="job_queue")
    assert answer.accepted == is_watched
    assert ("is ended 10 s from now" if is_watched else "try again") in answer.text
    assert due == [(10, messages.KillDue(job_id=JOB, lock_file=process.lock_file))]
    child.pidfd = watched


def test_a_process_of_the_directory_that_was_copied_is_not_killed(
    subject: WatchedExecutor, process: LockOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirmed(subject, process)
    child = subject._children[JOB]
    subject._children.drop_channel(child)
    looked: list[tuple[str, object]] = []

    def is_elsewhere(path: str, directory: object) -> bool:
        looked.append((path, directory))
        return True

    monkeypatch.setattr(lock_files, "is_elsewhere", is_elsewhere)
    due: list[tuple[float, Any]] = []
    monkeypatch.setattr(subject.runtime, "later", lambda *alarm: due.append(alarm))
    asked = messages.CancelRequested(token=1, kill=True)
    subject.hear(messages.DeliverToJob(job_id=JOB, message=asked))
    refused = subject.stage.take_one(messages.CancelAnswered, to="job_queue")
    assert not refused.accepted
    assert "of which this one is a copy" in refused.text
    assert due == []
    assert looked == [(process.lock_file, subject.places.lock_files)]
