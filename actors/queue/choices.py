"""What the scheduler has chosen: the queue starts these jobs, ends others, and takes choices back.

`hand_over` gives a chosen job to its process. A job that can never start, because a dependency
failed say, ends here.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from ...storage import errors
from ...storage.jobs.jobs import JobStatus
from ...transport import messages
from ..runtime.addresses import CONFIG_STORE
from ..store.job_rows import Phase, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..runtime.component import Runtime
    from ..store.job_store import JobStore
    from ..store.start_gate import StartGate
    from .hand_over import HandOver


class Choices:
    """Follows the scheduler's choices as long as they hold."""

    def __init__(
        self, runtime: Runtime, store: JobStore, gate: StartGate, hand_over: HandOver
    ) -> None:
        self._runtime = runtime
        self._gate = gate
        self._store = store
        self._table = store.table
        self._ledger = store.ledger
        self._announcements = store.announcements
        self._hand_over = hand_over
        self._unreadable: set[int] = set()

    def take_choice(self, message: messages.JobsChosen) -> None:
        """Ask for processes for the chosen jobs, and end those that can never start."""
        starting, mistaken = [], []
        # A choice made before our last report was read does not count: the report says that these
        # jobs are pending, and the scheduler will choose anew without knowing that they run.
        is_current = message.report == self._announcements.report
        for job_id in self._still_first(message) if is_current else []:
            row = self._table.find(job_id)
            if row is None or row.phase is not Phase.PENDING:
                mistaken.append(job_id)
                continue
            if not self._ledger.takes_work:
                # It keeps its run slot until the disk works and the whole queue is announced.
                continue
            self._table.give_slot(row, Phase.STARTING)
            # The scheduler may not have known of a new priority yet, at which rules may look.
            chain = 0 if row.is_reprioritised else message.chain
            row.is_reprioritised = False
            row.chosen = messages.ChosenUnder(chain, message.limits.get(job_id, ""))
            with self._reading(row):
                if self._hand_over.mark_starting(row):
                    starting.append((job_id, row.needs_user_opcodes))
        if starting:
            self._hand_over.ask_for_processes(starting)
        if mistaken:
            # They ended before the scheduler heard of them: it must free their run slots.
            self._store.endings.report(mistaken)
        for job_id in message.eligible:
            row = self._table.find(job_id)
            if row is not None and row.phase is Phase.PENDING:
                self._table.give_status(row, JobStatus.QUEUED)
                self._store.reader.changed(row)
        self._end_unsatisfiable(message)

    def _end_unsatisfiable(self, message: messages.JobsChosen) -> None:
        for job_id, verdict, text in message.unsatisfiable:
            if (row := self._table.find(job_id)) is not None:
                with self._reading(row):
                    decisive = message.dependencies.get(job_id)
                    # Of a rule the scheduler knows the UUID alone.
                    why = self._gate.rejection(text) if verdict == "rejected" else text
                    self._store.end_pending(job_id, verdict, why, decisive)

    @contextlib.contextmanager
    def _reading(self, row: Row) -> Iterator[None]:
        """Survive one failure to read the file of a pending job, for want of descriptors say.

        After a retry of the disk the whole queue is announced. If the file still cannot be read, it
        is damaged: the error restarts this component, which then puts the file aside.
        """
        try:
            yield
        except errors.StorageError as error:
            if row.id in self._unreadable:
                raise
            row.phase = Phase.PENDING
            self._unreadable.add(row.id)
            self._ledger.refuse_writes(error)
        else:
            self._unreadable.discard(row.id)

    # ------------------------------------------------------------ choices taken back

    def _still_first(self, message: messages.JobsChosen) -> list[int]:
        """The chosen jobs without those that new priorities may put behind other jobs.

        These are announced again: the scheduler frees their run slots, and chooses anew when it
        knows the priorities.
        """
        moved = self._announcements.new_priorities(message.priorities)
        if not moved:
            return message.start
        first = min(map(_order, moved))
        moved_ids = {row.id for row in moved}
        rows = [row for row in map(self._table.find, message.start) if row is not None]
        passed = [
            row
            for row in rows
            if row.phase is Phase.PENDING and (row.id in moved_ids or _order(row) > first)
        ]
        if passed:
            self._announcements.pending((row, None) for row in passed)
        gone = {row.id for row in passed}
        return [job_id for job_id in message.start if job_id not in gone]

    def make_way(self, row: Row) -> None:
        """A pending job has a new priority: take back one choice behind it, without a process yet.

        The scheduler chooses anew between the two, and knows whether this one may start at all.
        """
        starting = self._table.in_phase(Phase.STARTING)
        behind = [one for one in starting if _order(one) > _order(row)]
        if behind and row.status is JobStatus.QUEUED:
            self._unchoose([max(behind, key=_order)])

    def obey_limit(self, message: messages.LimitAcknowledged) -> None:
        """Take back surplus choices without a process, the last ones first.

        The report follows the flush of this turn, as with rules.
        """
        rows = self._table.in_phase(Phase.STARTING, Phase.HANDED_OVER)
        occupants = [row for row in rows if not row.status.is_final]
        starting = sorted((row for row in occupants if row.phase is Phase.STARTING), key=_order)
        stay = max(0, message.running_jobs_max - (len(occupants) - len(starting)))
        if beyond := starting[stay:]:
            self._unchoose(beyond)
        in_force = messages.LimitApplied(serial=message.serial)
        report = functools.partial(self._runtime.tell, CONFIG_STORE, in_force)
        self._ledger.after_commit(report, lambda _: report())

    def _unchoose(self, rows: list[Row]) -> None:
        """Give these no process; the scheduler hears that they are pending."""
        for row in rows:
            row.phase = Phase.PENDING
        self._announcements.pending((row, None) for row in rows)


def _order(row: Row) -> tuple[int, int]:
    """Where the scheduler looks at the job; smaller ones come first."""
    return row.priority, row.id
