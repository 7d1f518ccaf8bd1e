"""Ganeti's part of the configuration store: opcodes, WConfD's methods, and the ssconf files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from ...storage.ganeti.operations import table
from ...transport import messages
from ..config.installed_parts import ConfigPart, PartContext, Written
from . import wconfd_table
from .reservation_keeper import ReservationKeeper
from .ssconf_files import SsconfFiles
from .wconfd_catalogue import Catalogue

if TYPE_CHECKING:
    from ...storage.cluster.configuration import Change, Configuration
    from ...transport.envelopes import Envelope

_OwnNotice = messages.SsconfDue | messages.SsconfWritten | messages.SweepReservations


class GanetiPart(ConfigPart):
    """The part of the configuration store for Ganeti's programs."""

    operations = table.OPERATIONS
    takes = get_args(wconfd_table.CallMessage | _OwnNotice)

    def __init__(self, context: PartContext) -> None:
        super().__init__(context)
        runtime, configuration, changes, store = context
        folder = runtime.host.places.ssconf
        self._ssconf = SsconfFiles(runtime, folder, lambda: configuration.snapshot)
        self._reservations = ReservationKeeper(runtime, configuration, changes)
        self._catalogue = Catalogue(runtime, configuration, changes, self._reservations, store)

    def begin(self) -> None:
        self._ssconf.begin()

    def note(self, before: Configuration, after: Configuration, changes: Sequence[Change]) -> None:
        self._ssconf.note(before, after, changes)

    def take(self, envelope: Envelope, message: wconfd_table.CallMessage | _OwnNotice) -> None:
        match message:
            case messages.SsconfDue():
                self._ssconf.write_due()
            case messages.SsconfWritten():
                self._ssconf.note_written(message)
            case messages.SweepReservations():
                self._reservations.sweep()
            case _:
                wconfd_table.serve(self._catalogue, envelope, message)

    def turn_ended(self) -> None:
        """Store the reservations of the turn, and tell."""
        self._reservations.turn_ended()

    def when_written(self, done: Written) -> None:
        self._ssconf.when_written(done)

    def close(self) -> None:
        self._ssconf.close()
