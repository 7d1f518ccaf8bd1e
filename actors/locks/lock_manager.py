"""The lock manager: grants locks (`locking`), and is the single writer of ``locks.data``.

It writes every change (`lock_journal`) before it sends a reply, but does not flush it. The files
matter only while processes live that hold locks, so they must survive the daemon, but not the
machine (docs/decisions/locks-without-flush.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from ...storage import errors, lock_files, lock_journal, settings
from ...storage.lock_journal import LockJournal, StoredLocks, TurnStored
from ...storage.locks import Owner, level_of
from ...transport import messages
from ..processes import sessions
from ..runtime.component import Component
from . import lock_remedies
from .locking import LockState, LockView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...transport.envelopes import Envelope
    from ...transport.messages import Message

_WAITING_SHOWN_MAX = 200


class LockManager(Component[messages.LockMessage]):
    """Grants locks; replies wait until the turn's changes are written."""

    name = "lock_manager"

    def boot(self) -> None:
        """Read ``locks.data``, and free the locks of dead owners."""
        self._waiting: dict[Owner, Envelope] = {}
        self._answers: list[tuple[Envelope, Message]] = []
        self._journal = LockJournal(self.places)
        self._state = self._load()
        self._written_revision = -1
        self._is_disk_awaited = False
        self._end_dead_owners()

    def receive(self, envelope: Envelope[messages.LockMessage]) -> None:
        """Handle one message."""
        message = envelope.message
        match message:
            case messages.RequestLocks():
                self._request(envelope, message)
            case messages.ReleaseLocks():
                self._wake(self._state.release_owner(message.owner))
                self._waiting.pop(message.owner, None)
                self._answers.append((envelope, messages.Done()))
            case messages.OwnerEnded():
                self._end_owner(message.lock_file)
            case messages.RecheckOwners():
                self._end_dead_owners()
            case messages.DiskRetried():
                # The end of this turn tries again.
                self._is_disk_awaited = False
            case messages.ListLocks():
                rows = [_row(view) for view in self._state.rows()]
                envelope.reply(messages.LocksListed(rows=rows))
            case messages.ExplainOwner():
                envelope.reply(self._explained(message))
            case messages.SimulateLocks():
                envelope.reply(self._simulated(message))
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
                self._retry_disk_later()
                return
            self._written_revision = self._state.revision
        answers, self._answers = self._answers, []
        for envelope, answer in answers:
            envelope.reply(answer)

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    def _write(self) -> None:
        turn = TurnStored(self.runtime.wall_clock(), self._state.take_changes())
        lock_journal.note_times(self._since, turn)
        if self._journal.is_due:
            self._journal.begin(self._state.snapshot(), self._since, ())
        else:
            self._journal.append(turn)

    def _retry_disk_later(self) -> None:
        if self._is_disk_awaited:
            return
        self._is_disk_awaited = True
        self.runtime.later(settings.DISK_RETRY_SECONDS, messages.DiskRetried())

    def _load(self) -> LockState:
        try:
            stored = lock_journal.read(self.places)
            state, _ = LockState.restore(stored.file)
        except errors.StorageError as error:
            # The file is written without a flush, so a power loss may tear it; after that, no
            # process lives that could hold a lock.
            folders = (self.places.lock_files, self.places.former_lock_files)
            if any(lock_files.holder(path) for at in folders for path in at.glob("job_*")):
                raise
            self.log.warning("locks.data is started afresh", error=error.text)
            stored, state = StoredLocks(), LockState()
        self._since = stored.since
        return state

    def _request(self, envelope: Envelope, message: messages.RequestLocks) -> None:
        owner = message.owner
        if lock_files.is_dead(owner.lock_file):
            raise errors.LockRequestError(f"the owner's lock file {owner.lock_file} is dead")
        outcome = self._state.request(owner, message.priority, message.changes)
        self._wake(outcome.woken)
        if outcome.granted:
            self._waiting.pop(owner, None)
            self._answers.append((envelope, messages.LocksGranted()))
            return
        self._waiting[owner] = envelope
        pending = messages.LocksPending(blockers=list(outcome.blockers))
        self._answers.append((envelope, pending))

    def _explained(self, message: messages.ExplainOwner) -> messages.OwnerExplained:
        wanted = [
            messages.WantedLock(
                name=view.name,
                mode=str(view.mode),
                holders=[
                    (_job(owner), str(mode), self._held_since(owner, view.name))
                    for owner, mode in view.holders
                ],
                ahead=[_job(owner) for owner in view.ahead],
            )
            for view in self._state.wants_of(message.lock_file)
        ]
        remedy = lock_remedies.for_owner(self._state, message.lock_file)
        return messages.OwnerExplained(locks=wanted, remedy=remedy)

    def _held_since(self, owner: Owner, lock: str) -> float | None:
        """Since when the owner holds the lock, its lock set or, if it is one, a member of it."""
        times = self._since.get(owner, {})
        level = level_of(lock)
        found = [
            times[held]
            for held, _ in self._state.list_locks(owner)
            if held in times and level_of(held) is level
        ]
        return times.get(lock, min(found, default=None))

    def _simulated(self, message: messages.SimulateLocks) -> messages.LocksSimulated:
        state, granted = lock_remedies.granted_after(self._state, message.ended)
        waiting = [
            messages.WaitingJob(id=_job(owner), kind="lock", text=_first_wait(state, owner))
            for owner in state.waiting()[:_WAITING_SHOWN_MAX]
        ]
        jobs = {owner.lock_file: _job(owner) for owner in self._state.owners()}
        return messages.LocksSimulated(
            granted=[jobs[lock_file] for lock_file in granted],
            waiting=waiting,
            count=len(state.waiting()),
        )

    def _end_dead_owners(self) -> None:
        for lock_file in dict.fromkeys(owner.lock_file for owner in self._state.owners()):
            if lock_files.is_dead(lock_file):
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

    def _end_owner(self, lock_file: str) -> None:
        self._wake(self._state.release_lock_file(lock_file))
        for owner in [owner for owner in self._waiting if owner.lock_file == lock_file]:
            del self._waiting[owner]

    def _wake(self, woken: Iterable[Owner]) -> None:
        for owner in woken:
            envelope = self._waiting.pop(owner, None)
            if envelope is not None:
                self._answers.append((envelope, messages.LocksGranted()))


def _job(owner: Owner) -> int:
    return owner.identifier if isinstance(owner.identifier, int) else 0


def _first_wait(state: LockState, owner: Owner) -> str:
    """The first lock that the owner waits for, and the owners that it waits for."""
    for want in state.wants_of(owner.lock_file):
        how = "held" if want.holders else "wanted earlier"
        others = [holder for holder, _ in want.holders] or want.ahead
        return f"waits for {want.name} ({want.mode}), {how} by {', '.join(map(_shown, others))}"
    return "waits for locks"


def _row(view: LockView) -> messages.LockRow:
    return messages.LockRow(
        name=view.name,
        mode=None if view.mode is None else str(view.mode),
        owners=[_shown(owner) for owner in view.owners],
        pending=[(str(change), [_shown(owner)]) for change, owner in view.pending],
    )


def _shown(owner: Owner) -> str:
    return str(owner.identifier)
