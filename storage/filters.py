"""The query filter language: its JSON form, the parsed tree, and the evaluation for an object.

The caller knows the fields: it gives a function from a field's name to its value. No files, no
clock.

How it works
------------
`parse_filter` turns the JSON arrays into a tree of frozen values; its errors name the place of a
mistake. `to_raw` writes the tree in its stored form. `compile_filter` turns the tree into nested
functions, once, to evaluate it for many objects.

A comparison has three outcomes. Besides true and false it may be *invalid*: the object has the
field, but the operator does not apply to its type. The evaluation goes from left to right, only
as far as needed; an invalid comparison that it reaches makes the whole filter false, also under
``!``. A *missing* field only makes its comparison false, and ``!`` of that is true.

A meter interrupts an evaluation that costs too much (``metering``).
"""

from __future__ import annotations

import enum
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

import msgspec

from . import errors, patterns
from .metering import COMPARISON_STEPS, ITEM_STEPS, Meter
from .wording import brief

PATTERN_LENGTH_MAX: Final = 1_000
"""Longest regular expression, in characters."""

DEPTH_MAX: Final = 64
"""Deepest nesting of a filter."""

OPERATORS_MAX: Final = 10_000
"""Most operators in one filter (a listing by names makes one for each name)."""

INTEGER_BITS_MAX: Final = 63
"""Integers beyond this do not fit into a frame."""


class Missing(enum.Enum):
    """A resolver returns this for a field that the object does not have."""

    MISSING = enum.auto()


MISSING: Final = Missing.MISSING

Value: TypeAlias = str | int
"""The value in a comparison."""

Resolve: TypeAlias = Callable[[str], object]
"""From a field's name to its JSON value, or `MISSING`."""


class Always(msgspec.Struct, frozen=True):
    """``null``: true of everything."""


class AllOf(msgspec.Struct, frozen=True):
    """``["&", e...]``: every part is true; without parts, true."""

    parts: tuple[Filter, ...]


class AnyOf(msgspec.Struct, frozen=True):
    """``["|", e...]``: some part is true; without parts, false."""

    parts: tuple[Filter, ...]


class Not(msgspec.Struct, frozen=True):
    """``["!", e]``: the part is false."""

    part: Filter


class IsTrue(msgspec.Struct, frozen=True):
    """``["?", field]``: the field, which must be a boolean, is true."""

    field: str


class Comparison(msgspec.Struct, frozen=True):
    """``[operator, field, value]`` for the operators of `COMPARISONS`."""

    operator: str
    field: str
    value: Value


class Search(msgspec.Struct, frozen=True):
    """``["=~", field, pattern]``: the pattern is found somewhere in the field's text."""

    field: str
    pattern: str


class Contains(msgspec.Struct, frozen=True):
    """``["=[]", field, value]``: the field is a list of values of this type, with this one."""

    field: str
    value: Value


FilterTest: TypeAlias = Callable[..., bool]
"""From a resolver, and perhaps a meter, to whether a filter is true."""

_Holds: TypeAlias = "Callable[[Resolve, Meter | None], bool]"

Filter: TypeAlias = Always | AllOf | AnyOf | Not | IsTrue | Comparison | Search | Contains

COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


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


PLAIN: Final = Dialect()


def parse_filter(raw: object, *, where: str = "filter") -> Filter:
    """The tree of a filter in JSON form; `FilterRuleError` names the place under ``where``.

    >>> parse_filter(["!=", "status", "error"])
    Not(part=Comparison(operator='==', field='status', value='error'))
    """
    _check_size(raw, where)
    return _parse(raw, where)


def to_raw(tree: Filter) -> list[Any] | None:
    """The filter in JSON form, as Ganeti stores it: with ``==`` for ``=`` and ``!=``."""
    raw: list[Any] | None
    match tree:
        case Always():
            raw = None
        case AllOf(parts):
            raw = ["&", *map(to_raw, parts)]
        case AnyOf(parts):
            raw = ["|", *map(to_raw, parts)]
        case Not(part):
            raw = ["!", to_raw(part)]
        case IsTrue(field):
            raw = ["?", field]
        case Comparison(sign, field, value):
            raw = [sign, field, value]
        case Search(field, pattern):
            raw = ["=~", field, pattern]
        case Contains(field, value):
            raw = ["=[]", field, value]
        case _:
            assert_never(tree)
    return raw


