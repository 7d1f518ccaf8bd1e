"""The filter evaluator: it owns the compiled rule chain and gives every pending job its verdict."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, assert_never

from ..storage import rules
from ..transport import messages
from . import filtering
from .base import Component

if TYPE_CHECKING:
    from ..transport.addresses import Envelope

FilterMessage = messages.RulesChanged | messages.JobsArrived | messages.JobReprioritised


class FilterEvaluator(Component):
    """Stands between the job queue and the scheduler: what arrives here goes on, judged."""

    name = "filter_evaluator"

    def boot(self) -> None:
        """Ask for the rules, then for the queue."""
        self._chain = filtering.RuleChain()
        self.address("config_store").notify(messages.ReportConfiguration())
        self.address("job_queue").notify(messages.ReportQueue())

    def receive(self, envelope: Envelope) -> None:
        """Handle one message."""
        message: FilterMessage = envelope.message  # type: ignore[assignment]
        match message:
            case messages.RulesChanged():
                self._change_rules(message)
            case messages.JobsArrived():
                self._judge(message)
            case messages.JobReprioritised():
                self.address("scheduler").notify(message)
            case _:
                assert_never(message)

    def _change_rules(self, message: messages.RulesChanged) -> None:
        parsed = rules.parse_rules(message.rules)
        for problem in parsed.problems:
            self.log.error("filter rule is left out", error=problem.text)
        self._chain = filtering.compile_chain(parsed.rules, time.time())
        self._ask_for_queue()

    def _ask_for_queue(self) -> None:
        # The queue must hear of the rules before it tells of its jobs: it sends the inputs
        # of opcodes only while somebody looks at them.
        self.address("job_queue").notify(
            messages.RuleChainChanged(reads_opcodes=self._chain.reads_opcodes)
        )
        self.address("job_queue").notify(messages.ReportQueue())

    def _judge(self, message: messages.JobsArrived) -> None:
        judged = messages.JobsJudged(
            jobs=[self._verdict(arrived) for arrived in message.jobs],
            running=message.running,
            is_all=message.is_all,
        )
        self.address("scheduler").notify(judged)
        if self._chain.reads_opcodes and any(one.inputs is None for one in message.jobs):
            # The queue was replaced, or this crossed the word of new rules on its way.
            self._ask_for_queue()

    def _verdict(self, arrived: messages.JobArrived) -> messages.JobVerdict:
        if not self._chain.links:
            return messages.JobVerdict(job=arrived.job)
        if arrived.inputs is None and self._chain.reads_opcodes:
            # Sent before the queue heard of the rules: it is sent again, with its inputs.
            return messages.JobVerdict(job=arrived.job, action="PAUSE")
        facts = filtering.JobFacts.of(arrived.job.id, arrived.inputs or ())
        verdict = filtering.judge(self._chain, facts)
        return messages.JobVerdict(
            job=arrived.job,
            action=str(verdict.action),
            rule=verdict.rule,
            limit=verdict.limit,
        )
