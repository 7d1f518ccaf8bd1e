"""The filter evaluator: it owns the compiled rule chain and gives every pending job its verdict.

Verdicts name the chain under which they hold. The evaluator announces a new chain to the scheduler
and the queue; from then on older verdicts do not count, and the scheduler asks for new ones as
jobs come to the front. Rejected jobs must be found wherever they stand: under a chain that can
reject, the evaluator looks through the whole queue, a page at a time.

The cost of one message is bounded, in steps (``storage/filters/metering``). Longer work is done in
slices (`Runtime.work`): a job that takes more than the rest of a slice, tests of rules,
simulations.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, assert_never

import msgspec

from ...storage import errors, settings
from ...storage.filters.metering import Meter, Slice
from ...storage.filters.rules import ActionName, FilterRule
from ...transport import messages
from ...transport.messages import JobVerdict
from ..runtime.addresses import CONFIG_STORE, FILTER_EVALUATOR, JOB_QUEUE, SCHEDULER
from ..runtime.component import Component
from . import filtering, verdicts
from .known_facts import KnownFacts
from .long_judgements import Judging
from .shared_verdicts import SharedVerdicts
from .unsure_locks import Unsure, UnsureLocks
from .what_if_rules import WhatIf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...transport.envelopes import Envelope
    from ..runtime.dispatcher import Alarm
    from ..runtime.works import Work


class FilterEvaluator(Component[messages.FilterMessage]):
    """Judges the jobs on their way from the queue to the scheduler."""

    name = "filter_evaluator"

    def boot(self) -> None:
        """Ask for the rules, then for the queue."""
        self._rules: list[FilterRule] = []
        self._serial: int | None = None
        self._alarm: Alarm | None = None
        self._slice = Slice(settings.JUDGE_STEPS_AT_ONCE)
        self._long: dict[int, Judging] = {}
        self._unsure = UnsureLocks(self.runtime, self._judge_unsure)
        self._is_judging = False
        """Whether `_judging_long` is under way."""
        self._early: list[Envelope] = []
        self._facts = KnownFacts(self.runtime, self._unsure, self._slice)
        self._what_if = WhatIf(self.runtime, self._facts, self._slice)
        self._take_chain(filtering.RuleChain())
        # It asks the queue for all jobs when it knows the rules.
        self.runtime.tell(CONFIG_STORE, messages.ReportConfiguration())

    def receive(self, envelope: Envelope[messages.FilterMessage]) -> None:  # noqa: C901, PLR0912 - a table
        """Handle one message."""
        message = envelope.message
        match message:
            case messages.RulesChanged():
                self._change_rules(message)
            case messages.JobsArrived():
                self._judge(message)
            case messages.JobReprioritised():
                self._reprioritise(message)
            case messages.JobsFinished():
                for job_id, _ in message.jobs:
                    self._long.pop(job_id, None)
                    self._unsure.forget(job_id)
                self.runtime.tell(SCHEDULER, message)
            case messages.ExplainPending() | messages.JudgeTest() | messages.JudgeSimulation() if (
                self._serial is None
            ):
                # The rules are on their way.
                self._early.append(envelope)
            case messages.ExplainPending():
                asked = msgspec.structs.replace(envelope, message=self._with_rules(message))
                self.runtime.forward(SCHEDULER, asked)
            case messages.ReportOrder():
                # Behind the verdicts on the jobs that came before it.
                self.runtime.forward(SCHEDULER, envelope)
            case messages.WindowDue():
                self._look_at_windows()
            case messages.JudgeTest():
                self._begin(self._what_if.test(message), envelope)
            case messages.JudgeSimulation():
                self._begin(self._what_if.simulate(message), envelope)
            case messages.ReportChain():
                self._announce()
            case messages.ForecastsOutdated():
                if self._unsure.outdate(message.serial_no):
                    # Each verdict may be another now.
                    self._compile()
            case messages.ForecastsDue():
                self._unsure.ask()
            case _:
                assert_never(message)

    # ------------------------------------------------------------ the chain

    def _change_rules(self, message: messages.RulesChanged) -> None:
        is_first = self._serial is None
        self._rules = message.rules
        self._serial = message.serial
        self._compile()
        if is_first:
            self.runtime.tell(JOB_QUEUE, messages.ReportAllJobs())
            early, self._early = self._early, []
            for envelope in early:
                self.runtime.forward(FILTER_EVALUATOR, envelope)

    def _compile(self) -> None:
        self._take_chain(filtering.compile_chain(self._rules, self.runtime.wall_clock()))
        self._announce()

    def _announce(self) -> None:
        if self._serial is None:
            # The configuration store has not sent the rules yet. They are announced when they come.
            return
        changed = messages.RuleChainChanged(
            chain=self._number,
            serial=self._serial,
            reads_opcodes=self._chain.looks_at.opcodes,
            tells_alike_apart=self._chain.tells_alike_apart,
            rules=self._rules,
        )
        # The scheduler first: its choices hold under this chain from now on.
        self.runtime.tell(SCHEDULER, changed)
        self.runtime.tell(JOB_QUEUE, changed)
        if self._can_reject():
            self.runtime.tell(JOB_QUEUE, messages.SweepJobs(after=0, chain=self._number))

    def _take_chain(self, chain: filtering.RuleChain) -> None:
        self._chain = chain
        self._shared = SharedVerdicts(chain)
        self._what_if.take_rules(self._rules, self._shared)
        # The scheduler asks again for unfinished verdicts, under the new chain.
        self._long.clear()
        self._unsure.clear()
        # A number that no earlier incarnation has used.
        self._number = time.monotonic_ns()
        self._await_window()

    def _await_window(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._chain.changes_at is None:
            return
        # The wall clock may be set meanwhile: look at it again soon.
        left = max(0.0, self._chain.changes_at - self.runtime.wall_clock())
        seconds = min(left, settings.WINDOW_LOOK_SECONDS)
        self._alarm = self.runtime.later(seconds, messages.WindowDue())

    def _look_at_windows(self) -> None:
        changes_at = self._chain.changes_at
        if changes_at is not None and self.runtime.wall_clock() >= changes_at:
            self.log.info("the window of a filter rule has opened or closed")
            self._compile()
        else:
            self._await_window()

    # ------------------------------------------------------------ verdicts

    def _judge(self, message: messages.JobsArrived) -> None:
        if self._serial is None:
            # The queue sends these jobs again after the rules have come.
            return
        if message.sweep is not None and message.sweep != self._number:
            # A page for an older chain.
            return
        self._slice.left = settings.JUDGE_STEPS_AT_ONCE
        running, _ = self._verdicts(message.running, message, is_running=True)
        pending, unjudged = self._verdicts(message.jobs, message)
        judged = messages.JobsJudged(
            jobs=pending,
            running=running,
            is_all=message.is_all,
            is_rest=message.is_rest,
            has_more=message.next_after is not None,
            is_repeat=message.is_repeat,
            report=message.report,
            came=message.came,
        )
        self.runtime.tell(SCHEDULER, judged)
        self._reject(pending)
        if message.is_all or message.is_rest:
            # Where rules can reject, a sweep looks at each job of the report besides.
            if message.next_after is not None:
                rest = messages.ReportRest(report=message.report, after=message.next_after)
                self.runtime.tell(JOB_QUEUE, rest)
            return
        next_after = message.next_after if unjudged is None else unjudged - 1
        if next_after is not None and (message.sweep is not None or self._can_reject()):
            more = messages.SweepJobs(after=next_after, chain=self._number)
            self.runtime.tell(JOB_QUEUE, more)

    def _verdicts(
        self,
        arrived: list[messages.JobToJudge],
        message: messages.JobsArrived,
        *,
        is_running: bool = False,
    ) -> tuple[list[JobVerdict], int | None]:
        """The verdicts on these jobs, and the first job that was left for another message.

        The cost of one message is bounded. A job that takes more than the rest of the slice is
        judged in further ones; a pending job is held until then.
        """
        found: list[JobVerdict] = []
        left: int | None = None
        for one in arrived:
            job_id = one.job.id
            if (begun := self._long.get(job_id)) is not None and begun.is_about(one):
                # Its judgement goes on. The scheduler has asked, and waits.
                if not message.is_repeat:
                    found.append(self._meanwhile(begun))
                continue
            self._long.pop(job_id, None)
            self._unsure.forget(job_id)
            if self._slice.left > 0:
                verdict = self._verdict(one, is_running=is_running)
                if isinstance(verdict, Judging):
                    verdict.is_running = is_running
                    self._long[job_id] = verdict
                    verdict = self._meanwhile(verdict)
                    self._judge_long()
                found.append(verdict)
                continue
            left = job_id if left is None else min(left, job_id)
            if message.sweep is None:
                # The scheduler asks for it again when it comes to the front.
                found.append(JobVerdict(job=one.job))
        return found, left

    def _verdict(self, arrived: messages.JobToJudge, *, is_running: bool) -> JobVerdict | Judging:
        """The verdict on a job, or the work on it if it takes more than the rest of the slice."""
        if not self._chain.links:
            return JobVerdict(job=arrived.job, chain=self._number, is_common=True)
        if (known := self._shared.find(arrived.job)) is not None:
            is_common = not self._chain.tells_alike_apart
            return verdicts.verdict_of(arrived, known, self._number, is_common=is_common)
        if self._chain.looks_at.opcodes and not verdicts.has_inputs(arrived, self._chain):
            # The queue sends it again, with its inputs, when it comes to the front.
            return JobVerdict(job=arrived.job)
        try:
            facts = self._facts.of(arrived, verdicts.fields_of(self._chain))
        except errors.StorageError as error:
            self._facts.note_unreadable(arrived, error)
            return JobVerdict(job=arrived.job) if is_running else self._held(arrived)
        work = filtering.judging(self._chain, facts, Meter(settings.JUDGE_STEPS_MAX, self._slice))
        try:
            held = next(work)
        except StopIteration as done:
            return self._judged(arrived, facts, done.value, is_running=is_running)
        return Judging(arrived, facts, work, held)

    def _judged(
        self,
        arrived: messages.JobToJudge,
        facts: filtering.JobFacts,
        verdict: filtering.Verdict,
        *,
        is_running: bool,
    ) -> JobVerdict:
        """The verdict, unless it depends on locks that the configuration decides: then it waits."""
        other = filtering.judged_otherwise(self._chain, facts, verdict)
        if other is None:
            self._shared.note(arrived.job, verdict)
            is_common = not self._chain.tells_alike_apart
            return verdicts.verdict_of(arrived, verdict, self._number, is_common=is_common)
        assert facts.question is not None
        self._unsure.wait(facts.question, Unsure(arrived, is_running))
        if is_running:
            return JobVerdict(job=arrived.job)
        held = filtering.Verdict(verdict.rule or other.rule, ActionName.PAUSE)
        return verdicts.verdict_of(arrived, held, self._number)

    def _judge_unsure(self, unsure: Sequence[Unsure]) -> None:
        """Judge jobs whose locks are known now."""
        again = messages.JobsArrived(
            jobs=[one.arrived for one in unsure if not one.is_running],
            running=[one.arrived for one in unsure if one.is_running],
            is_repeat=True,
        )
        self._judge(again)

    def _meanwhile(self, begun: Judging) -> JobVerdict:
        """A pending job is held and lets others pass; a running one keeps its place."""
        if begun.is_running:
            return JobVerdict(job=begun.arrived.job)
        return verdicts.verdict_of(begun.arrived, begun.held, self._number)

    def _held(self, arrived: messages.JobToJudge) -> JobVerdict:
        return verdicts.verdict_of(arrived, verdicts.HELD, self._number)

    def _can_reject(self) -> bool:
        return any(link.verdict.action is ActionName.REJECT for link in self._chain.links)

    def _reprioritise(self, message: messages.JobReprioritised) -> None:
        """Judge the job anew, wherever it stands: rules may look at priorities."""
        self._long.pop(message.id, None)
        self.runtime.tell(SCHEDULER, message)
        if self._chain.looks_at.opcodes:
            self.runtime.tell(JOB_QUEUE, messages.ReportJobs(ids=[message.id]))

    # ------------------------------------------------------------ in slices

    def _begin(self, work: Work, envelope: Envelope) -> None:
        """Begin work that may take long, and that answers ``envelope``."""
        if self.runtime.work_count >= settings.QUESTIONS_MAX:
            raise errors.BusyError("too many questions about filter rules are open; try again")
        self.runtime.work(self._metered(work), envelope)

    def _metered(self, work: Work) -> Work:
        """Let each slice cost as many steps as a message."""
        while True:
            self._slice.left = settings.JUDGE_STEPS_AT_ONCE
            try:
                yield next(work)
            except StopIteration as end:
                found: messages.Message | None = end.value
                return found

    def _judge_long(self) -> None:
        """Go on with the jobs that take long, if this is not under way."""
        if not self._is_judging:
            self._is_judging = True
            self.runtime.work(self._judging_long())

    def _judging_long(self) -> Work:
        """Judge them in turn, one slice of one job each: together they are one work of several."""
        while self._long:
            yield
            if self._long:
                self._work_on_long()
        self._is_judging = False
        return None

    def _work_on_long(self) -> None:
        job_id = next(iter(self._long))
        begun = self._long.pop(job_id)
        self._slice.left = settings.JUDGE_STEPS_AT_ONCE
        try:
            begun.held = next(begun.work)
        except StopIteration as done:
            verdict = self._judged(
                begun.arrived, begun.facts, done.value, is_running=begun.is_running
            )
            found = [verdict]
            running, pending = (found, []) if begun.is_running else ([], found)
            judged = messages.JobsJudged(jobs=pending, running=running, is_repeat=True)
            self.runtime.tell(SCHEDULER, judged)
            self._reject(pending)
        else:
            self._long[job_id] = begun

    def _reject(self, judged: list[messages.JobVerdict]) -> None:
        """Send the queue the jobs that a rule rejects: it cancels the pending ones."""
        rejected = [
            (found.job.id, filtering.describe(self._rules, verdicts.rejection(found)))
            for found in judged
            if found.action == ActionName.REJECT
        ]
        if rejected:
            self.runtime.tell(JOB_QUEUE, messages.JobsRejected(jobs=rejected))

    # ------------------------------------------------------------ why

    def _with_rules(self, message: messages.ExplainPending) -> messages.ExplainPending:
        if message.job is None:
            return message
        try:
            facts = self._facts.of(message.job, verdicts.fields_of(self._chain))
        except errors.StorageError:
            return msgspec.structs.replace(message, job=None, then=self._held(message.job))
        meter = Meter(settings.JUDGE_STEPS_AT_ONCE)
        held_by, verdict = filtering.holding(self._chain, facts, meter)
        then = verdicts.verdict_of(message.job, verdict, self._number)
        refused = filtering.refused_priorities(self._chain, facts)
        because = {
            rule.uuid: filtering.touched(rule, facts)
            for rule in self._rules
            if rule.uuid in held_by
        }
        return msgspec.structs.replace(
            message, job=None, holding=held_by, because=because, then=then, refused=refused
        )
