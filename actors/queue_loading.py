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
    archived: set[int]
    last_id: int


class Loaded(msgspec.Struct):
    """What a queue directory holds. ``living`` have a process; ``died`` lost theirs."""

    table: JobTable
    living: dict[int, tuple[int, bytes]]
    died: list[jobs.Job]
    quarantined: list[str]
    last_id: int


def load(directory: QueueDirectory, queue_journal: Journal, daemon_lock: str) -> Loaded:
    """Everything in the directory, with the job files brought up to the journal.

    ``daemon_lock`` is this daemon's own lock file: a job whose file names it was about to
    get a process when the job queue was replaced, and has none yet.
    """
    said = read_journal(queue_journal)
    for job_id in said.archived:
        if directory.read(job_id) is not None:
            directory.archive(job_id)
    ids = set(directory.live_ids())
    ids |= {job_id for job_id in said.states if directory.read_archived(job_id) is None}
    loaded = Loaded(JobTable(), {}, [], [], 0)
    for job_id in sorted(ids):
        try:
            job, body = _newest(directory, job_id, said.states.get(job_id))
            if job.livelock == daemon_lock:
                job.livelock = None
            life = _life(job)
            state = said.states.get(job_id)
            if life is not Life.ALIVE and state is not None and state[1] is body:
                directory.write(job_id, body, flush=False)
            _add(loaded, job, body, life)
        except errors.StorageError as error:
            loaded.quarantined.append(f"job-{job_id}: {error.text}")
    loaded.last_id = max(
        said.last_id,
        directory.read_serial(),
        directory.highest_archived_id(),
        max(ids, default=0),
    )
    directory.remove_leftovers(set(loaded.living))
    return loaded


def read_journal(queue_journal: Journal) -> Journaled:
    """The newest state of each job in the journal."""
    said = Journaled({}, set(), 0)
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
                said.archived.add(record.job_id)
                said.states.pop(record.job_id, None)
    return said


def _note(said: Journaled, job_id: int, serial: int, body: bytes) -> None:
    said.last_id = max(said.last_id, job_id)
    known = said.states.get(job_id)
    if known is None or serial > known[0]:
        said.states[job_id] = (serial, body)


def _life(job: jobs.Job) -> Life:
    if job.livelock is None:
        return Life.NONE
    return Life.DEAD if lock_files.is_dead(job.livelock) else Life.ALIVE


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
