"""Streams of events: changes of jobs, and one job's log and output. Ganger's own.

Both are resumed with the header ``Last-Event-ID``, as browsers do by themselves.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from ..storage import errors
from ..storage.access import rapi_settings
from ..storage.access.rapi_users import NOBODY
from ..storage.jobs.job_views import LogLine, OutputChunk, StatusChange
from .declarations import Call, Method, Parameter, Resource, Right, whole
from .event_streams import COMMENT, EventStream, event
from .feed import Feed, JobEvent, following
from .problems import HttpError
from .views import without_output

if TYPE_CHECKING:
    from collections.abc import Collection


async def stream_events(call: Call) -> EventStream:
    """Each change of a job's status, from now on or from ``Last-Event-ID``.

    The first event is ``hello``; ``lost`` says that events are missing: read the jobs anew.
    """
    feed = call.of(Feed)
    jobs = {_job_id(text) for text in call.query.get("job", [])}
    events = _events(feed, _place(feed, call), jobs, hides_output=call.user is NOBODY)
    return EventStream(_counted(feed, events))


def _place(feed: Feed, call: Call) -> int | None:
    """After which event to begin; None: the client knows a number that means nothing here."""
    given = call.headers.get("last-event-id") or call.text("after")
    if not given:
        return feed.last
    mark, _, number = given.partition(".")
    place = _event_number(number, given)
    return place if mark == feed.mark and place <= feed.last else None


async def _events(
    feed: Feed, after: int | None, wanted: Collection[int], *, hides_output: bool
) -> AsyncGenerator[bytes, None]:
    place = feed.last if after is None else after
    yield event("hello", {"last": feed.last, "connected": feed.is_connected}, _id(feed, place))
    if after is None:
        yield event("lost", {"last": place}, _id(feed, place))
    async for events in following(feed, place, rapi_settings.COMMENT_SECONDS):
        if events is None:
            yield COMMENT
        elif not events:
            yield event("lost", {"last": feed.last}, _id(feed, feed.last))
        else:
            found = [one for one in events if _is_wanted(one, wanted)]
            if hides_output:
                found = [without_output(one) for one in found]
            parts = [event("job", one, _id(feed, one.number)) for one in found]
            if parts:
                yield b"".join(parts)


def _is_wanted(one: JobEvent, wanted: Collection[int]) -> bool:
    return not wanted or one.job_id in wanted


def _id(feed: Feed, number: int) -> str:
    return f"{feed.mark}.{number}"


async def _counted(feed: Feed, parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Let at most so many streams be open."""
    if feed.listeners >= rapi_settings.LISTENERS_MAX:
        yield event("error", {"message": "too many streams of events; try again later"})
        return
    feed.listeners += 1
    try:
        async for part in parts:
            yield part
    finally:
        feed.listeners -= 1


async def stream_log(call: Call) -> EventStream:
    """A job's log entries, output and statuses, as they come; ends when the job has ended.

    Events: ``log`` (an entry), ``output`` (op_index, stream, text, or data in Base64 if it is no
    text), ``gap`` (missing output), ``status``, ``end``.
    """
    job_id = call.job_id
    # An unknown job is an error of its own, before the stream begins.
    await call.client.job(job_id)
    given = call.headers.get("last-event-id") or call.text("after") or "0.0"
    serial, _, size = given.partition(".")
    parts = _log(call, job_id, _event_number(serial, given), _event_number(size, given))
    return EventStream(_counted(call.of(Feed), parts))


async def _log(call: Call, job_id: int, serial: int, size: int) -> AsyncGenerator[bytes, None]:
    """``serial``: of the last log entry that the client has; ``size``: its bytes of output."""
    sent = 0
    try:
        async for part in call.client.follow(job_id, pause=rapi_settings.COMMENT_SECONDS):
            match part:
                case None:
                    yield COMMENT
                case LogLine():
                    if part.serial > serial:
                        serial = part.serial
                        yield event("log", part, f"{serial}.{max(sent, size)}")
                case OutputChunk():
                    sent += len(part.data)
                    if sent > size:
                        data = part.data[max(0, len(part.data) - (sent - size)) :]
                        yield _output(part, data, f"{serial}.{sent}")
                case StatusChange():
                    kind = "end" if part.job.is_final else "status"
                    yield event(kind, _status(part))
    except errors.GangerError as error:
        yield event("error", {"message": error.text})


def _status(part: StatusChange) -> dict[str, object]:
    shown: dict[str, object] = {"id": part.job_id, "status": str(part.status)}
    if part.job.outcome is not None:
        shown |= {"outcome": part.job.outcome, "reason_ended": part.job.reason_ended}
    return shown


def _output(part: OutputChunk, data: bytes, number: str) -> bytes:
    shown: dict[str, object] = {"op_index": part.op_index, "stream": part.stream}
    if part.gap:
        shown |= {"gap": part.gap, "missing": part.missing}
        return event("gap", shown, number)
    try:
        shown["text"] = data.decode()
    except UnicodeDecodeError:
        shown["data"] = base64.b64encode(data).decode()
    return event("output", shown, number)


def _event_number(text: str, given: str) -> int:
    found = whole(text)
    if found is None:
        raise HttpError(400, f"Last-Event-ID: expected the id of an event, got {given[:60]!r}")
    return found


def _job_id(text: str) -> int:
    found = whole(text)
    if found is None:
        raise HttpError(400, f"Invalid job id {text[:60]!r}")
    return found


_RESUMED = Parameter("after", str, "The id of the last event that is known, as Last-Event-ID.")

RESOURCES = (
    Resource(
        path="/2/events",
        is_own=True,
        methods={
            "GET": Method(
                handler=stream_events,
                right=Right.READ,
                summary="Changes of jobs as server-sent events.",
                query=(Parameter("job", list, "Only this job; may be repeated."), _RESUMED),
            )
        },
    ),
    Resource(
        path="/2/jobs/{job_id:int}/log",
        is_own=True,
        methods={
            "GET": Method(
                handler=stream_log,
                right=Right.READ,
                summary="A job's log and output as server-sent events.",
                query=(_RESUMED,),
            )
        },
    ),
)
