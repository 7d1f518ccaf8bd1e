"""The filter evaluator: it owns the compiled rule chain and gives every pending job its verdict.

Verdicts name the chain under which they hold. A new chain is announced to the queue and the
scheduler first; from then on older verdicts do not count, and the scheduler asks for new ones
as jobs come to the front. Only what a rule rejects must be found wherever it stands, so
that under a chain that can reject the whole queue is looked through, a page at a time.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import TYPE_CHECKING, assert_never

import msgspec

from ..storage import errors, job_files, rules, settings
from ..storage.rules import ActionName
from ..transport import messages
from ..transport.messages import JobVerdict
from . import filtering, rule_changes
from .base import Component

if TYPE_CHECKING:
    from ..transport.addresses import Envelope

FilterMessage = (
    messages.RulesChanged
    | messages.JobsArrived
    | messages.JobReprioritised
    | messages.JobsFinished
    | messages.WindowDue
    | messages.ReportChain
    | messages.ExplainPending
    | messages.JudgeTest
    | messages.JudgeSimulation
)


class FilterEvaluator(Component):
    """Stands between the job queue and the scheduler: what arrives here goes on, judged."""

    name = "filter_evaluator"

    def boot(self) -> None:
        """Ask for the rules, then for the queue."""
        self._rules: tuple[rules.FilterRule, ...] = ()
        self._serial: int | None = None
        self._timer: threading.Timer | None = None
        self._simulated: dict[int, tuple[list[JobVerdict], list[JobVerdict]]] = {}
        self._take_chain(filtering.RuleChain())
        # The queue is asked for everything when the rules are known.
        self.address("config_store").notify(messages.ReportConfiguration())

    def close(self) -> None:
        """End the timer."""
        if getattr(self, "_timer", None) is not None:
            self._timer.cancel()  # type: ignore[union-attr]

    def receive(self, envelope: Envelope) -> None:
        """Handle one message."""
        message: FilterMessage = envelope.message  # type: ignore[assignment]
        match message:
            case messages.RulesChanged():
                self._change_rules(message)
            case messages.JobsArrived():
                self._judge(message)
            case messages.JobReprioritised() | messages.JobsFinished():
                self.address("scheduler").notify(message)
            case messages.ExplainPending():
                self.address("scheduler").notify(self._with_rules(message))
            case messages.WindowDue():
                self._look_at_windows()
            case messages.JudgeTest():
                self._test(envelope, message)
            case messages.JudgeSimulation():
                self._simulate(message)
            case messages.ReportChain():
                self._announce()
            case _:
                assert_never(message)

    # ------------------------------------------------------------ the chain

    def _change_rules(self, message: messages.RulesChanged) -> None:
        parsed = rules.parse_rules(message.rules)
        for problem in parsed.problems:
            self.log.error("filter rule is left out", error=problem.text)
        is_first = self._serial is None
        self._rules = parsed.rules
        self._serial = message.serial
        self._compile()
        if is_first:
            self.address("job_queue").notify(messages.ReportQueue())

    def _compile(self) -> None:
        self._take_chain(filtering.compile_chain(self._rules, time.time()))
        self._announce()

    def _announce(self) -> None:
        if self._serial is None:
            # Nobody has told the rules yet; when somebody does, they are announced.
            return
        changed = messages.RuleChainChanged(
            chain=self._number,
            serial=self._serial,
            reads_opcodes=self._chain.reads_opcodes,
            rules=[rules.to_raw(rule) for rule in self._rules],
        )
        # The scheduler first: what it tells the queue from now on holds under this chain.
        self.address("scheduler").notify(changed)
        self.address("job_queue").notify(changed)
        if any(link.verdict.action is ActionName.REJECT for link in self._chain.links):
            self.address("job_queue").notify(messages.SweepJobs(after=0, chain=self._number))

    def _take_chain(self, chain: filtering.RuleChain) -> None:
        self._chain = chain
        # Different from any that an earlier incarnation has used.
        self._number = time.monotonic_ns()
        self._await_window()

    def _await_window(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._chain.changes_at is None:
            return
        # A clock may be set while this waits, so that it is looked at again soon.
        seconds = min(max(0.0, self._chain.changes_at - time.time()), settings.WINDOW_LOOK_SECONDS)
        notify = functools.partial(self.address(self.name).notify, messages.WindowDue())
        self._timer = threading.Timer(seconds, notify)
        self._timer.daemon = True
        self._timer.start()

    def _look_at_windows(self) -> None:
        if self._chain.changes_at is not None and time.time() >= self._chain.changes_at:
            self.log.info("the window of a filter rule has opened or closed")
            self._compile()
        else:
            self._await_window()

    # ------------------------------------------------------------ verdicts

    def _judge(self, message: messages.JobsArrived) -> None:
        if self._serial is None:
            # What came before the rules comes again after them.
            return
        if message.sweep is not None and message.sweep != self._number:
            # Of a sweep that a newer chain has made pointless.
            return
        pending = [self._verdict(arrived) for arrived in message.jobs]
        judged = messages.JobsJudged(
            jobs=pending,
            running=[self._verdict(arrived) for arrived in message.running],
            is_all=message.is_all,
            is_repeat=message.is_repeat,
            report=message.report,
        )
        self.address("scheduler").notify(judged)
        self._reject(pending)
        if message.sweep is not None and message.next_after is not None:
            more = messages.SweepJobs(after=message.next_after, chain=self._number)
            self.address("job_queue").notify(more)

    def _reject(self, judged: list[messages.JobVerdict]) -> None:
        """Tell of those that a rule rejects, wherever they stand: returned jobs wait again too."""
        rejected = [
            (found.job.id, filtering.told(self._rules, _rejection(found)))
            for found in judged
            if found.action == ActionName.REJECT
        ]
        if rejected:
            self.address("job_queue").notify(messages.JobsRejected(jobs=rejected))

    # ------------------------------------------------------------ why, and what if

    def _with_rules(self, message: messages.ExplainPending) -> messages.ExplainPending:
        if message.job is None:
            return message
        facts = self._facts(message.job, self._chain)
        held_by, verdict = filtering.holding(self._chain, facts)
        then = _verdict_of(message.job, verdict, self._number)
        return msgspec.structs.replace(message, job=None, holding=held_by, then=then)

    def _test(self, envelope: Envelope, message: messages.JudgeTest) -> None:
        then = self._what_if(message.test, message.last_id)
        rows = []
        for arrived, status in zip(message.jobs, message.statuses, strict=True):
            facts = self._facts(arrived, self._chain, then)
            rows.append(
                messages.RuleTest(
                    id=arrived.job.id,
                    status=status,
                    now=_named(filtering.judge(self._chain, facts)),
                    then=_named(filtering.judge(then, facts)),
                )
            )
        envelope.reply(messages.FiltersTested(rows=rows, next_after=message.next_after))

    def _what_if(
        self, asked: messages.TestFilters | messages.Simulate, last_id: int
    ) -> filtering.RuleChain:
        """The chain with the proposed rule, and without the one that is to go."""
        known = [rule for rule in self._rules if rule.uuid != asked.without]
        if asked.rule is not None:
            # As stored now: behind all rules of its priority that are there already.
            proposed = rule_changes.made(
                asked.rule, watermark=last_id, now_nanoseconds=time.time_ns()
            )
            known = [*(rule for rule in known if rule.uuid != proposed.uuid), proposed]
        return filtering.compile_chain(known, time.time())

    def _simulate(self, message: messages.JudgeSimulation) -> None:
        """Judge page after page, then let the scheduler say what would become of them."""
        chain = self._what_if(message.simulation, message.last_id)
        judged, running = self._simulated.setdefault(message.token, ([], []))
        judged += [self._verdict_under(chain, arrived, 1) for arrived in message.jobs]
        running += [self._verdict_under(chain, arrived, 1) for arrived in message.running]
        if message.next_after is not None:
            more = messages.SimulationPage(token=message.token, after=message.next_after)
            self.address("job_queue").notify(more)
            return
        del self._simulated[message.token]
        run = messages.RunSimulation(
            token=message.token, simulation=message.simulation, jobs=judged, running=running
        )
        self.address("scheduler").notify(run)

    def _verdict(self, arrived: messages.JobArrived) -> messages.JobVerdict:
        if not self._chain.links:
            return messages.JobVerdict(job=arrived.job, chain=self._number)
        if arrived.inputs is None and not arrived.is_in_file and self._chain.reads_opcodes:
            # It is sent again, with its inputs, when it comes to the front.
            return messages.JobVerdict(job=arrived.job)
        return self._verdict_under(self._chain, arrived, self._number)

    def _verdict_under(
        self, chain: filtering.RuleChain, arrived: messages.JobArrived, number: int
    ) -> JobVerdict:
        return _verdict_of(arrived, filtering.judge(chain, self._facts(arrived, chain)), number)

    def _facts(
        self, arrived: messages.JobArrived, *chains: filtering.RuleChain
    ) -> filtering.JobFacts:
        """What these chains look at."""
        inputs = arrived.inputs
        if inputs is None and arrived.is_in_file and any(chain.reads_opcodes for chain in chains):
            try:
                inputs = job_files.read_inputs(self.places.queue, arrived.job.id)
            except errors.StorageError as error:
                # It has been archived meanwhile; or no rule can look at it, and the others must
                # not wait for that.
                self.log.error("job cannot be judged", job=arrived.job.id, error=error.text)
        return filtering.JobFacts.of(arrived.job.id, inputs or ())


def _verdict_of(
    arrived: messages.JobArrived, verdict: filtering.Verdict, number: int
) -> JobVerdict:
    return JobVerdict(
        job=arrived.job,
        action=str(verdict.action),
        rule=verdict.rule,
        limit=verdict.limit,
        chain=number,
    )


def _rejection(judged: messages.JobVerdict) -> filtering.Verdict:
    return filtering.Verdict(judged.rule, ActionName.REJECT)


def _named(verdict: filtering.Verdict) -> tuple[str, str] | None:
    if verdict.rule is None:
        return None
    action = str(verdict.action)
    return verdict.rule, action if verdict.limit is None else f"{action} {verdict.limit}"
