"""Job filter rules: their stored form, and the table of their actions.

A rule's JSON is Ganeti's. The window of validity is ours, and is stored only if it is set. Unknown
keys are kept. ``actors/rules/filtering`` decides which rule applies to a job. What a rule
looks at is in `predicates`. No files, no clock.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from .. import errors
from ..wording import brief
from .filters import rule_error
from .predicates import Predicate, parse_predicates
from .predicates import to_raw as predicate_to_raw

RULES_MAX: Final = 1_000
"""Most rules stored. To judge a job to which none of them applies takes 1 to 5 ms."""

SEARCHES_MAX: Final = 1_000
"""Most regular expressions in all rules together: each takes up to 1 MiB, and 2 ms to compile."""

RULES_BYTES_MAX: Final = 4 * 1024 * 1024
"""Most bytes of all stored rules, as JSON: a listing of all of them fits into a frame."""

NAME_LENGTH_MAX: Final = 100
"""Longest name of a rule, in characters."""

HOLD_PREFIX: Final = "hold "
"""Begins the name of a rule that is a hold; what is held follows: a lock, or the id of a job."""

USER_SOURCE: Final = "user:"
"""Begins the source of a reason that says who stored the rule; the user's name follows."""

INTEGER_MAX: Final = 2**63 - 1
"""Largest number anywhere in a rule: what fits into a frame."""

TIME_MIN: Final = 0.0
TIME_MAX: Final = 253_402_300_799.0
"""The end of the year 9999. A later time is probably in milliseconds."""

PROPOSED_UUID: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
"""UUID of a proposed rule: last among those of its priority, and never stored."""

ReasonEntry: TypeAlias = tuple[str, str, int]
"""Source, text and nanoseconds since the epoch."""


class ActionName(enum.StrEnum):
    """What a rule does with the jobs to which it applies."""

    ACCEPT = "ACCEPT"
    PAUSE = "PAUSE"
    REJECT = "REJECT"
    CONTINUE = "CONTINUE"
    RATE_LIMIT = "RATE_LIMIT"


class Action(msgspec.Struct, frozen=True):
    """An action, with its number if it has one."""

    name: ActionName
    limit: int | None = None


class FilterRule(msgspec.Struct, frozen=True, kw_only=True):
    """One filter rule. `parse_rule` checks and makes it."""

    uuid: str
    watermark: int
    priority: int = 0
    predicates: tuple[Predicate, ...] = ()
    action: Action = Action(ActionName.CONTINUE)
    reason_trail: tuple[ReasonEntry, ...] = ()
    valid_from: float | None = None
    valid_until: float | None = None
    name: str = ""
    """What users may write in the place of the UUID; no two rules have the same. "": none."""

    first: bool = False
    """Whether it comes before the other rules of its priority."""

    extra: dict[str, Any] = {}

    @property
    def order(self) -> tuple[int, bool, int, str]:
        """The sort key of the rule in the chain."""
        return self.priority, not self.first, self.watermark, self.uuid

    def is_expired(self, now: float) -> bool:
        """Whether the rule's window has ended."""
        return self.valid_until is not None and self.valid_until <= now

    def is_in_force(self, now: float) -> bool:
        """Whether the rule's window, from its start up to but without its end, holds ``now``."""
        return not self.is_expired(now) and (self.valid_from is None or self.valid_from <= now)


class ParsedRules(NamedTuple):
    """The readable rules of a stored set, by their keys, and what is wrong with the others."""

    rules: dict[str, FilterRule]
    problems: tuple[errors.FilterRuleError, ...]


