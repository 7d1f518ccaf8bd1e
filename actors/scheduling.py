"""Which pending job starts now: pure decisions of the scheduler.

How it works. A pending job waits in one of two places: for dependencies that are not final,
or in the heap of those that are eligible, ordered by priority, then id. A pass takes from the
top of the heap while run slots are free. So a pass costs what starts, not what is
pending, and a job that becomes eligible costs one heap entry.

A job whose dependencies can no longer be satisfied is doomed: the job queue ends it without
a process. A job under a rule that pauses it is held aside until the rule's verdict changes.

An entry of the heap is not removed when its job goes or changes; it is recognised as stale
when it comes to the top, because it is no longer the job's own.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import TYPE_CHECKING, Literal

import msgspec

from ..storage.jobs import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..transport.messages import JobVerdict

Dependencies = tuple[tuple[int, tuple[str, ...]], ...]

_MAY_START = frozenset({"ACCEPT", "CONTINUE"})


class Outcome(msgspec.Struct, frozen=True):
    """How a job's dependencies stand."""

    verdict: Literal["satisfied", "canceled", "failed", "open"]
    text: str = ""
    open: tuple[int, ...] = ()


def dependency_outcome(
    depends: Iterable[tuple[int, Iterable[str]]], statuses: dict[int, JobStatus | None]
) -> Outcome:
    """Evaluate dependencies in order, given the statuses known (None: no such job).

    The rules are Ganeti's (scheduler facts, section 7): a canceled job cancels its
    dependants unless ``canceled`` was asked for; an empty list accepts any other final
    status; a missing job, or a status that was not asked for, is an error.
    """
    still_open = []
    for job_id, wanted in depends:
        if job_id not in statuses:
            still_open.append(job_id)
            continue
        status = statuses[job_id]
        if status is None:
            return Outcome("failed", f"Dependency error: Job {job_id} not found")
        accepted = tuple(wanted)
        if not status.is_final:
            still_open.append(job_id)
        elif status is JobStatus.CANCELED and status not in accepted:
            return Outcome("canceled")
        elif accepted and status not in accepted:
            text = (
                f"Dependency job {job_id} finished with status '{status}', "
                f"not one of '{', '.join(accepted)}' as required"
            )
            return Outcome("failed", text)
    if still_open:
        return Outcome("open", open=tuple(still_open))
    return Outcome("satisfied")


class Doomed(msgspec.Struct, frozen=True):
    """A pending job that cannot start any more, and why."""

    id: int
    verdict: Literal["canceled", "failed"]
    text: str


class Pass(msgspec.Struct, frozen=True):
    """What a scheduling pass decided, and what it must know for the next one.

    ``start``: these jobs have a run slot from now on. ``unknown``: nothing is known of these
    jobs, which are named in dependencies, or whether these still run. ``eligible``: newly
    waiting for a slot only.
    """

    start: list[int]
    doomed: list[Doomed]
    unknown: list[int]
    eligible: list[int]


class _Pending:
    __slots__ = ("action", "depends", "entry", "id", "priority")

    def __init__(self, verdict: JobVerdict) -> None:
        self.id = verdict.job.id
        self.priority = verdict.job.priority
        self.depends: Dependencies = verdict.job.depends
        self.action = verdict.action
        self.entry: tuple[int, int, int] | None = None


