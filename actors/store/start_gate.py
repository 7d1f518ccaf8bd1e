"""The gate: each opcode of a chosen job starts under the rules that are in force at that moment.

The gate decides when a process takes the job over, when the process asks (before it asks for the
locks of a later opcode, and when the rules change while it waits), and with the state that says
that an opcode runs. That last decision counts, so that an ordinary job asks nothing extra.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ...storage.filters.rules import ActionName
from ...transport import messages
from ..rules import filtering
from ..rules.rules_in_force import RulesInForce
from ..runtime.addresses import CONFIG_STORE, EXECUTOR
from .job_rows import Phase, Row

if TYPE_CHECKING:
    from ...storage.jobs import jobs
    from ...transport.envelopes import Envelope
    from ..runtime.component import Runtime
    from .job_store import JobStore


class StartGate:
    """Holds the rules in force, and says whether the next opcode of a job may start."""

    def __init__(self, runtime: Runtime, store: JobStore) -> None:
        self.rules: RulesInForce | None = None
        """None until the filter evaluator has sent them."""

        self._runtime = runtime
        self._store = store
        self._table = store.table
        self._serial = 0
        self._acknowledged_serial = -1

    def rejection(self, rule: str) -> str:
        """The text about a job that this rule rejects."""
        if self.rules is None:
            # After a restart of the queue: the scheduler has the rules already.
            return f"rejected by {filtering.called(rule)}"
        return self.rules.describe(rule, ActionName.REJECT)

    def change_chain(self, message: messages.RuleChainChanged) -> None:
        """Go by these rules from now on."""
        self._store.announcements.include_inputs(are_wanted=message.reads_opcodes)
        wall_clock = self._runtime.wall_clock
        self.rules = RulesInForce(message.rules, message.chain, wall_clock=wall_clock)
        self._serial = message.serial
        for row in self._table.in_phase(Phase.HANDED_OVER):
            if not row.status.is_final:
                # The process asks again if it waits.
                changed = messages.DeliverToJob(job_id=row.id, message=messages.GateChanged())
                self._runtime.tell(EXECUTOR, changed)
        self._confirm()

    def acknowledge(self, serial: int) -> None:
        """Note that the scheduler decides by the rules with this serial."""
        self._acknowledged_serial = serial
        self._confirm()

    def _confirm(self) -> None:
        """Report the rules in force if both scheduler and queue go by them.

        The report follows the flush of this turn: the queue has answered all starts under older
        rules by then, or has not recorded them, and their processes have to ask again.
        """
        if self._acknowledged_serial == self._serial:
            in_force = messages.RulesApplied(serial=self._serial)
            report = functools.partial(self._runtime.tell, CONFIG_STORE, in_force)
            self._store.ledger.after_commit(report, lambda _: report())

    def decide(self, job: jobs.Job | Row, chosen: messages.ChosenUnder) -> messages.GateAnswered:
        """Whether the job's next opcode may start; reads the job only if the rules matter."""
        assert self.rules is not None
        if isinstance(job, Row):
            if self.rules.lets_all_start(chosen):
                return messages.GateAnswered(is_open=True, chain=self.rules.chain_number)
            job = self._store.read(job.id)
        return self.rules.gate(job, chosen, has_begun=job.has_begun)

    def answer(self, envelope: Envelope, message: messages.AskGate) -> None:
        """Answer the process of a job."""
        row = self._table.find(message.job_id)
        if row is None or row.phase is not Phase.HANDED_OVER:
            # An earlier process of the job, which the queue has given up.
            envelope.reply(messages.GateAnswered(is_open=True))
            return
        envelope.reply(self.decide(row, message.chosen))
