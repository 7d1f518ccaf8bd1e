"""Medians, spreads, ratios and targets of `make bench-peers`."""

from __future__ import annotations

import doctest

import pytest
from bench.peers import catalogue, results, tables
from bench.peers.results import Measured, Round, Spread, Target
from hypothesis import given
from hypothesis import strategies as st

WANTED = Target(
    what="idle",
    figure="idle_p50",
    of="ganger-fresh",
    against="rq",
    at_least=0.25,
    on_the_way_to=0.15,
    is_most=True,
)


def measured(name: str, *idle: float | None) -> Measured:
    return Measured(name, rounds=[Round(idle_p50=value) for value in idle])


@pytest.mark.parametrize("module", [catalogue, results, tables], ids=lambda one: one.__name__)
def test_examples_are_true(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert found.attempted > 0
    assert found.failed == 0


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_a_median_lies_between_the_extremes(values: list[float]) -> None:
    found = results.spread(values)
    assert found is not None
    assert min(values) == found.lowest <= found.median <= found.highest == max(values)
    assert found.rounds == len(values)


def test_without_values_there_is_no_spread() -> None:
    assert results.spread([]) is None


def test_a_round_that_lacks_a_figure_does_not_count_for_it() -> None:
    assert measured("rq", 3.0, None, 1.0).spread("idle_p50") == Spread(2.0, 1.0, 3.0, 2)
    assert measured("rq", None).spread("idle_p50") is None


@pytest.mark.parametrize(("quantile", "wanted"), [(0.0, 1.0), (0.5, 51.0), (0.99, 100.0)])
def test_a_quantile_is_a_duration_that_occurred(quantile: float, wanted: float) -> None:
    seconds = [number / 1_000 for number in range(100, 0, -1)]
    assert results.quantile_ms(seconds, quantile) == wanted


def test_a_ratio_is_that_of_the_medians() -> None:
    ours, theirs = results.spread([1.0, 2.0, 9.0]), results.spread([4.0, 4.0, 5.0])
    assert results.ratio(ours, theirs) == 0.5


@pytest.mark.parametrize("theirs", [None, Spread(0.0, 0.0, 0.0, 1)])
def test_there_is_no_ratio_to_what_was_not_measured(theirs: Spread | None) -> None:
    assert results.ratio(Spread(1.0, 1.0, 1.0, 1), theirs) is None


@pytest.mark.parametrize(("ours", "is_met"), [(2.0, True), (2.5, True), (2.6, False)])
def test_a_target_of_at_most_is_met_up_to_its_limit(ours: float, *, is_met: bool) -> None:
    (found,) = results.reached([WANTED], [measured("ganger-fresh", ours), measured("rq", 10.0)])
    assert found.found == pytest.approx(ours / 10)
    assert found.is_met is is_met


@pytest.mark.parametrize(("ours", "is_met"), [(6.9, False), (7.0, True)])
def test_a_target_of_at_least_is_met_from_its_limit_on(ours: float, *, is_met: bool) -> None:
    target = WANTED._replace(against=None, at_least=7, is_most=False)
    (found,) = results.reached([target], [measured("ganger-fresh", ours)])
    assert (found.found, found.is_met) == (ours, is_met)


def test_a_target_whose_peer_was_not_measured_is_not_met() -> None:
    (found,) = results.reached([WANTED], [measured("ganger-fresh", 1.0)])
    assert (found.found, found.is_met) == (None, False)
