"""The query filter language: JSON form, parsed tree, and what a tree says of an object.

What the fields mean is the caller's matter: it hands in a function from a field's name to
its value. No files, no clock. The only home of the regular expression engine (re2).

How it works
------------
`parse_filter` turns the JSON arrays into a tree of frozen values and refuses whatever can be
judged without an object, naming the place. `to_raw` writes the tree in the form that is
stored. `compile_filter` turns it into nested functions, once, for judging many objects.

A comparison has three outcomes. Besides true and false it may be *invalid*: the field is
there, but the operator cannot be applied to its type. An invalid comparison, when it is
reached (operands are looked at from left to right, and only as far as needed), makes the
whole filter false, also under ``!``. A *missing* field only makes its comparison false, and
``!`` of that is true.
"""

from __future__ import annotations

import enum
import operator
import reprlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

import msgspec

from . import errors

PATTERN_LENGTH_MAX: Final = 1_000
"""Longest regular expression, in characters."""

PATTERN_MEMORY_BYTES_MAX: Final = 1 << 20
"""What one compiled regular expression may take, its caches included."""

DEPTH_MAX: Final = 64
"""Deepest nesting of a filter."""

OPERATORS_MAX: Final = 10_000
"""Most operators in one filter (a listing by names makes one for each name)."""

INTEGER_BITS_MAX: Final = 63
"""Integers beyond this do not fit into a frame."""


class Missing(enum.Enum):
    """What a resolver answers for a field that the object does not have."""

    MISSING = enum.auto()


MISSING: Final = Missing.MISSING

Value: TypeAlias = str | int
"""What a field can be compared with."""

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
    """What a written value stands for; None makes its comparison invalid."""

    rank: Callable[[object], int] = json_rank
    """The order among values of different types."""

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
    """The filter in JSON form, as Ganeti stores it (``=`` and ``!=`` are written with ``==``)."""
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


def compile_filter(tree: Filter, dialect: Dialect = PLAIN) -> Callable[[Resolve], bool]:
    """A test to apply to many objects, each given as a resolver of its fields. Never raises."""
    holds = _compiled(tree, dialect)

    def test(resolve: Resolve) -> bool:
        try:
            return holds(resolve)
        except _InvalidComparisonError:
            return False

    return test


def evaluate(tree: Filter, resolve: Resolve) -> bool:
    """Whether the filter is true of one object.

    >>> fields = {"status": "error", "id": 7}
    >>> evaluate(parse_filter([">", "id", 5]), lambda name: fields.get(name, MISSING))
    True
    """
    return compile_filter(tree)(resolve)


def fault(where: str, problem: str) -> errors.FilterRuleError:
    """The error for a mistake at a place in the structure."""
    return errors.FilterRuleError(f"{where}: {problem}")


def shown(raw: object) -> str:
    """A value from outside as an error text may show it: cut to a bearable length."""
    return _SHORT.repr(raw)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


# ---------------------------------------------------------------- parsing


def _check_size(raw: object, where: str) -> None:
    """Bound depth and size, level by level, before anything follows the structure down."""
    arrays = [raw] if isinstance(raw, list | tuple) else []
    seen = 0
    for _ in range(DEPTH_MAX):
        seen += len(arrays)
        if seen > OPERATORS_MAX:
            raise fault(where, f"has more than {OPERATORS_MAX} operators")
        arrays = [part for array in arrays for part in array if isinstance(part, list | tuple)]
    if arrays:
        raise fault(where, f"is nested deeper than {DEPTH_MAX}")


def _parse(raw: object, where: str) -> Filter:
    if raw is None:
        return Always()
    if not isinstance(raw, list | tuple) or not raw:
        raise fault(where, f"expected null or [operator, ...], not {shown(raw)}")
    sign, operands = raw[0], raw[1:]
    form = _FORMS.get(sign) if isinstance(sign, str) else None
    if form is None:
        known = " ".join(_FORMS)
        raise fault(f"{where}[0]", f"Unknown filter operand {shown(sign)}; expected one of {known}")
    if form.arity is not None and len(operands) != form.arity:
        raise fault(where, f"'{sign}' takes {form.arity} operand(s), not {len(operands)}")
    return form.build(operands, where)


def _parts(operands: Sequence[object], where: str) -> tuple[Filter, ...]:
    return tuple(_parse(part, f"{where}[{place}]") for place, part in enumerate(operands, 1))


def _field(operands: Sequence[object], where: str) -> str:
    if not isinstance(operands[0], str):
        raise fault(f"{where}[1]", f"expected a field's name, not {shown(operands[0])}")
    return operands[0]


