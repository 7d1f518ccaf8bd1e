"""Which pending job starts now: pure decisions of the scheduler.

How it works. A pending job is in one place: waiting for dependencies; in the heap of those that
are eligible, ordered by priority, then id; parked in the line of a bucket that is full; or
held by a rule. A pass takes from the top of the heap while run slots are free. So a pass costs
what starts or is looked at for the first time, not what is pending.

A bucket counts running jobs: one for each filter rule that limits, one for each ad-hoc limit
named in a reason (scheduler facts, section 5). A job takes a place in each of its buckets when
it starts, and only then. Where a bucket is full the job is parked there, and comes back when a
place gets free.

A verdict of the filter rules holds for one rule chain. When the chain changes, jobs are
judged again when they come to the top of the heap: nothing starts under rules that are no longer
in force, nothing starts before those ahead of it are judged, and a new rule costs the same however
many jobs are pending.

A job whose dependencies can no longer be satisfied, or that a rule rejects, is doomed: the job
queue ends it without a process.

An entry of a heap is not removed when its job goes or changes; it is recognised as stale when
it comes to the top, because it is no longer the job's own.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Literal

import msgspec

from ...storage.jobs import JobStatus
from ...transport.messages import QueuePosition
from ..rules import gating
from .depending import Dependencies, cancelers, dependency_outcome
from .remedies import Buckets, Contest, Entrant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...transport.messages import JobVerdict

_HELD = frozenset({"PAUSE"})
_REJECTED = "REJECT"
_LIMITED = "RATE_LIMIT"

_JUDGED_AT_ONCE_MAX = 500
_SHOWN_AHEAD_MAX = 10

_Entry = tuple[int, int, int]


class Doomed(msgspec.Struct, frozen=True):
    """A pending job that cannot start any more, and why."""

    id: int
    verdict: Literal["canceled", "failed", "rejected"]
    text: str


class Pass(msgspec.Struct, frozen=True):
    """What a scheduling pass decided, and what it must know for the next one.

    ``start``: these jobs have a run slot from now on; ``limits`` names the limiting rules in which
    they took a place. ``unknown``: nothing is known of these
    jobs, which are named in dependencies, or whether these still run. ``eligible``: newly
    waiting for a slot only. ``unjudged``: what the rules in force say of these must be known
    before the next one can start.
    """

    start: list[int]
    doomed: list[Doomed]
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
"""What is known of the dependencies of jobs that have none."""


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
        """The jobs that it waits for."""
        if self.entry is not None:
            return []
        return [target for target, _ in self.depends if target not in self.known]

    def know(self, target: int, status: JobStatus | None) -> bool:
        """Note how a dependency ended; whether that can decide anything.

        It costs the same however many there are: they may be thousands, which end one by one.
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
        self._doomed: list[Doomed] = []
        self._unknown: set[int] = set()
        self._eligible: list[int] = []

    @property
    def chain(self) -> int:
        """The rules by which it decides; 0: none were told yet."""
        return self._chain

    @property
    def pending_count(self) -> int:
        """How many jobs are pending."""
        return len(self._pending)

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
        # Word that one of them has ended may have come on a shorter way, before this.
        self._unknown.update(self._running)
        for verdict in verdicts:
            self.add(verdict)

    def change_chain(self, chain: int, *, reads_opcodes: bool = False) -> None:
        """Other rules are in force: every verdict has to be given anew before it counts.

        ``reads_opcodes``: they look at more than ids, hence also at priorities.
        """
        self._reads_opcodes = reads_opcodes
        if chain == self._chain:
            return
        self._chain = chain
        self._asked.clear()
        # Whoever was held back by a rule is looked at again, in order.
        for line in (self._held, *self._parked.values()):
            self._heap += line
        self._held = []
        self._parked.clear()
        heapq.heapify(self._heap)

    def add(self, verdict: JobVerdict) -> None:
        """A job is pending (again), under this verdict; what was known of it is replaced."""
        job = _Pending(verdict)
        self.remove(job.id)
        self.vacate(job.id)
        self._pending[job.id] = job
        self._place(job)

    def judge(self, verdict: JobVerdict) -> None:
        """What the rules say now of a job that is known already; unknown ones do not matter."""
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
        """The job is no longer pending."""
        job = self._pending.pop(job_id, None)
        self._asked.discard(job_id)
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
        self.vacate(job_id)
        self.remove(job_id)
        for dependant in sorted(self._dependants.pop(job_id, ())):
            job = self._pending[dependant]
            if job.know(job_id, status):
                self._place(job)

    def reprioritise(self, job_id: int, priority: int) -> None:
        """A pending job has a new priority, by which the rules may say something else of it."""
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

    def decide(self) -> Pass:
        """One scheduling pass. The jobs it starts hold their slots when it returns."""
        start: list[int] = []
        limits: dict[int, str] = {}
        unjudged = self._unjudged_running() if self._chain else []
        if self._chain and not unjudged:
            self._take_from_the_top(start, unjudged, limits)
        doomed, self._doomed = self._doomed, []
        unknown, self._unknown = sorted(self._unknown), set()
        eligible = [job_id for job_id in self._eligible if job_id in self._pending]
        self._eligible = []
        asked = [job_id for job_id in unjudged if job_id not in self._asked]
        self._asked.update(asked)
        return Pass(start, doomed, unknown, eligible, asked, limits)

    def _unjudged_running(self) -> list[int]:
        """Running jobs of which nobody knows whether a limiting rule counts them."""
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
                # Somebody ahead of it may start, or take the place that it would take.
                put_back.append(job.entry)
                break
            elif job.action == _REJECTED:
                self.remove(job.id)
                text = f"rejected by filter rule {job.rule}"
                self._doomed.append(Doomed(job.id, "rejected", text))
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
        """The first job in order among those in the heap and in the lines that move again."""
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
        """The first job of a heap, after dropping entries that are nobody's any more."""
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
        # All are there before any is placed, so that none seems to wait for a stranger.
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

    def position(self, job_id: int, *, is_brief: bool = False) -> QueuePosition | None:
        """How a pending job stands: everything that keeps it from starting.

        ``is_brief``: without those ahead of it, whom to find means to look at everybody.
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
        """Those that are looked at before this one, in order."""
        order = (job.priority, job.id)
        ahead = [
            other
            for other in self._pending.values()
            if other.entry is not None
            and other.action not in _HELD
            and (other.priority, other.id) < order
        ]
        return sorted(ahead, key=lambda other: (other.priority, other.id))

    def contest(self, job_id: int, then: JobVerdict | None) -> Contest:
        """What a pending job competes for, and with whom, once ``then`` is its verdict."""
        job = self._pending[job_id]
        own = self._entrant(job)
        if then is not None:
            own = msgspec.structs.replace(own, buckets=buckets_of(then))
        everybody = map(self._entrant, self._pending.values())
        order = (own.priority, own.id)
        return Contest(
            own=own,
            before=sorted(
                (one for one in everybody if (one.priority, one.id) < order),
                key=lambda one: (one.priority, one.id),
            ),
            running={
                running: tuple(name for name, _ in held.buckets)
                for running, held in self._running.items()
            },
            slots=self._running_jobs_max,
        )

    def _entrant(self, job: _Pending) -> Entrant:
        is_held = job.action in _HELD or job.action == _REJECTED
        return Entrant(
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
        """The job's run slot, if it holds one, is free."""
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
                self._doomed.append(Doomed(job.id, outcome.verdict, outcome.text))

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
