"""What several tests of the queue stand on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.actors.queue.books import Books

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Books]:
    made = Books(tmp_path).begin()
    yield made
    made.close()
