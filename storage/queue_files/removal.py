"""What jobs take on disk, and how all of that goes: a job's own file, its output, large input.

Decides nothing. The queue has recorded that the job is purged before it removes anything, so that a
start removes what a crash has left (`left_of`).
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import msgspec

from ..disk import documents
from ..jobs import jobs
from . import job_files, output_files, spool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from ..disk.paths import Places

LARGE_BYTES = 64 * 1024 * 1024
"""To free a larger file takes long, so a thread does it."""

_FREED_BYTES_MIN = 4096
_BLOCK_BYTES = 512
"""The unit of ``st_blocks``."""


class JobFiles:
    """Finds the files of jobs; of many in the order of their ids, it lists each folder once."""

    def __init__(self, places: Places, live_inputs: Callable[[int], Iterable[str]]) -> None:
        """``live_inputs`` names the files with the standard input of a live job."""
        self._queue = os.fspath(places.queue)
        self._archive = os.fspath(places.archive)
        self._live_inputs = live_inputs
        self._listed = ""
        self._inputs: dict[int, list[str]] = {}

    def of(self, job_id: int) -> dict[str, int]:
        """The files of the job, its own first, each with the bytes that it takes on the disk."""
        found = {}
        for path in self.paths(job_id):
            with contextlib.suppress(OSError):
                found[path] = os.lstat(path).st_blocks * _BLOCK_BYTES
        return found

    def paths(self, job_id: int) -> list[str]:
        """Where the files of the job may be, its own first: it may be archived meanwhile."""
        folder = job_files.archive_folder(self._archive, job_id)
        if folder != self._listed:
            self._listed, self._inputs = folder, _inputs_in(folder)
        inputs = sorted({*self._live_inputs(job_id), *self._inputs.get(job_id, ())})
        places = self._queue, folder
        found = [job_files.path(place, job_id) for place in places]
        for place in places:
            beside = spool.folder(place)
            found.append(f"{beside}/{spool.output_name(job_id)}")
            found += [f"{beside}/{name}" for name in inputs]
        return found


class _End(msgspec.Struct):
    end_timestamp: tuple[int, int] | None = None


_decode_end = msgspec.json.Decoder(_End).decode


def ended_at(body: bytes) -> float | None:
    """When the job with this text ended, in seconds since the epoch; None: it does not say."""
    try:
        return jobs.seconds(_decode_end(body).end_timestamp)
    except msgspec.DecodeError:
        return None


def remove(paths: Iterable[str]) -> list[int]:
    """Remove these files, as far as they are there. `StorageError` if the disk refuses.

    Returns descriptors of large ones: their space is free when a thread has closed them.
    """
    large: list[int] = []
    try:
        for path in paths:
            with documents.storage_errors(path), contextlib.suppress(FileNotFoundError):
                if os.lstat(path).st_size > LARGE_BYTES:
                    large.append(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC))
                # Something else may lie in its place, which is not ours.
                with contextlib.suppress(IsADirectoryError):
                    os.unlink(path)
    except BaseException:
        close(large)
        raise
    return large


def make_room(paths: Iterable[str]) -> None:
    """Of a job's files, remove input, and output but for a mark that says so; the job stays.

    What takes one block at most stays, too. `StorageError` if the disk refuses.
    """
    for path in paths:
        folder, name = os.path.split(path)
        if os.path.basename(folder) != spool.FOLDER:
            continue
        with contextlib.suppress(FileNotFoundError):
            if os.lstat(path).st_blocks * _BLOCK_BYTES <= _FREED_BYTES_MIN:
                continue
            is_output = name == spool.output_name(spool.owner_of(name))
            if not (is_output and output_files.leave_mark(path)):
                close(remove([path]))


def close(large: Iterable[int]) -> None:
    """Free the space of large files that were removed."""
    for descriptor in large:
        os.close(descriptor)


def left_of(
    places: Places, purged: Collection[int], names: Iterable[str]
) -> Iterator[tuple[int, str]]:
    """The files of these jobs that are still there, each with its job.

    ``names``: what the queue directory holds.
    """
    if not purged:
        return
    archive = os.fspath(places.archive)
    folders = sorted({job_files.archive_folder(archive, job_id) for job_id in purged})
    listed = ((folder, documents.names_in(folder)) for folder in folders)
    for folder, found in ((os.fspath(places.queue), names), *listed):
        for name in found:
            job_id = job_files.id_of(name)
            if job_id is not None and job_id in purged:
                yield job_id, f"{folder}/{name}"
        for path, name in spool.files_in(folder):
            if (job_id := spool.owner_of(name)) in purged:
                yield job_id, path


def _inputs_in(folder: str) -> dict[int, list[str]]:
    """The files with standard input beside the jobs of a folder of the archive."""
    found: dict[int, list[str]] = {}
    for _, name in spool.files_in(folder):
        spooled = spool.parse_name(name)
        if spooled is not None and spooled.op_index is not None:
            found.setdefault(spooled.job_id, []).append(name)
    return found
