"""What a chain has to see of a job, and its verdict as a message. Pure."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from ...storage.filters.rules import ActionName
from ...transport.messages import JobVerdict
from .filtering import Verdict

if TYPE_CHECKING:
    from ...transport.messages import JobToJudge
    from .filtering import RuleChain


HELD = Verdict(None, ActionName.PAUSE)
"""Of a job of which it is not known what the rules say."""


def fields_of(*chains: RuleChain) -> frozenset[str] | None:
    """The parameters of opcodes at which these chains look; None: they look at ids alone."""
    return reduce(or_, (chain.looks_at for chain in chains)).parameters


def has_inputs(arrived: JobToJudge, chain: RuleChain) -> bool:
    """Whether all that the chain looks at is there, or in the job's file."""
    if arrived.class_inputs is not None and not chain.looks_at.reasons:
        return True
    return arrived.inputs is not None or arrived.body is not None or arrived.is_in_file


def verdict_of(
    arrived: JobToJudge,
    verdict: Verdict,
    number: int,
    *,
    is_common: bool = False,
) -> JobVerdict:
    """The verdict on a job under the chain with this number, as the scheduler gets it."""
    return JobVerdict(
        job=arrived.job,
        # Not `str`, which makes a text for each job.
        action=verdict.action.value,
        rule=verdict.rule,
        limit=verdict.limit,
        chain=number,
        is_common=is_common,
    )


def rejection(judged: JobVerdict) -> Verdict:
    """The rule that rejects this job."""
    return Verdict(judged.rule, ActionName.REJECT)


def named(verdict: Verdict | None) -> tuple[str, str] | None:
    """The rule that decides and its action, as a test of rules shows them; None: no rule."""
    if verdict is None or verdict.rule is None:
        return None
    action = str(verdict.action)
    return verdict.rule, action if verdict.limit is None else f"{action} {verdict.limit}"
