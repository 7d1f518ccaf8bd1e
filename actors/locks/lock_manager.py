"""The lock manager: grants locks (`locking`), and is the single writer of the lock state.

It writes every change (`lock_journal`) before it sends a reply, but does not flush it. The files
matter only while processes live that hold locks, so they must survive the daemon, but not the
machine (docs/decisions/locks-without-flush.md).
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, assert_never

from ...storage import errors, settings
from ...storage.alive import lock_files
from ...storage.locks import lock_journal
from ...storage.locks.lock_journal import LockJournal, StoredLocks, TurnStored
from ...storage.locks.locks import CONFIG_LOCK, Owner
from ...storage.nodes import task_marks
from ...storage.prediction.lock_types import NO_LOCKS, forecast_of_locks
from ...transport import messages
from ..processes import sessions
from ..runtime.addresses import CONFIG_STORE, SCHEDULER
from ..runtime.component import Component
from ..runtime.installed_answers import InstalledAnswers
from . import lock_refusals, lock_views
from .lock_questions import LockQuestions
from .locking import LockState
from .owner_watch import OwnerWatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...storage.prediction.lock_types import LockForecast
    from ...transport.envelopes import Envelope
    from ...transport.messages import Message

_FIRST_IN_LINE = -(2**31)
"""A priority before those of all jobs."""

_Take = messages.RequestLocks | messages.TryLocks | messages.TakeFreeLocks
_GiveBack = messages.ReleaseLocks | messages.DowngradeLocks | messages.KeepLocks
_Query = (
    messages.ReadOwner
    | messages.ReadLockTable
    | messages.ReadHolders
    | messages.ListLocks
    | messages.AwaitLocks
    | messages.ReadLockWaits
    | messages.ExplainOwner
    | messages.SimulateLocks
    | messages.QueryLocks
)


class LockManager(Component[messages.LockMessage]):
    """Grants locks; replies wait until the turn's changes are written."""

    name = "lock_manager"

    def boot(self) -> None:
        """Read the lock state, and free the locks of dead owners."""
        self._waiting: dict[Owner, Envelope] = {}
        self._answers: list[tuple[Envelope, Message]] = []
        self._tables: list[Envelope] = []
        self._journal = LockJournal(self.places)
        self._state, stored = self._load()
        self._since = stored.since
        own = self.runtime.host.daemon_lock.path
        self._owners = OwnerWatch(stored.fenced, self._state.owners(), own)
        self.questions = LockQuestions(self.runtime)
        self._installed = InstalledAnswers(self)
        self._written_revision = -1
        self._watchers: dict[int, tuple[Envelope, int]] = {}
        self._watchers_last = 0
        # Above those of a predecessor.
        self._revision_start = time.time_ns()
        self._is_disk_awaited = self._is_sweep_due = False
        # The scheduler hears of held locks: of all at first, then of those of changed owners.
        self._is_reporting = True
        self._is_report_due = True
        self._unreported: dict[Owner, None] = {}
        self._ended_lock_files: set[str] = set()
        self._end_dead_owners()
        self._take_for_tasks()
        self._sweep_later()

    def receive(self, envelope: Envelope[messages.LockMessage]) -> None:  # noqa: C901, PLR0912 - a table
        """Handle one message."""
        message = envelope.message
        match message:
            case messages.RequestLocks() | messages.TryLocks() | messages.TakeFreeLocks():
                self._take(envelope, message)
            case messages.ReleaseLocks() | messages.DowngradeLocks() | messages.KeepLocks():
                self._give_back(envelope, message)
            case messages.OwnerEnded():
                if not task_marks.is_marked(message.lock_file):
                    self._end_owner(message.lock_file)
            case messages.RecheckOwners():
                self._end_dead_owners()
            case messages.FreeDeadOwners():
                self._end_dead_owners()
                self._answers.append((envelope, messages.Done()))
            case messages.TakeLocksOfTasks():
                self._take_for_tasks()
                self._answers.append((envelope, messages.Done()))
            case messages.SweepOwners():
                self._sweep()
            case messages.ReportOwners():
                self._is_reporting = self._is_report_due = message.is_wanted
                self._unreported.clear()
            case messages.LocksAwaitedTooLong():
                self._answer_watcher(message.number)
            case messages.QuestionsAnswered():
                self.questions.answered(message.error)
            case messages.DiskRetried():
                # The end of this turn tries again.
                self._is_disk_awaited = False
            case _:
                self._query(envelope, message)

    def _query(self, envelope: Envelope, message: _Query) -> None:
        match message:
            case messages.ReadOwner():
                held = [*self._state.list_locks(message.owner)]
                is_waiting = self._state.has_pending(message.owner)
                self._answers.append((envelope, messages.OwnerRead(held, is_waiting)))
            case messages.ReadLockTable():
                self._tables.append(envelope)
            case messages.ReadHolders():
                owners, text = lock_refusals.holders(message.lock, self._state, self._since)
                envelope.reply(messages.LockHolders(owners, text))
            case messages.ListLocks():
                self._list(envelope)
            case messages.AwaitLocks():
                self._await_change(envelope, message)
            case messages.ReadLockWaits():
                self.questions.reply(envelope, lock_views.waits)
            case messages.ExplainOwner():
                explained = functools.partial(lock_views.explained, lock_file=message.lock_file)
                self.questions.reply(envelope, explained)
            case messages.QueryLocks():
                self._installed.take(envelope, message)
            case messages.SimulateLocks():
                simulated = functools.partial(lock_views.simulated, ended=message.ended)
                self.questions.reply(envelope, simulated)
            case _:
                assert_never(message)

    def turn_ended(self) -> None:
        """Write what has changed, then answer."""
        if self._state.revision != self._written_revision:
            try:
                self._write()
            except errors.StorageError as error:
                # No reply goes out before its change is written.
                self.log.error("locks are not announced", error=error.text)
                self.runtime.tell(CONFIG_STORE, messages.LocksNotWritten(error.text))
                self._retry_disk_later()
                self.questions.begin(self._state.snapshot, self._since)
                return
            self._written_revision = self._state.revision
        self._report_owners()
        answers, self._answers = self._answers, []
        for envelope, answer in answers:
            envelope.reply(answer)
        tables, self._tables = self._tables, []
        for envelope in tables:
            self.questions.reply(envelope, lock_views.table)
        for number, (_, revision) in list(self._watchers.items()):
            if revision != self._revision:
                self._answer_watcher(number)
        self.questions.begin(self._state.snapshot, self._since)
        self._sweep_later()

    def _report_owners(self) -> None:
        """Tell the scheduler what owners hold, if that has changed: it predicts by it."""
        if self._is_report_due:
            held = [(owner, self._forecast(owner)) for owner in self._state.owners()]
            held = [(owner, forecast) for owner, forecast in held if forecast != NO_LOCKS]
        else:
            held = [
                (owner, None if self._has_ended(owner) else self._forecast(owner))
                for owner in self._unreported
            ]
        if held or self._is_report_due:
            changed = messages.OwnersChanged(owners=held, is_all=self._is_report_due)
            self.runtime.tell(SCHEDULER, changed)
        self._is_report_due = False
        self._unreported.clear()
        self._ended_lock_files.clear()

    def _forecast(self, owner: Owner) -> LockForecast | None:
        return forecast_of_locks(self._state.list_locks(owner))

    def _has_ended(self, owner: Owner) -> bool:
        """Whether its process has ended in this turn."""
        return owner.lock_file in self._ended_lock_files

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    # ------------------------------------------------------------ disk

    def _load(self) -> tuple[LockState, StoredLocks]:
        data, journal = lock_journal.read_files(self.places)
        try:
            stored = lock_journal.decode(data, journal)
            state, _ = LockState.restore(stored.file)
        except errors.StorageError as error:
            # The files are written without a flush, so a power loss may tear them; after that, no
            # process lives that could hold a lock.
            folders = (self.places.lock_files, self.places.former_lock_files)
            if any(lock_files.holder(path) for at in folders for path in at.glob("job_*")):
                raise
            self.log.warning("locks.data is started afresh", error=error.text)
            return LockState(), StoredLocks()
        # What was read is no change.
        state.take_changes()
        return state, stored

    def _write(self) -> None:
        fenced, self._owners.newly_fenced = self._owners.newly_fenced, []
        turn = TurnStored(self.runtime.wall_clock(), self._state.take_changes(), fenced)
        lock_journal.note_times(self._since, turn)
        for one in turn.owners:
            if self._is_reporting and one.locks.keys() - {CONFIG_LOCK}:
                self._unreported[one.owner] = None
            if one.pending is None and not self._state.list_locks(one.owner):
                self._owners.forget(one.owner)
        if self._journal.is_due:
            self._journal.begin(self._state.snapshot(), self._since, self._owners.fenced)
        else:
            self._journal.append(turn)

    def _retry_disk_later(self) -> None:
        if self._is_disk_awaited:
            return
        self._is_disk_awaited = True
        self.runtime.later(settings.DISK_RETRY_SECONDS, messages.DiskRetried())

    # ------------------------------------------------------------ requests

    def _take(self, envelope: Envelope, message: _Take) -> None:
        self._owners.check(message.owner)
        try:
            match message:
                case messages.RequestLocks():
                    self._request(envelope, message)
                case messages.TryLocks():
                    self._try(envelope, message)
                case messages.TakeFreeLocks():
                    self._take_free(envelope, message)
        except errors.LockRequestError as error:
            raise lock_refusals.explained(error, message.owner, self._state, self._since) from error

    def _request(self, envelope: Envelope, message: messages.RequestLocks) -> None:
        owner = message.owner
        outcome = self._state.request(owner, message.priority, message.changes)
        self._wake(outcome.woken)
        if outcome.granted:
            self._waiting.pop(owner, None)
            self._answers.append((envelope, messages.LocksGranted()))
            return
        self._waiting[owner] = envelope
        pending = messages.LocksPending(blockers=list(outcome.blockers))
        self._answers.append((envelope, pending))

    def _try(self, envelope: Envelope, message: messages.TryLocks) -> None:
        outcome = self._state.try_request(message.owner, message.changes)
        self._wake(outcome.woken)
        self._answers.append((envelope, messages.LocksTried(list(outcome.blockers))))

    def _take_free(self, envelope: Envelope, message: messages.TakeFreeLocks) -> None:
        taken = self._state.opportunistic_union(message.owner, message.wanted, message.at_least)
        self._answers.append((envelope, messages.LocksTaken(taken)))

    def _give_back(self, envelope: Envelope, message: _GiveBack) -> None:
        self._wake(_given_back(self._state, message))
        self._waiting.pop(message.owner, None)
        self._answers.append((envelope, messages.Done()))

    def _wake(self, woken: Iterable[Owner]) -> None:
        for owner in woken:
            envelope = self._waiting.pop(owner, None)
            if envelope is not None:
                self._answers.append((envelope, messages.LocksGranted()))

    # ------------------------------------------------------------ watchers

    @property
    def _revision(self) -> int:
        return self._revision_start + self._state.revision

    def _list(self, envelope: Envelope) -> None:
        # The copy may be of a later state: then its watcher learns of that once more.
        view = functools.partial(lock_views.listed, revision=self._revision)
        self.questions.reply(envelope, view)

    def _await_change(self, envelope: Envelope, message: messages.AwaitLocks) -> None:
        self._watchers_last += 1
        self._watchers[self._watchers_last] = (envelope, message.revision)
        due = messages.LocksAwaitedTooLong(self._watchers_last)
        self.runtime.later(message.seconds, due)

    def _answer_watcher(self, number: int) -> None:
        watcher = self._watchers.pop(number, None)
        if watcher is not None:
            self._list(watcher[0])

    # ------------------------------------------------------------ the ends of owners

    # A task on a node may run on under the locks of a dead process, while that has a mark. The
    # executor waits for its end.

    def _end_dead_owners(self) -> None:
        for lock_file in dict.fromkeys(owner.lock_file for owner in self._state.owners()):
            if lock_files.is_dead(lock_file) and not task_marks.is_marked(lock_file):
                identity = lock_files.identity_of(lock_file)
                try:
                    # Its left-over processes must not run beside the next owners.
                    if identity is not None:
                        sessions.end_left_over(identity)
                except OSError as error:
                    self.log.error("a dead owner keeps its locks for now", error=str(error))
                    self.runtime.later(settings.DISK_RETRY_SECONDS, messages.RecheckOwners())
                    return
                self.log.info("a dead owner's locks are freed", lock_file=lock_file)
                self._end_owner(lock_file)

    def _take_for_tasks(self) -> None:
        """Take the locks of dead processes whose tasks may run on: a loss of power has freed them.

        None is in the way but the lock of a task whose mark such a loss has brought back: then
        this one stands first in line.
        """
        for lock_file in task_marks.lock_files_in(self.places.lock_files):
            if not lock_files.is_dead(lock_file):
                continue
            try:
                tasks = task_marks.read(lock_file)
            except errors.StorageError as error:
                self.log.error("the locks of a task on a node are not known", error=error.text)
                continue
            owner = _owner_of(lock_file)
            if not tasks or owner is None or self._state.has_pending(owner):
                continue
            # All tasks of a process have the locks of its opcode.
            locks = tasks[0].locks
            if dict(locks).items() <= dict(self._state.list_locks(owner)).items():
                continue
            self._wake(self._state.release_owner(owner))
            self._wake(self._state.request(owner, _FIRST_IN_LINE, locks).woken)
            self.log.warning("locks are taken back for a task on a node", lock_file=lock_file)

    def _end_owner(self, lock_file: str) -> None:
        self._owners.fence(lock_file, self.runtime.wall_clock())
        self._ended_lock_files.add(lock_file)
        self._wake(self._state.release_lock_file(lock_file))
        for owner in [owner for owner in self._waiting if owner.lock_file == lock_file]:
            del self._waiting[owner]

    def _sweep_later(self) -> None:
        if self._owners.has_foreign and not self._is_sweep_due:
            self._is_sweep_due = True
            self.runtime.later(settings.OWNERS_SWEEP_SECONDS, messages.SweepOwners())

    def _sweep(self) -> None:
        """Free the locks of owners whose ends no component reports."""
        self._is_sweep_due = False
        for lock_file in self._owners.dead():
            self.log.info("a dead owner's locks are freed", lock_file=lock_file)
            self._end_owner(lock_file)


def _owner_of(lock_file: str) -> Owner | None:
    """Which owner of locks the process with this lock file was."""
    identity, job_id = lock_files.identity_of(lock_file), lock_files.job_of(lock_file)
    if identity is None or job_id is None:
        return None
    return Owner(job_id, lock_file, identity.pid)


def _given_back(state: LockState, message: _GiveBack) -> tuple[Owner, ...]:
    """The owners woken by what this one gives back."""
    match message:
        case messages.KeepLocks():
            return state.intersect(message.owner, message.locks)
        case messages.DowngradeLocks():
            return state.downgrade_level(message.owner, message.level)
        case messages.ReleaseLocks(level=None):
            return state.release_owner(message.owner)
        case messages.ReleaseLocks(level=level):
            assert level is not None
            return state.free_level(message.owner, level)
