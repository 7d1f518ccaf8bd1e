"""An executor on a stage, and what its tests do with it."""

from __future__ import annotations

import errno
import os
import subprocess
from typing import Any

from tests.actors.processes.lock_owner import LockOwner
from tests.actors.runtime.stage import Stage, Timer

from ganger.actors.execution.executor import Executor
from ganger.actors.execution.watching import ChildPhase
from ganger.actors.processes import fork_protocol
from ganger.storage import settings
from ganger.storage.alive import process_identity
from ganger.transport import messages
from ganger.transport.envelopes import Envelope

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
        """Handle a message, and the results of what is then done in a thread."""
        self.receive(Envelope(message))
        self.carry_out()

    def carry_out(self) -> None:
        for work in self.works():
            work.run_out()
        for ended in self.stage.take(messages.LeftOverEnded):
            self.receive(Envelope(ended))

    def works(self) -> list[Timer]:
        """What is to be done in a thread."""
        works = [timer for timer in self.stage.timers if timer.alarm is None]
        self.stage.timers[:] = [timer for timer in self.stage.timers if timer.alarm is not None]
        return works

    def find_dead(self) -> None:
        """The process of the job seems to have ended."""
        self._take_end(self._children[JOB])
        self.carry_out()


REAL_POPEN = subprocess.Popen


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


def confirmed(subject: WatchedExecutor, process: LockOwner) -> None:
    start_greeted(subject, process)
    subject._note_process(JOB, process.pid, process_identity.open_pidfd(process.pid))
    subject._children[JOB].phase = ChildPhase.CONFIRMED


def exits(subject: WatchedExecutor) -> list[messages.JobExited]:
    return [one for _, one in subject.sent if isinstance(one, messages.JobExited)]


def refuse(*_: object, **__: object) -> Any:
    raise OSError(errno.EMFILE, "Too many open files")


def sent_to_itself(subject: WatchedExecutor) -> list[Any]:
    """What comes when all its alarms have rung."""
    subject.sent.clear()
    for timer in subject.stage.timers:
        assert timer.seconds in {settings.DISK_RETRY_SECONDS, settings.STATUS_SECONDS}
    subject.stage.run_timers()
    found = [message for _, message in subject.sent]
    subject.sent.clear()
    return found


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
