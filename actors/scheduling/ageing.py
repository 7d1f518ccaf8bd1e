"""How old jobs are, on a clock that never jumps: pure.

A pending job weighs less with every second that it waits (Ganeti design: predictive queue). Ages
count from when the queue received the job, on the machine's monotonic clock. The time of day is
never looked at, so a clock that is set reorders no jobs. The queue keeps the times too
(`actors/store/ages`): they outlast the scheduler and the daemon, so the bound of a wait does. After
a restart of the machine, ages begin anew.

Ids grow with time, so a job is at least as old as all jobs after it. No time is stored for each
job, but steps: from this id on, jobs came at that time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

STEPS_PER_TICK = 30
"""Jobs that came within this part of a tick count as equally old."""

STEPS_MAX = 4_096
"""Most steps that are kept. With more, each other one goes: its jobs count as a bit older."""

Steps = Sequence[tuple[int, float]]
"""Ids, each with the time from which on jobs from this id on came. Both grow."""


class Arrivals:
    """When jobs came, as seconds on the scheduler's clock.

    ``limit_seconds``: the age at which a job has no weight left; no age exceeds it.
    """

    def __init__(self, tick_seconds: float, limit_seconds: float) -> None:
        self._ids: list[int] = []
        self._times: list[float] = []
        self._last = -1
        self.measure(tick_seconds, limit_seconds)

    def measure(self, tick_seconds: float, limit_seconds: float) -> None:
        """Use another tick and limit. Times that are forgotten remain so."""
        self._step_seconds = tick_seconds / STEPS_PER_TICK
        self._limit_seconds = limit_seconds

    def copy(self) -> Arrivals:
        """The same times, to be changed apart from these."""
        other = Arrivals(self._step_seconds * STEPS_PER_TICK, self._limit_seconds)
        other._ids, other._times = list(self._ids), list(self._times)
        other._last = self._last
        return other

    def steps(self) -> list[tuple[int, float]]:
        """All that is known, for `restart`."""
        return list(zip(self._ids, self._times, strict=True))

    def restart(self, steps: Steps) -> None:
        """Know these times, and no others."""
        self._ids = [job_id for job_id, _ in steps]
        self._times = [time for _, time in steps]
        self._last = self._ids[-1] if steps else -1

    def know(self, job_id: int) -> None:
        """The steps say when this job came."""
        self._last = max(self._last, job_id)

    def note(self, job_id: int, now: float) -> None:
        """A job came now. One with a lower id than another one came before that."""
        if job_id <= self._last:
            return
        self._last = job_id
        if not self._ids:
            self._ids.append(job_id)
            self._times.append(now)
        elif job_id > self._ids[-1] and now >= self._times[-1] + self._step_seconds:
            self._ids.append(job_id)
            self._times.append(now)
            if self._times[0] < now - 2 * self._limit_seconds:
                self._forget(now)
            if len(self._ids) > STEPS_MAX:
                del self._ids[1::2], self._times[1::2]

    def of(self, job_id: int) -> float:
        """When the job came."""
        return self._times[max(0, bisect_right(self._ids, job_id) - 1)] if self._ids else 0.0

    def age(self, job_id: int, now: float) -> float:
        """The job's age in seconds, from 0 to the limit."""
        came = self.of(job_id)
        # As a sum: so the limit is reached at exactly the time that an alarm was set for.
        return self._limit_seconds if now >= came + self._limit_seconds else max(0.0, now - came)

    def _forget(self, now: float) -> None:
        """Drop the steps between the oldest jobs that have no weight left."""
        kept = max(0, bisect_right(self._times, now - self._limit_seconds) - 1)
        del self._ids[:kept], self._times[:kept]
