"""The maintenance tool of docs/rapi.md, with Ganeti's own client, against a daemon."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.rapi.served import Served, password

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "docs" / "examples" / "hold_node.py"
UNPACKED = ROOT / ".ganeti" / "usr" / "lib" / "python3" / "dist-packages"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (UNPACKED / "ganeti" / "rapi" / "client.py").exists(),
        reason="needs Debian's python3-ganeti-rapi (make test unpacks it)",
    ),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("served"), has_tls=True) as served:
        yield served


def begin(served: Served, *command: str, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    words = [
        sys.executable,
        "-u",
        str(TOOL),
        "--port",
        str(served.port),
        "--ca",
        str(served.places.rapi_certificate),
        *options,
        "node7",
        "--",
        *command,
    ]
    environment = {**os.environ, "PYTHONPATH": str(UNPACKED), "RAPI_PASSWORD": password("admin")}
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=environment)


def delay(seconds: float, node: str) -> dict[str, object]:
    return {"OP_ID": "OP_TEST_DELAY", "duration": seconds, "on_master": False, "on_nodes": [node]}


def test_it_waits_for_running_jobs_holds_others_and_lets_them_go(served: Served) -> None:
    with served.client() as client:
        running = client.submit(delay(600.0, "node7"))
        seen = (getattr(part, "status", None) for part in client.watch(running, log=False))
        assert "running" in seen
        look = f"-m ganger.cli.entry --data {served.data} job list --fields id,status"
        tool = begin(served, "sh", "-c", f"{sys.executable} {look}")
        with tool:
            assert tool.stdout is not None
            lines = iter(tool.stdout.readline, "")
            assert any(line == f"waiting for jobs {running}\n" for line in lines)
            # The node is held: no job of it begins, but one of another node runs.
            held = client.submit(delay(0.01, "node7"))
            other = client.submit(delay(0.01, "node8"))
            assert [job.status for job in client.wait(other, timeout=30)] == ["success"]
            client.cancel(running, kill=True)
            shown, problems = tool.communicate(timeout=60)
        assert tool.returncode == 0, problems
        states = [line.split()[:2] for line in shown.splitlines()]
        assert [str(running), "error"] in states
        assert [str(held), "queued"] in states
        assert [job.status for job in client.wait(held, timeout=30)] == ["success"]
        assert client.filters() == []


COMMAND: dict[str, Any] = {"OP_ID": "OP_EXEC", "argv": ["true"]}
HELD: list[dict[str, Any]] = [
    COMMAND | {"argv": ["echo", "node7"]},
    {
        "OP_ID": "OP_TEST_DELAY",
        "duration": 0.01,
        "on_master": False,
        "on_nodes": ["node8", "node7"],
    },
    {"OP_ID": "OP_TAGS_SET", "kind": "node", "name": "node7", "tags": ["held"]},
    COMMAND | {"locks": {"node": {"exclusive": ["node7"]}}},
    COMMAND | {"locks": {"node": {"shared": ["node7", "node8"]}}},
    COMMAND | {"locks": {"node": {"shared": ["*"]}}},
    COMMAND | {"locks": {"cluster": {"exclusive": ["BGL"]}}},
]
HELD_STATUSES = ["queued"] * len(HELD)
ENDS = ["success", "success", "error", *["success"] * 4]
"""There is no node of this name that could be tagged."""

LOCKING: dict[str, Any] = {"argv": ["sleep", "600"], "locks": {"node": {"shared": ["*"]}}}
NOT_HELD: list[dict[str, Any]] = [
    COMMAND | {"argv": ["echo", "node70"]},
    COMMAND | {"locks": {"node": {"shared": ["node8"]}}},
]


@pytest.mark.parametrize("options", [(), ("--all-commands",)])
def test_it_holds_the_jobs_that_name_the_node_and_with_an_option_every_command(
    served: Served, options: tuple[str, ...]
) -> None:
    with served.client() as client:
        # The tool waits for this command, which only locks the node; its jobs come meanwhile.
        locking = COMMAND | LOCKING
        running = client.submit(locking)
        seen = (getattr(part, "status", None) for part in client.watch(running, log=False))
        assert "running" in seen
        with begin(served, "true", options=options) as tool:
            assert tool.stdout is not None
            lines = iter(tool.stdout.readline, "")
            assert any(line == f"waiting for jobs {running}\n" for line in lines)
            ids = [client.submit(op) for op in (*HELD, *NOT_HELD)]
            if not options:
                client.wait(*ids[len(HELD) :], timeout=30)
            found = [str(job.status) for job in client.jobs(ids)]
            assert found == [*HELD_STATUSES, *["queued" if options else "success"] * 2]
            client.cancel(running, kill=True)
            tool.communicate(timeout=60)
        ended = [job.status for job in client.wait(*ids, timeout=30)]
        assert ended == [*ENDS, *["success"] * 2]


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_commands_for_curl_hold_what_the_tool_holds(served: Served) -> None:
    page = (ROOT / "docs" / "rapi.md").read_text(encoding="utf-8")
    start = page.index("    rapi() {")
    script = page[start : page.index("\n\n**What neither holds", start)]
    # It has the rule on locks alone, which this command does not have.
    held, named = HELD[1:], HELD[:1]
    with served.client() as client:
        pipe = served.folder / "pipe"
        os.mkfifo(pipe)
        for written, here in (
            ("reboot-node node7", f"echo begun; cat {pipe}"),
            ("/var/lib/ganger/rapi.pem", str(served.places.rapi_certificate)),
            (":5080", f":{served.port}"),
        ):
            assert written in script
            script = script.replace(written, here)
        environment = {**os.environ, "RAPI_PASSWORD": password("admin")}
        with subprocess.Popen(
            ["bash", "-c", script], stdout=subprocess.PIPE, text=True, env=environment
        ) as typed:
            assert typed.stdout is not None
            assert any("begun" in line for line in iter(typed.stdout.readline, ""))
            ids = [client.submit(op) for op in (*held, *named, *NOT_HELD)]
            client.wait(*ids[len(held) :], timeout=30)
            found = [str(job.status) for job in client.jobs(ids)]
            pipe.write_text("the work is done\n")
            assert typed.wait(timeout=60) == 0
        assert found == [*HELD_STATUSES[1:], *["success"] * 3]
        assert client.filters() == []
        ended = [job.status for job in client.wait(*ids, timeout=30)]
        assert ended == [*ENDS[1:], *["success"] * 3]


def test_the_exit_code_is_that_of_the_command_and_the_rules_go_in_any_case(
    served: Served,
) -> None:
    with begin(served, "sh", "-c", "exit 7") as tool:
        tool.communicate(timeout=60)
    assert tool.returncode == 7
    with served.client() as client:
        assert client.filters() == []
