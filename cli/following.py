"""Shows jobs: progress bars while a command waits, the lines of a watch, all about a job."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import msgspec

from ..storage import errors
from ..storage.jobs import job_views, jobs, listing, outcomes
from ..storage.jobs.outcomes import Outcome
from . import output, whys
from .call import INTERRUPTED_EXIT_CODE
from .output import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..transport.client.client import Client


def outcome(job: job_views.JobInfo) -> Outcome | None:
    """What happened to the job; None: it has not ended. A daemon before outcomes sends none."""
    return job.outcome or outcomes.end_of(job.status, None).outcome


def state(job: job_views.JobInfo) -> str:
    """The outcome of a job that has ended, else its status."""
    return str(outcome(job) or job.status)


STATE = Column("state", state, lambda job: output.status_text(state(job)))


def ending(job: job_views.JobInfo) -> str:
    """How a job ended, without its subject: ``failed: exit code 1``."""
    found = outcome(job)
    assert found is not None
    return (
        f"{outcomes.VERBS[found]}: {job.reason_ended}"
        if job.reason_ended
        else outcomes.VERBS[found]
    )


def has_ended_well(client: Client, job: job_views.JobInfo) -> bool:
    """Whether the job has succeeded, or was not needed.

    A job that was skipped is as the job that is the cause.
    """
    found = outcome(job)
    if found is not Outcome.SKIPPED or job.cause is None:
        return found in {Outcome.SUCCESS, Outcome.SKIPPED}
    try:
        [cause] = client.jobs([job.cause])
    except errors.UnknownJobError:
        return False
    return outcome(cause) in {Outcome.SUCCESS, Outcome.SKIPPED}


def duration(job: job_views.JobInfo) -> float | None:
    """How long the job has been running, or ran, in seconds."""
    if job.started is None:
        return None
    return max(0.0, (job.ended if job.ended is not None else time.time()) - job.started)


def wait(
    client: Client,
    ids: Sequence[int],
    timeout: float | None,
    names: dict[int, str],
    *,
    quiet: bool,
) -> int:
    """Wait for jobs, with progress on a terminal; 0 if all of them ended well, else 1.

    How a job ended does not count if one of the others repeats it.
    Prints what they wait for unless ``quiet``. `DeadlineError` after ``timeout`` seconds;
    interrupted: 130, and the jobs go on.
    """
    changes = (
        part
        for part in whys.watched(client, ids, log=False, timeout=timeout, quiet=quiet)
        if isinstance(part, job_views.StatusChange)
    )
    final: dict[int, job_views.JobInfo] = {}
    try:
        for change in shown(changes, ids, names):
            if change.status.is_final:
                final[change.job_id] = change.job
    except KeyboardInterrupt:
        return interrupted([job_id for job_id in ids if job_id not in final], "wait")
    code, repeated = 0, {job.retry_of: job.id for job in final.values()}
    for job_id in dict.fromkeys(ids):
        job = final.get(job_id)
        if job is None:
            output.echo(f"Job {job_id} has not ended", err=True)
            code = 1
        elif outcome(job) is not Outcome.SUCCESS:
            known = names.get(job_id, job.name)
            name = f" ({known})" if known else ""
            retry = repeated.get(job_id)
            then = "" if retry is None else f"; job {retry} repeats it"
            output.echo(f"Job {job_id}{name} {ending(job)}{then}", err=True)
            is_well = retry is not None or has_ended_well(client, job)
            code = code if is_well else 1
    return code


_NAMED_MAX = 10


def interrupted(left: Sequence[int], command: str) -> int:
    """Tell the user who no longer follows these jobs that they go on; the exit code.

    ``command``: of ``ganger job``, which follows them again.
    """
    if left:
        goes_on = "1 job goes on" if len(left) == 1 else f"{len(left)} jobs go on"
        them = "it" if len(left) == 1 else "them"
        named = " ".join(map(str, left)) if len(left) <= _NAMED_MAX else "IDS"
        again = f"follow {them} again with `ganger job {command} {named}`"
        # The terminal shows ^C at the end of the line.
        output.echo(f"\nganger: {goes_on}; {again}", err=True)
    return INTERRUPTED_EXIT_CODE


def shown(
    changes: Iterator[job_views.StatusChange], ids: Sequence[int], names: dict[int, str]
) -> Iterator[job_views.StatusChange]:
    """Yield the changes; on a terminal also show bars: one for all jobs, one for each that runs."""
    if not sys.stderr.isatty() or len(ids) < 2:  # noqa: PLR2004 - one job needs no bar
        yield from changes
        return
    from rich.console import Console  # noqa: PLC0415 - only for people
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True) as progress, output.above(console):
        total, ended = len(set(ids)), 0
        everything = progress.add_task("jobs ended", total=total, count=f"0 of {total}")
        running: dict[int, object] = {}
        for change in changes:
            job_id = change.job_id
            if change.status is jobs.JobStatus.RUNNING and job_id not in running:
                label = f"{job_id} {names.get(job_id, change.job.summary)}"[:60]
                running[job_id] = progress.add_task(output.harmless(label), total=None, count="")
            if change.status.is_final:
                ended += 1
                progress.update(everything, completed=ended, count=f"{ended} of {total}")
                if job_id in running:
                    progress.remove_task(running.pop(job_id))  # type: ignore[arg-type]
            yield change


def tell(part: job_views.StatusChange | job_views.LogLine) -> None:
    """Print one part of a watch as a line."""
    if isinstance(part, job_views.LogLine):
        output.echo(f"{output.absolute(part.time)} job {part.job_id} {part.kind}: {part.text}")
        return
    when, shown = output.absolute(_since(part)), state(part.job)
    why = f" ({part.job.reason_ended})" if part.job.reason_ended else ""
    output.echo(
        f"{when} job {part.job_id} is ",
        output.Styled(shown, fg=_plain_colour(shown), bold=part.status.is_final),
        f"{why}: {part.job.summary}",
    )


def _since(change: job_views.StatusChange) -> float:
    """When the job got this status, if that is stored; else now."""
    known = None
    if change.status.is_final:
        known = change.job.ended
    elif change.status is jobs.JobStatus.RUNNING:
        known = change.job.started
    return time.time() if known is None else known


def _plain_colour(status: str) -> str:
    return output.COLOURS.get(status, "white").split()[-1]


def show(found: Sequence[job_views.JobInfo], output_kind: str) -> None:
    """Print everything about jobs."""
    if output_kind == "json":
        output.show_json(found)
        return
    for number, job in enumerate(found):
        if number:
            output.echo()
        _show_job(job)


def _show_job(job: job_views.JobInfo) -> None:
    output.echo(f"Job ID: {job.id}")
    lines = {
        "Status": str(job.status) + (" (archived)" if job.archived else ""),
        "Outcome": str(outcome(job) or ""),
        "Ended because": job.reason_ended,
        "Cause": "" if job.cause is None else f"job {job.cause}",
        "Summary": job.summary,
        "Name": job.name,
        "Plan": job.plan,
        "Submitted by": job.user,
        "Reason": job.reason,
        # Of a job that has ended it is 0, whatever it was.
        "Priority": "" if job.is_final else str(job.priority),
        "Received": output.absolute(job.received),
        "Processing start": output.absolute(job.started),
        "Processing end": output.absolute(job.ended),
        "Duration": output.span(duration(job)),
        "Process": str(job.process_id or "-"),
        **_further(job),
        "Depends on": ", ".join(
            f"{target} ({', '.join(statuses)})" for target, statuses in job.depends or ()
        ),
        "Output": "removed, to make room on a full disk" if job.output_removed else "",
        "Retry of": "" if job.retry_of is None else str(job.retry_of),
        "Retried by": ", ".join(map(str, job.retried_by)),
    }
    for name, text in lines.items():
        if text:
            output.echo(f"  {name}: {text}")
    output.echo("  Opcodes:")
    for op in job.ops or ():
        _show_opcode(op)


def _further(job: job_views.JobInfo) -> dict[str, str]:
    """The listed fields that follow from the opcodes' parameters."""
    names = [name for name in listing.shown_in("command") if name in listing.OF_INPUTS]
    return {listing.LISTED[name].title: str(getattr(job, name) or "") for name in names}


