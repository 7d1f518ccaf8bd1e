"""The queue as people look at it: lists that search, one job with its chain, what to do with it.

Ganger's own resources. Lists come from the feed of this process, not from the daemon.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from ..storage.access.rapi_users import NOBODY
from ..storage.jobs import listing
from ..storage.jobs.job_filters import JobFilter
from ..storage.jobs.job_views import JobInfo, ListingProgress
from ..storage.jobs.jobs import JobStatus
from ..storage.jobs.outcomes import Outcome
from ..transport.messages import DaemonInfo
from . import job_lists, roles, scopes
from .bodies import converted
from .chains import Chains
from .declarations import Call, Method, Parameter, Resource, Right
from .explanations import plain
from .feed import Feed
from .opcode_names import OpcodeNames
from .problems import HttpError
from .timeline import Timeline
from .views import without_output

_LISTED = 200
_LISTED_MAX = 1_000

_AROUND_MAX = 200
"""Most jobs around another one, of each kind, of which more is shown than the id."""

_WAITING = (JobStatus.QUEUED, JobStatus.WAITING)
_STATUSES = tuple(map(str, JobStatus))
_OUTCOMES = tuple(map(str, Outcome))


class ListedColumn(msgspec.Struct, frozen=True):
    """A column of a listing. ``kind`` is ``number``, ``time`` or ``text``."""

    name: str
    title: str
    kind: str


def _kind(hint: object) -> str:
    if hint in (int, int | None):
        return "number"
    return "time" if hint == float | None else "text"


_COLUMNS = [
    ListedColumn(name, listing.LISTED[name].title, _kind(listing.TYPES[name]))
    for name in listing.shown_in("page")
]


class Listed(msgspec.Struct, kw_only=True):
    """Jobs, and how many the search finds (``count``).

    ``counts`` and ``outcomes``: how many jobs with these words there are, by status and by outcome.
    """

    jobs: list[JobInfo]
    count: int
    counts: dict[str, int]
    outcomes: dict[str, int]
    waits: dict[int, tuple[str, str]]
    """For what these jobs wait, by their ids: cause and resource, as `/2/timeline` has them."""

    may: dict[int, list[str]] | None
    """What the user may do with each job, as in `Seen`; None: with all what `/2/me` tells."""

    indexed: float | None
    """The part of the archive that could be looked through; None: all that was asked for."""

    last: str
    """The id of the last event that is in the list, for `/2/events`."""

    columns: list[ListedColumn]
    """The columns that the page shows."""


async def list_queue(call: Call) -> Listed:
    """Jobs with these statuses, outcomes and words, in this order."""
    wanted = job_lists.Wanted(
        statuses=_words(call, "status", _STATUSES),
        outcomes=_words(call, "outcome", _OUTCOMES),
        words=(call.text("search") or "").lower().split(),
    )
    sort = call.text("sort") or job_lists.ACTIVE
    if sort.removeprefix("-") not in job_lists.SORTS:
        orders = ", ".join(job_lists.SORTS)
        raise HttpError(400, f"Unknown order {sort[:60]!r}; one of {orders}, or a - before it")
    limit, offset = call.count("limit", _LISTED), call.count("offset", 0)
    if not 1 <= limit <= _LISTED_MAX:
        raise HttpError(400, f"Invalid value for the 'limit' parameter: from 1 to {_LISTED_MAX}")
    feed = call.of(Feed)
    await feed.forget_gone(call.client, time.monotonic())
    known = [*{**feed.ended, **feed.live}.values()]
    if call.user is NOBODY:
        known = [without_output(job) for job in known]
    searched = worded = job_lists.Wanted(words=wanted.words).among(known)
    indexed = None
    if call.flag("archived"):
        sort = call.text("sort") or "-id"
        searched, indexed = await _with_archived(call, wanted, offset + limit)
    found = job_lists.ordered(wanted.among(searched), sort, time.time())
    shown = found[offset : offset + limit]
    waiting = [job.id for job in shown if job.status in _WAITING]
    return Listed(
        jobs=shown,
        count=len(found),
        counts=job_lists.counts(worded, "status", JobStatus),
        outcomes=job_lists.counts(worded, "outcome", Outcome),
        waits=await call.of(Timeline).await_causes(waiting),
        may=await _rights(call, [job.id for job in shown]),
        indexed=indexed,
        last=f"{feed.mark}.{feed.last}",
        columns=_COLUMNS,
    )


async def _rights(call: Call, job_ids: list[int]) -> dict[int, list[str]] | None:
    """What the user may do with each of these jobs, if that depends on their opcodes."""
    if not (roles.is_limited(call.user) and Right.CANCEL in roles.rights(call.user)):
        return None
    names = await call.of(OpcodeNames).of(job_ids, call.client)
    return {
        job_id: [right.value for right in scopes.job_rights(call.user, found)]
        for job_id, found in names.items()
    }


async def _with_archived(
    call: Call, wanted: job_lists.Wanted, count: int
) -> tuple[list[JobInfo], float | None]:
    """The newest so many of all jobs that are wanted, live or archived.

    And which part of the archive was looked through, while its index is built; None: all of it.
    """
    heard = ListingProgress()

    def hear(said: ListingProgress) -> None:
        nonlocal heard
        heard = said

    condition = JobFilter(
        text=" ".join(wanted.words) or None,
        outcomes=[Outcome(word) for word in wanted.outcomes] or None,
    )
    found = call.client.jobs(
        statuses=wanted.statuses or None,
        archived=True,
        wanted=condition,
        last=count,
        progress=hear,
    )
    jobs = [job async for job in found]
    shown = [without_output(job) for job in jobs] if call.user is NOBODY else jobs
    return shown, heard.indexed


def _words(call: Call, parameter: str, known: Sequence[str]) -> list[str]:
    """The values of a parameter that may be repeated, each of which must be one of these."""
    given = call.query.get(parameter, [])
    for word in given:
        if word not in known:
            raise HttpError(400, f"Unknown {parameter} {word[:60]!r}; one of {', '.join(known)}")
    return given


class Neighbour(msgspec.Struct, frozen=True):
    """A job that another one has to do with, as far as the other one shows it."""

    id: int
    status: str
    outcome: str | None
    summary: str
    name: str = ""


class Seen(msgspec.Struct):
    """One job as a whole, and the jobs around it."""

    job: JobInfo
    dependents: list[int]
    """The jobs that depend on this one, as far as lists show them, and those that it is the cause
    of having ended."""

    around: list[Neighbour]
    """The dependents, what the job depends on, its cause and its other tries, without the lost."""

    may: list[str]
    """What the user may do with it: ``cancel`` (also priority), ``filters``, ``submit`` anew."""


async def read_job(call: Call) -> Seen:
    """The whole of one job, live or archived, and the jobs around it."""
    job_id = call.job_id
    job, rows = await asyncio.gather(call.client.job(job_id), call.client.locks())
    names = [
        owner
        for row in rows
        if row.name == f"job/{job_id}"
        for _, owners in row.pending
        for owner in owners
    ]
    waiting = {int(text) for name in names if (text := name.rpartition("/")[2]).isdecimal()}
    ended = call.of(Feed).ended
    kept_from_it = {one.id for one in ended.values() if one.cause == job_id}
    needed = await call.of(Chains).dependents(job_id, ended.keys(), call.client)
    dependents = sorted(waiting.union(kept_from_it, needed))
    others = [job.cause, job.retry_of, *job.retried_by, *(one for one, _ in job.depends or ())]
    ids = {*dependents[:_AROUND_MAX], *(one for one in others[:_AROUND_MAX] if one)}
    may = scopes.job_rights(call.user, {op.op_id for op in job.ops or ()})
    return Seen(job, dependents, await _around(call, ids), [right.value for right in may])


async def _around(call: Call, ids: Collection[int]) -> list[Neighbour]:
    if not ids:
        return []
    found = call.client.jobs(sorted(ids), archived=True)
    return [
        Neighbour(one.id, str(one.status), one.outcome and str(one.outcome), one.summary, one.name)
        async for one in found
    ]


class NewPriority(msgspec.Struct, forbid_unknown_fields=True):
    """The priority of the opcodes that have not started, from -20 (most urgent) to 19."""

    priority: int


async def set_priority(call: Call) -> Any:  # noqa: ANN401 - JSON
    """Change the priority of a job's opcodes that have not started."""
    change: NewPriority = call.body
    found = await call.client.set_priority(call.job_id, change.priority)
    if found.accepted:
        call.of(Feed).note_priority(call.job_id, change.priority)
    return [found.accepted, found.text]


