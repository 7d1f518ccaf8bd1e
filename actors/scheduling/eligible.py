"""Jobs in order: by priority, then by what is left of their weight, then by id.

How it works. Jobs stand in lanes (`lanes`). When the owners of a name change, the lanes that the
name is in go to another group. The weight of a group is never more than that of each job in it,
because a name that was taken later only adds to the weight of a job. So when a job comes first, its
names are looked up; if more of them are taken than its lane knows, it enters another lane.

A group whose jobs are certain to block is passed over, unless its first job has no weight left
(`Policy.holds_back`). Its jobs cost nothing until a name changes hands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lanes import Group, GroupKey, Lane
from .predicting import Mask, Prediction, mask_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .lanes import Conflicts
    from .pending_job import Pending

SortKey = tuple[int, float, int]
"""Priority, what is left of the weight, id."""


class Eligible:
    """Lanes in order. ``find`` returns a pending job; ``reenter`` puts it into its lane anew."""

    def __init__(
        self,
        prediction: Prediction,
        find: Callable[[int], Pending],
        reenter: Callable[[Pending], None],
    ) -> None:
        self._prediction = prediction
        self._find = find
        self._reenter = reenter
        self.lanes: set[Lane] = set()
        self._groups: dict[int, dict[GroupKey | None, Group]] = {}
        self._with_locks = 0

    def __len__(self) -> int:
        """How many jobs there are."""
        return sum(len(lane.ids) for lane in self.lanes)

    # ------------------------------------------------------------ changes

    def forget(self) -> None:
        """Forget all lanes."""
        self.lanes.clear()
        self._groups.clear()

    def add(self, lane: Lane, job_id: int) -> None:
        """Put a job into a lane that stands here, or begins here with this job."""
        lane.ids.add(job_id)
        if lane.head < 0 or job_id < lane.head:
            if lane.head < 0:
                self._note(lane)
            lane.head = job_id
            self.regroup(lane)

    def discard(self, lane: Lane, job_id: int) -> None:
        """Take a job out of a lane; an empty lane stands nowhere."""
        lane.ids.discard(job_id)
        if not lane.ids:
            lane.head = -1
            self._leave(lane)
        elif job_id == lane.head:
            lane.head = lane.ids.first()
            self.regroup(lane)

    def give(self, lane: Lane, other: Eligible) -> None:
        """Let another order have a lane of this one."""
        self._leave(lane)
        lane.home = other
        other._note(lane)
        other.regroup(lane)

    def _note(self, lane: Lane) -> None:
        self.lanes.add(lane)
        self._with_locks += lane.locks is not None

    def _leave(self, lane: Lane) -> None:
        self.lanes.discard(lane)
        self._with_locks -= lane.locks is not None
        self._leave_group(lane)

    def regroup(self, lane: Lane) -> None:
        """Put a lane into the group of its jobs, by the names that are taken now."""
        key = None
        if lane.locks is None:
            if lane.group is not None:
                lane.group.note(lane)
                return
        else:
            shape, first_shape, conflicts, first_conflicts = lane.locks
            mask = first_mask = self._still(conflicts)
            if first_conflicts is not conflicts:
                first_mask = self._still(first_conflicts)
            is_behind = self._prediction.stands_behind(first_conflicts, lane.head)
            key = (shape, mask, first_shape, first_mask, is_behind)
        groups = self._groups.setdefault(lane.priority, {})
        group = groups.get(key)
        if group is None:
            group = groups[key] = Group(key)
        if lane.group is not group:
            self._leave_group(lane)
            lane.group = group
            group.lanes.add(lane)
        group.note(lane)

    def _still(self, conflicts: Conflicts) -> Mask:
        is_taken = self._prediction.taken.is_taken
        return mask_of(tuple(one for one in conflicts if is_taken(*one)))

    def _leave_group(self, lane: Lane) -> None:
        group, lane.group = lane.group, None
        if group is None:
            return
        group.lanes.discard(lane)
        if not group.lanes:
            groups = self._groups[lane.priority]
            del groups[group.key]
            if not groups:
                del self._groups[lane.priority]

    # ------------------------------------------------------------ questions

    def first(self, now: float) -> Lane | None:
        """The lane with the first job that nothing holds back; None also if the pass must pause."""
        if self._with_locks:
            self._prediction.look()
        for priority in sorted(self._groups):
            while (lane := self._lightest(priority, now)) is not None:
                if lane.locks is None:
                    return lane
                job = self._find(lane.head)
                if self._is_in_place(job, lane):
                    return lane
                self._reenter(job)
                if not self._prediction.spend():
                    # Nothing may start before it is known which job is first.
                    return None
        return None

    def weight_of(self, lane: Lane) -> float:
        """The weight of a lane, as far as it knows: no job of it weighs less."""
        assert lane.group is not None
        lane.group.weigh(self._prediction)
        return lane.group.weight

    def sort_key(self, job: Pending, now: float) -> SortKey:
        """The place of a job in the order, as long as nothing changes."""
        weight = self._prediction.weight_of(job.needs)
        return (job.priority, self._prediction.adjusted(weight, job.id, now), job.id)

    def is_before(self, job: Pending, other: Pending, now: float) -> bool:
        """Whether a job comes before another one."""
        if job.needs is None and other.needs is None:
            # The same weight, and the lower id is at least as old.
            return (job.priority, job.id) < (other.priority, other.id)
        return self.sort_key(job, now) < self.sort_key(other, now)

    def due_at(self) -> float | None:
        """When the next job that is held back has no weight left; None: none is held back."""
        return min(self._due_times(), default=None)

    @property
    def is_plain(self) -> bool:
        """Whether priority and id alone decide: no job has locks."""
        return not self._with_locks

    def _due_times(self) -> Iterator[float]:
        prediction = self._prediction
        for priority, groups in self._groups.items():
            for group in groups.values():
                if self._is_blocked(group, priority):
                    head = group.first_lane().head
                    if not group.is_behind(prediction, head):
                        yield prediction.aged_at(head)

    def _is_blocked(self, group: Group, priority: int) -> bool:
        group.weigh(self._prediction)
        return group.is_blocked and not self._prediction.outranks_an_owner(priority)

    def _lightest(self, priority: int, now: float) -> Lane | None:
        """The lane with the first job of a priority, as far as lanes know."""
        prediction = self._prediction
        groups = self._groups.get(priority, {})
        if len(groups) == 1 and None in groups:
            return groups[None].first_lane()
        best: tuple[float, int] | None = None
        best_lane: Lane | None = None
        for group in groups.values():
            lane = group.first_lane()
            head = lane.head
            if self._is_blocked(group, priority) and (
                not prediction.is_aged(head, now) or group.is_behind(prediction, head)
            ):
                continue
            found = (prediction.adjusted(group.weight, head, now), head)
            if best is None or found < best:
                best, best_lane = found, lane
        return best_lane

    def _is_in_place(self, job: Pending, lane: Lane) -> bool:
        """Whether no more names of a job are taken than its lane knows."""
        group, taken = lane.group, self._prediction.taken
        assert group is not None
        assert group.key is not None
        assert job.needs is not None
        conflicts = first_conflicts = taken.conflicts(job.needs, job.id)
        if job.needs_first is not None:
            first_conflicts = taken.conflicts(job.needs_first, job.id)
        _, mask, _, first_mask, is_behind = group.key
        return (
            mask_of(conflicts) == mask
            and mask_of(first_conflicts) == first_mask
            and self._prediction.stands_behind(first_conflicts, job.id) == is_behind
        )
