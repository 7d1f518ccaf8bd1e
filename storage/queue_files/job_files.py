"""The queue directory in Ganeti's layout: job files, ``serial``, ``version``, the archive.

Has no decisions. An unreadable job file stays in its place and is reported: it is never dropped
silently, and never overwritten.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from typing import TYPE_CHECKING

from .. import errors, settings
from ..disk import documents, quarantine
from ..jobs import jobs
from ..log import segments
from . import inodes, spool

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import Any

    from ..disk.paths import Places

VERSION = 1
ARCHIVE_FOLDER_JOBS = 10_000
ID_MAX = 10**18 - 1
"""Highest job id: a higher one does not fit into a frame."""

_JOB_NAME = re.compile(r"job-(0|[1-9][0-9]{0,17})")
_ID_DIGITS_MAX = 18
_QUARANTINED_NAME = re.compile(r"job-([0-9]{1,18})(\..*)?")
_TEMPORARY_NAME = re.compile(re.escape(documents.TEMPORARY_PREFIX) + r"job-([0-9]+)\.")


def path(queue: str | os.PathLike[str], job_id: int) -> str:
    """The path of the live job's file."""
    return f"{os.fspath(queue)}/job-{job_id}"


def id_of(name: str) -> int | None:
    """The job in the name of a job file; None if it is no such name."""
    match = _JOB_NAME.fullmatch(name)
    return None if match is None else int(match[1])


def archive_folder(archive: str | os.PathLike[str], job_id: int) -> str:
    """The folder of this job in the archive."""
    return f"{os.fspath(archive)}/{job_id // ARCHIVE_FOLDER_JOBS}"


def last_id(recorded: int, named: Iterable[int]) -> int:
    """The last id that the queue gave.

    ``recorded`` is the highest id of a journal record or a readable job; ``named`` are the ids in
    names of files. A name far above ``recorded`` does not count, because any program can make such
    a file, and it would use up all remaining ids. It counts, and is not given again, when the queue
    has come near it.
    """
    limit = recorded + settings.JOB_ID_JUMP_MAX
    return max([recorded, *(job_id for job_id in named if job_id <= limit)])


def is_queue_of(job_path: str) -> bool:
    """Whether the directory of this job file exists."""
    return os.path.isdir(os.path.dirname(job_path))


