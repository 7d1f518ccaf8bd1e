"""The query filter language alone: parsing, writing back, evaluating one object."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.storage import errors, filters

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
    return OBJECT.get(field, filters.MISSING)


def holds(raw: object) -> bool:
    return filters.compile_filter(filters.parse_filter(raw))(resolve)


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


@pytest.mark.parametrize(
    ("raw", "stored"),
    [
        (["=", "a", 1], ["==", "a", 1]),
        (["!=", "a", 1], ["!", ["==", "a", 1]]),
        (["&", ["!=", "a", "x"], None], ["&", ["!", ["==", "a", "x"]], None]),
        (["==", "a", 3.0], ["==", "a", 3]),
        (("|", ("=~", "a", "b")), ["|", ["=~", "a", "b"]]),
        (["=[]", "a", "b"], ["=[]", "a", "b"]),
        (["?", "a"], ["?", "a"]),
        ([">=", "a.b", "c"], [">=", "a.b", "c"]),
        (None, None),
    ],
)
def test_a_filter_is_stored_normalised(raw: object, stored: object) -> None:
    assert filters.to_raw(filters.parse_filter(raw)) == stored


FIELDS = st.text("abc.", min_size=1, max_size=4)
VALUES = st.integers(-(2**63) + 1, 2**63 - 1) | st.text(max_size=5)
RAW = st.recursive(
    st.none()
    | st.tuples(st.sampled_from(["=", "==", "!=", "<", "<=", ">", ">=", "=[]"]), FIELDS, VALUES)
    | st.tuples(st.just("=~"), FIELDS, st.sampled_from(["", "a+", "^x|y$"]))
    | st.tuples(st.just("?"), FIELDS),
    lambda part: (
        st.tuples(st.just("!"), part)
        | st.lists(part, max_size=3).map(lambda parts: ["&", *parts])
        | st.lists(part, max_size=3).map(lambda parts: ["|", *parts])
    ),
    max_leaves=8,
)


@given(RAW)
def test_a_stored_filter_reads_back_as_the_same_filter(raw: object) -> None:
    tree = filters.parse_filter(raw)
    assert filters.parse_filter(filters.to_raw(tree)) == tree


def nested(depth: int) -> list[Any]:
    raw: list[Any] = ["?", "up"]
    for _ in range(depth - 1):
        raw = ["!", raw]
    return raw


BAD: list[tuple[object, str]] = [
    ("up", "here: expected null or [operator, ...], not 'up'"),
    (True, "here: expected null or [operator, ...], not True"),
    ({}, "here: expected null or [operator, ...], not {}"),
    ([], "here: expected null or [operator, ...], not []"),
    (["~~", "id", 1], "here[0]: Unknown filter operand '~~'; expected one of & | ! ? =="),
    ([1, "id", 1], "here[0]: Unknown filter operand 1"),
    ([["&"]], "here[0]: Unknown filter operand ['&']"),
    (["!"], "here: '!' takes 1 operand(s), not 0"),
    (["!", None, None], "here: '!' takes 1 operand(s), not 2"),
    (["?", "a", "b"], "here: '?' takes 1 operand(s), not 2"),
    (["==", "a"], "here: '==' takes 2 operand(s), not 1"),
    (["!=", "a", 1, 2], "here: '!=' takes 2 operand(s), not 3"),
    (["=~", "a"], "here: '=~' takes 2 operand(s), not 1"),
    (["==", 5, 5], "here[1]: expected a field's name, not 5"),
    (["?", None], "here[1]: expected a field's name, not None"),
    (["==", "a", None], "here[2]: expected a string or an integer, not None"),
    (["<", "a", True], "here[2]: expected a string or an integer, not True"),
    (["<", "a", 1.5], "here[2]: expected a string or an integer, not 1.5"),
    (["<", "a", float("inf")], "here[2]: expected a string or an integer, not inf"),
    (["<", "a", float("nan")], "here[2]: expected a string or an integer, not nan"),
    (["=[]", "a", ["b"]], "here[2]: expected a string or an integer, not ['b']"),
    (["==", "a", 2**63], "here[2]: the integer has more than 63 bits"),
    (["=~", "a", 5], "here[2]: expected a regular expression, not 5"),
    (["=~", "a", "("], "here[2]: broken regular expression '(': missing )"),
    (["=~", "a", "(?=x)"], "here[2]: broken regular expression '(?=x)': invalid perl operator"),
    (["=~", "a", r"(x)\1"], "invalid escape sequence"),
    (["=~", "a", "((a{30}){30}){30}"], "here[2]: broken regular expression"),
    (["=~", "a", "\ud83d"], "here[2]: the regular expression is not valid Unicode"),
    (["=~", "a", "x" * 1001], "here[2]: the regular expression is longer than 1000 characters"),
    (["&", None, ["|", ["?", 1]]], "here[2][1][1]: expected a field's name, not 1"),
    (nested(65), "here: is nested deeper than 64"),
    (["|", *[["?", "a"]] * 10_000], "here: has more than 10000 operators"),
]


@pytest.mark.parametrize(("raw", "text"), BAD, ids=lambda cell: str(cell)[:40])
def test_a_malformed_filter_is_refused_naming_the_place(raw: object, text: str) -> None:
    with pytest.raises(errors.FilterRuleError, match=re.escape(text)):
        filters.parse_filter(raw, where="here")


def test_a_filter_within_the_limits_is_taken() -> None:
    assert holds(nested(63))
    assert not holds(nested(64))
    assert holds(["|", *[["?", "down"]] * 9_998, ["?", "up"]])
    assert not holds(["=~", "name", "x" * 1000])
    assert not holds(["|", ["==", "size", 2**63 - 1], ["==", "size", 1 - 2**63]])


def test_a_value_in_an_error_is_cut_to_a_bearable_length() -> None:
    with pytest.raises(errors.FilterRuleError) as caught:
        filters.parse_filter("x" * 100_000)
    assert len(caught.value.text) < 200


@pytest.mark.timeout(20)
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*x", "(x+x+)+y"])
def test_no_pattern_can_hang_the_evaluator(pattern: str) -> None:
    text = "a" * 500_000 + "b"
    tree = filters.parse_filter(["=~", "text", pattern])
    assert not filters.compile_filter(tree)(lambda _field: text)


def test_the_regular_expression_engine_is_loaded_with_the_first_pattern_only() -> None:
    program = (
        "import sys; from ganger.actors.rules import filtering; from ganger.storage import filters;"
        "filters.parse_filter(['==', 'a', 'b']); assert 're2' not in sys.modules;"
        "filters.parse_filter(['=~', 'a', 'b']); assert 're2' in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
