"""The durable side of the job queue: journal, job files, and what waits for the next flush.

How it works. `store_...` puts a record into the journal's buffer together with an *effect*:
what may happen only once the record is durable. `commit` makes one flush for all of them and runs
the effects in order. If the flush fails, each effect's ``failed`` runs instead, the ledger is
read-only, and `retry` finds out whether the disk works again.

``_states`` holds the newest state of a job whose file may be older than it: the journal has
it, so the file needs no flush of its own, and need not even exist yet. ``_staged`` holds the
states that wait for the flush: the next state of the same job must start from there.

The files of many new jobs are created by a thread (`storage/queue_files/new_files` has the rules).

A start that finds many jobs without files writes none. The segments of the predecessor stay beside
a new one until the queue, when it is idle, has written all files that they cover, and a thread has
flushed the file system.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...storage.queue_files import replay
from ...storage.queue_files.journal import JobArchived, JobsStored, StateStored, StoredRecord
from ...storage.queue_files.new_files import NewFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ...storage.queue_files.job_files import QueueDirectory
    from ...storage.queue_files.journal import Cut, Journal, Record
    from ...storage.queue_files.segment_ahead import SegmentAhead
    from .recovery import Loaded

    Failed = Callable[[errors.GangerError], None]


def _ignore(_: errors.GangerError) -> None:
    """No request depends on the outcome."""


def _nothing() -> None:
    """Nothing is left to be done."""


_FIRST_SERIAL = 1
_State = tuple[int, bytes] | bytes
"""Serial and text; the text alone of a new job, of which there may be many without a file."""


def _state(serial: int, body: bytes) -> _State:
    return body if serial == _FIRST_SERIAL else (serial, body)


def _parts(state: _State) -> tuple[int, bytes]:
    return (_FIRST_SERIAL, state) if isinstance(state, bytes) else state


class Ledger:
    """Everything that the job queue has promised to remember."""

    def __init__(
        self,
        directory: QueueDirectory,
        journal: Journal,
        cut_aside: Callable[[Cut], None] | None = None,
        make_aside: Callable[[SegmentAhead], None] | None = None,
    ) -> None:
        """``cut_aside`` carries a cut out in another thread; `was_cut` must be called after it.

        ``make_aside`` has another thread make a segment ahead; None: each is made when needed.
        """
        self._cut_aside = cut_aside
        self._make_aside = make_aside
        self._is_being_cut = False
        self._is_fresh = False
        self._is_cut_due = False
        self._was_behind = False
        self.has_left_memory = False
        """Whether something large was freed lately, of which the C library keeps the pages."""

        self._older_bytes = 0
        self.directory = directory
        self.last_id = 0
        self.is_read_only = False
        self._cause = ""
        self._journal = journal
        self._states: dict[int, _State] = {}
        # In the order of their ids, nearly always.
        self._unwritten: dict[int, None] = {}
        self._new_files: NewFiles | None = None
        # Of the unwritten ones, those whose files exist: a thread creates files only.
        self._to_replace: set[int] = set()
        self._covered: set[int] = set()
        self._repeated: set[int] = set()
        self._unarchived: dict[int, Callable[[], None]] = {}
        self._refused_inputs: list[str] = []
        self._inputs_to_remove: list[str] = []
        self._staged: dict[int, bytes] = {}
        self._effects: list[tuple[Callable[[], None], Failed]] = []
        self._written_serial = self._tried_serial = 0
        self._lent: dict[int, list[str]] = {}
        self._owned: set[int] = set()
        self._is_doubtful = False
        self._in_doubt: set[int] = set()

    @property
    def flushes(self) -> int:
        """How many flushes were made so far."""
        return self._journal.flushes

    @property
    def is_doubtful(self) -> bool:
        """Whether the next attempt writes everything anew, since a flush of it failed."""
        return self._is_doubtful

    def refusal(self) -> errors.ReadOnlyError:
        """The answer to requests for changes while the disk refuses writes."""
        return errors.ReadOnlyError(f"the queue takes no changes now: {self._cause}")

    def refuse_writes(self, error: errors.StorageError) -> None:
        """Take no changes from now on, because of this error, until `retry` has gone well."""
        self.is_read_only = True
        self._cause = error.text
        if self._new_files is not None:
            self._new_files.stop()
        # The disk may be full, and job files need room too.
        self._journal.give_up_ahead()

    def begin(self, loaded: Loaded) -> None:
        """Start afresh after loading: a new segment that repeats the states of living jobs.

        What the disk did not take while loading is tried again; if it still refuses, the
        ledger begins its life read-only.
        """
        self.last_id = loaded.last_id
        self._states = {**loaded.living, **loaded.unwritten}
        self._unwritten = dict.fromkeys(loaded.unwritten)
        self._unarchived = dict.fromkeys(loaded.unarchived, _nothing)
        self._refused_inputs = list(loaded.refused_inputs)
        self._owned = set(loaded.living)
        # A flush by our predecessor failed, or it died during one, or before it.
        self._is_doubtful = self._journal.has_older
        if not loaded.is_late:
            self.retry()
            return
        try:
            self._begin_beside_older(loaded)
        except errors.StorageError as error:
            self.refuse_writes(error)

    def _begin_beside_older(self, loaded: Loaded) -> None:
        """Begin a segment, and keep the older ones until all that they cover is in files."""
        self._archive_late()
        is_doubtful, self._older_bytes = self._is_doubtful, self._journal.bytes_on_disk()
        if is_doubtful:
            # The files of other jobs are among the unwritten ones then.
            replay.write_archived_anew(self.directory, loaded.archived)
            self._in_doubt |= self._owned
        self._append_segment({**loaded.living, **loaded.ahead})
        if not is_doubtful:
            # Otherwise a thread of our predecessor may still delete the older segments.
            self._covered |= loaded.unwritten.keys()
        self._is_doubtful, self._is_fresh, self._is_cut_due = False, True, True

    # ------------------------------------------------------------ what is promised

    def store_new(
        self,
        jobs: list[tuple[int, int, bytes]],
        done: Callable[[], None],
        failed: Failed,
        record: StoredRecord | None = None,
    ) -> None:
        """New jobs (id, serial, body), all or none. Their files follow by `write_pending`.

        ``record`` has them already, as they go into the journal.
        """

        def stored() -> None:
            ids = [job_id for job_id, _, _ in jobs]
            self._covered.update(ids)
            self._states.update({job_id: _state(serial, body) for job_id, serial, body in jobs})
            self._unwritten.update(dict.fromkeys(ids))
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
            known = self._known(job_id)
            # A newer one may have been noted while this one waited for its flush.
            if known is None or known[0] < serial:
                self._states[job_id] = (serial, body)
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
        is_due = self._journal.is_full or self._is_cut_due
        # Records that wait for `commit` would be dropped if the new segment failed.
        is_free = not self._effects and not self.is_read_only
        if is_due and is_free and not self._is_behind_at_renewal:
            self._renew_aside()

    def _want_next_segment(self) -> None:
        """Have a thread make the next segment, if it is time for that."""
        if self._make_aside is None or self.is_read_only:
            return
        # Without a list of the segments, one is made when it is needed, or refused.
        with contextlib.suppress(errors.StorageError):
            if (ahead := self._journal.make_ahead()) is not None:
                self._make_aside(ahead)

    def retry(self) -> bool:
        """Begin a new segment; after a failure: whether the disk takes writes again."""
        if self._is_being_cut:
            # The kernel reports an error once: of two flushes, the wrong one might get it.
            return not self.is_read_only
        # First: a failure drops records, whose effects must not run then.
        while self._effects:
            self._commit_once()
        self.is_read_only = False
        try:
            self._renew_journal()
        except errors.StorageError as error:
            self.refuse_writes(error)
        return not self.is_read_only

    # ------------------------------------------------------------ bodies and files

    def body(self, job_id: int) -> bytes | None:
        """The newest durable state of a live job; None if there is none."""
        known = self._known(job_id)
        return self.directory.read(job_id) if known is None else known[1]

    def newest(self, job_id: int) -> bytes | None:
        """As `body`, or the state that waits for the flush: where the next one starts from."""
        staged = self._staged.get(job_id)
        return self.body(job_id) if staged is None else staged

    def is_staged(self, job_id: int) -> bool:
        """Whether a state of the job waits for the flush."""
        return job_id in self._staged

    def in_memory(self, job_id: int) -> bytes | None:
        """As `newest`, but None if only the file has it."""
        staged = self._staged.get(job_id)
        known = self._known(job_id) if staged is None else None
        return staged if known is None else known[1]

    def serial(self, job_id: int) -> int | None:
        """The serial of the state in memory; None: the file is the newest."""
        known = self._known(job_id)
        return None if known is None else known[0]

    def _known(self, job_id: int) -> tuple[int, bytes] | None:
        """Serial and text of the state in memory."""
        known = self._states.get(job_id)
        return None if known is None else _parts(known)

    def is_covered(self, job_id: int) -> bool:
        """Whether the journal has the job's state, should its file be torn."""
        return job_id in self._covered

    def note(self, job_id: int, serial: int, body: bytes) -> None:
        """Keep a newer state that need not be durable."""
        # The process that writes the file may rely on it: the next segment repeats it.
        self._is_fresh = False
        self._states[job_id] = (serial, body)

    def withhold(self, job_id: int, serial: int, body: bytes) -> None:
        """Show this state of a job whose file has a newer one, which may not be durable yet."""
        self.note(job_id, serial, body)
        # The file must not get the older one: `retry` sees to what it has.
        self._unwritten.pop(job_id, None)

    def forget(self, job_id: int) -> None:
        """Drop the state in memory: the job's file is as new."""
        known = self._known(job_id)
        if job_id in self._in_doubt:
            self._in_doubt.discard(job_id)
            if known is not None and job_id not in self._owned:
                self._write_doubtful(job_id, known)
                return
        self._drop(job_id)

    def _drop(self, job_id: int) -> None:
        self._states.pop(job_id, None)
        self._unwritten.pop(job_id, None)
        self._to_replace.discard(job_id)
        if self._was_behind and not self._unwritten:
            # Dictionaries that were large keep their memory.
            self._unwritten, self._states = {}, dict(self._states)
            self._was_behind, self.has_left_memory = False, True

    def _write_doubtful(self, job_id: int, known: tuple[int, bytes]) -> None:
        """Write a file anew that the job's process wrote before a failed flush."""
        try:
            replay.write_file_anew(self.directory, job_id, known)
        except errors.StorageError as error:
            self._in_doubt.add(job_id)
            self.refuse_writes(error)
        else:
            self._drop(job_id)

    def write_file(self, job_id: int) -> None:
        """Write the newest state into the job's file; if the disk refuses, `retry` does it."""
        known = self._known(job_id)
        if known is None:
            return
        self._withdraw(job_id)
        try:
            self.directory.write(job_id, known[1], flush=False)
        except errors.StorageError as error:
            self._unwritten[job_id] = None
            self.refuse_writes(error)
        else:
            self._in_doubt.discard(job_id)
            self.forget(job_id)

    def write_state(self, job_id: int) -> bool:
        """As `write_file`, and keep the state in memory: the job's process will change the file."""
        known = self._states[job_id]
        self.write_file(job_id)
        self._states[job_id] = known
        return not self.is_read_only

    @property
    def is_short_of_spares(self) -> bool:
        """Whether to `make_spares` when there is time."""
        return self.directory.spares.is_short and not self.is_read_only

    def make_spares(self, is_enough: Callable[[], bool]) -> None:
        """Make spare files ahead; ``is_enough`` is asked before each."""
        while self.is_short_of_spares and not is_enough():
            self.directory.spares.make_ahead()

    def lend_spares(self, job_id: int) -> list[str]:
        """Files into which the job's process may write new versions of its file."""
        self._owned.add(job_id)
        if job_id not in self._lent:
            take = self.directory.spares.take
            self._lent[job_id] = [take() for _ in range(settings.SPARES_PER_JOB)]
        return self._lent[job_id]

    def take_back_spares(self, job_id: int) -> None:
        """Take back the spares of a job whose process is gone."""
        self._owned.discard(job_id)
        for path in self._lent.pop(job_id, ()):
            self.directory.spares.give_back(path)

    @property
    def has_unwritten(self) -> bool:
        """Whether files of new jobs, or the file of the last id, are still to be written."""
        return bool(self._unwritten) or self.last_id != self._tried_serial

    @property
    def unwritten_count(self) -> int:
        """How many new jobs have no file yet."""
        return len(self._unwritten)

    @property
    def is_behind(self) -> bool:
        """Whether so many new jobs have no file that a busy queue must write some as well."""
        count = len(self._unwritten)
        return count > settings.FILES_UNWRITTEN_MAX or (self._journal.is_full and count > 0)

    @property
    def is_far_behind(self) -> bool:
        """Whether the journal has grown so much that files must be written at any cost."""
        limit = settings.JOURNAL_SEGMENTS_FACTOR_MAX * settings.JOURNAL_SEGMENT_BYTES
        return bool(self._unwritten) and self._journal.size + self._older_bytes >= limit

    def write_newest(self, count: int, is_enough: Callable[[], bool] = lambda: False) -> None:
        """Write the files of so many new jobs, the newest first: the oldest may start soon.

        ``is_enough`` is asked after each.
        """
        self.write_serial()
        self._was_behind |= len(self._unwritten) > settings.FILES_UNWRITTEN_MAX
        for job_id in list(itertools.islice(reversed(self._unwritten), count)):
            if self.is_read_only:
                return
            self.write_file(job_id)
            if is_enough():
                return

    @property
    def has_new_files(self) -> bool:
        """Whether there are files that a thread can create."""
        return len(self._unwritten) > len(self._to_replace) and not self.is_read_only

    def begin_new_files(self, count: int) -> NewFiles:
        """The files of so many new jobs, the newest first, for a thread to create.

        `end_new_files` must be called when the thread is through, or when it is not to go on.
        """
        assert self._new_files is None
        self._was_behind |= len(self._unwritten) > settings.FILES_UNWRITTEN_MAX
        ids = (one for one in reversed(self._unwritten) if one not in self._to_replace)
        states = {job_id: _parts(self._states[job_id]) for job_id in itertools.islice(ids, count)}
        self._new_files = NewFiles(self.directory, states)
        return self._new_files

    def end_new_files(self) -> None:
        """Take notice of the files that the thread has created; it creates no more of these."""
        if self._new_files is None:
            return
        new_files, self._new_files = self._new_files, None
        new_files.give_up()
        for job_id, serial in new_files.written:
            known = self._known(job_id)
            # A job with a newer state by now stays unwritten, unless the queue has written that.
            if job_id in self._unwritten and known is not None and known[0] == serial:
                self._in_doubt.discard(job_id)
                self._drop(job_id)
        self._to_replace.update(self._unwritten.keys() & new_files.existing)
        if new_files.error is not None and not self.is_read_only:
            self.refuse_writes(new_files.error)

    def _withdraw(self, job_id: int) -> None:
        """See to it that no thread touches the job's file from now on."""
        if self._new_files is not None:
            self._new_files.withdraw(job_id)

    def write_pending(self, ids: Iterable[int] | None = None) -> None:
        """Write the files of new jobs that have none yet."""
        for job_id in sorted(self._unwritten if ids is None else ids):
            self.write_file(job_id)

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
        self.end_new_files()
        self.write_pending()
        self.write_serial()
        self._journal.close()
        self.directory.spares.close()
        self.directory.close()

    def _append(
        self, record: Record | StoredRecord, done: Callable[[], None], failed: Failed
    ) -> bool:
        if self.is_read_only:
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
    def _is_behind_at_renewal(self) -> bool:
        """Whether to let the segment grow until the files of new jobs have been written.

        The queue writes some at a time, and a new segment would need all of them at once.
        """
        if self._is_being_cut or self._new_files is not None:
            return True
        return len(self._unwritten) > settings.FILES_AT_ONCE

    def _commit_once(self, meanwhile: Callable[[], None] | None = None) -> None:
        effects, self._effects = self._effects, []
        self._staged.clear()
        try:
            self._journal.commit(self.last_id, meanwhile)
        except errors.StorageError as error:
            self.refuse_writes(error)
            refusal = self.refusal()
            for _, failed in effects:
                failed(refusal)
            return
        for done, _ in effects:
            done()

    def _move_archived(self) -> None:
        """Move the files of archived jobs; the journal remembers those that cannot be moved."""
        for job_id, done in list(self._unarchived.items()):
            known = self._known(job_id)
            self._withdraw(job_id)
            try:
                if known is not None:
                    self.directory.write(job_id, known[1], flush=False)
                self.directory.archive(job_id)
            except errors.StorageError as error:
                self.refuse_writes(error)
                return
            del self._unarchived[job_id]
            self.forget(job_id)
            done()

    def _renew_aside(self) -> None:
        """Begin a new segment; a thread flushes the file system and deletes the old ones."""
        if self._cut_aside is None or self._is_doubtful:
            self.retry()
            return
        try:
            self._bring_up_files()
            if self._is_fresh:
                # A start has just begun one.
                self._covered &= self._repeated
            else:
                self._begin_segment()
            cut = self._journal.prepare_cut()
        except errors.StorageError as error:
            self.refuse_writes(error)
            return
        assert cut is not None
        self._is_being_cut = True
        self._inputs_to_remove, self._refused_inputs = self._refused_inputs, []
        self._cut_aside(cut)

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
            self._journal.cut()
        except errors.StorageError:
            self._is_doubtful = True
            raise
        self._is_doubtful = self._is_fresh = self._is_cut_due = False
        self._older_bytes = 0
        names, self._refused_inputs = self._refused_inputs, []
        self._remove_inputs(names)

    def _remove_inputs(self, names: Iterable[str]) -> None:
        for name in names:
            # The next start of a daemon removes what cannot be removed now.
            with contextlib.suppress(errors.StorageError):
                self.directory.spool.remove_file(name)

    def _bring_up_files(self) -> None:
        """Write and move the files that are late: only the old segments have these changes."""
        self.end_new_files()
        self.write_pending()
        self._archive_late()

    def _archive_late(self) -> None:
        self._move_archived()
        if self._unarchived:
            raise errors.StorageError("files cannot be moved into the archive")

    def _begin_segment(self) -> None:
        """Begin a segment with all states that job files may lack once they are flushed.

        These are the states of jobs whose files other processes write, or the disk refused.
        """
        self._append_segment(self._states)

    def _append_segment(self, states: Mapping[int, _State]) -> None:
        self._journal.begin(self.last_id)
        for job_id, known in states.items():
            serial, body = _parts(known)
            self._journal.append(StateStored(job_id, serial, body))
        self._journal.commit(self.last_id)
        # The older segments may go at any moment from now on.
        self._covered, self._repeated = set(states), set(states)

    def _write_anew(self) -> None:
        """After a failed flush, write files anew: what can be read need not be on the disk."""
        if self._is_doubtful:
            said = replay.read_journal(self._journal)
            replay.write_anew(self.directory, said, self._unwritten.keys() | self._owned)
            self._in_doubt |= self._owned
        for job_id in self._in_doubt - self._owned:
            self.forget(job_id)
