"""What the tests of actors share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.actors.queue.queue_stage import Queue
from tests.actors.runtime.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.daemon_lock.remove()


@pytest.fixture
def queue(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    made = Queue(stage, monkeypatch)
    yield made
    made.kill_all()
    made.actor.close()
