"""What listings show of archived jobs: a file of lines for each folder of the archive.

How it works. A line is a `JobSummary` as JSON; the first line names the fields. The queue adds a
line for each job that it archives, not flushed. Nothing depends on these files: the folder of the
archive says which jobs there are. What is missing in a file is read from the jobs' own files, and
added; what is too much, or cannot be read, has the file made anew. So a lost index comes back with
the next listing, and whoever puts a job's file into the archive, or takes it out, need not know.

The last line of a file that is known to be right has the time of the folder's last change, and a
checksum of the lines before. While the folder still has that time, nothing but lines is read, and
of these only those in which a text stands that is looked for.
"""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from .. import errors
from ..disk import documents
from ..jobs.listing import JobSummary
from .job_files import ARCHIVE_FOLDER_JOBS

if TYPE_CHECKING:
    from .job_files import QueueDirectory

    Read = Callable[[int], JobSummary]
    """The summary of an archived job, from its own file. Raises `StorageError`."""

Found = tuple[int, JobSummary | None]
"""An id, and its job; None: only so far has the index been looked through."""

_SETTLED_SECONDS = 1.0
"""A folder that was changed later than this may change again without another time."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(JobSummary).decode
_HEAD = _encode({"fields": list(JobSummary.__struct_fields__)})
_MARK = b'{"changed":'


class _Lines(msgspec.Struct):
    """What the file of one folder holds."""

    changed: int
    """The time of the folder when the index was last compared with it, in nanoseconds."""
    jobs: dict[int, JobSummary]
    ids: list[int]
    """The jobs of the folder, in order."""


class ArchiveIndex:
    """The index of one archive. Its owner is the only one that writes it."""

    def __init__(self, directory: QueueDirectory, read: Read) -> None:
        self._path = directory.index_path
        self._directory = directory
        self._read = read
        self._new: dict[int, list[bytes]] = {}
        self._last: tuple[int, _Lines] | None = None

    def add(self, job: JobSummary) -> None:
        """The job is in the archive now; `write` writes its line."""
        self._new.setdefault(job.id // ARCHIVE_FOLDER_JOBS, []).append(_encode(job))

    def write(self) -> None:
        """Add the new lines to the files. If the disk refuses, listings read the jobs' files."""
        new, self._new = self._new, {}
        for folder, lines in new.items():
            with contextlib.suppress(errors.StorageError):
                self._append(folder, lines)

    def found(
        self, *, after: int = 0, before: int | None = None, newest_first: bool, needle: bytes
    ) -> Iterator[Found]:
        """Archived jobs with ids between these, in order; files are looked into as needed.

        Only jobs in whose lines ``needle`` stands need be there. Comes by with a None now and then.
        """
        self.write()
        folders = self._directory.archive_numbers()
        for folder in reversed(folders) if newest_first else folders:
            first = folder * ARCHIVE_FOLDER_JOBS
            end = first + ARCHIVE_FOLDER_JOBS
            if end <= after + 1 or (before is not None and first >= before):
                continue
            yield from self._in_folder(folder, (after, before), needle, newest_first=newest_first)
            yield (first if newest_first else end - 1), None

    def _in_folder(
        self, folder: int, bounds: tuple[int, int | None], needle: bytes, *, newest_first: bool
    ) -> Iterator[Found]:
        after, before = bounds
        changed = self._directory.archive_changed(folder)
        last = self._last
        if last is not None and last[0] == folder and last[1].changed == changed:
            lines = last[1]
        elif needle and (some := self._marked(folder, changed, needle)) is not None:
            jobs = {job.id: job for job in some}
            lines = _Lines(changed, jobs, sorted(jobs))
        else:
            lines = self._compared(folder, changed)
            self._last = (folder, lines) if _is_at_rest(changed) else None
        read: list[bytes] = []
        try:
            for job_id in reversed(lines.ids) if newest_first else lines.ids:
                if job_id <= after or (before is not None and job_id >= before):
                    continue
                if (job := lines.jobs.get(job_id)) is None:
                    # `ganger status` and the log name a damaged one; the listing goes on.
                    with contextlib.suppress(errors.StorageError):
                        lines.jobs[job_id] = job = self._read(job_id)
                        read.append(_encode(job))
                yield job_id, job
        finally:
            if read:
                with contextlib.suppress(errors.StorageError):
                    self._append(folder, read)
                    self._mark(folder, lines)

    def _marked(self, folder: int, changed: int, needle: bytes) -> list[JobSummary] | None:
        """The jobs in whose lines this text stands, if the file is right; else None."""
        data = self._data(folder)
        if not _is_right(data, changed):
            return None
        if needle not in data:
            return []
        try:
            return [
                _decode(line)
                for line in data.split(b"\n")[1:]
                if needle in line and not line.startswith(_MARK)
            ]
        except msgspec.DecodeError:
            return None

    def _compared(self, folder: int, changed: int) -> _Lines:
        """All that the file has of the jobs that are in the folder; mends the file."""
        data = self._data(folder)
        jobs = {job.id: job for job in _jobs_in(data)} if data.startswith(_HEAD) else {}
        is_right = _is_right(data, changed)
        ids = sorted(jobs) if is_right else self._directory.ids_in_archive(folder)
        there = set(ids)
        gone = jobs.keys() - there
        kept = {job_id: job for job_id, job in jobs.items() if job_id in there} if gone else jobs
        lines = _Lines(changed, kept, ids)
        with contextlib.suppress(errors.StorageError):
            if gone or not (data.startswith(_HEAD) and data.endswith(b"\n")):
                self._replace(folder, kept.values())
            if not is_right:
                self._mark(folder, lines)
        return lines

    def _mark(self, folder: int, lines: _Lines) -> None:
        """Note in the file that it is right, if it is, and the folder has been at rest."""
        is_whole = len(lines.jobs) == len(lines.ids) and _is_at_rest(lines.changed)
        if is_whole and self._directory.archive_changed(folder) == lines.changed:
            data = self._data(folder)
            if data.startswith(_HEAD) and data.endswith(b"\n"):
                self._append(folder, [_mark(data, lines.changed)])

    # ------------------------------------------------------------ files

    def _file(self, folder: int) -> str:
        return f"{self._path}/{folder}"

    def _data(self, folder: int) -> bytes:
        try:
            return documents.read(self._file(folder)) or b""
        except errors.StorageError:
            return b""

    def _append(self, folder: int, lines: list[bytes]) -> None:
        path = self._file(folder)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with documents.storage_errors(path):
            try:
                descriptor = os.open(path, flags, documents.FILE_MODE)
            except FileNotFoundError:
                documents.make_directory(self._path)
                descriptor = os.open(path, flags, documents.FILE_MODE)
            try:
                is_new = os.fstat(descriptor).st_size == 0
                head = [_HEAD] if is_new else []
                documents.write_all(descriptor, b"\n".join([*head, *lines, b""]))
            finally:
                os.close(descriptor)

    def _replace(self, folder: int, jobs: Iterable[JobSummary]) -> None:
        data = b"\n".join([_HEAD, *map(_encode, jobs), b""])
        documents.make_directory(self._path)
        documents.replace(self._file(folder), data, flush=False)


def _mark(data: bytes, changed: int) -> bytes:
    """The line that says that the file, with ``data`` before this line, is right."""
    return b'%b%d,"crc":%d}' % (_MARK, changed, zlib.crc32(data))


def _is_right(data: bytes, changed: int) -> bool:
    """Whether the file has all jobs of its folder, which was changed then."""
    start = data.rfind(b"\n", 0, -1) + 1
    is_marked = data.startswith(_HEAD) and data.startswith(b"%b%d," % (_MARK, changed), start)
    return is_marked and data[start:] == _mark(data[:start], changed) + b"\n"


def _is_at_rest(changed: int) -> bool:
    return changed + _SETTLED_SECONDS * 1e9 < time.time_ns()


def _jobs_in(data: bytes) -> Iterator[JobSummary]:
    for line in data.split(b"\n")[1:]:
        if line and not line.startswith(_MARK):
            # A line that was written in part is no JSON.
            with contextlib.suppress(msgspec.DecodeError):
                yield _decode(line)