def parse_rule(raw: object, *, where: str = "") -> FilterRule:
    """The rule in this JSON object; `FilterRuleError` names the place, after ``where``.

    ``uuid`` and ``watermark`` must be there; all else has a default.
    """
    if not isinstance(raw, dict):
        raise rule_error(where.rstrip(".") or "rule", f"expected an object, not {brief(raw)}")
    valid_from = _time(raw.get("valid_from"), f"{where}valid_from")
    valid_until = _time(raw.get("valid_until"), f"{where}valid_until")
    if valid_from is not None and valid_until is not None and valid_from >= valid_until:
        raise rule_error(f"{where}valid_until", "must be later than valid_from")
    return FilterRule(
        uuid=parse_uuid(raw.get("uuid"), where=f"{where}uuid"),
        watermark=_non_negative(raw.get("watermark"), f"{where}watermark"),
        priority=_non_negative(raw.get("priority", 0), f"{where}priority"),
        predicates=parse_predicates(raw.get("predicates", []), f"{where}predicates"),
        action=parse_action(raw.get("action", "CONTINUE"), where=f"{where}action"),
        reason_trail=_trail(raw.get("reason_trail", []), f"{where}reason_trail"),
        valid_from=valid_from,
        valid_until=valid_until,
        name=parse_name(raw.get("name", ""), where=f"{where}name"),
        first=_flag(raw.get("first", False), f"{where}first"),
        extra={key: value for key, value in raw.items() if key not in _KEYS},
    )


def check_window(rule: FilterRule) -> None:
    """Raise `FilterRuleError` for a window that begins before 1970 or ends after the year 9999.

    Only for new rules: a stored rule that was refused would not be obeyed.
    """
    for name, moment in (("valid_from", rule.valid_from), ("valid_until", rule.valid_until)):
        if moment is not None and not TIME_MIN <= moment <= TIME_MAX:
            text = f"expected seconds since the epoch, up to the year 9999, not {brief(moment)}"
            raise rule_error(name, text)


def parse_rules(stored: Mapping[str, object]) -> ParsedRules:
    """The rules of a stored set. An unreadable rule does not spoil the others.

    The caller decides what to do about it: a rule left out is a rule not obeyed.
    """
    rules: dict[str, FilterRule] = {}
    problems: list[errors.FilterRuleError] = []
    for place, (key, raw) in enumerate(stored.items()):
        name = raw.get("uuid", place) if isinstance(raw, dict) else place
        try:
            rules[key] = parse_rule(raw, where=f"filters[{brief(name)}].")
        except errors.FilterRuleError as error:
            problems.append(error)
    return ParsedRules(rules, tuple(problems))


def to_raw(rule: FilterRule) -> dict[str, Any]:
    """The rule as a JSON object, in the form that is stored."""
    raw: dict[str, Any] = {
        "watermark": rule.watermark,
        "priority": rule.priority,
        "predicates": [predicate_to_raw(predicate) for predicate in rule.predicates],
        "action": action_to_raw(rule.action),
        "reason_trail": [list(entry) for entry in rule.reason_trail],
        "uuid": rule.uuid,
    }
    if rule.valid_from is not None:
        raw["valid_from"] = rule.valid_from
    if rule.valid_until is not None:
        raw["valid_until"] = rule.valid_until
    if rule.name:
        raw["name"] = rule.name
    if rule.first:
        raw["first"] = True
    return raw | rule.extra


_KEYS: Final = frozenset(FilterRule.__struct_fields__) - {"extra"}


def parse_uuid(raw: object, *, where: str = "uuid") -> str:
    """The UUID; `FilterRuleError` unless it has the form that Ganeti accepts, random or not."""
    if not isinstance(raw, str) or not _UUID.fullmatch(raw):
        raise rule_error(
            where,
            f"Unable to parse UUID {brief(raw)}; expected 8-4-4-4-12 lower-case hexadecimal digits",
        )
    return raw


_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def is_uuid(text: str) -> bool:
    """Whether this is the UUID of a rule, and not its name."""
    return _UUID.fullmatch(text) is not None


def parse_name(raw: object, *, where: str = "name") -> str:
    """The name of a rule, "" for none; `FilterRuleError` if it is taken for something else."""
    if raw is None or raw == "":
        return ""
    if (
        not isinstance(raw, str)
        or len(raw) > NAME_LENGTH_MAX
        or not raw.isprintable()
        or raw != raw.strip()
        or raw.startswith("-")
        or is_uuid(raw)
    ):
        text = (
            f"expected up to {NAME_LENGTH_MAX} printable characters, no UUID, and no dash or space"
            f" at the beginning, not {brief(raw)}"
        )
        raise rule_error(where, text)
    return raw


