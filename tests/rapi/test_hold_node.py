"""The maintenance tool of docs/rapi.md, with Ganeti's own client, against a daemon."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rapi.served import Served, password

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "docs" / "examples" / "hold_node.py"
UNPACKED = ROOT / ".ganeti" / "usr" / "lib" / "python3" / "dist-packages"

pytestmark = pytest.mark.skipif(
    not (UNPACKED / "ganeti" / "rapi" / "client.py").exists(),
    reason="needs Debian's python3-ganeti-rapi (make test unpacks it)",
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("served"), has_tls=True) as served:
        yield served


def begin(served: Served, *command: str) -> subprocess.Popen[str]:
    words = [
        sys.executable,
        "-u",
        str(TOOL),
        "--port",
        str(served.port),
        "--ca",
        str(served.places.rapi_certificate),
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
        look = f"-m ganger.cli.begin --data {served.data} job list --fields id,status"
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


def test_the_exit_code_is_that_of_the_command_and_the_rules_go_in_any_case(
    served: Served,
) -> None:
    with begin(served, "sh", "-c", "exit 7") as tool:
        tool.communicate(timeout=60)
    assert tool.returncode == 7
    with served.client() as client:
        assert client.filters() == []
