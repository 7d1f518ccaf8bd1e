"""`make demo-hosts`, run as a user would, and interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from docs.examples import demo_hosts, demo_network

RUN_SECONDS = 240.0
CLAIMS = 6


def start(tmp_path: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", demo_hosts.__name__, *options],
        cwd=Path(demo_hosts.__file__).parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def left(tmp_path: Path) -> list[psutil.Process]:
    """Processes of the demonstration's machines."""
    mark, found = f"{demo_hosts.MARK}={tmp_path}".encode(), []
    for pid in psutil.pids():
        try:
            if mark in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(psutil.Process(pid))
        except (OSError, psutil.Error):
            continue
    return found


def test_every_command_ran_once_and_every_end_is_true(tmp_path: Path) -> None:
    process = start(tmp_path)
    text, _ = process.communicate(timeout=RUN_SECONDS)
    print(text)
    has_cables = not demo_network.why_not()
    assert ("web2 is cut off: its packets are lost" in text) == has_cables
    assert text.startswith("Each host has a network namespace" if has_cables else "All hosts share")
    claims = re.findall(r"^  (ok|FAILED) +(.+)$", text, re.MULTILINE)
    assert [mark for mark, _ in claims] == ["ok"] * CLAIMS
    assert text.endswith("Everything held.\n")
    assert process.returncode == 0
    assert (left(tmp_path), list(tmp_path.iterdir())) == ([], [])


@pytest.mark.parametrize(
    ("number", "options"), [(signal.SIGINT, []), (signal.SIGTERM, ["--loopback"])]
)
def test_an_interrupted_demonstration_cleans_up(
    tmp_path: Path, number: signal.Signals, options: list[str]
) -> None:
    process = start(tmp_path, *options)
    assert process.stdout is not None
    heard = ""
    while "web1 has joined" not in heard:
        line = process.stdout.readline()
        assert line, heard
        heard += line
    process.send_signal(number)
    text, _ = process.communicate(timeout=RUN_SECONDS)
    assert process.returncode == 130
    assert "Interrupted: cleaning up" in text
    assert (left(tmp_path), list(tmp_path.iterdir())) == ([], [])
