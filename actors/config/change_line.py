"""The line of changes that wait for the configuration lock (Ganeti design: daemon refactoring).

No request changes the configuration without ``cluster/config``. The store is an owner of locks like
any other: while changes wait, it asks the lock manager for this lock, makes all of them with one
append to the log, and gives the lock back when they are durable. What is made meanwhile by holders
of the lock is the next batch: one is on its way at a time. Each change is all or none by itself; a
refused one does not hurt others. A requester that holds the lock itself does not wait. Reads need
no lock.
"""

from __future__ import annotations

import enum
import functools
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...storage import errors, settings
from ...storage.alive import lock_files
from ...storage.cluster.configuration import Configuration
from ...storage.cluster.damage import undamaged
from ...storage.locks.locks import CONFIG_LOCK, LockLevel, LockMode, Owner
from ...transport import messages
from ..runtime.addresses import JOB_QUEUE, LOCK_MANAGER
from .stored_configuration import Edit, StoredConfiguration

if TYPE_CHECKING:
    from ...transport.envelopes import Envelope
    from ..runtime.component import Runtime

IDENTIFIER = "config_store"
"""The store as an owner of locks; its lock file is the daemon's."""

_PRIORITY = 0
_ASK_SECONDS = 1_000_000.0
"""How long requests for the lock, and to the log, stand. Who is asked answers, or its successor."""

_NO_ANSWER = (
    "the lock manager did not give the configuration lock before the deadline: "
    "it is being restarted (see daemon.log)"
)
_NOT_STORED = (
    "the job queue did not store earlier changes before the deadline: "
    "it is being restarted (see daemon.log)"
)
_UNWRITTEN = "the configuration lock cannot be taken, because the disk refuses to store it"
_UNWRITTEN_SECONDS = 2 * settings.DISK_RETRY_SECONDS
"""How long it counts that the disk refused locks: it is tried again and again meanwhile."""


class Made(NamedTuple):
    """What a request does to the configuration; without changes it does nothing.

    ``done`` gets the snapshot after these changes when they are stored, and sends the reply.
    ``refused``: called instead of a refusal if the changes do not fit the configuration.
    """

    edit: Edit
    done: Callable[[Configuration], None]
    refused: Callable[[errors.BadRequestError], None] | None = None


Make = Callable[[Configuration], Made]
"""Decides on the snapshot of the moment in which the change is made; may raise `GangerError`."""


class _WaitingChange(NamedTuple):
    envelope: Envelope
    make: Make
    busy: Callable[[], None] | None = None
    """Called instead if the lock is not free now: the requester tries again by itself."""
    refused_at: float | None = None
    """When its sender is told that the lock was not free; None: never."""


class _Drafted(NamedTuple):
    """A request whose changes are drafted: what it makes, and the snapshot after that."""

    envelope: Envelope
    made: Made
    after: Configuration


class _Phase(enum.Enum):
    """How the store stands to the configuration lock between its turns."""

    FREE = enum.auto()
    ASKED = enum.auto()
    BLOCKED = enum.auto()
    STORING = enum.auto()
    RELEASING = enum.auto()


