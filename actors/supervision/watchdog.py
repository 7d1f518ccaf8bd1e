"""The watchdog: looks, from the main thread, whether every component gets on with its work.

A component that has been at one message for too long hangs: its callers must not, so the
supervisor is told and replaces it (`supervising`). If the supervisor itself hangs, the
daemon begins anew. The watchdog also sees when somebody has deleted the local door, or what
others know the daemon by (`DirectoryKeeper`).
"""

from __future__ import annotations

import math
import sys
import traceback
from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...transport.envelopes import Envelope
from ...transport.messages import Boot, ComponentHung, LocalSocketMissing
from . import supervising
from .supervising import Sight

if TYPE_CHECKING:
    from ..runtime.actor import ComponentActor
    from ..runtime.host import Host
    from .directory_keeper import DirectoryKeeper
    from .supervisor import Shutdown

SUPERVISOR = "supervisor"
DOOR_KEEPER = "wire_listener"


class Watchdog:
    """Looks at the components of ``host``, once every `settings.WATCHDOG_SECONDS`."""

    def __init__(
        self,
        host: Host,
        shutdown: Shutdown,
        keeper: DirectoryKeeper,
        hung_after_seconds: float,
    ) -> None:
        self._host = host
        self._keeper = keeper
        self._shutdown = shutdown
        self._seconds = hung_after_seconds
        self._looks_max = max(2, math.ceil(hung_after_seconds / settings.WATCHDOG_SECONDS))
        self._seen: dict[str, tuple[Sight, int]] = {}

    def watch(self) -> None:
        """Look again and again until the daemon is to end."""
        while not self._shutdown.is_over.wait(settings.WATCHDOG_SECONDS):
            self.look()
            self.look_at_door()
            self.look_at_directory()

    def look_at_door(self) -> None:
        """Nobody tells of the deletion of a file: look for that of the local door."""
        if DOOR_KEEPER in self._host.actors and not self._door_exists():
            self._host.directory.tell(DOOR_KEEPER, Envelope(LocalSocketMissing()))

    def look_at_directory(self) -> None:
        """Keep what others know the daemon by; without its directory the daemon ends."""
        try:
            self._keeper.keep()
        except errors.DirectoryLostError as error:
            self._shutdown.abandon(error)

    def _door_exists(self) -> bool:
        try:
            self._host.places.socket.stat()
        except FileNotFoundError:
            return False
        except OSError:
            # Nobody can tell.
            return True
        return True

    def look(self) -> None:
        """Look once, and tell of what hangs."""
        working = {}
        for name, actor in list(self._host.actors.items()):
            sight = _sight(actor)
            if sight is not None:
                working[name] = sight
        self._seen, hung = supervising.after_look(self._seen, working, self._looks_max)
        for name in hung:
            self._tell(self._host.actors[name])

    def _tell(self, actor: ComponentActor) -> None:
        text = f"it has worked at one message for {self._seconds:g} seconds"
        self._host.log.error(
            "component hangs", name=actor.name, stack=_stack(actor.heartbeat.thread)
        )
        if actor.name == SUPERVISOR:
            self._shutdown.restart(f"component {SUPERVISOR} hangs: {text}")
            return
        hung = ComponentHung(component=actor.name, incarnation=actor.incarnation, text=text)
        self._host.directory.tell(SUPERVISOR, Envelope(hung))


def _sight(actor: ComponentActor) -> Sight | None:
    """What the component works at; None if it waits, or nobody waits for it."""
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
