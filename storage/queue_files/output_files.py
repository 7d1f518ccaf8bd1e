"""The file with a job's output: creates it with the first output, appends to it, reads pages.

`output_blocks` defines its content, `spool` its name and place.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from .. import errors
from ..disk import documents, reserve
from . import job_files, output_blocks, spool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..disk.paths import Places
    from .output_blocks import Segment

_SCAN_BYTES = 4 * output_blocks.STORED_BYTES_MAX
_MARK_BYTES_MAX = 64
"""A block with a mark alone has no more."""


class OutputFile:
    """One file of output; nothing is made on disk before the first `append`."""

    def __init__(self, path: str, refusal: Callable[[], str] = lambda: "") -> None:
        """``refusal`` says why no output is to be stored now, if so."""
        self._path = path
        self._refusal = refusal
        self._descriptor = -1
        self._end = 0
        self._packer = output_blocks.Packer()
        self._is_new = False
        self._flushed = 0
        self._is_doubtful = False
        self._before = 0
        self.has_unflushed = False
        """Whether a power loss could take a block that was appended."""

    @property
    def end(self) -> int:
        """The size of the file in bytes."""
        return self._end

    def bytes_before(self) -> int:
        """The output that earlier processes of the job have stored, before compression."""
        with documents.storage_errors(self._path):
            if self._descriptor < 0 and os.path.lexists(self._path):
                self._open()
        return self._before

    def append(self, op_index: int, segments: Sequence[Segment]) -> None:
        """Append a block; after a `StorageError` the file is as it was.

        `DiskFullError`: the disk has no room for output.
        """
        self._append(op_index, segments, has_room=False)

    def append_mark(self, op_index: int, missing: int) -> None:
        """Append how many bytes are not stored: a few bytes, for which there may be room."""
        mark = output_blocks.Segment(output_blocks.NOT_STORED, missing=missing)
        self._append(op_index, [mark], has_room=True)

    def _append(self, op_index: int, segments: Sequence[Segment], *, has_room: bool) -> None:
        with documents.storage_errors(self._path):
            if self._descriptor < 0:
                self._open()
            block = self._packer.pack(op_index, segments, self._end)
            if not has_room:
                if refusal := self._refusal():
                    raise errors.DiskFullError(refusal)
                reserve.check_room(os.path.dirname(self._path), len(block))
            try:
                documents.write_all_at(self._descriptor, block, self._end)
            except OSError:
                # A part of a block is no block, and the next append overwrites it.
                with contextlib.suppress(OSError):
                    os.ftruncate(self._descriptor, self._end)
                raise
            self._end += len(block)
            self.has_unflushed = True

    def flush(self) -> None:
        """Make the appended blocks durable; `StorageError` if the disk refuses.

        The kernel counts pages that it could not write as clean. So a flush after a failed one
        first writes the blocks again, into another file (`inodes`).
        """
        if not self.has_unflushed:
            return
        with documents.storage_errors(self._path):
            if self._is_doubtful:
                self._write_again()
            self._is_doubtful = True
            os.fdatasync(self._descriptor)
            self._is_doubtful = False
            self._flushed = self._end
            if self._is_new:
                documents.flush_directory(os.path.dirname(self._path))
                self._is_new = False
        self.has_unflushed = False

    def close(self) -> None:
        """Close the file. Twice is harmless."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path, flags, documents.FILE_MODE)
        except FileNotFoundError:
            # The daemon made the folder at its start, and it was deleted since.
            spool.make_folder(os.path.dirname(self._path))
            descriptor = os.open(self._path, flags, documents.FILE_MODE)
        try:
            size = os.fstat(descriptor).st_size
            end = 0
            if size:
                # An earlier process of the job wrote it, before the job went back to the queue.
                end, self._before = _end_of_blocks(descriptor, size)
                os.ftruncate(descriptor, end)
        except BaseException:
            os.close(descriptor)
            raise
        self._is_new = not size
        self._descriptor, self._end, self._flushed = descriptor, end, end

    def _write_again(self) -> None:
        """Replace the file by a copy.

        What was not flushed is read from pages that are not on the disk. If they have left the
        memory meanwhile, nobody has these blocks, and a reader finds a gap there.
        """
        folder, name = os.path.split(self._path)
        start = f"{folder}/{documents.TEMPORARY_PREFIX}{name}"
        temporary, descriptor = documents.make_temporary(start, documents.FILE_MODE)
        try:
            for place in range(0, self._end, _SCAN_BYTES):
                size = min(_SCAN_BYTES, self._end - place)
                documents.write_all_at(descriptor, os.pread(self._descriptor, size, place), place)
            os.fdatasync(descriptor)
            os.rename(temporary, self._path)
        except BaseException:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        os.close(self._descriptor)
        self._descriptor, self._is_new = descriptor, True


