"""docs/hosts.md, followed line by line: a master, and the hosts that its prompts name."""

from __future__ import annotations

import functools
import re
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.faults.harness import Daemon, wait_until_true
from tests.system.gates import PATIENCE_SECONDS
from tests.system.hosts import Host, free_endpoint, joined_host, running_tasks, until_there

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ganger import Client

PAGE = Path(__file__).parents[2] / "docs" / "hosts.md"
TOKEN = "gnj1.…"
FOLDER = "/srv"
"""Where the page puts files: a folder of the test."""
ENDPOINT, LISTEN = "tcp://10.0.0.1:7611", "tcp://0.0.0.0:7611"


class Step(NamedTuple):
    machine: str
    words: list[str]
    code: int
    output: str
    complaint: str


def steps(text: str) -> Iterator[Step]:
    """The commands of the page in order, each with what must come of it."""
    shells = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for block in re.findall(r"(?:^ {4}.*\n)+", shells, re.MULTILINE):
        lines = [line[4:] for line in block.splitlines()]
        starts = [at for at, line in enumerate(lines) if re.match(r"\w+\$ ", line)]
        for at, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            found = re.fullmatch(r"(\w+)\$ (.*?)(?:  \[(\d+)\])?", lines[at])
            assert found, lines[at]
            said = lines[at + 1 : end]
            yield Step(
                found[1],
                shlex.split(found[2]),
                int(found[3] or 0),
                "\n".join(line for line in said if not line.startswith("! ")),
                "\n".join(line[2:] for line in said if line.startswith("! ")),
            )


def pattern(text: str) -> str:
    """What the page shows, with `…` for anything."""
    escaped = re.escape(" ".join(text.split()))
    return escaped.replace(re.escape("…"), "(.|\n)*")


def agrees(shown: str, said: str) -> bool:
    return re.fullmatch(pattern(shown), " ".join(said.split())) is not None


@pytest.fixture(name="hosts")
def hosts_of_the_page(tmp_path: Path) -> Iterator[dict[str, Host]]:
    """The hosts, which have not joined."""
    hosts = {name: Host(tmp_path / name, name) for name in ("web1", "web2")}
    try:
        yield hosts
    finally:
        for host in hosts.values():
            host.__exit__()


def test_the_page_of_hosts_is_what_happens(
    daemon: Daemon, client: Client, hosts: dict[str, Host], tmp_path: Path
) -> None:
    endpoint, token = free_endpoint(), ""
    folder = tmp_path / "srv"
    folder.mkdir()
    files = {name: tmp_path / name for name in ("site.conf", "app.conf")}
    for path in files.values():
        path.write_text("listen 80\n")
    text = PAGE.read_text(encoding="utf-8")
    [plan] = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    files["plan.yaml"] = tmp_path / "plan.yaml"
    # What it changes on hosts is only said here.
    files["plan.yaml"].write_text(plan.replace("argv: [", "argv: [echo, "))
    for step in steps(text):
        machine = hosts.get(step.machine, daemon)
        assert step.words[0] == "ganger"
        words = [token if word == TOKEN else word for word in step.words[1:]]
        words = [endpoint if word in (ENDPOINT, LISTEN) else word for word in words]
        words = [str(files.get(word, word)).replace(f":{FOLDER}", f":{folder}") for word in words]
        if words[:2] == ["node", "down"] and isinstance(machine, Host):
            # The command is on its way there, and must not be when the daemon ends.
            wait_until_true(functools.partial(_runs_something, machine), "the command runs there")
        done = machine.run(*words, check=False)
        end = time.monotonic() + PATIENCE_SECONDS
        while words[:2] == ["job", "why"] and not agrees(step.output, done.stdout):
            # The job's process hears of its node a moment later than the master.
            assert time.monotonic() < end, done.stdout
            done = machine.run(*words, check=False)
        shown = f"{step.machine}$ {shlex.join(words)}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == step.code, shown
        output = step.output.replace(ENDPOINT, endpoint).replace(f":{FOLDER}", f":{folder}")
        assert agrees(output, done.stdout), shown
        assert not step.complaint or agrees(step.complaint, done.stderr), shown
        if words[:2] == ["node", "invite"]:
            token = done.stdout.split()[-1]
        elif words[:2] in (["node", "join"], ["node", "up"], ["node", "rotate-key"]):
            machine.begun(done)
            until_there(client, step.machine)


def _runs_something(host: Host) -> bool:
    return running_tasks(host) > 0


def test_the_operations_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    install(tmp_path / "packages", code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    with (
        Daemon(tmp_path) as daemon,
        daemon.client() as client,
        joined_host(daemon, tmp_path / "host", "web1"),
        joined_host(daemon, tmp_path / "host2", "web2", is_first=False),
    ):
        for name in ("web1", "web2"):
            until_there(client, name)
        enough = result(client, OP_ID="OP_FREE_SPACE", host="web1", least=0)
        assert enough["free"] > 0
        cleaned = result(client, OP_ID="OP_FREE_SPACE", host="web1", least=10**9)
        assert cleaned["said"] == "cleaned\n"
        call = {"OP_ID": "OP_NODE_CALL", "call": "users"}
        found = result(client, **call, node="web1", arguments={"shell": ""})
        assert "root" in found
        where = result(client, OP_ID="OP_WHERE", nodes=["web1", "web2"])
        assert [*where] == ["web1", "web2"]
        assert where["web1"] == where["web2"] == result(client, OP_ID="OP_WHERE")


def install(folder: Path, code: str) -> None:
    """A package with what the page shows."""
    about = folder / "shown-1.dist-info"
    about.mkdir(parents=True)
    (folder / "shown.py").write_text(code)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shown\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[ganger.opcodes]\nfree_space = shown:OpFreeSpace\nwhere = shown:OpWhere\n"
        "[ganger.node_calls]\nusers = shown:Users\n"
    )


def result(client: Client, **opcode: Any) -> Any:
    """The result of an opcode that must succeed."""
    [job] = client.wait(client.submit(opcode))
    assert job.outcome == "success", job.reason_ended
    [op] = client.job(job.id).ops or []
    return op.result
