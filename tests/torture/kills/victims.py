"""Jobs that are there to be killed: they run until the test ends them, and hold a lock."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any, Self

import psutil
from tests.torture.kills.workload import Submission, Work

from ganger import Client, JobStatus
from ganger.storage.alive import lock_files, process_identity
from ganger.storage.jobs import jobs
from ganger.storage.jobs.job_views import LogLine, StatusChange
from ganger.storage.queue_files import job_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

START_SECONDS = 30.0
END_SECONDS = 20
FORKS_SECONDS = 0.002

GATED = 'echo started; read -r word < {gate}; echo "$word"'
FAMILY = "sleep 60 & sleep 60 & echo started; wait"
BREEDER = (
    "echo started; n=0; while [ $n -lt 200 ]; do n=$((n+1)); "
    f"sleep 60 & sleep {FORKS_SECONDS}; done; wait"
)
"""A command that starts processes all the time: to find them all needs more than one look."""

_STRANGER = "sleep 600 & echo $!; wait"
_PID_ATTEMPTS = 50
_REAP_SECONDS = 0.001
_LAST_PID = "/proc/sys/kernel/ns_last_pid"
_PR_SET_CHILD_SUBREAPER = 36


class Target:
    """A job that runs a command of one of the kinds above, on a node of its own."""

    def __init__(self, work: Work, folder: Path, command: str = GATED) -> None:
        self.name = work.name()
        self.node = f"t{self.name}"
        self.gate_path = folder / f"gate-{self.name}"
        os.mkfifo(self.gate_path)
        # Held open for both: neither side ever waits for the other to open it.
        self._gate = os.open(self.gate_path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        opcode = work.opcode(
            self.name, {self.node: "exclusive"}, command.format(gate=self.gate_path)
        )
        self.waiter_name = work.name()
        self.waiter_opcode = work.opcode(self.waiter_name, {self.node: "exclusive"}, "exec true")
        self.opcodes = [opcode]
        self.names = [self.name]
        self.job_id = 0
        self.waiter_id = 0
        self.process_id = 0
        self.pidfd = -1

    def add_opcode(self, work: Work) -> None:
        """A second opcode, with a lock that only a daemon can give."""
        name = work.name()
        self.names.append(name)
        self.opcodes.append(work.opcode(name, {f"t{name}": "exclusive"}, "exec true"))

    def open_gate(self, word: str = "go") -> None:
        """Let the command end."""
        os.write(self._gate, f"{word}\n".encode())

    def kill(self) -> float:
        """Kill the job's process; returns when (monotonic) it had ended."""
        signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        return self.wait_for_end()

    def kill_all(self) -> None:
        """Kill and reap everything in the job's session, so that its pid is free."""
        found = {pid: open_pidfd(pid) for pid in _pids() if _session(pid) == self.process_id}
        members = {pid: pidfd for pid, pidfd in found.items() if pidfd is not None}
        # The job's process first, whatever the numbers: it would tell of the end of its command.
        for pid in sorted(members, key=self.process_id.__ne__):
            send_kill(members[pid])
        for pid, pidfd in members.items():
            assert select.select([pidfd], [], [], END_SECONDS)[0], "the process does not end"
            _reap(pid, pidfd)
            os.close(pidfd)

    def wait_for_end(self) -> float:
        """Wait until the job's process has ended; returns when that was seen."""
        assert select.select([self.pidfd], [], [], END_SECONDS)[0], "the process does not end"
        return time.monotonic()

    def close(self) -> None:
        """Close what is open."""
        os.close(self._gate)
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def start(client: Client, targets: Sequence[Target], *, are_waited_for: bool) -> list[Submission]:
    """Submit the targets and wait until their commands run, and others wait for their locks."""
    submissions = [_submit(client, [(target.opcodes, target.names) for target in targets])]
    for target, job_id in zip(targets, submissions[0].ids, strict=True):
        target.job_id = job_id
    waited_for = set(submissions[0].ids)
    for part in client.watch(*submissions[0].ids, timeout=START_SECONDS):
        if isinstance(part, LogLine):
            waited_for.discard(part.job_id)
        if not waited_for:
            break
    assert not waited_for, f"jobs {sorted(waited_for)} have said nothing"
    for info in client.jobs(submissions[0].ids):
        target = next(target for target in targets if target.job_id == info.id)
        assert info.process_id is not None, f"job {info.id} runs without a process"
        target.process_id = info.process_id
        target.pidfd = process_identity.open_pidfd(info.process_id)
    if are_waited_for:
        submissions.append(_start_waiters(client, targets))
    return submissions


