"""The driver tells why a side failed, and leaves nothing of it behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.peers import catalogue, driver

NO_SIDE = catalogue.PEERS[0]._replace(library="unknown", environment=None)

ORPHAN = """
import subprocess, sys
from bench.peers import driver

driver.adopt_orphans()
# The shell ends at once, and its child has a session of its own, as a daemon has.
subprocess.run(["sh", "-c", "setsid sleep 7654 &"], check=True)
print(*driver.end_descendants(), sep="\\n")
"""


@pytest.fixture
def side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[driver.SideProcess]:
    # The other descendants of this process belong to other tests.
    monkeypatch.setattr(driver, "end_descendants", list)
    with driver.SideProcess(NO_SIDE, tmp_path) as side:
        yield side


def test_what_a_side_cannot_do_is_told_in_one_line(side: driver.SideProcess) -> None:
    wanted = "start: ModuleNotFoundError: No module named 'bench.peers.unknown_side'"
    with pytest.raises(driver.SideError, match=wanted):
        side.ask("start", 30)


def test_a_side_that_takes_too_long_is_given_up(side: driver.SideProcess) -> None:
    with pytest.raises(driver.SideError, match="start: no result within 0 s"):
        side.ask("start", 0)


def test_a_side_that_died_is_told(side: driver.SideProcess) -> None:
    side._process.kill()
    with pytest.raises(driver.SideError, match="start: its program ended"):
        side.ask("start", 30)


def test_daemons_of_a_side_that_was_killed_are_ended() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ORPHAN],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    (ended,) = done.stdout.splitlines()
    # It may still be the shell or `setsid`, on their way to the program.
    assert "sleep" in ended
