"""Job filter rules: their stored form, and the tables of their actions and predicates.

A rule's JSON is Ganeti's. The window of validity is ours, and is stored only if it is set. Unknown
keys are kept. ``actors/rules/filtering`` decides which rule applies to a job. No files, no clock.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from .. import errors
from ..wording import brief
from .filter_evaluation import (
    MISSING,
    PLAIN,
    Dialect,
    FilterTest,
    Resolve,
    compile_filter,
    json_rank,
)
from .filters import Filter, Value, parse_filter, roots, rule_error
from .filters import to_raw as filter_to_raw
from .metering import Meter

PREDICATES_MAX: Final = 100
"""Most predicates in one rule."""

RULES_MAX: Final = 1_000
"""Most rules stored. To judge a job to which none of so many applies takes 1 to 5 ms."""

SEARCHES_MAX: Final = 1_000
"""Most regular expressions in all rules together: each takes up to 1 MiB, and 2 ms to compile."""

RULES_BYTES_MAX: Final = 4 * 1024 * 1024
"""Most bytes of all stored rules, as JSON: a listing of all of them fits into a frame."""

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


class Predicate(msgspec.Struct, frozen=True):
    """One condition on a job: a name from `PREDICATES` and an expression over its fields."""

    name: str
    expression: Filter


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
    extra: dict[str, Any] = {}

    @property
    def order(self) -> tuple[int, int, str]:
        """The sort key of the rule in the chain."""
        return self.priority, self.watermark, self.uuid

    def is_expired(self, now: float) -> bool:
        """Whether the rule's window has ended."""
        return self.valid_until is not None and self.valid_until <= now

    def is_in_force(self, now: float) -> bool:
        """Whether the rule's window, from its start up to but without its end, holds ``now``."""
        return not self.is_expired(now) and (self.valid_from is None or self.valid_from <= now)


class JobFacts(msgspec.Struct, frozen=True):
    """What a rule may look at in a job: its id, its stored opcodes, their reason trails.

    Stored opcodes have their defaults, redacted secrets, and their present priority. So a rule
    gives the same result at admission, in the queue and between two opcodes. At admission the id is
    the one that the job will get.
    """

    id: int
    opcodes: Sequence[Mapping[str, Any]] = ()
    trails: Sequence[object] = ()

    @classmethod
    def of(
        cls, job_id: int, inputs: Sequence[Mapping[str, Any]], priority: int | None = None
    ) -> JobFacts:
        """The facts of a job whose opcodes hold their reason trails, as in a job file.

        ``priority``: the priority that its opcodes would have after a change.
        """
        if priority is not None:
            inputs = [{**opcode, "priority": priority} for opcode in inputs]
        return cls(job_id, inputs, [opcode.get("reason") for opcode in inputs])


class LooksAt(msgspec.Struct, frozen=True):
    """What rules look at in a job. Jobs that do not differ in it get the same verdict."""

    id: bool = False
    parameters: frozenset[str] | None = None
    """Parameters of its opcodes, their reason trails among them; None: nothing but the id."""

    @property
    def opcodes(self) -> bool:
        """Whether it is more than the job's id."""
        return self.parameters is not None

    @property
    def reasons(self) -> bool:
        """Whether the reason trails of its opcodes are among it."""
        return self.parameters is not None and "reason" in self.parameters

    def __or__(self, other: LooksAt) -> LooksAt:
        found = [each.parameters for each in (self, other) if each.parameters is not None]
        parameters = frozenset[str]().union(*found) if found else None
        return LooksAt(self.id or other.id, parameters)


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
        "predicates": [
            [predicate.name, filter_to_raw(predicate.expression)] for predicate in rule.predicates
        ],
        "action": action_to_raw(rule.action),
        "reason_trail": [list(entry) for entry in rule.reason_trail],
        "uuid": rule.uuid,
    }
    if rule.valid_from is not None:
        raw["valid_from"] = rule.valid_from
    if rule.valid_until is not None:
        raw["valid_until"] = rule.valid_until
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


# ---------------------------------------------------------------- predicates


class PredicateTest(NamedTuple):
    """A compiled predicate: it matches a job if its test is true of one of the candidates."""

    holds: FilterTest
    candidates: Callable[[JobFacts], Iterator[Resolve]]

    def matches(self, facts: JobFacts, meter: Meter | None = None) -> bool:
        """Whether the predicate matches the job; raises what the meter raises."""
        return any(self.holds(candidate, meter) for candidate in self.candidates(facts))


def compile_predicate(predicate: Predicate, watermark: int) -> PredicateTest:
    """A test for many jobs."""
    kind = PREDICATES[predicate.name]
    holds = compile_filter(predicate.expression, kind.dialect(watermark))
    return PredicateTest(holds, kind.candidates)


