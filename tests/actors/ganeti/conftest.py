"""The configuration store with the part for Ganeti's programs, and its lock manager."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.actors.config.store_and_locks import StoreAndLocks
from tests.actors.runtime.stage import Stage


@pytest.fixture(name="both")
def store_and_locks(stage: Stage) -> Iterator[StoreAndLocks]:
    made = StoreAndLocks(stage)
    yield made
    for held in made.locks.held.values():
        held.remove()


@pytest.fixture(autouse=True)
def log_of_changes(stage: Stage) -> None:
    """The log is there before a test has the disk refuse."""
    stage.renew_log()
