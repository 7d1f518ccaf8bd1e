"""Makes a data directory of what was found in Ganeti's: all of it, or nothing.

How it works. The directory grows beside its place, under another name. When all of it is on disk,
one rename puts it there. A crash leaves the unfinished one beside, and the next attempt deletes it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from ... import errors
from ...disk import documents, ownership, paths
from ...jobs import jobs
from ...log import cut
from ...queue_files import job_files
from .. import watcher_pause
from . import import_decision, read_only_source
from .queues import FoundJob, Progress
from .source import Source

_MADE = {"queue", "config.data", "rapi", "watcher.pause"}
_SPARE_BYTES = 16 * 1024 * 1024
"""Room beside the job files, for the daemon's first start."""


def require_free(places: paths.Places, source: str) -> None:
    """Raise `DataDirectoryError` unless the data directory is missing, or is empty and ours.

    ``source`` is the directory of Ganeti: nothing may be written there. `StorageError` if this
    user may not make the new directory.
    """
    data = places.data
    documents.require_utf8(data)
    if data == Path(source) or Path(source) in data.parents:
        raise errors.DataDirectoryError(f"{data}: lies in {source}, where nothing is changed")
    _require_writable(data.parent)
    if not os.path.lexists(data):
        return
    ownership.require_own(places, "import-ganeti")
    if not data.is_dir():
        raise errors.DataDirectoryError(f"{data}: not a directory")
    if os.path.ismount(data):
        raise errors.DataDirectoryError(_mounted(data))
    with documents.storage_errors(data):
        if os.listdir(data):
            text = f"{data}: is not empty; the new data directory must be a new one (--data DIR)"
            raise errors.DataDirectoryError(text)


def _require_writable(place: Path) -> None:
    while not os.path.lexists(place):
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK, effective_ids=True):
        error = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        text = ownership.explained(place, error)
        raise errors.StorageError(f"{text}; the new directory grows there, beside its place")


def require_room(places: paths.Places, source: Source) -> None:
    """Raise `StorageError` if the file system has no room for it."""
    place = places.data
    while not place.exists():
        place = place.parent
    with documents.storage_errors(place):
        status = os.statvfs(place)
    needed = source.queue.bytes_needed + len(source.config.data) + _SPARE_BYTES
    free = status.f_bavail * status.f_frsize
    if free < needed:
        text = f"{place}: {needed >> 20} MiB are needed there, and {free >> 20} MiB are free"
        raise errors.StorageError(text)
    files = len(source.queue.jobs)
    # Some file systems do not count their files.
    if status.f_files and status.f_favail < files:
        text = f"{place}: {files} files are needed there, and {status.f_favail} are possible"
        raise errors.StorageError(text)


def build(source: Source, places: paths.Places, progress: Progress, now: jobs.Timestamp) -> None:
    """Make the data directory; calls ``progress`` with the job files written, and their total.

    `OperatorError` if the source has changed meanwhile, `StorageError` if the disk refuses,
    `DataDirectoryError` if the place is taken: then nothing is there.
    """
    documents.make_directory(places.data.parent)
    work = places.data.parent / f".{places.data.name}.importing"
    with _alone(work):
        try:
            _fill(paths.Places(work, places.run), source, progress, now)
            source.require_unchanged()
            _put_in_place(work, places.data)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise


@contextlib.contextmanager
def _alone(work: Path) -> Iterator[None]:
    """Make the directory that grows, empty; no other import works at the same."""
    with documents.storage_errors(work):
        with contextlib.suppress(FileExistsError):
            os.mkdir(work, documents.DIRECTORY_MODE)
        descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_ours = os.path.samestat(os.fstat(descriptor), os.stat(work))
            except (BlockingIOError, FileNotFoundError):
                is_ours = False
            if not is_ours:
                raise errors.OperatorError(f"{work}: another import works there")
            _clear(work, descriptor)
            yield
        finally:
            os.close(descriptor)


def _clear(work: Path, descriptor: int) -> None:
    """Delete what an import that was killed has left."""
    found = set(os.listdir(work))
    if not found <= _MADE or os.fstat(descriptor).st_uid != os.geteuid():
        raise errors.DataDirectoryError(f"{work}: is in the way; move it away")
    for name in found:
        path = work / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _fill(places: paths.Places, source: Source, progress: Progress, now: jobs.Timestamp) -> None:
    documents.make_directory(places.queue)
    total = len(source.queue.jobs)
    done = 0
    for folder, found in groupby(source.queue.jobs, key=lambda job: job.folder):
        with read_only_source.Folder(folder) as opened:
            for job in found:
                progress(done, total)
                _write(_target(places, job), _content(opened, job, now))
                done += 1
    _write(f"{places.queue}/version", b"%d\n" % job_files.VERSION)
    _write(f"{places.queue}/serial", b"%d\n" % source.queue.last_id)
    if source.queue.is_drained:
        _write(f"{places.queue}/drain", b"")
    _write(os.fspath(places.config), source.config.data)
    if source.users is not None and source.users.data:
        documents.make_directory(places.rapi_users.parent, 0o700)
        _write(os.fspath(places.rapi_users), source.users.data, documents.SECRET_MODE)
    if source.pause is not None:
        _write(f"{places.data}/{watcher_pause.NAME}", source.pause)
    cut.flush_file_system(places.data)
    progress(total, total)


def _target(places: paths.Places, job: FoundJob) -> str:
    if not job.is_archived:
        return job_files.path(places.queue, job.id)
    folder = job_files.archive_folder(places.archive, job.id)
    if not os.path.isdir(folder):
        documents.make_directory(folder)
    return job_files.path(folder, job.id)


def _content(folder: read_only_source.Folder, found: FoundJob, now: jobs.Timestamp) -> bytes:
    data = folder.read(f"job-{found.id}")
    if not found.is_rewritten:
        return data
    job = job_files.read_job(data, found.id)
    import_decision.settle(job, found.fate, now)
    return jobs.encode_job(job)


def _write(path: str, data: bytes, mode: int = documents.FILE_MODE) -> None:
    with documents.storage_errors(path):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, mode)
        try:
            if data:
                documents.write_all(descriptor, data)
        finally:
            os.close(descriptor)


def _put_in_place(work: Path, data: Path) -> None:
    with documents.storage_errors(data):
        if data.exists():
            work.chmod(stat.S_IMODE(data.stat().st_mode))
        try:
            os.rename(work, data)
        except OSError as error:
            if error.errno in {errno.EBUSY, errno.EXDEV}:
                raise errors.DataDirectoryError(_mounted(data)) from error
            if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
                text = f"{data}: another program has used it meanwhile"
                raise errors.DataDirectoryError(text) from error
            raise
        documents.flush_directory(data.parent)


def _mounted(data: Path) -> str:
    return f"{data}: a file system is mounted there; name a directory inside it"