def _end_of_blocks(descriptor: int, size: int) -> tuple[int, int]:
    """The end of the last whole block, and the bytes of output in all of them."""
    place = end = stored = 0
    while place < size:
        data = os.pread(descriptor, _SCAN_BYTES, place)
        found = output_blocks.find_blocks(data, place)
        stored += sum(block.output_bytes() for block in found.blocks)
        if found.blocks:
            place = end = found.end
        elif len(data) > output_blocks.STORED_BYTES_MAX:
            # All of it is damaged. A block may begin in its last part and end behind it.
            place += len(data) - output_blocks.STORED_BYTES_MAX
        else:
            break
    return end, stored


def read_page(places: Places, job_id: int, offset: int, count: int) -> tuple[bytes, int]:
    """Up to ``count`` bytes of a job's output file, live or archived, and the size of the file.

    Empty for a job without output. `StorageError` if the file cannot be read.
    """
    live = spool.output_path(places.queue, job_id)
    archived = spool.output_path(job_files.archive_folder(places.archive, job_id), job_id)
    # The file may move into the archive between two attempts.
    for path in (live, archived, live):
        with documents.storage_errors(path):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except FileNotFoundError:
                continue
            try:
                size = os.fstat(descriptor).st_size
                return os.pread(descriptor, count, offset) if offset < size else b"", size
            finally:
                os.close(descriptor)
    return b"", 0


def leave_mark(path: str) -> bool:
    """Free what a file of output takes, but for a mark in its place; False: that is not possible.

    The mark goes over the first block of the disk, so that it needs no other one.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            missing = os.fstat(descriptor).st_size
            segment = output_blocks.Segment(output_blocks.REMOVED, missing=missing)
            mark = output_blocks.Packer().pack(0, [segment], 0)
            documents.write_all_at(descriptor, mark, 0)
            os.ftruncate(descriptor, len(mark))
        finally:
            os.close(descriptor)
        return True
    return False


def is_removed(places: Places, job_id: int) -> bool:
    """Whether a mark is all that is left of the job's output (`leave_mark`)."""
    with contextlib.suppress(errors.StorageError):
        data, size = read_page(places, job_id, 0, _MARK_BYTES_MAX)
        if 0 < size <= _MARK_BYTES_MAX:
            kinds = [
                segment.kind
                for block in output_blocks.find_blocks(data, 0).blocks
                for segment in block.segments()
            ]
            return kinds == [output_blocks.REMOVED]
    return False


def damage(path: str) -> list[tuple[int, int]]:
    """The places (start, end) of the file without blocks; the last may be an unfinished write.

    `StorageError` if the file cannot be read.
    """
    with documents.storage_errors(path):
        # Without O_NONBLOCK, opening a pipe in its place waits for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return _damage_in(descriptor)
        finally:
            os.close(descriptor)


def _damage_in(descriptor: int) -> list[tuple[int, int]]:
    places: list[tuple[int, int]] = []
    place = since = 0
    while data := os.pread(descriptor, _SCAN_BYTES, place):
        found = output_blocks.find_blocks(data, place)
        if found.blocks:
            first = found.blocks[0]
            if since < first.start:
                places.append((since, first.start))
            places += [each for each in found.damaged if each[0] >= first.end]
            place = since = found.end
        elif len(data) > output_blocks.STORED_BYTES_MAX:
            place += len(data) - output_blocks.STORED_BYTES_MAX
        else:
            return [*places, (since, place + len(data))]
    return places
