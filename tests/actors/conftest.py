"""What the tests of actors share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.actors.queue.queue_stage import Queue
from tests.actors.runtime.stage import Stage, Timer


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.daemon_lock.remove()


@pytest.fixture
def timers() -> list[Timer]:
    """Every alarm that is set; none rings by itself."""
    Timer.made.clear()
    return Timer.made


@pytest.fixture
def queue(stage: Stage, timers: list[Timer], monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    assert timers == []
    made = Queue(stage, monkeypatch)
    yield made
    made.kill_all()
    made.actor.close()