class Schedule:
    """The pending jobs in order, the jobs that hold a run slot, and the number of slots."""

    def __init__(self, running_jobs_max: int) -> None:
        self._running_jobs_max = running_jobs_max
        self._pending: dict[int, _Pending] = {}
        self._running: set[int] = set()
        self._heap: list[tuple[int, int, int]] = []
        self._dependants: defaultdict[int, set[int]] = defaultdict(set)
        self._statuses: dict[int, JobStatus | None] = {}
        self._entries = 0
        self._doomed: list[Doomed] = []
        self._unknown: set[int] = set()
        self._eligible: list[int] = []

    @property
    def pending_count(self) -> int:
        """How many jobs are pending."""
        return len(self._pending)

    @property
    def running(self) -> frozenset[int]:
        """The jobs that hold a run slot."""
        return frozenset(self._running)

    def replace_all(self, verdicts: Iterable[JobVerdict], running: Iterable[int]) -> None:
        """Forget everything: these jobs are pending, and these hold a slot."""
        self.__init__(self._running_jobs_max)  # type: ignore[misc]
        self._running = set(running)
        # Word that one of them has ended may have come on a shorter way, before this.
        self._unknown.update(self._running)
        for verdict in verdicts:
            self.add(verdict)

    def add(self, verdict: JobVerdict) -> None:
        """A job is pending (again), under this verdict; what was known of it is replaced."""
        job = _Pending(verdict)
        self.remove(job.id)
        self._running.discard(job.id)
        self._pending[job.id] = job
        self._place(job)

    def remove(self, job_id: int) -> None:
        """The job is no longer pending."""
        job = self._pending.pop(job_id, None)
        if job is not None:
            for dependency, _ in job.depends:
                self._forget_dependant(dependency, job_id)

    def finish(self, job_id: int, status: JobStatus) -> None:
        """The job is final: its slot is free, and those that depend on it are looked at."""
        self.learn(job_id, status)

    def learn(self, job_id: int, status: JobStatus | None) -> None:
        """``status`` of a job that was asked for (None: there is no such job)."""
        self._unknown.discard(job_id)
        if status is not None and not status.is_final:
            return
        self._running.discard(job_id)
        self.remove(job_id)
        waiting = self._dependants.get(job_id)
        if not waiting:
            return
        self._statuses[job_id] = status
        for dependant in sorted(waiting):
            self._place(self._pending[dependant])
        if not self._dependants.get(job_id):
            self._statuses.pop(job_id, None)

    def reprioritise(self, job_id: int, priority: int) -> None:
        """A pending job has a new priority."""
        job = self._pending.get(job_id)
        if job is not None:
            job.priority = priority
            if job.entry is not None:
                self._push(job)

    def limit(self, running_jobs_max: int) -> None:
        """The number of run slots has changed; running jobs keep theirs."""
        self._running_jobs_max = running_jobs_max

    def decide(self) -> Pass:
        """One scheduling pass. The jobs it starts hold their slots when it returns."""
        start = []
        while self._heap and len(self._running) < self._running_jobs_max:
            entry = heapq.heappop(self._heap)
            job = self._pending.get(entry[1])
            if job is None or job.entry != entry:
                continue
            self.remove(job.id)
            self._running.add(job.id)
            start.append(job.id)
        doomed, self._doomed = self._doomed, []
        unknown, self._unknown = sorted(self._unknown), set()
        eligible = [job_id for job_id in self._eligible if job_id in self._pending]
        self._eligible = []
        return Pass(start, doomed, unknown, eligible)

    def _place(self, job: _Pending) -> None:
        depends = job.depends
        outcome = dependency_outcome(depends, self._known(job))
        match outcome.verdict:
            case "open":
                for dependency in outcome.open:
                    self._dependants[dependency].add(job.id)
                    if dependency not in self._pending and dependency not in self._running:
                        self._unknown.add(dependency)
            case "satisfied":
                if depends:
                    self._eligible.append(job.id)
                if job.action in _MAY_START:
                    self._push(job)
            case "canceled" | "failed":
                self.remove(job.id)
                self._doomed.append(Doomed(job.id, outcome.verdict, outcome.text))

    def _known(self, job: _Pending) -> dict[int, JobStatus | None]:
        # A job that waited learns one status at a time, so satisfied dependencies are
        # struck off as they come.
        known = {
            job_id: self._statuses[job_id] for job_id, _ in job.depends if job_id in self._statuses
        }
        if known:
            remaining = []
            for dependency in job.depends:
                outcome = dependency_outcome([dependency], known)
                if outcome.verdict == "satisfied":
                    self._forget_dependant(dependency[0], job.id)
                else:
                    remaining.append(dependency)
            job.depends = tuple(remaining)
        return known

    def _push(self, job: _Pending) -> None:
        self._entries += 1
        job.entry = (job.priority, job.id, self._entries)
        heapq.heappush(self._heap, job.entry)

    def _forget_dependant(self, dependency: int, job_id: int) -> None:
        waiting = self._dependants.get(dependency)
        if waiting is not None:
            waiting.discard(job_id)
            if not waiting:
                del self._dependants[dependency]
