"""The smallest change that would let a pending job start: pure, and tried out.

The trial goes through the jobs before this one as a pass of the scheduler would, after the change.
So a remedy never names the end of a job whose place another job would take. It weighs jobs once
after the change, where a pass weighs them after each start: among jobs with locks, the order may
be another one then. It ends with this job: a less urgent one that starts after it may let a pass
give it a slot in which it waits for its locks.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from ...storage.prediction.lock_types import (
    NO_LOCKS,
    LockForecast,
    is_certain_to_block,
    static_weight,
)
from ...storage.prediction.policy import Policy
from ...transport.messages import Remedy
from .holding import OwnerId
from .smallest_change import Change, Trials, chosen

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Sequence

Buckets = tuple[tuple[str, int], ...]
"""The buckets of a job, each with its size in running jobs."""


class Candidate(msgspec.Struct, frozen=True):
    """A pending job in the contention; ``held_by`` is the rule that holds it, if any."""

    priority: int
    id: int
    buckets: Buckets
    waits_for: frozenset[int] = frozenset()
    held_by: str | None = None
    needs: LockForecast | None = None
    needs_first: LockForecast | None = None
    weight_left: float = 1.0
    """The part of its weight that its age has left."""

    is_aged: bool = False
    """Whether locks do not hold it back any more."""


class Candidates:
    """Candidates in the order of a pass; each is made when somebody comes to it."""

    def __init__(self, found: Iterable[Candidate]) -> None:
        self._rest = iter(found)
        self.made: list[Candidate] = []
        """Those that somebody has come to."""

    def __iter__(self) -> Iterator[Candidate]:
        yield from self.made
        place = len(self.made)
        while place < len(self.made) or self._make():
            yield self.made[place]
            place += 1

    def _make(self) -> bool:
        following = next(self._rest, None)
        if following is not None:
            self.made.append(following)
        return following is not None


class Contention(msgspec.Struct, frozen=True):
    """A pending job, the first ones of at least its priority, and the prize.

    ``is_weighed``: whether locks play a role in the order. ``running``: the jobs that hold a run
    slot, each with the names of its buckets. ``owners``: the owners of locks, those of jobs that
    have just started among them. ``priorities``: of the jobs that hold a run slot.
    """

    own: Candidate
    others: Candidates
    is_weighed: bool
    running: dict[int, tuple[str, ...]]
    slots: int
    owners: dict[OwnerId, LockForecast] = {}
    priorities: dict[int, int] = {}
    policy: Policy = Policy()


def choosing(
    contention: Contention,
    rules: Sequence[str],
    refused: Collection[int] = (),
    at_once: int | None = None,
) -> Generator[None, None, Remedy]:
    """What would start the job; ``rules`` hold it, in the order of the chain.

    ``refused``: priorities that are no way out, because rules look at them. Yields after each trial
    that goes through more than ``at_once`` jobs. The choice begins anew then, and knows the trials
    that were made: they are few.
    """
    known: dict[Change, bool] = {}

    def starts(change: Change) -> bool:
        if change not in known:
            raise _UntriedError(change)
        return known[change]

    @functools.cache
    def best(change: Change) -> int | None:
        return next((one.priority for one in _rivals(contention, change)), None)

    own = contention.own
    trials = Trials(
        waits_for=own.waits_for,
        buckets=own.buckets,
        running=contention.running,
        slots=contention.slots,
        blocking=frozenset(_blocking(contention)),
        starts=starts,
        best=best,
        refused=refused,
    )
    while True:
        try:
            return chosen(trials, rules)
        except _UntriedError as error:
            known[error.change] = _starts(contention, error.change)
        if at_once is not None and len(contention.others.made) > at_once:
            yield


class _UntriedError(Exception):
    """The outcome of this change is wanted."""

    def __init__(self, change: Change) -> None:
        super().__init__(change)
        self.change = change


def _rivals(contention: Contention, change: Change) -> Iterable[Candidate]:
    """The candidates before the job that no rule or dependency holds after the change."""
    for one in _before(contention, change):
        is_held = one.held_by is not None and one.held_by not in change.rules
        if not is_held and one.waits_for <= change.ended:
            yield one


def _before(contention: Contention, change: Change) -> Iterable[Candidate]:
    own = contention.own
    if not contention.is_weighed:
        last = own.priority, own.id
        return itertools.takewhile(lambda one: (one.priority, one.id) < last, contention.others)
    running = set(_held(contention, change))
    policy = contention.policy
    if any(job not in contention.owners for job in contention.running.keys() - change.ended):
        running.add(NO_LOCKS)

    @functools.cache
    def weight(needs: LockForecast) -> float:
        return static_weight(needs, running, base=policy.base, costs=policy.costs)

    def key(one: Candidate) -> tuple[int, float, int]:
        return (one.priority, weight(one.needs or NO_LOCKS) * one.weight_left, one.id)

    return sorted((one for one in contention.others if key(one) < key(own)), key=key)


def _held(contention: Contention, change: Change) -> Iterable[LockForecast]:
    """The locks that are taken after the change."""
    gone = change.ended | change.released
    return (held for owner, held in contention.owners.items() if owner not in gone)


def _blocking(contention: Contention) -> Iterable[OwnerId]:
    """The owners of locks that hold the job back."""
    own, owners = contention.own, contention.owners.items()
    if not contention.policy.holds_back or own.needs_first is None or own.is_aged:
        return ()
    needs = own.needs_first
    if any(priority > own.priority for priority in _of_owners(contention, frozenset())):
        return ()
    return (owner for owner, held in owners if is_certain_to_block(needs, held))


def _of_owners(contention: Contention, gone: frozenset[OwnerId]) -> list[int]:
    """The priorities of the jobs in run slots that have locks."""
    owners = contention.owners.keys() - gone
    return [priority for job, priority in contention.priorities.items() if job in owners]


def _starts(contention: Contention, change: Change) -> bool:
    """Whether a pass would start the job after this change."""
    running = [names for job, names in contention.running.items() if job not in change.ended]
    taken = Counter(name for names in running for name in names)
    free = change.slots - len(running)
    if free <= 0:
        return False
    locks = _Locks(contention, change)
    for one in () if change.is_first else _rivals(contention, change):
        if _has_places(one.buckets, taken) and not locks.hold_back(one):
            taken.update(name for name, _ in one.buckets)
            locks.take(one)
            free -= 1
            if free <= 0:
                return False
    own = contention.own
    return _has_places(own.buckets, taken) and not locks.hold_back(own)


class _Locks:
    """The locks that are taken in a trial."""

    def __init__(self, contention: Contention, change: Change) -> None:
        self._held = set(_held(contention, change))
        self._holds_back = contention.policy.holds_back
        # The priorities of the jobs in run slots that have locks.
        self._urgencies = _of_owners(contention, change.ended | change.released)
        self._known: dict[LockForecast, bool] = {}
        # What blocked a job lately most likely blocks the next one.
        self._lately: list[LockForecast] = []

    def hold_back(self, one: Candidate) -> bool:
        """Whether a job gets no run slot."""
        needs = one.needs_first
        if needs is None or one.is_aged or not self._holds_back:
            return False
        if any(priority > one.priority for priority in self._urgencies):
            return False
        must_wait = self._known.get(needs)
        if must_wait is None:
            must_wait = self._known[needs] = self._must_wait(needs)
        return must_wait

    def take(self, one: Candidate) -> None:
        """A job starts, and takes its locks."""
        needs = one.needs_first
        if needs is None or needs == NO_LOCKS:
            return
        self._urgencies.append(one.priority)
        if needs not in self._held:
            self._held.add(needs)
            self._known.clear()

    def _must_wait(self, needs: LockForecast) -> bool:
        for one in (*self._lately, *self._held):
            if is_certain_to_block(needs, one):
                self._lately = [one]
                return True
        return False


def _has_places(buckets: Buckets, taken: Counter[str]) -> bool:
    return all(taken[name] < size for name, size in buckets)
