"""Decides whether the next opcode of a chosen job may start under the rules in force. Pure.

The scheduler chooses by the rules of that moment; the rules may change before the opcode starts.
So they are asked again when the job gets its process, when it has its locks, and when `running`
is about to be recorded: by the queue, and by the job's process itself when no daemon answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from ...storage.rules import ActionName

if TYPE_CHECKING:
    from .filtering import Verdict


class Decision(msgspec.Struct, frozen=True):
    """``open``: the opcode may start; else the rule ``rule`` stops it.

    ``held`` and ``limited``: the job goes back to the queue; ``rejected``: it is canceled.
    """

    outcome: Literal["open", "held", "limited", "rejected"]
    rule: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the opcode may start."""
        return self.outcome == "open"


OPEN = Decision("open")


def limit_name(rule: str | None, limit: int | None) -> str:
    """How a limiting rule is named in `ChosenUnder`; with another number it is another limit."""
    return f"{rule} {limit}"


def decide(verdict: Verdict, *, has_executed: bool, limit: str) -> Decision:
    """What ``verdict``, under the rules in force, means for a job whose next opcode is due.

    A job that has executed something runs: rejections leave it alone, and limits count it as it
    is. One that has not must have been chosen under the limit that applies now (``limit``), or
    it has no place there yet and is chosen anew.
    """
    match verdict.action:
        case ActionName.PAUSE:
            return Decision("held", verdict.rule)
        case ActionName.REJECT if not has_executed:
            return Decision("rejected", verdict.rule)
        case ActionName.RATE_LIMIT if not has_executed:
            if limit != limit_name(verdict.rule, verdict.limit):
                return Decision("limited", verdict.rule)
    return OPEN
