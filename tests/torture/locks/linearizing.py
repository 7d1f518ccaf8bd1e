"""Decides whether a history of concurrent lock requests is linearizable.

A history is linearizable if its operations can be put into one order in which the sequential lock
state gives every reply, and in which no operation comes before one that had ended when it began
(Wing and Gong, "Testing and verifying concurrent objects"). The search remembers where it was: the
set of operations done, and the state that they led to (Lowe, "Testing for linearizability").

A request that has to wait is two operations. The first one begins with the request and ends with
the reply that it waits. The second one, in which its owner learns of the grant, begins there and
ends with the second reply; it may stand anywhere behind the operation that let the lock go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ganger.actors.locks.locking import LockOutcome, LockState
from ganger.storage import errors
from ganger.storage.locks.locks import LocksFile, Owner
from ganger.transport import messages
from ganger.transport.messages import Done, Failure, LocksGranted, LocksPending, Message


class Operation(NamedTuple):
    """One operation of an owner: what it said and heard, and when, on one clock.

    Without a ``message`` its owner learns of a grant; with no ``reply`` either, it never does.
    """

    owner: Owner
    message: Message | None
    reply: Message | None
    begun: int
    ended: int

    def __str__(self) -> str:
        said = "waited" if self.message is None else _without_owner(self.message)
        heard = "nothing" if self.reply is None else _without_owner(self.reply)
        return f"[{self.begun}, {self.ended}] {self.owner.identifier}: {said} -> {heard}"


class Point(NamedTuple):
    """Where an order has led: held locks, the line, and owners that were granted their request.

    These owners have done nothing since.
    """

    file: LocksFile = LocksFile()
    woken: frozenset[Owner] = frozenset()


def find_order(history: Sequence[Operation]) -> list[Operation] | None:
    """An order of the operations that explains every reply; None: there is none."""
    operations = sorted(history, key=lambda one: one.ended)
    everything = (1 << len(operations)) - 1
    seen: set[tuple[int, Point]] = set()
    # Each entry: what is done, where that led, and the order in which it was done.
    unseen: list[tuple[int, Point, list[int]]] = [(0, Point(), [])]
    while unseen:
        done, point, order = unseen.pop()
        if done == everything:
            return [operations[index] for index in order]
        # The one that ended first is tried first, because it is right most of the time.
        for index in reversed(_next(operations, done)):
            after = follow(point, operations[index])
            if after is not None and (key := (done | 1 << index, after)) not in seen:
                seen.add(key)
                unseen.append((*key, [*order, index]))
    return None


def _next(operations: Sequence[Operation], done: int) -> list[int]:
    """The operations that may come next: each begins before any other one has ended."""
    left = [index for index in range(len(operations)) if not done >> index & 1]
    first_end = operations[left[0]].ended
    return [index for index in left if operations[index].begun <= first_end]


def follow(point: Point, one: Operation) -> Point | None:
    """Where this operation leads from there; None if its reply would be another one."""
    state, _ = LockState.restore(point.file)
    if one.message is None:
        if one.reply is None:
            return point if state.has_pending(one.owner) else None
        return point._replace(woken=point.woken - {one.owner}) if one.owner in point.woken else None
    try:
        reply, woken = _answer(state, one.message)
    except errors.LockRequestError as error:
        is_same = isinstance(one.reply, Failure) and one.reply.error == error.name
        return point if is_same else None
    if reply != one.reply:
        return None
    return Point(state.snapshot(), point.woken - {one.owner} | frozenset(woken))


def _answer(state: LockState, message: Message) -> tuple[Message, tuple[Owner, ...]]:
    """What the lock state answers, and which owners it wakes."""
    match message:
        case messages.RequestLocks():
            outcome = state.request(message.owner, message.priority, message.changes)
            return _granted(outcome), outcome.woken
        case messages.TryLocks():
            outcome = state.try_request(message.owner, message.changes)
            return messages.LocksTried(list(outcome.blockers)), outcome.woken
        case messages.TakeFreeLocks():
            wanted, at_least = message.wanted, message.at_least
            taken = state.opportunistic_union(message.owner, wanted, at_least)
            return messages.LocksTaken(taken), ()
        case messages.ReleaseLocks(level=None):
            return Done(), state.release_owner(message.owner)
        case messages.ReleaseLocks(level=level):
            assert level is not None
            return Done(), state.free_level(message.owner, level)
        case messages.DowngradeLocks():
            return Done(), state.downgrade_level(message.owner, message.level)
        case messages.KeepLocks():
            return Done(), state.intersect(message.owner, message.locks)
        case messages.ReadOwner():
            held, is_waiting = state.list_locks(message.owner), state.has_pending(message.owner)
            return messages.OwnerRead([*held], is_waiting), ()
        case _:
            raise AssertionError(f"no operation on locks: {message}")


def _granted(outcome: LockOutcome) -> Message:
    return LocksGranted() if outcome.granted else LocksPending(list(outcome.blockers))


def _without_owner(message: Message) -> str:
    fields = {
        name: [one.identifier if isinstance(one, Owner) else one for one in value]
        if isinstance(value := getattr(message, name), list)
        else value
        for name in message.__struct_fields__
        if name != "owner"
    }
    return f"{type(message).__name__}({', '.join(f'{key}={one}' for key, one in fields.items())})"