class Retry(msgspec.Struct, forbid_unknown_fields=True):
    """``whole``: with all opcodes, not only from the first that did not succeed."""

    whole: bool = False


async def retry(call: Call) -> int:
    """Submit a new job like an ended one."""
    job_id, asked = call.job_id, call.body
    job = await call.client.job(job_id)
    refused = roles.refusal(call.user, Right.SUBMIT, {op.op_id for op in job.ops or ()})
    if refused is not None:
        raise HttpError(403, refused)
    return await call.client.retry(
        job_id, whole=asked.whole, key=call.key, submitter=call.submitter
    )


def _retry(body: object) -> Retry:
    return Retry() if body is msgspec.UNSET else converted(body, Retry)


async def read_daemon(call: Call) -> Any:  # noqa: ANN401 - JSON
    """Version, health and figures of the daemon."""
    return plain(await call.client.info(disk=True))


class Me(msgspec.Struct):
    """The user who asks: name, rights, and the opcodes that he may submit (None: any)."""

    name: str
    rights: list[str]
    opcodes: list[str] | None
    may_run_commands: bool


async def read_me(call: Call) -> Me:
    """What the user who asks may do."""
    user = call.user
    return Me(
        user.name,
        sorted(right.value for right in roles.rights(user)),
        None if {"write", "admin"} & user.options else sorted(roles.opcodes(user)),
        "exec" in user.options,
    )


