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
what it really holds (`locks_changed`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..rules import gating
from . import queue_position
from .class_verdicts import shared_of
from .pass_outcome import Pass, Unsatisfiable
from .pending_job import HELD, LIMITED, REJECTED, Pending, SlotHolder, buckets_of
from .scheduled_jobs import ScheduledJobs

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Sequence

    from ...transport.messages import JobVerdict, QueuePosition
    from .lanes import Lane
    from .remedies import Contention

__all__ = ["Pass", "Schedule", "Unsatisfiable"]

_JUDGED_AT_ONCE_MAX = 100
"""Jobs that are sent to be judged at a time: with more, a rule that comes meanwhile would wait."""


class Schedule(ScheduledJobs):
    """The known jobs, and the passes that decide which of them start."""

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
        self._ends.add(Unsatisfiable(job.id, "rejected", job.judged.rule or ""))

    def _start(self, job: Pending, limits: dict[int, str]) -> None:
        """The job has a run slot, and counts with its forecast as an owner of locks."""
        if job.judged.action == LIMITED:
            limits[job.id] = gating.limit_name(job.judged.rule, job.judged.limit)
        self.remove(job.id)
        self._occupy(job.id, SlotHolder(job.judged.buckets, job.judged.chain, job.priority))
        if job.needs is not None:
            self._prediction.taken.expect(job.id, job.needs_first or job.needs)

    def _take_doomed(self, canceled: int) -> list[int]:
        """Take out the pending jobs that must be canceled because this one is."""
        waiting = sorted(self._dependants.get(canceled, ()))
        doomed = [one for one in waiting if self._pending[one].ends_with(canceled)]
        for job_id in doomed:
            self.remove(job_id)
        return doomed

    # ------------------------------------------------------------ questions

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
