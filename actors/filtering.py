"""Decides which filter rule applies to a job. Pure: rules, time and facts in, a verdict out.

What a rule and its predicates are is in ``storage/rules``; what becomes of a verdict is the
matter of the queue's door (REJECT), the scheduler (PAUSE, RATE_LIMIT) and the running job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ..storage.rules import (
    PREDICATES,
    ActionName,
    FilterRule,
    JobFacts,
    compile_predicate,
)

__all__ = ["ACCEPTED", "JobFacts", "RuleChain", "Verdict", "compile_chain", "judge", "told"]


class Verdict(msgspec.Struct, frozen=True):
    """What happens to a job: the rule that applies (none: accepted), its action and number."""

    rule: str | None
    action: ActionName
    limit: int | None = None


ACCEPTED: Final = Verdict(None, ActionName.ACCEPT)
"""The verdict on a job to which no rule applies."""


class Link(msgspec.Struct, frozen=True):
    """One rule of a chain: the tests that must all hold, and the verdict if they do."""

    tests: tuple[Callable[[JobFacts], bool], ...]
    verdict: Verdict


class RuleChain(msgspec.Struct, frozen=True):
    """The rules in force at one time, in order, compiled."""

    links: tuple[Link, ...] = ()

    reads_opcodes: bool = False
    """Whether a verdict takes more than job ids: if not, no job's body is needed."""

    changes_at: float | None = None
    """When the next window opens or closes, and the chain has to be compiled again."""


def compile_chain(rules: Iterable[FilterRule], now: float) -> RuleChain:
    """The chain of those rules that can apply at ``now``, by priority, watermark and UUID."""
    known = sorted(rules, key=lambda rule: rule.order)
    able = [
        rule
        for rule in known
        if rule.action.name is not ActionName.CONTINUE and rule.is_in_force(now)
    ]
    changes = [
        moment
        for rule in known
        for moment in (rule.valid_from, rule.valid_until)
        if moment is not None and moment > now
    ]
    return RuleChain(
        links=tuple(_link(rule) for rule in able),
        reads_opcodes=any(
            PREDICATES[predicate.name].reads_opcodes
            for rule in able
            for predicate in rule.predicates
        ),
        changes_at=min(changes, default=None),
    )


def judge(chain: RuleChain, facts: JobFacts) -> Verdict:
    """The verdict of the first rule whose predicates all match; none of them: accepted."""
    for link in chain.links:
        if all(matches(facts) for matches in link.tests):
            return link.verdict
    return ACCEPTED


def holding(chain: RuleChain, facts: JobFacts) -> tuple[list[str], Verdict]:
    """The rules that keep a job from starting, one behind the other; the verdict without them."""
    found: list[str] = []
    for link in chain.links:
        if all(matches(facts) for matches in link.tests):
            rule = link.verdict.rule
            if rule is None or link.verdict.action not in (ActionName.PAUSE, ActionName.REJECT):
                return found, link.verdict
            found.append(rule)
    return found, ACCEPTED


_DONE_BY = {
    ActionName.REJECT: "rejected",
    ActionName.PAUSE: "paused",
    ActionName.RATE_LIMIT: "limited",
}


def told(rules: Iterable[FilterRule], verdict: Verdict) -> str:
    """What is told of a job under this verdict: the rule, its priority, its reason."""
    done = _DONE_BY.get(verdict.action, "accepted")
    for rule in rules:
        if rule.uuid == verdict.rule:
            reasons = "; ".join(text for _, text, _ in rule.reason_trail if text)
            reason = f", reason: {reasons}" if reasons else ""
            return f"{done} by filter rule {rule.uuid} (priority {rule.priority}{reason})"
    return f"{done} by filter rule {verdict.rule}"


def _link(rule: FilterRule) -> Link:
    return Link(
        tuple(compile_predicate(predicate, rule.watermark) for predicate in rule.predicates),
        Verdict(rule.uuid, rule.action.name, rule.action.limit),
    )
