"""What the tests of the executor share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from tests.actors.execution.watched_executor import WatchedExecutor, refuse
from tests.actors.processes.lock_owner import LockOwner
from tests.actors.runtime.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def subject(stage: Stage) -> Iterator[WatchedExecutor]:
    with (
        mock.patch("ganger.actors.execution.fork_servers.subprocess.Popen"),
        mock.patch("ganger.actors.processes.fork_protocol.ask_status"),
    ):
        actor = stage.start(WatchedExecutor)
        actor.component._reaper.are_strays_likely = False
        actor.component._servers.end("lean")
        yield actor.component
        actor.close()


@pytest.fixture
def process(stage: Stage) -> Iterator[LockOwner]:
    process = LockOwner(stage.places.lock_files)
    yield process
    process.end()


@pytest.fixture(name="exhausted")
def without_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[pytest.MonkeyPatch]:
    """Every request for a descriptor of a process is refused."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", refuse)
        yield patch
