"""WConfD's methods about the configuration, as one table: what each takes, and what serves it.

Names, arguments and results are those of Ganeti's WConfD (Ganeti design: daemon refactoring). A
method that takes a `ClientId` is for owners of locks: the door checks who calls it. The others are
for everybody who may change the configuration. Those that change something without the caller's
lock do not wait while another owner has ``cluster/config``: the table says what they give then,
and the caller tries again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from ...storage import errors
from ...storage.cluster.configuration import Configuration
from ...storage.cluster.objects import ObjectKind
from ...storage.ganeti import modifications
from ...storage.ganeti.modifications import Modified
from ...storage.locks.locks import Integer, Owner
from ...storage.wording import brief
from ...transport import messages
from ...transport.envelopes import Envelope
from .reservation_keeper import ReservationKeeper
from .wconfd_catalogue import Catalogue

ClientId = Owner
"""Who calls: a job id or a name, the path of its lock file, its process."""

CallMessage = messages.CallMethod | messages.CallMethodAsOwner


class ConfigMethod(NamedTuple):
    """``takes``: the types of the arguments.

    ``serve`` answers. It gets the catalogue, the envelope of the call, and the arguments without
    the `ClientId`, which the message has as its owner.
    """

    takes: tuple[Any, ...]
    serve: Callable[..., None]

    @property
    def is_of_owner(self) -> bool:
        """Whether only an owner of locks calls it."""
        return ClientId in self.takes

    def message(self, name: str, values: Sequence[Any]) -> CallMessage:
        """The message for the arguments, which may show secrets: its door is WConfD's."""
        given = list(zip(values, self.takes, strict=True))
        args = [value for value, kind in given if kind is not ClientId]
        if not self.is_of_owner:
            return messages.CallMethod(name, args, reveals=True)
        [owner] = (value for value, kind in given if kind is ClientId)
        return messages.CallMethodAsOwner(name, owner, args, reveals=True)


def typed(method: str, args: Sequence[Any], kinds: Sequence[Any]) -> list[Any]:
    """The arguments as these types. Raises `BadRequestError`."""
    if len(args) != len(kinds):
        text = f"{method}: expected {len(kinds)} arguments, got {len(args)}"
        raise errors.BadRequestError(text)
    pairs = zip(args, kinds, strict=True)
    return [_typed(method, number, *one) for number, one in enumerate(pairs, 1)]


def _typed(method: str, number: int, argument: object, kind: Any) -> Any:  # noqa: ANN401
    try:
        return msgspec.convert(argument, kind)
    except msgspec.ValidationError as error:
        raise errors.BadRequestError(f"{method}: argument {number}: {error}") from error


def serve(catalogue: Catalogue, envelope: Envelope, message: CallMessage) -> None:
    """Call the method that the message names. Raises `BadRequestError`, or what it raises."""
    name = message.method
    method = METHODS.get(name)
    if method is None:
        raise errors.BadRequestError(f"unknown method {brief(name)}")
    if method.is_of_owner != isinstance(message, messages.CallMethodAsOwner):
        whose = "an owner of locks calls it" if method.is_of_owner else "it has no owner"
        raise errors.BadRequestError(f"{name}: {whose}")
    kinds = [kind for kind in method.takes if kind is not ClientId]
    method.serve(catalogue, envelope, *typed(name, message.args, kinds))


# ---------------------------------------------------------------- kinds of methods


def _change(
    takes: tuple[Any, ...], decide: Callable[..., Modified], *, busy: bool | None
) -> ConfigMethod:
    """A modification without the caller's lock; ``busy``: what it gives if it cannot wait."""

    def serve(
        catalogue: Catalogue,
        envelope: Envelope[messages.CallMethod],
        *args: Any,  # noqa: ANN401
    ) -> None:
        catalogue.modify(envelope, lambda snapshot: decide(snapshot, *args), busy=busy)

    return ConfigMethod(takes, serve)


def _update(kind: ObjectKind) -> ConfigMethod:
    """Replace an object if it still has this serial number. Gives the new one and the time."""

    def serve(
        catalogue: Catalogue, envelope: Envelope[messages.CallMethod], found: dict[str, Any]
    ) -> None:
        catalogue.update(envelope, kind, found)

    return ConfigMethod((_Object,), serve)


def _of_disk(takes: tuple[Any, ...], give: Callable[..., object]) -> ConfigMethod:
    """Reservations of minors, which belong to a disk."""

    def serve(catalogue: Catalogue, envelope: Envelope, *args: Any) -> None:  # noqa: ANN401
        keeper = catalogue.reservations
        keeper.answer(envelope, lambda: give(keeper, *args))

    return ConfigMethod(takes, serve)


