"""``make bench``: its options, and that it leaves nothing behind when it is ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bench import __main__ as program

from ganger.storage.disk import paths


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["--rounds", "0"], "argument --rounds: expected 1 or more, not 0"),
        (["--jobs", "0"], "argument --jobs: expected 10 or more, not 0"),
        (["--steps", "-1"], "argument --steps: expected 10 or more, not -1"),
        (["--pending", "-1"], "argument --pending: expected 10 or more, not -1"),
        (["--pending", "x"], "argument --pending: expected a whole number, not 'x'"),
        (["--only", "speed"], "argument --only: invalid choice: 'speed'"),
        (["--dir", "/nowhere"], "argument --dir: there is no folder /nowhere"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], given: list[str], wanted: str
) -> None:
    with pytest.raises(SystemExit) as left:
        program.arguments(given)
    assert left.value.code == 2
    assert wanted in capsys.readouterr().err.splitlines()[-1]


def test_a_benchmark_that_is_ended_stops_its_daemon(tmp_path: Path) -> None:
    words = [sys.executable, "-u", "-m", "bench", "--only", "locks", "--dir", str(tmp_path)]
    root = Path(program.__file__).parents[1]
    bench = subprocess.Popen(
        [*words, "--jobs", "1000000"], cwd=root, stdout=subprocess.PIPE, text=True
    )
    with bench:
        assert bench.stdout is not None
        # It measures: the daemon is there.
        for line in bench.stdout:
            if "ock" in line and "processors" not in line:
                break
        [lock] = tmp_path.glob("*/data/queue/lock")
        run = paths.places(lock.parents[1]).run
        assert run.is_dir()
        bench.send_signal(signal.SIGTERM)
        rest = bench.stdout.read()
    assert bench.returncode == 130, rest
    assert list(tmp_path.iterdir()) == []
    assert not run.exists()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            assert str(tmp_path) not in os.fsdecode((folder / "cmdline").read_bytes())
