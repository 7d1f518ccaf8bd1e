"""The natural order of names."""

from __future__ import annotations

import pytest

from ganger.storage.natural_order import natural_key


@pytest.mark.parametrize(
    "names",
    [
        ["node9", "node10", "node11"],
        ["a", "a1", "a1b", "a2", "b"],
        ["1", "2", "10", "a"],
        ["node-2.example.com", "node-10.example.com"],
        ["x2y9", "x2y10", "x10y1"],
    ],
)
def test_numbers_in_names_count_as_numbers(names: list[str]) -> None:
    mixed = names[1:] + names[:1]
    assert sorted(mixed, key=natural_key) == names


def test_names_that_differ_only_in_leading_zeros_have_an_order() -> None:
    assert sorted(["a1", "a01"], key=natural_key) == sorted(["a01", "a1"], key=natural_key)
