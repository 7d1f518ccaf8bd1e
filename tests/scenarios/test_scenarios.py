"""Runs the transcripts beside this file: command lines, and what must come of them.

``$ command  [code]`` is a command with its exit code; what follows is its standard output and,
behind ``!``, its standard error. ``<DATA>`` is the data directory, ``<HERE>`` the one where the
commands run, ``<N>`` a number, ``<ANY>`` anything. The directory ``ganeti`` is what a Ganeti has
left.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.faults.harness import Daemon
from tests.storage.ganeti.importing import ganeti

HERE = Path(__file__).parent
TRANSCRIPTS = sorted(path.name for path in HERE.glob("*.txt"))

FILES = {
    "empty.yaml": "jobs: []\n",
    "cycle.yaml": """
jobs:
  - {name: a, after: [b], ops: [{OP_ID: OP_EXEC, argv: ["true"]}]}
  - {name: b, after: [a], ops: [{OP_ID: OP_EXEC, argv: ["true"]}]}
""",
    "unknown-name.yaml": """
jobs:
  - {name: a, after: [b], ops: [{OP_ID: OP_EXEC, argv: ["true"]}]}
""",
    "broken.yaml": "jobs:\n  - [name: {a\n",
    "second-is-bad.yaml": """
jobs:
  - ops: [{OP_ID: OP_EXEC, argv: ["true"]}]
  - ops: [{OP_ID: OP_NO}]
""",
    "release.yaml": """
name: release
jobs:
  - {name: build, ops: [{OP_ID: OP_EXEC, argv: ["false"]}]}
  - {name: deploy, after: [build], ops: [{OP_ID: OP_EXEC, argv: ["true"]}]}
""",
    "fixed.yaml": '[{OP_ID: OP_EXEC, argv: ["true"]}]',
    "many.yaml": """
jobs:
  - {name: check, after: [dump], ops: [{OP_ID: OP_EXEC, argv: ["true"]}]}
  - {name: dump, ops: [{OP_ID: OP_EXEC, argv: ["true"]}]}
""",
    "plan.yaml": """
jobs:
  - {name: clean-up, after: [{broken: [error]}], ops: [{OP_ID: OP_EXEC, argv: ["true"]}]}
  - {name: test, after: [build], ops: [{OP_ID: OP_EXEC, argv: ["true"]}]}
  - {name: build, reason: make it, ops: [{OP_ID: OP_EXEC, argv: ["true"]}]}
  - {name: broken, after: [test], ops: [{OP_ID: OP_EXEC, argv: ["false"]}]}
  - {name: never, after: [broken], ops: [{OP_ID: OP_EXEC, argv: ["true"]}]}
""",
}


class Step(NamedTuple):
    words: list[str]
    code: int
    output: str
    complaint: str


def steps(text: str) -> list[Step]:
    found = []
    for block in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *lines = block.rstrip("\n").split("\n")
        match = re.fullmatch(r"ganger (.*?)(?:  \[(\d+)\])?", command)
        assert match, command
        complaints = [line[2:] for line in lines if line.startswith("! ")]
        output = [line for line in lines if line and not line.startswith("! ")]
        words = shlex.split(match[1])
        found.append(Step(words, int(match[2] or 0), "\n".join(output), "\n".join(complaints)))
    return found


def pattern(text: str, data: Path) -> str:
    expected = re.escape(text).replace(re.escape("<DATA>"), re.escape(str(data)))
    expected = expected.replace(re.escape("<HERE>"), re.escape(str(data.parent)))
    return expected.replace("<N>", r"\d+").replace("<ANY>", ".*")


def leave_ganeti(folder: Path) -> None:
    """Jobs in every state, the queue drained."""
    states = ("153.running-holding-lock", "154.waiting-for-lock", "156.paused-two-ops")
    path = ganeti.state_directory(folder, *(f"job-{state}" for state in states))
    ganeti.add_job(path, 157)
    after = {"depends": [[157, ["success"]]]}
    ganeti.add_job(path, 158, ganeti.opcode(input=after), ganeti.opcode(priority=-100))
    ganeti.add_job(path, 159, ganeti.opcode(status="canceling"))
    ganeti.add_job(path, 160, ganeti.opcode(input={"OP_ID": "OP_NODE_ADD", "node_name": "n"}))
    rack = {"OP_ID": "OP_GROUP_ADD", "group_name": "rack9"}
    ganeti.add_job(path, 161, {**ganeti.opcode(), "input": rack})
    ganeti.archive(path, 12)
    (path / "queue" / "drain").touch()
    (path / "rapi").mkdir()
    (path / "rapi" / "users").write_text("jack abc123 write\n")
    for name in ("hmac.key", "ssconf_node_list"):
        (path / name).touch()


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_the_transcript_is_what_happens(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file, content in FILES.items():
        (tmp_path / file).write_text(content)
    if "ganeti" in name:
        leave_ganeti(tmp_path)
    daemon = Daemon(tmp_path)
    try:
        for step in steps((HERE / name).read_text()):
            words = [word.replace("<DATA>", str(daemon.data)) for word in step.words]
            done = daemon.run(*words, check=False)
            shown = f"$ ganger {' '.join(step.words)}\n{done.stdout}\n{done.stderr}"
            assert done.returncode == step.code, shown
            assert re.fullmatch(pattern(step.output, daemon.data), done.stdout.strip()), shown
            assert re.fullmatch(pattern(step.complaint, daemon.data), done.stderr.strip()), shown
    finally:
        daemon.__exit__()
