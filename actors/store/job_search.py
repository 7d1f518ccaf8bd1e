"""Finds jobs by names and conditions, live and archived, in slices. Changes no job."""

from __future__ import annotations

import heapq
import time
from operator import itemgetter
from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...storage.jobs import origins
from ...storage.jobs.job_filters import JobFilter
from ...storage.jobs.plan_runs import Member, newest_run
from ...storage.queue_files.archive_index import ArchiveIndex
from ...transport import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from ...storage.queue_files.archive_index import Found
    from ...storage.queue_files.job_files import QueueDirectory
    from ...transport.envelopes import Envelope
    from ...transport.messages import JobSummary
    from ..runtime.works import Work
    from .job_table import JobTable


class JobSearch:
    """Searches in the table and in the index of the archive."""

    def __init__(
        self,
        table: JobTable,
        directory: QueueDirectory,
        read: Callable[[int], JobSummary],
        begin: Callable[[Work], None],
    ) -> None:
        """``read``: the summary of an archived job, from its file. ``begin``: do this in slices."""
        self._table = table
        self.archive = ArchiveIndex(directory, read, lambda: begin(self._building()))

    def page(self, message: messages.ListJobs, limit: int) -> messages.JobRows:
        """One page of jobs that are looked for; fewer than ``limit`` if that takes long."""
        if message.wanted is not None:
            message.wanted.check()
        is_met = is_wanted(message)
        found: list[JobSummary] = []

        def indexed() -> float | None:
            return self.archive.progress if message.archived else None

        end, last = time.monotonic() + settings.QUERY_SLICE_SECONDS, None
        for job_id, job in self._candidates(message):
            if len(found) == limit or (last is not None and time.monotonic() >= end):
                return messages.JobRows(rows=found, next_after=last, indexed=indexed())
            last = job_id
            if job is not None and is_met(job):
                found.append(job)
        return messages.JobRows(rows=found, indexed=indexed())

    def _candidates(self, message: messages.ListJobs) -> Iterator[Found]:
        """Live and archived jobs together, in the order of ids that is asked for."""
        newest_first = message.newest_first
        table = self._table
        ids = (
            table.ids_before(message.before, message.after)
            if newest_first
            else table.ids_after(message.after)
        )
        live = ((job_id, row.as_summary()) for job_id in ids if (row := table.find(job_id)))
        if not message.archived:
            return live
        archived = self.archive.found(
            after=message.after,
            before=message.before,
            newest_first=newest_first,
            needles=(message.wanted or JobFilter()).needles(message.statuses),
        )
        merged = heapq.merge(live, archived, key=itemgetter(0), reverse=newest_first)
        return _without_twins(merged)

    def find(self, envelope: Envelope, message: messages.FindJobs) -> Work:
        """The newest job of each name; the archive is looked through in slices."""
        if len(message.names) > settings.LIST_PAGE_ROWS:
            text = f"names: expected at most {settings.LIST_PAGE_ROWS}, got {len(message.names)}"
            raise errors.BadRequestError(text)
        found: list[list[int]] = []
        for name in message.names:
            if name == origins.LAST:
                submitter = message.submitter
                live = [] if submitter is None else self._table.newest_of(submitter)
                wanted = JobFilter(user=submitter.shown if submitter is not None else "")
            else:
                live, wanted = self._table.called(name), JobFilter(name=name)
            rows = [row for one in live if (row := self._table.find(one)) is not None]
            if any(row.origin.plan != name or row.origin.retry_of is None for row in rows):
                found.append(live)
                continue
            # What they repeat, and the plan, is in the archive.
            retries = {row.id: Member(row.received, row.origin.retry_of) for row in rows}
            found.append((yield from self._archived_called(name, wanted, retries)))
        envelope.reply(messages.JobsFound(found=found, indexed=self.archive.progress))
        return None

    def _archived_called(
        self, name: str, wanted: JobFilter, retries: dict[int, Member]
    ) -> Generator[None, None, list[int]]:
        """The newest archived job that is called so, or all jobs of the newest plan.

        ``retries``: live jobs that repeat jobs of that plan.
        """
        end = time.monotonic() + settings.QUERY_SLICE_SECONDS
        plan, received = dict(retries), None
        is_met = wanted.test(is_exact=True)
        for _, job in self.archive.found(newest_first=True, needles=wanted.needles()):
            if job is not None and is_met(job):
                if not plan and job.plan != name:
                    return [job.id]
                if received is not None and job.received != received:
                    # It is older than the plan, and so are all that follow.
                    break
                if job.plan == name:
                    plan[job.id] = Member(job.received, job.retry_of)
                    received = received if job.retry_of is not None else job.received
            if time.monotonic() >= end:
                yield
                end = time.monotonic() + settings.QUERY_SLICE_SECONDS
        return newest_run(plan)

    def _building(self) -> Work:
        yield from self.archive.building()
        return None


def is_wanted(message: messages.ListJobs) -> Callable[[JobSummary], bool]:
    """Whether a job has a status, and meets the conditions, that are asked for."""
    statuses = None if message.statuses is None else frozenset(message.statuses)
    is_met = (message.wanted or JobFilter()).test()
    if statuses is None:
        return is_met
    return lambda job: job.status in statuses and is_met(job)


def _without_twins(found: Iterator[Found]) -> Iterator[Found]:
    """An archived job may be in both places for a moment: the live one comes first."""
    last = None
    for job_id, job in found:
        if job is None or job_id != last:
            yield job_id, job
        last = job_id if job is not None else last
