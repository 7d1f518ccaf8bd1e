"""A campaign that a signal ends leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60


def daemons(folder: Path) -> list[psutil.Process]:
    """The processes whose command lines name something in the folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_campaign_that_is_ended_stops_its_daemons(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-m", "tests.torture", "--only", "restarts", "--percent", "100"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    end = time.monotonic() + PATIENCE_SECONDS
    # A shell that starts the tests in the background lets them, and what they start, ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as campaign:
        try:
            while not daemons(tmp_path):
                assert campaign.poll() is None, campaign.communicate()
                assert time.monotonic() < end, "the campaign starts a daemon"
            campaign.send_signal(number)
            if number == signal.SIGTERM:
                campaign.send_signal(number)
            campaign.communicate(timeout=PATIENCE_SECONDS)
        finally:
            campaign.kill()
    left = daemons(tmp_path)
    commands = [" ".join(process.cmdline()) for process in left]
    for process in left:
        process.kill()
    assert commands == []
    assert list(tmp_path.iterdir()) == []
