"""How times are told."""

from __future__ import annotations

import pytest

from ganger.cli import output


@pytest.mark.parametrize(
    ("moment", "told"),
    [
        (None, "-"),
        (0.0, "1970-01-01T00:00:00Z"),
        (253_402_300_799.0, "9999-12-31T23:59:59Z"),
    ],
)
def test_a_time_is_told_in_utc(moment: float | None, told: str) -> None:
    assert output.absolute(moment) == told


@pytest.mark.parametrize(
    ("moment", "told"),
    [
        (253_402_300_800.0, "253402300800"),
        (1_800_000_000_000_000.0, "1800000000000000"),
        (-1e12, "-1000000000000"),
        (2.0**63, "9223372036854775808"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_a_time_that_no_calendar_has_is_told_in_seconds(moment: float, told: str) -> None:
    assert output.absolute(moment) == told