def _flag(raw: object, where: str) -> bool:
    if not isinstance(raw, bool):
        raise rule_error(where, f"expected true or false, not {brief(raw)}")
    return raw


def _non_negative(raw: object, where: str) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or not 0 <= raw <= INTEGER_MAX:
        raise rule_error(
            where,
            f"Invalid value for non-negative type '{brief(raw)}'; expected an integer >= 0",
        )
    return raw


def _time(raw: object, where: str) -> float | None:
    if raw is None:
        return None
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not _is_finite(raw):
        raise rule_error(where, f"expected a time in seconds since the epoch, not {brief(raw)}")
    return float(raw)


def _is_finite(number: float) -> bool:
    return abs(number) <= INTEGER_MAX and math.isfinite(number)


def _trail(raw: object, where: str) -> tuple[ReasonEntry, ...]:
    if not isinstance(raw, list | tuple):
        raise rule_error(where, f"expected a list, not {brief(raw)}")
    return tuple(_trail_entry(entry, f"{where}[{place}]") for place, entry in enumerate(raw))


def _trail_entry(raw: object, where: str) -> ReasonEntry:
    match raw:
        case [str() as source, str() as text, int() as when] if (
            not isinstance(when, bool) and abs(when) <= INTEGER_MAX
        ):
            return source, text, when
        case _:
            raise rule_error(where, f"expected [source, text, nanoseconds], not {brief(raw)}")


# ---------------------------------------------------------------- actions


def parse_action(raw: object, *, where: str = "action") -> Action:
    """The action in its JSON form: a name, or a list of a name and a number."""
    match raw:
        case str():
            name, arguments = raw, None
        case [str() as name, *arguments]:
            pass
        case _:
            raise _no_action(raw, where)
    parse_limit = ACTIONS.get(name)
    if parse_limit is None:
        raise _no_action(raw, where)
    return Action(ActionName(name), parse_limit(arguments, where))


def action_to_raw(action: Action) -> str | list[Any]:
    """The action in its JSON form."""
    name = str(action.name)
    return name if action.limit is None else [name, action.limit]


def written_action(raw: object) -> object:
    """``RATE_LIMIT 5`` and ``rate-limit:5`` as the stored pair; all else unchanged.

    For input of people and programs. Stored rules have Ganeti's form.

    >>> written_action("RATE_LIMIT 5")
    ['RATE_LIMIT', 5]
    """
    if isinstance(raw, str) and (found := _LIMIT.fullmatch(raw)):
        number = found[1]
        return ["RATE_LIMIT", int(number) if _NUMBER.fullmatch(number) else number]
    return raw


_LIMIT = re.compile(r"(?:RATE_LIMIT[ =:]|rate-limit:)\s*(\S+)\s*")
_NUMBER = re.compile(r"-?[0-9]{1,100}")
"""A whole number of bearable length. `parse_action` checks its range."""


def _no_action(raw: object, where: str) -> errors.FilterRuleError:
    known = ", ".join(ACTIONS)
    return rule_error(where, f"malformed FilterAction JSON: {brief(raw)}; expected one of {known}")


def _without_limit(arguments: Sequence[object] | None, where: str) -> None:
    if arguments is not None:
        raise rule_error(where, "malformed FilterAction JSON: only RATE_LIMIT is written as a list")


def _with_limit(arguments: Sequence[object] | None, where: str) -> int:
    match arguments:
        case [int() as limit] if not isinstance(limit, bool) and 0 < limit <= INTEGER_MAX:
            return limit
        case _:
            raise rule_error(
                where,
                f"RATE_LIMIT argument must be a positive integer, as in"
                f' ["RATE_LIMIT", 5], not {brief(arguments)}',
            )


# One line for each action: the function that parses its arguments (None: it has none).
ACTIONS: Final[dict[str, Callable[[Sequence[object] | None, str], int | None]]] = {
    ActionName.ACCEPT: _without_limit,
    ActionName.PAUSE: _without_limit,
    ActionName.REJECT: _without_limit,
    ActionName.CONTINUE: _without_limit,
    ActionName.RATE_LIMIT: _with_limit,
}
