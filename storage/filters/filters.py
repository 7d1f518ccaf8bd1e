"""The query filter language: its JSON form and the parsed tree. `filter_evaluation` evaluates it.

`parse_filter` turns the JSON arrays into a tree of frozen values; its errors name the place of a
mistake. `to_raw` writes the tree in its stored form.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard, assert_never

import msgspec

from .. import errors
from ..wording import brief
from . import patterns

PATTERN_LENGTH_MAX: Final = 1_000
"""Longest regular expression, in characters."""

DEPTH_MAX: Final = 64
"""Deepest nesting of a filter."""

OPERATORS_MAX: Final = 10_000
"""Most operators in one filter (a listing by names makes one for each name)."""

INTEGER_BITS_MAX: Final = 63
"""Integers beyond this do not fit into a frame."""


Value: TypeAlias = str | int
"""The value in a comparison."""


class Always(msgspec.Struct, frozen=True, tag=True):
    """``null``: true of everything."""


class AllOf(msgspec.Struct, frozen=True, tag=True):
    """``["&", e...]``: every part is true; without parts, true."""

    parts: tuple[Filter, ...]


class AnyOf(msgspec.Struct, frozen=True, tag=True):
    """``["|", e...]``: some part is true; without parts, false."""

    parts: tuple[Filter, ...]


class Not(msgspec.Struct, frozen=True, tag=True):
    """``["!", e]``: the part is false."""

    part: Filter


class IsTrue(msgspec.Struct, frozen=True, tag=True):
    """``["?", field]``: the field, which must be a boolean, is true."""

    field: str


class Comparison(msgspec.Struct, frozen=True, tag=True):
    """``[operator, field, value]`` for the operators of `COMPARISONS`."""

    operator: str
    field: str
    value: Value


class Search(msgspec.Struct, frozen=True, tag=True):
    """``["=~", field, pattern]``: the pattern is found somewhere in the field's text."""

    field: str
    pattern: str


class Contains(msgspec.Struct, frozen=True, tag=True):
    """``["=[]", field, value]``: the field is a list of values of this type, with this one."""

    field: str
    value: Value


Filter: TypeAlias = Always | AllOf | AnyOf | Not | IsTrue | Comparison | Search | Contains

COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def parse_filter(
    raw: object, *, where: str = "filter", operators_max: int = OPERATORS_MAX
) -> Filter:
    """The tree of a filter in JSON form; `FilterRuleError` names the place under ``where``.

    >>> parse_filter(["!=", "status", "error"])
    Not(part=Comparison(operator='==', field='status', value='error'))
    """
    _check_size(raw, where, operators_max)
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


def fields_of(tree: Filter) -> Iterator[str]:
    """The names of all fields in a filter, with repetitions."""
    match tree:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from fields_of(part)
        case Not(part):
            yield from fields_of(part)
        case IsTrue(field) | Comparison(_, field) | Search(field) | Contains(field):
            yield field


def searches(raw: object) -> int:
    """The number of regular expressions in a filter in JSON form, even in a malformed one."""
    return sum(1 for _ in _searches(raw))


def pattern_characters(raw: object) -> int:
    """The length of all regular expressions in a filter in JSON form, even in a malformed one."""
    texts = (text for array in _searches(raw) for text in array[2:3] if isinstance(text, str))
    return sum(map(len, texts))


def is_value(raw: object) -> TypeGuard[Value]:
    """Whether a comparison may have this value, as it is."""
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw.bit_length() <= INTEGER_BITS_MAX
    return isinstance(raw, str)


def _searches(raw: object) -> Iterator[Sequence[object]]:
    arrays = [raw]
    while arrays:
        array = arrays.pop()
        if isinstance(array, list | tuple):
            if array and array[0] == "=~":
                yield array
            arrays += array


def rule_error(where: str, problem: str) -> errors.FilterRuleError:
    """The error for a mistake at this place of a rule or filter."""
    return errors.FilterRuleError(f"{where}: {problem}")


# ---------------------------------------------------------------- parsing


def _check_size(raw: object, where: str, operators_max: int) -> None:
    """Check depth and size level by level, before any recursion."""
    arrays = [raw] if isinstance(raw, list | tuple) else []
    seen = 0
    for _ in range(DEPTH_MAX):
        if not arrays:
            return
        seen += len(arrays)
        if seen > operators_max:
            raise rule_error(where, f"has more than {operators_max} operators")
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
    compiled_pattern(pattern, f"{where}[2]")
    return Search(field, pattern)


def compiled_pattern(pattern: str, where: str) -> patterns.Pattern:
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


def roots(tree: Filter) -> set[str]:
    """The fields at which a filter looks: of fields within fields, the outermost ones.

    >>> sorted(roots(parse_filter(["|", ["?", "a.b"], ["!", ["==", "c", 1]]])))
    ['a', 'c']
    """
    match tree:
        case Always():
            return set()
        case AllOf(parts) | AnyOf(parts):
            return set[str]().union(*map(roots, parts))
        case Not(part):
            return roots(part)
        case IsTrue(field) | Comparison(_, field) | Search(field) | Contains(field):
            return {field.partition(".")[0]}
        case _:
            assert_never(tree)
