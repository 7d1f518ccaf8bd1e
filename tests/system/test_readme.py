"""The first steps of the README, typed as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.faults.harness import Daemon

README = Path(__file__).parents[2] / "README.md"
SHOWN_OUTPUTS = (
    "hello\nexit code 3\n",
    "status   summary\nqueued   EXEC(sleep 1)\nwaiting  EXEC(echo all is well)\n",
)
"""What the README shows as output: it is not typed, but expected."""

HOLDER = ".venv/bin/ganger exec --lock node/n1 -- sleep 5 &\n"
HELD = "sleep 5"
AWAITED = "wait\n"


def blocks() -> list[str]:
    """The indented blocks of the section, without their indentation."""
    text = README.read_text(encoding="utf-8")
    section = text[text.index("## First steps") : text.index("## Others")]
    found = re.findall(r"(?:^    .*\n(?:^\n(?=    ))?)+", section, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


def test_the_first_steps_work_as_they_are_written(tmp_path: Path) -> None:
    script = "\n".join(blocks()).replace("make install\n", "").replace("/tmp/", f"{tmp_path}/")
    for shown in SHOWN_OUTPUTS:
        assert shown in script
        script = script.replace(shown, "")
    # A person types the next line when this one runs, and all of them before it has ended.
    assert HOLDER in script
    until = "until .venv/bin/ganger lock list | grep -q 'node/n1 *exclusive'; do :; done"
    released = tmp_path / "released"
    holder = HOLDER.replace(HELD, f"sh -c 'until [ -e {released} ]; do sleep 0.1; done'")
    script = script.replace(HOLDER, f"{holder}{until}\n")
    assert script.count(AWAITED) == 1
    script = script.replace(AWAITED, f"touch {released}; {AWAITED}")
    script = script.replace(".venv/bin/python", sys.executable)
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
            timeout=280,
        )
    finally:
        daemon.__exit__()
    assert done.returncode == 0, done.stderr
    assert "The daemon is ready" in done.stdout
    for shown in SHOWN_OUTPUTS:
        assert shown in done.stdout
    # Of the jobs of the second plan, the first is held back: it wants the lock.
    [lock] = re.findall(r"^node/n1 .*$", done.stdout, re.MULTILINE)
    assert lock.split() == ["node/n1", "exclusive", "4", "-", "exclusive:5"]
    why = "job 5 is queued: it would have to wait for node/n1 (exclusive), held by job 4\n"
    assert why in done.stdout
    assert "  It would start if: job 4 ends, or gives the lock back\n" in done.stdout
    assert "success Linux" in done.stdout
    assert "The daemon has stopped" in done.stdout
    assert "Traceback" not in done.stderr
