"""Says why jobs do not go on: `ganger job why`, and one line while a command waits for a job.

That line goes to standard error, because standard output is the job's. The daemon does not report
when the cause changes (another job holds the lock now), so `Whys` asks again at growing intervals,
and at once after each event of the job.
"""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..storage import errors
from ..storage.jobs import job_views, jobs
from ..transport import remedy_words
from . import hints, output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..transport.client.client import Client
    from ..transport.messages import JobExplained, Obstacle

PAUSE_SECONDS = 1.0
"""Seconds of silence after which a command asks why."""

INTERVAL_SECONDS_MAX = 15.0
"""Longest pause between two questions about one job."""

JOBS_MAX = 3
"""Most jobs whose reasons are printed; more lines would hide what a job prints."""

ANSWER_SECONDS = 2.0
"""Deadline of a question: events of the job wait meanwhile."""


def _deleting(rule: str) -> str:
    from ..storage.filters import rules  # noqa: PLC0415 - most commands need no rules

    if rule.startswith(rules.HOLD_PREFIX):
        return f"`ganger release {shlex.quote(rule.removeprefix(rules.HOLD_PREFIX))}`"
    return f"`ganger filter delete {shlex.quote(rule)}`"


_COMMANDS = remedy_words.Commands(
    delete_rule=_deleting,
    give_space=f" (if it is full, {hints.GIVE_SPACE})",
    set_slots=" (`ganger queue limit {slots}`)",
    set_priority=" (`ganger job change-priority {job} --priority {priority}`)",
)


def asked(client: Client, job_id: int) -> JobExplained:
    """Why a job does not run, with the commands that would let it."""
    return in_commands(client.explain(job_id))


def in_commands(answer: JobExplained) -> JobExplained:
    """The answer of the daemon, with the commands that would let the job run."""
    job_id = answer.id
    # An older daemon sends the change in words only.
    return msgspec.structs.replace(
        answer,
        obstacles=[
            msgspec.structs.replace(
                one, change=remedy_words.remedy(one.remedy, one.held, _COMMANDS) or one.change
            )
            for one in answer.obstacles
        ],
        change=remedy_words.remedy(answer.remedy, job_id, _COMMANDS) or answer.change,
    )


def shown(answer: JobExplained) -> str:
    """The lines of ``ganger job why``."""
    lines = [answer.text + (_since(answer.obstacles[0]) if answer.obstacles else "")]
    lines += [
        f"  {_also(answer, obstacle)}{obstacle.text}{_since(obstacle)}"
        for obstacle in answer.obstacles[1:]
    ]
    if answer.ahead is not None:
        what = f"{answer.ahead or 'no'} pending {'jobs have' if answer.ahead > 1 else 'job has'}"
        more = " Only the first of them were looked at." if answer.has_more_ahead else ""
        lines.append(
            f"  Its priority is {answer.priority}; {what} a turn before it, apart from those that "
            f"rules or locks hold back.{more}"
        )
    if answer.change:
        starts = "start" if answer.ahead is not None else "go on"
        steps = remedy_words.steps(answer.remedy, answer.id, _COMMANDS) or [answer.change]
        lines.append(f"  It would {starts} if: {steps[0]}")
        # Each on a line of its own: it may name alternatives.
        lines += [f"    and: {step}" for step in steps[1:]]
    return "\n".join(lines)


def _also(answer: JobExplained, obstacle: Obstacle) -> str:
    return "and: " if obstacle.held == answer.id else "behind it: "


def _since(obstacle: Obstacle) -> str:
    return "" if obstacle.since is None else f", since {output.absolute(obstacle.since)}"


def quiet_option(function: Callable[..., int]) -> Callable[..., int]:
    """The option that suppresses reasons; it arrives as ``quiet``."""
    return click.option("-q", "--quiet", is_flag=True, help="Do not tell what a job waits for.")(
        function
    )


def watched(
    client: Client, ids: Sequence[int], *, log: bool, timeout: float | None, quiet: bool
) -> Iterator[job_views.StatusChange | job_views.LogLine]:
    """The parts of a watch; at its pauses print what holds the jobs back, unless ``quiet``."""
    if quiet or not ids:
        yield from client.watch(*ids, log=log, timeout=timeout)
        return
    parts = client.watch(*ids, log=log, timeout=timeout, pause=PAUSE_SECONDS)
    yield from _with_reasons(client, parts)


def followed(
    client: Client, job_id: int, *, quiet: bool
) -> Iterator[job_views.StatusChange | job_views.LogLine | job_views.OutputChunk]:
    """As `watched`, of one job with all of its output."""
    if quiet:
        yield from client.follow(job_id)
    else:
        yield from _with_reasons(client, client.follow(job_id, pause=PAUSE_SECONDS))


def _with_reasons(client: Client, parts: Iterator[Any]) -> Iterator[Any]:
    """Yield the parts; at each pause (None) print what holds the jobs back."""
    whys = Whys(client)
    for part in parts:
        if part is None:
            for line in whys.lines(time.monotonic()):
                output.echo(f"ganger: {line}", err=True)
        else:
            whys.hear(part)
            yield part


class _Held(msgspec.Struct):
    """A job that has not ended: the cause that was printed, and when to ask again.

    ``is_running``: only a silent node is a cause for that.
    """

    is_running: bool
    cause: object = None
    interval: float = PAUSE_SECONDS
    ask_at: float = 0.0


class Whys:
    """Which of the watched jobs are held back, and the cause that was printed for each."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._held: dict[int, _Held] = {}

    def hear(self, part: object) -> None:
        """Take an event of a job: another cause may hold it back now."""
        if not isinstance(part, job_views.StatusChange):
            return
        if part.status.is_final:
            self._held.pop(part.job_id, None)
            return
        is_running = part.status not in jobs.BEFORE_RUNNING
        held = self._held.setdefault(part.job_id, _Held(is_running))
        held.is_running, held.interval, held.ask_at = is_running, PAUSE_SECONDS, 0.0

    def lines(self, now: float) -> Iterator[str]:
        """The causes that are new at ``now`` monotonic seconds, a line each."""
        for job_id, held in sorted(self._held.items(), key=_is_running)[:JOBS_MAX]:
            if now < held.ask_at:
                continue
            held.ask_at = now + held.interval
            held.interval = min(2 * held.interval, INTERVAL_SECONDS_MAX)
            try:
                answer = self._client.explain(job_id, timeout=ANSWER_SECONDS)
            except errors.GangerError:
                # The watch itself meets the same error, and reports it.
                return
            cause = _cause(answer)
            # A job that is about to start needs no line: nothing holds it back.
            if answer.obstacles and _holds(answer) and cause != held.cause:
                held.cause = cause
                yield answer.text


def _is_running(item: tuple[int, _Held]) -> bool:
    return item[1].is_running


def _holds(answer: JobExplained) -> bool:
    """Whether the job waits: one that runs does for a node that is silent."""
    return answer.status in jobs.BEFORE_RUNNING or answer.obstacles[0].kind == "node"


def _cause(answer: JobExplained) -> object:
    """What identifies the first obstacle. Which jobs fill a limit changes all the time."""
    if not answer.obstacles:
        return None
    first = answer.obstacles[0]
    named = first.jobs if first.kind in ("dependency", "lock") else []
    # A node may be silent again, since another time.
    silence = first.text if first.kind == "node" else ""
    return first.kind, first.held, first.rule, first.lock, named, silence
