"""WConfD's methods about the configuration, as the store serves them.

What each one changes is decided in `modifications`. Those that change something without the lock of
their caller stand in the line of changes, but do not wait there (`change_line`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ...storage import errors
from ...storage.cluster.assertions import MAC_ADDRESS
from ...storage.cluster.configuration import Change, Configuration
from ...storage.cluster.differences import masked
from ...storage.cluster.integrity import problems
from ...storage.cluster.objects import ObjectKind
from ...storage.ganeti import modifications
from ...storage.ganeti.modifications import InUse, Modified
from ...storage.locks.locks import BGL, CONFIG_LOCK, LockChange, LockLevel, LockMode, Owner
from ...storage.wording import shortened
from ...transport import messages
from ...transport.messages import ConfigAnswered
from ..config import objects
from ..config.change_line import ChangeLine, Made, name_of
from ..config.stored_configuration import Edit, StoredConfiguration
from ..runtime.addresses import LOCK_MANAGER

if TYPE_CHECKING:
    from ...transport.envelopes import Envelope
    from ..runtime.runtime import Runtime
    from .reservation_keeper import ReservationKeeper

DESTROYER = "config_store-destruction"
"""Owns the big lock of a cluster that is destroyed."""

_DESTROYERS_PRIORITY = -21
"""Before every job."""

_UPDATED = {
    messages.UpdateCluster: ObjectKind.CLUSTER,
    messages.UpdateNode: ObjectKind.NODE,
    messages.UpdateInstance: ObjectKind.INSTANCE,
    messages.UpdateNodeGroup: ObjectKind.NODE_GROUP,
    messages.UpdateNetwork: ObjectKind.NETWORK,
    messages.UpdateDisk: ObjectKind.DISK,
}

_Update = (
    messages.UpdateCluster
    | messages.UpdateNode
    | messages.UpdateInstance
    | messages.UpdateNodeGroup
    | messages.UpdateNetwork
    | messages.UpdateDisk
)
_Modification = (
    messages.RemoveInstance
    | messages.AddInstanceDisk
    | messages.AttachInstanceDisk
    | messages.DetachInstanceDisk
    | messages.RemoveInstanceDisk
    | messages.SetInstancePrimaryNode
    | messages.SetInstanceStatus
    | messages.AllocatePort
    | messages.AddTcpUdpPort
    | _Update
)
_Write = messages.WriteConfig | messages.WriteConfigAndUnlock
_Whole = (
    messages.ReadConfig
    | messages.LockConfig
    | messages.UnlockConfig
    | _Write
    | messages.VerifyConfig
    | messages.FlushConfig
    | messages.FlushConfigGroup
    | messages.PrepareClusterDestruction
)
CatalogueMessage = _Whole | messages.AddInstance | _Modification


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

    def __init__(self, owner: Owner, whole: dict[str, Any], grants: int, *, reveals: bool) -> None:
        self.owner = owner
        self.grants = grants
        self.whole = whole
        self.view: Callable[[Any], Any] = _unmasked if reveals else masked


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
        self._reservations = reservations
        self._store = store
        self._given: _Given | None = None

    def take(self, envelope: Envelope, message: CatalogueMessage) -> None:
        """Handle one message."""
        match message:
            case messages.AddInstance():
                self._add_instance(envelope, message)
            case messages.ReadConfig():
                envelope.reply(ConfigAnswered(self._whole(reveals=message.reveals)))
            case messages.LockConfig():
                self._lock(envelope, message)
            case messages.UnlockConfig():
                self._unlock(envelope, message.owner, ConfigAnswered())
            case messages.WriteConfig() | messages.WriteConfigAndUnlock():
                self._write(envelope, message)
            case messages.VerifyConfig():
                found = problems(self._configuration.snapshot)
                envelope.reply(messages.ConfigVerified(found))
            case messages.FlushConfig() | messages.FlushConfigGroup():
                self._flush(envelope, message)
            case messages.PrepareClusterDestruction():
                self._prepare_destruction(envelope, message)
            case _:
                self._modify(envelope, message)

    # ------------------------------------------------------------ the whole configuration

    def _whole(self, *, reveals: bool) -> dict[str, Any]:
        whole = self._configuration.snapshot.to_document()
        return whole if reveals else masked(whole)

    def _lock(self, envelope: Envelope, message: messages.LockConfig) -> None:
        mode = LockMode.SHARED if message.is_shared else LockMode.EXCLUSIVE

        def tried(reply: messages.LocksTried) -> None:
            if reply.blockers:
                envelope.reply(ConfigAnswered())
                return
            whole = self._whole(reveals=message.reveals)
            if mode is LockMode.EXCLUSIVE:
                grants = self._changes.grants
                self._given = _Given(message.owner, whole, grants, reveals=message.reveals)
            envelope.reply(ConfigAnswered(whole))

        asked = messages.TryLocks(message.owner, [(CONFIG_LOCK, mode.value)])
        self._runtime.ask(LOCK_MANAGER, asked, tried, envelope.refuse)

    def _unlock(self, envelope: Envelope, owner: Owner, answer: messages.Reply) -> None:
        if self._given is not None and self._given.owner == owner:
            self._given = None
        release = messages.ReleaseLocks(owner, LockLevel.CONFIG)
        self._runtime.ask(LOCK_MANAGER, release, lambda _: envelope.reply(answer), envelope.refuse)

    def _write(self, envelope: Envelope, message: _Write) -> None:
        objects.check_depth("config", message.config)
        unlocks = isinstance(message, messages.WriteConfigAndUnlock)

        def make(snapshot: Configuration) -> Made:
            given = self._given_to(message)
            changes = modifications.rewritten(snapshot, given.whole, message.config, given.view)
            for change in changes:
                objects.check_unmasked(change.place, change.object)
            edit = Edit(changes, name_of(message.owner), "configuration written")
            return Made(edit, done(changes))

        def done(changes: list[Change]) -> Callable[[Configuration], None]:
            def finish(_: Configuration) -> None:
                if self._given is not None and self._given.owner == message.owner:
                    self._given.whole = message.config
                if unlocks:
                    self._unlock(envelope, message.owner, ConfigAnswered(value=True))
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

        self._changes.add_of_holder(envelope, make, message.owner, refuse)

    def _given_to(self, message: _Write) -> _Given:
        """What the writer has read under its lock; the present, if that is not known."""
        given, grants = self._given, self._changes.grants
        if given is not None and given.owner == message.owner and given.grants == grants:
            return given
        # It has got the lock in another way, or from our predecessor.
        reveals = not objects.is_masked(message.config)
        whole = self._whole(reveals=reveals)
        return _Given(message.owner, whole, grants, reveals=reveals)

    def _flush(
        self, envelope: Envelope, message: messages.FlushConfig | messages.FlushConfigGroup
    ) -> None:
        if isinstance(message, messages.FlushConfigGroup) and (
            self._configuration.snapshot.get(ObjectKind.NODE_GROUP, message.group) is None
        ):
            text = f"Could not find node group with UUID {shortened(message.group)}"
            raise errors.ModificationError(text)
        self._store.flush(envelope, ConfigAnswered())

    # ------------------------------------------------------------ the end of a cluster

    def _prepare_destruction(
        self, envelope: Envelope, message: messages.PrepareClusterDestruction
    ) -> None:
        owner = message.owner

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

    def _add_instance(self, envelope: Envelope, message: messages.AddInstance) -> None:
        uuid = _checked(ObjectKind.INSTANCE, message.instance)

        def make(snapshot: Configuration) -> Made:
            modified = modifications.added_instance(
                snapshot,
                message.instance,
                self._in_use(),
                replaces=message.replaces,
                committed=functools.partial(self._reservations.committed_networks, message.owner),
            )
            return self._made(envelope, modified, name_of(message.owner), "addInstance", uuid)

        self._changes.add_of_holder(
            envelope,
            make,
            message.owner,
            functools.partial(self._changes.add, envelope, make, _busy(envelope, value=False)),
        )

    def _modify(self, envelope: Envelope, message: _Modification) -> None:
        why = type(message).__name__
        why = why[0].lower() + why[1:]
        decide, released, busy = self._decision(message)
        show = masked if getattr(message, "reveals", True) is False else _unmasked

        def make(snapshot: Configuration) -> Made:
            modified = decide(snapshot)
            shown = Modified(modified.changes, lambda after: show(modified.value(after)))
            return self._made(envelope, shown, message.sender, why, released)

        self._changes.add(envelope, make, _busy(envelope, value=busy))

    def _decision(
        self, message: _Modification
    ) -> tuple[Callable[[Configuration], Modified], str, bool | None]:
        """What to decide, the disk whose minors are free then, and the value if it cannot wait."""
        part = functools.partial
        match message:
            case messages.RemoveInstance(instance=uuid):
                return lambda now: modifications.removed_instance(now, uuid), "", False
            case messages.AddInstanceDisk(instance=uuid, disk=disk):
                added = lambda now: modifications.added_disk(  # noqa: E731
                    now, uuid, disk, self._in_use(), index=message.index, replaces=message.replaces
                )
                return added, _checked(ObjectKind.DISK, disk), False
            case messages.AttachInstanceDisk(instance=uuid, disk=own, index=index):
                return lambda now: modifications.attached_disk(now, uuid, own, index), "", False
            case messages.DetachInstanceDisk(instance=uuid, disk=own):
                return lambda now: modifications.detached_disk(now, uuid, own), "", False
            case messages.RemoveInstanceDisk(instance=uuid, disk=own):
                removed = part(modifications.detached_disk, uuid=uuid, disk=own, is_removed=True)
                return removed, "", False
            case messages.SetInstancePrimaryNode(instance=uuid, node=node):
                return lambda now: modifications.with_primary_node(now, uuid, node), "", False
            case messages.SetInstanceStatus(instance=uuid):
                state = {
                    "admin_state": message.admin_state,
                    "disks_active": message.disks_active,
                    "admin_state_source": message.admin_state_source,
                }
                return lambda now: modifications.with_status(now, uuid, state), "", None
            case messages.AllocatePort():
                return modifications.allocated_port, "", None
            case messages.AddTcpUdpPort(port=port):
                return lambda now: modifications.added_port(now, port), "", False
            case _:
                return self._update(message)

    def _update(
        self, message: _Update
    ) -> tuple[Callable[[Configuration], Modified], str, bool | None]:
        kind = _UPDATED[type(message)]
        uuid = _checked(kind, message.object)
        released = uuid if kind is ObjectKind.DISK else ""
        return lambda now: modifications.updated(now, kind, message.object), released, None

    def _in_use(self) -> InUse:
        return InUse(self._configuration.in_use(MAC_ADDRESS), self._configuration.in_use("UUID"))

    def _made(
        self, envelope: Envelope, modified: Modified, who: str, why: str, released: str = ""
    ) -> Made:
        def done(after: Configuration) -> None:
            if released:
                self._reservations.release_minors(released)
            answer = ConfigAnswered(modified.value(after))
            self._store.answer_in_force(envelope, answer, modified.changes)

        return Made(Edit(modified.changes, who, why), done)


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


def _unmasked(value: Any) -> Any:  # noqa: ANN401 - decoded JSON
    return value
