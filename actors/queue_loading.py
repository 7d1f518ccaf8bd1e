"""Reads a queue directory: journal first, then the job files, and what became of each job.

The order matters. What the journal acknowledged is put into the job files before any of
them is judged unreadable, because a file that was not flushed may be torn while the journal
holds all of it. The file of a job whose process lives is left alone: that process is its
only writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..storage import errors, job_files, jobs, journal, lock_files
from . import reconciling
from .job_table import JobTable, Phase, row_of
from .reconciling import Fate, Life

if TYPE_CHECKING:
    from ..storage.job_files import QueueDirectory
    from ..storage.journal import Journal


class Journaled(msgspec.Struct):
    """What the journal says: the newest state of each job, and the last id handed out."""

    states: dict[int, tuple[int, bytes]]
    archived: dict[int, tuple[int, bytes] | None]
    last_id: int


class Loaded(msgspec.Struct):
    """What a queue directory holds. ``living`` have a process; ``died`` lost theirs.

    ``unwritten`` and ``unarchived`` are known from the journal, and the disk refused them.
    """

    table: JobTable
    living: dict[int, tuple[int, bytes]]
    died: list[jobs.Job]
    quarantined: list[str]
    unwritten: dict[int, tuple[int, bytes]]
    unarchived: list[int]
    last_id: int


def load(directory: QueueDirectory, queue_journal: Journal, daemon_lock: str) -> Loaded:
    """Everything in the directory, with the job files brought up to the journal.

    ``daemon_lock`` is this daemon's own lock file: a job whose file names it was about to
    get a process when the job queue was replaced, and has none yet.
    """
    said = read_journal(queue_journal)
    loaded = Loaded(JobTable(), {}, [], [], {}, [], 0)
    for job_id, state in said.archived.items():
        _archive_again(directory, job_id, state, loaded)
    ids = set(directory.live_ids()).difference(said.archived)
    ids |= {job_id for job_id in said.states if directory.read_archived(job_id) is None}
    for job_id in sorted(ids):
        try:
            job, body = _newest(directory, job_id, said.states.get(job_id))
        except errors.StorageError as error:
            loaded.quarantined.append(f"job-{job_id}: {error.text}")
            continue
        if job.livelock == daemon_lock:
            job.livelock = None
        life = _life(job)
        journaled = said.states.get(job_id)
        if life is not Life.ALIVE and journaled is not None and journaled[1] is body:
            _write(directory, job_id, journaled, loaded)
        _add(loaded, job, body, life)
    loaded.last_id = max(
        said.last_id,
        directory.read_serial(),
        directory.highest_archived_id(),
        max(ids, default=0),
        max(said.archived, default=0),
    )
    directory.remove_leftovers(set(loaded.living))
    return loaded


def read_journal(queue_journal: Journal) -> Journaled:
    """The newest state of each job in the journal."""
    said = Journaled({}, {}, 0)
    for record in queue_journal.replay():
        match record:
            case journal.SegmentBegun():
                said.last_id = max(said.last_id, record.last_id)
            case journal.JobsStored():
                for job_id, serial, body in record.jobs:
                    _note(said, job_id, serial, body)
            case journal.StateStored():
                _note(said, record.job_id, record.serial, record.body)
            case journal.JobArchived():
                # A job archived once more, for two who asked at the same time, adds nothing.
                known = said.archived.get(record.job_id)
                said.archived[record.job_id] = said.states.pop(record.job_id, known)
    return said


def _note(said: Journaled, job_id: int, serial: int, body: bytes) -> None:
    said.last_id = max(said.last_id, job_id)
    known = said.states.get(job_id)
    if known is None or serial > known[0]:
        said.states[job_id] = (serial, body)


def _write(
    directory: QueueDirectory, job_id: int, state: tuple[int, bytes], loaded: Loaded
) -> None:
    """Bring the file up to the journal. A refusing disk must not make an unreadable job of it."""
    try:
        directory.write(job_id, state[1], flush=False)
    except errors.StorageError:
        loaded.unwritten[job_id] = state


def _archive_again(
    directory: QueueDirectory, job_id: int, state: tuple[int, bytes] | None, loaded: Loaded
) -> None:
    """Move an archived job's file unless that is done; a power loss may have torn or lost it."""
    try:
        live = directory.read(job_id)
        if state is not None and not _is_whole(live, job_id):
            if live is None and _is_whole(directory.read_archived(job_id), job_id):
                return
            directory.write(job_id, state[1], flush=False)
        directory.archive(job_id)
    except errors.StorageError:
        loaded.unarchived.append(job_id)
        if state is not None:
            loaded.unwritten[job_id] = state


def _is_whole(body: bytes | None, job_id: int) -> bool:
    try:
        return body is not None and job_files.read_job(body, job_id).status.is_final
    except errors.StorageError:
        return False


def _life(job: jobs.Job) -> Life:
    if job.livelock is None:
        return Life.NONE
    if not lock_files.is_dead(job.livelock):
        return Life.ALIVE
    # Named by a daemon that died while the job's process was being made: there is none.
    return Life.NONE if lock_files.is_daemons(job.livelock) else Life.DEAD


def _add(loaded: Loaded, job: jobs.Job, body: bytes, life: Life) -> None:
    match reconciling.fate([op.status for op in job.ops], life):
        case Fate.KEEP:
            loaded.table.add(row_of(job, Phase.ENDED))
        case Fate.ADOPT:
            loaded.table.add(row_of(job, Phase.HANDED_OVER))
            loaded.living[job.id] = (job.serial, body)
        case Fate.ENQUEUE:
            job.livelock = None
            loaded.table.add(row_of(job, Phase.PENDING))
        case Fate.FAIL:
            loaded.table.add(row_of(job, Phase.ENDED))
            loaded.died.append(job)


def _newest(
    directory: QueueDirectory, job_id: int, journaled: tuple[int, bytes] | None
) -> tuple[jobs.Job, bytes]:
    """The job as the file or the journal has it, whichever is newer."""
    try:
        on_disk = directory.read(job_id)
        job = None if on_disk is None else job_files.read_job(on_disk, job_id)
    except errors.StorageError:
        if journaled is None:
            raise
        on_disk, job = None, None
    if job is None or (journaled is not None and journaled[0] > job.serial):
        if journaled is None:
            raise errors.StorageError("the file has gone")
        return job_files.read_job(journaled[1], job_id), journaled[1]
    assert on_disk is not None
    return job, on_disk
