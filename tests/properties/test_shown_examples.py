"""A property that fails shows an example, and comes to that long before the limit of a test."""

from __future__ import annotations

import time

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import engine
from tests.conftest import SHRINKING_SECONDS


def test_shrinking_ends_in_time_and_shows_what_it_has_come_to(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    limit = float(request.config.getini("timeout"))
    assert engine.MAX_SHRINKING_SECONDS == SHRINKING_SECONDS <= limit / 5
    assert Phase.explain not in settings().phases
    monkeypatch.setattr(engine, "MAX_SHRINKING_SECONDS", 0.5)
    began = time.monotonic()

    @given(st.lists(st.integers(), min_size=20))
    def never_holds(found: list[int]) -> None:
        # Slow enough for the end of shrinking to be far away.
        time.sleep(0.02)
        assert sum(found) < 0, f"seen {len(found)} numbers"

    with pytest.raises(AssertionError, match=r"seen [0-9]+ numbers"):
        never_holds()
    assert time.monotonic() - began < limit / 5
