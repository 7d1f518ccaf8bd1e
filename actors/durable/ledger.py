"""The durable side of the job queue: what was promised, and what waits for the next flush.

How it works. `store_...` appends a record to the log, and hangs an *effect* on its position: what
may happen only once the record is durable. `commit` makes one flush for all of them, and runs the
effects up to the position that is durable then, in order. If the flush fails, each effect's
``failed`` runs instead, the ledger is read-only, and `retry` finds out whether the disk works
again. ``failed`` gets a `ReadOnlyError` if the record is certainly gone, an `OutcomeUnknownError`
if a loss of power may bring it back.

``_staged`` holds the states that wait for the flush: the next state of the same job must start
from there. The durable states that are newer than the jobs' files are in ``files`` (`file_writer`).

The configuration store appends its changes here, too (`change_log`). When a part of the log is
deleted, and what is repeated then, is the matter of ``segments`` (`log_segments`).
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from ...storage import errors, settings, wording
from ...storage.disk import reserve
from ...storage.log.records import (
    ConfigWritten,
    JobArchived,
    JobsPurged,
    JobsStored,
    StateFiled,
    StateStored,
    StoredRecord,
)
from ...storage.queue_files import replay
from .disk_state import DiskState, bytes_of_cancelation
from .effects import Effects, ignore, nothing
from .file_writer import FileWriter
from .lazy_records import LazyRecords
from .log_segments import InThread, LogSegments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ...storage.log.cut import Cut
    from ...storage.log.journal import Journal
    from ...storage.log.records import EncodedChange, Record
    from ...storage.log.segment_ahead import SegmentAhead
    from ...storage.queue_files.compaction import Compaction
    from ...storage.queue_files.job_files import QueueDirectory
    from .effects import Failed
    from .recovered import Recovered


class Ledger:
    """Everything that the job queue has promised to remember."""

    def __init__(
        self,
        directory: QueueDirectory,
        journal: Journal,
        compact_in_thread: Callable[[Compaction, Cut], None] | None = None,
        make_in_thread: Callable[[SegmentAhead], None] | None = None,
        *,
        keeps_reserve: bool = False,
    ) -> None:
        """``compact_in_thread`` has another thread compact; then call `was_compacted`.

        ``make_in_thread`` has another thread make a segment ahead. None: both are done in turns.
        ``keeps_reserve``: keep space for when the disk is full.
        """
        self.directory = directory
        self.last_id = 0
        """The highest id of a job that was given out."""

        self._journal = journal
        kept = reserve.Reserve(str(directory.places.reserve), is_kept=keeps_reserve)
        self._disk = DiskState(kept, self._give_up_room, self._bytes_to_come)
        self.files = FileWriter(directory, self._disk, lambda: replay.read_journal(journal))
        self.segments = LogSegments(
            directory,
            journal,
            self._disk,
            self.files,
            in_thread=InThread(compact_in_thread, make_in_thread),
            last_id=lambda: self.last_id,
        )
        self._staged: dict[int, bytes] = {}
        self._effects = Effects()
        self.lazy = LazyRecords(journal, self.segments, self.files, self._effects)
        self._written_serial = self._tried_serial = 0

    def begin(self, recovered: Recovered) -> None:
        """Start afresh after loading; if the disk refuses, the ledger begins its life read-only."""
        self.last_id = recovered.last_id
        self._disk.make_reserve()
        self.segments.begin(recovered)

    @property
    def flushes(self) -> int:
        """How many flushes were made so far."""
        return self._journal.flushes

    @property
    def position(self) -> int:
        """The position up to which the log is durable."""
        return self._journal.durable

    @property
    def is_read_only(self) -> bool:
        """Whether the disk refuses writes; `retry` finds out whether it still does."""
        return self._disk.is_read_only

    @property
    def has_late(self) -> bool:
        """Whether an effect waits for a flush that is made for others."""
        return self._effects.has_late

    @property
    def is_short(self) -> bool:
        """Whether the disk is full: only what gives space back is taken (`DiskState`)."""
        return self._disk.is_short

    @property
    def takes_work(self) -> bool:
        """Whether new jobs are taken, and pending ones started."""
        return self._disk.takes_work

    def lacks_room(self) -> bool:
        """Whether the disk has no room for a new job, though those that are there may start."""
        return self.takes_work and not self._has_room_for(settings.NEW_JOB_BYTES)

    @property
    def reserve_bytes(self) -> int:
        """The bytes of the reserve for when the disk is full; 0: there is none now."""
        return self._disk.reserve.size

    def look_for_space(self) -> None:
        """Look whether the disk is full, before a write fails: once in each turn."""
        self._disk.look_once()

    def check_room(self, count: int) -> None:
        """Raise `DiskFullError` unless the disk has room for so many new jobs."""
        size = count * settings.NEW_JOB_BYTES
        if not self._has_room_for(size):
            raise errors.DiskFullError(
                f"the disk has no room for {wording.counted(count, 'more job')}: about "
                f"{wording.size(size)} are needed; {reserve.REMEDY}"
            )

    def _has_room_for(self, size: int) -> bool:
        if not self._disk.has_room_for(size):
            # They save time, and what they take is needed now.
            self.directory.spares.close()
            self._disk.look()
        return self._disk.has_room_for(size)

    def has_room_again(self) -> bool:
        """Make the reserve again; False: there is no room for it, or at all."""
        if not self._disk.has_room_again():
            return False
        return not self.segments.is_adopted or self.segments.renew()

    def refusal(self) -> errors.StorageError:
        """The answer to requests for changes while the disk refuses writes, or is short."""
        return self._disk.refusal()

    def refuse_writes(self, error: errors.StorageError) -> None:
        """Take no changes from now on, because of this error, until `retry` has gone well."""
        self._disk.refuse_writes(error)

    def _bytes_to_come(self) -> int:
        files = self.files.missing_count * settings.JOB_FILE_BYTES
        return files + self.segments.bytes_to_renew

    def _give_up_room(self) -> None:
        self.files.stop_compaction()
        # The disk may be full, and job files need room too.
        self._journal.give_up_ahead()
        if self.is_short or self._disk.is_full:
            # Those that a flush may have spoilt go anyway, before a file is written (`inodes`).
            self.directory.spares.close()

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
            # First: whoever waits for the ids need not wait for our books.
            done()
            self.segments.cover([job_id for job_id, _, _ in jobs])
            self.files.add_new(jobs)

        self._append_all([JobsStored(jobs) if record is None else record], stored, failed)

    def store_state(
        self,
        state: tuple[int, int, bytes],
        done: Callable[[], None],
        failed: Failed = ignore,
        *,
        is_cancelation: bool = False,
    ) -> None:
        """A job's whole new state (id, serial, body).

        ``is_cancelation``: it can be purged then, so a full disk takes it if the journal has room.
        """
        job_id, serial, body = state
        record = StateStored(job_id, serial, body)

        def stored() -> None:
            if self._staged.get(job_id) is body:
                del self._staged[job_id]
            self.segments.cover([job_id])
            # A newer one may have been noted while this one waited for its flush.
            self.files.add(job_id, serial, body)
            done()

        has_room = False
        if is_cancelation and self._is_full_now():
            has_room = self._journal.use_half_of_last_room(record)
            if not has_room and self._journal.position > self._journal.durable:
                # With it, the disk would refuse the records that wait for the same write.
                failed(self._disk.refusal(f"job {job_id} is not canceled"))
                return
        if self._append_all([record], stored, failed, has_room=has_room):
            self._staged[job_id] = body

    def store_lazily(
        self, state: tuple[int, int, bytes], done: Callable[[], None], failed: Failed
    ) -> None:
        """As `store_state`, but it goes into the log with the next flush, which nobody awaits.

        For an end that a loss of power may take: the job is final in its file as well.
        """
        if self.is_read_only:
            failed(self.refusal())
            return
        self.lazy.store_state(*state)
        done()

    def takes_cancelation_of(self, job_id: int) -> bool:
        """Whether the states with which a process ends its canceled job can be stored.

        A full disk takes them if the journal has room for them.
        """
        if not self.is_read_only:
            return True
        body = self.newest(job_id) if self._takes_removals else None
        if body is None or len(body) > settings.JOURNALED_STATE_BYTES_MAX:
            return False
        return self._journal.has_half_of_last_room(bytes_of_cancelation(body))

    def store_filed(
        self, state: tuple[int, int, bytes], done: Callable[[], None], failed: Failed
    ) -> None:
        """A job's new state that its file has, flushed: id, serial and digest of the text."""
        self._append_all([StateFiled(*state)], done, failed)

    def store_archived(
        self, job_id: int, done: Callable[[], None], failed: Failed = ignore
    ) -> None:
        """The job goes to the archive; its file is moved once that is durable."""
        archive = functools.partial(self.segments.archive, job_id, done)
        self._append_all([JobArchived(job_id)], archive, failed)

    def store_purged(
        self, files: Mapping[int, list[str]], done: Callable[[], None], failed: Failed
    ) -> None:
        """These jobs, which have ended, go for good; their files go once that is durable."""

        def stored() -> None:
            for job_id in files:
                self.files.purge(job_id)
            self.segments.purge(files)
            done()

        if has_room := self._takes_removals:
            self._journal.use_last_room()
        self._append_all([JobsPurged(list(files))], stored, failed, has_room=has_room)

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
                self.segments.changes.note(record)
            done(position)

        position = self._append_all(appended, stored, failed)

    def note_written(self, serial: int) -> None:
        """``config.data`` has the changes up to this one: no later segment repeats them."""
        self.segments.changes.note(record := ConfigWritten(serial))
        if not self.is_read_only:
            # With the next flush, whenever that is: without it, they are read once more.
            self._journal.append(record)

    def after_commit(self, done: Callable[[], None], failed: Failed = ignore) -> None:
        """Do this when everything stored so far is durable, but for what is stored lazily."""
        self._effects.add(done, failed)

    def commit(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Make everything durable, run the effects, and repeat that for records that these add.

        ``meanwhile`` is called before the effects, while the disk writes, unless it refuses that.
        """
        if meanwhile is not None and not self._effects:
            meanwhile()
        flushes = self.flushes
        while self._effects and self._commit_once(meanwhile):
            meanwhile = None
        self._disk.end_turn(has_written=self.flushes > flushes)
        self.files.take_notice(settings.FILES_NOTICED_AT_ONCE)
        if self.segments.is_full:
            self.seal()
        self.segments.compact()
        self.segments.want_next()

    def write_lazy(self) -> None:
        """Write what was stored lazily, at rest, when there is nothing else to write."""
        if self.lazy.are_there and self.patience_seconds == settings.LAZY_SECONDS:
            self.lazy.hasten(nothing)
            self.commit()

    def seal(self) -> None:
        """Begin a new segment, unless no more may be sealed, or the disk refuses writes."""
        # Records that wait for `commit` would be dropped if the new segment failed.
        if not (self._effects or self.has_late):
            self.segments.seal()

    def retry(self) -> bool:
        """Begin a new segment, or after the disk was full go on; whether it takes writes."""
        # First: a failure drops records, whose effects must not run then.
        if self.has_late:
            self.lazy.hasten(nothing)
        while self._effects and not self.segments.is_compacting and self._commit_once():
            pass
        return self.segments.retry()

    def was_compacted(self, failure: errors.StorageError | None = None) -> None:
        """The compactor has come to an end; `LogSegments.was_compacted` says what may follow."""
        for state in self.segments.was_compacted(failure):
            self.store_state(state, nothing)

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

    def note(self, job_id: int, serial: int, body: bytes) -> None:
        """Keep a newer state that need not be durable."""
        # The process that writes the file may rely on it: the next segment repeats it.
        self.segments.is_fresh = False
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
        if self.is_behind and self.segments.is_compacting:
            return False
        return self.has_unwritten

    @property
    def patience_seconds(self) -> float | None:
        """How long to wait for a message before the queue writes files; None: it has none."""
        if not self.takes_work:
            return None
        if self.has_work_at_rest or self.files.is_short_of_spares:
            return settings.FILES_REST_SECONDS
        if self.lazy.are_there:
            return settings.LAZY_SECONDS
        return settings.MEMORY_REST_SECONDS if self.files.has_left_memory else None

    @property
    def is_behind(self) -> bool:
        """Whether so many jobs have no file that the compactor is to write them."""
        return self.files.unwritten_count > settings.FILES_UNWRITTEN_MAX

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
        if self.lazy.are_there and not (self._effects or self.is_read_only):
            with contextlib.suppress(errors.StorageError):
                self._journal.write(self.last_id)
        if self.takes_work:
            self.files.write_newest(self.files.unwritten_count, is_enough)
            self.write_serial()
        self._journal.close()
        self.directory.spares.close()
        self.directory.close()

    @property
    def _takes_removals(self) -> bool:
        """Whether records may use the last room of the journal: the disk works, or is full."""
        return self._disk.is_full or not self.is_read_only

    def _is_full_now(self) -> bool:
        """Whether the disk is full, seen only now perhaps, and not broken."""
        self._disk.look()
        return self._takes_removals and not self.takes_work

    def _append_all(
        self,
        appended: Iterable[Record | EncodedChange | StoredRecord],
        done: Callable[[], None],
        failed: Failed,
        *,
        has_room: bool = False,
    ) -> int:
        """The position of the last of these records; 0: the disk refuses writes.

        ``has_room``: a full disk takes them nevertheless, in the last room of the journal.
        """
        if self._disk.is_read_only and not has_room:
            failed(self.refusal())
            return 0
        for record in appended:
            self._journal.append(record)
        self.segments.is_fresh = False
        self.lazy.hasten(done, failed)
        return self._effects.awaited

    def _commit_once(self, meanwhile: Callable[[], None] | None = None) -> bool:
        """Whether any effect could run: what is not durable yet waits for another turn."""
        try:
            if self._effects.awaited > self._journal.durable:
                self._journal.write(self.last_id, meanwhile)
                self.lazy.are_there = False
            elif meanwhile is not None:
                meanwhile()
        except errors.StorageError as error:
            self.lazy.are_there = False
            self._staged.clear()
            self.refuse_writes(error)
            is_unknown = isinstance(error, errors.OutcomeUnknownError)
            refusal = error if is_unknown else self.refusal()
            self._effects.fail(refusal, self._journal.durable)
            return True
        return self._effects.run(self._journal.durable)
