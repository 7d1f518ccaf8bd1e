"""What all tests of the runtime share."""

from __future__ import annotations

import pytest

from ganger.storage import settings


@pytest.fixture(autouse=True)
def turns_end_by_their_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a turn of a test would end by its time, and another one begin."""
    monkeypatch.setattr(settings, "TURN_SECONDS", 3600.0)
