"""``ganger job``: submit, show, follow and change jobs. The other verbs have files of their own."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..storage import errors, wording
from ..storage.jobs import job_views, jobs
from . import (
    choices,
    completing,
    etas,
    following,
    job_list,
    logs,
    many,
    output,
    progress,
    purging,
    reading,
    repeating,
    retrying,
    submitting,
    whys,
)
from .call import known

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..transport.client.async_client import AsyncClient
    from ..transport.client.client import Client
    from ..transport.messages import CancelOutcome, PriorityOutcome
    from .call import Call
    from .plans import PlannedJob


@click.group()
def job() -> None:
    """Submit, list, follow and change jobs."""


job.add_command(job_list.list_jobs)
job.add_command(logs.logs)
job.add_command(purging.purge)


@job.command(short_help="Submit a job, jobs or a plan.")
@click.argument("file", required=False, shell_complete=completing.files)
@click.option("--op", "ops", multiple=True, metavar="JSON", help="An opcode; repeated: several.")
@choices.submission_options
@repeating.key_option("a submission")
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until the jobs have ended; fail if one has not ended well (`job wait`).",
)
@click.option(
    "--timeout",
    type=choices.Seconds(),
    metavar="TIME",
    help="With --wait: give up after this time, such as 5m.",
)
@whys.quiet_option
@output.output_option
@click.pass_obj
def submit(
    call: Call,
    *,
    file: str | None,
    ops: Sequence[str],
    name: str | None,
    reason: str | None,
    priority: int | None,
    depends: list[tuple[int, list[str]]],
    dry_run: bool,
    key: str | None,
    wait: bool,
    timeout: float | None,
    quiet: bool,
    output_kind: str,
) -> int:
    """Submit the job, jobs or plan in FILE (JSON or YAML; - is standard input).

    Prints the ids, for a plan with the names of its jobs. All jobs are stored, or none; but a
    filter rule may reject some. These, and the jobs that depend on them, are left out: standard
    error names each with the reason, and the exit code is 1 even if all others succeed. With -o
    json their id is null, and "rejected" has the reason. --name names the job, or the plan.

    In a plan, `for_each: {node: "tag:web"}` makes a job for each node with this tag; {node} in its
    texts is the node's name.
    """
    if timeout is not None and not wait:
        raise errors.UsageError("--timeout: goes with --wait")
    planned, plan = _named(_planned(call, file, ops), name)
    verb = "checking" if dry_run else "submitting"
    with call.client() as client:
        with progress.during(f"{verb} {wording.counted(len(planned), 'job')}"):
            entries = submitting.send(
                client,
                planned,
                reason=reason,
                priority=priority,
                depends=depends or None,
                plan=plan,
                key=key,
                dry_run=dry_run,
            )
        code = submitting.tell(entries, planned, output_kind, dry_run=dry_run)
        ids = [one.id for one in entries if one.id is not None]
        if not (wait and ids):
            return code
        names = {one.id: one.name for one in entries if one.id is not None and one.name}
        return following.wait(client, ids, timeout, names, quiet=quiet) or code


def _planned(call: Call, file: str | None, ops: Sequence[str]) -> list[PlannedJob]:
    from . import plans  # noqa: PLC0415 - most commands read no plan

    if bool(file) == bool(ops):
        raise errors.UsageError("give either FILE (or -) or --op")
    if ops:
        return [plans.PlannedJob(ops=[_opcode(text) for text in ops])]
    assert file is not None
    source = "standard input" if file == "-" else file
    text = reading.read_submission(file)

    def find_nodes(words: Sequence[str]) -> list[str]:
        from . import fan_out  # noqa: PLC0415 - most plans name no nodes

        with call.client() as client:
            return fan_out.nodes_of(client, words)

    with progress.during(f"reading {source}") as tell:
        told = functools.partial(_tell_count, tell, source)
        return plans.read(text, source, told, find_nodes)


def _tell_count(tell: Callable[[str], None], source: str, count: int) -> None:
    tell(f"reading {source}: job {count:,}")


def _named(planned: list[PlannedJob], name: str | None) -> tuple[list[PlannedJob], str | None]:
    """The jobs and the name of their plan, with ``name`` for the only job, else for the plan."""
    plan = planned[0].plan if planned else None
    if name is None:
        return planned, plan
    if len(planned) == 1:
        return [msgspec.structs.replace(planned[0], name=name)], plan
    return planned, name


def _opcode(text: str) -> dict[str, Any]:
    found = reading.parse_json(text, "--op")
    if not isinstance(found, dict):
        raise errors.UsageError("--op: expected a JSON object with OP_ID")
    return found


@job.command(short_help="Show everything about jobs.")
@output.output_option
@click.pass_obj
@choices.job_ids()
def info(call: Call, *, ids: Sequence[int], output_kind: str) -> int:
    """Show everything about jobs: opcodes, parameters, results, logs, times."""
    with call.client() as client:
        found, code = known(ids, lambda chosen: [client.job(job_id) for job_id in chosen])
    if found:
        following.show(found, output_kind)
    return code


@job.command(short_help="Wait until jobs have ended.")
@click.option(
    "--timeout",
    type=choices.Seconds(),
    metavar="TIME",
    help="Give up after this time, such as 5m (exit code 124).",
)
@whys.quiet_option
@click.pass_obj
@choices.job_ids()
def wait(call: Call, *, ids: Sequence[int], timeout: float | None, quiet: bool) -> int:
    """Wait until jobs have ended; the exit code is 1 if one has not ended well, else 0.

    A job ends well if it succeeds, or is skipped because it was not needed: an alarm, say, whose
    check has succeeded. One that was canceled or rejected has not ended well. How a job ended does
    not count if another one of IDS repeats it: a plan ends as the retries of its jobs do.

    When nothing happens for a second, standard error tells what the first of them wait for.
    """
    with call.client() as client:
        left, code = _there(client, ids)
        return following.wait(client, left, timeout, {}, quiet=quiet) or code if left else code


def _there(client: Client, ids: Sequence[int]) -> tuple[Sequence[int], int]:
    """The jobs that there are, and 1 if others are named: standard error names those."""
    if len(ids) < 2:  # noqa: PLR2004 - a watch of one job says itself that there is none
        return ids, 0
    found, code = known(ids, lambda chosen: list(client.jobs(chosen)))
    there = {one.id for one in found}
    return [job_id for job_id in ids if job_id in there], code


@job.command(short_help="Follow changes of status and logs.")
@click.option(
    "--timeout",
    type=choices.Seconds(),
    metavar="TIME",
    help="Stop after this time, such as 5m (exit code 124).",
)
@whys.quiet_option
@click.pass_obj
@choices.job_ids(required=False)
def watch(call: Call, *, ids: Sequence[int], timeout: float | None, quiet: bool) -> int:
    """Follow jobs (all, for ever, without IDS): changes of status and lines of their logs.

    When nothing happens for a second, standard error tells what the first of IDS wait for.
    """
    with call.client() as client:
        left, code = _there(client, ids)
        if code and not left:
            return code
        going_on = dict.fromkeys(left)
        try:
            for part in whys.watched(client, left, log=True, timeout=timeout, quiet=quiet):
                following.tell(part)
                if isinstance(part, job_views.StatusChange) and part.status.is_final:
                    going_on.pop(part.job_id, None)
        except KeyboardInterrupt:
            if left:
                return following.interrupted([*going_on], "watch")
            raise
    return code


_verbose_option = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help=f"A line for each job, also for more than {many.LINES_MAX}.",
)


@job.command(short_help="Cancel jobs that wait, or with --kill run.")
@click.option(
    "--kill",
    is_flag=True,
    help="Also those that run: their commands get SIGTERM, and SIGKILL 5 seconds later; a job "
    "that does not react at all is ended after 10 seconds.",
)
@_verbose_option
@click.pass_obj
@choices.job_ids()
def cancel(call: Call, *, ids: Sequence[int], kill: bool, verbose: bool) -> int:
    """Cancel jobs that wait; an opcode that runs already is interrupted only with --kill."""

    async def cancel_one(client: AsyncClient, job_id: int) -> tuple[bool, str]:
        outcome = await client.cancel(job_id, kill=kill)
        return await _outcome(client, job_id, outcome, "; --kill ends it" if not kill else "")

    return many.each(call, ids, cancel_one, is_whole=verbose)


@job.command("change-priority", short_help="Set the priority of what has not started.")
@click.option(
    "--priority",
    type=choices.Priority(),
    required=True,
    metavar="N",
    help="-20 (most urgent) to 19, or high, normal, low.",
)
@_verbose_option
@click.pass_obj
@choices.job_ids()
def change_priority(call: Call, *, ids: Sequence[int], priority: int, verbose: bool) -> int:
    """Set the priority (-20, most urgent, to 19) of the opcodes of jobs that have not started."""

    async def change_one(client: AsyncClient, job_id: int) -> tuple[bool, str]:
        return await _outcome(client, job_id, await client.set_priority(job_id, priority))

    return many.each(call, ids, change_one, is_whole=verbose)


async def _outcome(
    client: AsyncClient, job_id: int, outcome: CancelOutcome | PriorityOutcome, hint: str = ""
) -> tuple[bool, str]:
    """The outcome as a line. Ganeti's text for an ended job is the one for an unknown job."""
    if outcome.accepted:
        return True, outcome.text
    now = await client.job(job_id)
    if now.is_final:
        where = " and is archived" if now.archived else ""
        return False, f"Job {job_id} has ended ({following.state(now)}){where}"
    if now.status is jobs.JobStatus.RUNNING:
        return False, f"{outcome.text}: it is running{hint}"
    return False, outcome.text


