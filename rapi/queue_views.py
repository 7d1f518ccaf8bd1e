"""The queue as people look at it: lists that search, one job with its chain, what to do with it.

Ganger's own resources. Lists come from the feed of this process, not from the daemon.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable
from typing import Any

import msgspec

from ..storage.access.rapi_users import NOBODY
from ..storage.jobs import listing
from ..storage.jobs.job_views import JobInfo
from ..storage.jobs.jobs import JobStatus
from ..transport.messages import DaemonInfo
from . import roles
from .bodies import converted
from .declarations import Call, Method, Parameter, Resource, Right
from .explanations import plain
from .feed import Feed
from .problems import HttpError
from .views import without_output

_LISTED = 200
_LISTED_MAX = 1_000

_STATUSES = tuple(map(str, JobStatus))


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


class Listed(msgspec.Struct):
    """Jobs, the newest first. ``count``: how many there are in all; ``counts``: by status."""

    jobs: list[JobInfo]
    count: int
    counts: dict[str, int]
    last: str
    """The id of the last event that is in the list, for `/2/events`."""

    columns: list[ListedColumn]
    """The columns that the page shows."""


async def list_queue(call: Call) -> Listed:
    """The newest jobs with these statuses whose id, summary or reason has these words."""
    statuses = call.query.get("status", [])
    for status in statuses:
        if status not in _STATUSES:
            raise HttpError(400, f"Unknown status {status[:60]!r}; one of {', '.join(_STATUSES)}")
    words = (call.text("search") or "").lower().split()
    limit = call.count("limit", _LISTED)
    if not 1 <= limit <= _LISTED_MAX:
        raise HttpError(400, f"Invalid value for the 'limit' parameter: from 1 to {_LISTED_MAX}")
    before = call.count("before", 0)
    feed = call.of(Feed)
    found = [job for job in _newest(feed) if _matches(job, statuses, words)]
    shown = [job for job in found if not before or job.id < before][:limit]
    if call.user is NOBODY:
        shown = [without_output(job) for job in shown]
    return Listed(shown, len(found), _counts(feed), f"{feed.mark}.{feed.last}", _COLUMNS)


def _newest(feed: Feed) -> list[JobInfo]:
    """All known jobs, the newest first."""
    known = {**feed.ended, **feed.live}
    return [known[job_id] for job_id in sorted(known, reverse=True)]


def _matches(job: JobInfo, statuses: Iterable[str], words: Iterable[str]) -> bool:
    if statuses and str(job.status) not in statuses:
        return False
    if not words:
        return True
    text = f"{job.id} {job.summary} {job.reason}".lower()
    return all(word in text for word in words)


def _counts(feed: Feed) -> dict[str, int]:
    counts = dict.fromkeys(_STATUSES, 0)
    for job in (*feed.live.values(), *feed.ended.values()):
        counts[str(job.status)] += 1
    return counts


class Seen(msgspec.Struct):
    """One job as a whole, and the jobs around it."""

    job: JobInfo
    dependents: list[int]
    """The jobs that wait for this one."""


async def read_job(call: Call) -> Seen:
    """The whole of one job, live or archived, and which jobs wait for it."""
    job_id = call.job_id
    job, rows = await asyncio.gather(call.client.job(job_id), call.client.locks())
    names = [
        owner
        for row in rows
        if row.name == f"job/{job_id}"
        for _, owners in row.pending
        for owner in owners
    ]
    found = (name.rpartition("/")[2] for name in names)
    return Seen(job, sorted({int(text) for text in found if text.isdecimal()}))


class NewPriority(msgspec.Struct, forbid_unknown_fields=True):
    """The priority of the opcodes that have not started, from -20 (most urgent) to 19."""

    priority: int


async def set_priority(call: Call) -> Any:  # noqa: ANN401 - JSON
    """Change the priority of a job's opcodes that have not started."""
    change: NewPriority = call.body
    found = await call.client.set_priority(call.job_id, change.priority)
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
    return plain(await call.client.info())


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
                summary="The newest jobs, as people look for them.",
                query=(
                    Parameter("status", list, "Only jobs with this status; may be repeated."),
                    Parameter("search", str, "Only jobs with these words in id, summary, reason."),
                    Parameter("limit", int, f"At most so many jobs ({_LISTED})."),
                    Parameter("before", int, "Only jobs with a smaller id."),
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
