"""``ganger job list``: which jobs it shows, and its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import click

from ..storage import errors, plain_values, wording
from ..storage.jobs import job_views, jobs, listing
from ..storage.jobs.job_filters import JobFilter
from ..storage.jobs.job_views import ListingProgress
from ..storage.jobs.outcomes import Outcome
from . import choices, etas, following, output, progress, rule_options
from .call import known
from .output import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..transport.client.client import Client
    from .call import Call


def _columns() -> Iterator[tuple[str, Column]]:
    """The columns of the table of listed fields, the state of a job, and how long it has run."""
    for name in listing.shown_in("command"):
        yield name, output.column(name, listing.TYPES[name])
        if name == "status":
            yield "state", following.STATE
        if name == "priority":
            # Of a job that has ended it is 0, whatever it was.
            yield name, Column(name, lambda job: "-" if job.is_final else job.priority)
        if name == "ended":
            yield "duration", Column("duration", lambda job: output.span(following.duration(job)))


COLUMNS = dict(_columns())
USUAL = ("id", "state", "summary", "received", "duration", "reason_ended")


@click.command("list", short_help="List jobs.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=choices.OneOf(jobs.JobStatus, "--outcome", set(Outcome) - set(jobs.JobStatus)),
    metavar="STATUS",
    help=f"Only jobs with this status: {', '.join(jobs.JobStatus)}. May be repeated.",
)
@click.option("--pending", is_flag=True, help="Only queued, waiting and canceling jobs.")
@click.option("--running", is_flag=True, help="Only running jobs.")
@click.option("--finished", is_flag=True, help="Only jobs that have ended.")
@click.option("--archived", is_flag=True, help="Archived jobs too.")
@click.option(
    "--name",
    type=choices.Text(),
    metavar="NAME",
    help="Only jobs, or the jobs of plans, of this name; * and ? stand for others.",
)
@click.option("--user", type=choices.Text(), metavar="USER", help="Only jobs of this submitter.")
@click.option(
    "--reason",
    type=choices.Text(),
    metavar="TEXT",
    help="Only jobs with this in their reason, in small letters or capitals.",
)
@click.option(
    "--text",
    type=choices.Text(),
    metavar="WORDS",
    help="Only jobs that show these words: in summary, name, plan, user, reason or id.",
)
@click.option(
    "--outcome",
    "outcomes",
    multiple=True,
    type=choices.OneOf(Outcome, "--status", set(jobs.JobStatus) - set(Outcome)),
    metavar="OUTCOME",
    help=f"Only jobs with this outcome: {', '.join(Outcome)}. May be repeated.",
)
@click.option(
    "--since",
    type=rule_options.Moment(is_past=True),
    metavar="TIME",
    help="Only jobs submitted from then on: -2h, -7d, 2026-11-21T18:00.",
)
@click.option(
    "--until",
    type=rule_options.Moment(is_past=True),
    metavar="TIME",
    help="Only jobs submitted before.",
)
@click.option(
    "--last",
    type=choices.Whole(least=1, most=plain_values.INTEGER_MAX),
    metavar="N",
    help="Only the newest N, of archived jobs, too.",
)
@output.style_options
@click.pass_obj
@choices.job_ids(required=False)
def list_jobs(
    call: Call,
    /,
    *,
    ids: Sequence[int],
    statuses: Sequence[str],
    pending: bool,
    running: bool,
    finished: bool,
    archived: bool,
    last: int | None,
    outcomes: Sequence[str],
    style: output.Style,
    **conditions: Any,  # noqa: ANN401 - of `JobFilter`
) -> int:
    """List jobs: those with these IDS, or all that are not archived.

    IDS may be names of jobs or plans, or @last. Standard error names those that no job has; the
    exit code is 1 then. If only some of the jobs lie in the archive, a column says which.
    """
    names = output.chosen_fields(style, USUAL, (*COLUMNS, "eta"))
    _check(conditions)
    if outcomes:
        conditions["outcomes"] = list(map(Outcome, outcomes))
    conditioned = JobFilter(**conditions) if any(map(_is_given, conditions.values())) else None
    wanted = _statuses(statuses, pending=pending, running=running, finished=finished)
    with call.client() as client:
        asked = _Asked(
            statuses=wanted or None,
            archived=archived or last is not None,
            wanted=conditioned,
            last=last,
        )
        found, code = _found(client, ids, asked)
        if code and not found:
            return code
        columns = COLUMNS | ({"eta": etas.column(client.eta())} if "eta" in names else {})
    if style.output == "json":
        fields = names if style.fields else list(COLUMNS)
        output.show_json([_plain(one, fields, columns) for one in found])
        return code
    if all(name.startswith("+") for name in style.fields):
        is_mixed = len({one.archived for one in found}) > 1
        more = (("archived", is_mixed), ("name", any(one.name for one in found)))
        names[2:2] = [name for name, is_shown in more if is_shown and name not in names]
    output.show_rows(found, [columns[name] for name in names], style, noun=_noun(asked))
    return code


def _noun(asked: _Asked) -> str:
    """What an empty list says that there are none of; only jobs that have ended are archived."""
    statuses = asked["statuses"] or ()
    is_limited = bool(statuses) or asked["wanted"] is not None
    may_be_archived = not statuses or any(one in choices.FINAL_STATUSES for one in statuses)
    if is_limited and may_be_archived and not asked["archived"]:
        return "jobs (--archived looks for archived ones, too)"
    return "jobs"


class _Asked(TypedDict):
    """What `Client.jobs` is asked for."""

    statuses: Sequence[str] | None
    archived: bool
    wanted: JobFilter | None
    last: int | None


def _found(
    client: Client, ids: Sequence[int], asked: _Asked
) -> tuple[Sequence[job_views.JobInfo], int]:
    """The jobs by id, and the exit code; says what takes long, and what is left out."""
    heard = ListingProgress()
    with progress.during("looking for jobs") as doing:

        def hear(said: ListingProgress) -> None:
            nonlocal heard
            heard = said
            if said.looked_at is not None:
                doing(f"looking for jobs: at job {said.looked_at:,}")

        def listed(chosen: Sequence[int]) -> Sequence[job_views.JobInfo]:
            found = client.jobs(chosen or None, progress=hear, **asked)
            return sorted(found, key=lambda job: job.id)[-(asked["last"] or 0) :]

        found, code = known(ids, listed)
    if heard.indexed is not None:
        output.echo(f"ganger: {wording.unindexed(heard.indexed)}", err=True)
    return found, code


def _check(conditions: Mapping[str, Any]) -> None:
    """Raise `UsageError` for conditions that no job meets."""
    for name, value in conditions.items():
        if value == "":
            # Probably an unset variable of a script.
            raise errors.UsageError(f"--{name}: is empty")
    since, until = conditions["since"], conditions["until"]
    if since is not None and until is not None and since >= until:
        raise errors.UsageError("--since: is not before --until")


def _statuses(named: Sequence[str], *, pending: bool, running: bool, finished: bool) -> list[str]:
    return [
        *named,
        *(jobs.BEFORE_RUNNING if pending else ()),
        *((jobs.JobStatus.RUNNING,) if running else ()),
        *(choices.FINAL_STATUSES if finished else ()),
    ]


def _is_given(condition: object) -> bool:
    return condition is not None


def _plain(
    info: job_views.JobInfo, fields: Sequence[str], columns: Mapping[str, Column]
) -> dict[str, Any]:
    made: dict[str, Callable[[job_views.JobInfo], Any]] = {
        "duration": following.duration,
        "state": following.state,
    }
    if "eta" in columns:
        made["eta"] = columns["eta"].plain
    return {name: made[name](info) if name in made else getattr(info, name) for name in fields}
