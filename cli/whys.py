"""Tells what holds a job back while nothing comes of it: the first line of `ganger job why`.

It goes to standard error, because standard output is the job's. A watch hears of its own jobs
only, so that a change of the cause (another job holds the lock now) is asked for, at growing
intervals; every news of the job makes them short again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..storage import errors, job_views, jobs
from . import output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..transport.client.client import Client
    from ..transport.messages import JobExplained

PAUSE_SECONDS = 1.0
"""How long nothing comes before it is asked why."""

INTERVAL_SECONDS_MAX = 15.0
"""Longest time between two questions about one job."""

JOBS_MAX = 3
"""Of how many jobs that wait it is told; more would hide what is waited for."""

ANSWER_SECONDS = 2.0
"""How long an answer may take: news of the job waits meanwhile."""

_HELD = (jobs.JobStatus.QUEUED, jobs.JobStatus.WAITING, jobs.JobStatus.CANCELING)


def quiet_option(function: Callable[..., int]) -> Callable[..., int]:
    """The option that keeps reasons back; it arrives as ``quiet``."""
    return click.option("-q", "--quiet", is_flag=True, help="Do not tell what a job waits for.")(
        function
    )


def watched(
    client: Client, ids: Sequence[int], *, log: bool, timeout: float | None, quiet: bool
) -> Iterator[job_views.StatusChange | job_views.LogLine]:
    """The parts of a watch; in its pauses it is told what holds the jobs back, unless ``quiet``."""
    if quiet or not ids:
        yield from client.watch(*ids, log=log, timeout=timeout)
        return
    yield from _told(client, client.watch(*ids, log=log, timeout=timeout, pause=PAUSE_SECONDS))


def followed(
    client: Client, job_id: int, *, quiet: bool
) -> Iterator[job_views.StatusChange | job_views.LogLine | job_views.OutputChunk]:
    """As `watched`, of one job with all of its output."""
    if quiet:
        yield from client.follow(job_id)
    else:
        yield from _told(client, client.follow(job_id, pause=PAUSE_SECONDS))


def _told(client: Client, parts: Iterator[Any]) -> Iterator[Any]:
    """The parts that are something; where nothing came, what holds the jobs back is told."""
    whys = Whys(client)
    for part in parts:
        if part is None:
            for line in whys.lines(time.monotonic()):
                output.echo(f"ganger: {line}", err=True)
        else:
            whys.hear(part)
            yield part


class _Held(msgspec.Struct):
    """A job that does not run: the cause that was told, and when to ask again."""

    cause: object = None
    interval: float = PAUSE_SECONDS
    ask_at: float = 0.0


class Whys:
    """Which of the jobs that are watched are held back, and what was told of them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._held: dict[int, _Held] = {}

    def hear(self, part: object) -> None:
        """There is news of a job: what holds it back may be something else now."""
        if not isinstance(part, job_views.StatusChange):
            return
        if part.status not in _HELD:
            self._held.pop(part.job_id, None)
            return
        held = self._held.setdefault(part.job_id, _Held())
        held.interval, held.ask_at = PAUSE_SECONDS, 0.0

    def lines(self, now: float) -> Iterator[str]:
        """What is to be told now, at ``now`` monotonic seconds: causes that are new."""
        for job_id, held in list(self._held.items())[:JOBS_MAX]:
            if now < held.ask_at:
                continue
            held.ask_at = now + held.interval
            held.interval = min(2 * held.interval, INTERVAL_SECONDS_MAX)
            try:
                answer = self._client.explain(job_id, timeout=ANSWER_SECONDS)
            except errors.GangerError:
                # The watch itself finds out what is wrong, and says it.
                return
            cause = _cause(answer)
            if answer.status in _HELD and cause != held.cause:
                held.cause = cause
                yield answer.text


def _cause(answer: JobExplained) -> object:
    """What the first obstacle consists in, without what changes while it stays the same."""
    if not answer.obstacles:
        return answer.text
    first = answer.obstacles[0]
    named = first.jobs if first.kind in ("dependency", "lock") else []
    return first.kind, first.held, first.rule, first.lock, named
