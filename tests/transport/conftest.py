"""A data directory, daemons and sockets, all gone when the test ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.transport.client.fake_daemon import FakeDaemon, data_directory
from tests.transport.zmq.routers import LOOPBACK

from ganger.transport.zmq.dealer import Dealer
from ganger.transport.zmq.router import Router


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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "socket"


@pytest.fixture
def router(path: Path) -> Iterator[Router]:
    with contextlib.closing(Router(path)) as router:
        yield router


@pytest.fixture
def remote(path: Path, tmp_path: Path) -> Iterator[Router]:
    with contextlib.closing(Router(path, remote=LOOPBACK, keys=tmp_path / "keys")) as router:
        yield router


@pytest.fixture
def dealer(path: Path) -> Iterator[Dealer]:
    with contextlib.closing(Dealer(f"ipc://{path}")) as dealer:
        yield dealer
