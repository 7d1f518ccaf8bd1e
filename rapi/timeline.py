"""Where the time of jobs went within the last hour: waiting for what, and running. Ganger's own.

Each job has a row of spans. A span of waiting has a cause (dependency, rule, limit, lock, slots,
order) and its resource; the process asks the daemon for the causes of some jobs at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from ..storage import errors
from ..storage.access import rapi_settings
from ..storage.jobs.job_views import JobInfo
from .declarations import Call, Method, Parameter, Resource, Right
from .problems import HttpError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ..transport.client.async_client import AsyncClient
    from ..transport.messages import JobExplained
    from .feed import Feed, JobEvent

RUNNING = "running"
UNKNOWN = "waiting"
"""The cause of a wait that no request has asked for yet."""


class Span(msgspec.Struct, gc=False):
    """From ``begin`` to ``end`` (None: until now), seconds since the epoch, for one cause."""

    begin: float
    end: float | None
    cause: str
    resource: str = ""
    """The lock, rule or job that it waits for."""


class Row(msgspec.Struct, gc=False):
    """One job, and its spans in order."""

    id: int
    summary: str
    spans: list[Span]
    status: str = ""
    name: str = ""
    outcome: str = ""
    """What happened to the job, if it has ended."""


class Shown(msgspec.Struct):
    """The rows of the jobs that lived after ``since``, the newest last. Times as in spans."""

    now: float
    since: float
    rows: list[Row]
    count: int
    """How many rows there are; the oldest are left out if they are too many."""


class Timeline:
    """The spans of the jobs of the last hour. ``live``: those that have not ended, by id.

    A live job that has only waited so far, and nobody knows for what, has no row in memory: there
    may be very many.
    """

    def __init__(self, live: Mapping[int, JobInfo]) -> None:
        self._live = live
        self._rows: dict[int, Row] = {}
        self._ended: deque[Row] = deque()
        """Rows of jobs that have ended, in the order of their ends."""
        self._turn = 0
        self._is_wanted = asyncio.Event()
        self._round = asyncio.Event()
        """Set when the causes have come that are being asked for."""
        self._looked_at: dict[int, float] = {}
        """When somebody has seen these waiting jobs last; who was asked for comes last."""

    def hear(self, event: JobEvent, job: JobInfo) -> None:
        """Take in an event of the feed."""
        row = self._rows.get(event.job_id)
        if row is None:
            if job.is_final and event.previous is None:
                return
            if not job.is_final and job.received and event.status != RUNNING:
                return
            row = self._rows[event.job_id] = _new_row(job, event.time)
        row.status = event.status
        row.outcome = str(event.outcome or "")
        if job.is_final:
            if job.started is not None and all(span.cause != RUNNING for span in row.spans):
                # It ran between two events.
                self._change(row, job.started, RUNNING, "")
            self._close(row, job.ended or event.time)
            self._ended.append(row)
            self._forget(event.time)
        elif event.status == RUNNING:
            self._change(row, job.started or event.time, RUNNING, "")
        elif row.spans and row.spans[-1].cause == RUNNING:
            # It waits for the locks of its next opcode, or went back to the queue.
            self._change(row, event.time, UNKNOWN, "")

    def explained(self, found: JobExplained, now: float) -> None:
        """The daemon has said why a job waits now."""
        if found.obstacles:
            first = found.obstacles[0]
            resource = first.lock or first.rule or ", ".join(str(job) for job in first.jobs[:3])
            self.waits(found.id, (first.kind, resource), now)

    def waits(self, job_id: int, cause: tuple[str, str], now: float) -> None:
        """The daemon has said for what a job waits now: kind and resource."""
        row = self._rows.get(job_id)
        if row is None and (job := self._live.get(job_id)) is not None:
            row = self._rows[job_id] = _new_row(job, now)
        if row is None or not row.spans or row.spans[-1].cause == RUNNING:
            return
        last = row.spans[-1]
        if last.cause == UNKNOWN:
            # Nothing else was known of this span.
            last.cause, last.resource = cause
        elif (last.cause, last.resource) != cause:
            self._change(row, now, *cause)

    def cause(self, job_id: int) -> tuple[str, str] | None:
        """For what a job waits now, and its resource; None: it does not, or nobody knows yet."""
        row = self._rows.get(job_id)
        if row is None or not _waits(row) or row.spans[-1].cause == UNKNOWN:
            return None
        return row.spans[-1].cause, row.spans[-1].resource

    def look_at(self, job_ids: Iterable[int], now: float) -> None:
        """Somebody sees these waiting jobs: their causes are asked for first for some seconds."""
        for job_id in job_ids:
            self._looked_at[job_id] = now

    async def await_causes(self, job_ids: Collection[int]) -> dict[int, tuple[str, str]]:
        """For what these waiting jobs wait, which somebody sees: what is known after a moment."""
        self.look_at(job_ids, time.time())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rapi_settings.CAUSES_AWAITED_SECONDS):
                # The round that runs may have begun before, and be about other jobs.
                for _ in range(2):
                    if all(self.cause(job_id) for job_id in job_ids):
                        break
                    self._is_wanted.set()
                    await self._round.wait()
        known = {job_id: self.cause(job_id) for job_id in job_ids}
        return {job_id: cause for job_id, cause in known.items() if cause is not None}

    def in_turn(self, count: int) -> list[int]:
        """So many of the jobs that wait: all of them have their turn."""
        rows = self._rows
        found = [one for one in self._live if (row := rows.get(one)) is None or _waits(row)]
        if len(found) <= count:
            return found
        self._turn = (self._turn + count) % len(found)
        return (found + found)[self._turn : self._turn + count]

    def seen(self, count: int, now: float) -> list[int]:
        """So many of the waiting jobs that somebody sees, those without a known cause first."""
        old = now - rapi_settings.LOOKED_AT_SECONDS
        rows, live = self._rows, self._live
        self._looked_at = {
            one: then
            for one, then in self._looked_at.items()
            if then >= old and one in live and ((row := rows.get(one)) is None or _waits(row))
        }
        found = sorted(self._looked_at, key=lambda one: self.cause(one) is not None)[:count]
        for one in found:
            self._looked_at[one] = self._looked_at.pop(one)
        return found

    def shown(self, since: float, now: float, most: int) -> Shown:
        """The rows of jobs that lived after ``since``."""
        rows = [row for row in self._rows.values() if _end(row, now) >= since]
        others = [job for job_id, job in self._live.items() if job_id not in self._rows]
        last = rows[-most:] + [_new_row(job, now) for job in others[-most:]]
        last.sort(key=lambda row: row.id)
        return Shown(now, since, last[-most:], len(rows) + len(others))

    async def follow(self, feed: Feed, client: AsyncClient) -> None:
        """Ask again and again why some of the jobs wait: at once if somebody sees them."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_wanted.wait(), rapi_settings.CAUSES_SECONDS)
            self._is_wanted.clear()
            if feed.is_connected:
                # The daemon cannot answer now, or the job has ended meanwhile.
                with contextlib.suppress(errors.GangerError):
                    await self._ask(client)
            done, self._round = self._round, asyncio.Event()
            done.set()

    async def _ask(self, client: AsyncClient) -> None:
        seen = self.seen(rapi_settings.CAUSES_AT_ONCE, time.time())
        asked = [*dict.fromkeys([*seen, *self.in_turn(rapi_settings.CAUSES_IN_TURN)])]
        if not asked:
            return
        found = await client.causes(asked)
        now = time.time()
        for job_id, cause in found.items():
            self.waits(job_id, cause, now)
        others = [job_id for job_id in asked if job_id not in found]
        for job_id in others[: rapi_settings.EXPLAINED_AT_ONCE]:
            try:
                self.explained(await client.explain(job_id), time.time())
            except errors.TryAgainError:
                raise
            except errors.GangerError:
                # It has ended meanwhile.
                continue

    # ------------------------------------------------------------ rows

    def _change(self, row: Row, now: float, cause: str, resource: str) -> None:
        last = row.spans[-1]
        if last.end is None and last.begin >= now:
            last.begin, last.cause, last.resource = now, cause, resource
            return
        self._close(row, now)
        if len(row.spans) >= rapi_settings.SPANS_MAX:
            # Join the two oldest spans, so that a job that waits in many ways stays small.
            row.spans[1].begin = row.spans[0].begin
            del row.spans[0]
        row.spans.append(Span(now, None, cause, resource))

    def _close(self, row: Row, now: float) -> None:
        if row.spans and row.spans[-1].end is None:
            row.spans[-1].end = max(now, row.spans[-1].begin)

    def _forget(self, now: float) -> None:
        """Forget jobs that ended long ago, and the oldest of too many."""
        old = now - rapi_settings.TIMELINE_SECONDS
        while self._ended:
            first = self._ended[0]
            if _end(first, now) >= old and len(self._ended) <= rapi_settings.TIMELINE_JOBS_MAX:
                return
            self._ended.popleft()
            # A job that comes anew after its end has another row.
            if self._rows.get(first.id) is first:
                del self._rows[first.id]


