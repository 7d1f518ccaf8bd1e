"""Chooses the smallest change that would let a pending job start: pure. `remedies` tries it out.

No step of it can be left out, unless it is not the job's turn. The end of a running job may free a
place of a limit, a run slot and locks at once, so it is named once. Where a job may end or give its
locks back, both start the job; a step that only one of the two needs stays. More run slots stand
beside the ends that free a slot if each of the two suffices, and alone if such an end would let
another job go first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ...storage.settings import PRIORITY_MIN
from ...transport.messages import Remedy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .holding import OwnerId

_ALTERNATIVES_MAX = 10

_OTHER_ENDS_MAX = 4
"""Ends that are tried if the first one lets another job go first: each trial takes milliseconds."""


class Change(msgspec.Struct, frozen=True):
    """A change to try: jobs that have ended, rules that are gone, run slots, a priority.

    ``ends``: those of the ended jobs that run, in the order in which they were chosen.
    ``released``: owners that have given their locks back, and go on.
    """

    ended: frozenset[int]
    rules: frozenset[str]
    slots: int
    is_first: bool = False
    released: frozenset[OwnerId] = frozenset()
    ends: tuple[int, ...] = ()

    def with_ends(self, jobs: Sequence[int]) -> Change:
        """These running jobs have ended as well."""
        return msgspec.structs.replace(
            self,
            ended=self.ended.union(jobs),
            released=self.released.difference(jobs),
            ends=(*self.ends, *jobs),
        )


class Trials(msgspec.Struct, frozen=True, eq=False):
    """What a change is chosen from, and tried out with.

    ``waits_for``: the jobs that must end first; ``buckets``: the job's, each with its size;
    ``running``: the jobs that hold a run slot, each with the names of its buckets; ``blocking``:
    the owners of locks that hold the job back; ``starts``: whether it starts after a change;
    ``best``: the best priority of the jobs before it after a change, if there are any;
    ``refused``: priorities at which the rules would treat the job in another way than now.
    """

    waits_for: frozenset[int]
    buckets: Sequence[tuple[str, int]]
    running: Mapping[int, Sequence[str]]
    slots: int
    blocking: frozenset[OwnerId]
    starts: Callable[[Change], bool]
    best: Callable[[Change], int | None]
    refused: Collection[int] = ()

    def lets_start(self, change: Change) -> bool:
        """Whether the job starts after the change, also if those that give locks back end instead.

        Such an end frees more than the locks, and another job may take them.
        """
        gone = sorted(self.running.keys() & change.released)
        return self.starts(change) and (not gone or self.starts(change.with_ends(gone)))


def priority_before(best: int | None, refused: Collection[int]) -> int | None:
    """The least urgent priority before ``best`` that is not ``refused``; None: there is none."""
    if best is None:
        return None
    urgent = range(best - 1, PRIORITY_MIN - 1, -1)
    return next((priority for priority in urgent if priority not in refused), None)


def chosen(trials: Trials, rules: Sequence[str]) -> Remedy:
    """What would start the job; ``rules`` hold it, in the order of the chain."""
    base = Change(
        trials.waits_for,
        frozenset(rules),
        trials.slots,
        released=trials.blocking - trials.waits_for,
    )
    if trials.lets_start(base):
        return _remedy(trials, rules, base)
    limits = _with_bucket_ends(trials, base)
    by_ends = _with_slot_ends(trials, limits)
    by_slots = _with_slots(trials, limits)
    for change in (by_ends, *_with_other_ends(trials, base, by_ends)):
        if trials.lets_start(change):
            return _remedy(trials, rules, change, by_slots)
    if trials.lets_start(by_slots):
        return _remedy(trials, rules, by_slots)
    for change in (by_ends, by_slots):
        priority = priority_before(trials.best(change), trials.refused)
        first = msgspec.structs.replace(change, is_first=True)
        if priority is not None and trials.lets_start(first):
            other = msgspec.structs.replace(by_slots, is_first=True)
            return msgspec.structs.replace(_remedy(trials, rules, first, other), priority=priority)
    return _remedy(trials, rules, by_ends, is_turn=True)


def _remedy(
    trials: Trials,
    rules: Sequence[str],
    change: Change,
    by_slots: Change | None = None,
    *,
    is_turn: bool = False,
) -> Remedy:
    """The change as data; ``by_slots``: with run slots instead of ends, if that starts it, too."""
    slots = None
    # More run slots are said to stand instead of ends, and of nothing else.
    if (
        by_slots is not None
        and change.slots < by_slots.slots
        and change.released == by_slots.released
        and trials.lets_start(by_slots)
    ):
        slots = by_slots.slots
    return Remedy(
        depends=sorted(trials.waits_for),
        locks=sorted(owner for owner in change.released if isinstance(owner, int)),
        rules=list(rules),
        ends=[[job] if is_turn else _alternatives(trials, change, job) for job in change.ends],
        slots=slots,
        needs_slots=change.slots if change.slots > trials.slots else None,
        is_turn=is_turn,
    )


def _with_bucket_ends(trials: Trials, change: Change) -> Change:
    """End as few running jobs as are needed for a place in each bucket."""
    inside = _inside(trials, change)
    full = _full(trials, change)
    ends: list[int] = []
    for name, size in trials.buckets:
        left = _preferred(trials, (job for job in inside if name in inside[job]), full, ends)
        ends += left[: max(0, len(left) - size + 1)]
    left_in = Counter(name for job in inside if job not in ends for name in inside[job])
    sizes = dict(trials.buckets)
    for job in list(ends):
        # An end for another bucket may have made this one needless.
        if all(left_in[name] + 1 < sizes[name] for name in inside[job]):
            ends.remove(job)
            left_in.update(inside[job])
    return change.with_ends(ends)


def _with_slot_ends(trials: Trials, change: Change) -> Change:
    """End as many running jobs as are needed for a run slot."""
    left = _preferred(trials, trials.running.keys() - change.ended, frozenset(), ())
    return change.with_ends(left[: max(0, len(left) - change.slots + 1)])


def _with_other_ends(trials: Trials, base: Change, by_ends: Change) -> Iterator[Change]:
    """As ``by_ends``, but another job ends last, or one that has locks ends and frees its slot."""
    able = trials.running.keys() - by_ends.ended
    if not by_ends.ends:
        able &= base.released
    for job in _preferred(trials, able, frozenset(), ())[:_OTHER_ENDS_MAX]:
        yield base.with_ends([*by_ends.ends[:-1], job])


def _with_slots(trials: Trials, change: Change) -> Change:
    """As many run slots as are needed for one more."""
    needed = len(trials.running.keys() - change.ended) + 1
    return msgspec.structs.replace(change, slots=max(change.slots, needed))


def _preferred(
    trials: Trials, jobs: Iterable[int], full: frozenset[str], but: Sequence[int]
) -> list[int]:
    """The jobs, those first whose end frees most that is wanted."""

    def key(job: int) -> tuple[int, bool, int]:
        return -len(full.intersection(trials.running[job])), job not in trials.blocking, job

    return sorted((job for job in jobs if job not in but), key=key)


def _inside(trials: Trials, change: Change) -> dict[int, list[str]]:
    """The running jobs in the job's buckets, and in which."""
    own = {name for name, _ in trials.buckets}
    found = {
        job: [name for name in names if name in own]
        for job, names in trials.running.items()
        if job not in change.ended
    }
    return {job: names for job, names in found.items() if names}


def _full(trials: Trials, change: Change) -> frozenset[str]:
    """The job's buckets that are full."""
    taken = Counter(name for names in _inside(trials, change).values() for name in names)
    return frozenset(name for name, size in trials.buckets if taken[name] >= size)


def _alternatives(trials: Trials, change: Change, job: int) -> list[int]:
    """Running jobs of which any one may end instead of this one; none makes another needless."""
    others = change.ended - {job}
    full = _full(trials, Change(trials.waits_for, change.rules, change.slots))
    wanted = full.intersection(trials.running[job])
    # If the change frees but one run slot, each of its ends is needed for that.
    is_tight = len(trials.running.keys() - change.ended) == change.slots - 1
    return [
        other
        for other in sorted(trials.running.keys() - others)[:_ALTERNATIVES_MAX]
        if other == job
        or (
            (is_tight or wanted.issuperset(full.intersection(trials.running[other])))
            and trials.lets_start(msgspec.structs.replace(change, ended=others | {other}))
        )
    ] or [job]
