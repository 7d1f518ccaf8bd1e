"""The files of the jobs, and the states that are newer than them.

How it works. ``_states`` holds the newest durable state of a job whose file may be older than it:
the journal has it, so the file needs no flush of its own, and need not even exist yet
(``_unwritten``). When the file is as new, the state is forgotten.

The process of a job that was handed over writes the file itself, into files that the queue has made
for it (spares). When a segment is sealed, the missing files that it covers become the compactor's
(``_in_thread``; `storage/queue_files/compaction` has the rules), but for those of jobs that the
queue has claimed, because their processes are being made.

After a failed flush, files that were written before it are in doubt: what can be read need not be
on the disk. They are written anew, those of living processes when the process has gone. A file that
is found damaged before anybody has heard of a failure is mended from the journal (`read`).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...storage.queue_files import job_files, replay

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from ...storage.queue_files.compaction import Compaction
    from ...storage.queue_files.job_files import QueueDirectory
    from ...storage.queue_files.replay import JournalContent
    from .disk_state import DiskState
    from .recovered import Recovered

_FIRST_SERIAL = 1
State = tuple[int, bytes] | bytes
"""Serial and text; the text alone of a new job, of which there may be many without a file."""


def _state(serial: int, body: bytes) -> State:
    return body if serial == _FIRST_SERIAL else (serial, body)


def parts(state: State) -> tuple[int, bytes]:
    """Serial and text of a state."""
    return (_FIRST_SERIAL, state) if isinstance(state, bytes) else state


class FileWriter:
    """Writes the files of jobs; if the disk refuses, the next attempt does it."""

    def __init__(
        self, directory: QueueDirectory, disk: DiskState, journaled: Callable[[], JournalContent]
    ) -> None:
        """``journaled`` reads the journal."""
        self._directory = directory
        self._disk = disk
        self._journaled = journaled
        self._beyond_repair: set[int] = set()
        self._given_up: set[int] = set()
        self._states: dict[int, State] = {}
        # In the order of their ids, nearly always.
        self._unwritten: dict[int, None] = {}
        self._compaction: Compaction | None = None
        # The jobs whose files it writes; they are not in ``_unwritten`` meanwhile.
        self._in_thread: dict[int, int] = {}
        # Their processes are being made, or were.
        self._claimed: set[int] = set()
        self._lent: dict[int, list[str]] = {}
        self._owned: set[int] = set()
        self._in_doubt: set[int] = set()
        self._was_behind = False
        self.when_mended: Callable[[int], None] = lambda _: None
        """Is told of each job whose damaged file the journal has made up for."""

        self.has_left_memory = False
        """Whether something large was freed lately, of which the C library keeps the pages."""

    def begin(self, recovered: Recovered) -> None:
        """Start afresh with what was recovered."""
        self._states = {**recovered.living, **recovered.unwritten}
        self._unwritten = dict.fromkeys(recovered.unwritten)
        self._owned = set(recovered.living)
        self._given_up = recovered.given_up

    def doubt(self, states: Mapping[int, tuple[int, bytes]]) -> None:
        """Write the files of these jobs anew, too: what can be read need not be on the disk."""
        self._states.update(states)
        self._unwritten.update(dict.fromkeys(states))
        self.doubt_owned()

    # ------------------------------------------------------------ states

    def body(self, job_id: int) -> bytes | None:
        """The newest durable state of a live job; None if there is none."""
        known = self._known(job_id)
        return self.read(job_id) if known is None else known[1]

    def read(self, job_id: int) -> bytes | None:
        """The text of the job's file; if that is damaged, the text of the journal."""
        data = self._directory.read(job_id)
        if data is None or not job_files.is_damaged(data):
            return data
        return self._mended(job_id, data, lambda said: said.states.get(job_id))

    def read_archived(self, job_id: int) -> bytes | None:
        """As `read`, of an archived job."""
        data = self._directory.read_archived(job_id)
        if data is None or not job_files.is_damaged(data):
            return data
        return self._mended(job_id, data, lambda said: said.archived.get(job_id))

    def _mended(
        self, job_id: int, damaged: bytes, find: Callable[[JournalContent], replay.State | None]
    ) -> bytes:
        """The text of the journal, if that has one; then the file is written anew."""
        if job_id in self._beyond_repair:
            # To read the journal takes long.
            return damaged
        said = self._journaled()
        if (state := find(said)) is None:
            self._beyond_repair.add(job_id)
            return damaged
        if job_id not in self._owned:
            # The disk has refused this page, so it may have refused others.
            self._directory.spares.renew()
            try:
                if job_id in said.archived:
                    replay.write_archived_file_anew(self._directory, job_id, state)
                else:
                    replay.write_file_anew(self._directory, job_id, state)
            except errors.StorageError as error:
                self._disk.refuse_writes(error)
        self.when_mended(job_id)
        return state[1]

    def in_memory(self, job_id: int) -> bytes | None:
        """As `body`, but None if only the file has it."""
        known = self._known(job_id)
        return None if known is None else known[1]

    def serial(self, job_id: int) -> int | None:
        """The serial of the state in memory; None: the file is the newest."""
        known = self._known(job_id)
        return None if known is None else known[0]

    def _known(self, job_id: int) -> tuple[int, bytes] | None:
        """Serial and text of the state in memory."""
        known = self._states.get(job_id)
        return None if known is None else parts(known)

    def add_new(self, jobs: list[tuple[int, int, bytes]]) -> None:
        """Keep the first states (id, serial, body) of new jobs, which have no files yet."""
        self._states.update({job_id: _state(serial, body) for job_id, serial, body in jobs})
        self._unwritten.update(dict.fromkeys(job_id for job_id, _, _ in jobs))
        self._was_behind |= len(self._unwritten) > settings.FILES_UNWRITTEN_MAX

    def add(self, job_id: int, serial: int, body: bytes) -> None:
        """Keep a state, unless a newer one is known."""
        known = self._known(job_id)
        if known is None or known[0] < serial:
            self._states[job_id] = (serial, body)

    def note(self, job_id: int, serial: int, body: bytes) -> None:
        """Keep a newer state that need not be durable."""
        self._states[job_id] = (serial, body)

    def leave(self, job_id: int) -> None:
        """Let the job's file be: it has a newer state, which may not be durable yet."""
        self._withdraw(job_id)
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
        self._claimed.discard(job_id)
        if self._was_behind and not self._unwritten and not self._in_thread:
            # Dictionaries that were large keep their memory.
            self._unwritten, self._states = {}, dict(self._states)
            self._was_behind, self.has_left_memory = False, True

    def _write_doubtful(self, job_id: int, known: tuple[int, bytes]) -> None:
        """Write a file anew that the job's process wrote before a failed flush."""
        try:
            replay.write_file_anew(self._directory, job_id, known)
        except errors.StorageError as error:
            self._in_doubt.add(job_id)
            self._disk.refuse_writes(error)
        else:
            self._drop(job_id)

    def write_file(self, job_id: int) -> None:
        """Write the newest state into the job's file; if the disk refuses, `retry` does it.

        On a full disk it waits until there is room: the log has the state.
        """
        self._withdraw(job_id)
        known = self._known(job_id)
        if known is None:
            return
        if self._disk.is_short:
            self._unwritten[job_id] = None
            return
        try:
            self._directory.write(job_id, known[1], flush=False)
        except errors.StorageError as error:
            self._unwritten[job_id] = None
            self._disk.refuse_writes(error)
        else:
            self._in_doubt.discard(job_id)
            self.forget(job_id)

    def write_state(self, job_id: int) -> bool:
        """As `write_file`, and keep the state in memory: the job's process will change the file."""
        known = self._states[job_id]
        self.write_file(job_id)
        self._states[job_id] = known
        return job_id not in self._unwritten

    @property
    def is_short_of_spares(self) -> bool:
        """Whether to `make_spares` when there is time."""
        return self._directory.spares.is_short and self._disk.takes_work

    def make_spares(self, is_enough: Callable[[], bool]) -> None:
        """Make spare files ahead; ``is_enough`` is asked before each."""
        while self.is_short_of_spares and not is_enough():
            self._directory.spares.make_ahead()

    def lend_spares(self, job_id: int) -> list[str]:
        """Files into which the job's process may write new versions of its file."""
        self._owned.add(job_id)
        if job_id not in self._lent:
            take = self._directory.spares.take
            self._lent[job_id] = [take() for _ in range(settings.SPARES_PER_JOB)]
        return self._lent[job_id]

    def take_back_spares(self, job_id: int) -> None:
        """Take back the spares of a job whose process is gone."""
        self._owned.discard(job_id)
        self._claimed.discard(job_id)
        for path in self._lent.pop(job_id, ()):
            self._directory.spares.give_back(path)

    @property
    def unwritten_count(self) -> int:
        """How many jobs lack files that the queue itself has to write, or the next compaction."""
        return len(self._unwritten)

    @property
    def missing_count(self) -> int:
        """How many jobs lack files, also such as the compactor writes now."""
        return len(self._unwritten) + len(self._in_thread)

    def unwritten(self, job_id: int) -> tuple[int, bytes] | None:
        """Serial and text of the state that the job's file lacks; None if it has it."""
        return self._known(job_id) if job_id in self._unwritten else None

    @property
    def states(self) -> Mapping[int, State]:
        """The newest states of the jobs whose files may be older."""
        return self._states

    def states_to_repeat(self) -> dict[int, State]:
        """The states that a new segment repeats: others are the compactor's from now on."""
        unwritten, in_thread, claimed = self._unwritten, self._in_thread, self._claimed
        return {
            job_id: state
            for job_id, state in self._states.items()
            if job_id in claimed or (job_id not in unwritten and job_id not in in_thread)
        }

    def claim(self, job_id: int) -> None:
        """Leave the job's file to the queue: a process for it is being made."""
        self._claimed.add(job_id)

    @property
    def answered(self) -> set[int]:
        """The jobs whose files need not be right: the journal, or a process, answers for them.

        A process that lives flushes what the journal does not have, into new files. What was given
        up at the start nobody makes right any more.
        """
        return self._states.keys() | self._owned | self._given_up

    def write_newest(self, count: int, is_enough: Callable[[], bool]) -> None:
        """Write the files of so many new jobs, the newest first: the oldest may start soon.

        ``is_enough`` is asked after each.
        """
        for job_id in list(itertools.islice(reversed(self._unwritten), count)):
            if not self._disk.takes_work:
                return
            self.write_file(job_id)
            if is_enough():
                return

    def archive(self, job_id: int) -> None:
        """Move the job's file into the archive, with its newest state; may raise `StorageError`."""
        self._withdraw(job_id)
        known = self._known(job_id)
        if known is not None:
            self._directory.write(job_id, known[1], flush=False)
        self._directory.archive(job_id)

    def purge(self, job_id: int) -> None:
        """The job goes for good: no file gets a state of it any more."""
        self._withdraw(job_id)
        self._in_doubt.discard(job_id)
        self._given_up.discard(job_id)
        self._drop(job_id)

    # ------------------------------------------------------------ doubts

    def doubt_owned(self) -> None:
        """The files of living processes may be lost: `forget` writes them anew."""
        self._in_doubt |= self._owned

    def write_anew(self, journaled: JournalContent) -> None:
        """Write all files that the journal covers anew, and later those of living processes."""
        replay.write_anew(self._directory, journaled, self._unwritten.keys() | self._owned)
        self.doubt_owned()

    def settle_doubts(self) -> None:
        """Write the doubtful files anew whose processes have gone."""
        for job_id in self._in_doubt - self._owned:
            self.forget(job_id)

    # ------------------------------------------------------------ the compactor

    def begin_compaction(self, covered: Container[int]) -> tuple[dict[int, int], set[int]]:
        """The jobs for the compactor, with their serials, and the jobs that it must leave out.

        ``covered``: the jobs whose states the newest segment has.
        """
        assert self._compaction is None
        wanted = {
            job_id: parts(self._states[job_id])[0]
            for job_id in self._unwritten
            if job_id not in covered and job_id not in self._owned
        }
        return wanted, self.answered - wanted.keys()

    def hand_to(self, compaction: Compaction, wanted: dict[int, int]) -> None:
        """From now on the files of these jobs are the compactor's."""
        self._compaction, self._in_thread = compaction, dict(wanted)
        for job_id in wanted:
            del self._unwritten[job_id]

    def take_notice(self, count: int | None = None) -> None:
        """Drop the states whose files the compactor has written, ``count`` of them at most."""
        if self._compaction is None:
            return
        written = self._compaction.written
        for job_id in list(itertools.islice(written, count)):
            serial = written.pop(job_id)
            if self._in_thread.pop(job_id, None) is not None:
                self._note_written(job_id, serial)

    def stop_compaction(self) -> None:
        """Have the compactor write no more files; it may be at the last one."""
        if self._compaction is not None:
            self._compaction.stop()

    def end_compaction(self) -> None:
        """Take notice of all that the compactor has written; it writes no more files."""
        if self._compaction is None:
            return
        self._compaction.give_up()
        self.take_notice()
        self._compaction = None
        self._unwritten = {**dict.fromkeys(self._in_thread), **self._unwritten}
        self._in_thread = {}

    def _note_written(self, job_id: int, serial: int) -> None:
        known = self._known(job_id)
        if known is not None and known[0] == serial:
            self._in_doubt.discard(job_id)
            self._drop(job_id)
        elif known is not None:
            # It has a newer state by now, which the newest segment covers.
            self._unwritten[job_id] = None

    def _withdraw(self, job_id: int) -> None:
        """See to it that the compactor leaves the job's file alone from now on."""
        if self._compaction is None or self._in_thread.pop(job_id, None) is None:
            return
        known = self._known(job_id)
        if known is None:
            return
        if self._compaction.withdraw(job_id, known[0]):
            self._in_doubt.discard(job_id)
            self._drop(job_id)
        else:
            self._unwritten[job_id] = None

    def write_pending(self) -> None:
        """Write all files that are missing, but for those that the compactor writes."""
        for job_id in sorted(self._unwritten):
            if self._disk.is_short:
                return
            self.write_file(job_id)
