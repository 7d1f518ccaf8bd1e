"""Messages to the supervisor."""

from __future__ import annotations

from typing import Literal

import msgspec

from ...storage.disk.disk_parts import DiskUse
from .base import Done, Notice, Reply, Request


class ComponentState(msgspec.Struct, frozen=True, kw_only=True):
    """One actor or process of the tree, as `ganger status` shows it.

    ``process``: where the component lives; empty: in the daemon's process.
    """

    name: str
    is_ready: bool
    restarts: int
    process: str = ""


class RapiState(msgspec.Struct, frozen=True, kw_only=True):
    """The remote API: where it listens, whether its process serves, and if not, why."""

    address: str
    port: int
    url: str
    is_ready: bool
    restarts: int = 0
    problem: str = ""
    left_out: list[str] = []
    """The resources of packages that its process could not load, a sentence for each."""


class SocketState(msgspec.Struct, frozen=True, kw_only=True):
    """The socket of an installed listener, and why it is not open; an empty text: it is.

    ``protocol``: what is spoken there, such as LUXI.
    """

    protocol: str
    path: str
    problem: str = ""


class MasterState(msgspec.Struct, frozen=True, kw_only=True):
    """Of which cluster the daemon's host is a node, and whether the master has its call.

    ``endpoint``: where it calls. ``since``: since when it is ``connected``, or is not (seconds
    since the epoch). ``problem``: why it is not connected.
    """

    node: str
    cluster: str
    endpoint: str
    connected: bool
    since: float
    problem: str = ""


class DaemonInfo(Reply, frozen=True):
    """Version, health and figures of the daemon. Times are seconds since the epoch.

    ``sockets``: those of installed listeners, such as LUXI's. ``longest_turns``: the
    longest time, in seconds, that a turn of each component in the daemon's process has taken within
    the last ten to twenty seconds. ``reuses_processes``: whether a process may serve several
    jobs, one after the other. ``rapi``: the remote API; None: the daemon has none.
    ``opcode_problems``: opcodes and other parts of installed packages that could not be loaded.
    ``is_disk_full``: no new jobs are taken until the disk has space, and none start.
    ``lacks_room``: no new jobs are taken; those that are there start. ``disk``: what takes how much
    of it; None: nobody asked, or it could not be measured in time. ``output_dropped``: why running
    jobs drop output. ``archive_indexed``: the part of the archive that its index has, while that is
    built. ``counts`` and ``outcomes``: how many live jobs have each status, and have ended in each
    outcome; an older daemon sends no outcomes. ``master``: of a node's daemon, the master that it
    calls.
    """

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
    sockets: list[SocketState] = []
    longest_turns: dict[str, float] = {}
    reuses_processes: bool = False
    rapi: RapiState | None = None
    is_disk_full: bool = False
    lacks_room: bool = False
    disk: DiskUse | None = None
    output_dropped: dict[int, str] = {}
    archive_indexed: float | None = None
    outcomes: dict[str, int] = {}
    master: MasterState | None = None


class ReadInfo(Request[DaemonInfo], frozen=True):
    """Read version, health and figures of the daemon.

    ``with_disk``: measure how much of the disk it takes, too. That looks at each file.
    """

    with_disk: bool = False


class StopDaemon(Request[Done], frozen=True):
    """Stop the daemon. Running jobs go on."""


class CrashComponent(Request[Done], frozen=True):
    """Test hook: make a component fail. Refused unless the daemon was started with hooks."""

    component: str
    how: Literal["crash", "hang"] = "crash"


class ComponentReady(Notice, frozen=True):
    """From a component: it has built its state and accepts messages.

    ``quarantined``: a sentence about each file that it could not read, and has put aside.
    """

    component: str
    incarnation: int
    quarantined: tuple[str, ...] = ()


class ComponentFailed(Notice, frozen=True):
    """From a component: it has stopped because of an unexpected error."""

    component: str
    incarnation: int
    text: str


class ComponentHung(Notice, frozen=True):
    """From the watchdog: the component has worked on one message for too long."""

    component: str
    incarnation: int
    text: str


class RestartDue(Notice, frozen=True):
    """From the supervisor's own timer: start the component again."""

    component: str


class StopRequested(Notice, frozen=True):
    """From the main thread: a signal asks the daemon to stop."""
