"""Pending and running jobs as the schedule keeps them in memory: small values."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import msgspec

from ...storage.jobs.jobs import JobStatus
from ...storage.jobs.outcomes import ANY_FAILED, JobEnd, Outcome
from ...storage.prediction.lock_types import NO_LOCKS
from .depending import Dependencies, cancels, has_failed
from .remedies import Buckets

if TYPE_CHECKING:
    from ...storage.prediction.lock_types import LockForecast
    from ...transport.messages import JobVerdict
    from .lanes import Lane
    from .predicting import Prediction

HELD = frozenset({"PAUSE"})
REJECTED = "REJECT"
LIMITED = "RATE_LIMIT"


def buckets_of(verdict: JobVerdict) -> Buckets:
    """The buckets in which the job takes a place when it starts."""
    if verdict.action == LIMITED and verdict.rule is not None and verdict.limit is not None:
        return (*verdict.job.limits, (f"rule:{verdict.rule}", verdict.limit))
    return verdict.job.limits


class RuleVerdict(msgspec.Struct, eq=False):
    """What the filter rules say of a job, under the chain of this number, and its buckets.

    ``limits``: the buckets that its reasons name. Several jobs share it, so it never changes, but
    that of a class of jobs does (`class_verdicts`).
    """

    action: str
    rule: str | None
    chain: int
    limit: int | None
    buckets: Buckets
    limits: Buckets = ()


@functools.lru_cache(maxsize=8_192)
def _judged(  # noqa: PLR0917 - the fields
    action: str, rule: str | None, chain: int, limit: int | None, buckets: Buckets, limits: Buckets
) -> RuleVerdict:
    """Jobs with the same verdict share it."""
    return RuleVerdict(action, rule, chain, limit, buckets, limits)


class JobForecasts(msgspec.Struct, frozen=True):
    """What is known of a job's locks, and those for which it is weighed (``needs``)."""

    forecast: LockForecast | None = None
    of_all: LockForecast | None = None
    question: str | None = None
    needs: LockForecast | None = None


_NO_FORECASTS = JobForecasts()


class WantedWords(msgspec.Struct):
    """The accepted words of a job's dependencies, by their ids.

    ``must_end``: the open ones that have to end in any case. Of the others, in the ``group``, one
    has to fail; ``has_failed``: one has.
    """

    of: dict[int, list[tuple[str, ...]]]
    must_end: set[int]
    group: set[int]
    has_failed: bool = False

    @classmethod
    def made(cls, depends: Dependencies) -> WantedWords:
        """Those of these dependencies, of which nothing is known."""
        words: dict[int, list[tuple[str, ...]]] = {}
        for target, wanted in depends:
            words.setdefault(target, []).append(wanted)
        group = {target for target, wanted in depends if ANY_FAILED in wanted}
        others = {target for target, wanted in depends if ANY_FAILED not in wanted}
        return cls(words, others if group else set(), group)


class OpenDependencies(msgspec.Struct):
    """The dependencies of a job, and what is known of them."""

    depends: Dependencies = ()
    known: dict[int, JobEnd | None] = {}
    targets: int = 0
    words: WantedWords | None = None

    @classmethod
    def on(cls, depends: Dependencies) -> OpenDependencies:
        """Nothing is known of these."""
        return (
            cls(depends, {}, len({target for target, _ in depends}))
            if depends
            else _NO_DEPENDENCIES
        )


_NO_DEPENDENCIES = OpenDependencies()
"""Of all jobs without dependencies. It never changes."""


_NEVER_STARTED = JobEnd(JobStatus.CANCELED, Outcome.SKIPPED)


