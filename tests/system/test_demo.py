"""`make demo`, run as a user would: undisturbed, with failures in its midst, and interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from docs.examples import demo, demo_plan

from ganger.storage.disk import paths

RUN_SECONDS = 280.0
END_SECONDS = 30.0
FILES = 5
"""Each node gets so many: the plan is the same, and packs, checks and restores fewer."""

CLAIMS = 9
READY = re.compile(r"^The daemon is ready \(pid \d+\) in (.+)$", re.MULTILINE)
CHAOS = re.compile(r"^Chaos: seed \d+, in this order: (.+)$", re.MULTILINE)

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(name="start")
def start_demo(tmp_path: Path) -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", demo.__name__, "--files", str(FILES), *options],
            cwd=Path(demo.__file__).parents[2],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        # A demonstration that a failed test left behind cleans up after itself when asked.
        process.terminate()
        process.communicate(timeout=END_SECONDS)


def output_of(process: subprocess.Popen[str], timeout: float = RUN_SECONDS) -> str:
    """Everything that is still to come; also printed, to be seen should the test fail."""
    text, _ = process.communicate(timeout=timeout)
    print(text)
    return text


def assert_that_nothing_is_left(text: str, tmp_path: Path) -> None:
    folders = READY.findall(text)
    assert folders
    assert [folder for folder in folders if paths.places(Path(folder)).run.exists()] == []
    assert list(tmp_path.iterdir()) == []
    assert list(processes_of(tmp_path)) == []


def processes_of(tmp_path: Path) -> Iterator[psutil.Process]:
    """The processes that were started for a folder or work in it. A zombie has neither."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(str(tmp_path) in word for word in (*process.cmdline(), process.cwd())):
                yield process


def assert_that_everything_held(text: str) -> None:
    claims = re.findall(r"^  (ok|FAILED) +(.+)$", text, re.MULTILINE)
    assert [claim for mark, claim in claims if mark != "ok"] == []
    assert len(claims) >= CLAIMS
    assert text.endswith("Everything held.\n")


def test_the_demonstration_holds_and_leaves_nothing_behind(start: Start, tmp_path: Path) -> None:
    process = start()
    text = output_of(process)
    assert process.returncode == 0
    assert_that_everything_held(text)
    # Every job of the plan has its row in the table.
    plan = demo_plan.load_plan(tmp_path)
    rows = re.findall(r"^│ +\d+ │ (\S+) +│ (success|error)", text, re.MULTILINE)
    assert [name for name, _ in rows] == [job.name for job in plan]
    assert_that_nothing_is_left(text, tmp_path)


def test_the_plan_ends_as_it_should_whatever_fails_meanwhile(start: Start, tmp_path: Path) -> None:
    process = start("--chaos")
    text = output_of(process)
    assert process.returncode == 0
    assert_that_everything_held(text)
    announced = CHAOS.search(text)
    assert announced is not None
    struck = re.findall(r"^ +[0-9.]+ s +(\S+) was made to fail$", text, re.MULTILINE)
    assert ", ".join(struck) == announced[1]
    assert {"daemon", "fork_server"} < set(struck)
    assert len(READY.findall(text)) == 2
    assert_that_nothing_is_left(text, tmp_path)


def test_an_interrupted_demonstration_cleans_up(start: Start, tmp_path: Path) -> None:
    process = start()
    assert process.stdout is not None
    heard = ""
    # By then the other jobs are under way.
    while "[ 3/" not in heard:
        line = process.stdout.readline()
        assert line, heard
        heard += line
    process.send_signal(signal.SIGINT)
    text = heard + output_of(process, END_SECONDS)
    assert process.returncode == demo.INTERRUPTED_EXIT_CODE
    assert "Interrupted: cleaning up" in text
    assert_that_nothing_is_left(text, tmp_path)


def test_chaos_with_the_same_seed_strikes_in_the_same_order() -> None:
    orders = {seed: demo.victims("any", seed) for seed in range(20)}
    assert orders == {seed: demo.victims("any", seed) for seed in range(20)}
    assert len({tuple(order) for order in orders.values()}) > 1
    for order in orders.values():
        assert {"daemon", "fork_server"} < set(order) <= set(demo.VICTIMS)
