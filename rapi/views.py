"""What a user sees of jobs: everything, or without private parameters, or without output, too.

Who may change anything sees everything. Other users see no private parameters of opcodes (a
command's environment and standard input). Who has not said who he is sees no output of commands.
Each view has a client of its own that hides the rest, so no resource has to think of it.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from ..storage.access.rapi_users import NOBODY, User
from ..storage.filters.predicates import looks_at, parse_predicates
from ..storage.jobs import outcomes
from ..storage.jobs.job_views import OutputChunk, StatusChange
from ..storage.opcodes import catalogue
from ..storage.queries import job_masks
from . import jobs, roles
from .job_bodies import JobBodies
from .job_listing import JobListing
from .problems import HttpError

if TYPE_CHECKING:
    from ..storage.jobs.job_views import JobChange, JobInfo, LogLine, OpInfo
    from ..transport.client.async_client import AsyncClient
    from ..transport.messages import JobExplained, Simulated
    from .feed import JobEvent


class View(msgspec.Struct, frozen=True):
    """How those see jobs who may see the same."""

    client: AsyncClient
    shared: Mapping[type, Any]
    """The listings and the answers that show one job, as in `Call.shared`."""


def view(client: AsyncClient) -> View:
    """What this client shows."""
    bodies = JobBodies(client, functools.partial(jobs.read_body, client))
    return View(client, {JobListing: JobListing(client), JobBodies: bodies})


_Ended = TypeVar("_Ended", "JobInfo", "JobEvent")


def without_output(told: _Ended) -> _Ended:
    """The same, without what a command has printed in the reason why the job has ended."""
    shown = outcomes.without_output(told.reason_ended)
    return told if shown == told.reason_ended else msgspec.structs.replace(told, reason_ended=shown)


class Views:
    """The views of all users."""

    def __init__(self, client: AsyncClient) -> None:
        self._whole = view(client)
        self._known = view(_veiled(client, job_masks.PARAMETERS))
        self._unknown = view(_veiled(client, job_masks.PARAMETERS_AND_OUTPUT))

    def of(self, user: User) -> View:
        """What this user may see."""
        if user is NOBODY:
            return self._unknown
        return self._known if roles.is_limited(user) else self._whole


def _veiled(client: AsyncClient, masks: job_masks.Masks) -> AsyncClient:
    return cast("AsyncClient", _Veiled(client, masks))


class _Veiled:
    """A client whose answers about jobs have masks. All other verbs are those of the client."""

    def __init__(self, client: AsyncClient, masks: job_masks.Masks) -> None:
        self._client = client
        self._masks = masks
        self._hides_output = "opresult" in masks

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a verb
        return getattr(self._client, name)

    async def query_json(
        self, what: str, fields: Sequence[str], raw_filter: object = None
    ) -> tuple[Any, bytes]:
        """As the client's."""
        if what == "job":
            job_masks.check_filter(raw_filter, self._masks)
        found, rows = await self._client.query_json(what, fields, raw_filter)
        if what == "job":
            rows = job_masks.masked_rows(rows, fields, self._masks, is_classic=False)
        return found, rows

    async def job(self, job_id: int) -> JobInfo:
        """As the client's."""
        job = await self._client.job(job_id)
        if self._hides_output:
            job = without_output(job)
        return msgspec.structs.replace(job, ops=[self._shown(op) for op in job.ops or ()])

    async def explain(self, job_id: int) -> JobExplained:
        """As the client's."""
        found = await self._client.explain(job_id)
        if not (self._hides_output and found.status.is_final):
            return found
        return msgspec.structs.replace(found, text=outcomes.without_output(found.text))

    def _shown(self, op: OpInfo) -> OpInfo:
        op = msgspec.structs.replace(op, input=job_masks.opcodes([op.input])[0])
        if not self._hides_output:
            return op
        log = [line for line in op.log if line.kind not in job_masks.OUTPUT_KINDS]
        return msgspec.structs.replace(op, result=job_masks.results(op.result), log=log)

    async def await_change(
        self,
        job_id: int,
        fields: Sequence[str],
        before: list[Any] | None,
        *,
        log_serial: int | None,
        seconds: float,
    ) -> JobChange:
        """As the client's; what has a mask is null, and is not waited for."""
        asked, before = job_masks.without_masked(fields, before, self._masks)
        found = await self._client.await_change(
            job_id, asked, before, log_serial=log_serial, seconds=seconds
        )
        # Who may wait is known, and sees output: the log is whole.
        values = job_masks.with_nulls(found.values, fields, self._masks)
        return msgspec.structs.replace(found, values=values)

    async def follow(
        self, job_id: int, *, pause: float | None
    ) -> AsyncIterator[StatusChange | LogLine | OutputChunk | None]:
        """As the client's."""
        async for part in self._client.follow(job_id, pause=pause):
            if self._hides_output and isinstance(part, StatusChange):
                yield msgspec.structs.replace(part, job=without_output(part.job))
            elif not (self._hides_output and isinstance(part, OutputChunk)):
                yield part

    async def simulate(
        self,
        *,
        rule: Mapping[str, Any] | None,
        **more: Any,  # noqa: ANN401 - as the client's
    ) -> Simulated:
        """As the client's; `HttpError` 403 for a rule that would tell private parameters."""
        refused = None if rule is None else private_parameter(rule.get("predicates", []))
        if refused is not None:
            raise HttpError(403, f"a rule may not look at the private parameter {refused}")
        return await self._client.simulate(rule=rule, **more)


def private_parameter(predicates: object) -> str | None:
    """A private parameter at which a rule with these predicates looks. `FilterRuleError`."""
    names = looks_at(parse_predicates(predicates, "predicates")).parameters
    private = _private_parameters(catalogue.generation())
    return min((names or frozenset()) & private, default=None)


@functools.lru_cache(maxsize=1)
def _private_parameters(_generation: int) -> frozenset[str]:
    found = (catalogue.find(op_id) for op_id in catalogue.known_ids())
    return frozenset(name for one in found if one is not None for name in one.private_fields)
