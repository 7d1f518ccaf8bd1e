"""The durable side of the job queue: the journal, its segments, and what waits for the next flush.

How it works. `store_...` appends a record to the log, and hangs an *effect* on its position: what
may happen only once the record is durable. `commit` makes one flush for all of them, and runs the
effects up to the position that is durable then, in order. If the flush fails, each effect's
``failed`` runs instead, the ledger is read-only, and `retry` finds out whether the disk works
again. ``failed`` gets a `ReadOnlyError` if the record is certainly gone, an `OutcomeUnknownError`
if a loss of power may bring it back.

``_staged`` holds the states that wait for the flush: the next state of the same job must start
from there. The durable states that are newer than the jobs' files are in ``files`` (`file_writer`).

The configuration store appends its changes here, too (`change_log`). ``changes`` are those that
``config.data`` may lack.

A segment of the journal that is full, or behind which many files are missing, is *sealed*: a new
one follows it, which begins with the states of jobs whose files other processes may change, and
with these changes. The compactor writes what the sealed one covers into files, and deletes it
(`storage/queue_files/compaction` has the invariants). Others may be sealed meanwhile, up to
`settings.SEALED_SEGMENTS_MAX`: then turns wait for the compactor.

A start that finds many jobs in the journal reads them, begins a segment beside those of its
predecessor, and gives these to the compactor. After a failed flush, or when there are few jobs, the
queue does all of it in one turn (`retry`).
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ...storage import errors, settings
from ...storage.log.logged_changes import LoggedChanges
from ...storage.log.records import (
    ConfigWritten,
    JobArchived,
    JobsStored,
    StateFiled,
    StateStored,
    StoredRecord,
)
from ...storage.queue_files import read_back, replay
from ...storage.queue_files.compaction import Compaction
from .disk_state import DiskState
from .file_writer import FileWriter, parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ...storage.log.journal import Check, Cut, Journal
    from ...storage.log.records import EncodedChange, Record
    from ...storage.log.segment_ahead import SegmentAhead
    from ...storage.queue_files.job_files import QueueDirectory
    from .file_writer import State
    from .recovered import Recovered

    Failed = Callable[[errors.GangerError], None]


class _Effect(NamedTuple):
    """What may happen once the log is durable up to a position."""

    position: int
    done: Callable[[], None]
    failed: Failed


def _ignore(_: errors.GangerError) -> None:
    """No request depends on the outcome."""


def _nothing() -> None:
    """Nothing is left to be done."""


class Ledger:
    """Everything that the job queue has promised to remember."""

    def __init__(
        self,
        directory: QueueDirectory,
        journal: Journal,
        compact_in_thread: Callable[[Compaction, Cut], None] | None = None,
        make_in_thread: Callable[[SegmentAhead], None] | None = None,
    ) -> None:
        """``compact_in_thread`` has another thread compact; then call `was_compacted`.

        ``make_in_thread`` has another thread make a segment ahead. None: both are done in turns.
        """
        self._compact_in_thread = compact_in_thread
        self._make_in_thread = make_in_thread
        self.directory = directory
        self.last_id = 0
        self._journal = journal
        self._disk = DiskState(self._give_up_room)
        self.files = FileWriter(directory, self._disk, lambda: replay.read_journal(journal))
        self._staged: dict[int, bytes] = {}
        self.changes = LoggedChanges()
        self._effects: deque[_Effect] = deque()
        self._unarchived: dict[int, Callable[[], None]] = {}
        self._refused_inputs: list[str] = []
        self._inputs_to_remove: list[str] = []
        self._written_serial = self._tried_serial = 0
        self._covered: set[int] = set()
        self._repeated: set[int] = set()
        self._repeated_bytes = 0
        self._compaction: Compaction | None = None
        # Sealed segments that have not gone, and how many of them are being compacted.
        self._sealed = self._compacted = 0
        self._is_fresh = False
        self._is_doubtful = False

    @property
    def flushes(self) -> int:
        """How many flushes were made so far."""
        return self._journal.flushes

    @property
    def position(self) -> int:
        """The position up to which the log is durable."""
        return self._journal.durable

    @property
    def is_doubtful(self) -> bool:
        """Whether the next attempt writes everything anew, since a flush of it failed."""
        return self._is_doubtful

    @property
    def is_read_only(self) -> bool:
        """Whether the disk refuses writes; `retry` finds out whether it still does."""
        return self._disk.is_read_only

    def refusal(self) -> errors.ReadOnlyError:
        """The answer to requests for changes while the disk refuses writes."""
        return self._disk.refusal()

    def refuse_writes(self, error: errors.StorageError) -> None:
        """Take no changes from now on, because of this error, until `retry` has gone well."""
        self._disk.refuse_writes(error)

    def _give_up_room(self) -> None:
        self.files.stop_compaction()
        # The disk may be full, and job files need room too.
        self._journal.give_up_ahead()

    def begin(self, recovered: Recovered) -> None:
        """Start afresh after loading: a new segment that repeats the states of living jobs.

        What the disk did not take while loading is tried again; if it still refuses, the
        ledger begins its life read-only.
        """
        self.last_id = recovered.last_id
        self.changes = recovered.changes
        self._journal.go_on_from(recovered.position)
        self.files.begin(recovered)
        self._unarchived = dict.fromkeys(recovered.unarchived, _nothing)
        self._refused_inputs = list(recovered.refused_inputs)
        # A flush by our predecessor failed, or it died during one, or before it.
        self._is_doubtful = self._journal.has_older
        is_many = recovered.journaled > settings.FILES_UNWRITTEN_MAX
        if self._compact_in_thread is None or not is_many:
            self.retry()
            return
        try:
            self._begin_beside_older(recovered)
        except errors.StorageError as error:
            self.refuse_writes(error)
            return
        self._compact()

    def _begin_beside_older(self, recovered: Recovered) -> None:
        """Begin a segment, and leave those of our predecessor to the compactor."""
        self._archive_late()
        if self._is_doubtful:
            replay.write_archived_anew(self.directory, recovered.archived)
            self.files.doubt({**recovered.written, **recovered.ahead})
        self._begin_segment({**recovered.living, **recovered.ahead})
        self._is_doubtful, self._sealed = False, 1

    # ------------------------------------------------------------ what is promised

    def store_new(
        self,
        jobs: list[tuple[int, int, bytes]],
        done: Callable[[], None],
        failed: Failed,
        record: StoredRecord | None = None,
    ) -> None:
        """New jobs (id, serial, body), all or none. Their files follow.

        ``record`` has them already, as they go into the journal.
        """

        def stored() -> None:
            self._covered.update([job_id for job_id, _, _ in jobs])
            self.files.add_new(jobs)
            done()

        self._append(JobsStored(jobs) if record is None else record, stored, failed)

    def store_state(
        self,
        state: tuple[int, int, bytes],
        done: Callable[[], None],
        failed: Failed = _ignore,
    ) -> None:
        """A job's whole new state (id, serial, body)."""
        job_id, serial, body = state

        def stored() -> None:
            self._covered.add(job_id)
            # A newer one may have been noted while this one waited for its flush.
            self.files.add(job_id, serial, body)
            done()

        if self._append(StateStored(job_id, serial, body), stored, failed):
            self._staged[job_id] = body

    def store_filed(
        self, state: tuple[int, int, bytes], done: Callable[[], None], failed: Failed
    ) -> None:
        """A job's new state that its file has, flushed: id, serial and digest of the text."""
        self._append(StateFiled(*state), done, failed)

    def store_archived(
        self, job_id: int, done: Callable[[], None], failed: Failed = _ignore
    ) -> None:
        """The job goes to the archive; its file is moved once that is durable."""

        def stored() -> None:
            self._unarchived[job_id] = done
            self._move_archived()

        self._append(JobArchived(job_id), stored, failed)

    def store_changes(
        self,
        records: Iterable[EncodedChange | ConfigWritten],
        done: Callable[[int], None],
        failed: Failed,
    ) -> None:
        """Changes of the configuration, all or none. ``done`` gets the position of the last one."""
        appended = list(records)

        def stored() -> None:
            for record in appended:
                self.changes.note(record)
            done(position)

        position = self._append_all(appended, stored, failed)

    def note_written(self, serial: int) -> None:
        """``config.data`` has the changes up to this one: no later segment repeats them."""
        self.changes.note(record := ConfigWritten(serial))
        if not self.is_read_only:
            # With the next flush, whenever that is: without it, they are read once more.
            self._journal.append(record)

    def remove_inputs(self, names: Iterable[str]) -> None:
        """Delete the inputs of a refused submission, once its record is certainly gone.

        The disk may have refused to truncate the journal, too: then a power loss brings the jobs
        back, and they need their inputs.
        """
        self._refused_inputs += names

    def after_commit(self, done: Callable[[], None], failed: Failed = _ignore) -> None:
        """Do this when everything stored so far is durable."""
        self._effects.append(_Effect(self._journal.position, done, failed))

    def commit(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Make everything durable, run the effects, and repeat that for records that these add.

        ``meanwhile`` is called before the effects, while the disk writes, unless it refuses that.
        """
        if meanwhile is not None and not self._effects:
            meanwhile()
        while self._effects:
            self._commit_once(meanwhile)
            meanwhile = None
        self.files.take_notice(settings.FILES_NOTICED_AT_ONCE)
        if self._is_full:
            self.seal()
        self._compact()
        self._want_next_segment()

    def seal(self) -> None:
        """Begin a new segment, unless no more may be sealed, or the disk refuses writes."""
        # Records that wait for `commit` would be dropped if the new segment failed.
        if self._effects or self.is_read_only or self._sealed >= settings.SEALED_SEGMENTS_MAX:
            return
        if self._compact_in_thread is None or self._is_doubtful:
            self.retry()
            return
        try:
            self._archive_late()
            # The compactor writes the files that are missing.
            self._begin_segment(self.files.states_to_repeat())
        except errors.StorageError as error:
            self.refuse_writes(error)
            return
        self._sealed += 1
        self._compact()

    def _want_next_segment(self) -> None:
        """Have a thread make the next segment, if it is time for that."""
        if self._make_in_thread is None or self.is_read_only:
            return
        # Without a list of the segments, one is made when it is needed, or refused.
        with contextlib.suppress(errors.StorageError):
            if (ahead := self._journal.make_ahead()) is not None:
                self._make_in_thread(ahead)

    def retry(self) -> bool:
        """Begin a new segment; after a failure: whether the disk takes writes again."""
        if self._compaction is not None:
            # The kernel reports an error once: of two flushes, the wrong one might get it.
            return not self.is_read_only
        # First: a failure drops records, whose effects must not run then.
        while self._effects:
            self._commit_once()
        self._disk.is_read_only = False
        try:
            self._renew_journal()
        except errors.StorageError as error:
            self.refuse_writes(error)
        return not self.is_read_only

    # ------------------------------------------------------------ what is known

    def newest(self, job_id: int) -> bytes | None:
        """The newest durable state, or the one that waits for the flush.

        The next state starts from it.
        """
        staged = self._staged.get(job_id)
        return self.files.body(job_id) if staged is None else staged

    def is_staged(self, job_id: int) -> bool:
        """Whether a state of the job waits for the flush."""
        return job_id in self._staged

    def in_memory(self, job_id: int) -> bytes | None:
        """As `newest`, but None if only the file has it."""
        staged = self._staged.get(job_id)
        return self.files.in_memory(job_id) if staged is None else staged

    def is_covered(self, job_id: int) -> bool:
        """Whether the journal has the job's state, should its file be torn."""
        return job_id in self._covered

    def note(self, job_id: int, serial: int, body: bytes) -> None:
        """Keep a newer state that need not be durable."""
        # The process that writes the file may rely on it: the next segment repeats it.
        self._is_fresh = False
        self.files.note(job_id, serial, body)

    def withhold(self, job_id: int, serial: int, body: bytes) -> None:
        """Show this state of a job whose file has a newer one, which may not be durable yet."""
        self.note(job_id, serial, body)
        # The file must not get the older one: `retry` sees to what it has.
        self.files.leave(job_id)

    @property
    def has_unwritten(self) -> bool:
        """Whether files of new jobs, or the file of the last id, are still to be written."""
        return self.files.unwritten_count > 0 or self.last_id != self._tried_serial

    @property
    def has_work_at_rest(self) -> bool:
        """Whether the queue is to write files, or seal a segment, when nothing comes."""
        if self.is_behind and self.is_compacting:
            return False
        return self.has_unwritten

    @property
    def is_behind(self) -> bool:
        """Whether so many jobs have no file that the compactor is to write them."""
        return self.files.unwritten_count > settings.FILES_UNWRITTEN_MAX

    @property
    def is_compacting(self) -> bool:
        """Whether the compactor is at work."""
        return self._compaction is not None

    @property
    def fullness(self) -> float:
        """The bytes of the newest segment as a part of those at which it is sealed."""
        return self._journal.size / settings.JOURNAL_SEGMENT_BYTES

    @property
    def must_wait(self) -> bool:
        """Whether the newest segment is full, and no more may be sealed."""
        return self._is_full and self._sealed >= settings.SEALED_SEGMENTS_MAX

    def write_newest(self, count: int, is_enough: Callable[[], bool] = lambda: False) -> None:
        """Write the files of so many new jobs, the newest first: the oldest may start soon.

        ``is_enough`` is asked after each.
        """
        self.write_serial()
        self.files.write_newest(count, is_enough)

    def write_serial(self) -> None:
        """Write the file of the last id. A failure is repaired with the next files of jobs."""
        self._tried_serial = self.last_id
        if self.last_id != self._written_serial:
            # The journal has it too. Only ids of rejected jobs are missing until a segment begins.
            with contextlib.suppress(errors.StorageError):
                self.directory.write_serial(self.last_id)
                self._written_serial = self.last_id

    def close(self, is_enough: Callable[[], bool] = lambda: False) -> None:
        """Write what has no file yet, and close everything.

        ``is_enough`` is asked after each file: the journal has what the others lack.
        """
        self.files.end_compaction()
        self.files.write_newest(self.files.unwritten_count, is_enough)
        self.write_serial()
        self._journal.close()
        self.directory.spares.close()
        self.directory.close()

    def _append(
        self, record: Record | StoredRecord, done: Callable[[], None], failed: Failed
    ) -> bool:
        return self._append_all([record], done, failed) > 0

    def _append_all(
        self,
        appended: Iterable[Record | EncodedChange | StoredRecord],
        done: Callable[[], None],
        failed: Failed,
    ) -> int:
        """The position of the last of these records; 0: the disk refuses writes."""
        if self._disk.is_read_only:
            failed(self.refusal())
            return 0
        for record in appended:
            self._journal.append(record)
        self._is_fresh = False
        self.after_commit(done, failed)
        return self._journal.position

    @property
    def _is_full(self) -> bool:
        """Whether the segment is full, and has enough new records.

        The next one repeats what this one does. If that were all, it would be full at once, too,
        and there would be no end to new segments.
        """
        new = self._journal.size - self._repeated_bytes
        return self._journal.is_full and new >= settings.JOURNAL_SEGMENT_BYTES // 2

    def _commit_once(self, meanwhile: Callable[[], None] | None = None) -> None:
        self._staged.clear()
        try:
            self._journal.write(self.last_id, meanwhile)
        except errors.StorageError as error:
            effects, self._effects = self._effects, deque()
            self.refuse_writes(error)
            is_unknown = isinstance(error, errors.OutcomeUnknownError)
            refusal = error if is_unknown else self.refusal()
            for effect in effects:
                effect.failed(refusal)
            return
        while self._effects and self._effects[0].position <= self._journal.durable:
            self._effects.popleft().done()

    def _move_archived(self) -> None:
        """Move the files of archived jobs; the journal remembers those that cannot be moved."""
        for job_id, done in list(self._unarchived.items()):
            try:
                self.files.archive(job_id)
            except errors.StorageError as error:
                self.refuse_writes(error)
                return
            del self._unarchived[job_id]
            self.files.forget(job_id)
            done()

    def _compact(self) -> None:
        """Give the sealed segments to the compactor, unless it is at work."""
        if self._sealed == 0 or self._compaction is not None or self.is_read_only:
            return
        assert self._compact_in_thread is not None
        wanted, left_out = self.files.begin_compaction(self._covered)
        compaction = Compaction(self.directory, wanted, left_out)
        try:
            cut = self._journal.prepare_cut(compaction.check)
        except errors.StorageError as error:
            self.refuse_writes(error)
            return
        if cut is None:
            self._sealed = 0
            return
        self.files.hand_to(compaction, wanted)
        self._compaction, self._compacted = compaction, self._sealed
        self._inputs_to_remove, self._refused_inputs = self._refused_inputs, []
        self._compact_in_thread(compaction, cut)

    def was_compacted(self, failure: errors.StorageError | None = None) -> None:
        """The compactor has come to an end: the segments are gone, or they all stay.

        ``failure``: that of a predecessor's compactor, whose flush concerns this queue, too.
        """
        if failure is not None:
            self._is_doubtful = True
            self.refuse_writes(failure)
            return
        compaction, self._compaction = self._compaction, None
        assert compaction is not None
        self.files.end_compaction()
        if compaction.is_done:
            self._sealed -= self._compacted
            self._cover_again(compaction)
            self._remove_inputs(self._inputs_to_remove)
            return
        self._refused_inputs += self._inputs_to_remove
        if compaction.error is not None:
            self._is_doubtful |= compaction.are_files_written
            self.refuse_writes(compaction.error)

    def _cover_again(self, compaction: Compaction) -> None:
        """Store the states that no segment has any more, though the compactor wrote no files.

        A predecessor in this process has deleted the segments that it had flushed.
        """
        if self._sealed == 0:
            for job_id in compaction.left_over():
                if job_id not in self._covered and (state := self.files.unwritten(job_id)):
                    self.store_state((job_id, *state), _nothing)

    def _renew_journal(self) -> None:
        """Begin a new segment and delete the old ones, whose states the job files have.

        After a failure, the next attempt uses the segment that was begun. It writes files anew only
        if it can write the journal, so as not to fill a disk that refuses.
        """
        self._bring_up_files()
        is_fresh, self._is_fresh = self._is_fresh, False
        if is_fresh:
            self._covered &= self._repeated
            self._journal.append_last_id(self.last_id)
            self._journal.write(self.last_id)
        else:
            # With all states that files may lack after the flush: the disk may refuse some files.
            self._begin_segment(self.files.states)
        self._is_fresh = True
        self._write_anew()
        try:
            self._journal.cut(self._check())
        except errors.StorageError:
            self._is_doubtful = True
            raise
        self._is_doubtful = self._is_fresh = False
        self._sealed = 0
        names, self._refused_inputs = self._refused_inputs, []
        self._remove_inputs(names)

    def _check(self) -> Check:
        """Reads back the files for which the newest segment does not answer, before others go."""
        left_out = self.files.answered
        return lambda old: read_back.check(self.directory, old, left_out)

    def _remove_inputs(self, names: Iterable[str]) -> None:
        for name in names:
            # The next start of a daemon removes what cannot be removed now.
            with contextlib.suppress(errors.StorageError):
                self.directory.spool.remove_file(name)

    def _bring_up_files(self) -> None:
        """Write and move the files that are late: only the old segments have these changes."""
        self.files.write_pending()
        self._archive_late()

    def _archive_late(self) -> None:
        self._move_archived()
        if self._unarchived:
            raise errors.StorageError("files cannot be moved into the archive")

    def _begin_segment(self, states: Mapping[int, State]) -> None:
        """Begin a segment that answers for the files of these jobs, and for ``config.data``."""
        self._journal.begin(self.last_id)
        for job_id, known in states.items():
            serial, body = parts(known)
            self._journal.append(StateStored(job_id, serial, body))
        for change in self.changes.changes.values():
            self._journal.append(change)
        if self.changes.written is not None:
            self._journal.append(ConfigWritten(self.changes.written))
        self._journal.write(self.last_id)
        # The older segments may go at any moment from now on.
        self._covered, self._repeated = set(states), set(states)
        self._repeated_bytes = self._journal.size

    def _write_anew(self) -> None:
        """After a failed flush, write files anew: what can be read need not be on the disk."""
        if self._is_doubtful:
            self.files.write_anew(replay.read_journal(self._journal))
        self.files.settle_doubts()
