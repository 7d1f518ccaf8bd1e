"""The line of waiting lock requests: the place of each, and the owner under which it is queued.

Pure bookkeeping for ``locking``, which decides which request enters, which is served, and under
which owner it is queued.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Container, Iterator
from dataclasses import dataclass

from ...storage.locks.locks import LockMode, Owner, Pending
from .allocating import LockIndex, Wants

__all__ = ["Position", "Waiter", "WaitingLine"]

Position = tuple[float, float]
"""Priority and place within it; smaller ones are served first."""


@dataclass(eq=False, slots=True)
class Waiter:
    """A request in line. ``above`` is the owner under which it is queued."""

    pending: Pending
    wants: dict[str, LockMode]
    place: int = 0
    above: Owner | None = None

    @property
    def owner(self) -> Owner:
        """The owner that waits."""
        return self.pending.owner

    @property
    def position(self) -> Position:
        """Its place in line."""
        return (self.pending.priority, self.place)


class WaitingLine:
    """The waiting requests, at most one of each owner, in the order in which they are served."""

    def __init__(self) -> None:
        self.wanters = LockIndex()
        self.revision = 0
        self.changed: dict[Owner, None] = {}
        """Owners that entered or left since this was emptied."""
        self.deferred: set[Owner] = set()
        """Owners whose last try failed only because of the line."""
        self._waiters: dict[Owner, Waiter] = {}
        # The requests of each priority, by place. Places rise along the line, but have gaps.
        self._lines: dict[int, list[Waiter]] = {}
        self._under: dict[Owner, set[Owner]] = {}

    def __contains__(self, owner: Owner) -> bool:
        return owner in self._waiters

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Waiter]:
        return itertools.chain.from_iterable(self._lines[one] for one in sorted(self._lines))

    def __getitem__(self, owner: Owner) -> Waiter:
        return self._waiters[owner]

    def get(self, owner: Owner) -> Waiter | None:
        """The waiting request of this owner, if there is one."""
        return self._waiters.get(owner)

    def ahead(self, owner: Owner, wants: Wants, position: Position) -> list[Waiter]:
        """The other requests before ``position`` that conflict with ``wants``, in line."""
        wanters = map(self._waiters.__getitem__, self.wanters.against_others(owner, wants))
        ahead = [other for other in wanters if other.position < position]
        return sorted(ahead, key=lambda other: other.position)

    def enter(
        self, pending: Pending, wants: dict[str, LockMode], behind: Container[Owner]
    ) -> Waiter:
        """Take the place in line that (priority, owner) gives, but behind all of ``behind``."""
        waiter = Waiter(pending, wants)
        line = self._lines.setdefault(pending.priority, [])
        spot = len(line)
        # From the back: most new owners are younger than the waiting ones.
        while spot and waiter.owner < (last := line[spot - 1].owner) and last not in behind:
            spot -= 1
        if spot:
            waiter.place = line[spot - 1].place + 1
        elif line:
            waiter.place = line[0].place - 1
        line.insert(spot, waiter)
        for earlier, later in itertools.pairwise(itertools.islice(line, spot, None)):
            if later.place > earlier.place:
                break
            later.place = earlier.place + 1
        self._waiters[waiter.owner] = waiter
        for lock, mode in wants.items():
            self.wanters.add(waiter.owner, lock, mode)
        self.changed[waiter.owner] = None
        self.revision += 1
        return waiter

    def leave(self, owner: Owner) -> Waiter | None:
        """Withdraw the owner's request, if there is one; requests queued under it stay there."""
        waiter = self._waiters.pop(owner, None)
        if waiter is None:
            return None
        self.queue(waiter, None)
        line = self._lines[waiter.pending.priority]
        del line[_index(line, waiter)]
        if not line:
            del self._lines[waiter.pending.priority]
        for lock, mode in waiter.wants.items():
            self.wanters.remove(owner, lock, mode)
        self.changed[owner] = None
        self.revision += 1
        return waiter

    def queue(self, waiter: Waiter, above: Owner | None, *, is_deferred: bool = False) -> None:
        """Queue the request under this owner only; None: under no owner."""
        if waiter.above is not None and waiter.above != above:
            siblings = self._under[waiter.above]
            siblings.discard(waiter.owner)
            if not siblings:
                del self._under[waiter.above]
        if above is not None:
            self._under.setdefault(above, set()).add(waiter.owner)
        waiter.above = above
        if is_deferred:
            self.deferred.add(waiter.owner)
        else:
            self.deferred.discard(waiter.owner)

    def before(self, waiter: Waiter) -> Owner | None:
        """The owner directly before it among the requests of the same priority."""
        line = self._lines[waiter.pending.priority]
        index = _index(line, waiter)
        return line[index - 1].owner if index else None

    def under(self, owner: Owner) -> set[Owner]:
        """The owners queued under this owner."""
        return set(self._under.get(owner, ()))


def _index(line: list[Waiter], waiter: Waiter) -> int:
    return bisect_left(line, waiter.place, key=lambda one: one.place)
