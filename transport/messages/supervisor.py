"""What the supervisor accepts."""

from __future__ import annotations

from typing import Literal

import msgspec

from .base import Done, Notice, Reply, Request


class ComponentState(msgspec.Struct, frozen=True, kw_only=True):
    """One actor or process of the tree, as `ganger status` shows it."""

    name: str
    is_ready: bool
    restarts: int


class DaemonInfo(Reply, frozen=True):
    """What the daemon says of itself; times in seconds since the epoch."""

    pid: int
    version: str
    protocol: int
    data: str
    started: float
    endpoints: list[str]
    components: list[ComponentState]
    counts: dict[str, int]
    quarantined: list[str]
    flushes: int
    memory: dict[str, int]
    is_read_only: bool = False
    is_drained: bool = False
    opcode_problems: list[str] = []


class ReadInfo(Request[DaemonInfo], frozen=True):
    """What daemon is this, and how is it."""


class StopDaemon(Request[Done], frozen=True):
    """Stop the daemon; running jobs go on."""


class CrashComponent(Request[Done], frozen=True):
    """Test hook: make a component fail. Refused unless the daemon was started with hooks."""

    component: str
    how: Literal["crash", "hang"] = "crash"


class QueueReport(Notice, frozen=True):
    """From the job queue to the supervisor, on request: what `DaemonInfo` needs."""

    token: int
    counts: dict[str, int]
    quarantined: list[str]
    flushes: int
    is_read_only: bool
    is_drained: bool = False


class ExecutorReport(Notice, frozen=True):
    """From the executor to the supervisor, on request: memory in bytes by process.

    0 bytes: nobody could tell.
    """

    token: int
    pid: int
    memory: dict[str, int]


class ComponentReady(Notice, frozen=True):
    """A component has built its state and takes messages."""

    component: str
    incarnation: int


class ComponentFailed(Notice, frozen=True):
    """A component has stopped because of an error it did not expect."""

    component: str
    incarnation: int
    text: str


class ComponentHung(Notice, frozen=True):
    """From the watchdog to the supervisor: a component has been at one message for too long."""

    component: str
    incarnation: int
    text: str


class RestartDue(Notice, frozen=True):
    """From the supervisor's own timer: the component may be started again."""

    component: str


class StopRequested(Notice, frozen=True):
    """The operator wants the daemon to stop (a signal came)."""
