"""Which locks the running jobs hold or are about to take: pure.

The lock manager reports what owners really hold. A job that has just started counts with its
forecast until its real locks are known; from then on they alone count.

Two components tell of the end of a job: the queue that its run slot is free, the lock manager that
its locks are. Either may be first. A start that is decided in between would be given away while
the job that waited for these locks seems to be blocked, or while the slot seems to be taken. So
slot and locks of a job go together, with the slot: before, the job keeps what it held when it
ended, and after it, a report of its locks is out of date.

Indexes find the owners of a name by counting, so that a question costs what it asks, and a change
costs what changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import TYPE_CHECKING

from ...storage.locks.locks import BGL, LockLevel
from ...storage.prediction.lock_types import (
    LEVELS,
    NO_LOCKS,
    LevelForecast,
    LockForecast,
    LockType,
    forecast_of,
    is_certain_to_block,
    levels_of,
    shared,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

OwnerId = int | str
"""The number of a job with a process, or the name of another owner of locks."""

Conflict = tuple[int, str, bool]
"""The index of a level in `LEVELS`, a name, and whether it is wanted exclusively."""

NamesTaken = tuple[int, Collection[str], bool]
"""The index of a level, names of it that have owners, and whether these have them exclusively."""

TYPES = tuple(LockType)
TYPE_INDEX = {kind: index for index, kind in enumerate(TYPES)}
_SHARED = TYPE_INDEX[LockType.SHARED]
_EXCLUSIVE_TYPES = (LockType.EXCLUSIVE, LockType.ALL_EXCLUSIVE)
_PREFIXES = {field: LockLevel(field.replace("_", "-")).value for field in LEVELS}
_ALL_EXCLUSIVE = TYPE_INDEX[LockType.ALL_EXCLUSIVE]


def locks_between(pending: LockForecast, held: LockForecast) -> list[tuple[str, str]]:
    """The locks for which the first is certain to wait beside the second, with the wanted mode.

    >>> from ganger.storage.prediction.lock_types import exclusive
    >>> locks_between(forecast_of(node=shared(["a", "b"])), forecast_of(node=exclusive(["b"])))
    [('node/b', 'shared')]
    """
    if "exclusive" in {pending.big_lock, held.big_lock}:
        return [] if "none" in {pending.big_lock, held.big_lock} else [(BGL, pending.big_lock)]
    found = []
    for field, wanted, taken in zip(LEVELS, levels_of(pending), levels_of(held), strict=True):
        prefix = _PREFIXES[field]
        for one in _parts(wanted):
            for other in _parts(taken):
                if not is_certain_to_block(forecast_of(node=one), forecast_of(node=other)):
                    continue
                mode = "exclusive" if one.type in _EXCLUSIVE_TYPES else "shared"
                common = [name for name in one.names if not other.names or name in other.names]
                names = common or ["[lockset]"]
                found += [(f"{prefix}/{name}", mode) for name in names]
    return found


def named(forecast: LockForecast) -> Iterator[NamesTaken]:
    """The names in a forecast, by level and mode."""
    for level, one in enumerate(levels_of(forecast)):
        if one.names:
            yield level, one.names, one.type is LockType.EXCLUSIVE
        if one.also_shared:
            yield level, one.also_shared, False


def _names_of(forecast: LockForecast | None) -> list[tuple[int, str]]:
    """The names in a forecast, with their levels."""
    if forecast is None:
        return []
    return [
        (level, name)
        for level, one in enumerate(levels_of(forecast))
        for name in (*one.names, *one.also_shared)
    ]


def _parts(level: LevelForecast) -> list[LevelForecast]:
    if not level.also_shared:
        return [level]
    return [LevelForecast(level.type, level.names), shared(level.also_shared)]


class Holdings:
    """What every owner of locks holds, or is about to take. A job counts while it has a run slot.

    ``running`` are the jobs with a run slot; `occupy` and `vacate` tell of each change of it.
    """

    def __init__(self, running: Container[int]) -> None:
        self._running = running
        self._held: dict[OwnerId, LockForecast] = {}
        # Jobs with a run slot that will get no other locks: these are freed with the slot.
        self._ended: set[OwnerId] = set()
        self._expected: dict[OwnerId, LockForecast] = {}
        self._counted: dict[OwnerId, LockForecast] = {}
        # Jobs in run slots that have not got their locks. Of each level: by name, which of them
        # want it, and whether exclusively.
        self._standing: dict[OwnerId, LockForecast] = {}
        self._wanted: tuple[dict[str, dict[OwnerId, bool]], ...] = tuple({} for _ in LEVELS)
        self._oldest: dict[tuple[int, LockType | str], int] | None = None
        # Of each level: by name, how many share it and how many have it exclusively.
        self._names: tuple[dict[str, list[int]], ...] = tuple({} for _ in LEVELS)
        # Of each level: how many owners take something of each type, and how many anything.
        self._types = [[0] * len(TYPES) for _ in LEVELS]
        self._users = [0] * len(LEVELS)
        self.big_shared = 0
        self.big_exclusive = 0
        self.generation = 0
        """Grows with each change."""

        self.watchers: defaultdict[tuple[int, str], set[Callable[[], None]]] = defaultdict(set)
        """What to call when the owners of a name change."""

    def __bool__(self) -> bool:
        """Whether there is any owner."""
        return bool(self._counted)

    # ------------------------------------------------------------ changes

    def hold(self, owner: OwnerId, forecast: LockForecast) -> None:
        """The owner really holds these locks, and no others; `NO_LOCKS`: none."""
        if forecast == NO_LOCKS:
            self._held.pop(owner, None)
        else:
            self._held[owner] = forecast
        # It has got its locks, and perhaps given them back already.
        self._expected.pop(owner, None)
        self._ended.discard(owner)
        self._count(owner)

    def hold_all(self, held: Mapping[OwnerId, LockForecast]) -> None:
        """These owners really hold these locks, and no other owner holds any."""
        for owner in self._held.keys() - held.keys() - self._ended:
            self.hold(owner, NO_LOCKS)
        for owner, forecast in held.items():
            self.hold(owner, forecast)

    def end(self, owner: OwnerId) -> None:
        """The owner has ended. A job with a run slot keeps its locks until the slot is free."""
        if owner in self._counted and owner in self._running:
            self._ended.add(owner)
        else:
            self.hold(owner, NO_LOCKS)

    def copy(self, running: Container[int]) -> Holdings:
        """The same owners with the same locks, without watchers, beside other run slots."""
        other = Holdings(running)
        other._expected = dict(self._expected)
        other._ended = set(self._ended)
        other._held = dict(self._held)
        for owner in {**self._held, **self._expected}:
            other._count(owner)
        return other

    def expect(self, owner: OwnerId, forecast: LockForecast) -> None:
        """A job has started, and will take these locks."""
        if owner not in self._held and forecast != NO_LOCKS:
            self._expected[owner] = forecast
            self._count(owner)

    def occupy(self, job_id: int) -> None:
        """The job has a run slot: locks of which was heard before count from now on."""
        if job_id in self._held or job_id in self._expected:
            self._count(job_id)

    def vacate(self, job_id: int) -> None:
        """The job's run slot is free, and so are its locks."""
        if job_id in self._counted:
            self._held.pop(job_id, None)
            self._expected.pop(job_id, None)
            self._ended.discard(job_id)
            self._count(job_id)

    def vacate_others(self) -> None:
        """The jobs with a run slot are others now; what was heard of others remains known."""
        gone = [one for one in {**self._held, **self._expected} if one not in self._running]
        for owner in gone:
            self._expected.pop(owner, None)
            if owner in self._ended:
                self._ended.discard(owner)
                self._held.pop(owner, None)
            self._count(owner)

    def _count(self, owner: OwnerId) -> None:
        before, stood = self._counted.pop(owner, None), self._standing.pop(owner, None)
        after = stands = None
        if isinstance(owner, str) or owner in self._running:
            after = self._held.get(owner) or self._expected.get(owner)
            stands = None if owner in self._held else after
        if after is not None:
            self._counted[owner] = after
        if stands is not None:
            self._standing[owner] = stands
        self._oldest = None
        if before == after and stood == stands:
            return
        self.generation += 1
        if before != after:
            for forecast, step in ((before, -1), (after, 1)):
                if forecast is not None:
                    self._add(forecast, step)
        self._stand(owner, stood, stands)
        touched = {name for forecast in (before, after) for name in _names_of(forecast)}
        for name in touched & self.watchers.keys():
            for call in list(self.watchers[name]):
                call()

    def _stand(
        self, owner: OwnerId, stood: LockForecast | None, stands: LockForecast | None
    ) -> None:
        for level, name in _names_of(stood):
            wanted = self._wanted[level][name]
            wanted.pop(owner, None)
            if not wanted:
                del self._wanted[level][name]
        for level, one in enumerate(levels_of(stands) if stands is not None else ()):
            for name in one.names:
                is_exclusive = one.type is LockType.EXCLUSIVE
                self._wanted[level].setdefault(name, {})[owner] = is_exclusive
            for name in one.also_shared:
                self._wanted[level].setdefault(name, {})[owner] = False

    def _add(self, forecast: LockForecast, step: int) -> None:
        if forecast.big_lock == "exclusive":
            # It counts as the owner of all locks.
            self.big_exclusive += step
            for level in range(len(LEVELS)):
                self._users[level] += step
                self._types[level][_ALL_EXCLUSIVE] += step
            return
        self.big_shared += step * (forecast.big_lock == "shared")
        for level, one in enumerate(levels_of(forecast)):
            if one.type is LockType.NONE:
                continue
            self._users[level] += step
            self._types[level][TYPE_INDEX[one.type]] += step
            self._add_names(level, one.names, step, is_exclusive=one.type is LockType.EXCLUSIVE)
            if one.also_shared:
                self._types[level][_SHARED] += step
                self._add_names(level, one.also_shared, step, is_exclusive=False)

    def _add_names(
        self, level: int, names: tuple[str, ...], step: int, *, is_exclusive: bool
    ) -> None:
        known = self._names[level]
        for name in names:
            counts = known.setdefault(name, [0, 0])
            counts[is_exclusive] += step
            if counts == [0, 0]:
                del known[name]

    # ------------------------------------------------------------ questions

    def outside(self, running: Container[int]) -> int:
        """How many owners are not among these jobs."""
        return sum(owner not in running for owner in self._counted)

    def types_taken(self, owners: int) -> tuple[int, ...]:
        """Of each level, the set of types of what ``owners`` owners take, as bits.

        The bit of `LockType.NONE`: at least one of them takes nothing there.
        """
        found = []
        for users, counts in zip(self._users, self._types, strict=True):
            bits = 1 if owners > users else 0
            for index in range(1, len(counts)):
                if counts[index]:
                    bits |= 1 << index
            found.append(bits)
        return tuple(found)

    def is_taken(self, level: int, name: str, is_exclusive: bool) -> bool:  # noqa: FBT001 - data
        """Whether an owner has the name in a mode that conflicts with this one."""
        counts = self._names[level].get(name)
        return counts is not None and (is_exclusive or counts[1] > 0)

    def is_wanted(self, conflict: Conflict, job_id: int) -> bool:
        """Whether an older job stands in line for this, in a mode that conflicts."""
        level, name, is_exclusive = conflict
        wanted = self._wanted[level].get(name)
        return wanted is not None and any(
            isinstance(owner, int) and owner < job_id and (is_exclusive or one)
            for owner, one in wanted.items()
        )

    def oldest_standing(self) -> Mapping[tuple[int, LockType | str], int]:
        """The oldest job that stands in line, by level and type, and for the big lock (-1, mode).

        It is a job with a run slot that has not got its locks.
        """
        if self._oldest is None:
            found: dict[tuple[int, LockType | str], int] = {}
            for owner, forecast in self._standing.items():
                if isinstance(owner, int):
                    kinds = [(level, one.type) for level, one in enumerate(levels_of(forecast))]
                    for key in (*kinds, (-1, forecast.big_lock)):
                        found[key] = min(owner, found.get(key, owner))
            self._oldest = found
        return self._oldest

    def conflicts(self, forecast: LockForecast, job_id: int) -> tuple[Conflict, ...]:
        """A name of each level that another owner has in a conflicting mode.

        The first one for which an older job than this one stands in line or, if there is none, the
        first one.
        """
        found: tuple[Conflict, ...] = ()
        for level, one in enumerate(levels_of(forecast)):
            if one.names and self._names[level]:
                conflict = self._conflict(level, one, job_id)
                if conflict is not None:
                    found = (*found, conflict)
        return found

    def _conflict(self, level: int, wanted: LevelForecast, job_id: int) -> Conflict | None:
        is_exclusive = wanted.type is LockType.EXCLUSIVE
        first: Conflict | None = None
        for names, mode in ((wanted.names, is_exclusive), (wanted.also_shared, False)):
            for name in names:
                if self.is_taken(level, name, mode):
                    conflict = (level, name, mode)
                    if not self._wanted[level] or self.is_wanted(conflict, job_id):
                        return conflict
                    first = first or conflict
        return first

    def owners(self) -> Iterator[tuple[OwnerId, LockForecast, bool]]:
        """Each owner with its locks, and whether it really holds them."""
        for owner, forecast in self._counted.items():
            yield owner, forecast, owner in self._held
