"""What serves WConfD's methods about the configuration (`wconfd_table`), in the store's turns.

What each one changes is decided in `modifications`. Those that change something without the lock of
their caller stand in the line of changes, but do not wait there (`change_line`). A thread works out
what looks at the whole configuration.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ...storage import errors
from ...storage.cluster.configuration import Change, Configuration
from ...storage.cluster.damage import undamaged
from ...storage.cluster.differences import masked
from ...storage.cluster.integrity import problems
from ...storage.cluster.objects import ObjectKind
from ...storage.ganeti import modifications
from ...storage.ganeti.modifications import InUse, Modified, Rewrite
from ...storage.ganeti.object_rules import MAC_ADDRESS
from ...storage.locks.locks import BGL, CONFIG_LOCK, LockChange, LockLevel, LockMode, Owner
from ...storage.wording import shortened
from ...transport import messages
from ...transport.envelopes import Envelope
from ...transport.messages import ConfigAnswered
from ..config import objects
from ..config.change_line import ChangeLine, Made, name_of
from ..config.stored_configuration import Edit, StoredConfiguration
from ..runtime.addresses import LOCK_MANAGER

if TYPE_CHECKING:
    from ..runtime.component import Runtime
    from ..runtime.works import Work
    from .reservation_keeper import ReservationKeeper

DESTROYER = "config_store-destruction"
"""Owns the big lock of a cluster that is destroyed."""

_DESTROYERS_PRIORITY = -21
"""Before every job."""

_Call = Envelope[messages.CallMethod]
_OwnersCall = Envelope[messages.CallMethodAsOwner]
_View = Callable[[Any], Any]
_Whole = dict[str, Any]


class StoreForCatalogue(Protocol):
    """What the store does for its catalogue."""

    def answer_in_force(
        self, envelope: Envelope, answer: messages.Reply, changes: Sequence[Change]
    ) -> None:
        """Send the reply to stored changes when they are in force."""

    def flush(self, envelope: Envelope, answer: messages.Reply) -> None:
        """Write the whole configuration; then send ``answer``."""


class _Given:
    """The configuration as the holder of the lock has read it."""

    def __init__(self, owner: Owner, whole: _Whole, grants: int, view: _View) -> None:
        self.owner = owner
        self.grants = grants
        self.whole = whole
        self.view = view


class Catalogue:
    """The part of the configuration store that serves WConfD's methods."""

    def __init__(
        self,
        runtime: Runtime,
        configuration: StoredConfiguration,
        changes: ChangeLine,
        reservations: ReservationKeeper,
        store: StoreForCatalogue,
    ) -> None:
        self._runtime = runtime
        self._configuration = configuration
        self._changes = changes
        self.reservations = reservations
        self._store = store
        self._given: _Given | None = None

    # ------------------------------------------------------------ the whole configuration

    def read(self, envelope: _Call) -> None:
        """Give the whole configuration."""
        self._answer(envelope, self._whole(_view(envelope.message)))

    def verify(self, envelope: Envelope) -> None:
        """Give what is wrong with the whole configuration, one line each."""
        self._answer(envelope, functools.partial(problems, self._configuration.snapshot))

    def _answer(self, envelope: Envelope, give: Callable[[], object]) -> None:
        """Reply with what ``give`` gives in a thread: of a large configuration it takes long."""

        def work() -> Work:
            return ConfigAnswered((yield give))

        self._runtime.work(work(), envelope)

    def _whole(self, view: _View) -> Callable[[], _Whole]:
        """Gives the present configuration, in any thread."""
        snapshot = self._configuration.snapshot
        return lambda: view(snapshot.to_document())

    def lock(self, envelope: _OwnersCall, is_shared: bool) -> None:  # noqa: FBT001 - an argument of WConfD
        """Take ``cluster/config`` now or never, and give the whole configuration; null: never."""
        message = envelope.message
        mode = LockMode.SHARED if is_shared else LockMode.EXCLUSIVE

        def tried(reply: messages.LocksTried) -> None:
            if reply.blockers:
                envelope.reply(ConfigAnswered())
                return
            self._runtime.work(give(), envelope)

        def give() -> Work:
            grants, view = self._changes.grants, _view(message)
            whole = yield self._whole(view)
            if mode is LockMode.EXCLUSIVE:
                self._given = _Given(message.owner, whole, grants, view)
            return ConfigAnswered(whole)

        asked = messages.TryLocks(message.owner, [(CONFIG_LOCK, mode.value)])
        self._runtime.ask(LOCK_MANAGER, asked, tried, envelope.refuse)

    def unlock(self, envelope: _OwnersCall) -> None:
        """Release ``cluster/config``."""
        self._unlock(envelope, envelope.message.owner, ConfigAnswered())

    def _unlock(self, envelope: Envelope, owner: Owner, answer: messages.Reply) -> None:
        if self._given is not None and self._given.owner == owner:
            self._given = None
        release = messages.ReleaseLocks(owner, LockLevel.CONFIG)
        self._runtime.ask(LOCK_MANAGER, release, lambda _: envelope.reply(answer), envelope.refuse)

    def write(self, envelope: _OwnersCall, config: dict[str, Any]) -> None:
        """Change all that is another one in ``config``; the owner must hold the lock.

        What others have changed since the owner has read the configuration stays as it is.
        """
        self._write(envelope, config, unlocks=False)

    def write_and_unlock(self, envelope: _OwnersCall, config: dict[str, Any]) -> None:
        """As `write`, then release the lock; false: the owner did not hold it exclusively."""
        self._write(envelope, config, unlocks=True)

    def _write(self, envelope: _OwnersCall, config: dict[str, Any], *, unlocks: bool) -> None:
        owner = envelope.message.owner
        snapshot = self._configuration.snapshot
        compare = functools.partial(_compared, snapshot, config, self._given_to(owner))

        def work() -> Work:
            compared = yield lambda: undamaged(snapshot, compare, errors.ModificationError)
            self._changes.add_of_holder(envelope, functools.partial(make, compared), owner, refuse)
            return None

        def make(compared: tuple[list[Rewrite], _View], snapshot: Configuration) -> Made:
            changes = modifications.rewritten(snapshot, *compared)
            for change in changes:
                objects.check_unmasked(change.place, change.object)
            edit = Edit(changes, name_of(owner), "configuration written")
            return Made(edit, done(changes))

        def done(changes: list[Change]) -> Callable[[Configuration], None]:
            def finish(_: Configuration) -> None:
                if self._given is not None and self._given.owner == owner:
                    self._given.whole = config
                if unlocks:
                    self._unlock(envelope, owner, ConfigAnswered(value=True))
                    self._store.answer_in_force(_nobody(envelope), ConfigAnswered(), changes)
                else:
                    self._store.answer_in_force(envelope, ConfigAnswered(), changes)

            return finish

        def refuse() -> None:
            if unlocks:
                envelope.reply(ConfigAnswered(value=False))
                return
            text = "Requested lock OwnExclusive on the configuration missing"
            envelope.refuse(errors.LockRequestError(text))

        self._runtime.work(work(), envelope)

    def _given_to(self, owner: Owner) -> tuple[_Whole, _View] | None:
        """What the writer has read under its lock, as it saw it; None: that is not known."""
        given, grants = self._given, self._changes.grants
        if given is not None and given.owner == owner and given.grants == grants:
            return given.whole, given.view
        # It has got the lock in another way, or from our predecessor.
        return None

    def flush(self, envelope: Envelope) -> None:
        """Answer when ``config.data`` and the ssconf files hold all changes."""
        self._store.flush(envelope, ConfigAnswered())

    def flush_group(self, envelope: Envelope, group: str) -> None:
        """As `flush`, for the nodes of one group (UUID)."""
        if self._configuration.snapshot.get(ObjectKind.NODE_GROUP, group) is None:
            text = f"Could not find node group with UUID {shortened(group)}"
            raise errors.ModificationError(text)
        self.flush(envelope)

    # ------------------------------------------------------------ the end of a cluster

    def prepare_destruction(self, envelope: _OwnersCall) -> None:
        """Take ``cluster/BGL`` over from its exclusive owner for good, and leave no master node."""
        owner = envelope.message.owner

        def heard(reply: messages.OwnerRead) -> None:
            if (BGL, LockMode.EXCLUSIVE) not in reply.locks:
                text = "Cluster destruction requested without owning BGL exclusively"
                raise errors.LockRequestError(text)
            own = self._changes.owner
            ours = Owner(DESTROYER, own.lock_file, own.pid)
            wanted = [(BGL, LockChange.EXCLUSIVE.value)]
            asked = messages.RequestLocks(ours, _DESTROYERS_PRIORITY, wanted)
            self._runtime.ask(LOCK_MANAGER, asked, stood, envelope.refuse)

        def stood(reply: messages.LocksGranted | messages.LocksPending) -> None:
            # First in line for the lock, which its owner gives back now.
            if isinstance(reply, messages.LocksPending):
                given_back = [(BGL, LockChange.RELEASE.value)]
                asked = messages.TryLocks(owner, given_back)
                self._runtime.ask(LOCK_MANAGER, asked, lambda _: None, envelope.refuse)
                return
            self._changes.add(envelope, make)

        def make(snapshot: Configuration) -> Made:
            modified = modifications.without_master(snapshot)
            return self._made(envelope, modified, name_of(owner), "cluster destruction")

        self._runtime.ask(LOCK_MANAGER, messages.ReadOwner(owner), heard, envelope.refuse)

    # ------------------------------------------------------------ modifications

    def add_instance(
        self,
        envelope: _OwnersCall,
        instance: dict[str, Any],
        replaces: bool,  # noqa: FBT001 - an argument of WConfD
    ) -> None:
        """Add an instance, or replace one, and commit the owner's addresses. Gives true."""
        uuid = _checked(ObjectKind.INSTANCE, instance)
        owner = envelope.message.owner

        def make(snapshot: Configuration) -> Made:
            modified = modifications.added_instance(
                snapshot,
                instance,
                self._in_use(),
                replaces=replaces,
                committed=functools.partial(self.reservations.committed_networks, owner),
            )
            return self._made(envelope, modified, name_of(owner), "addInstance", uuid)

        self._changes.add_of_holder(
            envelope,
            make,
            owner,
            functools.partial(self._changes.add, envelope, make, _busy(envelope, value=False)),
        )

    def add_disk(
        self,
        envelope: _Call,
        uuid: str,
        disk: dict[str, Any],
        index: int | None,
        replaces: bool,  # noqa: FBT001 - an argument of WConfD
    ) -> None:
        """Add or replace a disk, and attach it at this index; None: as the last one. Gives true."""

        def decide(snapshot: Configuration) -> Modified:
            in_use = self._in_use()
            return modifications.added_disk(
                snapshot, uuid, disk, in_use, index=index, replaces=replaces
            )

        self.modify(envelope, decide, busy=False, released=_checked(ObjectKind.DISK, disk))

    def update(self, envelope: _Call, kind: ObjectKind, found: dict[str, Any]) -> None:
        """Replace an object if it still has its serial number; a disk's reserved minors are free.

        Gives the new serial number and the time.
        """
        uuid = _checked(kind, found)
        released = uuid if kind is ObjectKind.DISK else ""
        decide = functools.partial(modifications.updated, kind=kind, found=found)
        self.modify(envelope, decide, busy=None, released=released)

    def modify(
        self,
        envelope: _Call,
        decide: Callable[[Configuration], Modified],
        *,
        busy: bool | None,
        released: str = "",
    ) -> None:
        """Make the decided changes; ``busy``: what it gives if they cannot wait for the lock.

        ``released``: the disk whose minors are free then.
        """
        message = envelope.message
        show = _view(message)

        def make(snapshot: Configuration) -> Made:
            modified = decide(snapshot)
            shown = Modified(modified.changes, lambda after: show(modified.value(after)))
            return self._made(envelope, shown, message.sender, message.method, released)

        self._changes.add(envelope, make, _busy(envelope, value=busy))

    def _in_use(self) -> InUse:
        return InUse(self._configuration.in_use(MAC_ADDRESS), self._configuration.in_use("UUID"))

    def _made(
        self, envelope: Envelope, modified: Modified, who: str, why: str, released: str = ""
    ) -> Made:
        def done(after: Configuration) -> None:
            if released:
                self.reservations.release_minors(released)
            answer = ConfigAnswered(modified.value(after))
            self._store.answer_in_force(envelope, answer, modified.changes)

        return Made(Edit(modified.changes, who, why), done)