class Pending(msgspec.Struct, gc=False, eq=False):
    """A pending job in memory; ``lane``: its place in the order.

    There may be many: what several have in common is one object.
    """

    id: int
    priority: int
    judged: RuleVerdict
    wants: JobForecasts
    waits: OpenDependencies
    job_class: int = 0
    lane: Lane | None = None

    @classmethod
    def of(cls, verdict: JobVerdict) -> Pending:
        """The job of this verdict, in no place yet."""
        job = verdict.job
        wants = _NO_FORECASTS
        if job.forecast is not None or job.forecast_of_all is not None or job.question is not None:
            wants = JobForecasts(job.forecast, job.forecast_of_all, job.question)
        waits = OpenDependencies.on(job.depends)
        return cls(job.id, job.priority, judged_by(verdict), wants, waits, job.job_class)

    def foresee(self, forecast: LockForecast | None, of_all: LockForecast | None) -> None:
        """This is known of its locks; `predict` comes next."""
        self.wants = JobForecasts(forecast, of_all, self.wants.question)

    def predict(self, prediction: Prediction) -> None:
        """Take the locks for which the job is weighed from its forecasts."""
        wants = self.wants
        forecast = wants.forecast
        if prediction.policy.all_opcodes and wants.of_all is not None:
            forecast = wants.of_all
        needs = prediction.needs(forecast)
        if needs is not wants.needs:
            self.wants = msgspec.structs.replace(wants, needs=needs)

    @property
    def needs(self) -> LockForecast | None:
        """The locks for which it is weighed."""
        return self.wants.needs

    @property
    def needs_first(self) -> LockForecast | None:
        """The locks for which the job is held back; None: those for which it is weighed."""
        wants = self.wants
        if wants.needs is None or wants.needs is wants.forecast:
            return None
        return wants.forecast or NO_LOCKS

    @property
    def is_eligible(self) -> bool:
        """Whether it waits for no other job."""
        return self.lane is not None and not self.lane.is_open

    @property
    def open(self) -> list[int]:
        """The dependencies that are open."""
        if self.is_eligible:
            return []
        waits = self.waits
        return [target for target, _ in waits.depends if target not in waits.known]

    def know(self, target: int, end: JobEnd | None) -> bool:
        """Note how a dependency ended. Returns whether that can decide anything.

        The cost does not grow with their number: thousands may end one by one.
        """
        waits = self.waits
        waits.known[target] = end
        if len(waits.known) == waits.targets:
            return True
        words = self._words()
        words.must_end.discard(target)
        words.has_failed |= target in words.group and has_failed(end)
        is_decided = words.has_failed and not words.must_end
        return is_decided or any(cancels(wanted, end) for wanted in words.of.get(target, ()))

    def ends_with(self, target: int) -> bool:
        """Whether it is canceled if this dependency is, because that can never start."""
        words = self._words().of.get(target, ())
        return any(cancels(wanted, _NEVER_STARTED) for wanted in words)

    def _words(self) -> WantedWords:
        waits = self.waits
        if waits.words is None:
            waits.words = WantedWords.made(waits.depends)
            waits.words.must_end -= waits.known.keys()
            waits.words.has_failed = any(
                has_failed(waits.known.get(target)) for target in waits.words.group
            )
        return waits.words

    def copy_under(self, verdict: JobVerdict, prediction: Prediction) -> Pending:
        """The job under another verdict, in no place yet, weighed by another prediction."""
        waits = _NO_DEPENDENCIES
        if not self.is_eligible and self.waits.depends:
            waits = msgspec.structs.replace(self.waits, known=dict(self.waits.known), words=None)
        copy = Pending(self.id, self.priority, judged_by(verdict), self.wants, waits)
        copy.predict(prediction)
        return copy

    def judge_alone(self, *, is_outdated: bool) -> None:
        """The job is of no class; ``is_outdated``: what was said of it counts no longer."""
        now = self.judged
        chain = 0 if is_outdated else now.chain
        self.job_class = 0
        self.judged = _judged(now.action, now.rule, chain, now.limit, now.buckets, now.limits)


def judged_by(verdict: JobVerdict) -> RuleVerdict:
    """What this verdict says of its job."""
    return _judged(
        verdict.action,
        verdict.rule,
        verdict.chain,
        verdict.limit,
        buckets_of(verdict),
        verdict.job.limits,
    )


class SlotHolder:
    """A job that holds a run slot, and its places in buckets; its priority when it started."""

    __slots__ = ("buckets", "chain", "priority")

    def __init__(self, buckets: Buckets, chain: int, priority: int) -> None:
        self.buckets = buckets
        self.chain = chain
        self.priority = priority

    @classmethod
    def under(cls, verdict: JobVerdict) -> SlotHolder:
        """The job of this verdict, in a run slot."""
        return cls(buckets_of(verdict), verdict.chain, verdict.job.priority)
