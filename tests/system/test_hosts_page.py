"""docs/hosts.md, followed line by line: a master, and the hosts that its prompts name."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.system.gates import PATIENCE_SECONDS
from tests.system.hosts import Host, free_endpoint, until_there

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.harness import Daemon

    from ganger import Client

PAGE = Path(__file__).parents[2] / "docs" / "hosts.md"
TOKEN = "gnj1.…"
ENDPOINT, LISTEN = "tcp://10.0.0.1:7611", "tcp://0.0.0.0:7611"


class Step(NamedTuple):
    machine: str
    words: list[str]
    code: int
    output: str
    complaint: str


def steps(text: str) -> Iterator[Step]:
    """The commands of the page in order, each with what must come of it."""
    for block in re.findall(r"(?:^ {4}.*\n)+", text, re.MULTILINE):
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
    daemon: Daemon, client: Client, hosts: dict[str, Host]
) -> None:
    endpoint, token = free_endpoint(), ""
    for step in steps(PAGE.read_text(encoding="utf-8")):
        machine = hosts.get(step.machine, daemon)
        assert step.words[0] == "ganger"
        words = [token if word == TOKEN else word for word in step.words[1:]]
        words = [endpoint if word in (ENDPOINT, LISTEN) else word for word in words]
        done = machine.run(*words, check=False)
        end = time.monotonic() + PATIENCE_SECONDS
        while words[:2] == ["job", "why"] and not agrees(step.output, done.stdout):
            # The job's process hears of its node a moment later than the master.
            assert time.monotonic() < end, done.stdout
            done = machine.run(*words, check=False)
        shown = f"{step.machine}$ {shlex.join(words)}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == step.code, shown
        assert agrees(step.output.replace(ENDPOINT, endpoint), done.stdout), shown
        assert not step.complaint or agrees(step.complaint, done.stderr), shown
        if words[:2] == ["node", "invite"]:
            token = done.stdout.split()[-1]
        elif words[:2] in (["node", "join"], ["node", "up"], ["node", "rotate-key"]):
            machine.begun(done)
            until_there(client, step.machine)
