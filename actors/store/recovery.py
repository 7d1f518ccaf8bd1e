"""Reads a queue directory: the journal first, then the job files, and decides each job's fate.

The order matters: a job file that was not flushed may be torn while the journal holds all of it.
So the states of the journal are written into the job files before any file counts as unreadable.
The file of a job whose process lives is left alone: that process is its only writer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...storage.alive import lock_files, process_identity
from ...storage.jobs import jobs
from ...storage.nodes import task_marks
from ...storage.queue_files import compaction, job_files, read_back, removal, replay, spool
from . import reconciling
from .job_classes import row_of
from .job_rows import Phase
from .lazy_rows import RowLoader
from .loaded import Loaded
from .reconciling import Fate, Life

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...storage.log.journal import Journal
    from ...storage.queue_files.job_files import QueueDirectory
    from .job_rows import Row

    Progress = Callable[[str, int, int], None]
    """Takes what is being done, and with how many jobs of how many; 0: not counted."""

PROGRESS_JOBS = 1_000
"""After how many jobs a start tells how far it is."""


def load(
    directory: QueueDirectory,
    queue_journal: Journal,
    daemon_lock: str,
    progress: Progress = lambda *_: None,
) -> Loaded:
    """Everything in the directory. What job files lack of the journal is noted for the ledger.

    ``daemon_lock`` is this daemon's own lock file. A job that names it has no process yet: the job
    queue was replaced while the process was being made. ``progress`` is called again and again.
    """
    compaction.give_up_predecessor(directory)
    progress("reading the journal", 0, 0)
    said = replay.read_journal(queue_journal)
    loaded = Loaded(archived=said.archived, position=said.position, changes=said.changes)
    loaded.journaled = len(said.states) + len(said.archived)
    for job_id, state in said.archived.items():
        _archive_again(directory, job_id, state, loaded)
    progress("listing the queue", 0, 0)
    names = directory.names()
    _remove_purged(directory, said.purged, names, loaded)
    strange = directory.strange_names(names)
    loaded.quarantined += [f"{name}: no job has that number" for name in strange]
    loaded.quarantined += directory.keep_damaged(said.damaged)
    in_files = set(directory.live_ids(names)).difference(said.archived, said.purged)
    ids = in_files | _only_in_journal(directory, said, in_files, loaded)
    loader = _JobLoader(directory, said, loaded, daemon_lock)
    for job_id in _told(ids, progress):
        loader.load(job_id, is_in_file=job_id in in_files)
    progress("looking through the archive", 0, 0)
    loaded.refused_inputs = directory.settle_spool(ids)
    loaded.last_id = _last_id(directory, said, loaded, ids)
    directory.remove_leftovers(set(loaded.living), names)
    return loaded


class _JobLoader:
    """Loads one job after the other into what the directory holds."""

    def __init__(
        self,
        directory: QueueDirectory,
        said: replay.JournalContent,
        loaded: Loaded,
        daemon_lock: str,
    ) -> None:
        self._directory = directory
        self._said = said
        self._loaded = loaded
        self._daemon_lock = daemon_lock
        self._quick = RowLoader(loaded.unread)

    def load(self, job_id: int, *, is_in_file: bool) -> None:
        """Load a job, or note why that is not possible."""
        loaded, journaled = self._loaded, self._said.states.get(job_id)
        try:
            text = body = _text(self._directory, job_id, journaled, is_in_file=is_in_file)
            row = None if body is None else self._quick.row(job_id, body)
            if row is not None and body is not None and _is_newest(row, body, journaled):
                loaded.table.add(row)
                _note_files(loaded, (row.id, row.serial, body), journaled)
                self._note_lost(job_id, row.serial)
                return
            job, body = replay.newest_of(body, job_id, journaled)
            if is_in_file and body is not text and not _is_readable(text, job_id):
                body = self._with_process(job, body)
            life = _life(job, self._daemon_lock, loaded)
            if life is Life.DEAD:
                # It may have written a final state, and left, after its file was read.
                job, body = replay.newest(self._directory, job_id, journaled)
        except errors.StorageError as error:
            loaded.quarantined.append(f"job-{job_id}: {error.text}")
            return
        if life is not Life.ALIVE:
            _note_files(loaded, (job.id, job.serial, body), journaled)
        self._note_lost(job_id, job.serial)
        if journaled is not None and _is_unflushed_final(job, body, journaled[0]):
            loaded.unflushed_finals[job.id] = journaled
        _note_mended(loaded, job, text, body, life)
        _add(loaded, job, body, life)
        self._quick.note_decoded()

    def _with_process(self, job: jobs.Job, body: bytes) -> bytes:
        """The text of the job with its process, if one lives that only the lost file has named.

        The disk has refused the file after the hand-over, of which the journal knows nothing: the
        job would be started again beside that process.
        """
        found = None
        if job.livelock is None and not job.status.is_final:
            found = lock_files.living_of_job(Path(self._daemon_lock).parent, job.id)
        if found is None:
            return body
        job.livelock = found
        identity = lock_files.identity_of(found)
        job.process_id = None if identity is None else identity.pid
        return jobs.encode_job(job)

    def _note_lost(self, job_id: int, serial: int) -> None:
        """Name the job if its file has lost a state that the journal names, but does not hold."""
        filed, _ = self._said.filed.get(job_id, (0, b""))
        if serial < filed:
            lost = f"its state {filed}, which only its file had, is lost; it goes on from {serial}"
            self._loaded.quarantined.append(f"job-{job_id}: {lost}")


def _told(ids: set[int], progress: Progress) -> Iterator[int]:
    """These jobs in order; ``progress`` is called at every thousandth."""
    for place, job_id in enumerate(sorted(ids)):
        if not place % PROGRESS_JOBS:
            progress("reading the queue", place, len(ids))
        yield job_id


def _last_id(
    directory: QueueDirectory, said: replay.JournalContent, loaded: Loaded, ids: set[int]
) -> int:
    """The highest id that was ever given."""
    recorded = max([said.last_id, *said.archived, *(row.id for row in loaded.table)])
    limit = recorded + settings.JOB_ID_JUMP_MAX
    named = (
        directory.read_serial(),
        directory.highest_archived_id(limit),
        directory.highest_quarantined_id(limit),
        *ids,
        # They may be deleted later: no other job must get them.
        *(spool.owner_of(name) for name in loaded.refused_inputs),
    )
    return job_files.last_id(recorded, named)


def _text(
    directory: QueueDirectory, job_id: int, journaled: replay.State | None, *, is_in_file: bool
) -> bytes | None:
    """The text of the job's file, or that of the journal if there is no file."""
    if not is_in_file and journaled is not None:
        return journaled[1]
    try:
        return directory.read(job_id)
    except errors.StorageError:
        if journaled is None:
            raise
        return None


