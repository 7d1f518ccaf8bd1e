"""What the tests of locks share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.actors.locks.lock_stage import Locks
from tests.actors.runtime.stage import Stage


@pytest.fixture
def locks(stage: Stage) -> Iterator[Locks]:
    made = Locks(stage)
    yield made
    for held in made.held.values():
        held.remove()
