"""The journal: what the queue has acknowledged, appended, checksummed and flushed in groups.

How it works. Records are collected by `append` and made durable together by `commit`: one
write, one flush, however many records. A segment is a file of records, each with its length
and checksum in front, and of zeros behind them; a torn tail is cut when it is read. When a
segment is full the next one begins; a full one is deleted (`cut`) once everything it holds is
durable in the job files.

A failed write or flush is never followed by more records in the same file: what it left
there is cut off, and the next commit begins a new segment. If even the cutting fails, it is
done before a new segment begins: a record that was not acknowledged is not acknowledged later.

After a failed flush of the file system the next one proves nothing: the kernel counts the
pages that it could not write as clean. So older segments are left lying (`has_older`), also for
a successor, until everything that they cover has been written anew and flushed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import struct
import zlib
from typing import TYPE_CHECKING

import msgspec

from .. import documents, errors, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HEAD = struct.Struct("<II")
_SUFFIX = ".journal"
_NAME = re.compile(r"([0-9]{8}|[1-9][0-9]{8,17})\.journal")
"""Just the names that a number leads to again: a file of any other is somebody else's."""


class SegmentBegun(msgspec.Struct, frozen=True, tag="begun", array_like=True):
    """First record of each segment: format version, and the last job id handed out so far."""

    version: int
    last_id: int


class JobsStored(msgspec.Struct, frozen=True, tag="stored", array_like=True):
    """A submission: (id, state serial, text of the job file) of each job, all or none."""

    jobs: list[tuple[int, int, bytes]]


class StateStored(msgspec.Struct, frozen=True, tag="state", array_like=True):
    """A job's whole new state, with its serial."""

    job_id: int
    serial: int
    body: bytes


class JobArchived(msgspec.Struct, frozen=True, tag="archived", array_like=True):
    """The job was moved to the archive: nothing older may bring its file back."""

    job_id: int


Record = SegmentBegun | JobsStored | StateStored | JobArchived

FORMAT_VERSION = 1

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


