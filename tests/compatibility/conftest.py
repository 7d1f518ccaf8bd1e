"""A stage for components that open what others have left on disk; Ganeti's tools and a daemon."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.actors.runtime.stage import Stage
from tests.compatibility import ganeti_tools
from tests.compatibility.ganeti_tools import Tools
from tests.faults.harness import Daemon

UNPACKED = Path(__file__).parents[2] / ".ganeti" / "usr" / "lib" / "python3" / "dist-packages"


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


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """Ganeti's own client of the remote API."""
    if not (UNPACKED / "ganeti" / "rapi" / "client.py").exists():
        pytest.skip("needs Debian's python3-ganeti-rapi (make test unpacks it)")
    # At the end: the packages beside it must not hide others.
    sys.path.append(str(UNPACKED))
    try:
        yield importlib.import_module("ganeti.rapi.client")
    finally:
        sys.path.remove(str(UNPACKED))
        for name in [name for name in sys.modules if name.partition(".")[0] == "ganeti"]:
            del sys.modules[name]
