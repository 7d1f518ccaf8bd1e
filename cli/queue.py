"""``ganger queue``: drain and limit the queue, and ask what a change would do."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..storage import errors, plain_values
from ..storage.filters import rules
from ..storage.jobs.jobs import JobStatus
from . import (
    choices,
    completing,
    disk_limits,
    output,
    reading,
    repeating,
    rule_names,
    rule_options,
    status,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..transport.messages import Simulated
    from .call import Call

TRACE_POLICIES = (
    "fifo", "predictive-first", "predictive", "hold-back-first", "hold-back", "bound",
)  # fmt: skip
TRACE_KINDS = ("uncontended", "contended", "backlog", "mixed", "hot")
TRACE_JOBS_MAX = 2_000_000
_SLOTS = choices.Whole(least=1, most=plain_values.INTEGER_MAX)


@click.group()
def queue() -> None:
    """Drain and limit the queue, and ask what a change would do."""


@queue.command(short_help="Tell whether it takes jobs, and its limits.")
@output.output_option
@click.pass_obj
def info(call: Call, *, output_kind: str) -> None:
    """Tell whether the queue takes jobs, its limits, and how many jobs it has."""
    with call.client() as client:
        daemon, limits = client.info(), client.limits()
    if output_kind == "json":
        output.show_json(
            {
                "is_drained": daemon.is_drained,
                "is_read_only": daemon.is_read_only,
                "running_jobs_max": limits.running_jobs_max,
                "tracked_jobs_max": limits.tracked_jobs_max,
                "running_jobs_possible": limits.running_jobs_possible,
                "disk": msgspec.structs.asdict(limits.disk),
                "counts": daemon.counts,
                "outcomes": daemon.outcomes,
            }
        )
        return
    output.echo(f"The queue is {status.queue_state(daemon)}")
    output.echo(f"Run slots: {limits.running_jobs_max} (tracked jobs: {limits.tracked_jobs_max})")
    if limits.running_jobs_possible is not None:
        output.echo(
            f"Only {limits.running_jobs_possible} can be used: the daemon may open too few files"
        )
    for line in disk_limits.lines(limits.disk):
        output.echo(line)
    output.echo(f"Jobs: {status.jobs_text(daemon)}")


@queue.command(short_help="Refuse all submissions from now on.")
@click.pass_obj
def drain(call: Call) -> None:
    """Refuse all submissions from now on, even after a restart. Jobs in the queue go on.

    To hold only some jobs, use a filter rule (`ganger filter`).
    """
    with call.client() as client:
        client.drain()
    output.echo("The queue is drained: it takes no jobs")


@queue.command()
@click.pass_obj
def undrain(call: Call) -> None:
    """Take submissions again."""
    with call.client() as client:
        client.drain(drained=False)
    output.echo("The queue is open")


@queue.command(short_help="Set or tell how many jobs run, and what they may take.")
@click.argument("slots", type=_SLOTS, required=False)
@click.option("--tracked", type=_SLOTS, metavar="N", help="Kept for Ganeti's tools alone.")
@disk_limits.options
@repeating.key_option()
@click.pass_obj
def limit(
    call: Call,
    *,
    slots: int | None,
    tracked: int | None,
    disk: dict[str, float],
    key: str | None,
) -> None:
    """Set how many jobs run at once (SLOTS), and what jobs may take of the disk, or show it.

    Running jobs go on. At a limit of output they go on without it, and a mark in the output says
    how much is missing. What is kept longer, or takes more, than it may, the daemon purges as
    `ganger job purge` does.
    """
    with call.client() as client:
        if slots is None and tracked is None and not disk:
            limits = client.limits()
        else:
            with repeating.under(key) as used:
                limits = client.limits(running=slots, tracked=tracked, disk=disk, key=used)
    output.echo(f"Run slots: {limits.running_jobs_max} (tracked jobs: {limits.tracked_jobs_max})")
    for line in disk_limits.lines(limits.disk):
        output.echo(line)


def trace_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that play a trace."""
    for option in (
        click.option("--seed", type=choices.Whole(least=0), metavar="S", help="Of --generate; 0."),
        click.option(
            "--jobs",
            type=choices.Whole(least=1, most=TRACE_JOBS_MAX),
            metavar="N",
            help="Of --generate: how many jobs.",
        ),
        click.option(
            "--policy",
            "names",
            multiple=True,
            metavar="NAME",
            help=f"Play under this policy: {', '.join(TRACE_POLICIES)}. May be repeated; all, if "
            "left out.",
        ),
        click.option(
            "--generate", "kind", type=click.Choice(TRACE_KINDS), help="Play a trace of this kind."
        ),
        click.option("--trace", metavar="FILE", help="Play this trace (- is standard input)."),
    ):
        function = option(function)
    return function


