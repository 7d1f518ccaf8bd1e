"""What the queue must do, said slowly: plain values, everything worked out anew each time.

It shares no code with the actors. Filter rules are judged by the second evaluator of
`test_filtering_model`; of rules outside their windows it never hears.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.properties.test_filtering_model import slow_verdict

PENDING, RUNNING, ENDED, ARCHIVED = "pending", "running", "ended", "archived"
SUCCESS, ERROR, CANCELED = "success", "error", "canceled"
FINAL = (SUCCESS, ERROR, CANCELED)

Depends = list[tuple[int, list[str]]]


@dataclass
class ModelOp:
    """An opcode, as it is stored: what rules look at, and what it waits for."""

    raw: dict[str, Any]
    priority: int
    depends: Depends
    is_done: bool = False


@dataclass
class ModelJob:
    """What the whole world knows of a job. ``final`` is its status once it has ended."""

    id: int
    ops: list[ModelOp]
    place: str = PENDING
    final: str | None = None
    told_rule: str | None = None

    @property
    def left(self) -> list[ModelOp]:
        return [op for op in self.ops if not op.is_done]

    @property
    def priority(self) -> int:
        return min(op.priority for op in self.left)

    @property
    def order(self) -> tuple[int, int]:
        return self.priority, self.id

    @property
    def depends(self) -> Depends:
        """What it waits for before its next opcode."""
        return self.left[0].depends


@dataclass(frozen=True)
class Cause:
    """What holds a job back first: its kind, and the jobs or the rule that it consists in."""

    kind: str
    jobs: tuple[int, ...] = ()
    rule: str | None = None


@dataclass
class Happened:
    """What came of an event. ``is_open``: which jobs start may depend on the order of messages."""

    started: list[int] = field(default_factory=list)
    ended: dict[int, str] = field(default_factory=dict)
    is_open: bool = False


class QueueModel:
    """The whole queue."""

    def __init__(self, now: float) -> None:
        self.jobs: dict[int, ModelJob] = {}
        self.rules: dict[str, dict[str, Any]] = {}
        self.slots = 20
        self.last_id = 0
        self.is_drained = False
        self.now = now

    def at(self, *places: str) -> list[ModelJob]:
        """The jobs in one of these places, by id."""
        return [job for _, job in sorted(self.jobs.items()) if job.place in places]

    # ------------------------------------------------------------ rules

    def verdict(self, job_id: int, ops: Sequence[ModelOp]) -> tuple[str | None, Any]:
        """The rule that applies now (none: None), and what it says."""
        open_now = []
        for rule in self.rules.values():
            if rule.get("valid_from") is not None and rule["valid_from"] > self.now:
                continue
            if rule.get("valid_until") is not None and rule["valid_until"] <= self.now:
                continue
            windows = ("valid_from", "valid_until")
            open_now.append({key: said for key, said in rule.items() if key not in windows})
        return slow_verdict(open_now, (job_id, [op.raw for op in ops]))

    def says(self, job: ModelJob) -> tuple[str | None, Any]:
        return self.verdict(job.id, job.ops)

    def buckets(self, job: ModelJob) -> dict[str, int]:
        """The buckets of a job, each with its size."""
        sizes = {}
        for op in job.ops:
            for _, text, _ in op.raw["reason"]:
                if text.startswith("rate-limit:"):
                    sizes[text] = int(text.split(":")[1])
        rule, action = self.says(job)
        if isinstance(action, list):
            sizes[f"rule {rule}"] = action[1]
        return sizes

    def occupants(self, bucket: str) -> list[int]:
        return [job.id for job in self.at(RUNNING) if bucket in self.buckets(job)]

    # ------------------------------------------------------------ dependencies

    def outcomes(self, job: ModelJob) -> set[str]:
        """How each dependency of the next opcode stands."""
        return {self.outcome(target, wanted) for target, wanted in job.depends}

    def outcome(self, target: int, wanted: list[str]) -> str:
        other = self.jobs.get(target)
        if other is None:
            return "failed"
        if other.final is None:
            return "open"
        if other.final == CANCELED and CANCELED not in wanted:
            return "canceled"
        return "failed" if wanted and other.final not in wanted else "satisfied"

    def stands(self, job: ModelJob) -> str:
        """How all of them stand together: canceled wins, and nothing fails before all are final."""
        outcomes = self.outcomes(job)
        for verdict in ("canceled", "open", "failed"):
            if verdict in outcomes:
                return verdict
        return "satisfied"

    def waited_for(self, job: ModelJob) -> list[int]:
        return [target for target, wanted in job.depends if self.outcome(target, wanted) == "open"]

    # ------------------------------------------------------------ starts

    def status(self, job: ModelJob) -> str:
        if job.final is not None:
            return job.final
        if job.place == RUNNING:
            return "running"
        return "waiting" if self.waited_for(job) else "queued"

    def cause(self, job: ModelJob) -> Cause | None:
        """What holds a pending job back first; None: nothing does, it must start."""
        if waited_for := self.waited_for(job):
            return Cause("dependency", tuple(waited_for))
        rule, action = self.says(job)
        for bucket, size in self.buckets(job).items():
            if len(occupants := self.occupants(bucket)) >= size:
                limits = rule if bucket == f"rule {rule}" else None
                return Cause("limit", tuple(occupants), limits)
        if action in ("PAUSE", "REJECT"):
            return Cause("rule", rule=rule)
        if len(running := self.at(RUNNING)) >= self.slots:
            return Cause("slots", tuple(one.id for one in running))
        return None

    def startable(self) -> list[ModelJob]:
        return sorted(
            (job for job in self.at(PENDING) if self.cause(job) is None),
            key=lambda job: job.order,
        )

    def settle(self, doomed_as: dict[int, str]) -> Happened:
        """Let everything happen that must, one after the other, the first in order first.

        ``doomed_as``: how jobs ended that a rule rejects and whose dependencies failed.
        """
        happened = Happened()
        while unsatisfiable := self._doom_all(doomed_as):
            # Jobs that waited for these may start now, or never; others may have started meanwhile.
            freed = {target for job in self.at(PENDING) for target, _ in job.depends}
            happened.is_open |= not freed.isdisjoint(unsatisfiable)
            happened.ended.update(unsatisfiable)
        while startable := self.startable():
            startable[0].place = RUNNING
            happened.started.append(startable[0].id)
        return happened

    def _doom_all(self, doomed_as: dict[int, str]) -> dict[int, str]:
        unsatisfiable = {}
        for job in self.at(PENDING):
            rule, action = self.says(job)
            ways = {"failed": {ERROR}, "canceled": {CANCELED}}.get(self.stands(job), set())
            if action == "REJECT":
                job.told_rule = None if ways else rule
                ways.add(CANCELED)
            if ways:
                seen = doomed_as.get(job.id)
                unsatisfiable[job.id] = seen if seen in ways else min(ways)
        for job_id, final in unsatisfiable.items():
            self.end(self.jobs[job_id], final)
        return unsatisfiable

    def end(self, job: ModelJob, final: str) -> None:
        job.place, job.final = ENDED, final

    # ------------------------------------------------------------ a running job

    def end_opcode(self, job: ModelJob, outcome: str) -> None:
        """Its operation ended; what it does next, with the rules and the others as they are."""
        if outcome == ERROR:
            self.end(job, ERROR)
            return
        job.left[0].is_done = True
        if not job.left:
            self.end(job, SUCCESS)
            return
        stands = self.stands(job)
        if stands in {"canceled", "failed"}:
            self.end(job, CANCELED if stands == "canceled" else ERROR)
            return
        if self.waited_for(job) or self.says(job)[1] == "PAUSE":
            job.place = PENDING