def _compared(
    present: Configuration, config: _Whole, given: tuple[_Whole, _View] | None
) -> tuple[list[Rewrite], _View]:
    """What is another in ``config`` than its writer has read, and how it saw that."""
    objects.check_depth("config", config)
    if given is None:
        view = masked if objects.is_masked(config) else _unmasked
        given = view(present.to_document()), view
    return modifications.differing(present, given[0], config), given[1]


def _checked(kind: ObjectKind, found: dict[str, Any]) -> str:
    """The UUID of an object that may be stored. Raises `BadRequestError`."""
    uuid = found.get("uuid")
    place = f"{kind}/{shortened(str(uuid))}"
    objects.check_depth(place, found)
    objects.check_unmasked(place, found)
    return uuid if isinstance(uuid, str) else ""


def _busy(envelope: Envelope, *, value: bool | None) -> Callable[[], None]:
    return lambda: envelope.reply(ConfigAnswered(value))


def _nobody(envelope: Envelope) -> Envelope:
    """An envelope without an address: its answer was sent already."""
    return type(envelope)(envelope.message)


def _view(message: messages.CallMethod | messages.CallMethodAsOwner) -> _View:
    """Shows values as the caller may see them."""
    return _unmasked if message.reveals else masked


def _unmasked(value: Any) -> Any:  # noqa: ANN401 - decoded JSON
    return value
