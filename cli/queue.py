"""``ganger queue``: drain and limit the queue, and ask what would happen if."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..storage import errors
from ..storage.jobs import JobStatus
from . import output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..transport.messages import Simulated
    from .call import Call


@click.group()
def queue() -> None:
    """Drain and limit the queue, and ask what would happen if."""


@queue.command()
@output.output_option
@click.pass_obj
def info(call: Call, *, output_kind: str) -> None:
    """Tell whether the queue is drained, its limits, and how many jobs it has."""
    with call.client() as client:
        daemon, limits = client.info(), client.limits()
    if output_kind == "json":
        output.show_json(
            {
                "is_drained": daemon.is_drained,
                "running_jobs_max": limits.running_jobs_max,
                "tracked_jobs_max": limits.tracked_jobs_max,
                "counts": daemon.counts,
            }
        )
        return
    drained = "drained: it takes no jobs" if daemon.is_drained else "open"
    click.echo(f"The queue is {drained}")
    click.echo(f"Run slots: {limits.running_jobs_max} (tracked jobs: {limits.tracked_jobs_max})")
    shown = ", ".join(f"{count} {name}" for name, count in daemon.counts.items() if count)
    click.echo(f"Jobs: {shown}")


@queue.command()
@click.pass_obj
def drain(call: Call) -> None:
    """Refuse all submissions from now on, also after a restart. Jobs in the queue go on.

    To hold only some jobs, use a filter rule (`ganger filter`).
    """
    with call.client() as client:
        client.drain()
    click.echo("The queue is drained: it takes no jobs")


@queue.command()
@click.pass_obj
def undrain(call: Call) -> None:
    """Take submissions again."""
    with call.client() as client:
        client.drain(drained=False)
    click.echo("The queue is open")


@queue.command()
@click.argument("slots", type=click.IntRange(min=1), required=False)
@click.option(
    "--tracked", type=click.IntRange(min=1), metavar="N", help="Kept for Ganeti's tools alone."
)
@click.pass_obj
def limit(call: Call, slots: int | None, tracked: int | None) -> None:
    """Set how many jobs run at once (SLOTS), or tell it. Jobs that run go on."""
    with call.client() as client:
        limits = client.limits(running=slots, tracked=tracked)
    click.echo(f"Run slots: {limits.running_jobs_max} (tracked jobs: {limits.tracked_jobs_max})")


@queue.command()
@click.option("--rule", metavar="JSON", help="A filter rule as JSON: priority, predicates, action.")
@click.option("--without", metavar="UUID", help="Without this filter rule.")
@click.option("--slots", type=click.IntRange(min=1), metavar="N", help="With so many run slots.")
@click.option(
    "--priority", "priorities", multiple=True, metavar="ID=N", help="With this priority of a job."
)
@click.option(
    "--ended",
    multiple=True,
    metavar="ID[=STATUS]",
    help="If this job had ended (success, unless a status is given).",
)
@output.output_option
@click.pass_obj
def simulate(
    call: Call,
    *,
    rule: str | None,
    without: str | None,
    slots: int | None,
    priorities: Sequence[str],
    ended: Sequence[str],
    output_kind: str,
) -> None:
    """Tell what would start now, wait and be rejected, if. Changes nothing.

    Without options: how things stand. The daemon's scheduler itself decides, on a copy.
    """
    with call.client() as client:
        found = client.simulate(
            rule=None if rule is None else read_rule(rule, "--rule"),
            without=without,
            priorities=dict(_priority(text) for text in priorities),
            running=slots,
            ended=dict(_end(text) for text in ended),
        )
    if output_kind == "json":
        output.show_json(msgspec.to_builtins(found))
        return
    _show(found)


def read_rule(text: str, place: str) -> Mapping[str, Any]:
    """A filter rule written as JSON; `UsageError` names ``place``."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise errors.UsageError(f"{place}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise errors.UsageError(f'{place}: expected a JSON object such as {{"action": "PAUSE"}}')
    return found


def _priority(text: str) -> tuple[int, int]:
    job_id, _, number = text.partition("=")
    try:
        return int(job_id), int(number)
    except ValueError as error:
        raise errors.UsageError(f"--priority: expected ID=N, got {text!r}") from error


def _end(text: str) -> tuple[int, str]:
    job_id, _, status = text.partition("=")
    status = status or JobStatus.SUCCESS
    if not job_id.isdecimal() or status not in list(JobStatus):
        raise errors.UsageError(f"--ended: expected ID or ID=STATUS, got {text!r}")
    return int(job_id), status


def _show(found: Simulated) -> None:
    started = ", ".join(map(str, found.start)) or "nothing"
    click.echo(f"Would start now: {started}")
    for job_id, text in found.ended:
        click.echo(f"Would end: {job_id}  {text}")
    for waiting in found.waiting:
        click.echo(f"Would wait: {waiting.id}  {waiting.text}")
    more = sum(found.counts.values()) - len(found.waiting)
    if more > 0:
        shown = ", ".join(f"{count} {kind}" for kind, count in found.counts.items())
        click.echo(f"and {more} more; all that would wait, by reason: {shown}")
