"""One side is upgraded, and the other one is not yet: commands run, or one line says why not.

The other version comes from the history of this checkout: the first commit that speaks the present
`NODE_PROTOCOL`, and the last one before it.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.checkout import ROOT
from tests.faults.harness import Daemon, wait_until_true
from tests.system.gates import PATIENCE_SECONDS
from tests.system.hosts import Host, free_endpoint, running_tasks, until_there

from ganger.storage.version import version
from ganger.transport.messages import NODE_PROTOCOL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ganger import Client

OLDER = "0.0.9"


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs the history of the checkout: {done.stderr.strip()}")
    return done.stdout


def package(folder: Path, *, speaks_present: bool) -> Path:
    """A former version of Ganger: what PYTHONPATH must name."""
    if git("rev-parse", "--is-shallow-repository").strip() != "false":
        pytest.skip("needs the history of the checkout: it is a shallow clone")
    words = f"-SNODE_PROTOCOL = {NODE_PROTOCOL}\n", "--format=%H", "--", "transport/messages"
    found = git("log", *words).split()
    first = found[-1] if found else "HEAD"
    # Before the first commit of this protocol there is only what has not been committed.
    commit = first if speaks_present or not found else f"{first}~1"
    folder.mkdir()
    with (folder / "archive").open("wb") as file:
        subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=file, check=True)
    subprocess.run(["tar", "-xf", folder / "archive", "-C", folder], check=True)
    source = folder / "storage" / "version.py"
    text = source.read_text()
    assert text.count('metadata.version("ganger")') == 1
    source.write_text(text.replace('metadata.version("ganger")', f'"{OLDER}"'))
    return folder / ".typing"


def of(older: Path) -> dict[str, str]:
    """The environment of this version; it is compiled once, not at each start."""
    return {"PYTHONPATH": str(older), "PYTHONDONTWRITEBYTECODE": ""}


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, dict[str, str]]:
    """The environments of both versions, by whether they speak the present protocol."""
    folder = tmp_path_factory.mktemp("former")
    return {
        speaks: of(package(folder / str(speaks), speaks_present=speaks)) for speaks in (True, False)
    }


class Sides:
    """A master and a host, each of one of two versions, and commands that leave a line."""

    def __init__(self, folder: Path) -> None:
        (folder / "master").mkdir()
        self.master, self.host = Daemon(folder / "master"), Host(folder / "host", "web1")
        self.witness = folder / "witness"
        self.gate = folder / "gate"
        os.mkfifo(self.gate)
        self.copied = folder / "copied"

    def begin(self, client: Client) -> int:
        """A command that runs on the host until `end`."""
        text = f"echo begun >> {self.witness}; cat {self.gate}; echo after"
        job = client.submit({"OP_ID": "OP_EXEC", "argv": ["sh", "-c", text], "node": "web1"})
        wait_until_true(lambda: running_tasks(self.host) > 0, "the command runs")
        return job

    def end(self) -> None:
        self.gate.write_text("gone on\n")

    def check_ended(self, client: Client, job: int) -> None:
        """It ran once, and its end and output are true."""
        [ended] = client.wait(job, timeout=PATIENCE_SECONDS)
        assert ended.outcome == "success", ended.reason_ended
        assert self.master.run("job", "logs", str(job)).stdout == "gone on\nafter\n"
        assert self.witness.read_text() == "begun\n"
        wait_until_true(lambda: not client.locks(), "the locks are free")

    def check_works(self) -> None:
        """A command and a copy."""
        assert self.master.run("exec", "--on", "web1", "--", "echo", "works").stdout == "works\n"
        self.master.run("node", "copy", "/etc/hostname", f"web1:{self.copied}")
        with open("/etc/hostname", encoding="utf-8") as file:
            assert self.copied.read_text() == file.read()


@pytest.fixture(name="sides")
def both_sides(tmp_path: Path) -> Iterator[Sides]:
    sides = Sides(tmp_path)
    try:
        yield sides
    finally:
        sides.host.__exit__()
        sides.master.__exit__()


@pytest.mark.parametrize("older", ["master", "host"])
def test_two_versions_with_the_same_messages_work_together(
    sides: Sides, former: dict[bool, dict[str, str]], older: str
) -> None:
    side = sides.master if older == "master" else sides.host
    side.environment |= former[True]
    sides.master.up()
    sides.host.join(sides.master, free_endpoint())
    with sides.master.client() as client:
        until_there(client, "web1")
        assert OLDER in side.run("status").stdout
        sides.check_works()
        job = sides.begin(client)
    # The other side is upgraded in the middle.
    side.run("down")
    side.environment.clear()
    side.up()
    with sides.master.client() as client:
        until_there(client, "web1")
        assert client.info().version == version()
        sides.end()
        sides.check_ended(client, job)
    sides.check_works()


@pytest.mark.parametrize("first", ["master", "host"])
def test_versions_that_do_not_understand_each_other_say_so_and_lose_nothing(
    sides: Sides, former: dict[bool, dict[str, str]], first: str
) -> None:
    both: list[Daemon] = [sides.master, sides.host]
    for side in both:
        side.environment |= former[False]
    sides.master.up()
    sides.host.join(sides.master, free_endpoint())
    with sides.master.client() as client:
        until_there(client, "web1")
        job = sides.begin(client)
    upgraded = both.pop(0 if first == "master" else 1)
    upgraded.run("down")
    upgraded.environment.clear()
    upgraded.up()
    last, present = f"Ganger {OLDER} (node pro", f"Ganger {version()} (node protocol "

    def is_told() -> bool:
        told = [sides.host.run("node", "status").stdout]
        if first == "master":
            told.append(sides.master.run("node", "info", "web1").stdout)
            told.append(sides.master.run("job", "why", str(job)).stdout)
        told = [" ".join(one.split()) for one in told]
        # A master from before there were numbers says nothing of its version.
        is_numbered = NODE_PROTOCOL > 2 or first == "master"
        return all(present in one and (last in one or not is_numbered) for one in told)

    wait_until_true(is_told, "both sides say why")
    sides.end()
    with sides.master.client() as client:
        assert client.job(job).status == "running"
    [other] = both
    other.run("down")
    other.environment.clear()
    other.up()
    with sides.master.client() as client:
        until_there(client, "web1")
        sides.check_ended(client, job)
    sides.check_works()
