"""Pending and running jobs as the schedule keeps them in memory: small values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage.jobs import JobStatus
from ...storage.prediction.lock_types import NO_LOCKS
from .depending import Dependencies, cancelers
from .remedies import Buckets

if TYPE_CHECKING:
    from ...storage.prediction.lock_types import LockForecast
    from ...transport.messages import JobVerdict
    from .eligible import Entry
    from .kinds import Kind
    from .predicting import Prediction

HELD = frozenset({"PAUSE"})
REJECTED = "REJECT"
LIMITED = "RATE_LIMIT"


def buckets_of(verdict: JobVerdict) -> Buckets:
    """The buckets in which the job takes a place when it starts."""
    if verdict.action == LIMITED and verdict.rule is not None and verdict.limit is not None:
        return (*verdict.job.limits, (f"rule:{verdict.rule}", verdict.limit))
    return verdict.job.limits


_NOTHING: dict[int, JobStatus | None] = {}
"""The known dependencies of jobs that have none."""


class Pending:
    """A pending job in memory; ``entry``: its place among the eligible ones, None: it has none."""

    __slots__ = (
        "_cancelers", "action", "aside_under", "buckets", "chain", "depends", "entry", "forecast",
        "forecast_of_all", "id", "kind", "known", "limit", "needs", "priority", "question", "rule",
        "targets",
    )  # fmt: skip

    def __init__(self, verdict: JobVerdict) -> None:
        self.id = verdict.job.id
        self.priority = verdict.job.priority
        self.depends: Dependencies = verdict.job.depends
        self.known: dict[int, JobStatus | None] = {} if self.depends else _NOTHING
        self.targets = len({target for target, _ in self.depends}) if self.depends else 0
        self._cancelers: frozenset[int] | None = None
        self.judge(verdict)
        self.entry: Entry | None = None
        self.aside_under = 0
        self.forecast = verdict.job.forecast
        self.forecast_of_all = verdict.job.forecast_of_all
        self.question = verdict.job.question
        self.needs: LockForecast | None = None
        self.kind: Kind | None = None

    def predict(self, prediction: Prediction) -> None:
        """Take the locks for which the job is weighed from its forecasts."""
        forecast = self.forecast
        if prediction.policy.all_opcodes and self.forecast_of_all is not None:
            forecast = self.forecast_of_all
        self.needs = prediction.needs(forecast)

    @property
    def needs_first(self) -> LockForecast | None:
        """The locks for which the job is held back; None: those for which it is weighed."""
        if self.needs is None or self.needs is self.forecast:
            return None
        return self.forecast or NO_LOCKS

    @property
    def open(self) -> list[int]:
        """The dependencies that are open."""
        if self.entry is not None:
            return []
        return [target for target, _ in self.depends if target not in self.known]

    def know(self, target: int, status: JobStatus | None) -> bool:
        """Note how a dependency ended. Returns whether that can decide anything.

        The cost does not grow with their number: thousands may end one by one.
        """
        self.known[target] = status
        if len(self.known) == self.targets:
            return True
        if status is not JobStatus.CANCELED:
            return False
        if self._cancelers is None:
            self._cancelers = cancelers(self.depends)
        return target in self._cancelers

    def copy_under(self, verdict: JobVerdict, prediction: Prediction) -> Pending:
        """The job under another verdict, in no place yet, weighed by another prediction."""
        copy = Pending(verdict)
        copy.priority = self.priority
        copy.depends = self.depends if self.entry is None else ()
        copy.known, copy.targets = dict(self.known) if self.depends else _NOTHING, self.targets
        copy.forecast, copy.forecast_of_all = self.forecast, self.forecast_of_all
        copy.predict(prediction)
        return copy

    def judge(self, verdict: JobVerdict) -> None:
        """Take what the filter rules say."""
        self.action = verdict.action
        self.rule = verdict.rule
        self.chain = verdict.chain
        self.limit = verdict.limit
        self.buckets = buckets_of(verdict)


class Running:
    """A job that holds a run slot, and its places in buckets; its priority when it started."""

    __slots__ = ("buckets", "chain", "priority")

    def __init__(self, buckets: Buckets, chain: int, priority: int) -> None:
        self.buckets = buckets
        self.chain = chain
        self.priority = priority

    @classmethod
    def under(cls, verdict: JobVerdict) -> Running:
        """The job of this verdict, in a run slot."""
        return cls(buckets_of(verdict), verdict.chain, verdict.job.priority)
