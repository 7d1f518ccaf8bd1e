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

import os
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from ...storage import errors, settings
from ...storage.filters.metering import Meter, Slice
from ...storage.filters.rules import ActionName, FilterRule
from ...storage.queue_files import job_files
from ...transport import messages
from ...transport.messages import JobVerdict
from ..runtime.addresses import CONFIG_STORE, FILTER_EVALUATOR, JOB_QUEUE, SCHEDULER
from ..runtime.component import Component
from . import filtering, rule_requests, verdicts
from .long_judgements import Judging
from .shared_verdicts import SharedVerdicts
from .unsure_locks import Unsure, UnsureLocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...transport.envelopes import Envelope
    from ..runtime.dispatcher import Alarm
    from ..runtime.works import Work

_HELD = filtering.Verdict(None, ActionName.PAUSE)
"""Of a job of which it is not known what the rules say."""


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
        # Made once: a path is put together anew each time.
        self._queue = os.fspath(self.places.queue)
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
                self._begin(self._test(message), envelope)
            case messages.JudgeSimulation():
                self._begin(self._simulate(message), envelope)
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
        self._proposed: tuple[object, SharedVerdicts] | None = None
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
            facts = self._facts(arrived, verdicts.fields_of(self._chain))
        except errors.StorageError as error:
            self._note_unreadable(arrived, error)
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
        return verdicts.verdict_of(arrived, _HELD, self._number)

    def _note_unreadable(self, arrived: messages.JobToJudge, error: errors.StorageError) -> None:
        """No rule can look at this job's text, so it is held: a rule might hold or reject it."""
        self.log.error("job cannot be judged", job=arrived.job.id, error=error.text)
        if arrived.is_in_file:
            # The journal may make up for a damaged file: the queue mends it, and sends the text.
            self.runtime.tell(JOB_QUEUE, messages.ReportJobs(ids=[arrived.job.id], are_read=True))

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

    # ------------------------------------------------------------ why, and what if

    def _with_rules(self, message: messages.ExplainPending) -> messages.ExplainPending:
        if message.job is None:
            return message
        try:
            facts = self._facts(message.job, verdicts.fields_of(self._chain))
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

    def _test(self, message: messages.JudgeTest) -> Work:
        both = (self._shared, self._what_if(message.test, message.last_id))
        fields = verdicts.fields_of(*(one.chain for one in both))
        rows: list[messages.RuleTest] = []
        next_after = message.next_after
        work_left = settings.JUDGE_STEPS_MAX
        for arrived, status in zip(message.jobs, message.statuses, strict=True):
            if work_left <= 0:
                # The next page begins here.
                next_after = rows[-1].id
                break
            found = [one.find(arrived.job) for one in both]
            if None in found:
                try:
                    facts = self._facts(arrived, fields)
                except errors.StorageError as error:
                    # Nothing is known of what the rules would do: the page leaves the job out.
                    self._note_unreadable(arrived, error)
                    continue
                for place, one in enumerate(both):
                    if found[place] is None:
                        verdict, steps = yield from self._judged_in_slices(one.chain, facts)
                        one.note(arrived.job, verdict)
                        found[place] = verdict
                        work_left -= steps
            now, would = map(verdicts.named, found)
            rows.append(messages.RuleTest(id=arrived.job.id, status=status, now=now, then=would))
        return messages.FiltersTested(rows=rows, next_after=next_after)

    def _what_if(
        self, asked: messages.TestFilters | messages.Simulate, last_id: int
    ) -> SharedVerdicts:
        """The chain with the proposed rule, and without the rule that the request leaves out."""
        wanted = (asked.rule, asked.without, last_id)
        if self._proposed is not None and self._proposed[0] == wanted:
            found = self._proposed[1]
            changes_at = found.chain.changes_at
            if changes_at is None or self.runtime.wall_clock() < changes_at:
                return found
        known = [
            rule
            for rule in self._rules
            if asked.without is None or asked.without not in (rule.uuid, rule.name)
        ]
        if asked.rule is not None:
            # As if it were stored now: behind all other rules of its priority.
            named = rule_requests.addressed(asked.rule, rule_requests.known_names(self._rules))
            proposed = rule_requests.build_rule(
                named, watermark=last_id, now_nanoseconds=time.time_ns()
            )
            known = [*(rule for rule in known if rule.uuid != proposed.uuid), proposed]
        found = SharedVerdicts(filtering.compile_chain(known, self.runtime.wall_clock()))
        # The next page most likely wants the same.
        self._proposed = (wanted, found)
        return found

    def _simulate(self, message: messages.JudgeSimulation) -> Work:
        """Judge a page of jobs under the rules of the simulation."""
        known = self._what_if(message.simulation, message.last_id)
        fields = verdicts.fields_of(known.chain)
        found: list[JobVerdict] = []
        work_left = settings.JUDGE_STEPS_MAX
        for arrived in (*message.jobs, *message.running):
            if work_left <= 0:
                text = "simulate: the filter rules would take too much work to be tried on all jobs"
                raise errors.BadRequestError(text)
            priority = message.simulation.priorities.get(arrived.job.id)
            verdict = known.find(arrived.job) if priority is None else None
            if verdict is None:
                try:
                    facts = self._facts(arrived, fields, priority=priority)
                except errors.StorageError as error:
                    self._note_unreadable(arrived, error)
                    found.append(verdicts.verdict_of(arrived, _HELD, 1))
                    continue
                verdict, steps = yield from self._judged_in_slices(known.chain, facts)
                work_left -= steps
                if priority is None:
                    known.note(arrived.job, verdict)
            found.append(verdicts.verdict_of(arrived, verdict, 1))
        pending = len(message.jobs)
        return messages.SimulationJudged(jobs=found[:pending], running=found[pending:])

    def _judged_in_slices(
        self, chain: filtering.RuleChain, facts: filtering.JobFacts
    ) -> Generator[object, None, tuple[filtering.Verdict, int]]:
        """The verdict, and what it cost; yields at the end of each slice."""
        meter = Meter(settings.JUDGE_STEPS_MAX, self._slice)
        verdict = yield from filtering.judging(chain, facts, meter)
        return verdict, settings.JUDGE_STEPS_MAX - meter.left

    def _facts(
        self,
        arrived: messages.JobToJudge,
        fields: frozenset[str] | None,
        *,
        priority: int | None = None,
    ) -> filtering.JobFacts:
        """The facts with these parameters; ``priority``: the one that the job would have.

        ``fields`` is None if nothing but its id is wanted. `StorageError` if the file that has
        them is gone, as that of a job archived meanwhile, or if the text is no job's.
        """
        inputs: Sequence[Mapping[str, Any]] | None = arrived.inputs
        if inputs is not None or fields is None:
            return self._unsure.known(filtering.JobFacts.of(arrived.job.id, inputs or (), priority))
        if arrived.class_inputs is not None and "reason" not in fields:
            inputs = arrived.class_inputs
        elif arrived.body is not None:
            inputs = job_files.read_job(arrived.body, arrived.job.id).judged_inputs
        elif arrived.is_in_file:
            self._slice.left -= settings.JOB_READ_STEPS
            inputs = job_files.read_inputs(self._queue, arrived.job.id)
        return self._unsure.known(filtering.JobFacts.of(arrived.job.id, inputs or (), priority))