def _start_waiters(client: Client, targets: Sequence[Target]) -> Submission:
    jobs = [([target.waiter_opcode], [target.waiter_name]) for target in targets]
    submission = _submit(client, jobs)
    for target, job_id in zip(targets, submission.ids, strict=True):
        target.waiter_id = job_id
    until(client, submission.ids, JobStatus.WAITING)
    return submission


def _submit(client: Client, wanted: Sequence[tuple[list[dict[str, Any]], list[str]]]) -> Submission:
    specs = [{"ops": opcodes, "priority": -20} for opcodes, _ in wanted]
    names = [names for _, names in wanted]
    key = f"key-{names[0][0]}"
    ids = client.submit_many(specs, key=key, reason=key)
    return Submission(key=key, jobs=specs, names=names, ids=ids)


def until(client: Client, ids: Sequence[int], status: JobStatus) -> None:
    """Wait until each of these jobs has had this status."""
    missing = set(ids)
    for part in client.watch(*ids, log=False, timeout=START_SECONDS):
        if isinstance(part, StatusChange):
            assert part.status is status or not part.status.is_final, (
                f"job {part.job_id} is {part.status} and not {status}"
            )
            if part.status is status:
                missing.discard(part.job_id)
        if not missing:
            return
    raise AssertionError(f"jobs {sorted(missing)} were never {status}")


class Stranger:
    """A process, with a child in its session, that has a pid which was a job's before."""

    def __init__(self, process: subprocess.Popen[str], child_id: int) -> None:
        self.process_id = process.pid
        self._process = process
        self._child = process_identity.open_pidfd(child_id)

    @classmethod
    def begin(cls) -> Self:
        """One with any pid."""
        process = subprocess.Popen(
            ["sh", "-c", _STRANGER], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert process.stdout is not None
        return cls(process, int(process.stdout.readline()))

    @classmethod
    def with_pid(cls, pid: int) -> Self | None:
        """One with this very pid; None if that cannot be had here."""
        for _ in range(_PID_ATTEMPTS):
            try:
                with open(_LAST_PID, "w", encoding="ascii") as file:
                    file.write(str(pid - 1))
            except OSError:
                return None
            stranger = cls.begin()
            if stranger.process_id == pid:
                return stranger
            stranger.end()
        return None

    def harm(self) -> str:
        """What has become of it and of its child; empty if both live."""
        if (status := self._process.poll()) is not None:
            return f"process {self.process_id} ended with status {status}"
        if select.select([self._child], [], [], 0)[0]:
            return f"the child of process {self.process_id} was ended"
        return ""

    def end(self) -> None:
        """End both."""
        send_kill(self._child)
        os.close(self._child)
        self._process.kill()
        self._process.communicate()


def record_process_id(queue: Path, job_id: int, process_id: int) -> None:
    """Let a job's file name another process; only while neither daemon nor job lives."""
    path = job_files.path(queue, job_id)
    with open(path, "rb") as file:
        job = jobs.decode_job(file.read())
    job.process_id = process_id
    with open(path, "wb") as file:
        file.write(jobs.encode_job(job))


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Meanwhile orphans become children of this process, which can reap them at once."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def open_pidfd(pid: int) -> int | None:
    """A descriptor of the process; None if it has ended."""
    try:
        return process_identity.open_pidfd(pid)
    except ProcessLookupError:
        return None


def kill_with_its_jobs(pid: int, pidfd: int, folder: Path) -> set[int]:
    """Kill a process of jobs; the jobs of the lock files in ``folder`` that it held.

    It is stopped first: else it might take another job between the look and the kill.
    """
    with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
        signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        process = psutil.Process(pid)
        while process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
            time.sleep(_REAP_SECONDS)
    held = [path for path in folder.glob("job_*") if lock_files.holder(path) == pid]
    send_kill(pidfd)
    return {int(path.name.split("_")[1]) for path in held}


def is_between_jobs(pid: int) -> bool:
    """Whether the process has left a job, and waits for another one."""
    try:
        return psutil.Process(pid).name() == "job -"
    except psutil.NoSuchProcess:
        return False


def send_kill(pidfd: int) -> None:
    """Kill the process; harmless if it has ended."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def _reap(pid: int, pidfd: int) -> None:
    """Reap a process that has ended, or wait until its parent has done so or is gone itself."""
    for _ in range(END_SECONDS * 1_000):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        try:
            signal.pidfd_send_signal(pidfd, 0)
        except ProcessLookupError:
            return
        select.select([], [], [], _REAP_SECONDS)
    raise AssertionError(f"no parent reaps process {pid}")


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1
