"""Pending jobs of one class have one verdict of the filter rules, which changes for all at once.

Rules that look at neither ids nor reasons say the same of each job of a class
(`PendingJob.job_class`). So these jobs share one `ClassVerdict` in place of a verdict of their own:
one answer of the filter evaluator judges all of them, however many there are. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .pending_job import RuleVerdict, judged_by

if TYPE_CHECKING:
    from ...transport.messages import JobVerdict
    from .pending_job import Pending
    from .remedies import Buckets


class ClassVerdict(RuleVerdict, kw_only=True):
    """The verdict of ``count`` jobs of one class with the same ad-hoc limits."""

    job_class: int
    count: int = 0

    def take(self, verdict: JobVerdict) -> None:
        """This is what the filter rules say of each."""
        found = judged_by(verdict)
        self.action, self.rule, self.limit = found.action, found.rule, found.limit
        self.chain, self.buckets = found.chain, found.buckets


class ClassVerdicts:
    """The verdicts of all classes that have pending jobs."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, Buckets], ClassVerdict] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._known)

    def known(self, job: Pending, chain: int) -> ClassVerdict | None:
        """The verdict of the job's class under these rules; None: it is not known."""
        found = self._known.get((job.job_class, job.judged.limits))
        return found if found is not None and found.chain == chain else None

    def renew(self, verdict: JobVerdict, chain: int) -> tuple[ClassVerdict, bool] | None:
        """Take the verdict on a job as that of its class, which has none under the rules in force.

        ``chain``: the number of these rules. Returns the verdict of the class, and whether another
        rule applies to it now; None if no job shares it yet.
        """
        if not (verdict.is_common and verdict.chain == chain):
            return None
        found = self._known.get((verdict.job.job_class, verdict.job.limits))
        if found is None or found.chain == chain:
            return None
        is_other = found.rule != verdict.rule
        found.take(verdict)
        return found, is_other

    def enter(self, job: Pending, verdict: JobVerdict, chain: int) -> None:
        """Give a job its verdict, its own or that of its class, after `renew`."""
        found = self._shared(verdict, chain) if job.job_class else None
        if found is None:
            job.judged = judged_by(verdict)
        else:
            self.join(job, found)

    @staticmethod
    def join(job: Pending, found: ClassVerdict) -> None:
        """The job has the verdict of its class from now on."""
        job.judged = found
        found.count += 1

    def leave(self, job: Pending) -> None:
        """A job has no verdict any more, or is pending no longer."""
        judged = job.judged
        if isinstance(judged, ClassVerdict):
            judged.count -= 1
            if not judged.count:
                del self._known[judged.job_class, judged.limits]

    def _shared(self, verdict: JobVerdict, chain: int) -> ClassVerdict | None:
        key = (verdict.job.job_class, verdict.job.limits)
        is_current = verdict.chain == chain
        found = self._known.get(key)
        if found is not None:
            return found if found.chain == chain and (verdict.is_common or not is_current) else None
        if not (verdict.is_common and is_current):
            return None
        made = judged_by(verdict)
        found = self._known[key] = ClassVerdict(
            action=made.action,
            rule=made.rule,
            chain=made.chain,
            limit=made.limit,
            buckets=made.buckets,
            limits=made.limits,
            job_class=verdict.job.job_class,
        )
        return found


def shared_of(job: Pending) -> ClassVerdict | None:
    """The verdict that a job shares with its class; None: it has its own."""
    judged = job.judged
    return judged if isinstance(judged, ClassVerdict) else None
