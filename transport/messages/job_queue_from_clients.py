"""Requests of clients to the job queue, and their replies."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ...storage.jobs.job_filters import JobFilter
from ...storage.jobs.jobs import JobStatus, LogEntry
from ...storage.jobs.origins import Submitter
from .base import Done, Notice, Reply, Request
from .several import QueryAnswered
from .values import JobSpec, JobSummary

JOB_AWAITED_SECONDS_MAX = 3_600.0
"""Longest time that one request may wait for a change of a job."""


class JobsSubmitted(Reply, frozen=True):
    """The jobs are durable. ``is_repeat``: the key is known, and ``ids`` are those of its jobs.

    ``rejected``: jobs that were not stored because a filter rule rejects them, by their places in
    the submission, each with the text why. ``ids`` leaves them out.
    """

    ids: list[int]
    is_repeat: bool = False
    rejected: dict[int, str] = {}


class SubmitJobs(Request[JobsSubmitted], frozen=True):
    """Store these jobs, all or none. ``dry_run`` checks everything and stores nothing.

    ``ignores_drain``: a drained queue takes them, too.

    ``key`` makes a retry safe: a second submission under the same key stores nothing, and the reply
    has the ids of the first, unless all of those jobs are archived. A different submission under
    the same key is refused.

    ``plan``: the name of the plan that these jobs are. ``submitter``: the door fills it in; it
    believes the remote API alone, which knows its users.
    """

    jobs: list[JobSpec]
    key: str | None = None
    dry_run: bool = False
    ignores_drain: bool = False
    plan: str | None = None
    submitter: Submitter | None = None


class InputStored(Reply, frozen=True):
    """So many bytes of standard input are there; after the last part they are durable."""

    size: int


class StoreInput(Request[InputStored], frozen=True):
    """Store a part of a standard input that is too large for an opcode.

    A submission takes it with ``stdin_file``: ``upload-`` and the ``token``, 32 hexadecimal digits.
    ``offset``: of the first byte; a part that comes again changes nothing.
    """

    token: str
    offset: Annotated[int, msgspec.Meta(ge=0)]
    data: bytes
    is_last: bool = False


class JobsFound(Reply, frozen=True):
    """The jobs of each name, in the order of the request: their ids, none or one or several.

    ``indexed``: as in `JobRows`.
    """

    found: list[list[int]]
    indexed: float | None = None


class FindJobs(Request[JobsFound], frozen=True):
    """Find the newest job of each of these names, or all jobs of the newest plan, live or archived.

    ``@last``: the newest job of the ``submitter`` (as in `SubmitJobs`).
    """

    names: list[str]
    submitter: Submitter | None = None


class JobRows(Reply, frozen=True):
    """One page of a listing.

    ``next_after``: where the next page starts (`ListJobs.before` if the newest come first); None:
    this is the last. ``indexed``: the part of the archive that is in its index while that is built:
    the listing lacks the rest; None: it lacks nothing.
    """

    rows: list[JobSummary]
    next_after: int | None = None
    indexed: float | None = None


class ListJobs(Request[JobRows], frozen=True):
    """List live jobs by their ids: all above ``after``, or just those of ``ids``.

    An unknown id among ``ids`` is an `UnknownJobError`. An archived job is found by its id, and in
    a listing with ``archived``.
    ``wanted``: only jobs that meet these conditions. ``newest_first``: in this order; the next page
    has the ids below ``before``.
    """

    ids: list[int] | None = None
    statuses: list[JobStatus] | None = None
    after: int = 0
    limit: int = 1_000
    archived: bool = False
    wanted: JobFilter | None = None
    newest_first: bool = False
    before: int | None = None


class JobVersions(Reply, frozen=True):
    """One page of the live jobs, in the order of ids, each with its version.

    ``versions``: 0 for a job that can change at any time, because its process writes its file; else
    a number that is another one whenever anything about the job has changed. Empty if they were
    not asked for. ``next_after``: where the next page starts; None: this is the last. ``mark``:
    another number whenever jobs have come or gone.
    """

    ids: list[int]
    versions: list[int]
    next_after: int | None = None
    mark: int = 0


class ListJobVersions(Request[JobVersions], frozen=True):
    """Which live jobs there are above the id ``after``, and which of them have changed.

    Much cheaper than their contents: who has those asks only for what has another version.
    ``known_mark``: nothing is listed if the jobs still have this mark. ``rows_max``: at most so
    many jobs in the reply.
    """

    after: int = 0
    has_versions: bool = True
    known_mark: int | None = None
    rows_max: Annotated[int, msgspec.Meta(ge=1)] | None = None


class QueryJobs(Request[QueryAnswered], frozen=True):
    """Answer a query for jobs: these fields of those that pass the filter, in the order of ids.

    ``filter``: Ganeti's query language, as JSON. Archived jobs are found by their ids, and listed
    if the query has the field ``archived``. ``after``: the `QueryAnswered.next_after` of the page
    before. ``is_classic``: rows have bare values, null for what is not normal, and an unknown field
    is a `BadRequestError` (Ganeti 3.0, LUXI, ``QueryJobs``).
    """

    fields: list[str]
    filter: Any = None
    after: str | None = None
    is_classic: bool = False


class JobAwaited(Reply, frozen=True):
    """A job as it is now, for the caller of `AwaitJobChange`.

    ``values``: those of the fields, as a JSON array; null for what is not normal. ``log``: newer
    entries of its log, as a JSON array of [serial, [seconds, microseconds], kind, message].
    ``is_final``: the job has ended, and does not change any more.
    """

    values: bytes
    log: bytes
    is_final: bool


class AwaitJobChange(Request[JobAwaited], frozen=True):
    """Reply when these fields of a live job have other ``values``, or its log has newer entries.

    Source: Ganeti 3.0, LUXI, ``WaitForJobChange``. The reply comes at once if that is so already or
    the job is final, and after ``seconds`` at the latest. ``values`` is what the caller got last;
    None: it knows none. ``log_serial``: serial of the last entry that it has; None: it has none.
    If a name in ``fields`` is unknown, all values are null.

    `UnknownJobError`, `ArchivedJobError`: there is no such live job. ``ticket``: a request of the
    same sender with the same ticket, not 0, replaces this one, and `StopWatch` with that number
    ends it; without a ticket the number of the request counts.
    """

    id: int
    fields: list[str]
    values: Any = None
    log_serial: int | None = None
    seconds: Annotated[float, msgspec.Meta(ge=0, le=JOB_AWAITED_SECONDS_MAX)] = 30.0
    ticket: int = 0


class JobDocument(Reply, frozen=True):
    """The whole job. ``body``: the JSON of its file with the newest log entries in it.

    ``summary`` is that of a listing: users' opcodes make it, and clients need not know these.
    ``output_removed``: to make room on a full disk, before a purge that did not come to its end.
    """

    id: int
    body: bytes
    archived: bool = False
    summary: str = ""
    output_removed: bool = False


class ReadJob(Request[JobDocument], frozen=True):
    """Read the whole of one job, live or archived."""

    id: int


class JobChanged(Reply, frozen=True):
    """Part of a watch: a job's summary at the start, and after each change of its status."""

    job: JobSummary


