"""``ganger job purge``: removes jobs that have ended, with their output, for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..storage import errors, wording
from . import choices, output, progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..transport.client.purges import PurgedJobs
    from .call import Call

_NAMED_MAX = 20
"""So many jobs get a line of their own; of more, standard output has the count."""


@click.command(short_help="Remove jobs that have ended, with their output.")
@click.option(
    "--older-than",
    "age",
    type=choices.Age(),
    metavar="AGE",
    help="Only jobs that ended longer ago: 90 (seconds), 30m, 2h, 7d, or all.",
)
@click.option(
    "--larger-than",
    "size",
    type=choices.Bytes(),
    metavar="SIZE",
    help="Only jobs that take this much of the disk or more: 4096 (bytes), 200K, 2G.",
)
@click.option("--dry-run", is_flag=True, help="Tell which jobs and how much, and remove nothing.")
@output.output_option
@click.pass_obj
@choices.job_ids(required=False)
def purge(
    call: Call,
    *,
    ids: Sequence[int],
    age: float | None,
    size: int | None,
    dry_run: bool,
    output_kind: str,
) -> int:
    """Remove ended jobs, archived or not, with their output and input. Nothing brings them back.

    Those with IDS, or all that meet the options. This gives the disk its space back, also while it
    is full; `ganger job archive` does not. A job for which another one waits stays. A purged job is
    unknown afterwards, and its id is not given again. Exit code 1: a job that was meant stays;
    standard error says why.
    """
    if size == 0:
        raise errors.UsageError("--larger-than: expected more than 0")
    if not ids and age is None and size is None:
        raise errors.UsageError("give IDS, --older-than or --larger-than")
    found = None

    def hear(purged: PurgedJobs) -> None:
        nonlocal found
        found = purged
        count = wording.counted(len(purged.jobs), "job")
        place = "" if purged.looked_at is None else f", looked at those up to {purged.looked_at}"
        tell(f"{'finding' if dry_run else 'purging'}: {count}{place}")

    try:
        with call.client() as client, progress.during("looking for jobs") as tell:
            found = client.purge(
                ids or None,
                older_than=age,
                larger_than=size or 0,
                dry_run=dry_run,
                progress=hear,
            )
    except (KeyboardInterrupt, errors.GangerError):
        if found is not None and not dry_run:
            output.echo(f"ganger: before it ended: {_total(found, dry_run=False)}", err=True)
        raise
    for text in found.left_out.values():
        output.echo(f"ganger: {text}", err=True)
    if output_kind == "json":
        _show_json(found, dry_run=dry_run)
    else:
        _show(found, is_named=bool(ids), dry_run=dry_run)
    return 1 if found.left_out else 0


def _show_json(found: PurgedJobs, *, dry_run: bool) -> None:
    output.show_json(
        {
            "dry_run": dry_run,
            "freed_bytes": found.freed_bytes,
            "jobs": [{"id": job_id, "bytes": size} for job_id, size in found.jobs.items()],
            "left_out": [{"id": job_id, "why": why} for job_id, why in found.left_out.items()],
        }
    )


def _show(found: PurgedJobs, *, is_named: bool, dry_run: bool) -> None:
    if dry_run or is_named:
        what = "would be purged" if dry_run else "is purged"
        for job_id, size in [*found.jobs.items()][:_NAMED_MAX]:
            output.echo(f"Job {job_id} {what}: {wording.size(size)}")
    output.echo(_total(found, dry_run=dry_run))


def _total(found: PurgedJobs, *, dry_run: bool) -> str:
    verb = "would be purged" if dry_run else "purged"
    frees = "would be freed" if dry_run else "freed"
    jobs = wording.counted(len(found.jobs), "job")
    return f"{jobs} {verb}; {wording.size(found.freed_bytes)} {frees}"
