"""The cost of evaluating filters, and its interruption."""

from __future__ import annotations

from typing import Any

import pytest

from ganger.storage.filters import filters, metering
from ganger.storage.filters.filter_evaluation import MISSING, compile_filter
from ganger.storage.filters.metering import (
    COMPARISON_STEPS,
    ITEM_STEPS,
    Meter,
    Slice,
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
    for steps, is_over in ((2, False), (3, True), (4, True)):
        # A piece of work is granted whatever its size; the caller looks before the next one.
        meter.charge(steps)
        assert meter.is_slice_over is is_over
    with pytest.raises(TooMuchWorkError):
        meter.charge(1)
    assert (meter.left, slice_.left) == (0, -4)


def test_one_predicate_has_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering, "PREDICATE_STEPS_MAX", 10)
    meter = Meter(LARGE)
    for _ in range(2):
        meter.begin_predicate()
        meter.charge(10)
        with pytest.raises(TooMuchWorkError):
            meter.charge(1)
    assert LARGE - meter.left == 20


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