def _new_row(job: JobInfo, now: float) -> Row:
    spans = [Span(job.received or now, None, UNKNOWN)]
    return Row(job.id, job.summary, spans, str(job.status), job.name)


def _waits(row: Row) -> bool:
    return bool(row.spans) and row.spans[-1].end is None and row.spans[-1].cause != RUNNING


def _end(row: Row, now: float) -> float:
    end = row.spans[-1].end if row.spans else None
    return now if end is None else end


async def read_timeline(call: Call) -> Any:  # noqa: ANN401 - JSON
    """The spans of waiting and running of the last so many seconds."""
    seconds = call.count("seconds", rapi_settings.TIMELINE_SECONDS)
    if not 0 < seconds <= rapi_settings.TIMELINE_SECONDS:
        raise HttpError(400, "Invalid value for the 'seconds' parameter")
    timeline, now = call.of(Timeline), time.time()

    def shown() -> Shown:
        return timeline.shown(now - seconds, now, rapi_settings.TIMELINE_ROWS_MAX)

    waiting = [row.id for row in shown().rows if _waits(row)]
    await timeline.await_causes(waiting[-rapi_settings.TIMELINE_ROWS_DRAWN :])
    return shown()


RESOURCES = (
    Resource(
        path="/2/timeline",
        is_own=True,
        methods={
            "GET": Method(
                handler=read_timeline,
                right=Right.READ,
                summary="Waiting and running of the jobs of the last hour.",
                query=(Parameter("seconds", int, "How far to look back; an hour at most."),),
                reply=Shown,
            )
        },
    ),
)
