"""What a client reads bit by bit: long listings and answers, watches and output.

docs/make_client.py makes `streams` from this file: run it after a change.
"""

# ruff: noqa: ASYNC109 - the deadline of a call is told to the daemon, so each call has one
from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable

import msgspec

from ...storage.jobs.job_views import JobInfo, ListingProgress, LogLine, OutputChunk, job_info
from ...storage.query_views import FieldInfo, QueryAnswer, fields_of, joined_rows, rows_of
from ..messages import ListJobs, ListJobVersions, ReadJob
from . import query_requests, requests
from .async_caller import AsyncCaller
from .following import OutputFollowing, WatchFollowing
from .output_reading import OutputReading
from .placed_log import PlacedLog
from .watch_progress import Part

CALLS_AT_ONCE = 16
"""Whole jobs that are asked for before the first has come."""


class AsyncStreams:
    """Reads the replies that ``caller`` gets; ``timeout`` is the usual deadline."""

    def __init__(self, caller: AsyncCaller, timeout: float) -> None:
        self._caller = caller
        self._timeout = timeout

    async def jobs(
        self,
        pages: list[ListJobs],
        *,
        is_whole: bool,
        limit: int | None = None,
        timeout: float | None,
        progress: Callable[[ListingProgress], None] | None = None,
    ) -> AsyncIterator[JobInfo]:
        """The jobs on these pages of a listing, and on those that follow each; `limit` at most."""
        left = limit
        for first in pages:
            request: ListJobs | None = first
            while request is not None:
                reply = await self._caller.call(request, timeout)
                if progress is not None:
                    progress(ListingProgress(looked_at=reply.next_after, indexed=reply.indexed))
                if left is not None:
                    reply = msgspec.structs.replace(reply, rows=reply.rows[:left])
                    left -= len(reply.rows)
                if is_whole:
                    async for job in self.whole_jobs([row.id for row in reply.rows], timeout):
                        yield job
                else:
                    for row in reply.rows:
                        yield requests.summary_view(row)
                request = None if left == 0 else requests.next_page(request, reply)

    async def whole_jobs(self, ids: list[int], timeout: float | None) -> AsyncIterator[JobInfo]:
        """These jobs whole, in this order."""
        for start in range(0, len(ids), CALLS_AT_ONCE):
            some = [ReadJob(id=job_id) for job_id in ids[start : start + CALLS_AT_ONCE]]
            for found in await self._caller.call_all(some, timeout):
                yield job_info(
                    found.body,
                    archived=found.archived,
                    summary=found.summary,
                    output_removed=found.output_removed,
                )

    async def job_versions(self, timeout: float | None) -> tuple[list[int], list[int]]:
        """The ids of all live jobs, and their versions."""
        ids: list[int] = []
        versions: list[int] = []
        after: int | None = 0
        while after is not None:
            reply = await self._caller.call(ListJobVersions(after=after), timeout)
            ids += reply.ids
            versions += reply.versions
            after = reply.next_after
        return ids, versions

    async def job_ids(
        self, known_mark: int | None, timeout: float | None
    ) -> tuple[int, list[int] | None]:
        """A mark, and the ids of all live jobs; None: they still have the mark that is known."""
        request = ListJobVersions(has_versions=False, known_mark=known_mark)
        reply = await self._caller.call(request, timeout)
        mark, ids = reply.mark, reply.ids
        if mark == known_mark:
            return mark, None
        while reply.next_after is not None:
            request = ListJobVersions(after=reply.next_after, has_versions=False)
            reply = await self._caller.call(request, timeout)
            ids += reply.ids
        return mark, ids

    async def query(self, first: query_requests.Query, timeout: float | None) -> QueryAnswer:
        """The whole answer to a query: that of this page, and of those that follow."""
        fields, pages = await self._query_pages(first, timeout)
        return QueryAnswer(fields=fields, data=[row for page in pages for row in rows_of(page)])

    async def query_json(
        self, first: query_requests.Query, timeout: float | None
    ) -> tuple[list[FieldInfo], bytes]:
        """As `query`, with all rows as JSON."""
        fields, pages = await self._query_pages(first, timeout)
        return fields, joined_rows(pages)

    async def _query_pages(
        self, first: query_requests.Query, timeout: float | None
    ) -> tuple[list[FieldInfo], list[bytes]]:
        """The definitions of the fields, and the rows of each page as JSON."""
        request: query_requests.Query | None = first
        pages: list[bytes] = []
        while request is not None:
            reply = await self._caller.call(request, timeout)
            definitions = reply.fields
            pages.append(reply.rows)
            request = query_requests.next_query(request, reply)
        return fields_of(definitions), pages

    def follow(
        self,
        ids: list[int] | None,
        *,
        log: bool,
        timeout: float | None,
        is_final_only: bool = False,
        is_gathered: bool = False,
        pause: float | None = None,
    ) -> AsyncIterator[Part | None]:
        """The parts of a watch, as they come."""
        begin = functools.partial(
            WatchFollowing,
            ids=ids,
            log=log,
            is_final_only=is_final_only,
            is_gathered=is_gathered,
        )
        return self._caller.follow(begin, timeout=timeout, pause=pause)

    def follow_output(
        self,
        reading: OutputReading,
        *,
        log: bool,
        timeout: float | None,
        pause: float | None = None,
    ) -> AsyncIterator[Part | OutputChunk | None]:
        """The parts of a watch of one job, and its output, as they come."""
        begin = functools.partial(
            OutputFollowing, reading=reading, log=log, timeout_seconds=self._timeout
        )
        return self._caller.follow(begin, timeout=timeout, pause=pause)

    async def output_as_it_comes(
        self, reading: OutputReading, timeout: float | None
    ) -> AsyncIterator[OutputChunk]:
        """The output of a job, until it has ended."""
        async for part in self.follow_output(reading, log=False, timeout=timeout):
            if isinstance(part, OutputChunk):
                yield part

    async def output_and_log(
        self, reading: OutputReading, timeout: float | None, *, follow: bool
    ) -> AsyncIterator[OutputChunk | LogLine]:
        """The output that a job has written, with what it has logged in its place.

        ``follow``: then both as they come, until the job has ended.
        """
        reading.has_marks = True
        job = await anext(self.whole_jobs([reading.job_id], timeout))
        log = PlacedLog(job, op_index=reading.op_index, tail=reading.tail)
        while not reading.is_done:
            page = reading.take(await self._caller.call(reading.request(), timeout))
            for part in log.parts(page):
                yield part
        for part in log.parts(reading.finish() if job.is_final else ()):
            yield part
        for line in log.rest():
            yield line
        if follow and not job.is_final:
            async for new in self._output_and_log_behind(reading, log.last_serial, timeout):
                yield new

    async def _output_and_log_behind(
        self, reading: OutputReading, serial: int, timeout: float | None
    ) -> AsyncIterator[OutputChunk | LogLine]:
        """The output that is still to be read, and the entries of the log after this one."""
        async for part in self.follow_output(reading, log=True, timeout=timeout):
            if isinstance(part, OutputChunk):
                is_wanted = not part.is_mark
            elif isinstance(part, LogLine):
                is_wanted = part.serial > serial and reading.op_index in (None, part.op_index)
            else:
                continue
            if is_wanted:
                yield part

    async def output(
        self, reading: OutputReading, timeout: float | None
    ) -> AsyncIterator[OutputChunk]:
        """The output that a job has written so far."""
        # Raises an error if there is no such job; the pages do not.
        pages = list(requests.listings([reading.job_id], None, archived=False))
        job = await anext(self.jobs(pages, is_whole=False, timeout=timeout))
        while not reading.is_done:
            for chunk in reading.take(await self._caller.call(reading.request(), timeout)):
                yield chunk
        if job.is_final:
            for chunk in reading.finish():
                yield chunk
