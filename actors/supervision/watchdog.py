"""The watchdog: looks, from the main thread, whether every component makes progress.

A component that has been at one message for too long hangs. The watchdog reports it, and the
supervisor replaces it (`supervising`), so that its callers do not hang as well. If the supervisor
itself hangs, the daemon begins anew. The watchdog also notices when the local socket, the lock
file of the queue or the endpoint file was deleted (`DirectoryKeeper`).
"""

from __future__ import annotations

import math
import stat
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...transport.envelopes import Envelope
from ...transport.messages import Boot, ComponentHung, LocalSocketMissing
from . import supervising
from .supervising import Sight

if TYPE_CHECKING:
    from ..runtime.host import FileId, Host
    from ..runtime.served_actor import ServedActor
    from .directory_keeper import DirectoryKeeper
    from .supervisor import Shutdown

SUPERVISOR = "supervisor"

_LOOKS_AT_OTHERS = 30
"""After how many looks a listener hears again of another program's socket."""


class Watchdog:
    """Looks at the components of ``host``, once every `settings.WATCHDOG_SECONDS`."""

    def __init__(
        self,
        host: Host,
        shutdown: Shutdown,
        keeper: DirectoryKeeper | None,
        hung_after_seconds: float,
    ) -> None:
        self._host = host
        self._keeper = keeper
        self._shutdown = shutdown
        self._seconds = hung_after_seconds
        self._looks_max = max(2, math.ceil(hung_after_seconds / settings.WATCHDOG_SECONDS))
        self._seen: dict[str, tuple[Sight, int]] = {}
        self._strange: dict[str, tuple[FileId | None, int]] = {}
        """What lies instead of a socket's file, and for how many looks it has."""

    def watch(self) -> None:
        """Look again and again until the daemon is to end."""
        while not self._shutdown.is_over.wait(self._patience_seconds):
            self.look()
            self.look_at_local_sockets()
            self.look_at_directory()

    @property
    def _patience_seconds(self) -> float:
        """A node's daemon whose components all rested at the last look is looked at less often."""
        rests = self._host.is_node and not self._seen
        return settings.WATCHDOG_REST_SECONDS if rests else settings.WATCHDOG_SECONDS

    def look_at_local_sockets(self) -> None:
        """Notify each listener whose socket's file was deleted, or replaced by something else.

        Another program's socket stays there: the listener hears of it once, and seldom again.
        """
        for name, path in _local_sockets(self._host).items():
            if name in self._host.actors and self._is_to_be_told(name, path):
                self._host.directory.tell(name, Envelope(LocalSocketMissing()))

    def _is_to_be_told(self, name: str, path: Path) -> bool:
        try:
            found = path.lstat()
        except FileNotFoundError:
            return True
        except OSError:
            return False  # Unknown: the next look decides.
        if not stat.S_ISSOCK(found.st_mode):
            return True
        own, file = self._host.local_sockets.get(name), (found.st_dev, found.st_ino)
        if own is None or file == own:
            self._strange.pop(name, None)
            return False
        before, looks = self._strange.get(name, (None, 0))
        looks = looks + 1 if before == file else 0
        self._strange[name] = file, looks
        return not looks % _LOOKS_AT_OTHERS

    def look_at_directory(self) -> None:
        """Write deleted files again; without its directory the daemon ends."""
        assert self._keeper is not None
        try:
            self._keeper.keep()
        except errors.DirectoryLostError as error:
            self._shutdown.abandon(error)

    def look(self) -> None:
        """Look once at every component, and report those that hang."""
        working = {}
        for name, actor in list(self._host.actors.items()):
            sight = _sight(actor)
            # A supervisor at the end of the daemon waits long, and must not begin it anew.
            is_waiting = name == SUPERVISOR and self._shutdown.is_stopping
            if sight is not None and not is_waiting:
                working[name] = sight
        self._seen, hung = supervising.after_look(self._seen, working, self._looks_max)
        for name in hung:
            self._report(self._host.actors[name])

    def _report(self, actor: ServedActor) -> None:
        text = f"it has worked at one message for {self._seconds:g} seconds"
        self._host.log.error(
            "component hangs", name=actor.name, stack=_stack(actor.heartbeat.thread)
        )
        if actor.name == SUPERVISOR:
            self._shutdown.restart(f"component {SUPERVISOR} hangs: {text}")
            return
        hung = ComponentHung(component=actor.name, incarnation=actor.incarnation, text=text)
        self._host.directory.tell(SUPERVISOR, Envelope(hung))


def _local_sockets(host: Host) -> dict[str, Path]:
    """The components with a local socket, and its file."""
    return {
        "wire_listener": host.places.socket,
        "authority_listener": host.own_socket or host.places.authority_socket,
        **{name: Path(state.path) for name, state in host.listener_states.copy().items()},
    }


def _sight(actor: ServedActor) -> Sight | None:
    """What the component works at; None if it is idle or abandoned."""
    heartbeat = actor.heartbeat
    handled, handling = heartbeat.handled, heartbeat.handling
    if handling is None or heartbeat.is_abandoned:
        return None
    is_booting = isinstance(handling, Envelope) and isinstance(handling.message, Boot)
    # A new incarnation begins to count anew.
    return Sight((actor.incarnation << 48) + handled, is_booting)


def _stack(thread: int) -> str:
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - the documented way to see it
    return "" if frame is None else "".join(traceback.format_stack(frame))
