"""What the executor accepts."""

from __future__ import annotations

from .base import Done, Notice, Request
from .job import CancelRequested, GateChanged, PriorityRequested


class StartJobs(Notice, frozen=True):
    """From the job queue: make a process for each of these jobs: (id, needs user opcodes)."""

    jobs: list[tuple[int, bool]]


class HandOverConfirmed(Notice, frozen=True):
    """From the job queue: the child that holds this lock file was told to go on."""

    job_id: int
    lock_file: str


class RefuseHandOver(Notice, frozen=True):
    """From the job queue: the job must not start now; the child that asked has to go."""

    job_id: int
    lock_file: str


class AdoptJobs(Notice, frozen=True):
    """From the job queue: these jobs were handed over before: (id, lock file, pid)."""

    jobs: list[tuple[int, str, int | None]]


class DeliverToJob(Notice, frozen=True):
    """Deliver a message to a job process, over whatever channel it has now."""

    job_id: int
    message: CancelRequested | PriorityRequested | GateChanged


class RequestDue(Notice, frozen=True):
    """From the executor's own timer: ask again for a process that could not be asked for."""

    job_id: int


class WatchDue(Notice, frozen=True):
    """From the executor's own timer: look again for a process that could not be watched."""

    job_id: int
    lock_file: str


class KillDue(Notice, frozen=True):
    """From the executor's own timer: the process was asked to end, and had its time."""

    job_id: int
    lock_file: str


class StartForkServer(Notice, frozen=True):
    """From the supervisor: the fork server of this template may be started (again)."""

    template: str


class JobHello(Notice, frozen=True):
    """From a child: it holds this lock file and waits for `JobGo`."""

    job_id: int
    lock_file: str
    process_id: int


class JobLeft(Notice, frozen=True):
    """From a job process: its last state is in its file; it is about to exit.

    ``has_locks`` as for `RecordState`; ``has_group``: it may have made a control group.
    """

    job_id: int
    has_locks: bool = True
    has_group: bool = True


class AttachJob(Request[Done], frozen=True):
    """From a job process, over ZeroMQ: the daemon that forked it is gone; reach it here."""

    job_id: int
    lock_file: str
    process_id: int
