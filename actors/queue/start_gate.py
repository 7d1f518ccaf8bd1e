"""The gate: no opcode of a chosen job starts but under the rules in force at that moment.

It is passed when a process takes the job over, when the process asks (it does so before it asks
for the locks of a later opcode, and when the rules change while it waits), and with the state
that says that an opcode runs. That last one decides, so that an ordinary job asks nothing extra.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ...storage import jobs
from ...storage.jobs import JobStatus
from ...transport import messages
from ..runtime.addresses import CONFIG_STORE, EXECUTOR
from .job_store import QueueCore
from .job_table import Phase, Row

if TYPE_CHECKING:
    from ...transport.envelopes import Envelope


class QueueGate(QueueCore):
    """Says whether the next opcode of a job may start, and takes back what may not."""

    def _gate(self, job: jobs.Job | Row, chosen: messages.ChosenUnder) -> messages.GateAnswered:
        """Whether the job's next opcode may start; its body is read only if the rules matter."""
        assert self._door is not None
        if isinstance(job, Row):
            if self._door.lets_all_start(chosen):
                return messages.GateAnswered(is_open=True, chain=self._door.chain_number)
            job = self._read(job.id)
        return self._door.gate(job, chosen, has_begun=job.has_begun)

    def _ask_gate(self, envelope: Envelope, message: messages.AskGate) -> None:
        row = self._table.find(message.job_id)
        if row is None or row.phase is not Phase.HANDED_OVER:
            # An earlier process of the job, which nobody waits for any more.
            envelope.reply(messages.GateAnswered(is_open=True))
            return
        envelope.reply(self._gate(row, message.chosen))

    def _take_off(self, row: Row, job: jobs.Job, gate: messages.GateAnswered) -> None:
        """The job was chosen, but must not start now: no process has it yet."""
        row.phase = Phase.PENDING
        if gate.is_rejected:
            self._end_doomed(row.id, "rejected", gate.text)
        else:
            # The scheduler frees its run slot, and chooses anew.
            self._announce([(row, job.judged_inputs)])

    def _chosen_still(self, message: messages.JobsChosen) -> list[int]:
        """The jobs that were chosen, without those that priorities of now may put behind others.

        Of these the scheduler hears again: it frees their run slots, and chooses anew when it knows
        the priorities.
        """
        known = message.priorities
        self._moved = {one: move for one, move in self._moved.items() if move > known}
        moved = [row for row in map(self._table.find, self._moved) if row is not None]
        moved = [row for row in moved if row.phase is Phase.PENDING]
        if not moved:
            return message.start
        first = min(map(_order, moved))
        rows = [row for row in map(self._table.find, message.start) if row is not None]
        passed = [
            row
            for row in rows
            if row.phase is Phase.PENDING and (row.id in self._moved or _order(row) > first)
        ]
        if passed:
            self._announce((row, None) for row in passed)
        gone = {row.id for row in passed}
        return [job_id for job_id in message.start if job_id not in gone]

    def _make_way(self, row: Row) -> None:
        """A pending job has become more urgent: one behind it that has no process yet goes back.

        The scheduler chooses anew between the two, and knows whether this one may start at all.
        """
        starting = [one for one in map(self._table.find, self._forked) if one is not None]
        behind = [
            one for one in starting if one.phase is Phase.STARTING and _order(one) > _order(row)
        ]
        if behind and row.status is JobStatus.QUEUED:
            self._unchoose([max(behind, key=_order)])

    def _obey_limit(self, message: messages.LimitAcknowledged) -> None:
        """Jobs beyond the number of run slots that have no process yet go back, the last first.

        Told after the flush of this turn, as with rules.
        """
        rows = self._table.in_phase(Phase.STARTING, Phase.HANDED_OVER)
        occupants = [row for row in rows if not row.status.is_final]
        starting = sorted((row for row in occupants if row.phase is Phase.STARTING), key=_order)
        stay = max(0, message.running_jobs_max - (len(occupants) - len(starting)))
        if beyond := starting[stay:]:
            self._unchoose(beyond)
        in_force = messages.LimitInForce(serial=message.serial)
        tell = functools.partial(self.runtime.tell, CONFIG_STORE, in_force)
        self._ledger.after_commit(tell, lambda _: tell())

    def _unchoose(self, rows: list[Row]) -> None:
        """These have no process yet, and get none; the scheduler hears that they are pending."""
        for row in rows:
            row.phase = Phase.PENDING
        self._announce((row, None) for row in rows)

    def _tell_gate_changed(self) -> None:
        """Let processes that wait ask again, whichever those are: each of them knows."""
        for row in self._table.in_phase(Phase.HANDED_OVER):
            if not row.status.is_final:
                changed = messages.DeliverToJob(job_id=row.id, message=messages.GateChanged())
                self.runtime.tell(EXECUTOR, changed)


def _order(row: Row) -> tuple[int, int]:
    """Where the scheduler looks at the job; smaller ones come first."""
    return row.priority, row.id
