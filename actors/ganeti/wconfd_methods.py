"""WConfD's methods: which message each one sends, and what of the reply its caller gets. Pure.

Names, arguments and results are those of Ganeti's WConfD (Ganeti design: daemon refactoring).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from ...storage import errors
from ...storage.locks.locks import Integer, LockLevel, LockMode, Owner
from ...storage.wording import shortened
from ...transport import messages
from ...transport.ganeti.luxi import Call, UnreadableCallError
from ...transport.messages import Message, Request
from ..runtime.addresses import CONFIG_STORE, LOCK_MANAGER
from ..runtime.directory import Address

ClientId = Owner
"""Who calls: a job id or a name, the path of its lock file, its process."""

ValueT = TypeVar("ValueT")

_LEVELS = {level.value: level for level in LockLevel}


class WconfdMethod(NamedTuple):
    """``takes``: the types of the arguments; ``request``: makes the message from them."""

    takes: tuple[Any, ...]
    to: Address[Any]
    request: Callable[..., Request[Any]]
    result: Callable[[Any], object]


class Prepared(NamedTuple):
    """What to ask of whom, and how to word the reply."""

    to: Address[Any]
    request: Any
    result: Callable[[Any], object]


def prepare(call: Call) -> Prepared:
    """The message for ``call``. Raises `UnreadableCallError`, or another error of the request."""
    method = METHODS.get(call.method)
    if method is None:
        raise UnreadableCallError(f"unknown method '{shortened(call.method)}'")
    if len(call.args) != len(method.takes):
        raise UnreadableCallError(
            f"{call.method}: expected {len(method.takes)} arguments, got {len(call.args)}"
        )
    values = [
        _typed(call, place, argument, kind)
        for place, (argument, kind) in enumerate(zip(call.args, method.takes, strict=True))
    ]
    return Prepared(method.to, method.request(*values), method.result)


def echoed(call: Call) -> str:
    """The text that ``echo`` gives back. Raises `UnreadableCallError`."""
    if len(call.args) != 1 or not isinstance(call.args[0], str):
        raise UnreadableCallError("echo: expected one string")
    return call.args[0]


def _typed(call: Call, place: int, argument: object, kind: Any) -> Any:  # noqa: ANN401
    try:
        return msgspec.convert(argument, kind)
    except msgspec.ValidationError as error:
        text = f"{call.method}: argument {place + 1}: {error}"
        raise UnreadableCallError(text) from error


def level_named(name: str) -> LockLevel:
    """The level of this name. Raises `LockRequestError`."""
    if name not in _LEVELS:
        raise errors.LockRequestError(f"Unknown lock level '{shortened(name)}'")
    return _LEVELS[name]


_Changes = list[tuple[str, str]]
_Wanted = list[tuple[str, LockMode]]


def _nothing(_: Message) -> None:
    return None


def _pairs(locks: list[tuple[str, LockMode]]) -> list[list[str]]:
    return [[lock, mode.value] for lock, mode in locks]


def _owners(held: list[tuple[str, list[tuple[Owner, LockMode]]]]) -> list[object]:
    return [[lock, [[owner, mode] for owner, mode in owners]] for lock, owners in held]


def _waiting_blockers(reply: messages.LocksGranted | messages.LocksPending) -> list[Owner]:
    return reply.blockers if isinstance(reply, messages.LocksPending) else []


def _locks(
    takes: tuple[Any, ...],
    request: Callable[..., Request[Any]],
    result: Callable[[Any], object] = _nothing,
) -> WconfdMethod:
    return WconfdMethod(takes, LOCK_MANAGER, request, result)


def _value(reply: messages.ConfigAnswered) -> object:
    return reply.value


def _verified(reply: messages.ConfigVerified) -> None:
    if reply.problems:
        raise errors.ConfigVerifyError("Validation failed", reply.problems)


def _config(takes: tuple[Any, ...], request: Callable[..., Request[Any]]) -> WconfdMethod:
    return WconfdMethod(takes, CONFIG_STORE, request, _value)


_Object = dict[str, Any]
_Uuid = str
_Index = Integer | None

_OF_CONFIGURATION: dict[str, WconfdMethod] = {
    "readConfig": _config((), lambda: messages.ReadConfig(reveals=True)),
    "lockConfig": _config(
        (ClientId, bool), lambda owner, shared: messages.LockConfig(owner, shared, reveals=True)
    ),
    "unlockConfig": _config((ClientId,), messages.UnlockConfig),
    "writeConfig": _config((ClientId, _Object), messages.WriteConfig),
    "writeConfigAndUnlock": _config((ClientId, _Object), messages.WriteConfigAndUnlock),
    "verifyConfig": WconfdMethod((), CONFIG_STORE, messages.VerifyConfig, _verified),
    "flushConfig": _config((), messages.FlushConfig),
    "flushConfigGroup": _config((_Uuid,), messages.FlushConfigGroup),
    "prepareClusterDestruction": _config((ClientId,), messages.PrepareClusterDestruction),
    "addInstance": _config((_Object, ClientId, bool), messages.AddInstance),
    "removeInstance": _config((_Uuid,), messages.RemoveInstance),
    "addInstanceDisk": _config((_Uuid, _Object, _Index, bool), messages.AddInstanceDisk),
    "attachInstanceDisk": _config((_Uuid, _Uuid, _Index), messages.AttachInstanceDisk),
    "detachInstanceDisk": _config((_Uuid, _Uuid), messages.DetachInstanceDisk),
    "removeInstanceDisk": _config((_Uuid, _Uuid), messages.RemoveInstanceDisk),
    "setInstancePrimaryNode": _config((_Uuid, _Uuid), messages.SetInstancePrimaryNode),
    "setInstanceStatus": _config(
        (_Uuid, str | None, bool | None, str | None),
        lambda uuid, state, active, source: messages.SetInstanceStatus(
            uuid, state, active, source, reveals=True
        ),
    ),
    "allocatePort": _config((), messages.AllocatePort),
    "addTcpUdpPort": _config((messages.Port,), messages.AddTcpUdpPort),
    "updateCluster": _config((_Object,), messages.UpdateCluster),
    "updateNode": _config((_Object,), messages.UpdateNode),
    "updateInstance": _config((_Object,), messages.UpdateInstance),
    "updateNodeGroup": _config((_Object,), messages.UpdateNodeGroup),
    "updateNetwork": _config((_Object,), messages.UpdateNetwork),
    "updateDisk": _config((_Object,), messages.UpdateDisk),
}

_OF_RESERVATIONS: dict[str, WconfdMethod] = {
    "dropAllReservations": _config((ClientId,), messages.DropAllReservations),
    "computeDRBDMap": _config((), messages.ComputeDrbdMap),
    "allocateDRBDMinor": _config((_Uuid, list[_Uuid]), messages.AllocateDrbdMinor),
    "releaseDRBDMinors": _config((_Uuid,), messages.ReleaseDrbdMinors),
    "generateMAC": _config((ClientId, _Uuid | None), messages.GenerateMac),
    "reserveMAC": _config((ClientId, str), messages.ReserveMac),
    "generateDRBDSecret": _config((ClientId,), messages.GenerateDrbdSecret),
    "reserveLV": _config((ClientId, str), messages.ReserveLv),
    "reserveIp": _config((ClientId, _Uuid, str, bool), messages.ReserveIp),
    "releaseIp": _config((ClientId, _Uuid, str), messages.ReleaseIp),
    "generateIp": _config((ClientId, _Uuid), messages.GenerateIp),
    "commitTemporaryIps": _config((ClientId,), messages.CommitTemporaryIps),
    "commitReleaseTemporaryIp": _config((_Uuid, str), messages.CommitReleaseTemporaryIp),
    "listReservedIps": _config((ClientId,), messages.ListReservedIps),
}

METHODS: dict[str, WconfdMethod] = {
    **_OF_CONFIGURATION,
    **_OF_RESERVATIONS,
    "listLocks": _locks((ClientId,), messages.ReadOwner, lambda reply: _pairs(reply.locks)),
    "listAllLocks": _locks(
        (), messages.ReadLockTable, lambda reply: [lock for lock, _ in reply.held]
    ),
    "listAllLocksOwners": _locks((), messages.ReadLockTable, lambda reply: _owners(reply.held)),
    "listLocksWaitingStatus": _locks(
        (), messages.ReadLockTable, lambda reply: [_owners(reply.held), reply.pending]
    ),
    "tryUpdateLocks": _locks((ClientId, _Changes), messages.TryLocks, lambda reply: reply.blockers),
    "updateLocksWaiting": _locks(
        (ClientId, Integer, _Changes), messages.RequestLocks, _waiting_blockers
    ),
    "hasPendingRequest": _locks((ClientId,), messages.ReadOwner, lambda reply: reply.is_waiting),
    "freeLocks": _locks((ClientId,), messages.ReleaseLocks),
    "freeLocksLevel": _locks(
        (ClientId, str), lambda owner, level: messages.ReleaseLocks(owner, level_named(level))
    ),
    "downGradeLocksLevel": _locks(
        (ClientId, str), lambda owner, level: messages.DowngradeLocks(owner, level_named(level))
    ),
    "intersectLocks": _locks((ClientId, list[str]), messages.KeepLocks),
    "opportunisticLockUnion": _locks(
        (ClientId, _Wanted), messages.TakeFreeLocks, lambda reply: reply.locks
    ),
    "guardedOpportunisticLockUnion": _locks(
        (Integer, ClientId, _Wanted),
        lambda count, owner, wanted: messages.TakeFreeLocks(owner, wanted, max(0, count)),
        lambda reply: reply.locks,
    ),
    "cleanupLocks": _locks((), messages.FreeDeadOwners),
}
"""Each method by its name on the wire, except ``echo``, which asks no component."""
