"""Filter rules. Source: Ganeti 3.0, RAPI, ``/2/filters``; the time window of a rule is Ganger's."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ..storage import errors
from ..storage.filters import filters
from ..transport.messages import FilterRow
from . import bodies, problems, rows
from .declarations import Call, Method, Resource, Right
from .problems import HttpError

_DEPTH_MAX: Final = 2 + filters.DEPTH_MAX
"""Of predicates: a list of pairs of a name and a filter."""


class WrittenRule(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A filter rule; outside of its window (seconds since the epoch) it does not apply.

    Each resource that takes rules adds the ``reason`` in its own form.
    """

    priority: int = 0
    predicates: list[Any] = []
    action: Any = "CONTINUE"
    valid_from: float | None = None
    valid_until: float | None = None
    name: str = ""
    first: bool = False


class Rule(WrittenRule, kw_only=True):
    """A rule as clients of Ganeti write it."""

    reason: list[Any] = []


async def stored(call: Call, rule: WrittenRule, uuid: str | None = None) -> str:
    """Store a rule, under this UUID if one is given; it is in force when this returns its UUID.

    Raises `FilterRuleError`.
    """
    return await call.client.add_filter(uuid=uuid, key=call.key, **msgspec.structs.asdict(rule))


async def list_filters(call: Call) -> Any:  # noqa: ANN401 - JSON
    """All rules in the order of their evaluation: their UUIDs, or whole."""
    found = await call.client.filters()
    if call.flag("bulk"):
        return [_shown(rule) for rule in found]
    return rows.uris((rule.uuid for rule in found), "/2/filters", "uuid")


async def add_filter(call: Call) -> str:
    """Store a new rule; the reply is its UUID."""
    return await _store(call, None)


async def replace_filter(call: Call) -> str:
    """Store a rule under this UUID, in place of another one if there is one."""
    return await _store(call, call.path["uuid"])


async def show_filter(call: Call) -> dict[str, Any]:
    """One rule."""
    uuid = call.path["uuid"]
    for rule in await call.client.filters():
        if uuid in (rule.uuid, rule.name):
            return _shown(rule)
    raise HttpError(404)


async def delete_filter(call: Call) -> None:
    """Delete a rule."""
    try:
        await call.client.delete_filter(call.path["uuid"], key=call.key)
    except errors.UnknownFilterError as error:
        text = f"Filter rule with UUID {call.path['uuid']} does not exist"
        raise HttpError(500, text) from error


async def _store(call: Call, uuid: str | None) -> str:
    try:
        return await stored(call, call.body, uuid)
    except errors.FilterRuleError as error:
        if error.text.startswith("uuid:"):
            raise HttpError(500, "Unable to parse UUID") from error
        raise problems.of_query(error) from error


def _rule(body: object) -> Rule:
    """The rule in a body. Nothing, or null, is a rule without predicates: for every job."""
    given = bodies.optional_mapping(body)
    priority = bodies.parameter(given, "priority", int, 0)
    predicates = bodies.parameter(given, "predicates", list, [])
    reason = bodies.parameter(given, "reason", list, [])
    bodies.refuse_others(given, Rule.__struct_fields__, "filter rule")
    for name, value in (("predicates", predicates), ("reason", reason)):
        bodies.check_depth(value, _DEPTH_MAX, f"'{name}' parameter")
    checked = {"priority": priority, "predicates": predicates, "reason": reason}
    return Rule(**{**given, **checked})


def _shown(rule: FilterRow) -> dict[str, Any]:
    found = {
        "watermark": rule.watermark,
        "priority": rule.priority,
        "predicates": rule.predicates,
        "action": rule.action,
        "reason_trail": rule.reason_trail,
        "uuid": rule.uuid,
    }
    window = {"valid_from": rule.valid_from, "valid_until": rule.valid_until}
    own = {"name": rule.name or None, "first": rule.first or None, **window}
    return {**found, **{name: value for name, value in own.items() if value is not None}}


RESOURCES = (
    Resource(
        path="/2/filters",
        methods={
            "GET": Method(
                handler=list_filters,
                right=Right.READ,
                summary="List filter rules.",
                query=(rows.BULK,),
            ),
            "POST": Method(
                handler=add_filter,
                right=Right.FILTERS,
                summary="Add a filter rule.",
                body=Rule,
                reads=_rule,
                reply=str,
            ),
        },
    ),
    Resource(
        path="/2/filters/{uuid}",
        methods={
            "GET": Method(handler=show_filter, right=Right.READ, summary="Show a filter rule."),
            "PUT": Method(
                handler=replace_filter,
                right=Right.FILTERS,
                summary="Replace a filter rule, or add one with this UUID.",
                body=Rule,
                reads=_rule,
                reply=str,
            ),
            "DELETE": Method(
                handler=delete_filter, right=Right.FILTERS, summary="Delete a filter rule."
            ),
        },
    ),
)