def looks_at(predicates: Iterable[Predicate]) -> LooksAt:
    """What predicates look at together."""
    declared = (PREDICATES[each.name].looks_at(each.expression) for each in predicates)
    return reduce(or_, declared, LooksAt())


def parse_predicates(raw: object, where: str) -> tuple[Predicate, ...]:
    """The predicates of a rule; `FilterRuleError` names what is wrong."""
    if not isinstance(raw, list | tuple):
        raise rule_error(where, f"expected a list, not {brief(raw)}")
    if len(raw) > PREDICATES_MAX:
        raise rule_error(where, f"a rule has at most {PREDICATES_MAX} predicates")
    return tuple(_predicate(entry, f"{where}[{place}]") for place, entry in enumerate(raw))


def _predicate(raw: object, where: str) -> Predicate:
    match raw:
        case [str() as name, expression] if name in PREDICATES:
            return Predicate(name, parse_filter(expression, where=f"{where}[1]"))
        case [str() as name, *parameters]:
            known = ", ".join(PREDICATES)
            raise rule_error(
                where,
                f"malformed FilterPredicate: bad parameter list for '{name}' predicate:"
                f" {brief(parameters)}; expected one of {known} and one expression",
            )
        case _:
            raise rule_error(
                where,
                "malformed FilterPredicate: must be a list with the first entry being a string"
                f" describing the predicate type, not {brief(raw)}",
            )


def _the_id(facts: JobFacts) -> Iterator[Resolve]:
    yield lambda field: facts.id if field == "id" else MISSING


def _the_opcodes(facts: JobFacts) -> Iterator[Resolve]:
    return (partial(_opcode_field, opcode) for opcode in facts.opcodes)


def _opcode_field(opcode: Mapping[str, Any], field: str) -> object:
    """A parameter by name, with dots into nested objects.

    A null parameter counts as missing: the daemon leaves out unset parameters where the job's
    process writes null, and a rule must not see the difference.
    """
    name, *path = field.split(".")
    value = opcode.get(name)
    if value is None:
        value = opcode.get(_OTHER_SPELLING.get(name, name))
    if value is None:
        return MISSING
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return MISSING
        value = value[key]
    return value


_OTHER_SPELLING: Final = {"depend": "depends", "depends": "depend"}


def _named_parameters(expression: Filter) -> LooksAt:
    found = roots(expression)
    others = {_OTHER_SPELLING[name] for name in found & _OTHER_SPELLING.keys()}
    return LooksAt(parameters=frozenset(found | others))


def _the_reasons(facts: JobFacts) -> Iterator[Resolve]:
    """Each entry of each trail. Malformed entries in old files never match."""
    for trail in facts.trails:
        for entry in trail if isinstance(trail, list | tuple) else ():
            if isinstance(entry, list | tuple) and len(entry) == len(_REASON_FIELDS):
                yield partial(_entry_field, entry)


def _entry_field(entry: Sequence[object], field: str) -> object:
    place = _REASON_FIELDS.get(field)
    return MISSING if place is None else entry[place]


_REASON_FIELDS: Final = {"source": 0, "reason": 1, "timestamp": 2}


def _id_operand(watermark: int, value: Value) -> int | None:
    """Ids compare with integers and with ``watermark``; any other string is invalid."""
    if value == "watermark":
        return watermark
    return value if isinstance(value, int) else None


def _texts_first(value: object) -> int:
    """Ganeti's order of the values of a reason: strings before numbers."""
    return -json_rank(value)


_REASON_DIALECT: Final = Dialect(rank=_texts_first, searches_numbers=True)


class PredicateKind(NamedTuple):
    """What a predicate looks at, and how. It holds if its expression does for one candidate."""

    candidates: Callable[[JobFacts], Iterator[Resolve]]
    dialect: Callable[[int], Dialect]
    looks_at: Callable[[Filter], LooksAt]
    """What it looks at with this expression: of nothing else may its candidates depend."""


# One line for each predicate; the dialect may depend on the rule's watermark.
PREDICATES: Final[dict[str, PredicateKind]] = {
    "jobid": PredicateKind(
        _the_id,
        lambda watermark: Dialect(partial(_id_operand, watermark), searches_numbers=True),
        lambda _expression: LooksAt(id=True),
    ),
    "opcode": PredicateKind(_the_opcodes, lambda _watermark: PLAIN, _named_parameters),
    "reason": PredicateKind(
        _the_reasons,
        lambda _watermark: _REASON_DIALECT,
        lambda _expression: LooksAt(parameters=frozenset({"reason"})),
    ),
}
