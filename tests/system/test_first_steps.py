"""What the documents tell a new user to type is typed here, and the programs in them are run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.harness import Daemon

ROOT = Path(__file__).parents[2]
FIRST_STEPS = ROOT / "docs" / "first-steps.md"
CLIENT_PAGE = ROOT / "docs" / "client.md"
SCRIPT = ROOT / "docs" / "examples" / "first_steps.py"
RUN_SECONDS = 280.0

WAITING = "ganger exec --lock node/n1 -- echo 'now n1 is mine'"
CANCELING = "first=$("
ENDING = "ganger job wait $first"

# Names every command that fails, and its exit code.
TRAP = """trap 'echo "FAILED [$?] $BASH_COMMAND" >&2' ERR\n"""


@pytest.fixture(name="daemon")
def end_of_the_daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.__exit__()


def blocks(path: Path, *kinds: str) -> list[tuple[str, str]]:
    """The fenced blocks of a document: their kinds and their texts."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)
    return [(kind, text) for kind, text in found if kind in kinds]


def run(daemon: Daemon, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program that finds this daemon by itself; both of its outputs are one."""
    return subprocess.run(
        words,
        cwd=daemon.folder,
        env={
            **os.environ,
            "GANGER_DATA": str(daemon.data),
            "GANGER_TEST_FOLDER": str(daemon.folder),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )


def test_the_first_steps_go_as_they_are_written(daemon: Daemon) -> None:
    parts = [
        text if kind == "sh" else f"cat > /tmp/part.py <<'END'\n{text}END\npython /tmp/part.py\n"
        for kind, text in blocks(FIRST_STEPS, "sh", "python")
    ]
    script = TRAP + "".join(parts)
    released = daemon.folder / "released"
    until_released = f'"sh", "-c", "until [ -s {released} ]; do sleep 0.1; done"'
    for written, here in (
        ("make install\n", ""),
        ("/tmp/", f"{daemon.folder}/"),
        ("$PWD/.venv/bin", str(Path(sys.executable).parent)),
        ("$HOME/ganger-try", str(daemon.data)),
        # Two commands last until what they hold up was seen, however slow the machine is.
        ('"sleep", "5"', until_released),
        (WAITING, f"{WAITING} 2>&1 | tee >(grep --line-buffered 'held by' > {released})"),
        (CANCELING, f": > {released}\n{CANCELING}"),
        (ENDING, f"echo > {released}\n{ENDING}"),
    ):
        assert written in script
        script = script.replace(written, here)
    done = run(daemon, "bash", "-c", script)
    assert done.returncode == 0, done.stdout
    failed = re.findall(r"^FAILED \[(\d+)\] (\S+ \S+ \S+|.*)", done.stdout, re.MULTILINE)
    assert failed == [
        ("3", "ganger exec --"),
        ("1", "ganger job submit"),
        ("1", f"ganger --data {daemon.folder}/elsewhere"),
        ("70", "ganger daemon"),
        ("1", "ganger job submit"),
    ], done.stdout
    shown = re.sub(r"^FAILED .*\n", "", done.stdout, flags=re.MULTILINE)
    for _, text in blocks(FIRST_STEPS, "text"):
        here = text.replace("/tmp/", f"{daemon.folder}/")
        here = here.replace("/home/you/ganger-try", str(daemon.data))
        # Whole lines, from their beginnings.
        assert f"\n{here}" in f"\n{shown}", shown
    assert "The daemon has stopped" in shown


def programs() -> list[str]:
    return [text for _, text in blocks(CLIENT_PAGE, "python")]


def test_the_programs_of_the_client_page_run(daemon: Daemon) -> None:
    daemon.up()
    outputs = []
    for program in programs():
        done = run(daemon, sys.executable, "-c", program)
        assert done.returncode == 0, program + done.stdout
        outputs.append(done.stdout)
    waited, followed, several, at_once, control, wrong = outputs
    assert waited == "1 success EXEC(uname -s)\nLinux\n\n"
    assert "stdout: one\n" in followed
    assert "stderr: two\n" in followed
    assert "3 EXEC(true) success \n4 EXEC(false) failed exit code 1\n" in several
    assert "5 EXEC(echo the check has failed) success \n4 has failed\n" in several
    assert "[6, 7, 8, 9, 10]" in at_once
    assert "job 11 is queued: paused by filter rule " in control
    assert "reason: the storage network is being replaced); that ends by itself at " in control
    assert "without the rule: [11]\n" in control
    assert "the job is rejected by filter rule " in control
    assert control.endswith("the one that was held is canceled\ntried again: success\n")
    assert "refused: OP_EXEC: argv: expected list, got str\n" in wrong
    assert "there is no job 999999\n" in wrong
    assert "not yet: not final in " in wrong


def test_the_example_script_prints_its_steps(daemon: Daemon) -> None:
    daemon.up()
    done = run(daemon, sys.executable, SCRIPT)
    assert done.returncode == 0, done.stdout
    for line in (
        f"The daemon has pid {daemon.pid()}",
        "job 1 stdout: packing",
        "job 2 stderr: not good",
        "job 2 is error",
        "refused: OP_EXEC: argv: expected list, got str",
    ):
        assert f"{line}\n" in done.stdout, done.stdout
    assert re.search(r"^job 3: .* ended: success: ", done.stdout, re.MULTILINE), done.stdout


def test_the_example_script_reports_that_no_daemon_runs(daemon: Daemon) -> None:
    done = run(daemon, sys.executable, SCRIPT)
    assert done.returncode == 1
    assert done.stdout.startswith(
        f"first_steps: no daemon answers for data directory {daemon.data}"
    )
