"""How jobs have ended, for the jobs that depend on them: live ones, and those in the archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import errors
from ...storage.jobs import jobs, listing, origins, outcomes
from ...storage.jobs.jobs import JobStatus
from ...storage.jobs.outcomes import ANY_FAILED, SUCCEEDED, Ending, JobEnd, Outcome
from ...transport import messages
from ..runtime.addresses import SCHEDULER
from ..scheduling.depending import none_failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..runtime.component import Runtime
    from .job_table import JobTable


class Endings:
    """Finds in the table or the archive how a job has ended."""

    def __init__(
        self, runtime: Runtime, table: JobTable, read_archived: Callable[[int], bytes | None]
    ) -> None:
        """``read_archived``: the text of an archived job; None: there is none."""
        self._runtime = runtime
        self._table = table
        self._read_archived = read_archived

    def of(self, job_id: int) -> JobEnd | None:
        """The status of a live or archived job, and how it ended; None if there is no such job."""
        row = self._table.find(job_id)
        if row is not None:
            return row.end
        job = self._archived(job_id)
        return None if job is None else outcomes.end_of(job.status, outcomes.ending_of(job))

    def report(self, ids: list[int]) -> None:
        """Send the scheduler the statuses of these jobs."""
        ends = {job_id: self.of(job_id) for job_id in ids}
        found = [(job_id, None if end is None else end.status) for job_id, end in ends.items()]
        told = messages.StatusesReported(jobs=found, outcomes=outcomes.telling(ends))
        self._runtime.tell(SCHEDULER, told)

    def skipped(self, decisive: int | None, depends: Iterable[tuple[int, Iterable[str]]]) -> Ending:
        """The ending of a job that cannot go on because of this dependency.

        None: because of those of ``depends`` of which one should have failed.
        """
        if decisive is None:
            group = [target for target, words in depends if ANY_FAILED in words]
            text = (
                f"not needed, as {none_failed(group)}" if group else "its dependencies have ended"
            )
            return Ending(Outcome.SKIPPED, outcomes.one_line(text))
        other = self._table.find(decisive)
        if other is not None:
            # Its end may not be durable yet: it is stored in the same turn, before this one.
            known = other.run.ending or (SUCCEEDED if other.status is JobStatus.SUCCESS else None)
            return outcomes.skipped(decisive, other.origin.name or other.summary, known)
        job = self._archived(decisive)
        if job is None:
            return outcomes.skipped(decisive, "", None)
        label = origins.origin_of(job.extra).name or listing.job_summary(job)
        return outcomes.skipped(decisive, label, outcomes.ending_of(job))

    def _archived(self, job_id: int) -> jobs.Job | None:
        """A job from the archive; None if there is none that can be read."""
        try:
            data = self._read_archived(job_id)
            return None if data is None else jobs.decode_job(data)
        except errors.StorageError as error:
            # Nothing says how it ended: a job that depends on it fails as if it were missing.
            self._runtime.log.error("archived job cannot be read", job=job_id, error=error.text)
            return None
