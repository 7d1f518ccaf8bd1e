"""Filter rules with their time windows. Ganger's own; Ganeti's resource is in `filters`."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from ..transport.messages import FilterRow
from .bodies import converted
from .declarations import Call, Method, Resource, Right


class RuleShown(FilterRow, frozen=True, kw_only=True):
    """A filter rule, and to how many jobs it was applied since the daemon started."""

    hits: int = 0


class NewRule(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A filter rule; outside of its window (seconds since the epoch) it does not apply."""

    priority: int = 0
    predicates: list[Any] = []
    action: Any = "CONTINUE"
    reason: str = ""
    valid_from: float | None = None
    valid_until: float | None = None


async def list_rules(call: Call) -> Any:  # noqa: ANN401 - JSON
    """All filter rules, in the order in which they are looked at, with their hits."""
    rules, hits = await asyncio.gather(call.client.filters(), call.client.rule_hits())
    found: list[dict[str, Any]] = msgspec.to_builtins(rules)
    for rule in found:
        rule["hits"] = hits.get(rule["uuid"], 0)
    return found


async def add_rule(call: Call) -> str:
    """Store a filter rule; it is in force when the answer comes."""
    rule = converted(call.body, NewRule)
    return await call.client.add_filter(
        priority=rule.priority,
        predicates=rule.predicates,
        action=rule.action,
        reason=rule.reason,
        valid_from=rule.valid_from,
        valid_until=rule.valid_until,
    )


RESOURCES = (
    Resource(
        path="/2/rules",
        is_own=True,
        methods={
            "GET": Method(
                handler=list_rules,
                right=Right.READ,
                summary="Filter rules, with their windows.",
                reply=list[RuleShown],
            ),
            "POST": Method(
                handler=add_rule,
                right=Right.FILTERS,
                summary="Add a filter rule, with a window if need be.",
                body=NewRule,
                reply=str,
            ),
        },
    ),
)