class ChangeLine:
    """Makes changes in the order in which they came, under the configuration lock.

    ``stored`` is called whenever changes were stored.
    """

    def __init__(
        self,
        runtime: Runtime,
        configuration: StoredConfiguration,
        stored: Callable[[], None],
    ) -> None:
        """Give back what a predecessor held; then take changes."""
        self._runtime = runtime
        self._configuration = configuration
        self._stored = stored
        self.owner = Owner(IDENTIFIER, runtime.host.daemon_lock.path, os.getpid())
        self._line: deque[_WaitingChange] = deque()
        self._drafted: list[_Drafted] = []
        self._sent: list[_Drafted] = []
        self._handle = 0
        self._of_holders: dict[int, Envelope] = {}
        """Changes whose requesters should hold the lock: the lock manager is asked whether so."""
        self._unwritten: tuple[float, errors.StorageError] | None = None
        """When the disk has last refused locks, and why."""
        self._look_at: float | None = None
        """When the first change that waits for an answer of the lock manager is overdue."""
        self.grants = 0
        """How often the store has got the lock: between two of these, others have held it."""
        self._phase = _Phase.RELEASING
        self._release_predecessors()

    @property
    def is_blocked(self) -> bool:
        """Whether another owner has the lock, or waits for it before us."""
        return self._phase is _Phase.BLOCKED

    def add(self, envelope: Envelope, make: Make, busy: Callable[[], None] | None = None) -> None:
        """Make a change when the lock is free. Errors refuse the envelope.

        With ``busy``, the change does not wait while another owner has the lock.
        """
        if busy is not None and self._phase is _Phase.BLOCKED:
            busy()
            return
        waiting = _WaitingChange(envelope, make, busy, _refused_at(envelope, self._runtime.clock()))
        if self._phase is not _Phase.FREE and self._is_hopeless(waiting):
            return
        self._line.append(waiting)
        if self._phase is _Phase.BLOCKED:
            self._watch_deadline(waiting)
            return
        self._look_in_time(waiting)
        if self._phase is _Phase.FREE:
            self._ask()

    def add_of_holder(
        self, envelope: Envelope, make: Make, owner: Owner, otherwise: Callable[[], None]
    ) -> None:
        """Make a change at once if ``owner`` holds the lock exclusively, or call ``otherwise``."""

        def heard(reply: messages.OwnerRead) -> None:
            self._of_holders.pop(handle)
            if (CONFIG_LOCK, LockMode.EXCLUSIVE) in reply.locks:
                self._make([_WaitingChange(envelope, make)])
            else:
                otherwise()

        def failed(error: errors.GangerError) -> None:
            self._of_holders.pop(handle)
            envelope.refuse(error)

        handle = self._runtime.ask(LOCK_MANAGER, messages.ReadOwner(owner), heard, failed)
        self._of_holders[handle] = envelope

    def add_unlocked(self, envelope: Envelope, make: Make) -> None:
        """Make a change at once: its requester holds the lock, or needs none."""
        self._make([_WaitingChange(envelope, make)])

    # ------------------------------------------------------------ the lock

    def _ask(self) -> None:
        self._phase = _Phase.ASKED
        wanted = [(CONFIG_LOCK, LockMode.EXCLUSIVE.value)]
        self._handle = self._runtime.ask(
            LOCK_MANAGER,
            messages.RequestLocks(self.owner, _PRIORITY, wanted),
            self._hear,
            self._fail,
            self._runtime.clock() + _ASK_SECONDS,
        )

    def note_unwritten(self, text: str) -> None:
        """The disk refuses what the lock manager writes: tell whoever waits for its answer."""
        error = errors.StorageError(f"{_UNWRITTEN}: {text}")
        self._unwritten = self._runtime.clock(), error
        if self._phase in (_Phase.ASKED, _Phase.RELEASING):
            waiting, self._line = self._line, deque()
            self._line.extend(one for one in waiting if not self._is_hopeless(one))
        for handle, envelope in list(self._of_holders.items()):
            if envelope.deadline is not None:
                self._runtime.stop_asking(handle)
                del self._of_holders[handle]
                envelope.refuse(error)

    def _is_hopeless(self, waiting: _WaitingChange) -> bool:
        """Refuse a change that would wait for the disk, unless it waits for ever, as jobs do."""
        error = self._refusal_of_disk()
        if error is None or waiting.refused_at is None:
            return False
        waiting.envelope.refuse(error)
        return True

    def _refusal_of_disk(self) -> errors.StorageError | None:
        if self._unwritten is None:
            return None
        refused_at, error = self._unwritten
        return error if self._runtime.clock() - refused_at < _UNWRITTEN_SECONDS else None

    def _hear(self, reply: messages.LocksGranted | messages.LocksPending) -> None:
        self._unwritten = None
        if isinstance(reply, messages.LocksGranted):
            self.grants += 1
            self._phase = _Phase.STORING
            waiting, self._line = list(self._line), deque()
            self._make(waiting)
        else:
            self._be_blocked()

    def _be_blocked(self) -> None:
        """Another owner has the lock, or waits for it before us."""
        self._phase = _Phase.BLOCKED
        waiting, self._line = self._line, deque()
        for one in waiting:
            if one.busy is not None:
                one.busy()
            else:
                self._line.append(one)
                if one.refused_at != self._look_at:
                    self._watch_deadline(one)
        self._withdraw_if_idle()

    def _withdraw_if_idle(self) -> None:
        """No change waits here any more: do not stand in the way of other owners."""
        if self._phase is _Phase.BLOCKED and not self._line:
            self._runtime.stop_asking(self._handle)
            self._release()

    def _release_predecessors(self) -> None:
        """Give back what stores before this one had, which wrote all that they will ever write.

        Their lock files do not always say that they are dead: a daemon that starts within a second
        gets a file of the same name.
        """

        def heard(table: messages.LockTable) -> None:
            found = {owner for _, owners in table.held for owner, _ in owners}
            found |= {pending.owner for pending in table.pending}
            for owner in sorted(found):
                if owner.identifier == IDENTIFIER and lock_files.is_daemons(owner.lock_file):
                    ask(LOCK_MANAGER, messages.ReleaseLocks(owner), lambda _: None, again)
            self._release()

        def again(_: errors.GangerError) -> None:
            self._release_predecessors()

        ask = self._runtime.ask
        ask(LOCK_MANAGER, messages.ReadLockTable(), heard, again)

    def _release(self) -> None:
        self._phase = _Phase.RELEASING
        release = messages.ReleaseLocks(self.owner, LockLevel.CONFIG)
        self._runtime.ask(LOCK_MANAGER, release, self._be_free, lambda _: self._release())

    def _be_free(self, _: messages.Done) -> None:
        self._phase, self._unwritten = _Phase.FREE, None
        if self._line:
            self._ask()

    def _fail(self, error: errors.GangerError) -> None:
        if not isinstance(error, errors.DeadlineError):
            waiting, self._line = self._line, deque()
            _refuse_all(waiting, error)
        self._release()

    # ------------------------------------------------------------ deadlines

    def _watch_deadline(self, waiting: _WaitingChange) -> None:
        if waiting.refused_at is not None:
            left = max(0.0, waiting.refused_at - self._runtime.clock())
            self._runtime.later(left, messages.ChangesOverdue())

    def _look_in_time(self, waiting: _WaitingChange) -> None:
        """As `_watch_deadline`, for answers that come at once as a rule: one alarm for many."""
        due = waiting.refused_at
        if due is not None and (self._look_at is None or due < self._look_at):
            self._look_at = due
            self._watch_deadline(waiting)

    def refuse_overdue(self) -> None:
        """Refuse the changes whose deadlines come, in time for their senders to hear why."""
        now = self._runtime.clock()
        if self._look_at is not None and self._look_at <= now:
            self._look_at = None
        waiting, self._line = self._line, deque()
        overdue: list[_WaitingChange] = []
        for one in waiting:
            is_due = one.refused_at is not None and one.refused_at <= now
            (overdue if is_due else self._line).append(one)
        if (error := self._refusal_of_disk()) is not None:
            _refuse_all(overdue, error)
            overdue = []
        if self._phase is not _Phase.BLOCKED:
            text = _NOT_STORED if self._phase is _Phase.STORING else _NO_ANSWER
            _refuse_all(overdue, errors.DeadlineError(text))
            for one in self._line:
                self._look_in_time(one)
            return
        if overdue:
            self._runtime.ask(
                LOCK_MANAGER,
                messages.ReadHolders(CONFIG_LOCK),
                functools.partial(_refuse, overdue),
                functools.partial(_refuse_all, overdue),
            )
        self._withdraw_if_idle()

    # ------------------------------------------------------------ making

    def _make(self, waiting: Sequence[_WaitingChange]) -> None:
        """Make these changes, each all or none, and append them to the log."""
        for one in waiting:
            try:
                found = self._draft(one)
                if found is not None:
                    self._drafted.append(_Drafted(one.envelope, *found))
            except errors.GangerError as error:
                one.envelope.refuse(error)
        self._send()

    def _send(self) -> None:
        """Append what is drafted to the log, unless a batch is on its way there."""
        if self._configuration.is_storing:
            return
        self._sent, self._drafted = self._drafted, []
        batch = self._configuration.next_batch()
        if batch is None:
            self._tell_done()
            self._go_on()
            return
        request = messages.StoreChanges(batch.base, batch.known, batch.changes)
        deadline = self._runtime.clock() + _ASK_SECONDS
        self._runtime.ask(JOB_QUEUE, request, self._note_stored, self._note_refused, deadline)

    def _note_stored(self, reply: messages.ChangesStored) -> None:
        if reply.position is None:
            # Of a predecessor, which was replaced while they were on their way.
            raise RuntimeError("the log has changes that this configuration store does not know")
        self._configuration.stored()
        self._tell_done()
        self._stored()
        self._go_on()
        self._configuration.enter()

    def _note_refused(self, error: errors.GangerError) -> None:
        # Also those without changes: they were decided on changes that are not made.
        refused, self._sent, self._drafted = [*self._sent, *self._drafted], [], []
        self._configuration.refused(error)
        for one in refused:
            one.envelope.refuse(_in_words(error, one.envelope.message))
        if isinstance(error, errors.OutcomeUnknownError):
            self._await_settled()
        self._go_on()

    def _tell_done(self) -> None:
        sent, self._sent = self._sent, []
        for one in sent:
            one.made.done(one.after)

    def _go_on(self) -> None:
        """Send what was drafted meanwhile; if nothing was, the lock may go."""
        if self._drafted:
            self._send()
        elif self._phase is _Phase.STORING and not self._configuration.is_storing:
            self._release()

    def _await_settled(self) -> None:
        deadline = self._runtime.clock() + _ASK_SECONDS
        settled = messages.AwaitSettled()
        self._runtime.ask(
            JOB_QUEUE,
            settled,
            lambda _: self._configuration.settled(),
            lambda _: self._await_settled(),
            deadline,
        )

    def _draft(self, one: _WaitingChange) -> tuple[Made, Configuration] | None:
        deadline = one.envelope.deadline
        if deadline is not None and deadline < self._runtime.clock():
            raise errors.DeadlineError("the change waited for its lock until its deadline")
        snapshot = self._configuration.drafted
        made = undamaged(snapshot, functools.partial(one.make, snapshot), errors.ModificationError)
        if not made.edit.changes:
            return made, snapshot
        draft = functools.partial(self._configuration.draft, made.edit, self._runtime.wall_clock())
        try:
            return made, undamaged(snapshot, draft, errors.ModificationError)
        except errors.BadRequestError as error:
            if made.refused is None:
                raise
            made.refused(error)
            return None


def name_of(owner: Owner) -> str:
    """The owner as the history names it."""
    if isinstance(owner.identifier, int):
        return f"job {owner.identifier}"
    return f"{owner.identifier} (pid {owner.pid})"


def _refused_at(envelope: Envelope, now: float) -> float | None:
    """Before the deadline, so that its sender still hears why."""
    if envelope.deadline is None:
        return None
    return envelope.deadline - min(settings.CONFIG_REFUSAL_SECONDS, (envelope.deadline - now) / 2)


def _refuse(overdue: Sequence[_WaitingChange], holders: messages.LockHolders) -> None:
    who = holders.text or "others wait for it, too"
    text = f"the configuration lock was not free before the deadline: {who}"
    _refuse_all(overdue, errors.DeadlineError(text))


def _in_words(error: errors.GangerError, message: object) -> errors.GangerError:
    """The error for this request: under its key a repetition is safe, though nobody knows more."""
    has_key = bool(getattr(message, "request", ""))
    if isinstance(error, errors.OutcomeUnknownError) and has_key:
        return error.under_key()
    return error


def _refuse_all(waiting: Iterable[_WaitingChange], error: errors.GangerError) -> None:
    for one in waiting:
        one.envelope.refuse(error)
