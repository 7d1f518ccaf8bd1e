"""Which jobs and filter rules a user may change who may submit named opcodes only.

Such a user may cancel, and change the priority of, jobs that have no other opcodes, and keep rules
that cannot match a job without one of them.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..storage import errors
from . import roles
from .declarations import Right

if TYPE_CHECKING:
    from ..storage.rapi_users import User
    from ..transport.client.async_client import AsyncClient

_DIGITS_MAX = 18
"""No job id has more."""


async def refusal(
    client: AsyncClient, user: User, right: Right, path: Mapping[str, str], body: object
) -> str | None:
    """Why the user may not change this job or rule; None if he may, or there is none."""
    if not roles.is_limited(user):
        return None
    allowed = roles.opcodes(user)
    if right is Right.CANCEL:
        outside = sorted(await _opcodes_of(client, path.get("job_id", "")) - allowed)
        return f"user {user.name} may not change jobs with {outside[0]}" if outside else None
    if right is not Right.FILTERS:
        return None
    given = body.get("predicates") if isinstance(body, Mapping) else None
    rules = [given] if isinstance(body, Mapping) else []
    if uuid := path.get("uuid"):
        found = await client.filters()
        rules += [rule.predicates for rule in found if _digits(rule.uuid) == _digits(uuid)]
    if any(not concerns_only(rule, allowed) for rule in rules):
        names = ", ".join(sorted(allowed)) or "no opcode"
        return f"user {user.name} may only keep filter rules for {names}"
    return None


def _digits(uuid: str) -> str:
    """A UUID in whatever spelling."""
    return "".join(sign for sign in uuid.lower() if sign in string.hexdigits)


async def _opcodes_of(client: AsyncClient, job_id: str) -> set[str]:
    """The opcodes of a job; none if there is no such job, which the daemon then says."""
    if not job_id.isdecimal() or len(job_id) > _DIGITS_MAX:
        return set()
    try:
        job = await client.job(int(job_id))
    except errors.UnknownJobError:
        return set()
    return {op.op_id for op in job.ops or ()}


def concerns_only(predicates: object, opcodes: frozenset[str]) -> bool:
    """Whether a rule with these predicates matches only jobs with one of these opcodes.

    >>> concerns_only([["opcode", ["=", "OP_ID", "OP_A"]]], frozenset({"OP_A"}))
    True
    >>> concerns_only([["jobid", [">", "id", 7]]], frozenset({"OP_A"}))
    False
    """
    if not isinstance(predicates, Sequence) or isinstance(predicates, str):
        return False
    try:
        found = [_named(predicate) for predicate in predicates]
    except RecursionError:
        return False
    return any(names is not None and names <= opcodes for names in found)


def _named(predicate: object) -> frozenset[str] | None:
    """The opcodes of which a job must have one to fulfil the predicate; None: any."""
    match predicate:
        case ["opcode", expression]:
            return _named_by(expression)
    return None


def _named_by(expression: object) -> frozenset[str] | None:
    match expression:
        case ["=" | "==", "OP_ID", str(name)]:
            return frozenset({name})
        case ["|", *parts] if parts:
            found = [_named_by(part) for part in parts]
            names = [part for part in found if part is not None]
            return frozenset().union(*names) if len(names) == len(found) else None
        case ["&", *parts]:
            # All of them hold for one and the same opcode.
            names = [part for part in map(_named_by, parts) if part is not None]
            return frozenset.intersection(*names) if names else None
    return None
