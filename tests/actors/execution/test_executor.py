"""What the executor believes about processes, with real ones that do nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from tests.actors.processes.lock_owner import LockOwner
from tests.actors.runtime.stage import Stage, Timer

from ganger.actors.execution import watching
from ganger.actors.execution.children import ChannelAddress
from ganger.actors.execution.executor import Executor
from ganger.actors.execution.watching import ChildPhase
from ganger.actors.processes import channels, control_groups, fork_protocol
from ganger.storage import lock_files, process_identity, settings
from ganger.transport import frames, messages
from ganger.transport.envelopes import Envelope

if TYPE_CHECKING:
    from collections.abc import Iterator

JOB = 22
DEAD = process_identity.ProcessIdentity(1, 0, "anotherboot")


class WatchedExecutor(Executor):
    """An executor on a stage, whose fork servers are not there."""

    @property
    def stage(self) -> Stage:
        stage = self.runtime.host.directory
        assert isinstance(stage, Stage)
        return stage

    @property
    def sent(self) -> list[tuple[str, messages.Message]]:
        return self.stage.sent

    def hear(self, message: Any) -> None:
        """Handle a message, and the results of what is then done aside."""
        self.receive(Envelope(message))
        self.carry_out()

    def carry_out(self) -> None:
        for work in self.works():
            work.run_out()
        for ended in self.stage.take(messages.LeftOverEnded):
            self.receive(Envelope(ended))

    def works(self) -> list[Timer]:
        """What is to be done aside."""
        works = [timer for timer in self.stage.timers if timer.alarm is None]
        self.stage.timers[:] = [timer for timer in self.stage.timers if timer.alarm is not None]
        return works

    def find_dead(self) -> None:
        """The process of the job seems to have ended."""
        self._take_end(self._children[JOB])
        self.carry_out()


@pytest.fixture
def subject(stage: Stage) -> Iterator[WatchedExecutor]:
    with (
        mock.patch("ganger.actors.execution.fork_servers.subprocess.Popen"),
        mock.patch("ganger.actors.processes.fork_protocol.ask_status"),
    ):
        actor = stage.start(WatchedExecutor)
        actor.component._reaper.are_strays_likely = False
        actor.component._servers.end("lean")
        yield actor.component
        actor.close()


REAL_POPEN = subprocess.Popen


@pytest.fixture
def process(stage: Stage) -> Iterator[LockOwner]:
    process = LockOwner(stage.places.lock_files)
    yield process
    process.end()


def hello(process: LockOwner) -> messages.JobHello:
    return messages.JobHello(job_id=JOB, lock_file=process.lock_file, process_id=process.pid)


def start(subject: WatchedExecutor) -> None:
    """Ask the lean fork server for a process."""
    subject._start_server("lean")
    subject._start(JOB, needs_user_opcodes=False)


def start_greeted(subject: WatchedExecutor, process: LockOwner) -> None:
    """As `start`; the process greets the executor."""
    start(subject)
    subject._greet(hello(process))


def kill_server(subject: WatchedExecutor) -> None:
    subject._lose_server("lean")
    subject.carry_out()


def take_end(subject: WatchedExecutor, status: int = fork_protocol.UNKNOWN) -> None:
    """The process seems to have ended; its fork server, if it has one, tells how."""
    child = subject._children[JOB]
    subject.find_dead()
    if "lean" in subject._servers:
        assert JOB in subject._children
        subject._reaper.note_status(child.pid, status)
        subject.carry_out()


def watched_pid(subject: WatchedExecutor) -> int:
    with open(f"/proc/self/fdinfo/{subject._children[JOB].pidfd}", encoding="utf-8") as file:
        return int(file.read().split("Pid:")[1].split()[0])


def test_after_the_death_of_a_fork_server_the_second_process_is_watched_not_the_first(
    subject: WatchedExecutor, process: LockOwner
) -> None:
    first = REAL_POPEN(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    start(subject)
    subject._note_process(JOB, first.pid, os.pidfd_open(first.pid))
    kill_server(subject)
    subject._start_server("lean")
    subject._note_process(JOB, process.pid, os.pidfd_open(process.pid))
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


def test_only_the_lean_server_binds_functions_of_libraries_at_once(
    subject: WatchedExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_BIND_NOW", raising=False)
    started = subprocess.Popen
    assert isinstance(started, mock.Mock)
    for template, binds_now in (("lean", True), ("full", False)):
        subject._start_server(template)
        assert ("LD_BIND_NOW" in started.call_args.kwargs["env"]) is binds_now


def test_an_end_is_not_believed_while_the_lock_file_is_held(
    subject: WatchedExecutor, process: LockOwner
) -> None:
    start_greeted(subject, process)
    stranger = REAL_POPEN(["true"])
    subject._note_process(JOB, stranger.pid, os.pidfd_open(stranger.pid))
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
    subject._note_process(JOB, process.pid, os.pidfd_open(process.pid))
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


def confirmed(subject: WatchedExecutor, process: LockOwner) -> None:
    start_greeted(subject, process)
    subject._note_process(JOB, process.pid, os.pidfd_open(process.pid))
    subject._children[JOB].phase = ChildPhase.CONFIRMED


def exits(subject: WatchedExecutor) -> list[messages.JobExited]:
    return [one for _, one in subject.sent if isinstance(one, messages.JobExited)]


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
    subject._note_process(JOB, process.pid, os.pidfd_open(process.pid))
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


# When no descriptors are left.


def refuse(*_: object, **__: object) -> Any:
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.fixture(name="exhausted")
def without_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[pytest.MonkeyPatch]:
    """Every request for a descriptor of a process is refused."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", refuse)
        yield patch


def sent_to_itself(subject: WatchedExecutor) -> list[Any]:
    """What comes when all its alarms have rung."""
    subject.sent.clear()
    for timer in subject.stage.timers:
        assert timer.seconds in {settings.DISK_RETRY_SECONDS, settings.STATUS_SECONDS}
    subject.stage.run_timers()
    found = [message for _, message in subject.sent]
    subject.sent.clear()
    return found


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
    subject._note_process(JOB, process.pid, os.pidfd_open(process.pid))
    assert watched_pid(subject) == process.pid


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
    monkeypatch.setattr("ganger.actors.execution.fork_servers.psutil.Process", refuse)
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
    subject._note_process(JOB, process.pid, os.pidfd_open(process.pid))
    subject.hear(messages.KillDue(job_id=JOB, lock_file=earlier))
    assert not child.was_killed
    subject.hear(messages.RefuseHandOver(job_id=JOB, lock_file=process.lock_file))
    assert child.channel is None


def as_known(subject: WatchedExecutor) -> dict[int, list[object]]:
    """What the executor knows of each process."""
    return {
        child.job_id: [
            *(child.phase, child.attempts, child.pid, child.lock_file, child.pidfd, child.address),
            *(child.has_left, child.was_killed, child.is_being_cleared, child.is_cleared),
        ]
        for child in subject._children.values()
    }


START = messages.StartJobs(jobs=[(JOB, False)])


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


def stray_after(subject: WatchedExecutor, process: LockOwner, *, says_goodbye: bool) -> bool:
    """Whether the lock file of an unknown process is there when this one has ended."""
    stray = os.path.join(os.path.dirname(process.lock_file), "job_000099_1")
    open(stray, "wb").close()
    confirmed(subject, process)
    if says_goodbye:
        subject.hear(messages.JobLeft(job_id=JOB))
    process.end()
    if says_goodbye:
        subject.find_dead()
    else:
        take_end(subject)
    return os.path.exists(stray)


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
