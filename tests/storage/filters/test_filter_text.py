"""The text form of filters: what people type, and what it becomes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.storage import errors
from ganger.storage.filters.filter_text import parse_text
from ganger.storage.filters.filters import DEPTH_MAX, parse_filter


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("archived", ["?", "archived"]),
        ("id == 5", ["==", "id", 5]),
        ("id = -5", ["==", "id", -5]),
        ("id!=5", ["!=", "id", 5]),
        ("id<5", ["<", "id", 5]),
        ("id <= 5", ["<=", "id", 5]),
        ("id > 5", [">", "id", 5]),
        ("id >= 5", [">=", "id", 5]),
        ("be/maxmem == 5", ["==", "be/maxmem", 5]),
        ("group.uuid == 'x'", ["==", "group.uuid", "x"]),
        (r'name == "a \"b\" \\ c"', ["==", "name", 'a "b" \\ c']),
        ('"web" in tags', ["=[]", "tags", "web"]),
        ("5 not in ports", ["!", ["=[]", "ports", 5]]),
        ("name =~ m/^web/", ["=~", "name", "^web"]),
        (r"name =~ m/a\/b\d/", ["=~", "name", r"a/b\d"]),
        ("name =~ m#a/b#si", ["=~", "name", "(?si:a/b)"]),
        ("name !~ m|x|", ["!", ["=~", "name", "x"]]),
        ('name =* "web*"', ["=~", "name", r"^web.*(\..*)?$"]),
        ('name !* "n?"', ["!", ["=~", "name", r"^n.(\..*)?$"]]),
        ("not a and b", ["&", ["!", ["?", "a"]], ["?", "b"]]),
        ("not not a", ["!", ["!", ["?", "a"]]]),
        ("a or b and c", ["|", ["?", "a"], ["&", ["?", "b"], ["?", "c"]]]),
        ("(a or b) and c", ["&", ["|", ["?", "a"], ["?", "b"]], ["?", "c"]]),
        (" \n a ", ["?", "a"]),
    ],
)
def test_each_form_becomes_json(text: str, expected: list[Any]) -> None:
    assert parse_text(text) == expected
    parse_filter(expected)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "character 1: expected a field, a value, not, or (, found the end"),
        ("id ==", "character 6: expected a number, or a text in quotes, found the end"),
        ("id == five", "character 7: expected a number, or a text in quotes, found 'five'"),
        ("id == 99999999999999999999", "character 7: expected a number, or a text in quotes"),
        ("(a", "character 3: expected and, or, or ), found the end"),
        ("a b", "character 3: expected and, or, or the end, found 'b'"),
        ("a and", "character 6: expected a field, a value, not, or (, found the end"),
        ("5", "character 2: expected in, or not in, found the end"),
        ("5 in not", "character 6: expected a field, found 'not'"),
        ('name =~ "web"', "character 9: expected a pattern such as m/^web/i"),
        ("name =* 5", "character 9: expected a text in quotes, found '5'"),
        ('name == "web', "character 9: cannot read"),
        ("a & b", "character 3: cannot read '& b'"),
        (f"{'(' * DEPTH_MAX}a", f"is nested deeper than {DEPTH_MAX}"),
        ("not " * 100_000, f"is nested deeper than {DEPTH_MAX}"),
    ],
)
def test_an_error_names_the_character(text: str, problem: str) -> None:
    with pytest.raises(errors.FilterRuleError) as refused:
        parse_text(text)
    assert refused.value.text.startswith(f"filter: {problem}")


@given(st.text(alphabet="abm ()=!<>~*\"/'#5-\\notri", max_size=30))
def test_any_text_is_a_filter_or_an_error_that_names_its_place(text: str) -> None:
    try:
        found = parse_text(text)
    except errors.FilterRuleError as error:
        assert error.text.startswith("filter: ")  # noqa: PT017 - either outcome is right
    else:
        # Only patterns are checked later.
        if "=~" not in str(found):
            parse_filter(found)
