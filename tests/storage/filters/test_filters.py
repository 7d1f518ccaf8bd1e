"""The query filter language: parsing and writing back."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.storage import errors
from ganger.storage.filters import filters


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


def test_a_value_in_an_error_is_cut_to_a_bearable_length() -> None:
    with pytest.raises(errors.FilterRuleError) as caught:
        filters.parse_filter("x" * 100_000)
    assert len(caught.value.text) < 200


def test_the_regular_expression_engine_is_loaded_with_the_first_pattern_only() -> None:
    program = (
        "import sys; from ganger.actors.rules import filtering;"
        "from ganger.storage.filters import filters;"
        "filters.parse_filter(['==', 'a', 'b']); assert 're2' not in sys.modules;"
        "filters.parse_filter(['=~', 'a', 'b']); assert 're2' in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
