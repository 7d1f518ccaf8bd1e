"""Which jobs and filter rules a user may change who may submit named opcodes only.

Such a user may cancel, and change the priority of, jobs that have no other opcodes, and keep rules
that cannot match a job without one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from ..storage import errors, wording
from ..storage.access.rapi_users import User
from ..storage.filters.rules import is_uuid
from . import roles
from .declarations import Call, Right
from .filters import WrittenRule
from .views import private_parameter


async def settled(call: Call, right: Right) -> Call:
    """The call, with the UUID of a rule in the place of its name, if the user is a limited one.

    Another rule might get the name between the look at his rights and the change.
    `UnknownFilterError` if no rule has the name.
    """
    name = call.path.get("uuid")
    if not name or right is not Right.FILTERS or is_uuid(name) or not roles.is_limited(call.user):
        return call
    for rule in await call.client.filters():
        if rule.name == name:
            body = call.body
            if isinstance(body, WrittenRule) and not body.name:
                body = msgspec.structs.replace(body, name=name)
            path = {**call.path, "uuid": rule.uuid}
            return msgspec.structs.replace(call, path=path, body=body)
    text = f"there is no filter rule with the UUID or name {wording.shown(name)}"
    raise errors.UnknownFilterError(text)


async def refusal(call: Call, right: Right) -> str | None:
    """Why the user may not change this job or rule; None if he may, or there is no such rule.

    The call is a `settled` one.

    `UnknownJobError` for a job that is not there: it might be there, and somebody else's, when the
    handler looks.
    """
    user = call.user
    if not roles.is_limited(user):
        return None
    allowed = roles.opcodes(user)
    if right is Right.CANCEL:
        job = await call.client.job(call.job_id)
        outside = sorted({op.op_id for op in job.ops or ()} - allowed)
        if not outside:
            return None
        text = f"user {user.name} may not change jobs with {outside[0]}"
        return f"{text}; {roles.granted_for(user, outside[0])}"
    if right is not Right.FILTERS:
        return None
    if isinstance(call.body, WrittenRule) and (hidden := private_parameter(call.body.predicates)):
        # The jobs that it holds would tell the value.
        text = f"user {user.name} may not keep filter rules that look at {hidden}"
        return f"{text}; {roles.granted(user)}"
    rules = [call.body.predicates] if isinstance(call.body, WrittenRule) else []
    if uuid := call.path.get("uuid"):
        rules += [rule.predicates for rule in await call.client.filters() if rule.uuid == uuid]
    if any(not concerns_only(rule, allowed) for rule in rules):
        names = ", ".join(sorted(allowed)) or "no opcode"
        text = f"user {user.name} may only keep filter rules for {names}"
        return f"{text}; {roles.granted(user)}"
    return None


def job_rights(user: User, opcodes: Collection[str]) -> list[Right]:
    """What the user may do with a job of these opcodes: change it, hold it, submit it anew."""
    may_change = not roles.is_limited(user) or roles.opcodes(user).issuperset(opcodes)
    may_retry = roles.refusal(user, Right.SUBMIT, opcodes) is None
    found = {Right.CANCEL: may_change, Right.FILTERS: may_change, Right.SUBMIT: may_retry}
    return [right for right, may in found.items() if may and right in roles.rights(user)]


def may_change_rule(user: User, predicates: object) -> bool:
    """Whether the user may replace and delete a rule with these predicates."""
    if Right.FILTERS not in roles.rights(user):
        return False
    return not roles.is_limited(user) or concerns_only(predicates, roles.opcodes(user))


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
