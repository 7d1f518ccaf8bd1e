"""Makes messages about filter rules, and about what would happen if, from verbs. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

import msgspec

from ...storage import errors, plain_values, wording
from ...storage.filters import rules
from ..messages import (
    DeleteFilter,
    FiltersTested,
    ListFilters,
    ReplaceFilter,
    Simulate,
    TestFilters,
)
from .requests import (
    change_key,
    check_sendable,
    checked_priority,
    checked_status,
    checked_text,
    is_whole,
    positive,
    type_name,
)

RULE_KEYS: Final = tuple(
    name for name in ReplaceFilter.__struct_fields__ if name not in {"sender", "request"}
)
"""The keys of a rule as a user writes it."""

_STORED_KEYS: Final = ("watermark", "state", "reason_trail")
"""Further keys of a stored rule: a listed rule may be proposed as it is."""

_NULLABLE_KEYS: Final = ("uuid", "reason", "valid_from", "valid_until", "name")


def new_filter(
    uuid: str | None,
    window: tuple[float | None, float | None],
    key: str | None = None,
    **fields: Any,  # noqa: ANN401 - as the caller gave them
) -> ReplaceFilter:
    """The request that stores a filter rule."""
    valid_from, valid_until = window
    if fields.get("reason", "") is None:
        # None stands for no reason, as in a rule that is only proposed.
        fields["reason"] = ""
    if uuid is None and key is None:
        # Under a key of the caller's own, the daemon names the rule: each call would name another.
        uuid = str(uuid4())
    if uuid is not None:
        fields["uuid"] = uuid
    if uuid == rules.PROPOSED_UUID:
        raise errors.FilterRuleError(f"uuid: {uuid} stands for a rule that is only proposed")
    return ReplaceFilter(
        **_rule_fields(
            {
                **fields,
                "valid_from": valid_from,
                "valid_until": valid_until,
                "request": change_key(key),
            }
        )
    )


def proposed_filter(rule: Mapping[str, Any]) -> ReplaceFilter:
    """A rule to try out, from the arguments of `Client.add_filter` or from a listed rule.

    The keys that only a stored rule has are left out. Without a UUID it gets
    `rules.PROPOSED_UUID`.
    """
    if not isinstance(rule, Mapping):
        raise errors.FilterRuleError(f"rule: expected a rule (a dictionary), got {type_name(rule)}")
    for key in rule:
        if key not in RULE_KEYS and key not in _STORED_KEYS:
            raise _unknown_key(key)
    fields = {
        name: value
        for name, value in rule.items()
        if name in RULE_KEYS and not (value is None and name in _NULLABLE_KEYS)
    }
    if "reason" not in fields and "reason_trail" in rule:
        fields["reason"] = rule["reason_trail"]
    return ReplaceFilter(**_rule_fields({"uuid": rules.PROPOSED_UUID, **fields}))


def _unknown_key(key: object) -> errors.FilterRuleError:
    name = str(key)
    guess = wording.likeness(name, RULE_KEYS)
    text = f"rule: unknown key {wording.shown(name)}{guess}; known are {', '.join(RULE_KEYS)}"
    return errors.FilterRuleError(text)


def _rule_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a rule, in the form that is sent; `FilterRuleError` names a wrong one.

    Only types are checked here, where the daemon could not name the argument any more.
    """
    fields = dict(given)
    if "predicates" in fields:
        found = fields["predicates"]
        # Otherwise an empty dictionary would become an empty list, which means every job.
        if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
            text = f"predicates: expected a list of predicates, got {type_name(found)}"
            raise errors.FilterRuleError(text)
        fields["predicates"] = list(found)
    if "action" in fields:
        fields["action"] = _action(fields["action"])
    reason = fields.get("reason", "")
    if not isinstance(reason, str | list | tuple):
        text = f"reason: expected a text, or a list of entries, got {type_name(reason)}"
        raise errors.FilterRuleError(text)
    if "uuid" in fields:
        fields["uuid"] = checked_text(fields["uuid"], "uuid", "a UUID")
    for name, value in fields.items():
        check_sendable(value, name)
    return fields


def _action(action: object) -> object:
    if isinstance(action, str):
        return rules.written_action(action)
    if isinstance(action, Sequence) and not isinstance(action, bytes):
        return list(action)
    known = ", ".join(name for name in rules.ACTIONS if name != rules.ActionName.RATE_LIMIT)
    text = f'action: expected one of {known}, or ["RATE_LIMIT", n], got {type_name(action)}'
    raise errors.FilterRuleError(text)


def deleted_filter(uuid: str, key: str | None = None) -> DeleteFilter:
    """The request that deletes a rule."""
    return DeleteFilter(uuid=checked_text(uuid, "uuid", "a UUID"), request=change_key(key))


def listed_filters(uuids: Iterable[str] | None) -> ListFilters:
    """The request for all rules, or those with these UUIDs."""
    if uuids is None:
        return ListFilters()
    if isinstance(uuids, str | bytes | Mapping) or not isinstance(uuids, Iterable):
        raise errors.BadRequestError(f"uuids: expected a list of UUIDs, got {type_name(uuids)}")
    found = [checked_text(uuid, f"uuids[{place}]", "a UUID") for place, uuid in enumerate(uuids)]
    return ListFilters(uuids=found)


def simulation(
    rule: Mapping[str, Any] | None,
    *,
    without: str | None,
    priorities: Mapping[int, int] | None,
    running: int | None,
    ended: Mapping[int, str] | None,
) -> Simulate:
    """The request that asks what would happen."""
    return Simulate(
        rule=None if rule is None else proposed_filter(rule),
        without=_without(without),
        priorities={
            job_id: checked_priority(priority, f"priorities[{job_id}]")
            for job_id, priority in _by_job(priorities, "priorities").items()
        },
        running_jobs_max=positive(running, "running"),
        ended={
            job_id: checked_status(status) for job_id, status in _by_job(ended, "ended").items()
        },
    )


def filter_test(rule: Mapping[str, Any] | None, without: str | None) -> TestFilters:
    """The request that asks which rule applies to each job, and which would."""
    proposed = None if rule is None else proposed_filter(rule)
    return TestFilters(rule=proposed, without=_without(without))


def _without(uuid: str | None) -> str | None:
    return None if uuid is None else checked_text(uuid, "without", "the UUID of a rule")


def _by_job(given: Mapping[int, Any] | None, name: str) -> dict[int, Any]:
    """What is given for some jobs, by their ids."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise errors.BadRequestError(
            f"{name}: expected a dictionary by job id, got {type_name(given)}"
        )
    for job_id in given:
        if not is_whole(job_id) or not 0 < job_id <= plain_values.INTEGER_MAX:
            text = f"{name}: expected job ids as keys, got {wording.shown(str(job_id))}"
            raise errors.BadRequestError(text)
    return dict(given)


def next_test(message: TestFilters, reply: FiltersTested) -> TestFilters | None:
    """The request for the page after ``reply``; None if it was the last one."""
    if reply.next_after is None or reply.next_after <= message.after:
        return None
    return msgspec.structs.replace(message, after=reply.next_after)
