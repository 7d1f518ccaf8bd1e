"""The fields that listings of jobs show: one table for commands, queries, remote API and page.

A field is a line of `JobSummary`: its name and type, and in `Listed` the rest. Whoever shows jobs
reads the table, `LISTED`. A field that follows from the opcodes' parameters (``of_inputs``) needs
nothing else. For another one the queue's row needs a value of that name (`actors/store/job_rows`).
"""

# No `annotations` of the future: the getters would lose the names of this module.

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, get_args, get_type_hints

import msgspec

from .. import opcodes, settings
from . import jobs, outcomes
from .jobs import Job, JobStatus
from .origins import Origin, origin_of
from .outcomes import Ending, Outcome

ADDED_SOURCE = "gnt:opcode:"
"""Start of the source of the entry that the queue adds to each reason trail at submission."""

Inputs: TypeAlias = Sequence[Mapping[str, Any]]
"""The parameters of a job's opcodes, without reasons and without the values of private ones."""

Place: TypeAlias = Literal["command", "query", "rapi", "page"]
"""Where a field is shown: `ganger job list`, queries (also LUXI's), ``/2/jobs``, the page."""

EVERYWHERE: Final[tuple[Place, ...]] = get_args(Place)


def job_summary(job: Job) -> str:
    """What the job does, in one line: ``EXEC(make), TEST_DELAY(1.5)``."""
    return ", ".join([opcodes.summary(op.input) for op in job.ops])


def job_reason(job: Job) -> str:
    """Why the job was submitted: the first text of its first opcode's reason trail.

    The submitter writes the first entries. Those that the queue adds at submission (their source
    starts with ``gnt:opcode:``), and later, are no reasons of a user.
    """
    trail = job.ops[0].input.get("reason") if job.ops else None
    for entry in trail if isinstance(trail, list) else ():
        source, text = _source_and_text(entry)
        if text and not source.startswith(ADDED_SOURCE):
            return text
    return ""


class Told(NamedTuple):
    """A job, and what several fields tell of it: found once for all of them."""

    job: Job
    ending: Ending | None
    origin: Origin


def told_of(job: Job) -> Told:
    """What the job's file tells."""
    return Told(job, outcomes.ending_of(job), origin_of(job.extra))


def _of_end(name: str, otherwise: Any = None) -> Callable[[Told], Any]:  # noqa: ANN401 - of a field
    """The getter of a part of the job's ending."""

    def find(told: Told) -> object:
        return otherwise if told.ending is None else getattr(told.ending, name)

    return find


def _source_and_text(entry: object) -> tuple[str, str]:
    """The first two parts of an entry of a reason trail; empty texts for a malformed one."""
    if isinstance(entry, list | tuple) and len(entry) > 1:
        source, text = entry[0], entry[1]
        if isinstance(source, str) and isinstance(text, str):
            return source, text
    return "", ""


class Listed(msgspec.Struct, frozen=True):
    """What is said of a field of listings besides its name and type.

    ``of_job`` finds the value in the job's file, ``of_inputs`` in the parameters: one of them. Jobs
    with the same parameters share a value of the second kind. ``title`` heads its column on the
    page and names it in queries. The remote API reads queries: ``rapi`` needs ``query``.
    """

    title: str
    doc: str
    of_job: Callable[[Told], Any] | None = None
    of_inputs: Callable[[Inputs], Any] | None = None
    shown: tuple[Place, ...] = EVERYWHERE

    def value(self, told: Told) -> Any:  # noqa: ANN401 - of the field's type
        """The value that the job's file gives."""
        if self.of_inputs is not None:
            return self.of_inputs(_inputs_of(told.job))
        assert self.of_job is not None, "a field has a getter"
        return self.of_job(told)


