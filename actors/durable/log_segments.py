"""The segments of the log: which states they answer for, and when the oldest may go.

A segment that is full, or behind which many files are missing, is *sealed*: a new one follows it,
which begins with the states of jobs whose files other processes may change, and with the changes
that ``config.data`` may lack. The compactor writes what the sealed one covers into files, and
deletes it (`storage/queue_files/compaction` has the invariants). Others may be sealed meanwhile, up
to `settings.SEALED_SEGMENTS_MAX`: then turns wait for the compactor.

A start that finds many jobs in the journal reads them, begins a segment beside those of its
predecessor, and gives these to the compactor. After a failed flush, or when there are few jobs, the
queue does all of it in one turn (`LogSegments.renew`).
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, NamedTuple

from ...storage import errors, settings
from ...storage.log.logged_changes import LoggedChanges
from ...storage.log.records import ConfigWritten, JobsPurged, StateStored
from ...storage.queue_files import read_back, removal, replay
from ...storage.queue_files.compaction import Compaction
from .file_writer import parts
from .purged_jobs import PurgedJobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ...storage.log.cut import Check, Cut
    from ...storage.log.journal import Journal
    from ...storage.log.segment_ahead import SegmentAhead
    from ...storage.queue_files.job_files import QueueDirectory
    from .disk_state import DiskState
    from .file_writer import FileWriter, State
    from .recovered import Recovered


def _nothing() -> None:
    """Nothing is left to be done."""


class InThread(NamedTuple):
    """What another thread does, if there is one; None: it is done in turns."""

    compact: Callable[[Compaction, Cut], None] | None
    """Have sealed segments compacted; `LogSegments.was_compacted` follows."""

    make: Callable[[SegmentAhead], None] | None
    """Have a segment made ahead."""


class LogSegments:
    """Begins segments, has sealed ones compacted, and knows which jobs the newest answers for.

    Nothing of it commits: whoever calls `renew` or `seal` sees to it that no record waits.
    """

    def __init__(
        self,
        directory: QueueDirectory,
        journal: Journal,
        disk: DiskState,
        files: FileWriter,
        *,
        in_thread: InThread,
        last_id: Callable[[], int],
    ) -> None:
        """``last_id`` gives the highest id of a job that was given out."""
        self._directory = directory
        self._journal = journal
        self._disk = disk
        self._files = files
        self._in_thread = in_thread
        self._last_id = last_id
        self.changes = LoggedChanges()
        """The changes of the configuration that ``config.data`` may lack: each segment has them."""

        self.is_doubtful = False
        """Whether the next attempt writes everything anew, since a flush of it failed."""

        self.is_adopted = False
        """Whether we went on in the last segment, since there was no room for another one."""

        self.is_fresh = False
        """Whether nothing has been promised since `renew` began the newest segment, and failed."""

        self._covered: set[int] = set()
        self._repeated: set[int] = set()
        self._repeated_bytes = 0
        self._unarchived: dict[int, Callable[[], None]] = {}
        self._purged = PurgedJobs()
        self._unremoved: dict[int, list[str]] = {}
        self.large_files: list[int] = []
        """Descriptors of large files that were removed: closed, they give their space back."""

        self._refused_inputs: list[str] = []
        self._inputs_to_remove: list[str] = []
        self._compaction: Compaction | None = None
        # Sealed segments that have not gone, and how many of them are being compacted.
        self._sealed = self._compacted = 0

    def begin(self, recovered: Recovered) -> None:
        """Start afresh after loading: a new segment that repeats the states of living jobs.

        What the disk did not take while loading is tried again; if it still refuses, the
        ledger begins its life read-only. On a full disk it goes on in the segment of its
        predecessor, until there is room.
        """
        self.changes = recovered.changes
        self._journal.go_on_from(recovered.position)
        self._files.begin(recovered)
        self._unarchived = dict.fromkeys(recovered.unarchived, _nothing)
        self._purged.begin(recovered.purged)
        self._unremoved = dict(recovered.unremoved)
        self._refused_inputs = list(recovered.refused_inputs)
        # A flush by our predecessor failed, or it died during one, or before it.
        self.is_doubtful = self._journal.has_older
        if self._disk.is_short and self._adopt():
            return
        is_many = recovered.journaled > settings.FILES_UNWRITTEN_MAX
        if self._in_thread.compact is None or not is_many:
            self.renew()
            return
        try:
            self._begin_beside_older(recovered)
        except errors.StorageError as error:
            self._disk.refuse_writes(error)
            return
        self.compact()

    def _adopt(self) -> bool:
        """Go on in the last segment, which may be a predecessor's; False: that cannot be."""
        # The kernel reports an error once: of two flushes, the wrong one might get it.
        if self._compaction is not None:
            return False
        try:
            if not self._journal.segments():
                return False
            self._journal.adopt()
        except errors.GangerError:
            return False
        # Whatever the predecessor wrote is written anew when there is room.
        self.is_adopted = self.is_doubtful = True
        return True

    def _begin_beside_older(self, recovered: Recovered) -> None:
        """Begin a segment, and leave those of our predecessor to the compactor."""
        self._archive_late()
        if self.is_doubtful:
            replay.write_archived_anew(self._directory, recovered.archived)
        self._begin_segment({**recovered.living, **recovered.ahead})
        if self.is_doubtful:
            # Not before: a file that is ahead of the log may be the only one to have its state.
            self._files.doubt({**recovered.written, **recovered.ahead})
        self.is_doubtful, self._sealed = False, 1

    # ------------------------------------------------------------ what is covered

    def is_covered(self, job_id: int) -> bool:
        """Whether the journal has the job's state, should its file be torn."""
        return job_id in self._covered

    def cover(self, job_ids: Iterable[int]) -> None:
        """The newest segment has states of these jobs, durably."""
        self._covered.update(job_ids)

    def archive(self, job_id: int, done: Callable[[], None]) -> None:
        """Move the file of an archived job; the next segment repeats what cannot be moved."""
        self._unarchived[job_id] = done
        self._move_archived()

    def purge(self, files: Mapping[int, list[str]]) -> None:
        """These jobs are purged; `remove_purged` removes their files."""
        self._purged.note(files, self._covered)
        self._unremoved.update(files)

    @property
    def has_unremoved(self) -> bool:
        """Whether files of purged jobs are still there."""
        return bool(self._unremoved)

    def remove_inputs(self, names: Iterable[str]) -> None:
        """Delete the inputs of a refused submission, once its record is certainly gone.

        The disk may have refused to truncate the journal, too: then a power loss brings the jobs
        back, and they need their inputs.
        """
        self._refused_inputs += names

    @property
    def bytes_to_renew(self) -> int:
        """What the segment takes that must be begun as soon as there is room; 0: none must."""
        if not self.is_adopted:
            return 0
        bodies = (parts(state)[1] for state in self._files.states.values())
        return sum(map(len, bodies)) + 2 * settings.JOURNAL_LAST_BYTES

    # ------------------------------------------------------------ when one is full

    @property
    def fullness(self) -> float:
        """The bytes of the newest segment as a part of those at which it is sealed."""
        return self._journal.size / settings.JOURNAL_SEGMENT_BYTES

    @property
    def is_full(self) -> bool:
        """Whether the segment is full, and has enough new records.

        The next one repeats what this one does. If that were all, it would be full at once, too,
        and there would be no end to new segments.
        """
        new = self._journal.size - self._repeated_bytes
        return self._journal.is_full and new >= settings.JOURNAL_SEGMENT_BYTES // 2

    @property
    def must_wait(self) -> bool:
        """Whether the newest segment is full, and no more may be sealed."""
        return self.is_full and self._sealed >= settings.SEALED_SEGMENTS_MAX

    def seal(self) -> None:
        """Begin a new segment, unless no more may be sealed, or the disk refuses writes."""
        if not self._disk.takes_work or self._sealed >= settings.SEALED_SEGMENTS_MAX:
            return
        if self._in_thread.compact is None or self.is_doubtful:
            self.renew()
            return
        try:
            self._archive_late()
            # The compactor writes the files that are missing.
            self._begin_segment(self._files.states_to_repeat())
        except errors.StorageError as error:
            self._disk.refuse_writes(error)
            return
        self._sealed += 1
        self.compact()

    def want_next(self) -> None:
        """Have a thread make the next segment, if it is time for that."""
        if self._in_thread.make is None or not self._disk.takes_work:
            return
        # Without a list of the segments, one is made when it is needed, or refused.
        with contextlib.suppress(errors.StorageError):
            if (ahead := self._journal.make_ahead()) is not None:
                self._in_thread.make(ahead)

    # ------------------------------------------------------------ the compactor

    @property
    def is_compacting(self) -> bool:
        """Whether the compactor is at work."""
        return self._compaction is not None

    def compact(self) -> None:
        """Give the sealed segments to the compactor, unless it is at work."""
        if self._sealed == 0 or self._compaction is not None or not self._disk.takes_work:
            return
        assert self._in_thread.compact is not None
        wanted, left_out = self._files.begin_compaction(self._covered)
        compaction = Compaction(self._directory, wanted, left_out, self._purged.ids)
        try:
            cut = self._journal.prepare_cut(compaction.check)
        except errors.StorageError as error:
            self._disk.refuse_writes(error)
            return
        if cut is None:
            self._sealed = 0
            return
        self._files.hand_to(compaction, wanted)
        self._compaction, self._compacted = compaction, self._sealed
        self._inputs_to_remove, self._refused_inputs = self._refused_inputs, []
        self._in_thread.compact(compaction, cut)

    def was_compacted(
        self, failure: errors.StorageError | None = None
    ) -> list[tuple[int, int, bytes]]:
        """The compactor has come to an end: the segments are gone, or they all stay.

        ``failure``: that of a predecessor's compactor, whose flush concerns this queue, too.
        Returns the states (id, serial, body) that are to be stored again, since no segment has them
        any more.
        """
        if failure is not None:
            self.is_doubtful = True
            self._disk.refuse_writes(failure)
            return []
        compaction, self._compaction = self._compaction, None
        assert compaction is not None
        self._files.end_compaction()
        if compaction.is_done:
            self._sealed -= self._compacted
            self._purged.segments_gone(self._sealed, self._covered)
            self._remove_inputs(self._inputs_to_remove)
            return self._uncovered(compaction)
        self._refused_inputs += self._inputs_to_remove
        if compaction.error is not None:
            self.is_doubtful |= compaction.are_files_written
            self._disk.refuse_writes(compaction.error)
        return []

    def _uncovered(self, compaction: Compaction) -> list[tuple[int, int, bytes]]:
        """The states that no segment has any more, though the compactor wrote no files.

        A predecessor in this process has deleted the segments that it had flushed.
        """
        if self._sealed:
            return []
        return [
            (job_id, *state)
            for job_id in compaction.left_over()
            if job_id not in self._covered and (state := self._files.unwritten(job_id))
        ]

    # ------------------------------------------------------------ all in one turn

    def retry(self) -> bool:
        """Whether the disk takes writes, also after a failure.

        On a disk that was full, nothing is written that can wait: the space is for what gives more
        space back. Otherwise all is begun anew.
        """
        if not self._disk.is_full or not (self._journal.is_open or self._adopt()):
            return self.renew()
        self._disk.take_writes()
        try:
            self._journal.append_last_id(self._last_id())
            self._journal.write(self._last_id())
        except errors.StorageError as error:
            self._disk.refuse_writes(error)
        else:
            self._move_archived()
            self.remove_purged()
        if self._disk.is_read_only or not self._disk.has_room_again():
            return not self._disk.is_read_only
        return self.renew()

    def renew(self) -> bool:
        """Begin a new segment and delete the old ones, whose states the job files have.

        Returns whether the disk takes writes, also after a failure.
        """
        if self._compaction is not None:
            # The kernel reports an error once: of two flushes, the wrong one might get it.
            return not self._disk.is_read_only
        self._disk.take_writes()
        try:
            self._renew()
        except errors.StorageError as error:
            self._disk.refuse_writes(error)
        return not self._disk.is_read_only

    def _renew(self) -> None:
        """After a failure, the next attempt uses the segment that was begun.

        It writes files anew only if it can write the journal: it must not fill a disk that refuses.
        """
        # Only the old segments have what the late files lack.
        self._files.write_pending()
        self._archive_late()
        self.remove_purged()
        is_fresh, self.is_fresh = self.is_fresh, False
        if is_fresh:
            self._covered &= self._repeated
            self._journal.append_last_id(self._last_id())
            self._journal.write(self._last_id())
        else:
            # With all states that files may lack after the flush: the disk may refuse some files.
            self._begin_segment(self._files.states)
        self.is_fresh = True
        self._write_anew()
        try:
            self._journal.cut(self._check())
        except errors.StorageError:
            self.is_doubtful = True
            raise
        self.is_doubtful = self.is_fresh = self.is_adopted = False
        self._sealed = 0
        self._purged.segments_gone(0, self._covered)
        names, self._refused_inputs = self._refused_inputs, []
        self._remove_inputs(names)

    def _begin_segment(self, states: Mapping[int, State]) -> None:
        """Begin a segment that answers for the files of these jobs, and for ``config.data``."""
        self._journal.begin(self._last_id())
        for job_id, known in states.items():
            serial, body = parts(known)
            self._journal.append(StateStored(job_id, serial, body))
        for change in self.changes.changes.values():
            self._journal.append(change)
        if self.changes.written is not None:
            self._journal.append(ConfigWritten(self.changes.written))
        if purged := self._purged.ids | self._unremoved.keys():
            self._journal.append(JobsPurged(sorted(purged)))
        self._journal.write(self._last_id())
        self._purged.segment_begun(self._covered)
        # The older segments may go at any moment from now on.
        self._covered, self._repeated = set(states), set(states)
        self._repeated_bytes = self._journal.size

    def _write_anew(self) -> None:
        """After a failed flush, write files anew: what can be read need not be on the disk."""
        if self.is_doubtful:
            self._files.write_anew(replay.read_journal(self._journal))
        self._files.settle_doubts()

    def _check(self) -> Check:
        """Reads back the files for which the newest segment does not answer, before others go."""
        left_out = self._files.answered | self._purged.ids
        return lambda old: read_back.check(self._directory, old, left_out)

    def _archive_late(self) -> None:
        self._move_archived()
        if self._unarchived:
            raise errors.StorageError("files cannot be moved into the archive")

    def _move_archived(self) -> None:
        """Move the files of archived jobs; the journal remembers those that cannot be moved."""
        for job_id, done in list(self._unarchived.items()):
            try:
                self._files.archive(job_id)
            except errors.StorageError as error:
                self._disk.refuse_writes(error)
                return
            del self._unarchived[job_id]
            self._files.forget(job_id)
            done()

    def remove_purged(self, count: int | None = None) -> bool:
        """Remove the files of ``count`` purged jobs, or all; whether that went well.

        The journal remembers those that cannot be removed; `renew` removes them.
        """
        for job_id, paths in [*itertools.islice(self._unremoved.items(), count)]:
            try:
                self.large_files += removal.remove(paths)
            except errors.StorageError as error:
                self._disk.refuse_writes(error)
                return False
            del self._unremoved[job_id]
            self._directory.spool.forget(job_id)
        return True

    def _remove_inputs(self, names: Iterable[str]) -> None:
        for name in names:
            # The next start of a daemon removes what cannot be removed now.
            with contextlib.suppress(errors.StorageError):
                self._directory.spool.remove_file(name)