@job.command(short_help="Submit an ended job again.")
@click.argument("job_id", metavar="ID", type=choices.JobId())
@click.option("--all", "whole", is_flag=True, help="From the first opcode on, whatever succeeded.")
@click.option(
    "--edit", is_flag=True, help="Edit the opcodes first, in $VISUAL or $EDITOR (else vim, nano)."
)
@click.option(
    "--ops", "file", metavar="FILE", help="With the opcodes in FILE (JSON or YAML) instead."
)
@repeating.key_option("a submission")
@click.pass_obj
def retry(
    call: Call, *, job_id: int, whole: bool, edit: bool, file: str | None, key: str | None
) -> None:
    """Submit a new job like one that ended, from its first opcode that did not succeed on.

    Prints the new id. Each of the two jobs names the other. If the old job depends on one that did
    not end as it should, the new one depends on the newest retry of that, and is refused as long as
    there is none that may succeed: retry the job that failed first, then those that were skipped.
    """
    if file is not None and (edit or whole):
        raise errors.UsageError("--ops: goes neither with --edit nor with --all")
    with call.client() as client:
        if edit:
            output.echo(retrying.edited(client, job_id, whole=whole, key=key))
            return
        ops = None if file is None else retrying.read(reading.read_submission(file), file)
        with repeating.under(key) as used:
            output.echo(client.retry(job_id, whole=whole, ops=ops, key=used))


