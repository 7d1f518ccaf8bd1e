"""Decides whether the next opcode of a chosen job may start under the rules in force. Pure.

The scheduler chooses a job by the present rules, which may change before the opcode starts. So the
queue evaluates the rules again when the job gets its process, when it has its locks, and before it
records `running`; the job's process does so itself when no daemon answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from ...storage.filters.rules import ActionName

if TYPE_CHECKING:
    from .filtering import Verdict


class GateDecision(msgspec.Struct, frozen=True):
    """``open``: the opcode may start; else the rule ``rule`` stops it.

    ``held`` and ``limited``: the job goes back to the queue; ``rejected``: it is canceled.
    """

    outcome: Literal["open", "held", "limited", "rejected"]
    rule: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the opcode may start."""
        return self.outcome == "open"


OPEN = GateDecision("open")


def limit_name(rule: str | None, limit: int | None) -> str:
    """The name of a rate limit in `ChosenUnder`; with another number it is another limit."""
    return f"{rule} {limit}"


def decide(verdict: Verdict, *, has_executed: bool, limit: str) -> GateDecision:
    """What ``verdict``, under the rules in force, means for a job whose next opcode is due.

    A job with an executed opcode runs: rejections do not affect it, and limits count it. Another
    job must have been chosen under the limit that applies now (``limit``); otherwise it has no
    place under that limit, and the scheduler chooses it again.
    """
    match verdict.action:
        case ActionName.PAUSE:
            return GateDecision("held", verdict.rule)
        case ActionName.REJECT if not has_executed:
            return GateDecision("rejected", verdict.rule)
        case ActionName.RATE_LIMIT if not has_executed:
            if limit != limit_name(verdict.rule, verdict.limit):
                return GateDecision("limited", verdict.rule)
    return OPEN