def _show_opcode(op: job_views.OpInfo) -> None:
    output.echo(f"    {op.op_id}")
    output.echo(f"      Status: {op.status}")
    output.echo(f"      Processing start: {output.absolute(op.started)}")
    output.echo(f"      Execution start: {output.absolute(op.executed)}")
    output.echo(f"      Processing end: {output.absolute(op.ended)}")
    output.echo("      Input fields:")
    for name, value in sorted(op.input.items()):
        if name != "OP_ID" and value is not None:
            output.echo(f"        {name}: {_short(value)}")
    if op.result is not None:
        output.echo("      Result:")
        for line in _result_lines(op.result):
            output.echo(f"        {line}")
    if op.log:
        output.echo("      Execution log:")
        for entry in op.log:
            output.echo(
                f"        {entry.serial}:{output.absolute(entry.time)}:{entry.kind} {entry.text}"
            )


def _result_lines(result: object) -> list[str]:
    if isinstance(result, dict):
        return [f"{name}: {_short(value)}" for name, value in result.items()]
    match result:
        case [str(name), [str(text), dict(details), *_]]:
            return [f"{name}: {text}", *_result_lines(details)]
        case [str(name), [str(text), *_]]:
            return [f"{name}: {text}"]
    return [_short(result)]


def _short(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