@job.command(short_help="Tell why jobs do not run.")
@output.output_option
@click.pass_obj
@choices.job_ids()
def why(call: Call, *, ids: Sequence[int], output_kind: str) -> int:
    """Tell why jobs do not run: what holds each back, and what would let it start.

    The first line is the first thing that holds the job back; the others follow, and the smallest
    change that would let it start or go on.
    """
    if output_kind == "json":
        with call.client() as client:
            answers, code = known(ids, lambda some: [whys.asked(client, each) for each in some])
            plan = client.eta()
        output.show_json(
            [
                msgspec.to_builtins(one) | {"eta": msgspec.to_builtins(etas.of(plan, one))}
                for one in answers
            ]
        )
        return code

    async def why_one(client: AsyncClient, job_id: int) -> tuple[bool, str]:
        answer = whys.in_commands(await client.explain(job_id))
        lines = [] if answer.status.is_final else etas.lines(await client.eta(), job_id)
        return True, "\n".join([whys.shown(answer), *lines])

    return many.each(call, ids, why_one, is_whole=True)


@job.command(short_help="Tell when jobs will start and end.")
@click.option("--all", "is_all", is_flag=True, help="All jobs that run or are pending.")
@output.output_option
@click.pass_obj
@choices.job_ids(required=False)
def eta(call: Call, *, ids: Sequence[int], is_all: bool, output_kind: str) -> int:
    """Tell when jobs will start and end, from the run times of earlier jobs.

    The plan gives run slots to jobs in the scheduler's order. It knows dependencies and the locks
    with which jobs are certain to begin, but no jobs to come. Below it stands how wrong the last
    estimates of run times were.
    """
    if bool(ids) == is_all:
        raise errors.UsageError("give either IDS or --all")
    with call.client() as client:
        named, code = known(ids, lambda chosen: list(client.jobs(chosen))) if ids else ([], 0)
        plan = client.eta()
    found = list(plan.jobs.values()) if is_all else [etas.of(plan, one) for one in named]
    if found or not code:
        etas.show(plan, found, output_kind)
    return code


@job.command(short_help="Archive jobs that have ended.")
@_verbose_option
@click.pass_obj
@choices.job_ids()
def archive(call: Call, *, ids: Sequence[int], verbose: bool) -> int:
    """Move jobs that have ended to the archive."""

    async def archive_one(client: AsyncClient, job_id: int) -> tuple[bool, str]:
        try:
            await client.archive(job_id)
        except errors.UnknownJobError:
            # The daemon archives live jobs only; an archived one can still be read.
            now = await client.job(job_id)
            if not now.archived:
                raise
            return False, f"Job {job_id} is in the archive already"
        return True, f"Job {job_id} is archived"

    return many.each(call, ids, archive_one, is_whole=verbose)


@job.command(short_help="Archive jobs that ended some time ago.")
@click.argument("age", type=choices.Age())
@click.pass_obj
def autoarchive(call: Call, age: float) -> None:
    """Archive the jobs that ended longer than AGE ago: 90 (seconds), 30m, 2h, 7d, or all."""
    with call.client() as client:
        outcome = client.autoarchive(age)
    verb = "is" if outcome.left == 1 else "are"
    left = f"; {outcome.left} {verb} left, repeat the call" if outcome.left else ""
    output.echo(f"{wording.counted(len(outcome.archived), 'job')} archived{left}")
