"""What the journal says of each job, and whether its word or that of the job file is newer.

The daemon's start and ``ganger fsck`` bring job files up to the journal by the same rules,
which are here; what becomes of the jobs then is not.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from .. import errors, jobs
from . import job_files, journal

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from .job_files import QueueDirectory
    from .journal import Journal

State = tuple[int, bytes]
"""The serial of a job's state, and the text of its file."""


class JournalContent(msgspec.Struct):
    """What the journal says: the newest state of each job, and the last id handed out."""

    states: dict[int, State]
    archived: dict[int, State | None]
    last_id: int


def read_journal(queue_journal: Journal) -> JournalContent:
    """The newest state of each job in the journal."""
    journaled = JournalContent({}, {}, 0)
    for record in queue_journal.replay():
        match record:
            case journal.SegmentBegun():
                journaled.last_id = max(journaled.last_id, record.last_id)
            case journal.JobsStored():
                for job_id, serial, body in record.jobs:
                    _note(journaled, job_id, serial, body)
            case journal.StateStored():
                _note(journaled, record.job_id, record.serial, record.body)
            case journal.JobArchived():
                # A job archived once more, for two who asked at the same time, adds nothing.
                known = journaled.archived.get(record.job_id)
                journaled.archived[record.job_id] = journaled.states.pop(record.job_id, known)
    return journaled


def _note(journaled: JournalContent, job_id: int, serial: int, body: bytes) -> None:
    journaled.last_id = max(journaled.last_id, job_id)
    known = journaled.states.get(job_id)
    if known is None or serial > known[0]:
        journaled.states[job_id] = (serial, body)


def is_ahead(journaled: int | None, in_file: int | None) -> bool:
    """Whether the journal's state counts, by the serials; None: there is none to be read."""
    return journaled is not None and (in_file is None or journaled > in_file)


def newest(
    directory: QueueDirectory, job_id: int, journaled: State | None
) -> tuple[jobs.Job, bytes]:
    """The job as the file or the journal has it, whichever is newer.

    The text is the very object in ``journaled`` if that one counts.
    """
    try:
        on_disk = directory.read(job_id)
        job = None if on_disk is None else job_files.read_job(on_disk, job_id)
    except errors.StorageError:
        if journaled is None:
            raise
        on_disk, job = None, None
    if journaled is not None and is_ahead(journaled[0], None if job is None else job.serial):
        return job_files.read_job(journaled[1], job_id), journaled[1]
    if job is None or on_disk is None:
        raise errors.StorageError("the file has gone")
    return job, on_disk


def archive_again(directory: QueueDirectory, job_id: int, state: State | None) -> None:
    """Move an archived job's file unless that is done; a power loss may have torn or lost it."""
    live = _readable(lambda: directory.read(job_id))
    archived = _readable(lambda: directory.read_archived(job_id)) if live is None else None
    if not needs_archiving(
        is_live=live is not None,
        is_journaled=state is not None,
        is_archived=is_whole(archived, job_id),
    ):
        return
    if state is not None and not is_whole(live, job_id):
        directory.write(job_id, state[1], flush=False)
    directory.archive(job_id)


def write_anew(
    directory: QueueDirectory, journaled: JournalContent, left_out: Container[int]
) -> None:
    """Write every file that the journal covers once more: what is on the disk is in doubt.

    A failed flush leaves pages that can be read, are not on the disk, and count as clean: only
    what is written again is flushed again. ``left_out`` are jobs whose files others write.
    """
    for job_id, state in journaled.states.items():
        if job_id not in left_out:
            write_file_anew(directory, job_id, state)
    for job_id, archived in journaled.archived.items():
        if archived is not None:
            _write_archived_anew(directory, job_id, archived)


def write_file_anew(directory: QueueDirectory, job_id: int, state: State) -> None:
    """Write a live job's file once more, from the file or the journal; `StorageError`."""
    try:
        job, body = newest(directory, job_id, state)
    except errors.StorageError:
        # No job at all: named when it was loaded, and left alone since.
        return
    if body is state[1] and _readable(lambda: directory.read_archived(job_id)) is not None:
        # It was moved there before this journal began.
        return
    # Of a state that the journal does not have, there must be a whole file at any moment.
    directory.write(job_id, body, flush=job.serial > state[0])


def _write_archived_anew(directory: QueueDirectory, job_id: int, state: State) -> None:
    found = _readable(lambda: directory.read_archived(job_id))
    if found is None:
        return
    body, is_newer = state[1], False
    with contextlib.suppress(errors.StorageError):
        if (job := job_files.read_job(found, job_id)).status.is_final:
            body, is_newer = found, job.serial > state[0]
    directory.write_archived(job_id, body, flush=is_newer)


def _readable(read: Callable[[], bytes | None]) -> bytes | None:
    """What ``read`` gives; something in the file's place that cannot be read counts as torn."""
    try:
        return read()
    except errors.StorageError:
        return b""


def needs_archiving(*, is_live: bool, is_journaled: bool, is_archived: bool) -> bool:
    """Whether there is something left to do for a job that the journal has archived.

    ``is_archived`` says that its file lies whole in the archive.
    """
    return is_live or (is_journaled and not is_archived)


def is_whole(body: bytes | None, job_id: int) -> bool:
    """Whether this is the text of this job's file, at its end."""
    try:
        return body is not None and job_files.read_job(body, job_id).status.is_final
    except errors.StorageError:
        return False