@queue.command(short_help="Tell what a change would do; play a trace of jobs.")
@choices.proposed_rule_option
@click.option(
    "--without", metavar="RULE", shell_complete=completing.rules, help="Without this filter rule."
)
@click.option("--slots", type=_SLOTS, metavar="N", help="With this number of run slots.")
@click.option(
    "--priority",
    "priorities",
    multiple=True,
    metavar="ID|NAME=N",
    shell_complete=completing.jobs_of_option,
    help="With this priority of a job: -20 (most urgent) to 19, or high, normal, low.",
)
@click.option(
    "--ended",
    multiple=True,
    metavar="ID|NAME[=STATUS]",
    shell_complete=completing.jobs_of_option,
    help="If this job had ended (success, unless a status is given).",
)
@trace_options
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
    trace: str | None,
    kind: str | None,
    jobs: int | None,
    seed: int | None,
    names: Sequence[str],
    output_kind: str,
) -> None:
    """Tell what would start now, wait and be rejected after a change. Changes nothing.

    The daemon's own scheduler decides, on a copy.

    With --trace (see `ganger queue record`) or --generate: play a trace of jobs under several
    policies, without a daemon, and compare how long the jobs take and wait.
    """
    if trace is not None or kind is not None:
        if rule is not None or without is not None or priorities or ended:
            raise errors.UsageError("--trace and --generate: go with --slots alone of these")
        _lab("replay").simulate(
            trace, kind, jobs=jobs, seed=seed, names=names, slots=slots, output_kind=output_kind
        )
        return
    if jobs is not None or seed is not None or names:
        raise errors.UsageError("--policy, --jobs and --seed: go with --trace or --generate")
    changes: dict[str, Any] = {
        "rule": None if rule is None else reading.read_rule(rule, "--rule"),
        "priorities": dict(_priority(text) for text in priorities),
        "running": slots,
        "ended": dict(_end(text) for text in ended),
    }
    with call.client() as client:
        left_out = None if without is None else rule_names.whole(client, [without])[0]
        found = client.simulate(without=left_out, **changes)
        called = {rule.uuid: f"the rule '{rule.name}'" for rule in client.filters() if rule.name}
    if output_kind == "json":
        output.show_json(msgspec.to_builtins(found))
        return
    _show(found, {rules.PROPOSED_UUID: "the proposed rule"} | called)


@queue.command(short_help="Write the trace of the jobs.")
@click.option(
    "--since",
    type=rule_options.Moment(is_past=True),
    help="Only jobs that came then or later.",
)
@click.option("--until", type=rule_options.Moment(is_past=True), help="Only jobs that came before.")
@click.pass_obj
def record(call: Call, *, since: float | None, until: float | None) -> None:
    """Write the trace of the jobs, archived ones too, for `ganger queue simulate --trace`.

    It says when each job came, which kinds of opcodes it has, which locks they need and how long
    they ran. Numbers stand for the names of locks and commands. A job that did not run gets the run
    times of others of its kind; if there are none, it is left out. TIME is a span into the past
    (-30m, -7d), 2026-11-21T18:00 (local time, unless it has a zone) or seconds since the epoch.
    """
    if since is not None and until is not None and since >= until:
        raise errors.UsageError("--since: is not before --until")
    stream = reading.standard_output()
    with call.client() as client:
        _lab("recording").record(client, stream, since=since, until=until)


def _lab(name: str) -> Any:  # noqa: ANN401 - a module
    """A file of `ganger[lab]`. Raises `UsageError` if it is not installed."""
    try:
        return importlib.import_module(f".lab.{name}", __package__)
    except ModuleNotFoundError as error:
        text = "traces need the folders `lab`, which this package has left out: install ganger[lab]"
        raise errors.UsageError(text) from error


def _priority(text: str) -> tuple[int, int]:
    job, _, number = text.rpartition("=")
    if not (job and number):
        raise errors.UsageError(f"--priority: expected ID=N or NAME=N, got {text[:60]!r}")
    try:
        priority = choices.Priority().convert(number, None, None)
    except click.BadParameter as error:
        raise errors.UsageError(f"--priority: {error.message}") from error
    return choices.one_job(job, "--priority"), priority


def _end(text: str) -> tuple[int, str]:
    job, equals, status = text.rpartition("=")
    if not equals:
        job, status = text, str(JobStatus.SUCCESS)
    if not job or status not in choices.FINAL_STATUSES:
        known = ", ".join(choices.FINAL_STATUSES)
        raise errors.UsageError(
            f"--ended: expected ID or ID=STATUS with one of {known}, got {text[:60]!r}"
        )
    return choices.one_job(job, "--ended"), status


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


def _show(found: Simulated, called: Mapping[str, str]) -> None:
    """``called``: what to call rules, by their UUIDs, of which the daemon's texts speak."""
    output.echo(f"Would start now: {_listed(found.start) or 'nothing'}")
    if found.granted:
        output.echo(f"Would get their locks now: {_listed(found.granted)}")
    if found.paused:
        output.echo(f"Would pause before their next opcode: {_listed(found.paused)}")
    for job_id, text in found.ended:
        output.echo(f"Would end: {job_id}  {_named(text, called)}")
    if found.more_ended:
        output.echo(f"and {found.more_ended} more would end")
    for waiting in found.waiting:
        output.echo(f"Would wait: {waiting.id}  {_named(waiting.text, called)}")
    more = sum(found.counts.values()) - len(found.waiting)
    if more > 0:
        shown = ", ".join(f"{count} {kind}" for kind, count in found.counts.items())
        output.echo(f"and {more} more; all that would wait, by reason: {shown}")


def _named(text: str, called: Mapping[str, str]) -> str:
    """The daemon's text, with what rules are called in place of their UUIDs."""
    return _RULE.sub(lambda found: called.get(found[1], found[0]), text)


_RULE = re.compile(r"(?:filter rule |rule:)?\b([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")
