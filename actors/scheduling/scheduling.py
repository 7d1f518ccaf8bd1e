"""Which pending job starts now: pure decisions of the scheduler.

How it works. A pending job waits for dependencies, or it is eligible: in the order (by priority,
then by what is left of its weight, then by id), or aside from it, because a rule holds it or a
bucket is full (`start_order`). Jobs between which their ids alone decide share a lane (`lanes`),
and go aside together. A pass takes the first eligible jobs while run slots are free.
So the cost of a pass grows with the jobs that start or are looked at for the first time, not with
the pending ones.

A verdict of the filter rules holds for one rule chain. When the chain changes, jobs are
judged again as they come first. So no job starts under older rules, none starts
before the jobs ahead of it are judged, and the cost of a new rule does not grow with the number of
pending jobs. Jobs of a class share a verdict (`class_verdicts`), unless the rules look at what they
differ in.

A job whose dependencies can no longer be satisfied, or that a rule rejects, is unsatisfiable: the
job queue ends it without a process.

A job that starts counts with its forecast as the owner of locks, until the lock manager reports
what it really holds (`locks_changed`). When it ends, its run slot and its locks become free in one
(`holding`): no start is decided between the two.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ...storage.prediction.policy import Policy
from ..rules import gating
from ..runtime.id_maps import IdMap
from ..runtime.id_sets import IdSet
from ..runtime.slices import done
from . import queue_position
from .class_verdicts import ClassVerdicts, shared_of
from .depending import dependency_outcome
from .pass_outcome import Pass, Unsatisfiable
from .pending_job import HELD, LIMITED, REJECTED, Pending, SlotHolder, buckets_of
from .predicting import Prediction
from .start_order import StartOrder
from .unsatisfiable import UnsatisfiableJobs

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping, Sequence

    from ...storage.jobs.jobs import JobStatus
    from ...storage.prediction.lock_types import LockForecast
    from ...transport.messages import JobVerdict, OrderReported, QueuePosition
    from .ageing import Steps
    from .holding import OwnerId
    from .lanes import Lane
    from .remedies import Contention

__all__ = ["Pass", "Schedule", "Unsatisfiable"]

_JUDGED_AT_ONCE_MAX = 100
"""Jobs that are sent to be judged at a time: with more, a rule that comes meanwhile would wait."""


class Schedule:
    """The pending jobs in order, the jobs that hold a run slot, and the number of slots.

    ``now`` is in seconds, on a clock that never goes back. ``looks_max``: at how many jobs one pass
    looks; if there are more, another pass is due at once. ``ends_max``: how many jobs that can
    never start one pass ends, with those that must be canceled then; None: all, and no others.
    """

    def __init__(
        self,
        running_jobs_max: int = 0,
        chain: int = 0,
        *,
        policy: Policy | None = None,
        looks_max: int | None = None,
        ends_max: int | None = None,
    ) -> None:
        self._looks_max = looks_max
        self._ends_max = ends_max
        self._running_jobs_max = running_jobs_max
        self._chain = chain
        self._reads_opcodes = False
        self._tells_alike_apart = False
        self._now = 0.0
        self._running: dict[int, SlotHolder] = {}
        self._prediction = Prediction(policy or Policy(), self._running)
        self._forget()

    def _forget(self) -> None:
        """Forget all jobs, and keep what was heard of locks and times."""
        self._pending: IdMap[Pending] = IdMap()
        self._classes = ClassVerdicts()
        self._running.clear()
        self._prediction.runs += 1
        self._order = StartOrder(self._prediction, self._pending.__getitem__, self._chain)
        self._asked: set[int] = set()
        self._dependants: defaultdict[int, IdSet] = defaultdict(IdSet)
        self._ends = UnsatisfiableJobs(self._ends_max)
        self._unknown: set[int] = set()
        self._unnamed: set[int] = set()
        self._eligible: list[int] = []

    @property
    def chain(self) -> int:
        """The number of the rule chain; 0: none has come yet."""
        return self._chain

    @property
    def running(self) -> frozenset[int]:
        """The jobs that hold a run slot."""
        return frozenset(self._running)

    @property
    def now(self) -> float:
        """The time of the last pass."""
        return self._now

    @property
    def policy(self) -> Policy:
        """How it predicts."""
        return self._prediction.policy

    def replace_all(
        self,
        verdicts: Collection[JobVerdict],
        running: Collection[JobVerdict],
        now: float = 0.0,
        came: Steps = (),
    ) -> None:
        """These jobs alone are pending, and these hold a slot. ``came``: else as was noted."""
        self._order.forget()
        self._forget()
        if came:
            self._prediction.arrivals.restart(came)
        for verdict in running:
            self._occupy(verdict.job.id, SlotHolder.under(verdict))
        self._prediction.taken.vacate_others()
        # The news that one of them has ended may have come before this, on a shorter way.
        self._unknown.update(self._running)
        for verdict in verdicts:
            self.add(verdict, now, is_age_known=bool(came))

    def change_policy(self, policy: Policy) -> None:
        """Predict in another way from now on."""
        if policy == self._prediction.policy:
            return
        self._prediction.change(policy)
        for job in self._pending.in_order():
            is_open = not job.is_eligible
            self._order.leave(job)
            job.predict(self._prediction)
            self._order.enter(job, is_open=is_open)

    def locks_changed(self, owner: OwnerId, forecast: LockForecast) -> None:
        """The owner really holds these locks, and no others."""
        self._prediction.taken.hold(owner, forecast)

    def owner_ended(self, owner: OwnerId) -> None:
        """The owner holds no locks any more. Those of a job become free with its run slot."""
        self._prediction.taken.end(owner)

    def all_locks(self, held: Mapping[OwnerId, LockForecast]) -> None:
        """These owners really hold these locks, and no other owner holds any."""
        self._prediction.taken.hold_all(held)

    def question_of(self, job_id: int) -> str | None:
        """What is to be asked about the locks of a pending job; None: nothing."""
        job = self._pending.get(job_id)
        return None if job is None else job.wants.question

    def await_names(self, job_id: int) -> None:
        """The locks of a pending job are being asked for: it does not start before they are known.

        Neither does a younger or less urgent job with locks: it might take those of this one.
        """
        self._unnamed.add(job_id)

    def names_known(self, job_id: int) -> None:
        """All that can be known of a job's locks is known."""
        self._unnamed.discard(job_id)

    def no_names_known(self) -> None:
        """Nobody answers: the jobs of `await_names` count with the locks that are known."""
        self._unnamed.clear()

    def forecast_changed(
        self, job_id: int, forecast: LockForecast | None, of_all: LockForecast | None = None
    ) -> None:
        """More is known of the locks of a job; one that is not pending is ignored."""
        job = self._pending.get(job_id)
        of_all = None if of_all == forecast else of_all
        if job is None:
            return
        wants = job.wants
        if (wants.forecast, wants.of_all) != (forecast, of_all):
            job.foresee(forecast, of_all)
            job.predict(self._prediction)
            self._order.enter(job, is_open=not job.is_eligible)

    def change_chain(
        self, chain: int, *, reads_opcodes: bool = False, tells_alike_apart: bool = False
    ) -> None:
        """Other rules are in force: older verdicts no longer count.

        ``reads_opcodes``: the rules look at more than ids, hence also at priorities;
        ``tells_alike_apart``: at ids or reasons.
        """
        self._reads_opcodes = reads_opcodes
        self._tells_alike_apart = tells_alike_apart
        if chain == self._chain:
            return
        self._chain = chain
        self._asked.clear()
        # Jobs that a rule held back are looked at again, in order.
        self._order.recall(chain)

    def add(self, verdict: JobVerdict, now: float = 0.0, *, is_age_known: bool = False) -> int:
        """A job is pending (again), under this verdict. It replaces an older entry of the job.

        ``is_age_known``: it was in the times that `replace_all` took. Returns to how many jobs
        the rule of the verdict begins to apply.
        """
        job = Pending.of(verdict)
        if job.wants.forecast is not None or job.wants.of_all is not None:
            job.predict(self._prediction)
        if is_age_known:
            self._prediction.arrivals.know(job.id)
        else:
            self._prediction.arrivals.note(job.id, now)
        self.remove(job.id)
        self.vacate(job.id)
        self._pending[job.id] = job
        applied = self._renew(verdict)
        self._classes.enter(job, verdict, self._chain)
        applied += job.judged.rule is not None
        self._place(job)
        return applied

    def judge(self, verdict: JobVerdict) -> int:
        """Take a new verdict on a known job; one on an unknown job is ignored.

        Returns to how many pending jobs the rule of the verdict begins to apply.
        """
        job_id = verdict.job.id
        self._asked.discard(job_id)
        if job_id in self._running:
            self._order.vacate(self._running[job_id].buckets)
            self._occupy(verdict.job.id, SlotHolder.under(verdict))
            return 0
        job = self._pending.get(job_id)
        return 0 if job is None else self._judge(job, verdict)

    def _judge(self, job: Pending, verdict: JobVerdict) -> int:
        applied = self._renew(verdict)
        if shared_of(job) is not None and (verdict.is_common or verdict.chain != self._chain):
            # What is said of it later counts for the whole class.
            return applied
        before = job.judged.rule
        self._classes.leave(job)
        self._classes.enter(job, verdict, self._chain)
        self._order.enter(job, is_open=not job.is_eligible)
        return applied + (job.judged.rule not in {None, before})

    def _renew(self, verdict: JobVerdict) -> int:
        """Let a verdict count for the whole class; returns to how many jobs its rule is new."""
        found = self._classes.renew(verdict, self._chain)
        if found is None:
            return 0
        shared, is_other = found
        return shared.count if is_other and shared.rule is not None else 0

    def rule_of(self, job_id: int) -> str | None:
        """The rule that applies to a job now; None: none does, or the job is not pending."""
        known = self._pending.get(job_id)
        return None if known is None else known.judged.rule

    def remove(self, job_id: int) -> None:
        """Remove a job that is no longer pending."""
        job = self._pending.take(job_id)
        self._asked.discard(job_id)
        self._unnamed.discard(job_id)
        if job is not None:
            self._order.leave(job)
            self._classes.leave(job)
            for dependency, _ in job.waits.depends:
                self._forget_dependant(dependency, job_id)

    def finish(self, job_id: int, status: JobStatus) -> None:
        """The job is final: free its slot and its locks, and look at its dependants."""
        self.learn(job_id, status)

    def learn(self, job_id: int, status: JobStatus | None) -> None:
        """Take the ``status`` of a job that was asked for (None: there is no such job)."""
        self._unknown.discard(job_id)
        if status is not None and not status.is_final:
            return
        self.vacate(job_id)
        self.remove(job_id)
        for dependant in self._dependants.pop(job_id, ()):
            job = self._pending[dependant]
            if job.know(job_id, status):
                self._place(job)

    def reprioritise(self, job_id: int, priority: int) -> None:
        """A pending job has a new priority, at which rules may look."""
        job = self._pending.get(job_id)
        if job is not None:
            job.priority = priority
            # Others of its class have another one.
            self._classes.leave(job)
            job.judge_alone(is_outdated=self._reads_opcodes)
            self._order.enter(job, is_open=not job.is_eligible)
            if self._reads_opcodes:
                self._asked.discard(job_id)

    def limit(self, running_jobs_max: int) -> None:
        """The number of run slots has changed; running jobs keep theirs."""
        self._running_jobs_max = running_jobs_max

    def is_pending(self, job_id: int) -> bool:
        """Whether the job is pending now."""
        return job_id in self._pending

    def lacks_verdict(self, job_id: int) -> bool:
        """Whether it is a pending job that is not judged under the rules in force."""
        job = self._pending.get(job_id)
        return job is not None and job.judged.chain != self._chain

    def decide(self, now: float = 0.0, explained: Collection[int] = ()) -> Pass:
        """One scheduling pass. The jobs it starts hold their slots when it returns.

        Verdicts on the jobs of ``explained`` are wanted as well.
        """
        self._now = now
        if self._looks_max is not None:
            self._prediction.rest(self._looks_max)
        start: list[int] = []
        limits: dict[int, str] = {}
        unjudged = self._unjudged_running() if self._chain else []
        if self._chain and not unjudged:
            self._take_from_the_top(start, unjudged, limits)
        unsatisfiable = self._ends.take(self._take_doomed)
        unknown, self._unknown = sorted(self._unknown), set()
        eligible = [job_id for job_id in self._eligible if job_id in self._pending]
        self._eligible = []
        unjudged += filter(self.lacks_verdict, set(explained).difference(unjudged))
        asked = [job_id for job_id in unjudged if job_id not in self._asked]
        self._asked.update(asked)
        due_at = None
        if self._prediction.is_tired or self._order.may_hold_back:
            due_at = self._due_at(now)
        if self._ends:
            due_at = now
        return Pass(start, unsatisfiable, unknown, eligible, asked, limits, due_at)

    def _due_at(self, now: float) -> float | None:
        """When the next job is held back no longer, if a run slot is free for it."""
        if len(self._running) >= self._running_jobs_max:
            return None
        if self._prediction.is_tired:
            # Jobs are left to be looked at.
            return now
        due_at = self._order.due_at()
        return None if due_at is None else max(due_at, now)

    def _unjudged_running(self) -> list[int]:
        """SlotHolder jobs without a verdict under this chain: a limiting rule may count them."""
        return [job_id for job_id, held in self._running.items() if held.chain != self._chain]

    def _take_from_the_top(
        self, start: list[int], unjudged: list[int], limits: dict[int, str]
    ) -> None:
        order, unnamed = self._order, self._first_unnamed()
        alone: list[Pending] = []
        while len(self._running) < self._running_jobs_max and (lane := order.first(self._now)):
            job, verdict = self._pending[lane.head], lane.verdict
            self._prediction.spend()
            if verdict.chain != self._chain:
                if not self._look_at_unjudged(lane, job, unjudged, alone):
                    break
            elif unjudged:
                # A job ahead of it may start, or take its place in a bucket.
                break
            elif verdict.action == REJECTED:
                self._reject(job)
            elif verdict.action in HELD:
                order.hold(lane)
            elif (full := order.full_bucket(verdict)) is not None:
                order.park(lane, full)
            elif self._is_behind(job, unnamed):
                break
            else:
                start.append(job.id)
                self._start(job, limits)
        order.put_back()
        for job in alone:
            order.enter(job)

    def _first_unnamed(self) -> tuple[int, int] | None:
        """Priority and id of the first job whose locks are being asked for, if that matters."""
        if not (self._unnamed and self.policy.is_predictive and self.policy.holds_back):
            return None
        return min((self._pending[job_id].priority, job_id) for job_id in self._unnamed)

    def _is_behind(self, job: Pending, unnamed: tuple[int, int] | None) -> bool:
        """Whether the job might take a lock of one whose locks are being asked for."""
        if unnamed is None:
            return False
        has_locks = job.needs is not None or job.id in self._unnamed
        return has_locks and unnamed <= (job.priority, job.id)

    def _look_at_unjudged(
        self, lane: Lane, job: Pending, unjudged: list[int], alone: list[Pending]
    ) -> bool:
        """Want the verdict on a job that came first. Returns whether to look at further ones."""
        is_shared = not self._tells_alike_apart
        known = self._classes.known(job, self._chain) if is_shared else None
        if known is not None and known is not job.judged:
            # It was judged alone, under rules that told it from others of its class.
            self._classes.leave(job)
            self._classes.join(job, known)
            self._order.enter(job)
            return True
        unjudged.append(job.id)
        if is_shared and shared_of(job) is not None:
            # The verdict on one of them is that on all.
            self._order.put_aside(lane)
        else:
            self._order.leave(job)
            alone.append(job)
        return len(unjudged) < _JUDGED_AT_ONCE_MAX

    def _reject(self, job: Pending) -> None:
        self.remove(job.id)
        text = f"rejected by filter rule {job.judged.rule}"
        self._ends.add(Unsatisfiable(job.id, "rejected", text))

    def _start(self, job: Pending, limits: dict[int, str]) -> None:
        """The job has a run slot, and counts with its forecast as an owner of locks."""
        if job.judged.action == LIMITED:
            limits[job.id] = gating.limit_name(job.judged.rule, job.judged.limit)
        self.remove(job.id)
        self._occupy(job.id, SlotHolder(job.judged.buckets, job.judged.chain, job.priority))
        if job.needs is not None:
            self._prediction.taken.expect(job.id, job.needs_first or job.needs)

    def what_if(
        self,
        pending: Sequence[JobVerdict],
        running: Iterable[JobVerdict],
        running_jobs_max: int | None,
        at_once: int,
    ) -> Generator[None, None, Schedule]:
        """Another schedule of the same jobs, under these verdicts and with so many slots.

        Yields after each ``at_once`` jobs: this schedule may change meanwhile. Of a job that has
        started since, the other one knows what was known before.
        """
        limit = self._running_jobs_max if running_jobs_max is None else running_jobs_max
        known = {verdict.job.id: verdict for verdict in running}
        chain = next((one.chain for one in (*pending[:1], *known.values())), 0)
        other = Schedule(limit, chain, policy=self.policy, looks_max=at_once)
        other._now = self._now
        other._prediction.copy_from(self._prediction)
        for job_id, held in self._running.items():
            verdict = known.get(job_id)
            buckets = held.buckets if verdict is None else buckets_of(verdict)
            other._occupy(job_id, SlotHolder(buckets, chain, held.priority))
        # All are added before any is placed: each finds the jobs that it depends on.
        for place, verdict in enumerate(pending):
            job = self._pending.get(verdict.job.id)
            if job is not None:
                other._pending[job.id] = job.copy_under(verdict, other._prediction)
            if (place + 1) % at_once == 0:
                yield
        for place, copy in enumerate(list(other._pending.in_order())):
            other._place(copy)
            if (place + 1) % at_once == 0:
                yield
        other._eligible.clear()
        return other

    def dissolving(self, at_once: int) -> Generator[None, None, None]:
        """Free the jobs, so many at a time: a schedule refers to itself, and would stay for long.

        It must not be used any more.
        """
        self._order.forget()
        for place, job_id in enumerate(self._pending):
            self._pending.take(job_id)
            if (place + 1) % at_once == 0:
                yield
        self._forget()

    def pending_in_order(self) -> list[int]:
        """The pending jobs by priority, then by what is left of their weight, then by id."""
        return [job.id for job in self.standing_now().in_order()]

    def order(self, limit: int) -> OrderReported:
        """The first ``limit`` pending jobs in order."""
        return done(self.standing_now().reported(limit, limit))

    @property
    def is_tired(self) -> bool:
        """Whether the last pass paused, with jobs left to be looked at."""
        return self._prediction.is_tired

    def position(self, job_id: int, *, is_brief: bool = False) -> QueuePosition | None:
        """Everything that keeps a pending job from starting; ``is_brief``: but the jobs ahead."""
        return self.standing_now().position(job_id, is_brief=is_brief)

    def contention(
        self, job_id: int, then: JobVerdict | None, rules: Collection[str] = ()
    ) -> Contention:
        """What a pending job competes for, and with which jobs, once ``then`` is its verdict."""
        return self.standing_now().contention(job_id, then, rules)

    def standing_now(self) -> queue_position.ScheduleSnapshot:
        """What it knows, for questions about many jobs; it holds until something changes."""
        return queue_position.ScheduleSnapshot(
            pending=self._pending,
            lanes=self._order.lanes,
            running=self._running,
            taken=self._order.taken,
            slots=self._running_jobs_max,
            prediction=self._prediction,
            now=self._now,
        )

    # ------------------------------------------------------------ run slots

    def _occupy(self, job_id: int, held: SlotHolder) -> None:
        self._running[job_id] = held
        self._prediction.runs += 1
        self._prediction.taken.occupy(job_id)
        self._order.occupy(held.buckets)

    def vacate(self, job_id: int) -> None:
        """Free the job's run slot, if it holds one, and with it the job's locks."""
        if job_id in self._running:
            self._order.vacate(self._running.pop(job_id).buckets)
            self._prediction.runs += 1
            self._prediction.taken.vacate(job_id)

    # ------------------------------------------------------------ dependencies

    def _place(self, job: Pending) -> None:
        depends = job.waits.depends
        outcome = dependency_outcome(depends, job.waits.known)
        match outcome.verdict:
            case "open":
                for dependency in outcome.open:
                    self._dependants[dependency].add(job.id)
                    if dependency not in self._pending and dependency not in self._running:
                        self._unknown.add(dependency)
                self._order.enter(job, is_open=True)
            case "satisfied":
                if depends:
                    self._eligible.append(job.id)
                self._order.enter(job)
            case "canceled" | "failed":
                self.remove(job.id)
                self._ends.add(Unsatisfiable(job.id, outcome.verdict, outcome.text))

    def _take_doomed(self, canceled: int) -> list[int]:
        """Take out the pending jobs that must be canceled because this one is."""
        waiting = sorted(self._dependants.get(canceled, ()))
        doomed = [one for one in waiting if self._pending[one].ends_with(canceled)]
        for job_id in doomed:
            self.remove(job_id)
        return doomed

    def _forget_dependant(self, dependency: int, job_id: int) -> None:
        waiting = self._dependants.get(dependency)
        if waiting is not None:
            waiting.discard(job_id)
            if not waiting:
                del self._dependants[dependency]
