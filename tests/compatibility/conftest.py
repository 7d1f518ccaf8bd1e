"""A stage for components that open what others have left on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.actors.runtime.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.daemon_lock.remove()
