"""Verdicts on classes of jobs under one chain of rules: pure.

A class is as narrow as the rules look. If no rule looks at ids or reasons, the verdict on one job
holds for all jobs with its class number. If no rule looks at anything, one verdict holds for all
jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage.filters.predicates import LooksAt
from .filtering import JobFacts, judge

if TYPE_CHECKING:
    from ...transport.messages import PendingJob
    from .filtering import RuleChain, Verdict

_KNOWN_MAX = 10_000


class SharedVerdicts:
    """A chain, and its verdicts on classes of jobs."""

    def __init__(self, chain: RuleChain) -> None:
        self.chain = chain
        self._is_of_use = chain.looks_at.opcodes and not chain.tells_alike_apart
        self._of_all = judge(chain, JobFacts(0)) if chain.looks_at == LooksAt() else None
        self._known: dict[int, Verdict] = {}

    def find(self, job: PendingJob) -> Verdict | None:
        """The verdict on this job, if one on its class is known."""
        return self._of_all or self._known.get(job.job_class)

    def note(self, job: PendingJob, verdict: Verdict) -> None:
        """This is the verdict on a job, at the priority that it has."""
        if self._is_of_use and job.job_class:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[job.job_class] = verdict