_JOB = "/2/jobs/{job_id:int}"

RESOURCES = (
    Resource(
        path="/2/queue",
        is_own=True,
        methods={
            "GET": Method(
                handler=list_queue,
                right=Right.READ,
                summary="Jobs, as people look for them.",
                query=(
                    Parameter("status", list, "Only jobs with this status; may be repeated."),
                    Parameter("outcome", list, "Only jobs with this outcome; may be repeated."),
                    Parameter("search", str, "Only jobs with these words in id and texts."),
                    Parameter("archived", bool, "1: archived jobs, too; the newest that fit."),
                    Parameter("sort", str, f"The order: {', '.join(job_lists.SORTS)}; - turns it."),
                    Parameter("limit", int, f"At most so many jobs ({_LISTED})."),
                    Parameter("offset", int, "Without the first so many jobs."),
                ),
                reply=Listed,
            )
        },
    ),
    Resource(
        path="/2/queue/{job_id:int}",
        is_own=True,
        methods={
            "GET": Method(
                handler=read_job, right=Right.READ, summary="One job and its chain.", reply=Seen
            )
        },
    ),
    Resource(
        path=f"{_JOB}/priority",
        is_own=True,
        methods={
            "PUT": Method(
                handler=set_priority,
                right=Right.CANCEL,
                summary="Change a job's priority.",
                body=NewPriority,
                reads=functools.partial(converted, kind=NewPriority),
            )
        },
    ),
    Resource(
        path=f"{_JOB}/retry",
        is_own=True,
        methods={
            "POST": Method(
                handler=retry,
                right=Right.SUBMIT,
                summary="Submit a job like an ended one.",
                body=Retry,
                reads=_retry,
                reply=int,
            )
        },
    ),
    Resource(
        path="/2/daemon",
        is_own=True,
        methods={
            "GET": Method(
                handler=read_daemon,
                right=Right.READ,
                summary="Version, health and figures of the daemon.",
                reply=DaemonInfo,
            )
        },
    ),
    Resource(
        path="/2/me",
        is_own=True,
        methods={
            "GET": Method(
                handler=read_me, right=Right.READ, summary="What this user may do.", reply=Me
            )
        },
    ),
)
