"""The journal: the log of queue and configuration on disk, with checksums, flushed in groups.

How it works. `append` collects records and gives each its position, and `write` makes them durable
together: one write and one flush for any number of records. `durable` is the position of the last
record that is so. A segment is a file of records, each behind its length and
checksum, and of zeros behind the last one; a replay ignores a torn tail. When a segment is full,
the journal begins the next one. `cut` deletes the older ones when the job files hold all their
states durably.

Behind the records lie zeros, of which the last `JOURNAL_LAST_BYTES` are for records that give space
back (`use_last_room`), and half of them for those after which that can be done
(`use_half_of_last_room`): to write over them takes no space of a full disk, and no other program
can have it. A write for which the disk has no room is taken back: the zeros are put there again, or
the segment that it would have begun is deleted, and the journal goes on where it was. On a disk
without room for another segment a start goes on in that of its predecessor (`adopt`).

After another failed write or flush the journal truncates the segment to the last good record, and
the next write begins a new segment. If the truncation fails too, it is repeated before a new
segment begins: a replay must never find a record that was reported as failed.

Another thread may make the next segment ahead (`make_ahead`), so that no turn of the queue waits
for the flush of its directory.

After a failed flush of the file system the next flush proves nothing: the kernel counts pages that
it could not write as clean. So older segments stay (`has_older`), also for a successor, until all
files that they cover have been written again and flushed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from typing import TYPE_CHECKING, NamedTuple

from .. import errors, settings
from ..disk import documents, reserve
from . import segments
from .cut import Cut, unchecked
from .records import FORMAT_VERSION, RECORDS, EncodedChange, SegmentBegun, StoredRecord
from .segment_ahead import SegmentAhead, is_blank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .cut import Check
    from .records import Record

_ALL_HALVES = 2
"""The halves of the last room, all of which a usual write leaves as they are."""

_ROOM_TIMES = 4
"""Zeros are written ahead only if this multiple of them is free."""


class _Place(NamedTuple):
    """A segment, and how far it has come."""

    number: int
    descriptor: int
    size: int
    reserved: int
    close: weakref.finalize[..., Journal]


class Journal:
    """The journal in one directory. One thread uses it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._buffer: list[bytes] = []
        self._position = 0
        self.durable = 0
        """The position of the last record that is durable."""

        self._descriptor: int | None = None
        self._number = 0
        self._newest = ""
        self._is_synced = False
        self._size = 0
        self._reserved = 0
        self._untruncated: tuple[int, int] | None = None
        self._watched: int | None = None
        self._ahead: SegmentAhead | None = None
        self._before: _Place | None = None
        self._kept_halves = _ALL_HALVES
        self.flushes = 0
        """The number of flushes, for measurements."""
        documents.make_directory(directory)

    def replay(self) -> Iterator[Record]:
        """Every record of the queue's journal that counts, oldest first."""
        return segments.replay(self._directory, RECORDS)

    def segments(self) -> list[Path]:
        """The files of the journal, oldest first."""
        return segments.paths(self._directory)

    @property
    def has_older(self) -> bool:
        """Whether there are older segments: no `cut` has succeeded since the newest began."""
        if self._number:
            return any(number < self._number for number in self._segments())
        # Of a predecessor. A segment that it made ahead holds nothing.
        return sum(not is_blank(path) for path in self.segments()) > 1

    def begin(self, last_id: int) -> None:
        """Begin a new segment; older ones stay until `cut`. A failure leaves no file."""
        self.take_out_refused()
        self._watch_file_system()
        self._forget_before()
        if self._descriptor is not None:
            # Until the new one has a record, this one may be gone back to.
            self._before = _Place(
                self._number, self._descriptor, self._size, self._reserved, self._close_segment
            )
        ahead, self._ahead = self._ahead, None
        try:
            if ahead is not None and (descriptor := ahead.take()) is not None:
                self._open(ahead.number, descriptor, ahead.size)
            else:
                self._make_segment(0 if ahead is None else ahead.number)
        except errors.StorageError as error:
            self._go_back(error)
            raise
        first = SegmentBegun(FORMAT_VERSION, last_id, self.durable + 1)
        self._buffer.insert(0, RECORDS.packed(first))

    @property
    def is_open(self) -> bool:
        """Whether there is a segment to append to: no write or flush of it has failed."""
        return self._descriptor is not None

    def use_last_room(self) -> None:
        """The records of the next write give space back: on a full disk they have the last room."""
        self._kept_halves = 0

    def use_half_of_last_room(self, record: Record) -> bool:
        """As `use_last_room`, for a record after which space can be given back; whether it fits.

        It fits if it leaves half of the last room to those that give space back themselves.
        """
        if not self.has_half_of_last_room(len(RECORDS.packed(record))):
            return False
        self._kept_halves = min(self._kept_halves, 1)
        return True

    def has_half_of_last_room(self, size: int) -> bool:
        """Whether records of this size leave half of the last room, with those that wait."""
        appended = sum(map(len, self._buffer)) + size
        is_open = self._descriptor is not None
        return is_open and self._size + appended + _kept_bytes(1) <= self._reserved

    def adopt(self) -> None:
        """Go on in the last segment, of a predecessor say. `StorageError` if that cannot be.

        Its records are written again, in their place: what can be read need not be on the disk.
        """
        self.take_out_refused()
        self._watch_file_system()
        path = self.segments()[-1]
        data = documents.read(path) or b""
        content = RECORDS.content(data, path)
        if content.tail is not None and content.tail.has_records:
            raise errors.StorageError(f"{path}: there are records behind a damaged one")
        end = max([0, *(end for _, end in RECORDS.records_in(data, path))])
        with documents.storage_errors(path):
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                documents.write_all_at(descriptor, data[:end] + bytes(len(data) - end), 0)
                os.fdatasync(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
        self._open(segments.numbers(self._directory)[-1], descriptor, len(data))
        self._size = end

    def leave_doubt(self) -> None:
        """Begin a segment, so that a successor writes anew what the older ones cover.

        It is not flushed: that is what has just failed.
        """
        self.begin(0)
        assert self._descriptor is not None
        with documents.storage_errors(self._newest):
            # Without a record it would count as one that was made ahead.
            documents.write_all_at(self._descriptor, b"".join(self._buffer), 0)
        self.close()

    def make_ahead(self) -> SegmentAhead | None:
        """The next segment, for another thread to make; None if it is too early, or was tried.

        `StorageError` if the directory cannot be read.
        """
        # Most daemons never need another one.
        is_early = self._size <= settings.JOURNAL_SEGMENT_BYTES // 2
        size = settings.JOURNAL_SEGMENT_BYTES + settings.JOURNAL_RESERVE_BYTES
        if is_early or self._ahead is not None or self._descriptor is None:
            return None
        if not self._has_room_for(size):
            return None
        number = max([self._number, *self._segments()]) + 1
        self._ahead = SegmentAhead(self._path(number), number, size)
        return self._ahead

    def give_up_ahead(self) -> None:
        """Free the room that the segment made ahead takes, if there is one; make no other now."""
        if self._ahead is not None:
            self._ahead.give_up()

    def _make_segment(self, used: int) -> None:
        """``used``: a number that is not to be used, whether it has a file now or not."""
        number = max([used, *self._segments()]) + 1
        while (descriptor := self._create(number)) is None:
            number += 1
        self._open(number, descriptor, 0)
        try:
            with documents.storage_errors(self._directory):
                documents.flush_directory(self._directory)
        except errors.StorageError:
            self._abandon_segment()
            raise
        self.flushes += 1

    def _create(self, number: int) -> int | None:
        """The descriptor of a new file; None if a replaced queue has just made it ahead."""
        path = self._path(number)
        with documents.storage_errors(path):
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                return os.open(path, flags, documents.FILE_MODE)
            except FileExistsError:
                return None

    def _open(self, number: int, descriptor: int, zeros: int) -> None:
        self._number, self._descriptor = number, descriptor
        # A journal without a `close` belongs to a component that hangs, or to a test.
        self._close_segment = weakref.finalize(self, os.close, descriptor)
        self._newest = os.fspath(self._path(number))
        self._size, self._reserved = 0, zeros

    def append_last_id(self, last_id: int) -> None:
        """Append the last id alone: the next `write` tests whether the disk works."""
        first = SegmentBegun(FORMAT_VERSION, last_id, self._position + 1)
        self._buffer.append(RECORDS.packed(first))

    def append(self, record: Record | EncodedChange | StoredRecord) -> int:
        """Append a record; its position, which `durable` reaches when the disk has it."""
        if isinstance(record, (StoredRecord, EncodedChange)):
            self._buffer += record.packed()
        else:
            self._buffer.append(RECORDS.packed(record))
        self._position += 1
        return self._position

    @property
    def position(self) -> int:
        """The position of the last record that was appended."""
        return self._position

    def go_on_from(self, position: int) -> None:
        """Begin behind the last record that a predecessor has left, which has this position."""
        self._position = self.durable = position

    @property
    def size(self) -> int:
        """Bytes of the records in the newest segment."""
        return self._size

    @property
    def is_full(self) -> bool:
        """Whether the next records should go into a new segment."""
        return self._size > settings.JOURNAL_SEGMENT_BYTES

    def write(self, last_id: int, meanwhile: Callable[[], None] | None = None) -> None:
        """Make all appended records durable, or drop them and raise `StorageError`.

        `OutcomeUnknownError`: a loss of power may bring them back, until a later write succeeds.
        ``meanwhile`` is called while the disk writes them, if it has taken them so far.
        """
        if not self._buffer:
            return
        if self._descriptor is None:
            try:
                self.begin(last_id)
            except errors.StorageError:
                self._drop()
                raise
        assert self._descriptor is not None
        data, self._buffer, position = self._buffer, [], self._position
        is_whole = False
        try:
            with documents.storage_errors(self._newest):
                end = self._write(self._descriptor, data)
                is_whole = True
                if meanwhile is not None:
                    _start_writing(self._descriptor, self._size, end - self._size)
                    meanwhile()
                os.fdatasync(self._descriptor)
        except errors.StorageError as error:
            self._drop()
            if is_whole or not reserve.is_full(error) or not self._take_back():
                self._abandon_segment()
                self._go_back(error)
            if self._untruncated is None:
                raise
            raise errors.OutcomeUnknownError.of(error) from error
        self._forget_before()
        self._kept_halves = _ALL_HALVES
        self.flushes += 1
        self._size = end
        self.durable = position

    def _drop(self) -> None:
        """Forget what was appended and is not durable: the next records take these positions."""
        self._buffer.clear()
        self._position = self.durable
        self._kept_halves = _ALL_HALVES

    def cut(self, check: Check = unchecked) -> None:
        """Flush the whole file system, then delete every segment but the newest.

        The caller has written every job file that the older segments cover; ``check`` says whether
        the disk has them.
        """
        if (cut := self.prepare_cut(check)) is not None:
            cut.carry_out()
            self._is_synced = True

    def prepare_cut(self, check: Check = unchecked) -> Cut | None:
        """As `cut`, for any thread to carry out; None if there is nothing to do."""
        old = [self._path(number) for number in self._segments() if number < self._number]
        if not old and self._is_synced:
            return None
        self._watch_file_system()
        assert self._watched is not None
        with documents.storage_errors(self._directory):
            descriptor = os.dup(self._watched)
        self.flushes += 1
        return Cut(self._directory, descriptor, old, check)

    def close(self) -> None:
        """Close the segment, and drop records that were not written, nor acknowledged."""
        self._drop()
        self.give_up_ahead()
        self._close()
        watched, self._watched = self._watched, None
        if watched is not None:
            self._close_watched()

    def _watch_file_system(self) -> None:
        """Keep a descriptor open: the kernel reports each write error once per open descriptor."""
        if self._watched is None:
            with documents.storage_errors(self._directory):
                self._watched = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
            self._close_watched = weakref.finalize(self, os.close, self._watched)

    def _write(self, descriptor: int, data: list[bytes]) -> int:
        """Write behind the last record, over zeros that were written before; returns the end.

        A flush that does not extend the file costs half as much on an idle disk.
        """
        end = documents.write_parts_at(descriptor, data, self._size)
        if end + _kept_bytes(self._kept_halves) > self._reserved:
            self._write_zeros(descriptor, end)
        return end

    def _write_zeros(self, descriptor: int, end: int) -> None:
        """Write zeros behind the records, which end here: many, or those that must be."""
        start = max(end, self._reserved)
        last = _kept_bytes(_ALL_HALVES)
        sizes = settings.JOURNAL_RESERVE_BYTES, 2 * last
        ahead = next(filter(self._has_room_for, sizes), last)
        size = end + ahead - start
        try:
            documents.write_all_at(descriptor, bytes(size), start)
        except OSError:
            # If the disk is full now, it had room for the records themselves.
            if self._kept_halves:
                raise
        else:
            self._reserved = start + size

    def _take_back(self) -> bool:
        """Put the segment back to where it was before a write that the disk had no room for.

        Whether that went well; not if the segment would have had its first record.
        """
        descriptor, reserved = self._descriptor, max(self._size, self._reserved)
        assert descriptor is not None
        if not self._size:
            return False
        try:
            documents.write_all_at(descriptor, bytes(reserved - self._size), self._size)
            os.ftruncate(descriptor, reserved)
            os.fdatasync(descriptor)
        except OSError:
            return False
        return True

    def _go_back(self, error: errors.StorageError) -> None:
        """After a segment was begun in vain, because the disk is full: use the one before it."""
        before, self._before = self._before, None
        if before is None:
            return
        if self._untruncated is None and reserve.is_full(error):
            self._number, self._descriptor, self._size, self._reserved, self._close_segment = before
            self._newest = os.fspath(self._path(self._number))
        else:
            self._descriptor = None
            before.close()

    def _forget_before(self) -> None:
        before, self._before = self._before, None
        if before is not None:
            before.close()

    def _has_room_for(self, size: int) -> bool:
        """Whether so many zeros take no space that is needed, on a small or full disk."""
        try:
            return reserve.space_at(self._directory).free > _ROOM_TIMES * size
        except errors.StorageError:
            return False

    def _abandon_segment(self) -> None:
        # A replay must not find the records of a failed write: their senders got an error.
        descriptor, self._descriptor = self._descriptor, None
        assert descriptor is not None
        self._untruncated = (self._number, self._size)
        with contextlib.suppress(OSError):
            self._truncate(self._newest, self._size, descriptor)
        self._close_segment()

    def _truncate(self, path: str, size: int, descriptor: int) -> None:
        """Truncate a segment to its good records; delete it if it has none. Both durably."""
        if size:
            os.ftruncate(descriptor, size)
            os.fdatasync(descriptor)
        else:
            os.unlink(path)
            documents.flush_directory(self._directory)
        self._untruncated = None

    def take_out_refused(self) -> None:
        """Truncate a segment for which that failed before; no new one begins until it succeeds.

        Then no loss of power brings back what `write` has refused. `StorageError` if it fails.
        """
        if self._untruncated is None:
            return
        number, size = self._untruncated
        path = os.fspath(self._path(number))
        with documents.storage_errors(path):
            # It may have been deleted, and the flush of its name have failed.
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | (0 if size else os.O_CREAT))
            try:
                self._truncate(path, size, descriptor)
            finally:
                os.close(descriptor)

    def _close(self) -> None:
        self._forget_before()
        if self._descriptor is not None:
            self._descriptor = None
            self._close_segment()

    def _segments(self) -> list[int]:
        return segments.numbers(self._directory)

    def _path(self, number: int) -> Path:
        return segments.path_of(self._directory, number)


def _kept_bytes(halves: int) -> int:
    """The bytes of so many halves of the last room."""
    last = min(settings.JOURNAL_LAST_BYTES, settings.JOURNAL_RESERVE_BYTES)
    return last * halves // _ALL_HALVES


_SYNC_FILE_RANGE_WRITE = 2
_sync_file_range = ctypes.CDLL(None).sync_file_range
_sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def _start_writing(descriptor: int, offset: int, size: int) -> None:
    """Have the disk begin to write these bytes: the flush that follows waits for less.

    It makes nothing durable, and its errors are those of the flush.
    """
    _sync_file_range(descriptor, offset, size, _SYNC_FILE_RANGE_WRITE)