def compile_filter(tree: Filter, dialect: Dialect = PLAIN) -> FilterTest:
    """A test for many objects, each given as a resolver of its fields.

    The test raises only what its meter raises.

    >>> fields = {"status": "error", "id": 7}
    >>> compile_filter(parse_filter([">", "id", 5]))(lambda name: fields.get(name, MISSING))
    True
    """
    holds = _compiled(tree, dialect, itertools.count())
    steps = _steps(tree)

    def test(resolve: Resolve, meter: Meter | None = None) -> bool:
        if meter is not None:
            meter.charge_once(steps)
        try:
            return holds(resolve, meter)
        except _InvalidComparisonError:
            return False

    return test


def searches(raw: object) -> int:
    """The number of regular expressions in a filter in JSON form, even in a malformed one."""
    found = 0
    arrays = [raw]
    while arrays:
        array = arrays.pop()
        if isinstance(array, list | tuple):
            found += bool(array) and array[0] == "=~"
            arrays += array
    return found


def rule_error(where: str, problem: str) -> errors.FilterRuleError:
    """The error for a mistake at this place of a rule or filter."""
    return errors.FilterRuleError(f"{where}: {problem}")


# ---------------------------------------------------------------- parsing


def _check_size(raw: object, where: str) -> None:
    """Check depth and size level by level, before any recursion."""
    arrays = [raw] if isinstance(raw, list | tuple) else []
    seen = 0
    for _ in range(DEPTH_MAX):
        seen += len(arrays)
        if seen > OPERATORS_MAX:
            raise rule_error(where, f"has more than {OPERATORS_MAX} operators")
        arrays = [part for array in arrays for part in array if isinstance(part, list | tuple)]
    if arrays:
        raise rule_error(where, f"is nested deeper than {DEPTH_MAX}")


def _parse(raw: object, where: str) -> Filter:
    if raw is None:
        return Always()
    if not isinstance(raw, list | tuple) or not raw:
        raise rule_error(where, f"expected null or [operator, ...], not {brief(raw)}")
    sign, operands = raw[0], raw[1:]
    form = _FORMS.get(sign) if isinstance(sign, str) else None
    if form is None:
        known = " ".join(_FORMS)
        raise rule_error(
            f"{where}[0]", f"Unknown filter operand {brief(sign)}; expected one of {known}"
        )
    if form.arity is not None and len(operands) != form.arity:
        raise rule_error(where, f"'{sign}' takes {form.arity} operand(s), not {len(operands)}")
    return form.build(operands, where)


def _parts(operands: Sequence[object], where: str) -> tuple[Filter, ...]:
    return tuple(_parse(part, f"{where}[{place}]") for place, part in enumerate(operands, 1))


def _field(operands: Sequence[object], where: str) -> str:
    if not isinstance(operands[0], str):
        raise rule_error(f"{where}[1]", f"expected a field's name, not {brief(operands[0])}")
    return operands[0]


def _value(operands: Sequence[object], where: str) -> Value:
    """The value to compare with. A float without a fraction counts as an integer."""
    raw = operands[1]
    if isinstance(raw, float) and raw.is_integer():
        raw = int(raw)
    if isinstance(raw, bool) or not isinstance(raw, str | int):
        raise rule_error(f"{where}[2]", f"expected a string or an integer, not {brief(raw)}")
    if isinstance(raw, int) and raw.bit_length() > INTEGER_BITS_MAX:
        raise rule_error(f"{where}[2]", f"the integer has more than {INTEGER_BITS_MAX} bits")
    return raw


def _comparison(sign: str, operands: Sequence[object], where: str) -> Filter:
    return Comparison(sign, _field(operands, where), _value(operands, where))


def _search(operands: Sequence[object], where: str) -> Filter:
    field, pattern = _field(operands, where), operands[1]
    if not isinstance(pattern, str):
        raise rule_error(f"{where}[2]", f"expected a regular expression, not {brief(pattern)}")
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise rule_error(
            f"{where}[2]", f"the regular expression is longer than {PATTERN_LENGTH_MAX} characters"
        )
    _compiled_pattern(pattern, f"{where}[2]")
    return Search(field, pattern)


