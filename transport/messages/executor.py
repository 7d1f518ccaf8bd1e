"""Messages to the executor."""

from __future__ import annotations

from .base import Done, Notice, Reply, Request
from .job import CancelRequested, GateChanged, PriorityRequested


class StartJobs(Notice, frozen=True):
    """From the job queue: make a process for each of these jobs: (id, needs user opcodes).

    ``reusing``: the jobs among them that may also have a process that has served others.
    """

    jobs: list[tuple[int, bool]]
    reusing: list[int] = []


class HandOverConfirmed(Notice, frozen=True):
    """From the job queue: the child that holds this lock file gets its `JobGo`."""

    job_id: int
    lock_file: str


class RefuseHandOver(Notice, frozen=True):
    """From the job queue: the job must not start now; end the child with this lock file."""

    job_id: int
    lock_file: str


class AdoptJobs(Notice, frozen=True):
    """From the job queue: watch the processes of these jobs: (id, lock file, process id)."""

    jobs: list[tuple[int, str, int | None]]


class DeliverToJob(Notice, frozen=True):
    """From the job queue: deliver ``message`` to the job process, over its present channel."""

    job_id: int
    message: CancelRequested | PriorityRequested | GateChanged


class RequestDue(Notice, frozen=True):
    """From the executor's own timer: request a process again; the last request failed."""

    job_id: int


class WatchDue(Notice, frozen=True):
    """From the executor's own timer: look again whether an unwatched process lives."""

    job_id: int
    lock_file: str


class IdleProcessesDue(Notice, frozen=True):
    """From the executor's own timer: end processes that have waited too long for a job."""


class LeftOverEnded(Notice, frozen=True):
    """From the executor's own thread: the processes that a dead job process left have ended.

    ``ended``: their pids. ``error``: some could not be ended.
    """

    job_id: int
    lock_file: str
    ended: list[int] = []
    error: str | None = None


class LeftTaskDue(Notice, frozen=True):
    """From the executor's own timer: ask the hub again to end what this process left on a node."""

    lock_file: str


class KillDue(Notice, frozen=True):
    """From the executor's own timer: kill the process if it has not ended on request."""

    job_id: int
    lock_file: str


class StartForkServer(Notice, frozen=True):
    """From the supervisor: start the fork server of this template (again)."""

    template: str


class JobHello(Notice, frozen=True):
    """From a child: it holds this lock file and waits for `JobGo`."""

    job_id: int
    lock_file: str
    process_id: int


class JobLeft(Notice, frozen=True):
    """From a job process: its last state is in its file, and it is about to exit.

    ``has_locks``: as in `RecordState`. ``has_group``: it may have made a control group.
    ``is_free``: it does not exit, has given up its lock file, and waits for `NextJob`. ``unclean``:
    why it takes no other job although this one would have let it.
    """

    job_id: int
    has_locks: bool = True
    has_group: bool = True
    is_free: bool = False
    unclean: str = ""


class AttachJob(Request[Done], frozen=True):
    """From a job process, over ZeroMQ: its daemon has ended; this connection is its channel now."""

    job_id: int
    lock_file: str
    process_id: int


class ExecutorReport(Reply, frozen=True):
    """From the executor: its share of `DaemonInfo`.

    ``memory``: bytes by process; 0: unknown.
    """

    pid: int
    memory: dict[str, int]


class ReadProcesses(Request[ExecutorReport], frozen=True):
    """From the supervisor: the executor's share of `DaemonInfo`."""
