"""What has happened to jobs lately: one watch of the daemon, for all who listen. Pure but `follow`.

The feed keeps the last events in a ring. A listener remembers its place in the ring and nothing
else: a slow one falls behind, and is told so, but keeps nothing in memory. All listeners wait
together for the next event (`Feed.news`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

import msgspec

from ..storage import errors
from ..storage.access import rapi_settings
from ..storage.jobs.job_views import JobInfo, StatusChange
from ..storage.jobs.jobs import JobStatus
from ..storage.jobs.outcomes import Outcome

if TYPE_CHECKING:
    from ..transport.client.async_client import AsyncClient


_FINAL = tuple(status for status in JobStatus if status.is_final)

_REST: Final = 20
"""The pause between two looks at which jobs there are, in times of what one takes."""


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A job has another status. Times in seconds since the epoch.

    ``previous``: the status before; None: it was not known. ``outcome``, ``reason_ended`` and
    ``cause``: those of a job that has ended.
    """

    number: int
    time: float
    job_id: int
    status: str
    previous: str | None
    summary: str
    priority: int
    reason: str
    received: float | None
    started: float | None
    ended: float | None
    outcome: Outcome | None = None
    reason_ended: str = ""
    cause: int | None = None


class Feed:
    """The last events of all jobs, numbered from 1, and the present state of live ones.

    ``mark`` names this feed: numbers of another process's feed mean nothing here.
    """

    def __init__(self, mark: str, *, size: int = rapi_settings.EVENTS_KEPT) -> None:
        self.mark = mark
        self._events: deque[JobEvent] = deque(maxlen=size)
        self._last = 0
        self._news = asyncio.Event()
        self._live: dict[int, JobInfo] = {}
        self._ended: dict[int, JobInfo] = {}
        self._heard: list[Callable[[JobEvent, JobInfo], None]] = []
        self._known_mark: int | None = None
        self._looks_from = 0.0
        self.is_connected = False
        """Whether the daemon is being watched."""
        self.listeners = 0
        """How many streams of events are open."""

    @property
    def last(self) -> int:
        """The number of the newest event; 0: there was none yet."""
        return self._last

    @property
    def live(self) -> dict[int, JobInfo]:
        """The jobs that have not ended, by id, as far as the feed has heard of them."""
        return self._live

    @property
    def ended(self) -> dict[int, JobInfo]:
        """The last jobs that have ended, by id, in the order of their ends."""
        return self._ended

    def call(self, heard: Callable[[JobEvent, JobInfo], None]) -> None:
        """Call this with each new event, and the job."""
        self._heard.append(heard)

    def add(self, change: StatusChange, now: float) -> JobEvent:
        """Take in a change of a job's status."""
        job = change.job
        if job.is_final:
            self._live.pop(job.id, None)
            self.note_ended(job)
        else:
            self._live[job.id] = job
        self._last += 1
        event = JobEvent(
            number=self._last,
            time=now,
            job_id=job.id,
            status=str(change.status),
            previous=None if change.previous is None else str(change.previous),
            summary=job.summary,
            priority=job.priority,
            reason=job.reason,
            received=job.received,
            started=job.started,
            ended=job.ended,
            outcome=job.outcome,
            reason_ended=job.reason_ended,
            cause=job.cause,
        )
        self._events.append(event)
        for heard in self._heard:
            heard(event, job)
        news, self._news = self._news, asyncio.Event()
        news.set()
        return event

    def note_ended(self, job: JobInfo) -> None:
        """Remember a job that has ended."""
        self._ended[job.id] = job
        if len(self._ended) > rapi_settings.ENDED_KEPT:
            del self._ended[next(iter(self._ended))]

    async def forget_gone(self, client: AsyncClient, now: float) -> None:
        """Forget ended jobs that are archived or purged by now, of which no event tells.

        ``now``: in monotonic seconds. Where there are very many jobs it looks less often.
        """
        before = [*self._ended]
        if not before or now < self._looks_from:
            return
        begin = time.monotonic()
        mark, ids = await client.job_ids(self._known_mark)
        if ids is None:
            return
        self._known_mark = mark
        self._looks_from = now + _REST * (time.monotonic() - begin)
        for gone in set(before).difference(ids):
            self._ended.pop(gone, None)

    def note_priority(self, job_id: int, priority: int) -> None:
        """Remember the new priority of a live job: its status is the same, so no event tells it."""
        job = self._live.get(job_id)
        if job is not None:
            self._live[job_id] = msgspec.structs.replace(job, priority=priority)

    def since(self, number: int) -> list[JobEvent] | None:
        """The events after this number; None if some of them are gone, or it is from elsewhere."""
        if number > self._last:
            return None
        missing = self._last - number
        if missing > len(self._events):
            return None
        # From the end: as a rule only the last few are missing.
        return [self._events[place] for place in range(-missing, 0)]

    async def news(self, after: int, seconds: float) -> bool:
        """Wait for an event after this number; False if none came within so many seconds."""
        if self._last > after:
            return True
        try:
            await asyncio.wait_for(self._news.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def follow(self, client: AsyncClient) -> None:
        """Watch all jobs for ever; after a loss of the daemon begin again."""
        is_filled = False
        while True:
            try:
                if not is_filled:
                    async for job in client.jobs(statuses=_FINAL):
                        self.note_ended(job)
                    is_filled = True
                watch = client.watch(log=False, pause=rapi_settings.PAUSE_SECONDS, gathered=True)
                async for part in watch:
                    self.is_connected = True
                    if isinstance(part, StatusChange) and self._is_new(part):
                        self.add(part, time.time())
            except errors.GangerError:
                self.is_connected = False
                # The client has waited for the daemon already.
                await asyncio.sleep(rapi_settings.PAUSE_SECONDS)

    def _is_new(self, change: StatusChange) -> bool:
        """Whether it is not what a new watch repeats of a job that is known."""
        known = self._live.get(change.job_id)
        return known is None or known.status is not change.status


async def following(feed: Feed, after: int, seconds: float) -> AsyncIterator[list[JobEvent] | None]:
    """The events after this number, as they come; None after so many seconds without one.

    An empty list: events were lost to a slow listener; those after the present ones follow.
    """
    place = after
    while True:
        events = feed.since(place)
        if events is None:
            place = feed.last
            yield []
        elif events:
            place = events[-1].number
            yield events
        elif not await feed.news(place, seconds):
            yield None
