"""The evaluation of a filter for an object. No files, no clock.

The caller knows the fields: it gives a function from a field's name to its value.

How it works
------------
`compile_filter` turns the tree into nested functions, once, to evaluate it for many objects.

A comparison has three outcomes. Besides true and false it may be *invalid*: the object has the
field, but the operator does not apply to its type. The evaluation goes from left to right, only
as far as needed; an invalid comparison that it reaches makes the whole filter false, also under
``!``. A *missing* field only makes its comparison false, and ``!`` of that is true. In queries
(`Dialect.is_for_queries`) a missing field passes, and an invalid comparison is an error.

A meter ends an evaluation that costs too much (``metering``).
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

from .. import errors
from ..wording import brief
from .filters import (
    COMPARISONS,
    AllOf,
    Always,
    AnyOf,
    Comparison,
    Contains,
    Filter,
    IsTrue,
    Not,
    Search,
    Value,
    compiled_pattern,
)
from .metering import COMPARISON_STEPS, ITEM_STEPS, Meter


class Missing(enum.Enum):
    """A resolver returns this for a field that the object does not have."""

    MISSING = enum.auto()


MISSING: Final = Missing.MISSING

Resolve: TypeAlias = Callable[[str], object]
"""From a field's name to its JSON value, or `MISSING`."""

FilterTest: TypeAlias = Callable[..., bool]
"""From a resolver, and perhaps a meter, to whether a filter is true."""

_Holds: TypeAlias = "Callable[[Resolve, Meter | None], bool]"


def json_rank(value: object) -> int:
    """Place of a value's type in the order null < bool < number < string < array < object."""
    match value:
        case None:
            return 0
        case bool():
            return 1
        case int() | float():
            return 2
        case str():
            return 3
        case list() | tuple():
            return 4
        case _:
            return 5


def _as_written(value: Value) -> Value | None:
    return value


class Dialect(NamedTuple):
    """How one use of the language differs from the plain one."""

    operand: Callable[[Value], Value | None] = _as_written
    """Replaces a written value; None makes its comparison invalid."""

    rank: Callable[[object], int] = json_rank
    """Orders values of different types."""

    searches_numbers: bool = False
    """Whether ``=~`` searches whole numbers too, in their decimal form."""

    equal: Callable[[Any, Any], bool] = operator.eq
    """Compares two values of one type for ``==``."""

    is_for_queries: bool = False
    """Whether a missing field passes its comparison, and an invalid comparison is an error.

    Comparing values of different types is then invalid. ``=~`` searches each text of a list.
    """


PLAIN: Final = Dialect()


def compile_filter(tree: Filter, dialect: Dialect = PLAIN) -> FilterTest:
    """A test for many objects, each given as a resolver of its fields.

    The test raises only what its meter raises; in a dialect for queries `ParameterError`, too.

    >>> fields = {"status": "error", "id": 7}
    >>> compile_filter(Comparison(">", "id", 5))(lambda name: fields.get(name, MISSING))
    True
    """
    holds = _compiled(tree, dialect)
    steps = _steps(tree)

    def test(resolve: Resolve, meter: Meter | None = None) -> bool:
        if meter is not None:
            meter.charge(steps)
        try:
            return holds(resolve, meter)
        except _InvalidComparisonError as error:
            if dialect.is_for_queries:
                raise errors.ParameterError(error.text) from error
            return False

    return test


class _InvalidComparisonError(Exception):
    """The operator does not apply to the field's type: field, its value, the operand if any."""

    @property
    def text(self) -> str:
        field, found, *operands = self.args
        if not operands:
            return f"Unexpected value {brief(found)} of field '{field}' in boolean context"
        shown = f"{brief(found)} and {brief(operands[0])}"
        return f"Invalid types in comparison, field '{field}': {shown}"


def _compiled(tree: Filter, dialect: Dialect) -> _Holds:
    holds: _Holds
    match tree:
        case Always():
            holds = _holds_always
        case AllOf(parts):
            holds = _all_of([_compiled(part, dialect) for part in parts])
        case AnyOf(parts):
            holds = _any_of([_compiled(part, dialect) for part in parts])
        case Not(part):
            holds = _not(_compiled(part, dialect))
        case IsTrue(field):
            holds = _is_true(field)
        case Comparison():
            holds = _compares(tree, dialect)
        case Search():
            holds = _searches(tree, dialect)
        case Contains():
            holds = _contains(tree, dialect)
        case _:
            assert_never(tree)
    if dialect.is_for_queries and isinstance(tree, IsTrue | Comparison | Search | Contains):
        return _passes_if_missing(tree.field, holds)
    return holds


