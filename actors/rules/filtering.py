"""Decides which filter rule applies to a job. Pure: rules, time and facts in, a verdict out.

What a rule and its predicates are is in ``storage/rules``; what becomes of a verdict is the
matter of the queue's door (REJECT), the scheduler (PAUSE, RATE_LIMIT) and the running job.

How it works
------------
What it takes to judge a job is bounded, and measured in steps (``storage/metering``). `judge` does
it at once, `judging` in slices. A job that would take more is held by the rule at which it was:
it may neither start past a rule that might hold it nor keep all others waiting.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final

import msgspec

from ...storage.metering import Meter, SliceOverError, TooMuchWorkError
from ...storage.rules import (
    PREDICATES,
    ActionName,
    FilterRule,
    JobFacts,
    PredicateTest,
    compile_predicate,
)

__all__ = [
    "ACCEPTED",
    "JobFacts",
    "RuleChain",
    "Verdict",
    "compile_chain",
    "held_unjudged",
    "judge",
    "judging",
    "told",
]


class Verdict(msgspec.Struct, frozen=True):
    """What happens to a job: the rule that applies (none: accepted), its action and number."""

    rule: str | None
    action: ActionName
    limit: int | None = None


ACCEPTED: Final = Verdict(None, ActionName.ACCEPT)
"""The verdict on a job to which no rule applies."""


class Link(msgspec.Struct, frozen=True):
    """One rule of a chain: the tests that must all hold, and the verdict if they do."""

    tests: tuple[PredicateTest, ...]
    verdict: Verdict

    def matches(self, facts: JobFacts, meter: Meter | None = None) -> bool:
        """Whether the rule applies to the job; raises what the meter raises."""
        return all(test.matches(facts, meter) for test in self.tests)


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


def judge(chain: RuleChain, facts: JobFacts, meter: Meter | None = None) -> Verdict:
    """The verdict of the first rule whose predicates all match; none of them: accepted.

    Raises what the meter raises, if there is one.
    """
    for link in chain.links:
        if link.matches(facts, meter):
            return link.verdict
    return ACCEPTED


def judging(chain: RuleChain, facts: JobFacts, meter: Meter) -> Generator[Verdict, None, Verdict]:
    """As `judge`, with a pause whenever the meter's slice is over; told is what holds meanwhile.

    A job that takes more work than the meter grants is held.
    """
    for link in chain.links:
        try:
            if (yield from _matching(link, facts, meter)):
                return link.verdict
        except TooMuchWorkError:
            return held_unjudged(link)
    return ACCEPTED


def _matching(link: Link, facts: JobFacts, meter: Meter) -> Generator[Verdict, None, bool]:
    for test in link.tests:
        for candidate in test.candidates(facts):
            meter.begin_object()
            while True:
                try:
                    is_true = test.holds(candidate, meter)
                except SliceOverError:
                    yield held_unjudged(link)
                else:
                    break
            if is_true:
                break
        else:
            return False
    return True


def held_unjudged(link: Link) -> Verdict:
    """The verdict on a job of which it is not known whether this rule applies to it."""
    return Verdict(link.verdict.rule, ActionName.PAUSE)


def holding(chain: RuleChain, facts: JobFacts, meter: Meter) -> tuple[list[str], Verdict]:
    """The rules that keep a job from starting, one behind the other; the verdict without them.

    Where the meter ends it, the last one is that at which it ended.
    """
    found: list[str] = []
    for link in chain.links:
        rule = link.verdict.rule
        try:
            is_match = link.matches(facts, meter)
        except TooMuchWorkError:
            return [*found, *([] if rule is None else [rule])], ACCEPTED
        if is_match:
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
