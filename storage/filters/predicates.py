"""Predicates of filter rules: what each looks at in a job, and how; the table `PREDICATES`.

No files, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial, reduce
from operator import or_
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from ..wording import brief
from . import lock_predicate
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
from .lock_predicate import UNKNOWN, LockClaim
from .metering import Meter

PREDICATES_MAX: Final = 100
"""Most predicates in one rule."""


class Predicate(msgspec.Struct, frozen=True, omit_defaults=True):
    """One condition on a job: a name from `PREDICATES` and an expression over its fields.

    ``is_negated``: no part of the job may match.
    """

    name: str
    expression: Filter
    is_negated: bool = False


class JobFacts(msgspec.Struct, frozen=True, dict=True):
    """What a rule may look at in a job: its id, its stored opcodes, their reason trails, its locks.

    Stored opcodes have their defaults, redacted secrets, and their present priority. So a rule
    gives the same result at admission, in the queue and between two opcodes. At admission the id is
    the one that the job will get.
    """

    id: int
    opcodes: Sequence[Mapping[str, Any]] = ()
    trails: Sequence[object] = ()
    claims: tuple[LockClaim, ...] | None = None
    """The locks of its opcodes, if more is known than the opcodes tell."""

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

    @cached_property
    def locks(self) -> tuple[LockClaim, ...]:
        """The locks that its opcodes take, those that have run too. Found when a rule looks."""
        if self.claims is not None:
            return self.claims
        from .lock_claims import claims_of  # noqa: PLC0415 - loads what knows the locks of opcodes

        return claims_of(self.opcodes)

    @cached_property
    def lock_keys(self) -> frozenset[str]:
        """What `lock_predicate.keys_of` compares: most rules on locks need no more."""
        return lock_predicate.keys(self.locks)

    @property
    def has_unknown_locks(self) -> bool:
        """Whether its opcodes may take locks that are not known yet."""
        return any(claim.name == UNKNOWN for claim in self.locks)

    @cached_property
    def question(self) -> str | None:
        """What to ask the owner of the configuration for these locks; None: it knows no more."""
        if self.claims is not None:
            return None
        from .lock_claims import question_of  # noqa: PLC0415 - as above

        return question_of(self.opcodes)

    def without_unknown_locks(self) -> JobFacts:
        """The same, if the locks that are not known were none."""
        known = tuple(claim for claim in self.locks if claim.name != UNKNOWN)
        return msgspec.structs.replace(self, claims=known)


class LooksAt(msgspec.Struct, frozen=True):
    """What rules look at in a job. Jobs that do not differ in it get the same verdict."""

    id: bool = False
    parameters: frozenset[str] | None = None
    """Parameters of its opcodes, their reason trails among them; None: nothing but the id."""

    locks: bool = False
    """The locks of its opcodes. They follow from all parameters but reasons and priority."""

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
        return LooksAt(self.id or other.id, parameters, self.locks or other.locks)


Candidates: TypeAlias = Callable[[JobFacts], Iterator[Resolve]]
"""From a job to each of its parts that may match."""


class PredicateTest(NamedTuple):
    """A compiled predicate: it matches a job if its test is true of one of the candidates.

    ``is_negated``: if it is true of none.
    """

    holds: FilterTest
    candidates: Candidates
    is_negated: bool = False

    def matches(self, facts: JobFacts, meter: Meter | None = None) -> bool:
        """Whether the predicate matches the job; raises what the meter raises."""
        found = any(self.holds(candidate, meter) for candidate in self.candidates(facts))
        return found is not self.is_negated


def compile_predicate(predicate: Predicate, watermark: int) -> PredicateTest:
    """A test for many jobs."""
    kind = PREDICATES[predicate.name]
    holds = compile_filter(kind.written_out(predicate.expression), kind.dialect(watermark))
    candidates = kind.narrowed(predicate.expression, kind.candidates)
    return PredicateTest(holds, candidates, predicate.is_negated)


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
        case ["!", [str() as name, expression]] if name in PREDICATES:
            return Predicate(name, _expression(name, expression, f"{where}[1][1]"), is_negated=True)
        case [str() as name, expression] if name in PREDICATES:
            return Predicate(name, _expression(name, expression, f"{where}[1]"))
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


def to_raw(predicate: Predicate) -> list[Any]:
    """The predicate in the form that is stored."""
    raw = [predicate.name, filter_to_raw(predicate.expression)]
    return ["!", raw] if predicate.is_negated else raw


def _expression(name: str, raw: object, where: str) -> Filter:
    tree = parse_filter(raw, where=where)
    PREDICATES[name].check(tree, where)
    return tree


def _touching(expression: Filter, candidates: Candidates) -> Candidates:
    """No candidates for a job that has nothing to do with the locks of the expression."""
    wanted = lock_predicate.keys_of(expression)
    if wanted is None:
        return candidates
    return lambda facts: iter(()) if wanted.isdisjoint(facts.lock_keys) else candidates(facts)


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

    candidates: Candidates
    dialect: Callable[[int], Dialect]
    looks_at: Callable[[Filter], LooksAt]
    """What it looks at with this expression: of nothing else may its candidates depend."""

    check: Callable[[Filter, str], None] = lambda _expression, _where: None
    """Raises `FilterRuleError` for an expression that means nothing here; it names the place."""

    written_out: Callable[[Filter], Filter] = lambda expression: expression
    """The expression in terms of the fields that the candidates have."""

    narrowed: Callable[[Filter, Candidates], Candidates] = lambda _expression, candidates: (
        candidates
    )
    """The candidates, without some of which the expression is certain to be false."""


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
    "lock": PredicateKind(
        lambda facts: lock_predicate.resolvers(facts.locks),
        lambda _watermark: PLAIN,
        lambda _expression: LooksAt(parameters=frozenset(), locks=True),
        lock_predicate.check,
        lock_predicate.written_out,
        _touching,
    ),
}