def folder_inode(path: str) -> tuple[int, int] | None:
    """The device and inode of the directory at this path; None if there is none. `OSError`."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


class QueueDirectory:
    """The job files of one queue."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self._queue = os.fspath(places.queue)
        self._archive = os.fspath(places.archive)
        self._quarantine = os.fspath(places.quarantine)
        self.index_path = os.fspath(places.archive_index)
        """The folder with what listings show of archived jobs (`archive_index`)."""
        self._serial: int | None = None
        self._folders: set[str] = set()
        self.spares = inodes.InodePool(self._queue)
        """Spare files for new versions, also for the processes of jobs."""
        self.spool = spool.SpoolDirectory(self._queue)
        """Files beside the jobs: large standard input, output."""

    @property
    def path(self) -> str:
        """Where the directory is."""
        return self._queue

    def prepare(self) -> None:
        """Make the missing files and folders; `DataDirectoryError` for an unknown version."""
        if not self.has_version():
            self.write_version()
        documents.make_directory(self._archive)
        # Jobs' processes rely on a durable folder. If the disk refuses it now, the first process
        # that needs the folder makes it.
        with contextlib.suppress(errors.StorageError):
            self.spool.prepare()

    def has_version(self) -> bool:
        """Whether the directory has a version; `DataDirectoryError` if the version is unknown."""
        found = documents.read(f"{self._queue}/version")
        if found is not None and found.strip() != b"%d" % VERSION:
            text = found.strip().decode("utf-8", "replace")
            message = f"{self._queue}/version: queue version {text!r}, expected {VERSION}"
            raise errors.DataDirectoryError(message)
        return found is not None

    def write_version(self) -> None:
        """Write the version of this code."""
        documents.replace(f"{self._queue}/version", b"%d\n" % VERSION, flush=True)

    def names(self) -> list[str]:
        """Everything in the directory: to list it takes long when the queue is long."""
        with documents.storage_errors(self._queue):
            return os.listdir(self._queue)

    def live_ids(self, names: Iterable[str] | None = None) -> list[int]:
        """Ids of the job files in the directory, in order. ``names``: what it holds, if known."""
        return sorted(_ids_of(self.names() if names is None else names))

    def archived_ids(self) -> list[int]:
        """Ids of all archived jobs, in order."""
        return sorted(job_id for folder in self._archive_folders() for job_id in _ids_in(folder))

    def archived_among(self, ids: Iterable[int]) -> set[int]:
        """Those of these jobs for which the archive has a file, readable or not."""
        wanted = set(ids)
        found: set[int] = set()
        for folder in {archive_folder(self._archive, job_id) for job_id in wanted}:
            found.update(_ids_of(documents.names_in(folder)))
        return found & wanted

    def archived_ids_after(self, job_id: int) -> Iterator[int]:
        """Ids of archived jobs above ``job_id``, in order; lists folder after folder, as needed."""
        folders = {int(folder.rpartition("/")[2]): folder for folder in self._archive_folders()}
        for number in sorted(folders):
            first = number * ARCHIVE_FOLDER_JOBS
            if first + ARCHIVE_FOLDER_JOBS > job_id:
                # No other folder is looked into for a job.
                own = range(max(first, job_id + 1), first + ARCHIVE_FOLDER_JOBS)
                yield from sorted(found for found in _ids_in(folders[number]) if found in own)

    def archive_numbers(self) -> list[int]:
        """The numbers of the archive's folders, in order."""
        return sorted(int(folder.rpartition("/")[2]) for folder in self._archive_folders())

    def archive_changed(self, folder: int) -> int:
        """When a job last came into this folder of the archive, or went; 0: it is not there."""
        with documents.storage_errors(self._archive):
            try:
                return os.stat(f"{self._archive}/{folder}").st_mtime_ns
            except FileNotFoundError:
                return 0

    def ids_in_archive(self, folder: int) -> list[int]:
        """Ids of the archived jobs that lie in this folder and belong there, in order."""
        first = folder * ARCHIVE_FOLDER_JOBS
        own = range(first, first + ARCHIVE_FOLDER_JOBS)
        names = documents.names_in(f"{self._archive}/{folder}")
        return sorted(job_id for job_id in _ids_of(names) if job_id in own)

    def read(self, job_id: int) -> bytes | None:
        """The text of a live job's file."""
        return documents.read(path(self._queue, job_id))

    def read_archived(self, job_id: int) -> bytes | None:
        """The text of an archived job's file."""
        return documents.read(self._archive_path(job_id))

    def drop_pages(self, job_id: int) -> None:
        """Have the next `read` bring the job's file from the disk (`documents.drop_pages`)."""
        documents.drop_pages(path(self._queue, job_id))

    def drop_archived_pages(self, job_id: int) -> None:
        """As `drop_pages`, of the file in the archive."""
        documents.drop_pages(self._archive_path(job_id))

    def write(self, job_id: int, body: bytes, *, flush: bool) -> None:
        """Replace the job's file."""
        if flush:
            documents.replace(path(self._queue, job_id), body, flush=True)
            return
        spare = self.spares.take()
        try:
            is_kept = documents.exchange(path(self._queue, job_id), body, spare)
        except errors.StorageError:
            # The disk may have refused a page of it (`InodePool.renew`).
            self.spares.delete(spare)
            raise
        if is_kept:
            self.spares.give_back(spare)
        elif os.path.lexists(spare):
            # Something other than a plain file lay in this place: put it aside, do not lose it.
            self.quarantine(spare, name=f"job-{job_id}")

    def write_in_thread(self, job_id: int, body: bytes) -> bool:
        """As `write` without a flush, into a new file: any thread may call this.

        False, and nothing is written, if something other than a plain file lies in its place.
        """
        file = path(self._queue, job_id)
        if documents.create(file, body):
            return True
        with documents.storage_errors(file):
            if not stat.S_ISREG(os.lstat(file).st_mode):
                return False
        documents.replace(file, body, flush=False)
        return True

    def flush_names(self) -> None:
        """Make the names of the live jobs' files durable."""
        with documents.storage_errors(self._queue):
            documents.flush_directory(self._queue)

    def archive(self, job_id: int) -> None:
        """Move the job's file, and the files beside it, into the archive. Repeatable."""
        target = self._archive_path(job_id)
        with documents.storage_errors(target):
            self._make_folder(os.path.dirname(target))
            self.spool.archive(job_id, os.path.dirname(target))
            live = path(self._queue, job_id)
            if os.path.lexists(target) and os.path.lexists(live):
                self._make_way(live, target)
            with contextlib.suppress(FileNotFoundError):
                os.rename(live, target)

    def _make_way(self, live: str, target: str) -> None:
        """Put aside another file of the job's name in the archive.

        A copy, or a torn file from a power loss, stays: the rename of the whole file replaces it.
        """
        try:
            ours, found = documents.read(live) or b"", documents.read(target) or b""
            is_lost = found == ours or (_is_torn(found) and not _is_torn(ours))
        except errors.StorageError:
            # Something other than a plain file lies in its place.
            is_lost = False
        if not is_lost:
            self.quarantine(target)

    @property
    def is_drained(self) -> bool:
        """Whether the queue refuses submissions: the file ``drain`` exists, as in Ganeti."""
        return os.path.exists(f"{self._queue}/drain")

    def set_drained(self, *, is_drained: bool) -> None:
        """Refuse or accept submissions, also after a restart."""
        path = f"{self._queue}/drain"
        if is_drained:
            documents.replace(path, b"", flush=True)
            return
        with documents.storage_errors(path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            documents.flush_directory(self._queue)

    def write_archived(self, job_id: int, body: bytes, *, flush: bool = True) -> None:
        """Replace the file of an archived job."""
        file = self._archive_path(job_id)
        if os.path.isdir(file) and not os.path.islink(file):
            # No file takes the place of a directory.
            self.quarantine(file)
        # Temporary files lie in the queue directory: a start need not search the archive for them.
        documents.replace(file, body, flush=flush, beside=self._queue)

    def _make_folder(self, folder: str) -> None:
        """Make a folder of the archive durable before a file moves into it."""
        if folder not in self._folders:
            documents.make_directory(folder)
            documents.flush_directory(self._archive)
            self._folders.add(folder)

    def read_serial(self) -> int:
        """The last id in the serial file; 0 if the file has no usable one."""
        try:
            text = (documents.read(f"{self._queue}/serial") or b"").strip()
        except errors.StorageError:
            # Something other than a file lies there: journal and file names have the number.
            return 0
        return int(text) if text.isdigit() and len(text) <= _ID_DIGITS_MAX else 0

    def write_serial(self, last_id: int) -> None:
        """Write the last id, in place: the journal makes up for a torn serial file."""
        with documents.storage_errors(f"{self._queue}/serial"):
            if self._serial is None:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._serial = os.open(f"{self._queue}/serial", flags, documents.FILE_MODE)
                # The former content may be longer than the new one.
                os.ftruncate(self._serial, 0)
            os.pwrite(self._serial, b"%d\n" % last_id, 0)

    def close(self) -> None:
        """Close the serial file."""
        if self._serial is not None:
            os.close(self._serial)
            self._serial = None

    def highest_archived_id(self, limit: int = ID_MAX) -> int:
        """The highest id in the archive that is not above ``limit``; 0 if there is none."""
        folders = {int(os.path.basename(folder)): folder for folder in self._archive_folders()}
        highest = 0
        for number in sorted(folders, reverse=True):
            found = (job_id for job_id in _ids_in(folders[number]) if job_id <= limit)
            highest = max(highest, *found, 0)
            # Stop here, unless the highest job lies in a folder that is not its own.
            if highest >= number * ARCHIVE_FOLDER_JOBS:
                break
        return highest

    def strange_names(self, names: Iterable[str] | None = None) -> list[str]:
        """The names of files like those of live jobs, but with numbers that no job can have."""
        return sorted(
            name
            for name in (self.names() if names is None else names)
            if not _JOB_NAME.fullmatch(name)
            and name.startswith("job-")
            and name.removeprefix("job-").isdecimal()
        )

    def highest_quarantined_id(self, limit: int = ID_MAX) -> int:
        """The highest id, up to ``limit``, of a job in quarantine; 0 if there is none."""
        return max((job_id for job_id in self._quarantined_ids() if job_id <= limit), default=0)

    def quarantine(self, file: str, *, name: str = "") -> str:
        """Move a file durably into quarantine; returns its new path."""
        return quarantine.move(self._quarantine, file, name=name)

    def keep_damaged(self, found: Iterable[Path]) -> list[str]:
        """As `segments.keep_copies`."""
        return segments.keep_copies(found, self._quarantine)

    def keep_state(self, job_id: int, body: bytes) -> str:
        """Put this text of a job durably into quarantine; its path. `StorageError`."""
        return quarantine.keep(self._quarantine, f"job-{job_id}", body)

    def input_of(self, job_id: int, name: object) -> spool.Stored | None:
        """The input file ``name`` of this job, live or archived; None if it has none."""
        spooled = spool.parse_name(name) if isinstance(name, str) else None
        if spooled is None or spooled.job_id != job_id or spooled.op_index is None:
            return None
        live = spool.input_path(self._queue, job_id, spooled.op_index)
        archived = f"{spool.folder(os.path.dirname(self._archive_path(job_id)))}/{name}"
        found = next((path for path in (live, archived) if os.path.exists(path)), None)
        return None if found is None else spool.Stored(found, is_moved=False)

    def settle_spool(self, known: Collection[int]) -> list[str]:
        """Clean up the spool after a crash; ``known`` are the jobs that are not archived.

        Moves files of archived jobs into the archive, and deletes unfinished inputs. Returns the
        names of inputs without a job, whose submission was refused or never answered. Leaves files
        of jobs in quarantine, and other files without a job.
        """
        names = self.spool.names()
        quarantined = self._quarantined_ids() if names else set()
        refused = []
        for name in names:
            spooled = spool.parse_name(name)
            if spooled is not None and spooled.job_id in known:
                continue
            # Also if a torn older version of the archived job lies in quarantine.
            if spooled is not None and os.path.lexists(self._archive_path(spooled.job_id)):
                self.spool.archive(
                    spooled.job_id, os.path.dirname(self._archive_path(spooled.job_id))
                )
            elif spooled is not None and spooled.job_id in quarantined:
                continue
            elif spool.is_unfinished_input(name) or spool.is_copy_of_other(name, known):
                self.spool.remove_file(name)
            elif spooled is not None and spooled.op_index is not None:
                refused.append(name)
        return refused

    def _quarantined_ids(self) -> set[int]:
        matches = map(_QUARANTINED_NAME.fullmatch, documents.names_in(self._quarantine))
        return {int(match[1]) for match in matches if match}

    def remove_leftovers(self, living: set[int], names: Sequence[str] | None = None) -> None:
        """Delete the temporary files of unfinished writes, except those of living jobs.

        ``names``: what the directory held, if that is known.
        """
        found = self.names() if names is None else names
        with documents.storage_errors(self._queue):
            self.spares.clear(found)

        def is_of_living(name: str) -> bool:
            match = _TEMPORARY_NAME.match(name)
            return match is not None and int(match[1]) in living

        documents.remove_temporaries(self._queue, is_of_living, found)

    def _archive_folders(self) -> Iterator[str]:
        with documents.storage_errors(self._archive):
            for name in os.listdir(self._archive):
                if name.isdecimal() and os.path.isdir(f"{self._archive}/{name}"):
                    yield f"{self._archive}/{name}"

    def _archive_path(self, job_id: int) -> str:
        return path(archive_folder(self._archive, job_id), job_id)


def is_damaged(data: bytes) -> bool:
    """Whether this is no job: what Ganger itself has written shows that at once."""
    return not jobs.has_right_sum(data) and _is_torn(data)


def _is_torn(data: bytes) -> bool:
    """Whether this is no job: the beginning of one, zeros, or a mixture of two versions."""
    try:
        jobs.decode_job(data)
    except errors.StorageError:
        return True
    return False


def read_job(data: bytes, job_id: int) -> jobs.Job:
    """The job in ``data``; `StorageError` unless it is the job ``job_id``."""
    job = jobs.decode_job(data)
    if job.id != job_id:
        raise errors.StorageError(f"holds job {job.id}, not {job_id}")
    return job


def read_inputs(queue: str | os.PathLike[str], job_id: int) -> Sequence[dict[str, Any]]:
    """What filter rules see of a live job's opcodes, for components other than the job queue.

    The queue replaces the file now and then, and later writes over the old version, which may be
    the one that is open here: so a file that seems damaged is read again. `StorageError` if the
    file is gone or is no job's.
    """
    try:
        return _inputs(queue, job_id)
    except errors.StorageError:
        return _inputs(queue, job_id)


def _inputs(queue: str | os.PathLike[str], job_id: int) -> Sequence[dict[str, Any]]:
    data = documents.read(path(queue, job_id))
    if data is None:
        raise errors.StorageError(f"job {job_id} has no file")
    return read_job(data, job_id).judged_inputs


def _ids_in(folder: str) -> Iterator[int]:
    with documents.storage_errors(folder):
        yield from _ids_of(os.listdir(folder))


def _ids_of(names: Iterable[str]) -> Iterator[int]:
    matches = map(_JOB_NAME.fullmatch, names)
    return (int(match[1]) for match in matches if match)
