"""The first steps of the README, typed as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.faults.harness import Daemon

README = Path(__file__).parents[2] / "README.md"
SHOWN_OUTPUT = "hello\nexit code 3\n"
"""What the README shows as output: it is not typed, but expected."""


def blocks() -> list[str]:
    """The indented blocks of the section, without their indentation."""
    text = README.read_text(encoding="utf-8")
    section = text[text.index("## First steps") : text.index("## Where things lie")]
    found = re.findall(r"(?:^    .*\n(?:^\n(?=    ))?)+", section, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


def test_the_first_steps_work_as_they_are_written(tmp_path: Path) -> None:
    script = "\n".join(blocks()).replace("make install\n", "").replace("/tmp/", f"{tmp_path}/")
    assert SHOWN_OUTPUT in script
    script = script.replace(SHOWN_OUTPUT, "").replace(".venv/bin/python", sys.executable)
    script = script.replace(".venv/bin/ganger", f"{sys.executable} -m ganger.cli.main")
    daemon = Daemon(tmp_path)
    environment = {
        **os.environ,
        "GANGER_DATA": os.fspath(daemon.data),
        "GANGER_TEST_FOLDER": os.fspath(tmp_path),
    }
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
    finally:
        daemon.__exit__()
    assert done.returncode == 0, done.stderr
    assert "The daemon is ready" in done.stdout
    assert SHOWN_OUTPUT in done.stdout
    assert "success Linux" in done.stdout
    assert "The daemon has stopped" in done.stdout
    assert "Traceback" not in done.stderr
