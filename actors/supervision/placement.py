"""The components, in the order of their start; the dispatcher and the process of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import entry_points
from ...storage.opcodes import catalogue
from ..config.config_store import ConfigStore
from ..execution.executor import Executor
from ..listeners.installed import installed
from ..listeners.wire_listener import WireListener
from ..locks.lock_manager import LockManager
from ..nodes.node_keeper import NodeKeeper
from ..nodes.node_link import NodeLink
from ..output.output_reader import OutputReader
from ..queue.job_queue import JobQueue
from ..rules.filter_evaluator import FilterEvaluator
from ..scheduling.scheduler import Scheduler
from .authority import Authority
from .rapi_keeper import RapiKeeper

if TYPE_CHECKING:
    from collections.abc import Collection

    from ...storage.disk.paths import Places
    from ..runtime.component import Component

CORE = "core"
"""The dispatcher of the path that every job takes."""

_OWN = {
    "authority": "authority",
    "authority_listener": CORE,
    "lock_manager": CORE,
    "config_store": "config_store",
    "filter_evaluator": "filter_evaluator",
    "scheduler": CORE,
    "job_queue": CORE,
    "output_reader": "output_reader",
    "executor": CORE,
    "wire_listener": CORE,
    "rapi_keeper": "rapi_keeper",
    "node_keeper": "node_keeper",
    "node_hub": CORE,
    "node_link": CORE,
}

INSTALLED = installed({*_OWN, "supervisor"})
"""The listeners of packages, and what is wrong with them."""


def left_out() -> list[str]:
    """What this process could not load of installed packages, one sentence each."""
    found = (*catalogue.problems(), *INSTALLED.problems, *entry_points.problems())
    return [*dict.fromkeys(found)]


COMPONENTS: tuple[type[Component], ...] = (
    LockManager,
    ConfigStore,
    FilterEvaluator,
    Scheduler,
    JobQueue,
    OutputReader,
    Executor,
    NodeKeeper,
    *INSTALLED.classes,
    WireListener,
    RapiKeeper,
)
"""The supervisor starts one after the other, each when the one before it is ready, and stops them
in reverse. The listeners start last: no request arrives before its receiver is ready."""

PLACEMENT = {**_OWN, **{listener.name: listener.name for listener in INSTALLED.classes}}
"""The dispatcher of each component. Those of a process with the same dispatcher share a thread."""

APART = {"together": (), "apart": ("lock_manager", "config_store")}
"""For each `--placement`: the components that run in a process of their own (`Authority`)."""

SUPERVISION = "supervision"
"""The dispatcher of the supervisor, which no component shares: it stops them all."""

NOTIFIED_OF_REPLACEMENT = (
    "executor",
    "wire_listener",
    "config_store",
    "authority",
    "node_keeper",
    "node_link",
)
"""They act for clients or jobs, whose requests the replaced component has forgotten."""


def elsewhere(placement: str, places: Places) -> dict[str, str]:
    """The components in another process than the daemon's, each with the socket there."""
    socket = str(places.authority_socket)
    return dict.fromkeys(APART[placement], socket)


_OF_MASTERS = (NodeKeeper, *INSTALLED.classes, RapiKeeper)


def components(elsewhere: Collection[str], *, is_node: bool = False) -> tuple[type[Component], ...]:
    """All components, in the order of their start, if these live in another process.

    ``is_node``: it is the daemon of a node, which has no doors but its own, and calls its master.
    """
    found = COMPONENTS
    if is_node:
        found = (*(one for one in COMPONENTS if one not in _OF_MASTERS), NodeLink)
    return (Authority, *found) if elsewhere else found
