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


def run(served: Served, *command: str) -> subprocess.CompletedProcess[str]:
    words = [
        sys.executable,
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
    return subprocess.run(
        words, capture_output=True, text=True, timeout=60, check=False, env=environment
    )


def delay(seconds: float, node: str) -> dict[str, object]:
    return {"OP_ID": "OP_TEST_DELAY", "duration": seconds, "on_master": False, "on_nodes": [node]}


def test_it_waits_for_running_jobs_holds_others_and_lets_them_go(served: Served) -> None:
    with served.client() as client:
        running = client.submit(delay(1.5, "node7"))
        client_saw = next(
            part
            for part in client.watch(running, log=False)
            if getattr(part, "status", None) == "running"
        )
        assert client_saw.job_id == running
        held = client.submit([delay(0.01, "node7"), delay(0.01, "node7")])
        other = client.submit(delay(0.01, "node8"))
        # What runs while the node is held: no job of it, and only one of another node.
        look = (
            f"{sys.executable} -m ganger.cli.begin --data {served.data} job list --fields id,status"
        )
        done = run(served, "sh", "-c", look)
        assert done.returncode == 0, done.stderr
        assert f"waiting for jobs {running}" in done.stdout
        shown = done.stdout.splitlines()
        assert any(line.split()[:2] == [str(running), "success"] for line in shown), done.stdout
        assert any(line.split()[:2] == [str(held), "queued"] for line in shown), done.stdout
        assert any(line.split()[:2] == [str(other), "success"] for line in shown), done.stdout
        assert [job.status for job in client.wait(held, timeout=30)] == ["success"]
        assert client.filters() == []


def test_the_exit_code_is_that_of_the_command_and_the_rules_go_in_any_case(
    served: Served,
) -> None:
    assert run(served, "sh", "-c", "exit 7").returncode == 7
    with served.client() as client:
        assert client.filters() == []
