"""What listings show of archived jobs: a file of lines for each folder of the archive.

How it works. A line is a `JobSummary` as JSON; the first line names the fields. The queue adds a
line for each job that it archives, not flushed. Nothing depends on these files: the folder of the
archive says which jobs there are. What is missing in a file is read from the jobs' own files, and
added; what is too much, or cannot be read, has the file made anew. So a lost index comes back with
the next listing, and whoever puts a job's file into the archive, or takes it out, need not know.

The last line of a file that is known to be right has the time of the folder's last change, and a
checksum of the lines before. While the folder still has that time, nothing but lines is read, and
of these only those in which a text stands that is looked for. `archived_hints` tells which folders
may have such a job at all.

To read many jobs takes minutes: so the listing leaves them out, and `building` adds them in slices.
"""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from .. import errors
from ..disk import documents
from ..jobs.job_filters import NOTHING, Needles
from ..jobs.listing import JobSummary
from .archived_hints import ArchivedHints
from .job_files import ARCHIVE_FOLDER_JOBS

if TYPE_CHECKING:
    from .job_files import QueueDirectory

    Read = Callable[[int], JobSummary]
    """The summary of an archived job, from its own file. `StorageError`, or `UnknownJobError`."""

Found = tuple[int, JobSummary | None]
"""An id, and its job; None: only so far has the index been looked through."""

_SETTLED_SECONDS = 1.0
"""A folder that was changed later than this may change again without another time."""

READ_BY_LISTING_MAX = 1_000
"""If more jobs of a folder are missing, a listing leaves them to `ArchiveIndex.building`."""