def _value(operands: Sequence[object], where: str) -> Value:
    """The value to compare with. A float without a fraction is taken as the integer it is."""
    raw = operands[1]
    if isinstance(raw, float) and raw.is_integer():
        raw = int(raw)
    if isinstance(raw, bool) or not isinstance(raw, str | int):
        raise fault(f"{where}[2]", f"expected a string or an integer, not {shown(raw)}")
    if isinstance(raw, int) and raw.bit_length() > INTEGER_BITS_MAX:
        raise fault(f"{where}[2]", f"the integer has more than {INTEGER_BITS_MAX} bits")
    return raw


def _comparison(sign: str, operands: Sequence[object], where: str) -> Filter:
    return Comparison(sign, _field(operands, where), _value(operands, where))


def _search(operands: Sequence[object], where: str) -> Filter:
    field, pattern = _field(operands, where), operands[1]
    if not isinstance(pattern, str):
        raise fault(f"{where}[2]", f"expected a regular expression, not {shown(pattern)}")
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise fault(
            f"{where}[2]", f"the regular expression is longer than {PATTERN_LENGTH_MAX} characters"
        )
    _compiled_pattern(pattern, f"{where}[2]")
    return Search(field, pattern)


def _compiled_pattern(pattern: str, where: str) -> Callable[[bytes], object]:
    """The search function of a pattern: linear in the text, whatever the pattern.

    The engine is loaded here, when the first pattern is met: most processes never see one.
    Pattern and text go in as bytes, since for strings the binding also counts characters
    to tell where the match is, which costs more than a short search.
    """
    import re2  # type: ignore[import-untyped]  # noqa: PLC0415

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    try:
        search: Callable[[bytes], object] = re2.compile(pattern.encode(), options).search
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        raise fault(where, f"broken regular expression {shown(pattern)}: {reason}") from error
    except UnicodeEncodeError as error:
        raise fault(where, "the regular expression is not valid Unicode") from error
    return search


class _Form(NamedTuple):
    arity: int | None
    build: Callable[[Sequence[object], str], Filter]


# One line for each way of writing; `!=` is only a way of writing.
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
    """The operator cannot be applied to what the field holds."""


def _compiled(tree: Filter, dialect: Dialect) -> Callable[[Resolve], bool]:
    holds: Callable[[Resolve], bool]
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
    return holds


def _holds_always(_resolve: Resolve) -> bool:
    return True


def _not(holds: Callable[[Resolve], bool]) -> Callable[[Resolve], bool]:
    return lambda resolve: not holds(resolve)


def _all_of(tests: Iterable[Callable[[Resolve], bool]]) -> Callable[[Resolve], bool]:
    return lambda resolve: all(holds(resolve) for holds in tests)


def _any_of(tests: Iterable[Callable[[Resolve], bool]]) -> Callable[[Resolve], bool]:
    return lambda resolve: any(holds(resolve) for holds in tests)


def _is_true(field: str) -> Callable[[Resolve], bool]:
    def holds(resolve: Resolve) -> bool:
        found = resolve(field)
        if isinstance(found, bool):
            return found
        if found is MISSING:
            return False
        raise _InvalidComparisonError

    return holds


def _compares(tree: Comparison, dialect: Dialect) -> Callable[[Resolve], bool]:
    field, compare, rank = tree.field, COMPARISONS[tree.operator], dialect.rank
    operand = dialect.operand(tree.value)
    operand_rank = rank(operand)

    def holds(resolve: Resolve) -> bool:
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


def _searches(tree: Search, dialect: Dialect) -> Callable[[Resolve], bool]:
    field, searches_numbers = tree.field, dialect.searches_numbers
    search = _compiled_pattern(tree.pattern, tree.field)

    def holds(resolve: Resolve) -> bool:
        found = resolve(field)
        if found is MISSING:
            return False
        if isinstance(found, str):
            return search(found.encode(errors="replace")) is not None
        if searches_numbers and isinstance(found, int) and not isinstance(found, bool):
            return search(b"%d" % found) is not None
        raise _InvalidComparisonError

    return holds


def _contains(tree: Contains, dialect: Dialect) -> Callable[[Resolve], bool]:
    field, operand = tree.field, dialect.operand(tree.value)
    is_alike = _is_whole if isinstance(operand, int) else _is_text

    def holds(resolve: Resolve) -> bool:
        found = resolve(field)
        if found is MISSING:
            return False
        if operand is None or not isinstance(found, list | tuple) or not all(map(is_alike, found)):
            raise _InvalidComparisonError
        return operand in found

    return holds


def _is_text(item: object) -> bool:
    return isinstance(item, str)


def _is_whole(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)
