"""Which changes of the configuration the log has, and ``config.data`` may lack. Pure.

Queue and configuration store read the same records by this one rule. A change counts if it follows
the one before it in the log. Segments repeat changes, so the same one may stand there twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from .records import ConfigChanged, ConfigWritten, EncodedChange

if TYPE_CHECKING:
    from .records import Record

Change = ConfigChanged | EncodedChange
"""As a start reads it, or as the configuration store has sent it."""


class LoggedChanges(msgspec.Struct):
    """The changes that a reader of the log has come upon so far."""

    changes: dict[int, Change] = {}
    """Those that ``config.data`` may lack, by their serial numbers, in the log's order."""

    newest: int | None = None
    """The serial number of the configuration after the last record; None: there was none."""

    written: int | None = None
    """``config.data`` has every change up to this serial number; None: that is unknown."""

    def note(self, record: Record | EncodedChange) -> None:
        """Take in the next record of the log."""
        match record:
            case ConfigChanged() | EncodedChange():
                self._change(record)
            case ConfigWritten():
                self._are_written(record)

    def _change(self, record: Change) -> None:
        if self.written is not None and record.serial <= self.written:
            return
        # A repeated one keeps its place.
        self.changes[record.serial] = record
        self.newest = max(record.serial, self.newest or 0)

    def _are_written(self, record: ConfigWritten) -> None:
        serial = record.serial
        if record.is_anew:
            self.changes.clear()
            self.newest = self.written = serial
            return
        for one in [one for one in self.changes if one <= serial]:
            del self.changes[one]
        self.written = max(serial, self.written or 0)
        self.newest = max(serial, self.newest or 0)
