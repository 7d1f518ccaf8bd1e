"""The newest state of each job in the journal, and whether it is newer than the job file.

The daemon's start and ``ganger fsck`` both use these rules to bring job files up to the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from .. import errors
from ..disk import documents
from ..jobs import jobs
from ..log import records
from ..log.logged_changes import LoggedChanges
from . import job_files

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping
    from pathlib import Path

    from ..log.journal import Journal
    from ..log.records import Record
    from .job_files import QueueDirectory

State = tuple[int, bytes]
"""The serial of a job's state, and the text of its file."""


class JournalContent(msgspec.Struct):
    """The newest state of each job in the journal, the archived jobs, and the last id given.

    ``filed``: the newest states that only files have: serial and digest. ``purged``: the jobs that
    are gone for good, of which no other record counts. ``position``: of the last record.
    ``changes``: those of the configuration. ``damaged``: the segments with whole records behind
    damaged bytes.
    """

    states: dict[int, State]
    archived: dict[int, State | None]
    last_id: int
    filed: dict[int, tuple[int, bytes]] = {}
    purged: set[int] = set()
    position: int = 0
    changes: LoggedChanges = msgspec.field(default_factory=LoggedChanges)
    damaged: list[Path] = []

    def note(self, record: Record) -> None:
        """Take in the next record."""
        if isinstance(record, records.SegmentBegun):
            self.last_id = max(self.last_id, record.last_id)
            self.position = max(self.position, record.position - 1)
            return
        self.position += 1
        match record:
            case records.JobsStored():
                for job_id, serial, body in record.jobs:
                    self._note_state(job_id, serial, body)
            case records.StateStored():
                self._note_state(record.job_id, record.serial, record.body)
            case records.StateFiled() if record.job_id not in self.purged:
                self.last_id = max(self.last_id, record.job_id)
                if record.serial > self.filed.get(record.job_id, (0,))[0]:
                    self.filed[record.job_id] = record.serial, record.digest
            case records.JobArchived() if record.job_id not in self.purged:
                # A second record, after two requests at the same time, adds nothing.
                self.filed.pop(record.job_id, None)
                known = self.archived.get(record.job_id)
                self.archived[record.job_id] = self.states.pop(record.job_id, known)
            case records.JobsPurged():
                self._purge(record.ids)
            case records.ConfigChanged() | records.ConfigWritten():
                self.changes.note(record)

    def _purge(self, ids: list[int]) -> None:
        self.last_id = max(self.last_id, *ids)
        self.purged.update(ids)
        for job_id in ids:
            self.states.pop(job_id, None)
            self.filed.pop(job_id, None)
            self.archived.pop(job_id, None)

    def _note_state(self, job_id: int, serial: int, body: bytes) -> None:
        if job_id in self.purged:
            return
        self.last_id = max(self.last_id, job_id)
        known = self.states.get(job_id)
        if known is None or serial > known[0]:
            self.states[job_id] = (serial, body)


def read_journal(queue_journal: Journal) -> JournalContent:
    """Replay the journal.

    A record behind damaged bytes does not count, but its ids may have been given to somebody: no
    other job must get them.
    """
    journaled, lost = content_of(()), content_of(())
    for path in queue_journal.segments():
        content = records.RECORDS.content(documents.read(path) or b"", path)
        for record in content.records:
            journaled.note(record)
        for record in content.left_out:
            lost.note(record)
        if content.tail is not None and content.tail.has_records:
            journaled.damaged.append(path)
    journaled.last_id = max(journaled.last_id, lost.last_id)
    return journaled


def content_of(read: Iterable[Record]) -> JournalContent:
    """What these records say together."""
    journaled = JournalContent({}, {}, 0)
    for record in read:
        journaled.note(record)
    return journaled


def is_ahead(journaled: int | None, in_file: int | None) -> bool:
    """Whether the journal has the newer state, by the serials; None: there is no readable one."""
    return journaled is not None and (in_file is None or journaled > in_file)


