"""What the queue tells the filter evaluator and the scheduler about its jobs.

All of it goes by way of the filter evaluator, so that nothing about a job arrives before the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...storage.jobs import outcomes
from ...transport import messages
from ..runtime.addresses import FILTER_EVALUATOR
from .ages import Ages
from .job_rows import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..durable.ledger import Ledger
    from ..runtime.component import Runtime
    from .job_rows import Row
    from .job_table import JobTable

Arrival = tuple["Row", "list[dict[str, object]] | None"]
"""A pending job, and the inputs of its opcodes where they are at hand."""


class Announcements:
    """Announces pending jobs and new priorities, and knows which priorities may be news."""

    def __init__(self, runtime: Runtime, table: JobTable, ledger: Ledger) -> None:
        self.report = runtime.incarnation << 32
        """Number of the newest report of the whole queue. Choices carry it."""

        self._runtime = runtime
        self._table = table
        self._ledger = ledger
        self.has_read_all = False
        """Whether a report has gone through all jobs: no row lacks anything that can be read."""

        self.includes_inputs = False
        """Whether a rule looks at the inputs of opcodes, so that they are sent along."""
        self._priorities = 0
        self._unknown: dict[int, int] = {}
        self.ages = Ages(runtime)

    def include_inputs(self, *, are_wanted: bool) -> None:
        """Send the inputs of opcodes along, because a rule looks at them; or do not."""
        self.includes_inputs = are_wanted

    # ------------------------------------------------------------ jobs

    def pending(self, arrivals: Iterable[Arrival]) -> None:
        """Announce jobs that are pending, for the first time or again, in the order of ids."""
        arrived = [
            messages.JobToJudge(
                job=row.as_pending(),
                inputs=inputs if self.includes_inputs else None,
                class_inputs=row.inputs,
            )
            for row, inputs in arrivals
        ]
        notice = messages.JobsArrived(jobs=arrived, report=self.report)
        self._runtime.tell(FILTER_EVALUATOR, notice)

    def finished(self, ends: messages.JobsFinished) -> None:
        """Announce the ends of jobs that may have been announced as pending just before."""
        self._runtime.tell(FILTER_EVALUATOR, ends)

    def whole_queue(self) -> None:
        """Announce all pending jobs, page by page, and those that hold a run slot."""
        self.report += 1
        self._unknown.clear()
        running = self._table.in_phase(Phase.STARTING, Phase.HANDED_OVER)
        rows, next_after = self._rows_of_report(0)
        notice = messages.JobsArrived(
            jobs=[_known_to_rules(row) for row in rows],
            is_all=True,
            running=[_bare(row) for row in running if not row.status.is_final],
            report=self.report,
            next_after=next_after,
            came=self.ages.steps(self._table),
        )
        self._runtime.tell(FILTER_EVALUATOR, notice)

    def rest(self, message: messages.ReportRest) -> None:
        """Announce the next page of all pending jobs, unless another report has begun.

        What became of a job since the report began, the page says, or a notice before or after it.
        """
        if message.report != self.report:
            return
        rows, next_after = self._rows_of_report(message.after)
        notice = messages.JobsArrived(
            jobs=[_known_to_rules(row) for row in rows],
            is_rest=True,
            report=self.report,
            next_after=next_after,
        )
        self._runtime.tell(FILTER_EVALUATOR, notice)

    def _rows_of_report(self, after: int) -> tuple[list[Row], int | None]:
        """The rows of a page, and the id after which the next one begins; None: it is the last."""
        rows, has_more = self._table.pending_after(after, settings.REPORT_JOBS)
        # What a long report takes on its way is free when all have it.
        self._ledger.files.has_left_memory |= has_more
        if (count := self._complete(rows)) < len(rows):
            rows, has_more = rows[:count], True
        self.has_read_all |= not has_more
        # A job of which it is not known what it has to wait for must not start.
        return [row for row in rows if row.is_whole], rows[-1].id if has_more else None

    def _complete(self, rows: list[Row]) -> int:
        """Read what rows lack until the time is up; how many rows were looked at."""
        end = self._runtime.clock() + settings.REPORT_READING_SECONDS
        for count, row in enumerate(rows, 1):
            if not row.is_whole:
                row.complete()
                if self._runtime.clock() >= end:
                    return count
        return len(rows)

    def again(self, message: messages.ReportJobs) -> None:
        """Send these jobs to be judged anew: pending ones, and those that hold a run slot."""
        rows = [row for job_id in message.ids if (row := self._table.find(job_id)) is not None]
        live = [row for row in rows if not row.status.is_final]
        arrived = self._read if message.are_read else self._arrived
        pending = [arrived(row) for row in live if row.phase is Phase.PENDING]
        running = [arrived(row) for row in live if row.phase is not Phase.PENDING]
        notice = messages.JobsArrived(jobs=pending, running=running, is_repeat=True)
        self._runtime.tell(FILTER_EVALUATOR, notice)

    def page(self, message: messages.SweepJobs) -> None:
        """Send a page of the pending jobs to be judged anew."""
        rows, has_more = self._table.pending_after(message.after, settings.SWEEP_JOBS)
        notice = messages.JobsArrived(
            jobs=[self._arrived(row) for row in rows],
            is_repeat=True,
            sweep=message.chain,
            next_after=rows[-1].id if has_more else None,
        )
        self._runtime.tell(FILTER_EVALUATOR, notice)

    def whole(self, row: Row) -> messages.JobToJudge:
        """A job with its text, or with the note that its file has it.

        The queue reads no files here: a thread that reads gives up the interpreter often, and gets
        it back late from a thread that judges jobs. All other requests would wait for it.
        """
        body = self._ledger.in_memory(row.id)
        return messages.JobToJudge(
            job=row.as_pending(),
            inputs=None,
            body=body,
            is_in_file=body is None,
            class_inputs=row.inputs,
        )

    def _read(self, row: Row) -> messages.JobToJudge:
        """A job with its text, which the queue reads: it mends a damaged file."""
        try:
            body = self._ledger.newest(row.id) or b""
        except errors.StorageError:
            # The evaluator holds a job without a text that it can read.
            body = b""
        return messages.JobToJudge(job=row.as_pending(), inputs=None, body=body)

    def _arrived(self, row: Row) -> messages.JobToJudge:
        return self.whole(row) if self.includes_inputs else _bare(row)

    # ------------------------------------------------------------ priorities

    def reprioritised(self, row: Row) -> None:
        """Announce the priority of a job that has no process.

        The notice goes the way of the job itself, so that it does not arrive first.
        """
        self._priorities += 1
        changed = messages.JobReprioritised(
            id=row.id, priority=row.priority, number=self._priorities
        )
        self._runtime.tell(FILTER_EVALUATOR, changed)
        if row.phase is Phase.PENDING:
            self._unknown[row.id] = self._priorities

    def new_priorities(self, known: int) -> list[Row]:
        """Pending jobs whose priorities are newer than the one with the number ``known``.

        ``known`` is the newest one that the scheduler has seen; older ones are forgotten.
        """
        self._unknown = {one: number for one, number in self._unknown.items() if number > known}
        rows = [row for row in map(self._table.find, self._unknown) if row is not None]
        return [row for row in rows if row.phase is Phase.PENDING]


def finished(row: Row) -> messages.JobsFinished:
    """The news of the end of a job."""
    return messages.JobsFinished(
        jobs=[(row.id, row.status)], outcomes=outcomes.telling({row.id: row.end})
    )


def _known_to_rules(row: Row) -> messages.JobToJudge:
    """A job of a report: the evaluator asks for its inputs when a rule must look at them."""
    return messages.JobToJudge(job=row.as_pending(), inputs=None, class_inputs=row.inputs)


def _bare(row: Row) -> messages.JobToJudge:
    return messages.JobToJudge(job=row.as_pending(), inputs=None)
