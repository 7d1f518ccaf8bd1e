"""Which pending job starts now: pure decisions of the scheduler.

How it works. A pending job is in one place: waiting for dependencies; in the heap of eligible
jobs, ordered by priority, then id; parked in the line of a full bucket; or held by a rule. A pass
takes from the top of the heap while run slots are free. So the cost of a pass grows with the jobs
that start or are looked at for the first time, not with the pending ones.

A bucket counts running jobs: one for each filter rule that limits, one for each ad-hoc limit
named in a reason (scheduler facts, section 5). A job takes a place in each of its buckets when
it starts, and only then. If a bucket is full, the job is parked there until a place is free.

A verdict of the filter rules holds for one rule chain. When the chain changes, jobs are
judged again as they come to the top of the heap. So no job starts under older rules, none starts
before the jobs ahead of it are judged, and the cost of a new rule does not grow with the number of
pending jobs.

A job whose dependencies can no longer be satisfied, or that a rule rejects, is unsatisfiable: the
job queue ends it without a process.

An entry of a heap stays when its job goes or changes. At the top of the heap it is recognised as
stale, because it is no longer the entry that the job names.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Literal

import msgspec

from ...storage.jobs import JobStatus
from ...transport.messages import OrderReported, QueuePosition
from ..rules import gating
from .depending import Dependencies, cancelers, dependency_outcome
from .remedies import Buckets, Candidate, Contention

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ...transport.messages import JobVerdict

_HELD = frozenset({"PAUSE"})
_REJECTED = "REJECT"
_LIMITED = "RATE_LIMIT"

_JUDGED_AT_ONCE_MAX = 500
_SHOWN_AHEAD_MAX = 10

_Entry = tuple[int, int, int]


class Unsatisfiable(msgspec.Struct, frozen=True):
    """A pending job that cannot start any more, and why."""

    id: int
    verdict: Literal["canceled", "failed", "rejected"]
    text: str


class Pass(msgspec.Struct, frozen=True):
    """The decisions of a pass, and its questions for the next one.

    ``start``: these jobs have a run slot from now on; ``limits`` names the limiting rules in which
    they took a place. ``unknown``: nothing is known of these
    jobs, which are named in dependencies, or whether these still run. ``eligible``: newly
    waiting for a slot only. ``unjudged``: what the rules in force say of these must be known
    before the next one can start.
    """

    start: list[int]
    unsatisfiable: list[Unsatisfiable]
    unknown: list[int]
    eligible: list[int]
    unjudged: list[int] = []
    limits: dict[int, str] = {}


def buckets_of(verdict: JobVerdict) -> Buckets:
    """The buckets in which the job takes a place when it starts."""
    if verdict.action == _LIMITED and verdict.rule is not None and verdict.limit is not None:
        return (*verdict.job.limits, (f"rule:{verdict.rule}", verdict.limit))
    return verdict.job.limits


_NOTHING: dict[int, JobStatus | None] = {}
"""The known dependencies of jobs that have none."""


class _Pending:
    __slots__ = (
        "_cancelers", "action", "aside_under", "buckets", "chain", "depends", "entry", "id",
        "known", "limit", "priority", "rule", "targets",
    )  # fmt: skip

    def __init__(self, verdict: JobVerdict) -> None:
        self.id = verdict.job.id
        self.priority = verdict.job.priority
        self.depends: Dependencies = verdict.job.depends
        self.known: dict[int, JobStatus | None] = {} if self.depends else _NOTHING
        self.targets = len({target for target, _ in self.depends}) if self.depends else 0
        self._cancelers: frozenset[int] | None = None
        self.judge(verdict)
        self.entry: _Entry | None = None
        self.aside_under = 0

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

    def judge(self, verdict: JobVerdict) -> None:
        self.action = verdict.action
        self.rule = verdict.rule
        self.chain = verdict.chain
        self.limit = verdict.limit
        self.buckets = buckets_of(verdict)


class _Running:
    __slots__ = ("buckets", "chain")

    def __init__(self, buckets: Buckets, chain: int) -> None:
        self.buckets = buckets
        self.chain = chain


class Schedule:
    """The pending jobs in order, the jobs that hold a run slot, and the number of slots."""

    def __init__(self, running_jobs_max: int, chain: int = 0) -> None:
        self._running_jobs_max = running_jobs_max
        self._chain = chain
        self._reads_opcodes = False
        self._pending: dict[int, _Pending] = {}
        self._running: dict[int, _Running] = {}
        self._heap: list[_Entry] = []
        self._held: list[_Entry] = []
        self._parked: defaultdict[str, list[_Entry]] = defaultdict(list)
        self._taken: Counter[str] = Counter()
        self._moving: set[str] = set()
        self._asked: set[int] = set()
        self._dependants: defaultdict[int, set[int]] = defaultdict(set)
        self._entries = 0
        self._unsatisfiable: list[Unsatisfiable] = []
        self._unknown: set[int] = set()
        self._eligible: list[int] = []

    @property
    def chain(self) -> int:
        """The number of the rule chain; 0: none has come yet."""
        return self._chain

    @property
    def running(self) -> frozenset[int]:
        """The jobs that hold a run slot."""
        return frozenset(self._running)

    def replace_all(self, verdicts: Iterable[JobVerdict], running: Iterable[JobVerdict]) -> None:
        """Forget everything: these jobs are pending, and these hold a slot."""
        reads_opcodes = self._reads_opcodes
        self.__init__(self._running_jobs_max, self._chain)  # type: ignore[misc]
        self._reads_opcodes = reads_opcodes
        for verdict in running:
            self._occupy(verdict.job.id, buckets_of(verdict), verdict.chain)
        # The news that one of them has ended may have come before this, on a shorter way.
        self._unknown.update(self._running)
        for verdict in verdicts:
            self.add(verdict)

    def change_chain(self, chain: int, *, reads_opcodes: bool = False) -> None:
        """Other rules are in force: older verdicts no longer count.

        ``reads_opcodes``: the rules look at more than ids, hence also at priorities.
        """
        self._reads_opcodes = reads_opcodes
        if chain == self._chain:
            return
        self._chain = chain
        self._asked.clear()
        # Jobs that a rule held back are looked at again, in order.
        for line in (self._held, *self._parked.values()):
            self._heap += line
        self._held = []
        self._parked.clear()
        heapq.heapify(self._heap)

    def add(self, verdict: JobVerdict) -> None:
        """A job is pending (again), under this verdict. It replaces an older entry of the job."""
        job = _Pending(verdict)
        self.remove(job.id)
        self.vacate(job.id)
        self._pending[job.id] = job
        self._place(job)

    def judge(self, verdict: JobVerdict) -> None:
        """Take a new verdict on a known job; one on an unknown job is ignored."""
        job_id = verdict.job.id
        self._asked.discard(job_id)
        if job_id in self._running:
            self.vacate(job_id)
            self._occupy(job_id, buckets_of(verdict), verdict.chain)
        elif (job := self._pending.get(job_id)) is not None:
            job.judge(verdict)
            if job.entry is not None and job.aside_under == self._chain:
                self._push(job)

    def remove(self, job_id: int) -> None:
        """Remove a job that is no longer pending."""
        job = self._pending.pop(job_id, None)
        self._asked.discard(job_id)
        if job is not None:
            for dependency, _ in job.depends:
                self._forget_dependant(dependency, job_id)

    def finish(self, job_id: int, status: JobStatus) -> None:
        """The job is final: free its slot, and look at its dependants."""
        self.learn(job_id, status)

    def learn(self, job_id: int, status: JobStatus | None) -> None:
        """Take the ``status`` of a job that was asked for (None: there is no such job)."""
        self._unknown.discard(job_id)
        if status is not None and not status.is_final:
            return
        self.vacate(job_id)
        self.remove(job_id)
        for dependant in sorted(self._dependants.pop(job_id, ())):
            job = self._pending[dependant]
            if job.know(job_id, status):
                self._place(job)

    def reprioritise(self, job_id: int, priority: int) -> None:
        """A pending job has a new priority, at which rules may look."""
        job = self._pending.get(job_id)
        if job is not None:
            job.priority = priority
            if self._reads_opcodes:
                job.chain = 0
                self._asked.discard(job_id)
            if job.entry is not None:
                self._push(job)

    def limit(self, running_jobs_max: int) -> None:
        """The number of run slots has changed; running jobs keep theirs."""
        self._running_jobs_max = running_jobs_max

    def lacks_verdict(self, job_id: int) -> bool:
        """Whether it is a pending job that is not judged under the rules in force."""
        job = self._pending.get(job_id)
        return job is not None and job.chain != self._chain

    def decide(self, explained: Collection[int] = ()) -> Pass:
        """One scheduling pass. The jobs it starts hold their slots when it returns.

        Verdicts on the jobs of ``explained`` are wanted as well.
        """
        start: list[int] = []
        limits: dict[int, str] = {}
        unjudged = self._unjudged_running() if self._chain else []
        if self._chain and not unjudged:
            self._take_from_the_top(start, unjudged, limits)
        unsatisfiable, self._unsatisfiable = self._unsatisfiable, []
        unknown, self._unknown = sorted(self._unknown), set()
        eligible = [job_id for job_id in self._eligible if job_id in self._pending]
        self._eligible = []
        unjudged += filter(self.lacks_verdict, set(explained).difference(unjudged))
        asked = [job_id for job_id in unjudged if job_id not in self._asked]
        self._asked.update(asked)
        return Pass(start, unsatisfiable, unknown, eligible, asked, limits)

    def _unjudged_running(self) -> list[int]:
        """Running jobs without a verdict under this chain: a limiting rule may count them."""
        return [job_id for job_id, held in self._running.items() if held.chain != self._chain]

    def _take_from_the_top(
        self, start: list[int], unjudged: list[int], limits: dict[int, str]
    ) -> None:
        put_back: list[_Entry] = []
        while len(self._running) < self._running_jobs_max and (job := self._pop()) is not None:
            assert job.entry is not None
            job.aside_under = 0
            if job.chain != self._chain:
                unjudged.append(job.id)
                put_back.append(job.entry)
                if len(unjudged) >= _JUDGED_AT_ONCE_MAX:
                    break
            elif unjudged:
                # A job ahead of it may start, or take its place in a bucket.
                put_back.append(job.entry)
                break
            elif job.action == _REJECTED:
                self.remove(job.id)
                text = f"rejected by filter rule {job.rule}"
                self._unsatisfiable.append(Unsatisfiable(job.id, "rejected", text))
            elif job.action in _HELD:
                job.aside_under = self._chain
                self._held.append(job.entry)
            elif (full := self._full_bucket(job)) is not None:
                job.aside_under = self._chain
                heapq.heappush(self._parked[full], job.entry)
            else:
                self.remove(job.id)
                self._occupy(job.id, job.buckets, job.chain)
                start.append(job.id)
                if job.action == _LIMITED:
                    limits[job.id] = gating.limit_name(job.rule, job.limit)
        for entry in put_back:
            heapq.heappush(self._heap, entry)

    def _pop(self) -> _Pending | None:
        """The first job in order, from the heap and from the lines of buckets with a free place."""
        best, first = self._heap, self._top(self._heap)
        for name in list(self._moving):
            line = self._parked.get(name, [])
            job = self._top(line)
            if job is None or self._taken[name] >= dict(job.buckets).get(name, 0):
                self._moving.discard(name)
                if job is None:
                    self._parked.pop(name, None)
            elif first is None or job.entry < first.entry:  # type: ignore[operator]
                best, first = line, job
        if first is not None:
            heapq.heappop(best)
        return first

    def _top(self, line: list[_Entry]) -> _Pending | None:
        """The first job of a heap, after dropping stale entries."""
        while line:
            job = self._pending.get(line[0][1])
            if job is not None and job.entry == line[0]:
                return job
            heapq.heappop(line)
        return None

    def what_if(
        self,
        pending: Iterable[JobVerdict],
        running: Iterable[JobVerdict],
        running_jobs_max: int | None,
    ) -> Schedule:
        """Another schedule of the same jobs, under these verdicts and with so many slots."""
        limit = self._running_jobs_max if running_jobs_max is None else running_jobs_max
        verdicts = {verdict.job.id: verdict for verdict in pending}
        known = {verdict.job.id: verdict for verdict in running}
        chain = next((one.chain for one in (*verdicts.values(), *known.values())), 0)
        other = Schedule(limit, chain)
        for job_id, held in self._running.items():
            verdict = known.get(job_id)
            buckets = held.buckets if verdict is None else buckets_of(verdict)
            other._occupy(job_id, buckets, chain)
        # All are added before any is placed: each finds the jobs that it depends on.
        jobs = [job for job in self._pending.values() if job.id in verdicts]
        other._pending.update((job.id, _Pending(verdicts[job.id])) for job in jobs)
        for job in jobs:
            copy = other._pending[job.id]
            copy.priority = job.priority
            copy.depends = job.depends if job.entry is None else ()
            copy.known, copy.targets = dict(job.known), job.targets
            other._place(copy)
        other._eligible.clear()
        return other

    def pending_in_order(self) -> list[int]:
        """The pending jobs by priority, then id."""
        jobs = sorted(self._pending.values(), key=lambda job: (job.priority, job.id))
        return [job.id for job in jobs]

    def order(self, limit: int) -> OrderReported:
        """The first ``limit`` pending jobs in order, and what holds each back but the others."""
        first = [self._pending[job_id] for job_id in self.pending_in_order()[:limit]]
        return OrderReported(
            pending=[
                (job.id, job.open, job.action in _HELD or self._full_bucket(job) is not None)
                for job in first
            ],
            count=len(self._pending),
            running=sorted(self._running),
            slots=self._running_jobs_max,
        )

    def position(self, job_id: int, *, is_brief: bool = False) -> QueuePosition | None:
        """Everything that keeps a pending job from starting.

        ``is_brief``: without the jobs ahead of it, because that looks at all pending jobs.
        """
        job = self._pending.get(job_id)
        if job is None:
            return None
        ahead = [] if is_brief else self._ahead(job)
        return QueuePosition(
            open=job.open,
            failing="" if job.entry else dependency_outcome(job.depends, job.known).text,
            full=[
                (
                    name,
                    size,
                    self._occupants(name),
                    [other.id for other in ahead if name in dict(other.buckets)],
                )
                for name, size in job.buckets
                if self._taken[name] >= size
            ],
            action=job.action,
            rule=job.rule,
            ahead=len(ahead),
            first_ahead=[other.id for other in ahead[:_SHOWN_AHEAD_MAX]],
            running=sorted(self._running),
            slots=self._running_jobs_max,
            best_priority=ahead[0].priority if ahead else job.priority,
        )

    def _ahead(self, job: _Pending) -> list[_Pending]:
        """The jobs that a pass looks at before this one, in order."""
        order = (job.priority, job.id)
        ahead = [
            other
            for other in self._pending.values()
            if other.entry is not None
            and other.action not in _HELD
            and (other.priority, other.id) < order
        ]
        return sorted(ahead, key=lambda other: (other.priority, other.id))

    def contention(self, job_id: int, then: JobVerdict | None) -> Contention:
        """What a pending job competes for, and with which jobs, once ``then`` is its verdict."""
        job = self._pending[job_id]
        own = self._candidate(job)
        if then is not None:
            own = msgspec.structs.replace(own, buckets=buckets_of(then))
        candidates = map(self._candidate, self._pending.values())
        order = (own.priority, own.id)
        return Contention(
            own=own,
            before=sorted(
                (one for one in candidates if (one.priority, one.id) < order),
                key=lambda one: (one.priority, one.id),
            ),
            running={
                running: tuple(name for name, _ in held.buckets)
                for running, held in self._running.items()
            },
            slots=self._running_jobs_max,
        )

    def _candidate(self, job: _Pending) -> Candidate:
        is_held = job.action in _HELD or job.action == _REJECTED
        return Candidate(
            priority=job.priority,
            id=job.id,
            buckets=job.buckets,
            waits_for=frozenset(job.open),
            held_by=job.rule if is_held else None,
        )

    def _occupants(self, bucket: str) -> list[int]:
        return sorted(
            job_id
            for job_id, held in self._running.items()
            if any(name == bucket for name, _ in held.buckets)
        )

    # ------------------------------------------------------------ buckets

    def _full_bucket(self, job: _Pending) -> str | None:
        return next((name for name, size in job.buckets if self._taken[name] >= size), None)

    def _occupy(self, job_id: int, buckets: Buckets, chain: int) -> None:
        self._running[job_id] = _Running(buckets, chain)
        self._taken.update(name for name, _ in buckets)

    def vacate(self, job_id: int) -> None:
        """Free the job's run slot, if it holds one."""
        held = self._running.pop(job_id, None)
        for name, _ in held.buckets if held is not None else ():
            self._taken[name] -= 1
            if not self._taken[name]:
                del self._taken[name]
            self._moving.add(name)

    # ------------------------------------------------------------ dependencies

    def _place(self, job: _Pending) -> None:
        depends = job.depends
        outcome = dependency_outcome(depends, job.known)
        match outcome.verdict:
            case "open":
                for dependency in outcome.open:
                    self._dependants[dependency].add(job.id)
                    if dependency not in self._pending and dependency not in self._running:
                        self._unknown.add(dependency)
            case "satisfied":
                if depends:
                    self._eligible.append(job.id)
                self._push(job)
            case "canceled" | "failed":
                self.remove(job.id)
                self._unsatisfiable.append(Unsatisfiable(job.id, outcome.verdict, outcome.text))

    def _push(self, job: _Pending) -> None:
        self._entries += 1
        job.entry = (job.priority, job.id, self._entries)
        job.aside_under = 0
        heapq.heappush(self._heap, job.entry)

    def _forget_dependant(self, dependency: int, job_id: int) -> None:
        waiting = self._dependants.get(dependency)
        if waiting is not None:
            waiting.discard(job_id)
            if not waiting:
                del self._dependants[dependency]
