"""What the components of one process share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...storage import settings
from ...storage.disk import descriptors, paths
from ...transport.envelopes import Directory
from ...transport.messages import MasterState, RapiState, SocketState
from .dispatcher import Dispatcher
from .mailbox import Replaced
from .rapi_options import RapiOptions
from .served_actor import ServedActor

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from ...storage.alive.lock_files import LockFile

FileId = tuple[int, int]
"""A file's device and inode."""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """What the components of one process share."""

    directory: Directory
    places: paths.Places
    log: FilteringBoundLogger
    daemon_lock: LockFile
    remote_endpoint: str | None = None
    is_node: bool = False
    """Whether this is the daemon of a node, whose jobs are tasks of the master's."""

    has_test_hooks: bool = False
    hung_after_seconds: float = settings.HUNG_SECONDS
    """How long a component, or another process, may work at one message."""

    reuses_processes: bool = True
    """Whether a process may serve more than one job, one after the other."""

    keeps_reserve: bool = False
    """Whether the queue keeps space for when the disk is full."""

    elsewhere: Mapping[str, str] = {}
    """The components that live in another process, each with the socket at which it listens."""
    processes: dict[str, int] = {}
    """The other processes by name, each with its pid; their keepers fill them in."""
    directory_descriptor: int | None = None
    """An open file that keeps the queue directory locked while any process has it open."""

    own_socket: Path | None = None
    """In a process beside the daemon: the socket of its listener."""

    endpoints: list[str] = []
    """The endpoints of the listeners, which fill them in."""

    rapi: RapiOptions | None = None
    """How to serve the remote API; None: not at all."""
    rapi_states: list[RapiState] = []
    """The state of the remote API, last in the list; its keeper fills it in."""

    listener_options: Mapping[str, Mapping[str, Any] | None] = {}
    """What installed listeners are to know, by their names; None: not to open their sockets."""
    listener_states: dict[str, SocketState] = {}
    """The sockets of installed listeners, which fill them in, by the listeners' names."""

    master_states: list[MasterState] = []
    """Of a node's daemon: how its call to the master is, last in the list; the link fills it in."""

    budget: descriptors.DescriptorBudget | None = None
    """Who may have how many descriptors; None: as the system's limit has it."""
    descriptors_before: int | None = None
    """The limit of descriptors that processes of jobs get; None: this process's."""

    local_sockets: dict[str, FileId] = {}
    """The sockets' files that other programs may replace, by their listeners, which note them."""

    note_start: Callable[[str, int, int], None] = lambda *_: None
    """Takes, from any thread, what a component does while the daemon starts, and with how many jobs
    of how many; 0: not counted."""

    memory_kept: dict[str, int] = {}
    """The most bytes that each component has kept on purpose: a listener does not take their growth
    for that of a connection. What is free again may stay with the process, so they never sink."""

    clock: Callable[[], float] = time.monotonic
    """Seconds that never go back."""
    wall_clock: Callable[[], float] = time.time
    make_dispatcher: Callable[[str], Dispatcher] = Dispatcher
    dispatchers: dict[str, Dispatcher] = {}
    actors: dict[str, ServedActor] = {}
    """The newest actor of each component, for the watchdog and the supervisor."""

    def keep_memory(self, name: str, size: int) -> None:
        """Note how many bytes a component keeps for ``name``."""
        if size > self.memory_kept.get(name, 0):
            self.memory_kept[name] = size

    def dispatcher(self, name: str) -> Dispatcher:
        """The dispatcher of this name, made when it is first asked for."""
        found = self.dispatchers.get(name)
        if found is None:
            found = self.dispatchers[name] = self.make_dispatcher(name)
        return found

    def repeat_asks(self, component: str) -> None:
        """Have all components repeat the requests that wait: this component was replaced."""
        for actor in list(self.actors.values()):
            if actor.asks:
                actor.put(Replaced(component))
