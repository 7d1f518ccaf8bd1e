"""Which questions for more output wait, and until when. Pure."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

HeldT = TypeVar("HeldT")


class Held(msgspec.Struct, Generic[HeldT], frozen=True):
    """A question that waits: the output of ``job_id`` had this ``size``, which is not enough."""

    question: HeldT
    job_id: int
    size: int
    until: float


class Holding(Generic[HeldT]):
    """The questions that wait: of each follower one for each job, the newest."""

    def __init__(self) -> None:
        self._held: dict[tuple[bytes, int], Held[HeldT]] = {}
        self._by_job: dict[int, set[bytes]] = {}

    def __len__(self) -> int:
        """How many wait."""
        return len(self._held)

    def hold(self, follower: bytes, held: Held[HeldT]) -> None:
        """Let this wait; what the follower asked for before of this job was taken out."""
        self._held[follower, held.job_id] = held
        self._by_job.setdefault(held.job_id, set()).add(follower)

    def take(self, follower: bytes, job_id: int) -> Held[HeldT] | None:
        """Take out what this follower waits for of this job."""
        held = self._held.pop((follower, job_id), None)
        if held is not None:
            self._by_job[job_id].discard(follower)
            if not self._by_job[job_id]:
                del self._by_job[job_id]
        return held

    def take_behind(self, job_id: int, size: int) -> list[Held[HeldT]]:
        """Take out those for which there is something, if the output has this size."""
        found = []
        for follower in list(self._by_job.get(job_id, ())):
            if self._held[follower, job_id].size < size:
                held = self.take(follower, job_id)
                assert held is not None
                found.append(held)
        return found

    def take_due(self, now: float) -> list[Held[HeldT]]:
        """Take out those whose time is over."""
        due = [key for key, held in self._held.items() if held.until <= now]
        return [held for key in due if (held := self.take(*key)) is not None]

    def next_due(self) -> float | None:
        """When the first one's time is over; None: none waits."""
        return min((held.until for held in self._held.values()), default=None)
