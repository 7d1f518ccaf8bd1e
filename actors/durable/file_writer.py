"""The files of the jobs, and the states that are newer than them.

How it works. ``_states`` holds the newest durable state of a job whose file may be older than it:
the journal has it, so the file needs no flush of its own, and need not even exist yet
(``_unwritten``). When the file is as new, the state is forgotten.

The process of a job that was handed over writes the file itself, into files that the queue has made
for it (spares). The files of many new jobs are created by a thread
(`storage/queue_files/new_files` has the rules).

After a failed flush, files that were written before it are in doubt: what can be read need not be
on the disk. They are written anew, those of living processes when the process has gone. A file that
is found damaged before anybody has heard of a failure is mended from the journal (`read`).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...storage.queue_files import job_files, replay
from ...storage.queue_files.new_files import NewFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

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
        self._states: dict[int, State] = {}
        # In the order of their ids, nearly always.
        self._unwritten: dict[int, None] = {}
        self._written_count = 0
        self._new_files: NewFiles | None = None
        # Of the unwritten ones, those whose files exist: a thread creates files only.
        self._to_replace: set[int] = set()
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
            replay.write_file_anew(self._directory, job_id, known)
        except errors.StorageError as error:
            self._in_doubt.add(job_id)
            self._disk.refuse_writes(error)
        else:
            self._drop(job_id)

    def write_file(self, job_id: int) -> None:
        """Write the newest state into the job's file; if the disk refuses, `retry` does it."""
        known = self._known(job_id)
        if known is None:
            return
        self._withdraw(job_id)
        try:
            self._directory.write(job_id, known[1], flush=False)
        except errors.StorageError as error:
            self._unwritten[job_id] = None
            self._disk.refuse_writes(error)
        else:
            self._written_count += job_id in self._unwritten
            self._in_doubt.discard(job_id)
            self.forget(job_id)

    def write_state(self, job_id: int) -> bool:
        """As `write_file`, and keep the state in memory: the job's process will change the file."""
        known = self._states[job_id]
        self.write_file(job_id)
        self._states[job_id] = known
        return not self._disk.is_read_only

    @property
    def is_short_of_spares(self) -> bool:
        """Whether to `make_spares` when there is time."""
        return self._directory.spares.is_short and not self._disk.is_read_only

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
        for path in self._lent.pop(job_id, ()):
            self._directory.spares.give_back(path)

    @property
    def unwritten_count(self) -> int:
        """How many new jobs have no file yet."""
        return len(self._unwritten)

    @property
    def written_count(self) -> int:
        """How many new jobs got their files since the start."""
        by_thread = 0 if self._new_files is None else len(self._new_files.written)
        return self._written_count + by_thread

    def unwritten_bytes(self) -> int:
        """The size of the states of the new jobs that have no file yet."""
        return sum(len(parts(self._states[job_id])[1]) for job_id in self._unwritten)

    @property
    def states(self) -> Mapping[int, State]:
        """The newest states of the jobs whose files may be older."""
        return self._states

    @property
    def answered(self) -> set[int]:
        """The jobs whose files need not be right: the journal, or a process, answers for them.

        A process that lives flushes what the journal does not have, into new files.
        """
        return self._states.keys() | self._owned

    def write_newest(self, count: int, is_enough: Callable[[], bool]) -> None:
        """Write the files of so many new jobs, the newest first: the oldest may start soon.

        ``is_enough`` is asked after each.
        """
        self._was_behind |= len(self._unwritten) > settings.FILES_UNWRITTEN_MAX
        for job_id in list(itertools.islice(reversed(self._unwritten), count)):
            if self._disk.is_read_only:
                return
            self.write_file(job_id)
            if is_enough():
                return

    def archive(self, job_id: int) -> None:
        """Move the job's file into the archive, with its newest state; may raise `StorageError`."""
        known = self._known(job_id)
        self._withdraw(job_id)
        if known is not None:
            self._directory.write(job_id, known[1], flush=False)
        self._directory.archive(job_id)

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

    # ------------------------------------------------------------ files of new jobs, by a thread

    @property
    def has_thread(self) -> bool:
        """Whether a thread has files to create."""
        return self._new_files is not None

    def stop_new_files(self) -> None:
        """Let the thread create no more files; it may be at the last one."""
        if self._new_files is not None:
            self._new_files.stop()

    @property
    def has_new_files(self) -> bool:
        """Whether there are files that a thread can create."""
        return len(self._unwritten) > len(self._to_replace) and not self._disk.is_read_only

    def begin_new_files(self, count: int) -> NewFiles:
        """The files of so many new jobs, the newest first, for a thread to create.

        `end_new_files` must be called when the thread is through, or when it is not to go on.
        """
        assert self._new_files is None
        self._was_behind |= len(self._unwritten) > settings.FILES_UNWRITTEN_MAX
        ids = (one for one in reversed(self._unwritten) if one not in self._to_replace)
        states = {job_id: parts(self._states[job_id]) for job_id in itertools.islice(ids, count)}
        self._new_files = NewFiles(self._directory, states)
        return self._new_files

    def end_new_files(self) -> None:
        """Take notice of the files that the thread has created; it creates no more of these."""
        if self._new_files is None:
            return
        new_files, self._new_files = self._new_files, None
        new_files.give_up()
        self._written_count += len(new_files.written)
        for job_id, serial in new_files.written:
            known = self._known(job_id)
            # A job with a newer state by now stays unwritten, unless the queue has written that.
            if job_id in self._unwritten and known is not None and known[0] == serial:
                self._in_doubt.discard(job_id)
                self._drop(job_id)
        self._to_replace.update(self._unwritten.keys() & new_files.existing)
        if new_files.error is not None and not self._disk.is_read_only:
            self._disk.refuse_writes(new_files.error)

    def _withdraw(self, job_id: int) -> None:
        """See to it that no thread touches the job's file from now on."""
        if self._new_files is not None:
            self._new_files.withdraw(job_id)

    def write_pending(self, ids: Iterable[int] | None = None) -> None:
        """Write the files of new jobs that have none yet."""
        for job_id in sorted(self._unwritten if ids is None else ids):
            self.write_file(job_id)
