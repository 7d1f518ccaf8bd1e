"""Makes filter rules from requests, and rows of listings from filter rules. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ...storage import errors, wording
from ...storage.filters import rules
from ...storage.filters.filters import searches
from ...transport.messages import FilterRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ...transport.messages import ReplaceFilter

_OWN_SOURCE = "luxid"
"""The source of the entry that Ganeti's daemon adds; tools look for it."""

_USER_SOURCE = "gnt:user"


def build_rule(message: ReplaceFilter, *, watermark: int, now_nanoseconds: int) -> rules.FilterRule:
    """The requested rule; `FilterRuleError` names what is wrong with it.

    Its reason trail is the one given, and an entry with the time of the request.
    """
    if searches(message.predicates) > rules.SEARCHES_MAX:
        # Refuse them before `parse_rule` compiles each one.
        text = f"predicates: more than {rules.SEARCHES_MAX} regular expressions"
        raise errors.FilterRuleError(text)
    reason = message.reason
    if isinstance(reason, str):
        trail: Any = [[_USER_SOURCE, reason, now_nanoseconds]] if reason else []
    else:
        trail = reason
    rule = rules.parse_rule(
        {
            "uuid": message.uuid,
            "watermark": watermark,
            "priority": message.priority,
            "predicates": message.predicates,
            "action": message.action,
            "reason_trail": trail,
            "valid_from": message.valid_from,
            "valid_until": message.valid_until,
            "name": message.name,
            "first": message.first,
        }
    )
    rules.check_window(rule)
    signed = (*rule.reason_trail, (_OWN_SOURCE, "", now_nanoseconds))
    return msgspec.structs.replace(rule, reason_trail=signed)


def addressed(message: ReplaceFilter, names: Mapping[str, str]) -> ReplaceFilter:
    """The request with a UUID in the place of a name; ``names``: the UUIDs of rules by name."""
    if message.uuid is None or message.uuid not in names:
        return message
    return msgspec.structs.replace(
        message, uuid=names[message.uuid], name=message.name or message.uuid
    )


def stored_names(filters: Mapping[str, Any]) -> dict[str, str]:
    """The UUIDs of the stored rules that have a name, readable or not."""
    found = ((raw.get("name"), uuid) for uuid, raw in filters.items() if isinstance(raw, dict))
    return {name: uuid for name, uuid in found if isinstance(name, str) and name}


def known_names(known: Iterable[rules.FilterRule]) -> dict[str, str]:
    """The UUIDs of the rules that have a name."""
    return {rule.name: rule.uuid for rule in known if rule.name}


def check_name_is_free(filters: Mapping[str, Any], rule: rules.FilterRule) -> None:
    """`FilterRuleError` if another rule has this one's name."""
    other = stored_names(filters).get(rule.name)
    if other is not None and other != rule.uuid:
        text = f"name: {wording.shown(rule.name)} is the name of the rule {other} already"
        raise errors.FilterRuleError(text)


def with_rule(filters: Mapping[str, Any], rule: rules.FilterRule) -> dict[str, Any]:
    """The stored rules with this one added or replaced; `FilterRuleError` if they are too many.

    If they exceed a limit already, a rule may still be replaced by one that is no larger.
    """
    changed = {**filters, rule.uuid: rules.to_raw(rule)}
    if len(changed) > max(rules.RULES_MAX, len(filters)):
        text = (
            f"there are {len(filters)} filter rules, and no more than {rules.RULES_MAX} are kept: "
            "delete some, such as expired ones"
        )
        raise errors.FilterRuleError(text)
    count = _searches(changed)
    if count > rules.SEARCHES_MAX and count > _searches(filters):
        text = (
            f"all filter rules together would have {count} regular expressions, and no more than "
            f"{rules.SEARCHES_MAX} are kept: delete some, or make one of several (a|b)"
        )
        raise errors.FilterRuleError(text)
    size = _size(changed)
    if size > rules.RULES_BYTES_MAX and size > _size(filters):
        text = (
            f"all filter rules together would have {size} bytes, and no more than "
            f"{rules.RULES_BYTES_MAX} are kept: delete some, or make this one smaller"
        )
        raise errors.FilterRuleError(text)
    return changed


def _searches(filters: Mapping[str, Any]) -> int:
    found = (rule.get("predicates") for rule in filters.values() if isinstance(rule, dict))
    return sum(map(searches, found))


def _size(filters: Mapping[str, Any]) -> int:
    return len(msgspec.json.encode(filters))


def uuid_of(filters: Mapping[str, Any], wanted: str) -> str:
    """The UUID of the stored rule, readable or not, with this UUID or name.

    Raises `UnknownFilterError`.
    """
    if wanted in filters:
        return wanted
    if rules.is_uuid(wanted):
        raise errors.UnknownFilterError(f"Filter rule with UUID {wanted} does not exist")
    names = stored_names(filters)
    found = names.get(wanted)
    if found is None:
        text = f"there is no filter rule with the UUID or name {wording.shown(wanted)}"
        raise errors.UnknownFilterError(text + wording.likeness(wanted, names))
    return found


def listed(
    known: Iterable[rules.FilterRule], uuids: Sequence[str] | None, now: float
) -> list[FilterRow]:
    """The rules with these UUIDs (None: all), in the order of the chain."""
    chosen = [rule for rule in known if uuids is None or rule.uuid in uuids]
    return [_row(rule, now) for rule in sorted(chosen, key=lambda rule: rule.order)]


def _row(rule: rules.FilterRule, now: float) -> FilterRow:
    raw = rules.to_raw(rule)
    return FilterRow(
        uuid=rule.uuid,
        watermark=rule.watermark,
        priority=rule.priority,
        predicates=raw["predicates"],
        action=raw["action"],
        reason_trail=raw["reason_trail"],
        valid_from=rule.valid_from,
        valid_until=rule.valid_until,
        name=rule.name,
        first=rule.first,
        state="expired"
        if rule.is_expired(now)
        else "in force"
        if rule.is_in_force(now)
        else "not yet",
    )
