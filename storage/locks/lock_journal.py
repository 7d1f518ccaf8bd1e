"""The state of locks on disk: ``locks.data``, and a journal of the changes since it was written.

How it works. ``locks.data`` has Ganeti's form and holds the whole state. Behind it,
``locks.journal`` gets one record for each turn of the lock manager: what became of the owners
that the turn changed. So a change costs what changed, however many locks are held. When the journal
has outgrown ``locks.data``, both begin again.

The first record of a journal has the checksum of the ``locks.data`` on which it stands. Another
``locks.data`` is newer: its writer died before it began the journal, and the old records are in it.

Neither file is flushed (docs/decisions/locks-without-flush.md). A torn end of the journal was
never announced, unless the machine was lost; after that no owner lives.
"""

from __future__ import annotations

import contextlib
import os
import weakref
import zlib
from typing import TYPE_CHECKING

import msgspec

from .. import errors, settings
from ..disk import documents
from ..log.checked_records import RecordFormat
from .locks import (
    LockMode,
    LocksFile,
    Owner,
    OwnerChanged,
    OwnerLocks,
    Pending,
    check_name,
    decode_locks,
    encode_locks,
    sort_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..disk.paths import Places

Since = dict[Owner, dict[str, float]]
"""Since when each owner has held each lock in its present mode: seconds since the epoch."""

Fenced = dict[Owner, float]
"""The owners that lost their locks for good, and when: seconds since the epoch."""

FORMAT_VERSION = 1

_JOURNAL = "locks.journal"


class LocksWritten(msgspec.Struct, frozen=True, tag="written", array_like=True):
    """First record: the ``locks.data`` with this checksum was written."""

    version: int
    checksum: int
    since: list[tuple[Owner, dict[str, float]]]
    fenced: list[tuple[Owner, float]]


class TurnStored(msgspec.Struct, frozen=True, tag="turn", array_like=True):
    """The changes of one turn, at this time of day, waiting owners in the order of their line.

    ``fenced``: owners that lost their locks for good, because no process held their lock files.
    """

    time: float
    owners: list[OwnerChanged]
    fenced: list[Owner] = []


RECORDS: RecordFormat[LocksWritten | TurnStored] = RecordFormat(
    LocksWritten | TurnStored, "lock", FORMAT_VERSION, errors.StorageError
)
"""The records of the journal. What is no such record counts as damage, as in ``locks.data``."""


class StoredLocks(msgspec.Struct):
    """What the files say. ``since`` lacks locks of which no journal tells."""

    file: LocksFile = LocksFile()
    since: Since = {}
    fenced: Fenced = {}


def read(places: Places) -> StoredLocks:
    """The state that both files hold together; `StorageError` if it cannot be read."""
    return decode(*read_files(places))


def read_files(places: Places) -> tuple[bytes | None, bytes | None]:
    """The contents of ``locks.data`` and of the journal; None: there is no such file."""
    return documents.read(places.locks), documents.read(places.lock_journal)


def decode(data: bytes | None, journal: bytes | None) -> StoredLocks:
    """The state in these contents; `StorageError` if ``locks.data`` or a record is malformed."""
    stored = StoredLocks(LocksFile() if data is None else decode_locks(data))
    records = (record for record, _ in RECORDS.records_in(journal or b"", _JOURNAL))
    first = next(records, None)
    if isinstance(first, LocksWritten) and first.checksum == _checksum(data):
        stored.since = {owner: dict(since) for owner, since in first.since}
        stored.fenced = dict(first.fenced)
        replay(stored, (one for one in records if isinstance(one, TurnStored)))
    return stored


def replay(stored: StoredLocks, turns: Iterable[TurnStored]) -> None:
    """Apply the turns, oldest first."""
    held = {one.owner: dict(one.locks) for one in stored.file.allocation}
    lines: dict[int, list[Pending]] = {}
    waiting: dict[Owner, int] = {}
    for pending in stored.file.pending:
        lines.setdefault(pending.priority, []).append(pending)
        waiting[pending.owner] = pending.priority
    for turn in turns:
        for one in turn.owners:
            if (priority := waiting.pop(one.owner, None)) is not None:
                lines[priority] = [other for other in lines[priority] if other.owner != one.owner]
        note_times(stored.since, turn)
        for one in turn.owners:
            _change_locks(held, one)
            if one.pending is not None:
                priority, changes = one.pending
                waiting[one.owner] = priority
                line = lines.setdefault(priority, [])
                places = [other.owner for other in line]
                place = 0 if one.behind is None else places.index(one.behind) + 1
                line.insert(place, Pending(priority, one.owner, changes))
        stored.fenced |= dict.fromkeys(turn.fenced, turn.time)
    stored.file = LocksFile(
        tuple(_holding(owner, held[owner]) for owner in sorted(held)),
        tuple(pending for priority in sorted(lines) for pending in lines[priority]),
    )


def note_times(since: Since, turn: TurnStored) -> None:
    """Keep the time of the turn for each lock that it granted."""
    for one in turn.owners:
        times = since.setdefault(one.owner, {})
        for lock, mode in one.locks.items():
            if mode is None:
                times.pop(lock, None)
            else:
                times[lock] = turn.time
        if not times:
            del since[one.owner]


def _change_locks(held: dict[Owner, dict[str, LockMode]], one: OwnerChanged) -> None:
    locks = held.setdefault(one.owner, {})
    for lock, mode in one.locks.items():
        if mode is None:
            locks.pop(lock, None)
        else:
            check_name(lock)
            locks[lock] = mode
    if not locks:
        del held[one.owner]


def _holding(owner: Owner, locks: dict[str, LockMode]) -> OwnerLocks:
    return OwnerLocks(owner, tuple((lock, locks[lock]) for lock in sorted(locks, key=sort_key)))


class LockJournal:
    """Writes both files. One thread uses it."""

    def __init__(self, places: Places) -> None:
        self._locks, self._path = places.locks, places.lock_journal
        self._descriptor: int | None = None
        self._size = self._size_max = 0

    @property
    def is_due(self) -> bool:
        """Whether the whole state must be written before the next turn."""
        return self._descriptor is None or self._size > self._size_max

    def begin(self, file: LocksFile, since: Since, fenced: Fenced) -> None:
        """Write the whole state, and begin a new journal. `StorageError`: repeat it."""
        self.close()
        data = encode_locks(file)
        documents.replace(self._locks, data, flush=False, mode=documents.SECRET_MODE)
        known = [(owner, times) for owner, times in since.items()]
        first = RECORDS.packed(
            LocksWritten(FORMAT_VERSION, _checksum(data), known, [*fenced.items()])
        )
        documents.replace(self._path, first, flush=False, mode=documents.SECRET_MODE)
        with documents.storage_errors(self._path):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        self._descriptor = descriptor
        # A journal without a `close` belongs to a component that hangs, or to a test.
        self._close_file = weakref.finalize(self, os.close, descriptor)
        self._size = len(first)
        self._size_max = settings.LOCK_JOURNAL_BYTES + 2 * (len(first) + len(data))

    def append(self, turn: TurnStored) -> None:
        """Add one turn. `StorageError`: the turn is not stored, and the next write is a `begin`."""
        assert self._descriptor is not None
        record = RECORDS.packed(turn)
        try:
            with documents.storage_errors(self._path):
                documents.write_all_at(self._descriptor, record, self._size)
        except errors.StorageError:
            # A reader must not find half a record with a later one behind it; `begin` replaces
            # the file.
            self.close()
            raise
        self._size += len(record)

    def close(self) -> None:
        """Close the journal; the files stay as they are."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                self._close_file()


def _checksum(data: bytes | None) -> int:
    return zlib.crc32(data or b"")