class JobsChanged(Reply, frozen=True):
    """Part of a gathered watch: as a `JobChanged` for each of these, in the order of changes."""

    jobs: list[JobSummary]


class JobLogged(Reply, frozen=True):
    """Part of a watch: new log entries of one opcode."""

    id: int
    op_index: int
    entries: list[LogEntry]


class WatchEnded(Reply, frozen=True):
    """Last part of a watch: all its jobs are final, or a client stopped it."""


class WatchJobs(Request[JobChanged | JobsChanged | JobLogged | WatchEnded], frozen=True):
    """Follow jobs. The first parts have the status of each job, the others each change.

    ``ids`` None: follow all jobs, without end; the first parts are then the jobs that are not
    final, and those of ``log_after``. Else the watch ends when all jobs of ``ids`` are final.
    ``log``: with log entries, of each job those after its serial in ``log_after``.
    ``is_final_only``: no status but the final ones. ``is_gathered``: changes come together, as
    `JobsChanged`, some milliseconds later.
    """

    ids: list[int] | None = None
    log: bool = False
    log_after: dict[int, int] = {}
    is_final_only: bool = msgspec.field(default=False, name="is_of_ends")
    is_gathered: bool = False


class StopWatch(Notice, frozen=True):
    """End what this peer began with its request ``request_id``: a watch, or an `AwaitJobChange`."""

    request_id: int


