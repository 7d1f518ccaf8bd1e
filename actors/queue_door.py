"""The filter rules where the queue itself must obey them: at the door, and between opcodes.

A submission that a rule rejects is refused before it is a job; a running job that a rule pauses
does not begin its next opcode. Everything else about rules is the scheduler's matter.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

from ..storage import rules
from ..storage.rules import ActionName
from . import filtering

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .submitting import Draft


class QueueDoor:
    """The rules in force, as stored. Knows the wall clock, for their windows."""

    def __init__(self, raw: Sequence[dict[str, Any]]) -> None:
        self._rules = rules.parse_rules(raw).rules
        self._compile()

    def rejections(self, drafts: Sequence[Draft]) -> dict[int, str]:
        """Why jobs of a submission are not stored, by their places in it.

        With a rejected job go those that depend on it: it will never be there.
        """
        rejected: dict[int, str] = {}
        if not self._has(ActionName.REJECT):
            return rejected
        places = {draft.job.id: place for place, draft in enumerate(drafts)}
        for place, draft in enumerate(drafts):
            inputs = [op.input for op in draft.job.ops]
            text = self._applies(ActionName.REJECT, draft.job.id, inputs)
            text = text or _depends_on(inputs, rejected, places)
            if text is not None:
                rejected[place] = text
        return rejected

    def knows(self, uuid: str) -> bool:
        """Whether there is a rule ``uuid``."""
        return any(rule.uuid == uuid for rule in self._rules)

    def may_pause(self) -> bool:
        """Whether any rule in force pauses jobs."""
        return self._has(ActionName.PAUSE)

    def pause(self, job_id: int, inputs: Sequence[Mapping[str, Any]]) -> str | None:
        """Which rule holds the next opcode of a running job; None if none does."""
        return self._applies(ActionName.PAUSE, job_id, inputs)

    def pausing(self, job_id: int, inputs: Sequence[Mapping[str, Any]]) -> list[str]:
        """The rules that hold the next opcode of a running job, one behind the other."""
        found, _ = filtering.holding(self._chain, filtering.JobFacts.of(job_id, inputs))
        pauses = {rule.uuid for rule in self._rules if rule.action.name is ActionName.PAUSE}
        # A rule that rejects leaves running jobs alone.
        return list(itertools.takewhile(pauses.__contains__, found))

    def priority(self, uuid: str) -> int:
        """The priority of the rule ``uuid``; 0 if it is gone."""
        return next((rule.priority for rule in self._rules if rule.uuid == uuid), 0)

    def told(self, uuid: str) -> str:
        """What is told of a job to which the rule ``uuid`` applies."""
        action = next((rule.action.name for rule in self._rules if rule.uuid == uuid), None)
        verdict = filtering.Verdict(uuid, action or ActionName.ACCEPT)
        return filtering.told(self._rules, verdict)

    def _has(self, action: ActionName) -> bool:
        if self._chain.changes_at is not None and time.time() >= self._chain.changes_at:
            self._compile()
        return action in self._actions

    def _applies(
        self, action: ActionName, job_id: int, inputs: Sequence[Mapping[str, Any]]
    ) -> str | None:
        verdict = filtering.judge(self._chain, filtering.JobFacts.of(job_id, inputs))
        if verdict.action is not action:
            return None
        return filtering.told(self._rules, verdict)

    def _compile(self) -> None:
        self._chain = filtering.compile_chain(self._rules, time.time())
        self._actions = {link.verdict.action for link in self._chain.links}


def _depends_on(
    inputs: Sequence[Mapping[str, Any]], rejected: dict[int, str], places: dict[int, int]
) -> str | None:
    for opcode in inputs:
        for target, _ in opcode.get("depends") or ():
            if places.get(target) in rejected:
                return (
                    f"not stored, because it depends on job {places[target]} of the submission, "
                    "which is rejected"
                )
    return None
