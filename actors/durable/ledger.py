"""The durable side of the job queue: the journal, its segments, and what waits for the next flush.

How it works. `store_...` puts a record into the journal's buffer together with an *effect*:
what may happen only once the record is durable. `commit` makes one flush for all of them and runs
the effects in order. If the flush fails, each effect's ``failed`` runs instead, the ledger is
read-only, and `retry` finds out whether the disk works again. ``failed`` gets a `ReadOnlyError` if
the record is certainly gone, an `OutcomeUnknownError` if a loss of power may bring it back.

``_staged`` holds the states that wait for the flush: the next state of the same job must start
from there. The durable states that are newer than the jobs' files are in ``files`` (`file_writer`).

A segment of the journal that is full is followed by a new one. This repeats all states that the job
files may lack once they are flushed; then the older segments can go.

A start that finds many jobs without files writes none. The segments of the predecessor stay beside
a new one until the queue, when it is idle, has written all files that they cover, and a thread has
flushed the file system.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...storage.log.journal import JobArchived, JobsStored, StateStored, StoredRecord
from ...storage.queue_files import read_back, replay
from .disk_state import DiskState
from .file_writer import FileWriter, parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ...storage.log.journal import Check, Cut, Journal, Record
    from ...storage.log.segment_ahead import SegmentAhead
    from ...storage.queue_files.job_files import QueueDirectory
    from .file_writer import State
    from .recovered import Recovered

    Failed = Callable[[errors.GangerError], None]


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
        carry_out_cut: Callable[[Cut], None] | None = None,
        make_in_thread: Callable[[SegmentAhead], None] | None = None,
    ) -> None:
        """``carry_out_cut`` carries a cut out in another thread; `was_cut` must be called after it.

        ``make_in_thread`` has another thread make a segment ahead; None: each is made when needed.
        """
        self._carry_out_cut = carry_out_cut
        self._make_in_thread = make_in_thread
        self.directory = directory
        self.last_id = 0
        self._journal = journal
        self._disk = DiskState(self._give_up_room)
        self.files = FileWriter(directory, self._disk, lambda: replay.read_journal(journal))
        self._staged: dict[int, bytes] = {}
        self._effects: list[tuple[Callable[[], None], Failed]] = []
        self._unarchived: dict[int, Callable[[], None]] = {}
        self._refused_inputs: list[str] = []
        self._inputs_to_remove: list[str] = []
        self._written_serial = self._tried_serial = 0
        self._covered: set[int] = set()
        self._repeated: set[int] = set()
        self._older_bytes = self._repeated_bytes = 0
        self._is_being_cut = False
        self._is_fresh = False
        self._is_cut_due = False
        self._is_doubtful = False

    @property
    def flushes(self) -> int:
        """How many flushes were made so far."""
        return self._journal.flushes

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
        self.files.stop_new_files()
        # The disk may be full, and job files need room too.
        self._journal.give_up_ahead()

    def begin(self, recovered: Recovered) -> None:
        """Start afresh after loading: a new segment that repeats the states of living jobs.

        What the disk did not take while loading is tried again; if it still refuses, the
        ledger begins its life read-only.
        """
        self.last_id = recovered.last_id
        self.files.begin(recovered)
        self._unarchived = dict.fromkeys(recovered.unarchived, _nothing)
        self._refused_inputs = list(recovered.refused_inputs)
        # A flush by our predecessor failed, or it died during one, or before it.
        self._is_doubtful = self._journal.has_older
        if not recovered.is_late:
            self._renew_at_start(is_quick=recovered.journaled <= settings.FILES_UNWRITTEN_MAX)
            return
        try:
            self._begin_beside_older(recovered)
        except errors.StorageError as error:
            self.refuse_writes(error)

    def _renew_at_start(self, *, is_quick: bool) -> None:
        """As `retry`; a thread reads the files of our predecessor back, unless that ``is_quick``.

        A flush comes first: what files say counts from now on.
        """
        if self._carry_out_cut is None or self._is_doubtful or is_quick:
            self.retry()
            return
        try:
            self._bring_up_files()
            self._begin_segment()
            # What was written is in doubt until the flush has gone well.
            self._is_fresh = self._is_doubtful = True
            self._journal.flush_files()
        except errors.StorageError as error:
            self.refuse_writes(error)
            return
        self._is_doubtful = False
        self._cut_in_thread()

    def _begin_beside_older(self, recovered: Recovered) -> None:
        """Begin a segment, and keep the older ones until all that they cover is in files."""
        self._archive_late()
        is_doubtful, self._older_bytes = self._is_doubtful, self._journal.bytes_on_disk()
        if is_doubtful:
            # The files of other jobs are among the unwritten ones then.
            replay.write_archived_anew(self.directory, recovered.archived)
            self.files.doubt_owned()
        self._append_segment({**recovered.living, **recovered.ahead})
        if not is_doubtful:
            # Otherwise a thread of our predecessor may still delete the older segments.
            self._covered |= recovered.unwritten.keys()
        self._is_doubtful, self._is_fresh, self._is_cut_due = False, True, True

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

    def store_archived(
        self, job_id: int, done: Callable[[], None], failed: Failed = _ignore
    ) -> None:
        """The job goes to the archive; its file is moved once that is durable."""

        def stored() -> None:
            self._unarchived[job_id] = done
            self._move_archived()

        self._append(JobArchived(job_id), stored, failed)

    def remove_inputs(self, names: Iterable[str]) -> None:
        """Delete the inputs of a refused submission, once its record is certainly gone.

        The disk may have refused to truncate the journal, too: then a power loss brings the jobs
        back, and they need their inputs.
        """
        self._refused_inputs += names

    def after_commit(self, done: Callable[[], None], failed: Failed = _ignore) -> None:
        """Do this when everything stored so far is durable."""
        self._effects.append((done, failed))

    def commit(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Make everything durable, run the effects, and repeat that for records that these add.

        ``meanwhile`` is called before the effects, while the disk writes, unless it refuses that.
        """
        if meanwhile is not None and not self._effects:
            meanwhile()
        while self._effects:
            self._commit_once(meanwhile)
            meanwhile = None
        self.renew_if_due()
        self._want_next_segment()

    def renew_if_due(self) -> None:
        """Begin a new segment if this one is full, or older ones are left from before the start."""
        is_due = self._is_full or self._is_cut_due
        # Records that wait for `commit` would be dropped if the new segment failed.
        is_free = not self._effects and not self.is_read_only
        if is_due and is_free and not self._is_behind_at_renewal:
            self._renew_in_thread()

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
        if self._is_being_cut:
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
    def is_behind(self) -> bool:
        """Whether so many new jobs have no file that a busy queue must write some as well."""
        count = self.files.unwritten_count
        return count > settings.FILES_UNWRITTEN_MAX or (self._journal.is_full and count > 0)

    @property
    def is_far_behind(self) -> bool:
        """Whether the journal has grown so much that files must be written at any cost."""
        return self.files.unwritten_count > 0 and self.journal_used >= 1

    @property
    def journal_used(self) -> float:
        """The bytes of the journal as a part of those at which it `is_far_behind`."""
        limit = settings.JOURNAL_SEGMENTS_FACTOR_MAX * settings.JOURNAL_SEGMENT_BYTES
        return (self._journal.size + self._older_bytes) / limit

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

    def close(self) -> None:
        """Write what has no file yet, and close everything."""
        self.files.end_new_files()
        self.files.write_pending()
        self.write_serial()
        self._journal.close()
        self.directory.spares.close()
        self.directory.close()

    def _append(
        self, record: Record | StoredRecord, done: Callable[[], None], failed: Failed
    ) -> bool:
        if self._disk.is_read_only:
            failed(self.refusal())
            return False
        if isinstance(record, StoredRecord):
            self._journal.append_stored(record)
        else:
            self._journal.append(record)
        self._is_fresh = False
        self._effects.append((done, failed))
        return True

    @property
    def _is_full(self) -> bool:
        """Whether the segment is full, and has enough new records.

        The next one repeats what this one does. If that were all, it would be full at once, too,
        and there would be no end to new segments.
        """
        new = self._journal.size - self._repeated_bytes
        return self._journal.is_full and new >= settings.JOURNAL_SEGMENT_BYTES // 2

    @property
    def _is_behind_at_renewal(self) -> bool:
        """Whether to let the segment grow until the files of new jobs have been written.

        The queue writes some at a time, and a new segment would need all of them at once.
        """
        if self._is_being_cut:
            return True
        if self._may_repeat_unwritten:
            return False
        return self.files.has_thread or self.files.unwritten_count > settings.FILES_AT_ONCE

    @property
    def _may_repeat_unwritten(self) -> bool:
        """Whether the next segment is to have the new jobs without files once more.

        A queue that is never idle has some at any moment; its journal must not grow for ever.
        """
        if self._is_fresh or self._is_cut_due or self.journal_used < settings.JOURNAL_REPEATS_FROM:
            return False
        if self.files.unwritten_count > settings.FILES_UNWRITTEN_MAX:
            return False
        return self.files.unwritten_bytes() <= settings.JOURNAL_SEGMENT_BYTES // 16

    def _commit_once(self, meanwhile: Callable[[], None] | None = None) -> None:
        effects, self._effects = self._effects, []
        self._staged.clear()
        try:
            self._journal.commit(self.last_id, meanwhile)
        except errors.StorageError as error:
            self.refuse_writes(error)
            is_unknown = isinstance(error, errors.OutcomeUnknownError)
            refusal = error if is_unknown else self.refusal()
            for _, failed in effects:
                failed(refusal)
            return
        for done, _ in effects:
            done()

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

    def _renew_in_thread(self) -> None:
        """Begin a new segment; a thread flushes the file system and deletes the old ones."""
        if self._carry_out_cut is None or self._is_doubtful:
            self.retry()
            return
        try:
            self._bring_up_files(is_some_enough=self._may_repeat_unwritten)
            if self._is_fresh:
                # A start has just begun one.
                self._covered &= self._repeated
            else:
                self._begin_segment()
        except errors.StorageError as error:
            self.refuse_writes(error)
            return
        self._cut_in_thread()

    def _cut_in_thread(self) -> None:
        """Have a thread delete the older segments."""
        assert self._carry_out_cut is not None
        try:
            cut = self._journal.prepare_cut(self._check())
        except errors.StorageError as error:
            self.refuse_writes(error)
            return
        if cut is None:
            # There were none at the start.
            self._is_fresh = False
            return
        self._is_being_cut = True
        self._inputs_to_remove, self._refused_inputs = self._refused_inputs, []
        self._carry_out_cut(cut)

    def was_cut(self, error: errors.StorageError | None) -> None:
        """The old segments are gone, or (``error``) the file system could not be flushed."""
        self._is_being_cut = False
        if error is not None:
            self._refused_inputs += self._inputs_to_remove
            self._is_doubtful = True
            self.refuse_writes(error)
            return
        self._is_cut_due, self._older_bytes = False, 0
        self._remove_inputs(self._inputs_to_remove)

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
            self._journal.commit(self.last_id)
        else:
            self._begin_segment()
        self._is_fresh = True
        self._write_anew()
        try:
            self._journal.cut(self._check())
        except errors.StorageError:
            self._is_doubtful = True
            raise
        self._is_doubtful = self._is_fresh = self._is_cut_due = False
        self._older_bytes = 0
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

    def _bring_up_files(self, *, is_some_enough: bool = False) -> None:
        """Write and move the files that are late: only the old segments have these changes.

        ``is_some_enough``: the new segment repeats the states of new jobs without files.
        """
        self.files.end_new_files()
        if not is_some_enough:
            self.files.write_pending()
        self._archive_late()

    def _archive_late(self) -> None:
        self._move_archived()
        if self._unarchived:
            raise errors.StorageError("files cannot be moved into the archive")

    def _begin_segment(self) -> None:
        """Begin a segment with all states that job files may lack once they are flushed.

        These are the states of jobs whose files other processes write, or the disk refused.
        """
        self._append_segment(self.files.states)

    def _append_segment(self, states: Mapping[int, State]) -> None:
        self._journal.begin(self.last_id)
        for job_id, known in states.items():
            serial, body = parts(known)
            self._journal.append(StateStored(job_id, serial, body))
        self._journal.commit(self.last_id)
        # The older segments may go at any moment from now on.
        self._covered, self._repeated = set(states), set(states)
        self._repeated_bytes = self._journal.size

    def _write_anew(self) -> None:
        """After a failed flush, write files anew: what can be read need not be on the disk."""
        if self._is_doubtful:
            self.files.write_anew(replay.read_journal(self._journal))
        self.files.settle_doubts()