def _is_readable(text: bytes | None, job_id: int) -> bool:
    """Whether the text is that of this job, whole."""
    try:
        return text is not None and job_files.read_job(text, job_id).id == job_id
    except errors.StorageError:
        return False


def _is_newest(row: Row, body: bytes, journaled: replay.State | None) -> bool:
    """Whether the journal has no newer text than this one, of a job with this row."""
    if journaled is None or journaled[1] is body:
        return True
    return not replay.is_ahead(journaled[0], row.serial)


def _note_files(
    loaded: Loaded, found: tuple[int, int, bytes], journaled: replay.State | None
) -> None:
    """Note whether the job's file has the state of the journal, an older one, or a newer one.

    ``found``: id, serial and text of the job's newest state.
    """
    if journaled is None:
        return
    job_id, serial, body = found
    if journaled[1] is body:
        loaded.unwritten[job_id] = serial, body
    elif serial > journaled[0]:
        loaded.ahead[job_id] = serial, body
    else:
        loaded.written[job_id] = serial, body


def _only_in_journal(
    directory: QueueDirectory, said: replay.JournalContent, in_files: set[int], loaded: Loaded
) -> set[int]:
    """The jobs that have no file yet.

    Others have a file in the archive, readable or not, so they have ended: a job is archived after
    that. The journal is damaged, or begins later. Its older states must not start them again.
    """
    ids = said.states.keys() - in_files
    archived = directory.archived_among(ids)
    for job_id in sorted(archived):
        _settle_archived(directory, said, job_id, loaded)
    return ids - archived


def _settle_archived(
    directory: QueueDirectory, said: replay.JournalContent, job_id: int, loaded: Loaded
) -> None:
    """Mend the archived file if the journal has how the job ended; otherwise leave it alone.

    The state that the journal has goes into quarantine then: it may be all that is left.
    """
    state = said.states[job_id]
    found = replay.readable(lambda: directory.read_archived(job_id))
    if found is None or read_back.is_as_new(found, job_id, state):
        return
    if replay.is_whole(state[1], job_id):
        said.archived[job_id] = said.states.pop(job_id)
        _archive_again(directory, job_id, state, loaded)
        return
    loaded.given_up.add(job_id)
    if not replay.is_whole(found, job_id):
        name = job_files.path(f"archive/{job_id // job_files.ARCHIVE_FOLDER_JOBS}", job_id)
        kept = directory.keep_state(job_id, state[1])
        lost = "cannot be read, and the journal has only a state from before its end"
        loaded.quarantined.append(f"{name}: {lost}, now {kept}")


def _note_mended(
    loaded: Loaded, job: jobs.Job, found: bytes | None, body: bytes, life: Life
) -> None:
    """Note the job if its file is damaged, and the journal has made up for that."""
    if found is None or found is body or life is Life.ALIVE:
        return
    if job_files.is_damaged(found):
        loaded.mended.append(job.id)


def _remove_purged(
    directory: QueueDirectory, purged: set[int], names: list[str], loaded: Loaded
) -> None:
    """Remove what a crash has left of purged jobs."""
    loaded.purged = purged
    for job_id, path in removal.left_of(directory.places, purged, names):
        try:
            removal.close(removal.remove([path]))
        except errors.StorageError:
            loaded.unremoved.setdefault(job_id, []).append(path)


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


def _life(job: jobs.Job, daemon_lock: str, loaded: Loaded) -> Life:
    if job.livelock == daemon_lock:
        job.livelock = None
    if job.livelock is None:
        return Life.NONE
    if not lock_files.is_dead(job.livelock):
        return Life.ALIVE
    if not job.status.is_final and (
        _marks_again(job, loaded) or task_marks.is_marked(job.livelock)
    ):
        # Its task on a node may live: the executor has that ended before the job ends.
        return Life.ALIVE
    # No executor watched it when it ended.
    lock_files.remove_dead(job.livelock)
    # The lock file of a daemon that died while the job's process was being made: there is none.
    return Life.NONE if lock_files.is_daemons(job.livelock) else Life.DEAD


def _marks_again(job: jobs.Job, loaded: Loaded) -> bool:
    """Mark the job's task on a node, if the machine was restarted: the mark was not flushed."""
    assert job.livelock is not None
    identity, task = lock_files.identity_of(job.livelock), task_marks.jobs_task(job)
    if identity is None or task is None or identity.boot == process_identity.boot():
        return False
    try:
        task_marks.write_again(job.livelock, task)
    except errors.StorageError:
        # A full disk must not keep the daemon from starting.
        return False
    loaded.has_marked = True
    return True


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
