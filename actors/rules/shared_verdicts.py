"""Verdicts on jobs that a chain of rules cannot tell apart: pure.

Many jobs come from one template (`SharedInputs`). If no rule looks at ids or reasons, the verdict
on one of them holds for all. If no rule looks at anything, one verdict holds for all jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage.filters.rules import LooksAt
from .filtering import JobFacts, judge

if TYPE_CHECKING:
    from ...transport.messages import JobToJudge, SharedInputs
    from .filtering import RuleChain, Verdict

_KNOWN_MAX = 10_000


class SharedVerdicts:
    """A chain, and its verdicts on templates."""

    def __init__(self, chain: RuleChain) -> None:
        self.chain = chain
        self._is_of_use = chain.looks_at.opcodes and not chain.tells_alike_apart
        self._of_all = judge(chain, JobFacts(0)) if chain.looks_at == LooksAt() else None
        # With the template itself: another one must not get its place in memory.
        self._known: dict[int, tuple[SharedInputs, Verdict]] = {}

    def find(self, arrived: JobToJudge) -> Verdict | None:
        """The verdict on this job, if one on its template is known."""
        if self._of_all is not None:
            return self._of_all
        found = self._known.get(id(arrived.shared))
        return None if found is None else found[1]

    def note(self, arrived: JobToJudge, verdict: Verdict) -> None:
        """This is the verdict on a job, at the priority that it has."""
        if self._is_of_use and arrived.shared is not None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[id(arrived.shared)] = (arrived.shared, verdict)
