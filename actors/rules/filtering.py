"""Decides which filter rule applies to a job. Pure: rules, time and facts in, a verdict out.

``storage/filters/rules`` and ``storage/filters/predicates`` define what is judged. The admission of
the queue (REJECT), the scheduler (PAUSE, RATE_LIMIT) and the running job act on a verdict.

How it works
------------
The work to judge a job has a limit in steps (``storage/filters/metering``). `judge` does it at
once, `judging` in slices of whole predicates. A job that exceeds the limit is held by the rule that
was being evaluated: it must not start past a rule that might hold it, and must not keep all others
waiting.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Final

import msgspec

from ...storage import settings
from ...storage.filters import lock_predicate
from ...storage.filters.metering import Meter, TooMuchWorkError
from ...storage.filters.predicates import (
    JobFacts,
    LooksAt,
    PredicateTest,
    compile_predicate,
    looks_at,
)
from ...storage.filters.rules import USER_SOURCE, ActionName, FilterRule
from ...storage.jobs.jobs import PRIORITIES
from ...storage.wording import one_line

__all__ = [
    "ACCEPTED",
    "JobFacts",
    "RuleChain",
    "Verdict",
    "compile_chain",
    "describe",
    "held_unjudged",
    "judge",
    "judging",
]


class Verdict(msgspec.Struct, frozen=True):
    """The rule that applies to a job (None: accepted), its action and its number."""

    rule: str | None
    action: ActionName
    limit: int | None = None


ACCEPTED: Final = Verdict(None, ActionName.ACCEPT)
"""The verdict on a job to which no rule applies."""


class ChainedRule(msgspec.Struct, frozen=True):
    """One rule of a chain, compiled: tests that must all hold, and the verdict if they do."""

    tests: tuple[PredicateTest, ...]
    verdict: Verdict

    def matches(self, facts: JobFacts, meter: Meter | None = None) -> bool:
        """Whether the rule applies to the job; raises what the meter raises."""
        return all(test.matches(facts, meter) for test in self.tests)


class RuleChain(msgspec.Struct, frozen=True):
    """The rules in force at one time, in order, compiled."""

    links: tuple[ChainedRule, ...] = ()

    looks_at: LooksAt = LooksAt()
    """What a verdict needs of a job."""

    changes_at: float | None = None
    """When the next window opens or closes: then the chain must be compiled again."""

    @property
    def tells_alike_apart(self) -> bool:
        """Whether jobs with the same inputs but for reasons may get several verdicts."""
        return self.looks_at.reasons or self.looks_at.id


def compile_chain(rules: Iterable[FilterRule], now: float) -> RuleChain:
    """The chain of the rules that can apply at ``now``, by priority, watermark and UUID."""
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
        links=tuple(_chained(rule) for rule in able),
        looks_at=looks_at(predicate for rule in able for predicate in rule.predicates),
        changes_at=min(changes, default=None),
    )


def judge(chain: RuleChain, facts: JobFacts, meter: Meter | None = None) -> Verdict:
    """The verdict of the first rule whose predicates all match, else `ACCEPTED`.

    Raises what the meter raises.
    """
    for link in chain.links:
        if link.matches(facts, meter):
            return link.verdict
    return ACCEPTED


def judged_otherwise(chain: RuleChain, facts: JobFacts, verdict: Verdict) -> Verdict | None:
    """The verdict if the locks that the configuration decides were none; None: it is the same.

    ``verdict`` counts them as taken. Also None if the configuration cannot tell more.
    """
    if not chain.looks_at.locks or not facts.has_unknown_locks or facts.question is None:
        return None
    try:
        meter = Meter(settings.ADMISSION_STEPS_MAX)
        found = judge(chain, facts.without_unknown_locks(), meter)
    except TooMuchWorkError:
        return None
    return None if found == verdict else found


def judging(chain: RuleChain, facts: JobFacts, meter: Meter) -> Generator[Verdict, None, Verdict]:
    """As `judge`, but yields between two predicates when the slice of the meter is over.

    It yields the verdict meanwhile. A job that takes more work than the meter grants is held.
    """
    for link in chain.links:
        try:
            if (yield from _matching(link, facts, meter)):
                return link.verdict
        except TooMuchWorkError:
            return held_unjudged(link)
    return ACCEPTED


def _matching(link: ChainedRule, facts: JobFacts, meter: Meter) -> Generator[Verdict, None, bool]:
    for test in link.tests:
        found = False
        for candidate in test.candidates(facts):
            if meter.is_slice_over:
                yield held_unjudged(link)
            meter.begin_predicate()
            found = test.holds(candidate, meter)
            if found:
                break
        if found is test.is_negated:
            return False
    return True


def held_unjudged(link: ChainedRule) -> Verdict:
    """The verdict on a job while it is unknown whether this rule applies."""
    return Verdict(link.verdict.rule, ActionName.PAUSE)


def holding(chain: RuleChain, facts: JobFacts, meter: Meter) -> tuple[list[str], Verdict]:
    """The rules that keep a job from starting, in order, and the verdict without them.

    If the meter interrupts the evaluation, the last rule is the one that it was evaluating.
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


