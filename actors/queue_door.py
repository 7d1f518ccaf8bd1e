"""The queue's door: which submissions the filter rules reject before they are jobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..storage import rules
from ..storage.rules import ActionName
from . import filtering

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .submitting import Draft


class QueueDoor:
    """The rules in force, as far as they reject. Knows the wall clock, for their windows."""

    def __init__(self) -> None:
        self._rules: tuple[rules.FilterRule, ...] = ()
        self._chain = filtering.RuleChain()
        self._rejects = False

    def change(self, raw: Sequence[dict[str, Any]]) -> None:
        """These rules are in force from now on, each in its window."""
        self._rules = rules.parse_rules(raw).rules
        self._compile()

    def rejections(self, drafts: Sequence[Draft]) -> dict[int, str]:
        """Why the rules reject jobs of a submission, by their places in it.

        With a rejected job go those that depend on it: it will never be there.
        """
        rejected: dict[int, str] = {}
        if not self._may_reject():
            return rejected
        places = {draft.job.id: place for place, draft in enumerate(drafts)}
        for place, draft in enumerate(drafts):
            text = self._rejection(draft) or _depends_on(draft, rejected, places)
            if text is not None:
                rejected[place] = text
        return rejected

    def _may_reject(self) -> bool:
        if self._chain.changes_at is not None and time.time() >= self._chain.changes_at:
            self._compile()
        return self._rejects

    def _rejection(self, draft: Draft) -> str | None:
        facts = filtering.JobFacts.of(draft.job.id, [op.input for op in draft.job.ops])
        verdict = filtering.judge(self._chain, facts)
        if verdict.action is not ActionName.REJECT:
            return None
        return filtering.rejection(self._rules, verdict.rule)

    def _compile(self) -> None:
        self._chain = filtering.compile_chain(self._rules, time.time())
        self._rejects = any(link.verdict.action is ActionName.REJECT for link in self._chain.links)


def _depends_on(draft: Draft, rejected: dict[int, str], places: dict[int, int]) -> str | None:
    for op in draft.job.ops:
        for target, _ in op.input.get("depends") or ():
            if places.get(target) in rejected:
                return (
                    f"not stored, because it depends on job {places[target]} of the submission, "
                    "which is rejected"
                )
    return None
