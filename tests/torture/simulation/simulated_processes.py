"""Simulated processes beside the daemon: jobs, which run the real job actor, and fork servers.

A job's code waits in the middle of its work, so each job has a thread, which runs only while
the world's own thread stands still: control is handed over and back.
"""

from __future__ import annotations

import errno
import math
import os
import subprocess
import threading
import traceback
from typing import Any

import psutil
from tests.torture.simulation.core import Core, Killed, ProcessHandle, Program, Task
from tests.torture.simulation.sockets import End

from ganger.actors.job import job, process
from ganger.actors.job.daemon_link import DaemonLink
from ganger.actors.processes import fork_protocol
from ganger.actors.processes.channels import Channel
from ganger.storage.alive import lock_files, process_identity
from ganger.storage.alive.process_identity import ProcessIdentity

CHANGED_SHARE = 0.1
"""How many jobs leave their process in another state."""


class JobTask(Task):
    """The process of a job. ``job_id``: the job that it serves now; 0: none."""

    def __init__(self, core: Core, program: Program, job_id: int, end: End, locks: str) -> None:
        super().__init__(core, f"job {job_id}", program)
        self.job_id = job_id
        self.actor: job.JobActor | None = None
        self.is_operating = False
        self._end = end
        self._locks = locks
        self._go = threading.Lock()
        self._done = threading.Lock()
        self._go.acquire()
        self._done.acquire()
        self._waits_for: list[int] = []
        self._deadline = math.inf
        self._begins_at = core.clock.now + core.delay()
        self.is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def due(self) -> float:
        if not self._waits_for:
            return self._begins_at
        handles = map(self.core.handles.get, self._waits_for)
        return min((handle.due() for handle in handles if handle is not None), default=math.inf)

    def alarm(self) -> float:
        return self._deadline

    def step(self) -> None:
        """Let it run until it waits again, or for its end."""
        self._go.release()
        self._done.acquire()
        if self.is_over:
            self._thread.join()
            self.program.end()

    def park(self, numbers: list[int], deadline: float) -> None:
        """Called by the job: wait until one of these is readable, or for the deadline."""
        self._waits_for, self._deadline = numbers, deadline
        self._begins_at = math.inf
        self._done.release()
        self._go.acquire()
        if not self.program.is_alive:
            raise Killed

    def fail(self) -> None:
        self.core.injected["job killed"] += 1
        self.core.note(self.name, "is killed")
        super().fail()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if self.program.is_alive:
                link = DaemonLink(Channel(self._end))  # type: ignore[arg-type]
                spare = lock_files.spare_path(self._locks, 0, self.program.pid)
                process.run_process(self.job_id, link, self._locks, spare=spare)
        except Killed:
            pass
        except BaseException:  # noqa: BLE001 - reported where it can be seen
            self.core.problem(f"the process of job {self.job_id} failed: {traceback.format_exc()}")
        finally:
            self.is_over = True
            self._done.release()


class ForkServer(Task):
    """A fork server: as `actors.execution.fork_server`, with simulated children."""

    def __init__(self, core: Core, program: Program, end: End, locks: str) -> None:
        super().__init__(core, "fork server", program)
        self._end = end
        self._locks = locks
        self._ready_at = core.clock.now + core.delay()

    def due(self) -> float:
        return max(self._ready_at, self._end.due())

    def fail(self) -> None:
        self.core.injected["fork server killed"] += 1
        super().fail()

    def step(self) -> None:
        try:
            received = fork_protocol.receive_request(self._end)  # type: ignore[arg-type]
            if received is None:
                self.program.end()
            else:
                self._fork(*received)
        except (Killed, ConnectionError):
            self.program.end()

    def _fork(self, job_id: int, number: int) -> None:
        core = self.core
        channel = core.handles[number]
        assert isinstance(channel, End)
        child = Program(core, f"job {job_id}")
        task = JobTask(core, child, job_id, End(core, child, channel.side), self._locks)
        core.add(task)
        core.fault_point()
        process = ProcessHandle(core, self.program, child)
        fork_protocol.reply(self._end, job_id, child.pid, process.number)  # type: ignore[arg-type]
        process.close()
        channel.close()


def ask_no_status(*_: object) -> None:
    """Stands for a request to a fork server, which does not know how a process has ended."""
    raise OSError(errno.EPIPE, "no statuses here")


class Popen:
    """Stands for `subprocess.Popen`: starts a fork server."""

    def __init__(
        self,
        command: list[str],
        *,
        pass_fds: list[int],
        stdin: object,
        cwd: str,
    ) -> None:
        core = Core.active
        assert (stdin, cwd) == (subprocess.DEVNULL, "/")
        end = core.handles[pass_fds[0]]
        assert isinstance(end, End)
        self.program = Program(core, "fork server")
        self.pid = self.program.pid
        arguments = command[command.index("ganger.actors.execution.template") + 1 :]
        _template, _descriptor, lock_files, *_ = arguments
        core.add(ForkServer(core, self.program, End(core, self.program, end.side), lock_files))

    def kill(self) -> None:
        self.program.end()

    def wait(self) -> int:
        assert not self.program.is_alive
        return -9