def newest(
    directory: QueueDirectory, job_id: int, journaled: State | None
) -> tuple[jobs.Job, bytes]:
    """The newer state of the job, from its file or the journal.

    The returned text is the object in ``journaled`` if the journal is newer.
    """
    try:
        on_disk = directory.read(job_id)
    except errors.StorageError:
        if journaled is None:
            raise
        on_disk = None
    return newest_of(on_disk, job_id, journaled)


def newest_of(
    on_disk: bytes | None, job_id: int, journaled: State | None
) -> tuple[jobs.Job, bytes]:
    """As `newest`; ``on_disk`` is the content of the job's file, if it could be read."""
    try:
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
    """Move an archived job's file again if a power loss has undone that, or has torn the file.

    Also if the file there is older than the journal: somebody has put a copy back.
    """
    serial = 0 if state is None else state[0]
    live = readable(lambda: directory.read(job_id))
    archived = readable(lambda: directory.read_archived(job_id)) if live is None else None
    if not needs_archiving(
        is_live=live is not None,
        is_journaled=state is not None,
        is_archived=is_whole(archived, job_id, serial),
    ):
        return
    if state is not None and not is_whole(live, job_id, serial):
        directory.write(job_id, state[1], flush=False)
    directory.archive(job_id)


def write_anew(
    directory: QueueDirectory, journaled: JournalContent, left_out: Container[int]
) -> None:
    """Write every file that the journal covers again, after a failed flush.

    The kernel counts pages that it failed to flush as clean, though they are not on the disk: only
    a new write brings them there, into another file (`inodes`). What is written comes from the
    journal, or from the disk itself: never from such a page. ``left_out`` are jobs whose files
    other processes write.
    """
    directory.spares.renew()
    for job_id, state in journaled.states.items():
        if job_id not in left_out:
            write_file_anew(directory, job_id, state)
    write_archived_anew(directory, journaled.archived)


def write_archived_anew(directory: QueueDirectory, archived: Mapping[int, State | None]) -> None:
    """As `write_anew`, of the archived jobs alone."""
    for job_id, state in archived.items():
        if state is not None:
            write_archived_file_anew(directory, job_id, state)


def write_file_anew(directory: QueueDirectory, job_id: int, state: State) -> None:
    """Write a live job's file again, from the disk or the journal; may raise `StorageError`."""
    directory.drop_pages(job_id)
    try:
        job, body = newest(directory, job_id, state)
    except errors.StorageError:
        # No readable job: recovery has reported it, and leaves it alone.
        return
    if body is state[1] and readable(lambda: directory.read_archived(job_id)) is not None:
        # The job was archived before this journal began.
        return
    # If the journal lacks this state, the file must be whole at every moment.
    directory.write(job_id, body, flush=job.serial > state[0])


def write_archived_file_anew(directory: QueueDirectory, job_id: int, state: State) -> None:
    """As `write_file_anew`, of an archived job."""
    directory.drop_archived_pages(job_id)
    found = readable(lambda: directory.read_archived(job_id))
    if found is None:
        return
    serial, body = state
    is_newer = is_whole(found, job_id, serial + 1)
    if is_whole(found, job_id, serial):
        body = found
    directory.write_archived(job_id, body, flush=is_newer)


def readable(read: Callable[[], bytes | None]) -> bytes | None:
    """What ``read`` gives; an unreadable file counts as torn."""
    try:
        return read()
    except errors.StorageError:
        return b""


def needs_archiving(*, is_live: bool, is_journaled: bool, is_archived: bool) -> bool:
    """Whether a job that the journal has archived must still be moved.

    ``is_archived``: its file lies whole in the archive.
    """
    return is_live or (is_journaled and not is_archived)


def is_whole(body: bytes | None, job_id: int, serial: int = 0) -> bool:
    """Whether this is the whole text of this job's file, with a final status.

    And no older state than ``serial``.
    """
    if body is None:
        return False
    try:
        job = job_files.read_job(body, job_id)
    except errors.StorageError:
        return False
    return job.status.is_final and job.serial >= serial
