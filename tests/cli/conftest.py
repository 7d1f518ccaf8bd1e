"""The process behind commands that ask for a daemon."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from tests.cli import stand_in

from ganger.cli import up


@pytest.fixture(name="silent")
def process_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the queue while no daemon answers."""

    class Away:
        is_away = True

    with subprocess.Popen(["sleep", "600"]) as process:
        stand_in.use(monkeypatch, Away())
        monkeypatch.setattr(up, "running_pid", lambda _: process.pid)
        yield process
        process.kill()