class JobSummary(msgspec.Struct, frozen=True):
    """A job in a listing. Times are seconds since the epoch.

    Queries have ``summary`` and the times in Ganeti's form (`storage/ganeti/queries/jobs`).
    """

    # fmt: off
    id: Annotated[int, Listed(
        "ID", "Job ID", lambda told: told.job.id)]
    status: Annotated[JobStatus, Listed(
        "Status", "Job status", lambda told: told.job.status)]
    summary: Annotated[str, Listed(
        "Summary", "What the job does", lambda told: job_summary(told.job),
        shown=("command", "page"))]
    priority: Annotated[int, Listed(
        "Priority", "Current job priority (19 to -20)", lambda told: told.job.priority,
        shown=("command", "query", "page"))]
    received: Annotated[float | None, Listed(
        "Received", "When the job was received",
        lambda told: jobs.seconds(told.job.received_timestamp), shown=("command", "page"))] = None
    started: Annotated[float | None, Listed(
        "Started", "When the job started",
        lambda told: jobs.seconds(told.job.start_timestamp), shown=("command",))] = None
    ended: Annotated[float | None, Listed(
        "Ended", "When the job ended",
        lambda told: jobs.seconds(told.job.end_timestamp), shown=("command",))] = None
    process_id: Annotated[int | None, Listed(
        "Process", "The job's process", lambda told: told.job.process_id,
        shown=("command",))] = None
    archived: Annotated[bool, Listed(
        "Archived", "Whether job is archived", lambda _: False, shown=("command", "query"))] = False
    reason: Annotated[str, Listed(
        "Reason", "Why the job was submitted", lambda told: job_reason(told.job),
        shown=("command",))] = ""
    outcome: Annotated[Outcome | None, Listed(
        "Outcome", "What happened to the job, if it has ended", _of_end("outcome"))] = None
    reason_ended: Annotated[str, Listed(
        "Ended because", "Why it did not end in success", _of_end("reason", ""))] = ""
    cause: Annotated[int | None, Listed(
        "Cause", "The other job that is the root cause of that", _of_end("cause"),
        shown=("command", "query", "rapi"))] = None
    name: Annotated[str, Listed(
        "Name", "The name that the submitter gave the job",
        lambda told: told.origin.name)] = ""
    plan: Annotated[str, Listed(
        "Plan", "The name of the plan that the job is part of",
        lambda told: told.origin.plan)] = ""
    user: Annotated[str, Listed(
        "User", "Who submitted the job",
        lambda told: told.origin.user)] = ""
    retry_of: Annotated[int | None, Listed(
        "Retry of", "The job that it repeats",
        lambda told: told.origin.retry_of, shown=("command",))] = None
    # fmt: on


def _fields() -> Iterator[tuple[str, Any, Listed]]:
    for name, hint in get_type_hints(JobSummary, include_extras=True).items():
        yield name, *get_args(hint)


TYPES: Final[Mapping[str, Any]] = {name: kind for name, kind, _ in _fields()}
"""The type of each field."""

LISTED: Final[Mapping[str, Listed]] = {name: listed for name, _, listed in _fields()}
"""All fields by name, in the order in which `ganger job list` knows them."""

OF_INPUTS: Final = {name: one.of_inputs for name, one in LISTED.items() if one.of_inputs}
"""The getters of the fields that follow from the parameters."""


def shown_in(place: Place) -> tuple[str, ...]:
    """The fields that are shown there."""
    return tuple(name for name, listed in LISTED.items() if place in listed.shown)


def values_of(job: Job, known: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all fields: those that are ``known``, and others from the job's file."""
    told = told_of(job)
    return {
        name: known[name] if name in known else listed.value(told)
        for name, listed in LISTED.items()
    }


def shared_values(job: Job) -> tuple[tuple[str, Any], ...]:
    """The values that jobs with the same parameters share, by the names of their fields."""
    if not OF_INPUTS:
        return ()
    inputs = _inputs_of(job)
    return tuple((name, in_listing(find(inputs))) for name, find in OF_INPUTS.items())


def _inputs_of(job: Job) -> Inputs:
    shown = [opcodes.without_private(op.input) for op in job.ops]
    return [{name: one for name, one in each.items() if name != "reason"} for each in shown]


def in_listing(value: Any) -> Any:  # noqa: ANN401 - of a field
    """The value of a field; a text is cut so that a page of them fits into a frame."""
    if not isinstance(value, str) or len(value) * 4 <= settings.SUMMARY_BYTES_MAX:
        return value
    data = value.encode("utf-8", "replace")
    if len(data) <= settings.SUMMARY_BYTES_MAX:
        return value
    return data[: settings.SUMMARY_BYTES_MAX - 3].decode("utf-8", "ignore") + "..."
