"""The smallest change that would let a pending job start: pure, and tried out.

The trial goes through those who are looked at before the job, as a pass of the scheduler would,
with what the change frees. So what is named is what then happens: nobody is told to end a job
whose place another one would take.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from ...storage.jobs import PRIORITY_MIN
from ...transport.messages import Remedy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Buckets = tuple[tuple[str, int], ...]
"""The buckets of a job, each with how many running jobs it takes."""

_ALTERNATIVES_MAX = 10


class Entrant(msgspec.Struct, frozen=True):
    """A pending job that could be looked at; ``held_by`` is the rule that holds it, if any."""

    priority: int
    id: int
    buckets: Buckets
    waits_for: frozenset[int] = frozenset()
    held_by: str | None = None


class Contest(msgspec.Struct, frozen=True):
    """A pending job, those before it in order, and what they compete for.

    ``running``: the jobs that hold a run slot, each with the names of its buckets.
    """

    own: Entrant
    before: list[Entrant]
    running: dict[int, tuple[str, ...]]
    slots: int


class _Change(msgspec.Struct, frozen=True):
    """What is tried: jobs that have ended, rules that are gone, more slots, a priority."""

    ended: frozenset[int]
    rules: frozenset[str]
    slots: int
    is_first: bool = False


def for_pending(contest: Contest, rules: Sequence[str]) -> Remedy:
    """What would let the job start; ``rules`` hold it, one after the other."""
    gone = frozenset(rules)
    change = _Change(contest.own.waits_for, gone, contest.slots)
    ends: list[list[int]] = []
    by_slots = 0
    if not _starts(contest, change):
        for name, size in contest.own.buckets:
            inside = [job for job, names in contest.running.items() if name in names]
            change = _with_ends(change, inside, size, ends)
        by_slots = -len(ends)
        change = _with_ends(change, list(contest.running), contest.slots, ends)
        by_slots += len(ends)
    priority = None
    is_turn = False
    if not _starts(contest, change):
        first = msgspec.structs.replace(change, is_first=True)
        best = min((one.priority for one in _rivals(contest, change)), default=PRIORITY_MIN)
        if best > PRIORITY_MIN and _starts(contest, first):
            change, priority = first, best - 1
        else:
            is_turn = True
    slots = _slots_instead(contest, change, ends, by_slots)
    if not is_turn:
        ends = [_alternatives(contest, change, one) for [one] in ends]
    return Remedy(
        depends=sorted(contest.own.waits_for),
        rules=list(rules),
        ends=ends,
        slots=slots,
        priority=priority,
        is_turn=is_turn,
    )


def _with_ends(change: _Change, inside: list[int], size: int, ends: list[list[int]]) -> _Change:
    """End as many of ``inside`` as it takes to make a place."""
    left = sorted(job for job in inside if job not in change.ended)
    chosen = left[: max(0, len(left) - size + 1)]
    ends += [[job] for job in chosen]
    return msgspec.structs.replace(change, ended=change.ended.union(chosen))


def _alternatives(contest: Contest, change: _Change, chosen: int) -> list[int]:
    """Running jobs of which the end of any one would do instead of the chosen one's."""
    others = change.ended - {chosen}
    left = sorted(contest.running.keys() - others)[:_ALTERNATIVES_MAX]
    return [
        job
        for job in left
        if job == chosen or _starts(contest, msgspec.structs.replace(change, ended=others | {job}))
    ] or [chosen]


def _slots_instead(
    contest: Contest, change: _Change, ends: list[list[int]], by_slots: int
) -> int | None:
    """The number of run slots that would do instead of the ends that make one free."""
    if not by_slots:
        return None
    spared = {job for [job] in ends[-by_slots:]}
    more = msgspec.structs.replace(
        change, ended=change.ended - spared, slots=contest.slots + by_slots
    )
    return more.slots if _starts(contest, more) else None


def _rivals(contest: Contest, change: _Change) -> Iterable[Entrant]:
    """Those before the job that the change, or nothing, holds back."""
    for one in contest.before:
        is_held = one.held_by is not None and one.held_by not in change.rules
        if not is_held and one.waits_for <= change.ended:
            yield one


def _starts(contest: Contest, change: _Change) -> bool:
    """Whether a pass would start the job after this change."""
    running = [names for job, names in contest.running.items() if job not in change.ended]
    taken = Counter(name for names in running for name in names)
    free = change.slots - len(running)
    for one in () if change.is_first else _rivals(contest, change):
        if free <= 0:
            return False
        if _has_places(one.buckets, taken):
            taken.update(name for name, _ in one.buckets)
            free -= 1
    return free > 0 and _has_places(contest.own.buckets, taken)


def _has_places(buckets: Buckets, taken: Counter[str]) -> bool:
    return all(taken[name] < size for name, size in buckets)
