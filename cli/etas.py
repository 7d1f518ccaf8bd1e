"""When jobs will start and end: ``ganger job eta``, a line of ``job why``, a column of lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..transport.client.etas import JobEta
from . import output
from .output import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..storage.jobs.job_views import JobInfo
    from ..storage.prediction.estimates import Accuracy
    from ..transport.client.etas import Etas
    from ..transport.messages import JobExplained

_UNKNOWN = {
    "history": "unknown: no earlier run",
    "held": "unknown: held",
    "overdue": "unknown: behind an overdue job",
    "far": "unknown: too far behind",
    "ended": "-",
}


def show(plan: Etas, found: Sequence[JobEta], output_kind: str) -> None:
    """Show the plan for these jobs, and how wrong earlier estimates were."""
    if output_kind == "json":
        output.show_json(
            {
                "jobs": [msgspec.to_builtins(one) for one in found],
                "accuracy": msgspec.to_builtins(plan.accuracy),
            }
        )
        return
    output.show_rows(found, _COLUMNS, output.Style())
    for one in found:
        if one.is_overdue:
            output.echo(f"Job {one.id} {_overdue(one)}: its end is unknown")
    output.echo(_accuracy(plan.accuracy))


def of(plan: Etas, job: JobInfo | JobExplained) -> JobEta:
    """The job's place in the plan."""
    return JobEta(id=job.id, unknown="ended") if job.status.is_final else plan.of(job.id)


def column(plan: Etas) -> Column:
    """The column of a list of jobs with the time at which each will end."""
    return Column("eta", lambda job: _end(of(plan, job)))


def lines(plan: Etas, job_id: int) -> list[str]:
    """What ``ganger job why`` says of a job that has not ended."""
    one = plan.of(job_id)
    guesses = f" {_guesses(one.guesses)}" if one.guesses else ""
    parts = [] if one.start is None else [f"it should start about {output.absolute(one.start)}"]
    if one.is_overdue:
        parts = [f"it {_overdue(one)}; its end is unknown"]
    elif one.end is None:
        parts = [f"{start}{guesses}" for start in parts]
        parts.append(f"its end is {_UNKNOWN[one.unknown]}")
    else:
        end = output.absolute(one.end)
        parts.append(f"it should end about {end}{guesses} ({_short(plan)})")
    text = "; ".join(parts)
    return [f"  {text[0].upper()}{text[1:]}."]


def _end(one: JobEta) -> str:
    if one.is_overdue:
        return "overdue, end unknown"
    return _UNKNOWN[one.unknown] if one.end is None else output.absolute(one.end)


def _overdue(one: JobEta) -> str:
    """That a job runs longer than earlier ones, without its subject."""
    usual = output.span(one.usual_seconds)
    earlier = f"nine of ten of its {one.count} earlier runs (half took at most {usual})"
    if one.count == 1:
        earlier = f"its earlier run ({usual})"
    return f"has run for {output.span(one.elapsed)}, longer than {earlier}"


def _guesses(count: int) -> str:
    jobs, verb = ("1 job", "takes") if count == 1 else (f"{count} jobs", "take")
    return f"if {jobs} without earlier runs before it {verb} the usual time"


def _short(plan: Etas) -> str:
    if plan.accuracy is None:
        return "the first estimates: their error is not known"
    return f"half of the last run times were estimated within {plan.accuracy.median:.0%}"


def _accuracy(found: Accuracy | None) -> str:
    if found is None:
        return "No estimate of a run time could be compared with the real one as yet"
    runs = "estimate of the last run time"
    if found.count > 1:
        runs = f"estimates of the last {found.count} run times"
    return f"Error of the {runs}: median {found.median:.0%}, nine of ten within {found.high:.0%}"


_COLUMNS = (
    Column("id", lambda one: one.id),
    Column("start", lambda one: output.absolute(one.start)),
    Column("end", _end),
    Column("run_time", lambda one: output.span(one.run_seconds)),
    Column("earlier_runs", lambda one: one.count),
    Column("guesses", lambda one: one.guesses),
)
