"""Reads a queue directory: the journal first, then the job files, and decides each job's fate.

The order matters: a job file that was not flushed may be torn while the journal holds all of it.
So the states of the journal are written into the job files before any file counts as unreadable.
The file of a job whose process lives is left alone: that process is its only writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ...storage import documents, errors, jobs, lock_files, settings
from ...storage.queue_files import job_files, replay
from . import reconciling
from .job_table import JobTable, Phase, row_of
from .reconciling import Fate, Life

if TYPE_CHECKING:
    from pathlib import Path

    from ...storage.queue_files.job_files import QueueDirectory
    from ...storage.queue_files.journal import Journal


class Loaded(msgspec.Struct):
    """What a queue directory holds. ``living`` have a process; ``died`` lost theirs.

    ``unflushed_finals`` have ended, as their files say, but the journal knows only the earlier
    states that are here: until the file system has been flushed, the end may not be durable.
    ``unwritten`` and ``unarchived`` come from the journal, and the disk refused to take them.
    """

    table: JobTable
    living: dict[int, tuple[int, bytes]]
    died: list[jobs.Job]
    quarantined: list[str]
    unwritten: dict[int, tuple[int, bytes]]
    unarchived: list[int]
    last_id: int
    unflushed_finals: dict[int, tuple[int, bytes]] = {}
    refused_inputs: list[str] = []


def load(directory: QueueDirectory, queue_journal: Journal, daemon_lock: str) -> Loaded:
    """Everything in the directory, with the job files brought up to the journal.

    ``daemon_lock`` is this daemon's own lock file. A job that names it has no process yet: the job
    queue was replaced while the process was being made.
    """
    said = replay.read_journal(queue_journal)
    loaded = Loaded(JobTable(), {}, [], [], {}, [], 0)
    for job_id, state in said.archived.items():
        _archive_again(directory, job_id, state, loaded)
    names = directory.names()
    strange = directory.strange_names(names)
    loaded.quarantined += [f"{name}: no job has that number" for name in strange]
    loaded.quarantined += [_kept_aside(directory, path) for path in queue_journal.damaged()]
    ids = set(directory.live_ids(names)).difference(said.archived)
    ids |= {job_id for job_id in said.states if not _is_archived(directory, job_id)}
    for job_id in sorted(ids):
        try:
            job, body = replay.newest(directory, job_id, said.states.get(job_id))
            life = _life(job, daemon_lock)
            if life is Life.DEAD:
                # It may have written a final state, and left, after its file was read.
                job, body = replay.newest(directory, job_id, said.states.get(job_id))
        except errors.StorageError as error:
            loaded.quarantined.append(f"job-{job_id}: {error.text}")
            continue
        journaled = said.states.get(job_id)
        if life is not Life.ALIVE and journaled is not None and journaled[1] is body:
            _write(directory, job_id, journaled, loaded)
        if journaled is not None and _is_unflushed_final(job, body, journaled[0]):
            loaded.unflushed_finals[job_id] = journaled
        _add(loaded, job, body, life)
    recorded = max([said.last_id, *said.archived, *(row.id for row in loaded.table)])
    limit = recorded + settings.JOB_ID_JUMP_MAX
    named = (
        directory.read_serial(),
        directory.highest_archived_id(limit),
        directory.highest_quarantined_id(limit),
        *ids,
    )
    loaded.last_id = job_files.last_id(recorded, named)
    directory.remove_leftovers(set(loaded.living))
    loaded.refused_inputs = directory.settle_spool(ids)
    return loaded


def _kept_aside(directory: QueueDirectory, segment: Path) -> str:
    """Keep a copy of a segment whose rear part cannot be replayed; the text that names it."""
    target = directory.free_quarantine(segment.name)
    documents.replace(target, documents.read(segment) or b"", flush=True)
    return f"{segment.name}: there are records behind a damaged one; a copy is in {target}"


def _is_archived(directory: QueueDirectory, job_id: int) -> bool:
    """Whether the job lies in the archive; a file there that cannot be read does not count."""
    try:
        return directory.read_archived(job_id) is not None
    except errors.StorageError:
        return False


def _write(
    directory: QueueDirectory, job_id: int, state: tuple[int, bytes], loaded: Loaded
) -> None:
    """Write the state of the journal into the file; if the disk refuses, note the job."""
    try:
        directory.write(job_id, state[1], flush=False)
    except errors.StorageError:
        loaded.unwritten[job_id] = state


def _archive_again(
    directory: QueueDirectory, job_id: int, state: tuple[int, bytes] | None, loaded: Loaded
) -> None:
    """Move an archived job's file unless that is done."""
    try:
        replay.archive_again(directory, job_id, state)
    except errors.StorageError:
        loaded.unarchived.append(job_id)
        if state is not None:
            loaded.unwritten[job_id] = state


def _life(job: jobs.Job, daemon_lock: str) -> Life:
    if job.livelock == daemon_lock:
        job.livelock = None
    if job.livelock is None:
        return Life.NONE
    if not lock_files.is_dead(job.livelock):
        return Life.ALIVE
    # No executor watched it when it ended.
    lock_files.remove_dead(job.livelock)
    # The lock file of a daemon that died while the job's process was being made: there is none.
    return Life.NONE if lock_files.is_daemons(job.livelock) else Life.DEAD


def _is_unflushed_final(job: jobs.Job, body: bytes, journaled_serial: int) -> bool:
    """Whether the file holds a final state that was never flushed; large ones always are."""
    is_ahead = job.serial > journaled_serial
    return job.status.is_final and is_ahead and len(body) <= settings.JOURNALED_STATE_BYTES_MAX


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
