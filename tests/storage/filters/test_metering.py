"""The cost of evaluating filters, and its interruption."""

from __future__ import annotations

from typing import Any

import pytest

from ganger.storage.filters import filters
from ganger.storage.filters.filter_evaluation import MISSING, compile_filter
from ganger.storage.filters.metering import (
    COMPARISON_STEPS,
    ITEM_STEPS,
    Meter,
    Slice,
    SliceOverError,
    TooMuchWorkError,
)

LARGE = 1 << 30


def spent(raw: object, fields: dict[str, Any]) -> int:
    meter = Meter(LARGE)
    test = compile_filter(filters.parse_filter(raw))
    test(lambda name: fields.get(name, MISSING), meter)
    return LARGE - meter.left


def test_a_comparison_costs_its_operator_and_its_texts() -> None:
    assert spent(["=", "name", "ann"], {"name": "x" * 9_000}) == COMPARISON_STEPS + 7


def test_a_search_costs_the_text_times_the_weight_of_its_pattern() -> None:
    plain = spent(["=~", "t", "z"], {"t": "x" * 10_000})
    assert plain == 10_000 + COMPARISON_STEPS + 1
    heavy = spent(["=~", "t", "x.{200}z"], {"t": "x" * 10_000})
    assert heavy > 20 * plain


def test_a_list_costs_its_items() -> None:
    steps = spent(["=[]", "t", "z"], {"t": ["x"] * 1_000})
    assert steps == 1_000 * ITEM_STEPS + COMPARISON_STEPS + 2


def test_a_missing_field_costs_nothing() -> None:
    assert spent(["=~", "t", "z"], {}) == COMPARISON_STEPS + 1


def test_all_operators_are_paid_for_before_any_is_looked_at() -> None:
    raw = ["|", *(["=", "a", number] for number in range(99))]
    assert spent(raw, {"a": 0}) >= 100 * COMPARISON_STEPS


def test_an_evaluation_that_costs_too_much_ends() -> None:
    raw = ["|", ["=~", "t", "y"], ["=~", "t", "z"]]
    test = compile_filter(filters.parse_filter(raw))
    with pytest.raises(TooMuchWorkError):
        test({"t": "x" * 10_000}.get, Meter(15_000))


def test_steps_are_taken_up_to_the_last_one() -> None:
    slice_ = Slice(5)
    meter = Meter(9, slice_)
    for steps in (2, 3):
        meter.charge(steps)
    with pytest.raises(SliceOverError):
        meter.charge(1)
    # A new slice grants the first piece of work, however large, and then no other.
    slice_.begin(0)
    meter.charge(3)
    with pytest.raises(SliceOverError):
        meter.charge(1)
    slice_.begin(5)
    meter.charge(1)
    with pytest.raises(TooMuchWorkError):
        meter.charge(1)
    assert (meter.left, slice_.left) == (0, 4)


def test_an_evaluation_that_is_begun_again_gets_further_each_time() -> None:
    patterns = [["=~", "t", f"z{number}"] for number in range(9)]
    lists = [["=[]", "many", f"z{number}"] for number in range(9)]
    test = compile_filter(filters.parse_filter(["!", ["|", *patterns, *lists]]))
    fields = {"t": "x" * 100_000, "many": ["x"] * 10_000}
    slice_ = Slice(0)
    meter = Meter(LARGE, slice_)
    found, attempt = None, 0
    while found is None:
        # Each slice is smaller than the smallest piece of work.
        slice_.begin(10)
        try:
            found = test(fields.get, meter)
        except SliceOverError:
            attempt += 1
            assert attempt < 100
    assert found
    assert attempt == 18
    # Nothing was paid for twice.
    operators = COMPARISON_STEPS * 20 + 9 * (3 + 6)
    assert LARGE - meter.left <= 9 * (100_000 + 10_000 * ITEM_STEPS) + operators


def test_of_the_next_object_nothing_is_known() -> None:
    test = compile_filter(filters.parse_filter(["=~", "t", "z"]))
    meter = Meter(LARGE)
    assert not test({"t": "x"}.get, meter)
    meter.begin_object()
    assert test({"t": "z"}.get, meter)


@pytest.mark.parametrize(("raw", "count"), [
    (None, 0),
    (["=~", "a", "b"], 1),
    (["&", ["=~", "a", "b"], ["!", ["=~", "a", "b"]]], 2),
    ([["opcode", ["=~", "a", "b"]], ["reason", ["|", ["=~", "a", "b"], 7]]], 2),
    (["=", "=~", "=~"], 0),
    ("=~", 0),
])  # fmt: skip
def test_regular_expressions_are_counted_before_they_are_compiled(raw: object, count: int) -> None:
    assert filters.searches(raw) == count
