"""Appends the changes of the configuration to the log, for the configuration store.

The store may live in another process, and may be replaced while its changes are on their way. So a
request says on which serial number its changes are based: those of a predecessor whose successor
does not know them are refused, and a repetition gets the reply of the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage.log.records import ConfigWritten, EncodedChange
from ...transport import messages

if TYPE_CHECKING:
    from ...storage import errors
    from ...transport.envelopes import Envelope
    from .ledger import Ledger


class ChangeLog:
    """Answers the configuration store."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        # Of the changes that wait for their flush; None: none do.
        self._waiting: int | None = None
        self._unsettled: list[Envelope] = []

    def store(self, envelope: Envelope, message: messages.StoreChanges) -> None:
        """Append the changes; the reply follows when they are durable."""
        following = enumerate(message.changes, message.base + 1)
        changes = [EncodedChange(serial, payload) for serial, payload in following]
        known = self._ledger.changes.newest if self._waiting is None else self._waiting
        if self._is_stored(changes):
            envelope.reply(messages.ChangesStored(position=self._ledger.position))
            return
        is_anew = known is not None and known != message.base
        if known is not None and is_anew and known > message.known:
            envelope.reply(messages.ChangesStored(position=None))
            return
        first = [ConfigWritten(message.base, is_anew=True)] if is_anew else []

        def stored(position: int) -> None:
            self._waiting = None
            envelope.reply(messages.ChangesStored(position=position))

        def failed(error: errors.GangerError) -> None:
            self._waiting = None
            envelope.refuse(error)

        self._waiting = changes[-1].serial
        self._ledger.store_changes([*first, *changes], stored, failed)

    def _is_stored(self, changes: list[EncodedChange]) -> bool:
        stored = self._ledger.changes.changes
        return all(one.is_same(stored.get(one.serial)) for one in changes)

    def note_written(self, message: messages.ConfigFilesWritten) -> None:
        """The files of the configuration have the changes up to this one."""
        self._ledger.note_written(message.serial)

    def await_settled(self, envelope: Envelope, _: messages.AwaitSettled) -> None:
        """Reply when no loss of power brings back what the log has refused."""
        self._unsettled.append(envelope)
        self.settle()

    def settle(self) -> None:
        """Tell whoever waits for the disk to work, if it does."""
        if self._ledger.is_read_only:
            return
        unsettled, self._unsettled = self._unsettled, []
        for envelope in unsettled:
            envelope.reply(messages.Done())
