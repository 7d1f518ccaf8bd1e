"""The scheduler: it owns the order of the pending jobs and says which start now (`scheduling`)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, assert_never

import msgspec

from ...storage import errors, settings
from ...storage.alive import lock_files
from ...storage.prediction.lock_types import NO_LOCKS, LockForecast, merged
from ...transport import messages
from ..runtime.addresses import CONFIG_STORE, JOB_QUEUE, LOCK_MANAGER
from ..runtime.component import Component
from . import remedies, simulating
from .forecast_questions import Questions
from .scheduling import Schedule

if TYPE_CHECKING:
    from collections.abc import Generator

    from ...storage.locks.locks import Owner
    from ...transport.envelopes import Envelope
    from ..runtime.dispatcher import Alarm
    from .holding import OwnerId

_Question = messages.ExplainPending | messages.RunSimulation | messages.ReportOrder
_Settings = (
    messages.LimitsChanged
    | messages.PolicyChanged
    | messages.ForecastsOutdated
    | messages.RuleChainChanged
)
_News = (
    _Question
    | _Settings
    | messages.JobsJudged
    | messages.JobsFinished
    | messages.StatusesReported
    | messages.JobReprioritised
    | messages.OwnersChanged
    | messages.WeightDue
)


class Scheduler(Component[messages.SchedulerMessage]):
    """Runs a pass at the end of each turn in which something could have made a job ready."""

    name = "scheduler"

    def boot(self) -> None:
        """Ask for the configuration and for all jobs."""
        # No run slots until the configuration store has sent their number: too many might start.
        self._schedule = Schedule(
            0,
            looks_max=settings.PASS_LOOKS_MAX,
            ends_max=settings.PASS_ENDS_MAX,
        )
        self._report = 0
        self._is_partial = False
        self._are_ages_known = False
        self._priorities = 0
        self._is_due = False
        self._has_limits = False
        self._locks: dict[OwnerId, dict[Owner, LockForecast]] = {}
        self._alarm: Alarm | None = None
        self._due_at: float | None = None
        self._resolving = Questions(self._schedule.question_of)
        self._questions: list[tuple[Envelope, _Question]] = []
        self._hits: Counter[str] = Counter()
        self.runtime.tell(CONFIG_STORE, messages.ReportConfiguration())
        self.runtime.tell(JOB_QUEUE, messages.ReportAllJobs())
        self.runtime.tell(LOCK_MANAGER, messages.ReportOwners())

    def receive(self, envelope: Envelope[messages.SchedulerMessage]) -> None:
        """Note what has changed; the pass follows at the end of the turn."""
        if isinstance(envelope.message, messages.ReportRuleHits):
            envelope.reply(messages.RuleHits(hits=dict(self._hits)))
        else:
            self._is_due = True
            self._take(envelope, envelope.message)

    def _take(self, envelope: Envelope[messages.SchedulerMessage], message: _News) -> None:
        match message:
            case messages.JobsJudged():
                self._judge(message)
            case messages.JobsFinished():
                for job_id, status in message.jobs:
                    self._schedule.learn(job_id, status, message.outcomes.get(job_id))
            case messages.StatusesReported():
                for job_id, known in message.jobs:
                    self._schedule.learn(job_id, known, message.outcomes.get(job_id))
            case messages.JobReprioritised():
                self._schedule.reprioritise(message.id, message.priority)
                self._priorities = max(self._priorities, message.number)
            case messages.OwnersChanged():
                self._take_locks(message)
            case messages.WeightDue():
                self._due_at = self._alarm = None
            case messages.ExplainPending() | messages.RunSimulation() | messages.ReportOrder():
                # After the pass of this turn: jobs that could start have started.
                self._questions.append((envelope, message))
            case _:
                self._take_settings(message)

    def _take_settings(self, message: _Settings) -> None:
        match message:
            case messages.LimitsChanged():
                self._schedule.limit(message.running_jobs_max)
                self._has_limits = True
                # After all choices made with another number of slots.
                limit = messages.LimitAcknowledged(
                    serial=message.serial, running_jobs_max=message.running_jobs_max
                )
                self.runtime.tell(JOB_QUEUE, limit)
            case messages.PolicyChanged():
                if message.policy.is_predictive != self._schedule.policy.is_predictive:
                    wanted = messages.ReportOwners(is_wanted=message.policy.is_predictive)
                    self.runtime.tell(LOCK_MANAGER, wanted)
                self._schedule.change_policy(message.policy)
            case messages.ForecastsOutdated():
                self._resolving.outdate(message.serial_no)
            case messages.RuleChainChanged():
                self._schedule.change_chain(
                    message.chain,
                    reads_opcodes=message.reads_opcodes,
                    tells_alike_apart=message.tells_alike_apart,
                )
                # After all choices made under older rules.
                noted = messages.RuleChainAcknowledged(serial=message.serial)
                self.runtime.tell(JOB_QUEUE, noted)
            case _:
                assert_never(message)

    def turn_ended(self) -> None:
        """Run one pass for all messages of the turn."""
        if not self._is_due or self._is_partial:
            # With the last page of a report: a job in it may come before all others.
            return
        self._is_due = False
        self._resolve()
        decided = self._schedule.decide(
            self.runtime.clock(),
            {one.id for _, one in self._questions if isinstance(one, messages.ExplainPending)},
        )
        self._await_weight(decided.due_at)
        if decided.unknown:
            self.runtime.tell(JOB_QUEUE, messages.ReportStatuses(ids=decided.unknown))
        if decided.unjudged:
            self.runtime.tell(JOB_QUEUE, messages.ReportJobs(ids=decided.unjudged))
        if decided.start or decided.unsatisfiable or decided.eligible:
            chosen = messages.JobsChosen(
                start=decided.start,
                report=self._report,
                chain=self._schedule.chain,
                limits=decided.limits,
                priorities=self._priorities,
                unsatisfiable=[(one.id, one.verdict, one.text) for one in decided.unsatisfiable],
                eligible=decided.eligible,
                dependencies={
                    one.id: one.dependency
                    for one in decided.unsatisfiable
                    if one.dependency is not None
                },
            )
            self.runtime.tell(JOB_QUEUE, chosen)
        self._questions = [one for one in self._questions if not self._is_answered(*one)]

    def _resolve(self) -> None:
        """Ask for the names that forecasts lack, a bounded number at once."""
        if not self._schedule.policy.is_predictive or not (asked := self._resolving.next()):
            return

        def resolved(reply: messages.ForecastsResolved) -> None:
            found = self._resolving.answer(asked, reply.forecasts, reply.serial_no)
            for job_id, forecast in found:
                self._schedule.names_known(job_id)
                self._schedule.forecast_changed(job_id, *forecast)
            # A pass, and the next questions.
            self._is_due = True

        def failed(error: errors.GangerError) -> None:
            self.log.warning("forecasts of locks are not resolved", error=error.text)
            self._resolving.fail()
            self._schedule.no_names_known()
            self._is_due = True

        request = messages.ResolveForecasts(questions=asked)
        deadline = self.runtime.clock() + settings.FORECAST_SECONDS
        self.runtime.ask(CONFIG_STORE, request, resolved, failed, deadline)

    def _await_weight(self, due_at: float | None) -> None:
        """Set the one alarm for the next job that its age releases."""
        if due_at is None or (self._due_at is not None and self._due_at <= due_at):
            # An alarm that comes too early leads to a pass that changes nothing.
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._due_at = due_at
        seconds = max(0.0, due_at - self.runtime.clock())
        self._alarm = self.runtime.later(seconds, messages.WeightDue())

    def _take_locks(self, message: messages.OwnersChanged) -> None:
        """Note the locks of owners; those with the same name or job count as one."""
        if message.is_all:
            self._locks = {}
        # Of each, whether all of its owners have ended.
        changed: dict[OwnerId, bool] = {}
        for owner, forecast in message.owners:
            name = _name_of(owner)
            owners = self._locks.setdefault(name, {})
            changed[name] = forecast is None
            if forecast is None or forecast == NO_LOCKS:
                owners.pop(owner, None)
            else:
                owners[owner] = forecast
        known = {}
        for name, have_ended in changed.items():
            if found := self._locks[name]:
                known[name] = merged(found.values())
                continue
            del self._locks[name]
            if have_ended:
                self._schedule.owner_ended(name)
            else:
                known[name] = NO_LOCKS
        if message.is_all:
            self._schedule.all_locks(known)
        else:
            for name, forecast in known.items():
                self._schedule.locks_changed(name, forecast)

    def _is_answered(self, envelope: Envelope, asked: _Question) -> bool:
        """Answer a question, unless too little is known yet: after a restart, or a new rule."""
        if not (self._report and self._schedule.chain and self._has_limits):
            return False
        if isinstance(asked, messages.RunSimulation):
            self.runtime.work(simulating.outcoming(self._schedule, asked), envelope)
        elif isinstance(asked, messages.ReportOrder):
            standing = self._schedule.standing_now()
            reported = standing.reported(asked, settings.LOOKED_AT_ONCE)
            self.runtime.work(reported, envelope)
        elif self._schedule.lacks_verdict(asked.id):
            return False
        else:
            self.runtime.work(self._explaining(asked), envelope)
        return True

    def _explaining(
        self, asked: messages.ExplainPending
    ) -> Generator[None, None, messages.PendingExplained]:
        """Explain a job; in a long queue, in slices: then the job may start or end meanwhile."""
        position = self._schedule.position(asked.id)
        if position is not None and position.has_more_ahead:
            yield
        if position is None or not self._schedule.is_pending(asked.id):
            return messages.PendingExplained(position=None)
        if position.failing:
            # No change can start it any more.
            found = msgspec.structs.replace(position, holding=asked.holding, because=asked.because)
            return messages.PendingExplained(position=found)
        contention = self._schedule.contention(asked.id, asked.then, asked.holding)
        remedy = yield from remedies.choosing(
            contention, asked.holding, asked.refused, settings.LOOKED_AT_ONCE
        )
        found = msgspec.structs.replace(
            position,
            holding=asked.holding,
            because=asked.because,
            remedy=remedy,
            refused=asked.refused,
        )
        return messages.PendingExplained(position=found)

    def _judge(self, message: messages.JobsJudged) -> None:
        if message.is_all:
            # The first report tells how old jobs are; later ones come from a queue that was
            # replaced, and knows no better.
            came = () if self._report else message.came
            self._report, self._is_partial = message.report, message.has_more
            self._are_ages_known = bool(came)
            now = self.runtime.clock()
            self._schedule.replace_all(message.jobs, message.running, now, came)
            self._note_questions(message.jobs)
        elif message.is_rest:
            self._take_rest(message)
        elif message.is_repeat:
            for verdict in (*message.jobs, *message.running):
                self._count_hits(verdict, self._schedule.judge(verdict))
        else:
            now = self.runtime.clock()
            for verdict in message.jobs:
                self._count_hits(verdict, self._schedule.add(verdict, now))
            self._note_questions(message.jobs)

    def _take_rest(self, message: messages.JobsJudged) -> None:
        """Take a further page of the report, unless it is whole: then jobs of it were chosen."""
        if message.report != self._report or not self._is_partial:
            return
        self._is_partial = message.has_more
        now = self.runtime.clock()
        for verdict in message.jobs:
            self._schedule.add(verdict, now, is_age_known=self._are_ages_known)
        self._note_questions(message.jobs)

    def _count_hits(self, verdict: messages.JobVerdict, applied: int) -> None:
        """Count that a rule begins to apply to so many jobs."""
        if applied:
            # What was known of others like it may say more than the verdict.
            rule = verdict.rule or self._schedule.rule_of(verdict.job.id)
            if rule is not None:
                self._hits[rule] += applied

    def _note_questions(self, verdicts: list[messages.JobVerdict]) -> None:
        for verdict in verdicts:
            job = verdict.job
            if job.question is not None:
                forecast = self._resolving.note(job.id, job.question)
                if forecast is None:
                    self._schedule.await_names(job.id)
                else:
                    self._schedule.forecast_changed(job.id, *forecast)


def _name_of(owner: Owner) -> OwnerId:
    """The job whose process this owner is, or a name; another program may use any number."""
    if isinstance(owner.identifier, str):
        return owner.identifier
    is_job = lock_files.identity_of(owner.lock_file) is not None
    return owner.identifier if is_job else f"{owner.identifier} (pid {owner.pid})"
