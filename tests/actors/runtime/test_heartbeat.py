"""The longest turn of the last seconds."""

from __future__ import annotations

from ganger.actors.runtime.mailbox import TurnTimes
from ganger.storage import settings

WINDOW = settings.TURN_WINDOW_SECONDS


def test_the_longest_turn_counts_until_its_window_and_the_next_are_over() -> None:
    times = TurnTimes()
    times.note(0.5, now=100.0)
    times.note(0.1, now=101.0)
    assert times.longest(101.0) == 0.5
    times.note(0.2, now=100.0 + WINDOW)
    assert times.longest(100.0 + WINDOW) == 0.5
    times.note(0.1, now=100.0 + 2 * WINDOW)
    assert times.longest(100.0 + 2 * WINDOW) == 0.2


def test_an_actor_that_rested_has_no_long_turn_any_more() -> None:
    times = TurnTimes()
    times.note(0.5, now=100.0)
    assert times.longest(100.0 + WINDOW + 1) == 0.5
    assert times.longest(100.0 + 2 * WINDOW) == 0.0
    times.note(0.1, now=100.0 + 5 * WINDOW)
    assert times.longest(100.0 + 5 * WINDOW) == 0.1


def test_nothing_has_been_noted() -> None:
    assert TurnTimes().longest(5.0) == 0.0
