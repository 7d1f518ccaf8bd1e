"""The evaluation of filters: for one object, and by the rules of queries."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from ganger.storage import errors
from ganger.storage.filters.filter_evaluation import MISSING, Dialect, compile_filter
from ganger.storage.filters.filters import fields_of, parse_filter

OBJECT: dict[str, Any] = {
    "name": "node1.example.com",
    "count": 7,
    "share": 0.25,
    "whole": 7.0,
    "up": True,
    "down": False,
    "note": None,
    "tags": ["blue", "green"],
    "ids": [1, 2],
    "mixed": ["blue", 1],
    "switches": [True],
    "nothing": [],
    "os": {"kernel": "6.1"},
    "lines": "first\nsecond",
    "broken": "half \ud83d of it",
}


def resolve(field: str) -> object:
    return OBJECT.get(field, MISSING)


def holds(raw: object) -> bool:
    return compile_filter(parse_filter(raw))(resolve)


EVALUATION: list[tuple[object, bool]] = [
    # Constants and connectives.
    (None, True),
    (["&"], True),
    (["|"], False),
    (["!", None], False),
    (["&", ["==", "count", 7], ["?", "up"]], True),
    (["&", ["==", "count", 7], ["?", "down"]], False),
    (["|", ["==", "count", 8], ["?", "up"]], True),
    (["|", ["==", "count", 8], ["?", "down"]], False),
    (["!", ["!", ["?", "up"]]], True),
    # Comparisons within a type.
    (["==", "name", "node1.example.com"], True),
    (["=", "name", "node1.example.com"], True),
    (["!=", "name", "node2"], True),
    (["!=", "name", "node1.example.com"], False),
    (["<", "count", 8], True),
    (["<", "count", 7], False),
    (["<=", "count", 7], True),
    ([">", "count", 6], True),
    ([">", "count", 7], False),
    ([">=", "count", 7], True),
    (["<", "share", 1], True),
    (["==", "whole", 7], True),
    (["<", "name", "node10"], True),
    (["<", "name", "node"], False),
    ([">", "name", "node"], True),
    # Values of different types: null < bool < number < string < array < object.
    (["<", "note", 0], True),
    (["<", "up", 0], True),
    (["<", "count", ""], True),
    ([">", "name", 999], True),
    ([">", "tags", "zzz"], True),
    ([">", "os", "zzz"], True),
    (["==", "count", "7"], False),
    (["!=", "count", "7"], True),
    (["==", "up", 1], False),
    (["==", "note", 0], False),
    # Booleans.
    (["?", "up"], True),
    (["?", "down"], False),
    (["!", ["?", "down"]], True),
    # Regular expressions are searched, not anchored.
    (["=~", "name", "example"], True),
    (["=~", "name", "^example"], False),
    (["=~", "name", r"^node\d+\.example\.com$"], True),
    (["=~", "name", ""], True),
    (["=~", "lines", "first.second"], False),
    (["=~", "lines", "(?i)SECOND$"], True),
    (["=~", "broken", "^half . of it$"], True),
    # Lists.
    (["=[]", "tags", "green"], True),
    (["=[]", "tags", "gre"], False),
    (["=[]", "ids", 2], True),
    (["=[]", "ids", 3], False),
    (["=[]", "nothing", "x"], False),
    (["!", ["=[]", "nothing", "x"]], True),
    # A missing field makes its comparison false; the negation of that is true.
    (["==", "absent", 1], False),
    (["<", "absent", 1], False),
    (["?", "absent"], False),
    (["=~", "absent", ""], False),
    (["=[]", "absent", "x"], False),
    (["!", ["==", "absent", 1]], True),
    (["!", ["?", "absent"]], True),
    (["!", ["=~", "absent", ""]], True),
    (["!", ["=[]", "absent", "x"]], True),
    (["!=", "absent", 1], True),
    (["|", ["==", "absent", 1], ["==", "count", 7]], True),
    # An operator that does not fit the type makes the whole filter false, also under `!` ...
    (["?", "name"], False),
    (["!", ["?", "name"]], False),
    (["!", ["?", "note"]], False),
    (["=~", "count", "7"], False),
    (["!", ["=~", "count", "8"]], False),
    (["!", ["=~", "up", "."]], False),
    (["!", ["=~", "tags", "blue"]], False),
    (["!", ["=[]", "name", "n"]], False),
    (["!", ["=[]", "mixed", "blue"]], False),
    (["!", ["=[]", "tags", 1]], False),
    (["!", ["=[]", "ids", "1"]], False),
    (["=[]", "switches", 1], False),
    (["!", ["=[]", "switches", 0]], False),
    (["|", ["?", "name"], ["?", "up"]], False),
    # ... but only when it is reached, from left to right.
    (["|", ["?", "up"], ["?", "name"]], True),
    (["!", ["&", ["?", "down"], ["?", "name"]]], True),
    (["!", ["&", ["?", "name"], ["?", "down"]]], False),
]


@pytest.mark.parametrize(("raw", "expected"), EVALUATION, ids=repr)
def test_a_filter_matches_an_object(raw: object, *, expected: bool) -> None:
    assert holds(raw) is expected


def nested(depth: int) -> list[Any]:
    raw: list[Any] = ["?", "up"]
    for _ in range(depth - 1):
        raw = ["!", raw]
    return raw


def test_a_filter_within_the_limits_is_taken() -> None:
    assert holds(nested(63))
    assert not holds(nested(64))
    assert holds(["|", *[["?", "down"]] * 9_998, ["?", "up"]])
    assert not holds(["=~", "name", "x" * 1000])
    assert not holds(["|", ["==", "size", 2**63 - 1], ["==", "size", 1 - 2**63]])


@pytest.mark.timeout(20)
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*x", "(x+x+)+y"])
def test_no_pattern_can_hang_the_evaluator(pattern: str) -> None:
    text = "a" * 500_000 + "b"
    tree = parse_filter(["=~", "text", pattern])
    assert not compile_filter(tree)(lambda _field: text)


# ---------------------------------------------------------------- queries


def without_domain(found: Any, wanted: Any) -> bool:
    return operator.eq(found, wanted) or str(found).startswith(f"{wanted}.")


QUERIES = Dialect(equal=without_domain, is_for_queries=True)


def passes(raw: object) -> bool:
    return compile_filter(parse_filter(raw), QUERIES)(resolve)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (["==", "name", "node1"], True),
        (["==", "name", "node"], False),
        (["!=", "name", "node1.example"], False),
        (["<", "name", "node1"], False),
        (["==", "count", 7], True),
        (["<", "share", 1], True),
        (["=[]", "tags", "blue"], True),
        (["=~", "tags", "^bl.e$"], True),
        (["=~", "tags", "pink"], False),
        (["!", ["=~", "tags", "blue"]], False),
        (["=~", "name", "^node[0-9]"], True),
        (["?", "down"], False),
        # A missing field passes, so its negation does not.
        (["==", "size", 1], True),
        (["?", "size"], True),
        (["=~", "size", "x"], True),
        (["=[]", "size", "x"], True),
        (["!=", "size", 1], False),
        (["&", ["==", "size", 1], ["?", "down"]], False),
        # An operand that is not reached is not judged.
        (["|", ["?", "up"], ["==", "name", 7]], True),
    ],
)
def test_queries_have_rules_of_their_own(raw: object, *, expected: bool) -> None:
    assert passes(raw) is expected


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (
            ["==", "name", 7],
            "Invalid types in comparison, field 'name': 'node1.example.com' and 7",
        ),
        (["!", ["<", "count", "x"]], "Invalid types in comparison, field 'count': 7 and 'x'"),
        (["==", "up", 1], "Invalid types in comparison, field 'up': True and 1"),
        (["==", "note", "x"], "Invalid types in comparison, field 'note': None and 'x'"),
        (["=~", "count", "x"], "Invalid types in comparison, field 'count': 7 and 'x'"),
        (["=[]", "name", "x"], "Invalid types in comparison, field 'name': "),
        (["=[]", "mixed", "x"], "Invalid types in comparison, field 'mixed': "),
        (["?", "count"], "Unexpected value 7 of field 'count' in boolean context"),
    ],
)
def test_an_invalid_comparison_in_a_query_is_an_error(raw: object, said: str) -> None:
    with pytest.raises(errors.ParameterError) as refused:
        passes(raw)
    assert refused.value.text.startswith(said)


def test_all_fields_of_a_filter_are_found() -> None:
    raw = ["&", ["|", ["?", "a"], ["!", ["==", "b", 1]]], ["=~", "c", "x"], ["=[]", "a", 1], None]
    assert list(fields_of(parse_filter(raw))) == ["a", "b", "c", "a"]
