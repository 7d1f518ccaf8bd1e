"""Pending jobs that filter rules cannot tell apart have one verdict, which changes for all at once.

Many jobs are of one class (`PendingJob.job_class`). Rules that look at neither ids nor reasons
say the same of each. So the jobs of a class share one `Alike` in place of a verdict of their
own: one answer of the filter evaluator judges all of them, however many there are.

The first jobs of a class stay by themselves, and so do those of a class when there are many
sets: each set is looked at for `job why`. Pure.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from .pending_job import RuleVerdict, judged_by

if TYPE_CHECKING:
    from ...transport.messages import JobVerdict
    from .kinds import Kind
    from .pending_job import Pending
    from .remedies import Buckets

SETS_MAX = 64
"""So many sets there are at a time."""


class Alike(RuleVerdict, kw_only=True):
    """The verdict of ``count`` jobs with the same class and ad-hoc limits, and their kinds."""

    limits: Buckets
    kinds: dict[Kind, None]
    count: int = 0

    def take(self, verdict: JobVerdict) -> None:
        """This is what the filter rules say of each."""
        found = judged_by(verdict)
        self.action, self.rule, self.limit = found.action, found.rule, found.limit
        self.chain, self.buckets = found.chain, found.buckets

    def first_id(self) -> int:
        """The id of one of the jobs."""
        return next(iter(next(iter(self.kinds)).ids))


class Templates:
    """Which pending jobs are alike. A job leaves when it is pending no longer.

    ``alone_max``: how many of a class are judged by themselves; None: all.
    """

    def __init__(self, alone_max: int | None) -> None:
        self._alone_max = alone_max
        self._sets: dict[tuple[int, Buckets], Alike] = {}
        # Of each class, the jobs that are judged by themselves.
        self._alone: Counter[int] = Counter()

    def renew(self, verdict: JobVerdict, chain: int) -> tuple[Alike, bool] | None:
        """Take the verdict on a job as that of its set, which has none under the rules in force.

        ``chain``: the number of these rules. Returns the set, and whether another rule applies to
        it now; None if there is no such set.
        """
        if not (verdict.is_common and verdict.chain == chain):
            return None
        found = self._sets.get((verdict.job.job_class, verdict.job.limits))
        if found is None or found.chain == chain:
            return None
        is_other = found.rule != verdict.rule
        found.take(verdict)
        return found, is_other

    def enter(self, job: Pending, verdict: JobVerdict, chain: int) -> None:
        """Give a job its verdict, its own or that of its set, after `renew`."""
        found = self._set_for(verdict, chain) if verdict.job.job_class else None
        if found is not None:
            job.judged = found
            found.count += 1
            return
        job.judged = judged_by(verdict)
        if verdict.job.job_class:
            self._alone[verdict.job.job_class] += 1

    def leave(self, job: Pending) -> None:
        """A job has no verdict any more, or is pending no longer."""
        judged = job.judged
        if isinstance(judged, Alike):
            judged.count -= 1
            if not judged.count:
                del self._sets[judged.job_class, judged.limits]
        elif judged.job_class in self._alone:
            self._alone[judged.job_class] -= 1
            if not self._alone[judged.job_class]:
                del self._alone[judged.job_class]

    def unjudged(self, chain: int) -> list[int]:
        """A job of each set that has no verdict under the rules in force."""
        return [one.first_id() for one in self._sets.values() if one.chain != chain]

    def _set_for(self, verdict: JobVerdict, chain: int) -> Alike | None:
        job_class, limits = verdict.job.job_class, verdict.job.limits
        is_current = verdict.chain == chain
        found = self._sets.get((job_class, limits))
        if found is not None:
            return found if found.chain == chain and (verdict.is_common or not is_current) else None
        if self._alone_max is None or not (verdict.is_common and is_current):
            return None
        if self._alone[job_class] < self._alone_max or len(self._sets) >= SETS_MAX:
            return None
        made = judged_by(verdict)
        found = self._sets[job_class, limits] = Alike(
            action=made.action,
            rule=made.rule,
            chain=made.chain,
            limit=made.limit,
            buckets=made.buckets,
            job_class=job_class,
            limits=limits,
            kinds={},
        )
        return found


def alike_of(job: Pending) -> Alike | None:
    """The set whose verdict a job shares; None: it has its own."""
    judged = job.judged
    return judged if isinstance(judged, Alike) else None
