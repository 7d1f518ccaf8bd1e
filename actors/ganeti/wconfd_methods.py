"""WConfD's methods: which message each one sends, and what of the reply its caller gets.

Names, arguments and results are those of Ganeti's WConfD (Ganeti design: daemon refactoring). Those
about the configuration are in `wconfd_table`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from ...storage import errors
from ...storage.locks.locks import Integer, LockLevel, LockMode, Owner
from ...storage.wording import shortened
from ...transport import messages
from ...transport.envelopes import Address
from ...transport.ganeti.luxi import Call, UnreadableCallError
from ...transport.messages import Message, Request
from ..runtime.addresses import CONFIG_STORE, LOCK_MANAGER
from .wconfd_table import METHODS as CONFIG_METHODS
from .wconfd_table import ClientId, ConfigMethod, typed

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
    try:
        values = typed(call.method, call.args, method.takes)
    except errors.BadRequestError as error:
        raise UnreadableCallError(error.text) from error
    return Prepared(method.to, method.request(*values), method.result)


def echoed(call: Call) -> str:
    """The text that ``echo`` gives back. Raises `UnreadableCallError`."""
    if len(call.args) != 1 or not isinstance(call.args[0], str):
        raise UnreadableCallError("echo: expected one string")
    return call.args[0]


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


def _verified(reply: messages.ConfigAnswered) -> None:
    if reply.value:
        raise errors.ConfigVerifyError("Validation failed", reply.value)


def _config(name: str, method: ConfigMethod) -> WconfdMethod:
    result = _verified if name == "verifyConfig" else _value
    request = functools.partial(_of_values, name, method)
    return WconfdMethod(method.takes, CONFIG_STORE, request, result)


def _of_values(name: str, method: ConfigMethod, *values: object) -> Request[Any]:
    return method.message(name, values)


METHODS: dict[str, WconfdMethod] = {
    **{name: _config(name, method) for name, method in CONFIG_METHODS.items()},
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