class Journal:
    """The journal in one directory. Not shared between threads: it has one writer."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._buffer: list[bytes] = []
        self._descriptor: int | None = None
        self._number = 0
        self._newest = ""
        self._is_synced = False
        self._size = 0
        self._reserved = 0
        self._spoilt: tuple[int, int] | None = None
        self._watched: int | None = None
        self.flushes = 0
        """How many flushes this journal has made, for measuring."""
        documents.make_directory(directory)

    def replay(self) -> Iterator[Record]:
        """Every whole record on disk, oldest first. A torn tail ends its segment."""
        for number in self._segments():
            path = self._path(number)
            for record, _ in _records(documents.read(path) or b"", path):
                yield record

    def segments(self) -> list[Path]:
        """The files of the journal, oldest first."""
        return [self._path(number) for number in self._segments()]

    def damaged(self) -> list[Path]:
        """Segments with whole records behind something that is none: a replay leaves them out."""
        found = []
        for path in self.segments():
            data = documents.read(path)
            left = None if data is None else tail(data, path)
            if left is not None and left.has_records:
                found.append(path)
        return found

    @property
    def has_older(self) -> bool:
        """Whether there are segments beside the newest: no `cut` has gone well since that began."""
        return len(self._segments()) > 1

    def begin(self, last_id: int) -> None:
        """Start a new segment; older ones stay until `cut`. One that fails leaves no file."""
        self._close()
        self._clean_spoilt()
        self._watch_file_system()
        numbers = self._segments()
        number = (numbers[-1] if numbers else 0) + 1
        path = self._path(number)
        with documents.storage_errors(path):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        self._number, self._descriptor = number, descriptor
        self._newest = os.fspath(path)
        self._size = self._reserved = 0
        try:
            with documents.storage_errors(self._directory):
                documents.flush_directory(self._directory)
        except errors.StorageError:
            self._undo()
            raise
        self.flushes += 1
        first = _packed(SegmentBegun(FORMAT_VERSION, last_id))
        self._buffer.insert(0, first)

    def mark(self, last_id: int) -> None:
        """Take nothing but the last id into the next commit: it tells whether the disk works."""
        self.append(SegmentBegun(FORMAT_VERSION, last_id))

    def append(self, record: Record) -> None:
        """Take ``record`` into the next commit."""
        self._buffer.append(_packed(record))

    @property
    def has_uncommitted(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self._buffer)

    @property
    def size(self) -> int:
        """Bytes of the records in the newest segment."""
        return self._size

    @property
    def is_full(self) -> bool:
        """Whether the next records should go into a new segment."""
        return self._size > settings.JOURNAL_SEGMENT_BYTES

    def commit(self, last_id: int) -> None:
        """Make everything appended durable, or raise `StorageError` and keep none of it."""
        if not self._buffer:
            return
        if self._descriptor is None:
            try:
                self.begin(last_id)
            except errors.StorageError:
                self._buffer.clear()
                raise
        assert self._descriptor is not None
        data = b"".join(self._buffer)
        self._buffer.clear()
        try:
            with documents.storage_errors(self._newest):
                self._write(self._descriptor, data)
                os.fdatasync(self._descriptor)
        except errors.StorageError:
            self._undo()
            raise
        self.flushes += 1
        self._size += len(data)

    def cut(self) -> None:
        """Delete every segment but the newest, after making the whole file system durable.

        The caller has written every job file that the older segments cover.
        """
        if (cut := self.prepare_cut()) is not None:
            cut.carry_out()
            self._is_synced = True

    def prepare_cut(self) -> Cut | None:
        """As `cut`, to be carried out by any thread; None: there is nothing to be done."""
        old = [self._path(number) for number in self._segments() if number < self._number]
        if not old and self._is_synced:
            return None
        self._watch_file_system()
        assert self._watched is not None
        with documents.storage_errors(self._directory):
            descriptor = os.dup(self._watched)
        self.flushes += 1
        return Cut(self._directory, descriptor, old)

    def close(self) -> None:
        """Close the segment. What was not committed is dropped: nobody was told of it."""
        self._buffer.clear()
        self._close()
        watched, self._watched = self._watched, None
        if watched is not None:
            os.close(watched)

    def _watch_file_system(self) -> None:
        """Keep a descriptor open: it is told of each error once, whoever else was told before."""
        if self._watched is None:
            with documents.storage_errors(self._directory):
                self._watched = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)

    def _write(self, descriptor: int, data: bytes) -> None:
        """Write behind the last record, into room that was filled with zeros before.

        A flush that need not make the file longer costs half as much on an idle disk.
        """
        documents.write_all_at(descriptor, data, self._size)
        end = self._size + len(data)
        if end > self._reserved:
            with contextlib.suppress(OSError):
                # A full disk may still have had room for the record itself.
                documents.write_all_at(descriptor, bytes(settings.JOURNAL_RESERVE_BYTES), end)
                self._reserved = end + settings.JOURNAL_RESERVE_BYTES

    def _undo(self) -> None:
        # What a failed commit left behind must not come back at a replay, since its
        # senders were told that it failed.
        descriptor, self._descriptor = self._descriptor, None
        assert descriptor is not None
        self._spoilt = (self._number, self._size)
        with contextlib.suppress(OSError):
            self._cut_off(descriptor, self._newest, self._size)
        os.close(descriptor)

    def _cut_off(self, descriptor: int, path: str, size: int) -> None:
        """Take what counts for nothing off a segment, or the segment if it has nothing else."""
        if size:
            os.ftruncate(descriptor, size)
            os.fdatasync(descriptor)
        else:
            os.unlink(path)
        self._spoilt = None

    def _clean_spoilt(self) -> None:
        """Do now what could not be done after a failure: else nothing new is begun."""
        if self._spoilt is None:
            return
        number, size = self._spoilt
        path = os.fspath(self._path(number))
        with documents.storage_errors(path):
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                self._cut_off(descriptor, path, size)
            finally:
                os.close(descriptor)

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _segments(self) -> list[int]:
        with documents.storage_errors(self._directory):
            names = os.listdir(self._directory)
        return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:08d}{_SUFFIX}"


class Cut:
    """The old segments of a journal, which may go when the file system has been flushed."""

    def __init__(self, directory: Path, descriptor: int, old: list[Path]) -> None:
        self._directory = directory
        self._descriptor = descriptor
        self._old = old

    def carry_out(self) -> None:
        """Flush, then delete; once. `StorageError` if either fails."""
        try:
            flush_file_system(self._directory, self._descriptor)
        finally:
            # One of its own: the journal may be closed meanwhile.
            os.close(self._descriptor)
        for path in self._old:
            with documents.storage_errors(path), contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def flush_file_system(path: Path, watched: int | None = None) -> None:
    """Make everything on the file system that holds ``path`` durable (syncfs).

    ``watched`` is a descriptor on it that was opened before what is to be flushed was written:
    of a write that failed meanwhile, a new one may not be told.
    """
    if watched is not None:
        _sync(path, watched)
        return
    with documents.storage_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _sync(path, descriptor)
    finally:
        os.close(descriptor)


def _sync(path: Path, descriptor: int) -> None:
    if _libc.syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise errors.StorageError(f"{path}: {os.strerror(number)}")


_libc = ctypes.CDLL(None, use_errno=True)


def _packed(record: Record) -> bytes:
    payload = _encode(record)
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


class Tail(msgspec.Struct, frozen=True):
    """What lies behind the last record of a segment that can be believed, other than zeros."""

    offset: int
    has_records: bool
    """Whether whole records are in it, behind something that is none."""


def tail(data: bytes, path: Path) -> Tail | None:
    """What a replay of this segment leaves out; None: it reads all of it."""
    end = max((after for _, after in _records(data, path)), default=0)
    if not data[end:].strip(b"\0"):
        return None
    heads = (match.start() - _HEAD.size for match in _PAYLOAD.finditer(data, end))
    return Tail(end, any(head >= end and _payload(data, head) is not None for head in heads))


_PAYLOAD = re.compile(rb"\x93\xa5begun|\x92\xa6stored|\x94\xa5state|\x92\xa8archived")
"""How the records of this format begin."""


def _records(data: bytes, path: Path) -> Iterator[tuple[Record, int]]:
    """Each record with the place behind it, up to the first that is not whole.

    `DataDirectoryError` for what was written whole, and by a later version.
    """
    offset = 0
    while payload := _payload(data, offset):
        offset += _HEAD.size + len(payload)
        try:
            record = _decode(payload)
        except msgspec.DecodeError as error:
            # A torn record has no right checksum: this one is as its writer wanted it.
            message = f"{path}: a record of an unknown kind; supported is format {FORMAT_VERSION}"
            raise errors.DataDirectoryError(message) from error
        if isinstance(record, SegmentBegun) and record.version > FORMAT_VERSION:
            message = f"{path}: journal format {record.version}, supported is {FORMAT_VERSION}"
            raise errors.DataDirectoryError(message)
        yield record, offset


def _payload(data: bytes, offset: int) -> bytes | None:
    """The payload of the record that begins here; None if there is no whole one."""
    if offset + _HEAD.size > len(data):
        return None
    length, checksum = _HEAD.unpack_from(data, offset)
    start = offset + _HEAD.size
    payload = data[start : start + length]
    # Zeros have the right checksum for nothing at all.
    return payload if 0 < len(payload) == length and zlib.crc32(payload) == checksum else None
