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


class _Batch:
    """Changes that wait for their flush, and who is told then."""

    def __init__(self, message: messages.StoreChanges, newest: int, envelope: Envelope) -> None:
        self._message = message
        self.newest = newest
        """The serial number of the configuration after them."""

        self.envelopes = [envelope]

    def take_repetition(self, envelope: Envelope, message: messages.StoreChanges) -> bool:
        """Whether the request is this one once more; then it gets the same reply."""
        is_same = message == self._message
        if is_same:
            self.envelopes.append(envelope)
        return is_same


class ChangeLog:
    """Answers the configuration store."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._under_way: list[_Batch] = []
        """What waits for its flush."""

        self._unsettled: list[Envelope] = []

    def store(self, envelope: Envelope, message: messages.StoreChanges) -> None:
        """Append the changes; the reply follows when they are durable."""
        following = enumerate(message.changes, message.base + 1)
        changes = [EncodedChange(serial, payload) for serial, payload in following]
        if any(batch.take_repetition(envelope, message) for batch in self._under_way):
            return
        if self._is_stored(changes):
            envelope.reply(messages.ChangesStored(position=self._ledger.position))
            return
        known = self._ledger.segments.changes.newest
        if self._under_way:
            known = self._under_way[-1].newest
        is_anew = known is not None and known != message.base
        if known is not None and is_anew and known > message.known:
            envelope.reply(messages.ChangesStored(position=None))
            return
        first = [ConfigWritten(message.base, is_anew=True)] if is_anew else []
        batch = _Batch(message, changes[-1].serial, envelope)

        def stored(position: int) -> None:
            self._under_way.remove(batch)
            for one in batch.envelopes:
                one.reply(messages.ChangesStored(position=position))

        def failed(error: errors.GangerError) -> None:
            self._under_way.remove(batch)
            for one in batch.envelopes:
                one.refuse(error)

        self._under_way.append(batch)
        self._ledger.store_changes([*first, *changes], stored, failed)

    def _is_stored(self, changes: list[EncodedChange]) -> bool:
        stored = self._ledger.segments.changes.changes
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