def _passes_if_missing(field: str, holds: _Holds) -> _Holds:
    return lambda resolve, meter: resolve(field) is MISSING or holds(resolve, meter)


def _holds_always(_resolve: Resolve, _meter: Meter | None) -> bool:
    return True


def _not(holds: _Holds) -> _Holds:
    return lambda resolve, meter: not holds(resolve, meter)


def _all_of(tests: Iterable[_Holds]) -> _Holds:
    return lambda resolve, meter: all(holds(resolve, meter) for holds in tests)


def _any_of(tests: Iterable[_Holds]) -> _Holds:
    return lambda resolve, meter: any(holds(resolve, meter) for holds in tests)


def _is_true(field: str) -> _Holds:
    def holds(resolve: Resolve, _meter: Meter | None) -> bool:
        found = resolve(field)
        if isinstance(found, bool):
            return found
        if found is MISSING:
            return False
        raise _InvalidComparisonError(field, found)

    return holds


def _compares(tree: Comparison, dialect: Dialect) -> _Holds:
    field, ordered, rank = tree.field, COMPARISONS[tree.operator], dialect.rank
    compare = dialect.equal if tree.operator == "==" else ordered
    operand = dialect.operand(tree.value)
    operand_rank = rank(operand)

    def holds(resolve: Resolve, _meter: Meter | None) -> bool:
        found = resolve(field)
        if found is MISSING:
            return False
        if operand is None:
            raise _InvalidComparisonError(field, found, tree.value)
        if type(found) is type(operand):
            return compare(found, operand)
        found_rank = rank(found)
        if found_rank == operand_rank:
            return compare(found, operand)
        if dialect.is_for_queries:
            raise _InvalidComparisonError(field, found, operand)
        return ordered(found_rank, operand_rank)

    return holds


def _searches(tree: Search, dialect: Dialect) -> _Holds:
    field, searches_numbers = tree.field, dialect.searches_numbers
    searches_lists = dialect.is_for_queries
    search, weight = compiled_pattern(tree.pattern, tree.field)

    def holds(resolve: Resolve, meter: Meter | None) -> bool:
        found = resolve(field)
        if found is MISSING:
            return False
        if isinstance(found, str):
            if meter is not None:
                meter.charge(weight * len(found))
            return search(found.encode(errors="replace")) is not None
        if searches_numbers and isinstance(found, int) and not isinstance(found, bool):
            return search(b"%d" % found) is not None
        if searches_lists and isinstance(found, list | tuple) and all(map(_is_text, found)):
            if meter is not None:
                meter.charge(ITEM_STEPS * len(found) + weight * sum(map(len, found)))
            return any(search(one.encode(errors="replace")) is not None for one in found)
        raise _InvalidComparisonError(field, found, tree.pattern)

    return holds


def _contains(tree: Contains, dialect: Dialect) -> _Holds:
    field, operand = tree.field, dialect.operand(tree.value)
    is_alike = _is_whole if isinstance(operand, int) else _is_text

    def holds(resolve: Resolve, meter: Meter | None) -> bool:
        found = resolve(field)
        if found is MISSING:
            return False
        if operand is None or not isinstance(found, list | tuple):
            raise _InvalidComparisonError(field, found, tree.value)
        if meter is not None:
            meter.charge(ITEM_STEPS * len(found))
        if not all(map(is_alike, found)):
            raise _InvalidComparisonError(field, found, operand)
        return operand in found

    return holds


def _is_text(item: object) -> bool:
    return isinstance(item, str)


def _is_whole(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _steps(tree: Filter) -> int:
    """Highest cost of an evaluation, without searches and long lists."""
    match tree:
        case Always():
            return COMPARISON_STEPS
        case AllOf(parts) | AnyOf(parts):
            return COMPARISON_STEPS + sum(map(_steps, parts))
        case Not(part):
            return COMPARISON_STEPS + _steps(part)
        case IsTrue(field) | Search(field):
            return COMPARISON_STEPS + len(field)
        case Comparison(_, field, value) | Contains(field, value):
            return COMPARISON_STEPS + len(field) + (len(value) if isinstance(value, str) else 0)
        case _:
            assert_never(tree)
