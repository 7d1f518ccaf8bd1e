"""``ganger exec`` on several nodes: a job for each, as one plan, and a line for each as it ends."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..storage import errors, settings
from ..storage.jobs import job_views, origins
from ..storage.nodes import choosing
from . import execute, following, output, submitting, whys
from .call import UNREAD_EXIT_CODE
from .plans import PlannedJob

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..transport.client.client import Client

LAST_LINES = 10
"""How many lines of output are shown of each command that has failed."""


class Spread(NamedTuple):
    """How the jobs follow each other. ``parallel``: at most so many at a time; None: all."""

    parallel: int | None = None
    stops_on_failure: bool = False


def nodes_of(client: Client, words: Sequence[str]) -> list[str]:
    """The names that these words mean; standard error names nodes of a tag that are left out."""
    found = choosing.chosen(client.objects("nodes"), words)
    for name, why in found.left_out:
        output.echo(f"ganger: node {name} is {why}, and is left out", err=True)
    return found.names


def plan_of(
    opcodes: Sequence[dict[str, Any]],
    nodes: Sequence[str],
    spread: Spread,
    depends: Sequence[tuple[int, list[str]]],
    label: str,
) -> list[PlannedJob]:
    """The jobs of these opcodes, each with the name of its node.

    ``label`` tells their limit from any other one.

    Without a stop, a rate limit by reason keeps the number of jobs. With it, job i waits until the
    jobs from i-2n+1 to i-n have succeeded, for n at a time: these have waited for all before them,
    so no more than n run, and what waits is skipped as soon as one fails.
    """
    planned = []
    for place, node in enumerate(nodes):
        own = [{**opcode, "node": node} for opcode in opcodes]
        before: list[tuple[int, list[str]]] = []
        if spread.stops_on_failure:
            width = spread.parallel or 1
            first, last = max(0, place - 2 * width + 1), place - width
            before = [(one - place, ["success"]) for one in range(first, last + 1)]
        elif spread.parallel is not None:
            text = f"{job_views.RATE_LIMIT_PREFIX}{spread.parallel}:{label}"
            for opcode in own:
                opcode["reason"] = [["ganger exec", text, time.time_ns()]]
        planned.append(PlannedJob(ops=own, name=node, index=place, depends=[*depends, *before]))
    return planned


def plan_name(given: str | None, argv: Sequence[str], words: Sequence[str]) -> str:
    """The name of the whole: the one that the user gives, else program and nodes."""
    if given is not None:
        return given
    name = f"{PurePath(argv[0]).name} on {','.join(words)}"
    name = name.encode()[: settings.NAME_BYTES_MAX].decode(errors="ignore").strip()
    try:
        return origins.check_name(name, "plan")
    except errors.BadRequestError:
        return "exec on nodes"


def send_input(client: Client, planned: Sequence[PlannedJob], parts: Iterable[bytes]) -> None:
    """Send a large standard input, once for each job: a job takes its own away."""
    with tempfile.TemporaryFile() as kept:
        kept.writelines(parts)
        for one in planned:
            kept.seek(0)
            again = iter(lambda: kept.read(settings.STDIN_PART_BYTES), b"")
            one.ops[0]["stdin_file"] = client.store_input(again)


def run(
    client: Client,
    planned: Sequence[PlannedJob],
    *,
    detach: bool,
    quiet: bool,
    **options: Any,  # noqa: ANN401 - as `Client.submit_many`
) -> int:
    """Submit the jobs, and follow them unless ``detach``; the exit code of all.

    It is 0 if all succeed, the code of those that fail if it is the same for all of them, else 1.
    """
    entries = submitting.send(client, planned, **options)
    is_dry_run = options["dry_run"]
    if detach or is_dry_run:
        return submitting.tell(entries, planned, "table", dry_run=is_dry_run)
    code = 0
    for one in entries:
        if one.rejected is not msgspec.UNSET:
            output.echo(f"ganger: {one.name}: the job is {one.rejected}", err=True)
            code = 1
    names = {one.id: str(one.name) for one in entries if one.id is not None}
    return _followed(client, names, quiet=quiet) or code


def _followed(client: Client, names: dict[int, str], *, quiet: bool) -> int:
    ids: list[int] = [*names]
    final: dict[int, job_views.JobInfo] = {}
    try:
        _show_ends(client, names, final, quiet=quiet)
        return _show_failures(client, names, final)
    except KeyboardInterrupt:
        return following.interrupted([job_id for job_id in ids if job_id not in final], "wait")
    except BrokenPipeError:
        with suppress(BrokenPipeError):
            text = "nobody reads the output any more; the jobs go on"
            output.echo(f"ganger: {text}", err=True)
        return UNREAD_EXIT_CODE
    except errors.DaemonUnreachableError:
        again = f"`ganger job wait {' '.join(map(str, ids))}`"
        text = f"the jobs are stored; when a daemon runs again, follow them with {again}"
        output.echo(f"ganger: {text}", err=True)
        raise


def _show_ends(
    client: Client, names: dict[int, str], final: dict[int, job_views.JobInfo], *, quiet: bool
) -> None:
    """Print a line for each job when it ends."""
    width = max(map(len, names.values()), default=0)
    changes = (
        part
        for part in whys.watched(client, [*names], log=False, timeout=None, quiet=quiet)
        if isinstance(part, job_views.StatusChange)
    )
    for change in following.shown(changes, [*names], names):
        if not change.status.is_final:
            continue
        final[change.job_id] = change.job
        text = following.ending(change.job)
        if following.outcome(change.job) == "success":
            [last] = _last_lines(client, change.job_id, 1) or [""]
            text = f"{text}: {last}" if last else text
        output.echo(f"{names[change.job_id]:{width}}  {text}")


def _show_failures(
    client: Client, names: dict[int, str], final: dict[int, job_views.JobInfo]
) -> int:
    """Print the last lines of each that has failed; the exit code."""
    codes = set()
    for job_id, name in names.items():
        job = final.get(job_id)
        if job is None or following.has_ended_well(client, job):
            continue
        codes.add(execute.exit_code_of(client.job(job_id)) or 1)
        lines = [] if job.started is None else _last_lines(client, job_id, LAST_LINES)
        if lines:
            output.echo(f"--- {name} (job {job_id}) {following.ending(job)}", err=True)
            for line in lines:
                output.echo(f"    {line}", err=True)
    missing = [name for job_id, name in names.items() if job_id not in final]
    if missing or not codes:
        return 1 if missing else 0
    return codes.pop() if len(codes) == 1 else 1


def _last_lines(client: Client, job_id: int, count: int) -> list[str]:
    """The last lines of a job's output; none if it has none, or is gone."""
    try:
        data = b"".join(chunk.data for chunk in client.logs(job_id, tail=count))
    except errors.GangerError:
        return []
    return data.decode(errors="replace").splitlines()[-count:]
