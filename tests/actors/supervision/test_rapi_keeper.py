"""The keeper of the remote API's process. What it does with real ones: tests/faults."""

from __future__ import annotations

import pytest

from ganger.actors.supervision.rapi_keeper import pause_seconds
from ganger.storage.access import rapi_settings


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(1, 0.1), (2, 0.2), (4, 0.8), (100_000, rapi_settings.START_SECONDS_MAX)],
)
def test_the_pause_before_a_start_grows_to_a_limit_however_long_it_fails(
    failures: int, seconds: float
) -> None:
    assert pause_seconds(failures) == pytest.approx(seconds)