class Subprocess:
    """Stands for the module, as `fork_servers` uses it."""

    DEVNULL = subprocess.DEVNULL
    Popen = Popen


class Psutil:
    """Stands for the module, as `machine` uses it. Jobs leave nothing running here."""

    Error = psutil.Error
    NoSuchProcess = psutil.NoSuchProcess
    STATUS_ZOMBIE = psutil.STATUS_ZOMBIE

    class Process:
        """A living process."""

        def __init__(self, pid: int) -> None:
            if pid not in Core.active.programs:
                raise psutil.NoSuchProcess(pid)

        def status(self) -> str:
            return psutil.STATUS_RUNNING

    @staticmethod
    def process_iter() -> list[Psutil.Process]:
        return []


class ProcessOs:
    """Stands for the module where descriptors may be simulated ones."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    @staticmethod
    def close(number: int) -> None:
        handle = Core.active.handles.get(number)
        if handle is None:
            os.close(number)
        else:
            handle.close()


def open_pidfd(pid: int) -> int:
    """Stands for `process_identity.open_pidfd`."""
    core = Core.active
    assert core.current is not None
    if pid not in core.programs:
        raise ProcessLookupError
    return ProcessHandle(core, core.current.program, core.programs[pid]).number


def own_pid() -> int:
    """Stands for `os.getpid`."""
    task = Core.active.current
    return 1 if task is None else task.program.pid


def create_lock_file(
    create: Any, directory: str | os.PathLike[str], stem: str, spare: str | None
) -> lock_files.LockFile:
    """Stands for `lock_files.create`: the file belongs to the program, and ends with it."""
    core = Core.active
    core.fault_point()
    made: lock_files.LockFile = create(directory, stem, spare=spare)
    assert core.current is not None
    core.current.program.lock_files.append(made)
    core.fault_point()
    return made


def remove_lock_file(remove: Any, held: lock_files.LockFile) -> None:
    """Stands for `LockFile.remove`: a program that was killed does nothing any more."""
    task = Core.active.current
    if task is not None and held not in task.program.lock_files:
        return
    Core.active.fault_point()
    if task is not None:
        task.program.lock_files.remove(held)
    remove(held)


class OwnFiles(dict[str, int]):
    """Stands for `lock_files.own_files`, where one real process has the files of all programs.

    A deleted file is locked only for the program that has it open.
    """

    def __contains__(self, path: object) -> bool:
        if not super().__contains__(path):
            return False
        task = Core.active.current
        held = [] if task is None else [one.path for one in task.program.lock_files]
        return path in held or os.path.exists(str(path))


def own_mark() -> ProcessIdentity:
    """Stands for `processes.own`."""
    task = Core.active.current
    assert task is not None
    return task.program.mark


def lives(mark: ProcessIdentity) -> bool:
    """Stands for `processes.lives`."""
    return any(program.mark == mark for program in Core.active.programs.values())


def serves(mark: ProcessIdentity, job_id: int) -> bool:
    """Stands for `process_identity.serves`."""
    return any(
        program.mark == mark and program.shown_job in (None, job_id)
        for program in Core.active.programs.values()
    )


def show_job(job_id: int | None) -> None:
    """Stands for `process_identity.show_job`."""
    core = Core.active
    core.fault_point()
    task = core.current
    assert isinstance(task, JobTask)
    task.program.shown_job = task.job_id = job_id or 0
    if job_id is None:
        task.actor = None
        core.injected["job left for another"] += 1
    core.note(task.name, "serves", job_id)
    core.fault_point()


def take_state(*, without: int) -> dict[str, object]:
    """Stands for `own_state.take`: some jobs change their process."""
    core = Core.active
    assert without >= 0
    task = core.current
    assert isinstance(task, JobTask)
    is_first = task.actor is None
    # The state before its first job is what the others are compared with.
    is_changed = not is_first and core.has_faults and core.dice.random() < CHANGED_SHARE
    core.injected["process changed by its job"] += is_changed
    name = process_identity.shown_name(task.job_id) if task.program.shown_job else b"python"
    return {"umask": int(is_changed), "name": name}


def holder(path: str | os.PathLike[str]) -> int | None:
    """Stands for `lock_files.holder`: here all locks are held by one real process."""
    for program in Core.active.programs.values():
        if any(held.path == os.fspath(path) for held in program.lock_files):
            return program.pid
    return None
