"""Ganeti's htools, unmodified: a client of LUXI in another language, with strict types.

They need figures of nodes that only a node knows, unless the node is offline.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compatibility.ganeti_tools import DATA, MASTER, Finished, Tools
from tests.faults.harness import Daemon
from tests.system.ganeti.ganeti_stub import UNPACKED

PROGRAM = UNPACKED / "usr/lib/ganeti/3.0/usr/bin/htools"
LIBRARIES = os.pathsep.join(map(str, UNPACKED.glob("lib/*-linux-gnu")))


@pytest.fixture(scope="module", autouse=True)
def program() -> None:
    if reason := problem():
        pytest.skip(reason)


def problem() -> str:
    """Why the tools cannot run here; empty if they can."""
    if not PROGRAM.exists():
        return "needs Ganeti's htools (make test unpacks ganeti-htools-3.0)"
    done = run("hinfo", "--version")
    return f"Ganeti's htools do not run here: {done.stderr.strip()}" if done.code else ""


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon whose only node is offline."""
    daemon = Daemon(tmp_path_factory.mktemp("offline"))
    daemon.data.mkdir(mode=0o700)
    config = json.loads((DATA / "config.data").read_text())
    for node in config["nodes"].values():
        node.update(offline=True, master_candidate=False)
    daemon.places.config.write_text(json.dumps(config))
    daemon.places.config.chmod(0o600)
    with daemon:
        yield daemon


def run(name: str, *arguments: str, folder: Path | None = None) -> Finished:
    """Run one of the tools in an empty folder: hscan writes what it reads where it stands."""
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [PROGRAM, *arguments],
            env={"HTOOLS": name, "LD_LIBRARY_PATH": LIBRARIES, "PATH": os.environ["PATH"]},
            cwd=folder or empty,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    return Finished(done.returncode, done.stdout, done.stderr)


def test_figures_that_only_a_node_knows_are_missed(tools: Tools) -> None:
    done = run("hinfo", f"-L{tools.socket}")
    assert done.code == 1
    assert f"Node '{MASTER}', error while reading attribute 'mtotal': No data" in done.stderr


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hinfo", "Loaded 1 node, 4 instances, 3 node groups\n"),
        ("hbal", "Loaded 1 nodes, 4 instances\n"),
        ("hscan", "LOCAL     1     4 "),
        ("harep", "Healthy: 4\n"),
    ],
)
def test_they_read_the_cluster(offline: Daemon, name: str, expected: str) -> None:
    done = run(name, f"-L{offline.places.luxi_socket}")
    assert (done.code, expected in done.stdout) == (0, True), done