def refused_priorities(
    chain: RuleChain, facts: JobFacts, among: Sequence[int] = PRIORITIES
) -> list[int]:
    """The priorities at which other rules would hold or limit the job than now.

    All of them, if it takes too much work to find out.
    """
    if "priority" not in (chain.looks_at.parameters or ()):
        return []
    steps_max = settings.JUDGE_STEPS_AT_ONCE
    meter = Meter(steps_max)
    now = holding(chain, facts, meter)
    if (steps_max - meter.left) * len(among) > steps_max:
        return list(among)
    at = {one: JobFacts.of(facts.id, facts.opcodes, one) for one in among}
    return [one for one, then in at.items() if holding(chain, then, Meter(steps_max)) != now]


_DONE_BY = {
    ActionName.REJECT: "rejected",
    ActionName.PAUSE: "paused",
    ActionName.RATE_LIMIT: "limited",
}


def describe(rules: Iterable[FilterRule], verdict: Verdict) -> str:
    """The text about a job with this verdict: the rule, its priority, its reason."""
    done = _DONE_BY.get(verdict.action, "accepted")
    for rule in rules:
        if rule.uuid == verdict.rule:
            return f"{done} by {_shown(rule)}"
    return f"{done} by {called(verdict.rule)}"


def called(uuid: str | None, name: str = "") -> str:
    """What texts call a rule: by its name, if it has one."""
    return f"the rule '{name}'" if name else f"filter rule {uuid}"


def _shown(rule: FilterRule) -> str:
    """A rule without a name by its UUID and place; one with a name by what users say of it."""
    reasons = one_line("; ".join(text for _, text, _ in rule.reason_trail if text))
    if not rule.name:
        reason = f", reason: {reasons}" if reasons else ""
        return f"{called(rule.uuid)} (priority {rule.priority}{reason})"
    sources = (source for source, _, _ in rule.reason_trail if source.startswith(USER_SOURCE))
    user = next(sources, "").removeprefix(USER_SOURCE)
    about = ": ".join(filter(None, (user, reasons)))
    return called(rule.uuid, rule.name) + (f" ({about})" if about else "")


def touched(rule: FilterRule, facts: JobFacts) -> str:
    """What the job does with the locks at which the rule looks, in words; "": it looks at none."""
    found = []
    for predicate in rule.predicates:
        if predicate.name == "lock" and not predicate.is_negated:
            test = compile_predicate(predicate, rule.watermark)
            for claim, candidate in zip(facts.locks, test.candidates(facts), strict=True):
                if test.holds(candidate):
                    found.append(lock_predicate.in_words(claim))
                    break
    return " and ".join(found)


def _chained(rule: FilterRule) -> ChainedRule:
    return ChainedRule(
        tuple(compile_predicate(predicate, rule.watermark) for predicate in rule.predicates),
        Verdict(rule.uuid, rule.action.name, rule.action.limit),
    )
