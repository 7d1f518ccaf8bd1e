"""Jobs. Source: Ganeti 3.0, RAPI, ``/2/jobs``; submitting any opcode is Ganger's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from ..storage import errors
from ..storage.access import rapi_settings
from . import bodies, roles, rows
from .declarations import Call, Method, Parameter, Resource, Right
from .job_bodies import JobBodies
from .job_listing import BULK_FIELDS, GANETIS_FIELDS, JobListing
from .problems import HttpError

if TYPE_CHECKING:
    from ..transport.client.async_client import AsyncClient

_FORBIDDEN: Final = "compression_tools"

FIELDS: Final = tuple(dict.fromkeys((*GANETIS_FIELDS, "oplog", "opresult", *BULK_FIELDS)))


class NewJob(msgspec.Struct, forbid_unknown_fields=True):
    """A job to submit: its opcodes, and what all of them get that have no value of their own."""

    ops: list[dict[str, Any]]
    priority: int | None = None
    reason: str | list[tuple[str, str, int]] | None = None
    depends: list[int | tuple[int, list[str]]] | None = None
    comment: str | None = None
    name: str | None = None


def refuse_commands(given: Mapping[str, Any]) -> None:
    """`HttpError` 403 for a parameter that names commands which the nodes run.

    Only the administrator at the machine may name them.
    """
    if _FORBIDDEN in given:
        raise HttpError(403, f"The parameter {_FORBIDDEN} cannot be set via RAPI")


async def submitted(call: Call, opcodes: list[dict[str, Any]], **more: Any) -> int:  # noqa: ANN401 - as `submit`
    """The id of a job with these opcodes. `HttpError` 403 if the user may not submit them.

    The opcodes that the resource declares were looked at before; these are what is submitted.
    """
    names = [str(op.get("OP_ID")) for op in opcodes]
    refused = roles.refusal(call.user, Right.SUBMIT, names)
    if refused is not None:
        raise HttpError(403, refused)
    return await call.client.submit(opcodes, key=call.key, submitter=call.submitter, **more)


async def list_jobs(call: Call) -> Response:
    """All live jobs: their ids, or whole."""
    listing = call.of(JobListing)
    found = await (listing.bulk() if call.flag("bulk") else listing.short())
    return Response(found, media_type="application/json")


async def submit_job(call: Call) -> int:
    """Submit a job with these opcodes; the reply is its id."""
    job: NewJob = call.body
    ops = job.ops
    if not ops:
        raise HttpError(400, "Invalid body parameters: a job needs at least one opcode")
    for op in ops:
        refuse_commands(op)
    if job.comment is not None:
        ops = [{"comment": job.comment, **op} for op in ops]
    return await submitted(
        call,
        ops,
        reason=job.reason,
        priority=job.priority,
        depends=job.depends,
        name=job.name,
    )


def _new_job(body: object) -> NewJob:
    return bodies.converted(bodies.mapping(body), NewJob)


async def show_job(call: Call) -> Any:  # noqa: ANN401 - JSON
    """One job, live or archived. An unknown one has no values but its id."""
    try:
        job_id = call.job_id
    except errors.UnknownJobError:
        return {**dict.fromkeys(FIELDS), "id": int(call.path["job_id"])}
    return Response(await call.of(JobBodies).body(job_id), media_type="application/json")


async def read_body(client: AsyncClient, job_id: int) -> bytes:
    """The JSON of one job."""
    [found] = await rows.raw_objects(client, "job", FIELDS, ["==", "id", job_id])
    return msgspec.json.encode(found) + b"\n"


async def cancel_job(call: Call) -> list[Any]:
    """Cancel a job that has not started: whether that is so, and a text. A running one by kill."""
    try:
        job_id = call.job_id
    except errors.UnknownJobError:
        return [False, f"Job {call.path['job_id']} not found in queue"]
    outcome = await call.client.cancel(job_id, kill=call.flag("kill"))
    return [outcome.accepted, outcome.text]


async def wait_for_change(call: Call) -> dict[str, Any]:
    """Wait until fields of a job have other values, or its log has more entries."""
    body = bodies.mapping(call.body)
    fields = bodies.parameter(body, "fields", list)
    for name in fields:
        bodies.check_type(name, str, "'fields' parameter")
    before = bodies.parameter(body, "previous_job_info", list, None)
    serial = bodies.parameter(body, "previous_log_serial", int, None)
    seconds = rapi_settings.WAIT_SECONDS
    try:
        found = await call.client.await_change(
            call.job_id, fields, before, log_serial=serial, seconds=seconds
        )
    except errors.UnknownJobError as error:
        raise HttpError(404, _LOST) from error
    return {"job_info": found.values, "log_entries": found.log}


_LOST: Final = "Can't load job file"


RESOURCES = (
    Resource(
        path="/2/jobs",
        methods={
            "GET": Method(
                handler=list_jobs, right=Right.READ, summary="List jobs.", query=(rows.BULK,)
            ),
            "POST": Method(
                handler=submit_job,
                right=Right.SUBMIT,
                summary="Submit a job.",
                body=NewJob,
                reads=_new_job,
                reply=int,
                is_own=True,
            ),
        },
    ),
    Resource(
        path="/2/jobs/{job_id:int}",
        methods={
            "GET": Method(handler=show_job, right=Right.READ, summary="Show a job."),
            "DELETE": Method(
                handler=cancel_job,
                right=Right.CANCEL,
                summary="Cancel a job.",
                query=(Parameter("kill", bool, "Stop a running job, too; Ganger's own."),),
            ),
        },
    ),
    Resource(
        path="/2/jobs/{job_id:int}/wait",
        methods={
            "GET": Method(
                handler=wait_for_change, right=Right.WAIT, summary="Wait for a change of a job."
            ),
        },
    ),
)
