"""What the files of pending jobs said when they were looked at, for the next start of a daemon.

How it works. Most jobs of a long queue come from few templates. The file has the whole text of one
job of each template, and of the others what differs, beside the marks of their files: inode and
time of the last change. A start that finds a job's file with the same mark need not read it.

Nothing depends on this file. It is not flushed, and counts only in the boot of the machine in which
it was written: what a kill of the daemon leaves in the caches is all there then. It is a row of
records with checksums; what follows the first that is not whole counts as missing. A job whose file
has another mark is read, and so is one that is missing here.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Annotated

import msgspec

from ..disk import documents
from ..log.checked_records import HEAD, packed, payload_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

FORMAT_VERSION = 2


class Begun(msgspec.Struct, frozen=True, tag="begun", array_like=True):
    """First record: the format's version, and the boot of the machine."""

    version: int
    boot: str


class Template(msgspec.Struct, frozen=True, tag="template", array_like=True):
    """The text of the file of one job, which others are like; ``number`` names it in `Page`."""

    number: int
    body: bytes


_Ids = list[Annotated[int, msgspec.Meta(ge=0)]]


class Page(msgspec.Struct, frozen=True, tag="page", array_like=True):
    """Pending jobs of one template: their ids, the marks of their files, and what differs.

    ``received``: seconds since the epoch; ``keys`` and ``digests`` are those of submissions.
    """

    template: int
    ids: _Ids
    inodes: list[int]
    changed: list[int]
    received: list[float | None]
    keys: list[str | None]
    digests: list[str | None]

    @property
    def is_whole(self) -> bool:
        """Whether all lists are as long as they have to be."""
        count = len(self.ids)
        lists: tuple[Sequence[object], ...] = (
            self.inodes, self.changed, self.received, self.keys, self.digests
        )  # fmt: skip
        return all(len(one) == count for one in lists)


class Heads(msgspec.Struct, frozen=True, tag="heads", array_like=True):
    """Pending jobs that are not like others: as `Page`, with what their files say themselves.

    ``received`` are the seconds and microseconds of their files; ``dependent``: whether a job's
    first opcode names others that it waits for.
    """

    ids: _Ids
    inodes: list[int]
    changed: list[int]
    received: list[tuple[int, int] | None]
    keys: list[str | None]
    digests: list[str | None]
    serials: list[Annotated[int, msgspec.Meta(ge=0)]]
    priorities: list[int]
    dependent: list[bool]

    @property
    def is_whole(self) -> bool:
        """Whether all lists are as long as they have to be."""
        count = len(self.ids)
        return all(len(getattr(self, name)) == count for name in self.__struct_fields__)


Noted = Template | Page | Heads

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Begun | Noted).decode

Mark = tuple[int, int]
"""Inode of a file, and the time of its last change in nanoseconds since the epoch."""


def mark_of(status: os.stat_result) -> Mark:
    """Another one whenever the file was replaced, written, or got another owner or mode."""
    return status.st_ino, status.st_ctime_ns


class RememberedFiles:
    """The file that remembers. One thread at a time uses it."""

    def __init__(self, path: str | os.PathLike[str], boot: str) -> None:
        """``boot``: names the present boot of the machine."""
        self._path = os.fspath(path)
        self._boot = boot
        self._end = 0

    def read(self) -> Iterator[Noted]:
        """All that counts; `StorageError` if the file cannot be read. Appending goes on there.

        A record is decoded when it is asked for: all at once take more memory than the jobs.
        """
        data = (documents.read(self._path) or b"") if self._is_plain() else b""
        offset = 0
        while payload := payload_at(data, offset):
            try:
                record = _decode(payload)
            except msgspec.DecodeError:
                break
            if offset == 0 and record != Begun(FORMAT_VERSION, self._boot):
                break
            offset += HEAD.size + len(payload)
            if isinstance(record, Template) or (
                isinstance(record, (Page, Heads)) and record.is_whole
            ):
                yield record
        self._end = offset

    def forget(self) -> None:
        """Begin anew, with the next records."""
        self._end = 0

    def begin(self) -> None:
        """Forget everything; `StorageError` if that fails."""
        self._end = 0
        if not self._is_plain():
            with documents.storage_errors(self._path), contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
        # Into the same file: to make one takes long where many were deleted a moment ago.
        self._write(packed(_encode(Begun(FORMAT_VERSION, self._boot))))

    @property
    def has_begun(self) -> bool:
        """Whether records can be appended."""
        return self._end > 0

    def now(self) -> int:
        """The time by the clock that marks files, in nanoseconds; `StorageError` if that fails."""
        with documents.storage_errors(self._path):
            os.utime(self._path)
            return os.stat(self._path).st_ctime_ns

    def append(self, records: Iterable[Noted]) -> None:
        """Add these; `StorageError` if that fails, and then some may be there."""
        self._write(b"".join(packed(_encode(record)) for record in records))

    def _is_plain(self) -> bool:
        """Whether this is a file of our own, with this name alone: we write into it in its place.

        To open a pipe would block, behind a link lies another file, and what others may write
        must not be believed.
        """
        with documents.storage_errors(self._path):
            try:
                found = os.lstat(self._path)
            except FileNotFoundError:
                return False
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            return False
        return found.st_uid == os.geteuid() and not found.st_mode & stat.S_IWOTH

    def _write(self, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        flags |= 0 if self._end else os.O_CREAT
        with documents.storage_errors(self._path):
            descriptor = os.open(self._path, flags, documents.FILE_MODE)
            try:
                # What lies behind may be the rest of a record that was not finished.
                os.ftruncate(descriptor, self._end)
                documents.write_all_at(descriptor, data, self._end)
            finally:
                os.close(descriptor)
        self._end += len(data)
