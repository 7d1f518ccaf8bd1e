"""Ganeti's part of the configuration store: opcodes, WConfD's methods, and the ssconf files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from ...storage.ganeti import watcher_pause
from ...transport import messages
from ..config.installed_parts import ConfigPart, PartContext, Written
from . import notices, wconfd_table
from .cluster_queries import ClusterQueries
from .opcode_runs import OpcodeMessage, OpcodeRuns
from .reservation_keeper import ReservationKeeper
from .ssconf_files import SsconfFiles
from .wconfd_catalogue import Catalogue

if TYPE_CHECKING:
    from ...storage.cluster.configuration import Change, Configuration
    from ...transport.envelopes import Envelope

_OwnNotice = (
    notices.SsconfDue
    | notices.SsconfWritten
    | notices.SweepReservations
    | notices.HostMeasured
    | notices.HostOverdue
)
_Taken = (
    wconfd_table.CallMessage
    | messages.DescribeCluster
    | messages.RunQuery
    | messages.QueryConfiguration
    | messages.QueryFields
    | messages.SetWatcherPause
    | OpcodeMessage
    | _OwnNotice
)


class GanetiPart(ConfigPart):
    """The part of the configuration store for Ganeti's programs."""

    takes = get_args(_Taken)

    def __init__(self, context: PartContext) -> None:
        super().__init__(context)
        runtime, configuration, changes, store = context
        self._queries = ClusterQueries(context)
        self._opcodes = OpcodeRuns(context, self._queries.known)
        folder = runtime.host.places.ssconf
        self._ssconf = SsconfFiles(runtime, folder, lambda: configuration.snapshot)
        self._reservations = ReservationKeeper(runtime, configuration, changes)
        self._catalogue = Catalogue(runtime, configuration, changes, self._reservations, store)

    def begin(self) -> None:
        self._ssconf.begin()

    def note(self, before: Configuration, after: Configuration, changes: Sequence[Change]) -> None:
        self._ssconf.note(before, after, changes)

    def take(self, envelope: Envelope, message: _Taken) -> None:
        match message:
            case messages.DescribeCluster():
                self._queries.describe(envelope)
            case messages.QueryConfiguration() | messages.QueryFields():
                self._queries.answer(envelope, message)
            case messages.SetWatcherPause():
                self._pause_watcher(envelope, message)
            case messages.RunQuery():
                self._queries.run(envelope, message)
            case _ if isinstance(message, _OwnNotice):
                self._take_notice(message)
            case _ if isinstance(message, OpcodeMessage):
                self._opcodes.take(envelope, message)
            case _:
                wconfd_table.serve(self._catalogue, envelope, message)

    def _take_notice(self, message: _OwnNotice) -> None:
        match message:
            case notices.SsconfDue():
                self._ssconf.write_due()
            case notices.SsconfWritten():
                self._ssconf.note_written(message)
            case notices.SweepReservations():
                self._reservations.sweep()
            case notices.HostMeasured():
                self._queries.own_host.note_measured(message)
            case notices.HostOverdue():
                self._queries.own_host.note_overdue(message)

    def _pause_watcher(self, envelope: Envelope, message: messages.SetWatcherPause) -> None:
        runtime = self._context.runtime
        watcher_pause.write(runtime.host.places.data / watcher_pause.NAME, message.until)
        runtime.log.info("the watcher's pause is set", until=message.until, sender=message.sender)
        envelope.reply(messages.Done())

    def turn_ended(self) -> None:
        """Store the reservations of the turn, and tell."""
        self._reservations.turn_ended()

    def when_written(self, done: Written) -> None:
        self._ssconf.when_written(done)

    def close(self) -> None:
        self._ssconf.close()
