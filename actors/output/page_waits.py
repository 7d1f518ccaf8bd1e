"""The requests for more output that wait, and until when. Pure."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

RequestT = TypeVar("RequestT")


class PageWait(msgspec.Struct, Generic[RequestT], frozen=True):
    """A waiting request: it needs output of ``job_id`` beyond ``size``."""

    request: RequestT
    job_id: int
    size: int
    until: float


class PageWaits(Generic[RequestT]):
    """The waiting requests: the newest of each follower for each job."""

    def __init__(self) -> None:
        self._held: dict[tuple[bytes, int], PageWait[RequestT]] = {}
        self._by_job: dict[int, set[bytes]] = {}

    def __len__(self) -> int:
        """The number of waiting requests."""
        return len(self._held)

    def add(self, follower: bytes, held: PageWait[RequestT]) -> None:
        """Add a request; the caller has taken out the follower's earlier one for this job."""
        self._held[follower, held.job_id] = held
        self._by_job.setdefault(held.job_id, set()).add(follower)

    def take(self, follower: bytes, job_id: int) -> PageWait[RequestT] | None:
        """Take out this follower's request for this job."""
        held = self._held.pop((follower, job_id), None)
        if held is not None:
            self._by_job[job_id].discard(follower)
            if not self._by_job[job_id]:
                del self._by_job[job_id]
        return held

    def take_behind(self, job_id: int, size: int) -> list[PageWait[RequestT]]:
        """Take out the requests that output of this size can answer."""
        found = []
        for follower in list(self._by_job.get(job_id, ())):
            if self._held[follower, job_id].size < size:
                held = self.take(follower, job_id)
                assert held is not None
                found.append(held)
        return found

    def take_due(self, now: float) -> list[PageWait[RequestT]]:
        """Take out the requests whose time is over."""
        due = [key for key, held in self._held.items() if held.until <= now]
        return [held for key in due if (held := self.take(*key)) is not None]

    def next_due(self) -> float | None:
        """When the first request's time is over; None if none waits."""
        return min((held.until for held in self._held.values()), default=None)
