"""A data directory, and daemons in it that are gone when the test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.transport.fake_daemon import FakeDaemon, data_directory


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    with data_directory(tmp_path / "data") as path:
        yield path


@pytest.fixture
def start(data: Path) -> Iterator[Callable[..., FakeDaemon]]:
    started: list[FakeDaemon] = []

    def start_one(*arguments: Any, **options: Any) -> FakeDaemon:
        daemon = FakeDaemon(data, *arguments, **options)
        started.append(daemon)
        return daemon

    yield start_one
    for daemon in started:
        daemon.kill()


@pytest.fixture
def daemon(start: Callable[..., FakeDaemon]) -> FakeDaemon:
    return start()
