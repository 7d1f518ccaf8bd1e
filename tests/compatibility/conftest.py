"""A stage for components that open what others have left on disk; Ganeti's tools and a daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.actors.runtime.stage import Stage
from tests.compatibility import ganeti_tools
from tests.compatibility.ganeti_tools import Tools
from tests.faults.harness import Daemon


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close_log()
    made.daemon_lock.remove()


@pytest.fixture(scope="package")
def served() -> Iterator[tuple[Tools, Daemon]]:
    """One for all files with Ganeti's tools, which run in one process for that."""
    with ganeti_tools.served() as served:
        yield served


@pytest.fixture(scope="package")
def tools(served: tuple[Tools, Daemon]) -> Tools:
    return served[0]


@pytest.fixture(scope="package")
def daemon(served: tuple[Tools, Daemon]) -> Daemon:
    return served[1]
