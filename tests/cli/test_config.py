"""``ganger config``: how values on the command line are read."""

from __future__ import annotations

import pytest

from ganger.cli.config import json_value
from ganger.storage import errors


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("null", None),
        ('["a"]', ["a"]),
        ("web", "web"),
        ("NaN", "NaN"),
        ("", ""),
        ("\udcff", "\udcff"),
    ],
)
def test_a_value_is_json_or_a_text(text: str, value: object) -> None:
    assert json_value(text) == value


def test_a_value_that_is_nested_too_deeply_is_a_wrong_command_line() -> None:
    with pytest.raises(errors.UsageError, match="nested deeper than can be read"):
        json_value("[" * 100_000)