def _of_owner(
    more: tuple[Any, ...], give: Callable[..., object], *, may_be_dead: bool = False
) -> ConfigMethod:
    """Reservations of the caller, which must live."""

    def serve(
        catalogue: Catalogue,
        envelope: Envelope[messages.CallMethodAsOwner],
        *args: Any,  # noqa: ANN401
    ) -> None:
        keeper, owner = catalogue.reservations, envelope.message.owner
        if not may_be_dead:
            keeper.check_alive(owner)
        keeper.answer(envelope, lambda: give(keeper, owner, *args))

    return ConfigMethod((ClientId, *more), serve)


_removed_disk = functools.partial(modifications.detached_disk, is_removed=True)


def _with_status(snapshot: Configuration, uuid: str, *values: object) -> Modified:
    names = ("admin_state", "disks_active", "admin_state_source")
    return modifications.with_status(snapshot, uuid, dict(zip(names, values, strict=True)))


_Object = dict[str, Any]
_Uuid = str
_Index = Integer | None
_Port = Annotated[int, msgspec.Meta(ge=1, le=65_535)]

METHODS: Final[dict[str, ConfigMethod]] = {
    # The whole configuration, and its lock.
    "readConfig": ConfigMethod((), Catalogue.read),
    "lockConfig": ConfigMethod((ClientId, bool), Catalogue.lock),
    "unlockConfig": ConfigMethod((ClientId,), Catalogue.unlock),
    "writeConfig": ConfigMethod((ClientId, _Object), Catalogue.write),
    "writeConfigAndUnlock": ConfigMethod((ClientId, _Object), Catalogue.write_and_unlock),
    "verifyConfig": ConfigMethod((), Catalogue.verify),
    "flushConfig": ConfigMethod((), Catalogue.flush),
    "flushConfigGroup": ConfigMethod((_Uuid,), Catalogue.flush_group),
    "prepareClusterDestruction": ConfigMethod((ClientId,), Catalogue.prepare_destruction),
    # Instances and disks.
    "addInstance": ConfigMethod((_Object, ClientId, bool), Catalogue.add_instance),
    "removeInstance": _change((_Uuid,), modifications.removed_instance, busy=False),
    "addInstanceDisk": ConfigMethod((_Uuid, _Object, _Index, bool), Catalogue.add_disk),
    "attachInstanceDisk": _change((_Uuid, _Uuid, _Index), modifications.attached_disk, busy=False),
    "detachInstanceDisk": _change((_Uuid, _Uuid), modifications.detached_disk, busy=False),
    "removeInstanceDisk": _change((_Uuid, _Uuid), _removed_disk, busy=False),
    "setInstancePrimaryNode": _change((_Uuid, _Uuid), modifications.with_primary_node, busy=False),
    "setInstanceStatus": _change(
        (_Uuid, str | None, bool | None, str | None), _with_status, busy=None
    ),
    # Ports and single objects.
    "allocatePort": _change((), modifications.allocated_port, busy=None),
    "addTcpUdpPort": _change((_Port,), modifications.added_port, busy=False),
    "updateCluster": _update(ObjectKind.CLUSTER),
    "updateNode": _update(ObjectKind.NODE),
    "updateInstance": _update(ObjectKind.INSTANCE),
    "updateNodeGroup": _update(ObjectKind.NODE_GROUP),
    "updateNetwork": _update(ObjectKind.NETWORK),
    "updateDisk": _update(ObjectKind.DISK),
    # Reservations.
    "dropAllReservations": _of_owner((), ReservationKeeper.drop, may_be_dead=True),
    "computeDRBDMap": _of_disk((), ReservationKeeper.minors_map),
    "allocateDRBDMinor": _of_disk((_Uuid, list[_Uuid]), ReservationKeeper.allocate_minors),
    "releaseDRBDMinors": _of_disk((_Uuid,), ReservationKeeper.release_minors),
    "generateMAC": _of_owner((_Uuid | None,), ReservationKeeper.generate_mac),
    "reserveMAC": _of_owner((str,), ReservationKeeper.reserve_mac),
    "generateDRBDSecret": _of_owner((), ReservationKeeper.generate_secret),
    "reserveLV": _of_owner((str,), ReservationKeeper.reserve_volume),
    "reserveIp": _of_owner((_Uuid, str, bool), ReservationKeeper.reserve_ip),
    "releaseIp": _of_owner((_Uuid, str), ReservationKeeper.release_ip),
    "generateIp": _of_owner((_Uuid,), ReservationKeeper.generate_ip),
    "listReservedIps": _of_owner((), ReservationKeeper.reserved_ips),
    "commitTemporaryIps": ConfigMethod(
        (ClientId,), lambda catalogue, envelope: catalogue.reservations.commit(envelope)
    ),
    "commitReleaseTemporaryIp": ConfigMethod(
        (_Uuid, str),
        lambda catalogue, envelope, network, address: catalogue.reservations.commit_release(
            envelope, network, address
        ),
    ),
}
"""Each method by its name on the wire."""