_READ_AT_ONCE = 10
_WRITTEN_AT_ONCE = 500

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

    def __init__(
        self,
        directory: QueueDirectory,
        read: Read,
        begin_building: Callable[[], None] = lambda: None,
    ) -> None:
        """``begin_building``: have `building` done in slices."""
        self._path = directory.index_path
        self._directory = directory
        self._read = read
        self._begin_building = begin_building
        self._hints = ArchivedHints(self._path)
        self._new: dict[int, list[bytes]] = {}
        self._last: tuple[int, Needles, _Lines] | None = None
        self._built: dict[int, int] = {}
        """The folders whose jobs were all read, as far as they can be, each with its time."""
        self._reached: int | None = None
        """The folder that is being built; that of the newest jobs is the first."""
        self.progress: float | None = None
        """The part of the archive that is in the index while it is built; None: all of it."""

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
        self,
        *,
        after: int = 0,
        before: int | None = None,
        newest_first: bool = False,
        needles: Needles = NOTHING,
        is_whole: bool = False,
    ) -> Iterator[Found]:
        """Archived jobs with ids between these, in order; files are looked into as needed.

        Only jobs in whose lines all ``needles`` stand need be there. Comes by with a None now and
        then. `progress` says whether jobs are left out that are not in the index yet; none are if
        it ``is_whole``, which may take long.
        """
        self.write()
        folders = self._directory.archive_numbers()
        for folder in reversed(folders) if newest_first else folders:
            first = folder * ARCHIVE_FOLDER_JOBS
            end = first + ARCHIVE_FOLDER_JOBS
            if end <= after + 1 or (before is not None and first >= before):
                continue
            lines = self._lines(folder, needles, is_whole=is_whole)
            yield from self._in_folder(folder, lines, (after, before), newest_first=newest_first)
            yield (first if newest_first else end - 1), None

    def building(self) -> Generator[None, None, None]:
        """Read all jobs that are missing, the newest first, a few in each slice."""
        self.progress = 0.0
        try:
            yield
            folders = self._directory.archive_numbers()
            for place, folder in enumerate(reversed(folders)):
                self._reached = folder
                for part in self._building(folder):
                    self.progress = (place + part) / len(folders)
                    yield
        except errors.StorageError:
            # Listings read what is missing, or begin again.
            return
        finally:
            self.progress = self._reached = None

    def _building(self, folder: int) -> Iterator[float]:
        """Which part of the folder's jobs has been read, after each slice."""
        changed = self._directory.archive_changed(folder)
        lines = self._compared(folder, changed, self._data(folder))
        yield 0.0
        missing = [job_id for job_id in lines.ids if job_id not in lines.jobs]
        read: list[bytes] = []
        for done, job_id in enumerate(missing, 1):
            # `ganger status` and the log name a damaged one.
            with contextlib.suppress(errors.StorageError, errors.UnknownJobError):
                lines.jobs[job_id] = job = self._read(job_id)
                read.append(_encode(job))
            if read and (len(read) == _WRITTEN_AT_ONCE or done == len(missing)):
                self._append(folder, read)
                read = []
            if done % _READ_AT_ONCE == 0:
                yield done / len(missing)
        self._mark(folder, lines)
        self._built[folder] = changed

    def _in_folder(
        self, folder: int, lines: _Lines, bounds: tuple[int, int | None], *, newest_first: bool
    ) -> Iterator[Found]:
        after, before = bounds
        read: list[bytes] = []
        try:
            for job_id in reversed(lines.ids) if newest_first else lines.ids:
                if job_id <= after or (before is not None and job_id >= before):
                    continue
                if (job := lines.jobs.get(job_id)) is None:
                    # `ganger status` and the log name a damaged one; the listing goes on.
                    with contextlib.suppress(errors.StorageError, errors.UnknownJobError):
                        lines.jobs[job_id] = job = self._read(job_id)
                        read.append(_encode(job))
                yield job_id, job
        finally:
            if read:
                with contextlib.suppress(errors.StorageError):
                    self._append(folder, read)
                    self._mark(folder, lines)

    def _lines(self, folder: int, needles: Needles, *, is_whole: bool) -> _Lines:
        """What the folder has of the jobs that are looked for."""
        changed = self._directory.archive_changed(folder)
        last = self._last
        if last is not None and last[1] in (NOTHING, needles):
            known = last[2]
            if (last[0], known.changed) == (folder, changed):
                return known
        hint = self._hints.of(folder, changed)
        if hint is not None and not hint.may_have(needles):
            return _Lines(changed, {}, [])
        data = self._data(folder)
        is_right = _is_right(data, changed)
        if is_right and needles and hint is not None:
            if (some := _with_needles(data, needles)) is not None:
                lines = _Lines(changed, {job.id: job for job in some}, [job.id for job in some])
                lines.ids.sort()
                self._last = folder, needles, lines
                return lines
        elif not (is_right or is_whole or self._reached is None) and folder < self._reached:
            # To look into it takes long, and what it lacks is read soon.
            return _Lines(changed, {}, [])
        lines = self._compared(folder, changed, data)
        self._last = (folder, NOTHING, lines) if _is_at_rest(changed) else None
        if is_whole or self._built.get(folder) == changed:
            return lines
        return self._without_many(lines)

    def _without_many(self, lines: _Lines) -> _Lines:
        """The lines without the jobs that are missing, if they are many: these are added later."""
        if len(lines.ids) - len(lines.jobs) <= READ_BY_LISTING_MAX:
            return lines
        self._last = None
        if self.progress is None:
            self.progress = 0.0
            self._begin_building()
        return _Lines(lines.changed, lines.jobs, sorted(lines.jobs))

    def _compared(self, folder: int, changed: int, data: bytes) -> _Lines:
        """All that the file with ``data`` has of the jobs in the folder; mends the file."""
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
            elif self._hints.of(folder, changed) is None:
                self._hints.note(folder, changed, jobs.values())
        return lines

    def _mark(self, folder: int, lines: _Lines) -> None:
        """Note in the file that it is right, if it is, and the folder has been at rest."""
        is_whole = len(lines.jobs) == len(lines.ids) and _is_at_rest(lines.changed)
        if is_whole and self._directory.archive_changed(folder) == lines.changed:
            data = self._data(folder)
            if data.startswith(_HEAD) and data.endswith(b"\n"):
                self._append(folder, [_mark(data, lines.changed)])
                self._hints.note(folder, lines.changed, lines.jobs.values())

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


def _with_needles(data: bytes, needles: Needles) -> list[JobSummary] | None:
    """The jobs in whose lines these stand; None: a line that cannot be read is among them."""
    try:
        return [
            _decode(line)
            for line in _lines_with(data, needles)
            if needles.are_in(line) and not line.startswith(_MARK)
        ]
    except msgspec.DecodeError:
        return None


def _lines_with(data: bytes, needles: Needles) -> Iterator[bytes]:
    """The lines below the first one in which one of the needles stands, at least."""
    wanted = max((part[0] for part in needles.parts if len(part) == 1), key=len, default=b"")
    searched = data
    if needles.words and data.isascii():
        wanted, searched = max(needles.words, key=len), data.lower()
    if not wanted:
        yield from data.split(b"\n")[1:]
        return
    end = data.find(b"\n")
    while (place := searched.find(wanted, end)) >= 0:
        end = data.find(b"\n", place)
        yield data[data.rfind(b"\n", 0, place) + 1 : end]


def _is_at_rest(changed: int) -> bool:
    return changed + _SETTLED_SECONDS * 1e9 < time.time_ns()


def _jobs_in(data: bytes) -> Iterator[JobSummary]:
    for line in data.split(b"\n")[1:]:
        if line and not line.startswith(_MARK):
            # A line that was written in part is no JSON.
            with contextlib.suppress(msgspec.DecodeError):
                yield _decode(line)
