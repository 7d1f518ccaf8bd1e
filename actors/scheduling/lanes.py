"""Lanes: pending jobs between which nothing decides but their ids. Pure.

The jobs of a lane have the same priority and share one verdict of the filter rules: that of their
class (`class_verdicts`), or one that says the same of each. They have the same shape of locks
(`predicting`), and when they entered it the same names were taken in a conflicting mode. So they
have the same weight and the same prospects, and a lane is held, parked or let go as a whole. Ids
grow with age, so the first job of a lane is the one with the lowest id.

Lanes of the same weight make a *group*, so that a pass compares the first jobs of a few groups.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from ..runtime.id_sets import IdSet
from .predicting import Mask, Prediction, Shape

if TYPE_CHECKING:
    from .eligible import Eligible
    from .holding import Conflict
    from .pending_job import RuleVerdict

Conflicts = tuple["Conflict", ...]

LockKey = tuple[Shape, Shape, Conflicts, Conflicts]
"""Shape and conflicts of all locks, and of those for which a job is held back (shapes first)."""

LaneKey = tuple[int, "RuleVerdict", bool, "LockKey | None"]
"""Priority, verdict, whether a dependency is open, and locks; None: the jobs are not weighed."""

GroupKey = tuple[Shape, Mask, Shape, Mask, bool]


class Lane:
    """The ids of the jobs of a lane, of which ``head`` is the first one.

    ``home``: the order in which it stands.
    """

    __slots__ = ("group", "head", "home", "ids", "is_open", "key", "locks", "priority", "verdict")

    def __init__(self, key: LaneKey, home: Eligible) -> None:
        self.key = key
        self.priority, self.verdict, self.is_open, self.locks = key
        self.home = home
        self.ids = IdSet()
        self.head = -1
        self.group: Group | None = None

    def refresh(self) -> None:
        """The owners of a name that was taken when jobs entered have changed."""
        self.home.regroup(self)

    def conflicts(self) -> set[Conflict]:
        """The names that were taken when jobs entered."""
        return set() if self.locks is None else {*self.locks[2], *self.locks[3]}


class Group:
    """Lanes whose jobs have the same weight and the same prospects; ``key`` None: without locks."""

    __slots__ = ("_heads", "generation", "is_blocked", "key", "lanes", "weight")

    def __init__(self, key: GroupKey | None) -> None:
        self.key = key
        self.lanes: set[Lane] = set()
        # The first job of each lane, and some that are so no longer. The number tells equal ones
        # apart.
        self._heads: list[tuple[int, int, Lane]] = []
        self.generation = -1
        self.weight = 0.0
        self.is_blocked = False

    def weigh(self, prediction: Prediction) -> None:
        """Bring weight and prospects up to date."""
        if self.generation == prediction.generation:
            return
        self.generation = prediction.generation
        if self.key is None:
            self.weight = prediction.weight_without_locks()
            return
        shape, mask, first_shape, first_mask, _ = self.key
        self.weight = prediction.weight(shape, mask)
        self.is_blocked = prediction.policy.holds_back and prediction.is_certain_to_block(
            first_shape, first_mask
        )

    def is_behind(self, prediction: Prediction, job_id: int) -> bool:
        """Whether the job, the first one, would stand in line behind an older one."""
        if self.key is None:
            return False
        return self.key[4] or prediction.stands_behind_types(self.key[2], job_id)

    def note(self, lane: Lane) -> None:
        """A lane of this group has another first job."""
        heapq.heappush(self._heads, (lane.head, id(lane), lane))
        if len(self._heads) > 2 * len(self.lanes) + _STALE_HEADS_MAX:
            self._heads = [(one.head, id(one), one) for one in self.lanes]
            heapq.heapify(self._heads)

    def first_lane(self) -> Lane:
        """The lane with the first job of all."""
        while True:
            head, _, lane = self._heads[0]
            if lane.group is self and lane.head == head:
                return lane
            # It stands in another group now, or has another first job.
            heapq.heappop(self._heads)


_STALE_HEADS_MAX = 16