def _compiled_pattern(pattern: str, where: str) -> patterns.Pattern:
    """The compiled pattern; `FilterRuleError` names ``where`` if it is malformed."""
    try:
        return patterns.compiled(pattern)
    except ValueError as error:
        raise rule_error(where, str(error)) from error


class _Form(NamedTuple):
    arity: int | None
    build: Callable[[Sequence[object], str], Filter]


# One line for each sign. `!=` has no type of its own: it becomes `!` and `==`.
_FORMS: Final[dict[str, _Form]] = {
    "&": _Form(None, lambda operands, where: AllOf(_parts(operands, where))),
    "|": _Form(None, lambda operands, where: AnyOf(_parts(operands, where))),
    "!": _Form(1, lambda operands, where: Not(*_parts(operands, where))),
    "?": _Form(1, lambda operands, where: IsTrue(_field(operands, where))),
    **{sign: _Form(2, partial(_comparison, sign)) for sign in COMPARISONS},
    "=": _Form(2, partial(_comparison, "==")),
    "!=": _Form(2, lambda operands, where: Not(_comparison("==", operands, where))),
    "=~": _Form(2, _search),
    "=[]": _Form(
        2, lambda operands, where: Contains(_field(operands, where), _value(operands, where))
    ),
}


# ---------------------------------------------------------------- evaluating


class _InvalidComparisonError(Exception):
    """The operator does not apply to the field's type."""


def _compiled(tree: Filter, dialect: Dialect, keys: Iterator[int]) -> _Holds:
    holds: _Holds
    match tree:
        case Always():
            holds = _holds_always
        case AllOf(parts):
            holds = _all_of([_compiled(part, dialect, keys) for part in parts])
        case AnyOf(parts):
            holds = _any_of([_compiled(part, dialect, keys) for part in parts])
        case Not(part):
            holds = _not(_compiled(part, dialect, keys))
        case IsTrue(field):
            holds = _is_true(field)
        case Comparison():
            holds = _compares(tree, dialect)
        case Search():
            holds = _searches(tree, dialect, next(keys))
        case Contains():
            holds = _contains(tree, dialect, next(keys))
        case _:
            assert_never(tree)
    return holds


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
        raise _InvalidComparisonError

    return holds


def _compares(tree: Comparison, dialect: Dialect) -> _Holds:
    field, compare, rank = tree.field, COMPARISONS[tree.operator], dialect.rank
    operand = dialect.operand(tree.value)
    operand_rank = rank(operand)

    def holds(resolve: Resolve, _meter: Meter | None) -> bool:
        found = resolve(field)
        if found is MISSING:
            return False
        if operand is None:
            raise _InvalidComparisonError
        if type(found) is type(operand):
            return compare(found, operand)
        found_rank = rank(found)
        if found_rank == operand_rank:
            return compare(found, operand)
        return compare(found_rank, operand_rank)

    return holds


def _searches(tree: Search, dialect: Dialect, key: int) -> _Holds:
    field, searches_numbers = tree.field, dialect.searches_numbers
    search, weight = _compiled_pattern(tree.pattern, tree.field)

    def is_found_in(text: str) -> bool:
        return search(text.encode(errors="replace")) is not None

    def holds(resolve: Resolve, meter: Meter | None) -> bool:
        found = resolve(field)
        if found is MISSING:
            return False
        if isinstance(found, str):
            if meter is not None:
                return meter.look(key, weight * len(found), lambda: is_found_in(found))
            return is_found_in(found)
        if searches_numbers and isinstance(found, int) and not isinstance(found, bool):
            return search(b"%d" % found) is not None
        raise _InvalidComparisonError

    return holds


def _contains(tree: Contains, dialect: Dialect, key: int) -> _Holds:
    field, operand = tree.field, dialect.operand(tree.value)
    is_alike = _is_whole if isinstance(operand, int) else _is_text

    def holds(resolve: Resolve, meter: Meter | None) -> bool:
        found = resolve(field)
        if found is MISSING:
            return False
        if operand is None or not isinstance(found, list | tuple):
            raise _InvalidComparisonError
        if meter is not None:
            is_right = meter.look(~key, ITEM_STEPS * len(found), lambda: all(map(is_alike, found)))
        else:
            is_right = all(map(is_alike, found))
        if not is_right:
            raise _InvalidComparisonError
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
