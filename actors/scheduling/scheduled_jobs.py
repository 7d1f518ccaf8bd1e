"""What the scheduler knows of jobs: the pending ones, and those in run slots.

Here jobs come, change and go; nothing starts. When a job ends, its run slot and its locks become
free in one (`holding`): no start is decided between the two.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ...storage.jobs.outcomes import OF_STATUS, JobEnd
from ...storage.prediction.policy import Policy
from ..runtime.id_maps import IdMap
from ..runtime.id_sets import IdSet
from .class_verdicts import ClassVerdicts, shared_of
from .depending import dependency_outcome
from .pass_outcome import Unsatisfiable
from .pending_job import Pending, SlotHolder
from .predicting import Prediction
from .start_order import StartOrder
from .unsatisfiable import UnsatisfiableJobs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ...storage.jobs.jobs import JobStatus
    from ...storage.jobs.outcomes import Outcome
    from ...storage.prediction.lock_types import LockForecast
    from ...transport.messages import JobVerdict
    from .ageing import Steps
    from .holding import OwnerId


class ScheduledJobs:
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

    def limit(self, running_jobs_max: int) -> None:
        """The number of run slots has changed; running jobs keep theirs."""
        self._running_jobs_max = running_jobs_max

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

    # ------------------------------------------------------------ locks

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

    # ------------------------------------------------------------ jobs

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

    def learn(self, job_id: int, status: JobStatus | None, outcome: Outcome | None = None) -> None:
        """Take the ``status`` of a job; None: there is no such job.

        A final one frees its slot and its locks, and decides about its dependants. ``outcome``:
        what happened to it, if the status by itself does not say that.
        """
        self._unknown.discard(job_id)
        if status is not None and not status.is_final:
            return
        self.vacate(job_id)
        self.remove(job_id)
        end = None if status is None else JobEnd(status, outcome or OF_STATUS[status][0])
        for dependant in self._dependants.pop(job_id, ()):
            job = self._pending[dependant]
            if job.know(job_id, end):
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

    def is_pending(self, job_id: int) -> bool:
        """Whether the job is pending now."""
        return job_id in self._pending

    def lacks_verdict(self, job_id: int) -> bool:
        """Whether it is a pending job that is not judged under the rules in force."""
        job = self._pending.get(job_id)
        return job is not None and job.judged.chain != self._chain

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
                found = Unsatisfiable(job.id, outcome.verdict, outcome.text, outcome.decisive)
                self._ends.add(found)

    def _forget_dependant(self, dependency: int, job_id: int) -> None:
        waiting = self._dependants.get(dependency)
        if waiting is not None:
            waiting.discard(job_id)
            if not waiting:
                del self._dependants[dependency]