class CancelOutcome(Reply, frozen=True):
    """Whether the job is or will be canceled, with Ganeti's text.

    ``was_canceled``: not accepted, because the job was canceled before: ``seconds_ago``.
    ``has_ended``: accepted, and the job has ended already; otherwise its process has been told.
    """

    accepted: bool
    text: str
    was_canceled: bool = False
    has_ended: bool = False
    seconds_ago: float = 0.0


class CancelJob(Request[CancelOutcome], frozen=True):
    """Cancel a pending or waiting job; with ``kill`` a running one as well.

    ``kill`` interrupts the running opcode: its command gets SIGTERM, and SIGKILL if it goes on. The
    executor kills a job process that does not react.
    """

    id: int
    kill: bool = False


class PriorityOutcome(Reply, frozen=True):
    """Whether the priority is or will be changed, with Ganeti's text.

    ``signaled``: the process of a job none of whose opcodes waits, so that nothing changed.
    """

    accepted: bool
    text: str
    signaled: int | None = None


class ChangeJobPriority(Request[PriorityOutcome], frozen=True):
    """Set the priority of all opcodes of the job that have not started."""

    id: int
    priority: int


class SetDrain(Request[Done], frozen=True):
    """Refuse all submissions from now on, or accept them again. Jobs in the queue go on."""

    is_drained: bool


class RetryJob(Request[JobsSubmitted], frozen=True):
    """Submit an ended job again, from its first opcode without success on.

    ``is_whole``: from its first opcode on. ``ops`` replaces its opcodes. Each of the two jobs names
    the other. ``key`` makes a retry of this request safe. ``submitter`` as in `SubmitJobs`.
    """

    id: int
    is_whole: bool = False
    ops: list[dict[str, Any]] | None = None
    key: str | None = None
    submitter: Submitter | None = None


class ArchiveOutcome(Reply, frozen=True):
    """Ids of the archived jobs, and how many final ones are left for another request."""

    archived: list[int]
    left: int = 0


class ArchiveJob(Request[ArchiveOutcome], frozen=True):
    """Move one final job to the archive."""

    id: int


class PurgeOutcome(Reply, frozen=True):
    """The jobs that are purged, each with the bytes that it took; and those left out, with why.

    ``next_after``: go on with this `PurgeJobs.after`; None: that was all.
    """

    jobs: list[tuple[int, int]]
    left_out: list[tuple[int, str]] = []
    next_after: int | None = None


class PurgeJobs(Request[PurgeOutcome], frozen=True):
    """Remove jobs that have ended, live or archived, with their output, for good.

    Those of ``ids``; None: all with higher ids than ``after`` that ended more than ``age_seconds``
    ago and take ``bytes_min`` at least. A job on which another one depends stays. One request looks
    at some thousand jobs, and at no more once ``bytes_enough`` are free. ``is_dry_run``: tell
    which, and remove nothing.
    """

    ids: list[int] | None = None
    age_seconds: float | None = None
    bytes_min: int = 0
    after: int = 0
    is_dry_run: bool = False
    bytes_enough: int | None = None

    def behind(self, page: PurgeOutcome) -> PurgeJobs:
        """The request for the page behind this one."""
        left = self.bytes_enough
        if left is not None:
            left = max(0, left - sum(size for _, size in page.jobs))
        after = self.after if page.next_after is None else page.next_after
        return msgspec.structs.replace(self, after=after, bytes_enough=left)


class AutoArchiveJobs(Request[ArchiveOutcome], frozen=True):
    """Archive final jobs that ended more than ``age_seconds`` ago (negative: all final ones).

    ``timeout_seconds`` comes from released clients; the queue archives up to a fixed number.
    """

    age_seconds: float
    timeout_seconds: float = 30.0
