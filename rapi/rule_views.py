"""Filter rules with their hits. Ganger's own; Ganeti's resource is in `filters`.

Both take new rules: a client of Ganeti gives a reason trail and gets its web server's errors, the
page gives a text.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import msgspec

from ..transport.messages import FilterRow
from . import scopes
from .bodies import converted
from .declarations import Call, Method, Resource, Right
from .filters import WrittenRule, stored


class RuleShown(FilterRow, frozen=True, kw_only=True):
    """A filter rule, and to how many jobs it was applied since the daemon started."""

    hits: int = 0
    may_change: bool = False
    """Whether the user who asks may replace and delete it."""


class NewRule(WrittenRule, kw_only=True):
    """A rule as the page writes it."""

    reason: str = ""


async def list_rules(call: Call) -> Any:  # noqa: ANN401 - JSON
    """All filter rules, in the order in which they are looked at, with their hits."""
    rules, hits = await asyncio.gather(call.client.filters(), call.client.rule_hits())
    found: list[dict[str, Any]] = msgspec.to_builtins(rules)
    for rule in found:
        rule["hits"] = hits.get(rule["uuid"], 0)
        rule["may_change"] = scopes.may_change_rule(call.user, rule["predicates"])
    return found


async def add_rule(call: Call) -> str:
    """Store a filter rule; it is in force when the answer comes."""
    return await stored(call, call.body)


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
                reads=functools.partial(converted, kind=NewRule),
                reply=str,
            ),
        },
    ),
)
