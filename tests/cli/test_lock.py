"""``ganger lock watch`` and ``ganger lock graph``: what they print of what the daemon says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli import stand_in

from ganger.cli.main import ganger
from ganger.storage.locks.locks import LockMode
from ganger.transport.messages import LockRow, LocksListed, LockWait


def row(name: str, mode: str | None = None, *owners: str, pending: str = "") -> LockRow:
    wanted = [("exclusive", [pending])] if pending else []
    return LockRow(name=name, mode=mode, owners=list(owners), pending=wanted)


class Locks:
    """Answers as a daemon whose locks change, until the user interrupts."""

    def __init__(self, *listings: list[LockRow]) -> None:
        self.listings = list(listings)
        self.asked: list[int] = []
        self.waits: list[LockWait] = []

    def watch_locks(self, revision: int) -> LocksListed:
        self.asked.append(revision)
        if not self.listings:
            raise KeyboardInterrupt
        return LocksListed(self.listings.pop(0), revision=revision + 10)

    def objects(self, kind: str) -> list[dict[str, str]]:
        return [{"name": "a", "uuid": "0a5e-1"}] if kind == "nodes" else []

    def lock_waits(self) -> list[LockWait]:
        return self.waits

    def locks(self) -> list[LockRow]:
        return [row("job/2", pending="job/3")] if self.waits else []


def run(tmp_path: Path, daemon: Locks, *words: str) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        stand_in.use(patch, daemon)
        result = CliRunner().invoke(ganger, ["--data", str(tmp_path), "lock", *words])
    return result.stdout.splitlines()


def test_watch_prints_what_changes_and_asks_from_there_on(tmp_path: Path) -> None:
    node = row("node/0a5e-1", "shared", "1", "2", pending="3")
    daemon = Locks(
        [row("node/[lockset]"), node],
        [node, row("node/b", "exclusive", "4")],
        [row("node/[lockset]")],
    )
    assert run(tmp_path, daemon, "watch") == [
        "node/a is held shared by 1, 2, wanted exclusive by 3",
        "node/b is held exclusive by 4",
        "node/a is free",
        "node/b is free",
    ]
    assert daemon.asked == [0, 10, 20, 30]


def test_watch_prints_an_object_a_line_for_programs(tmp_path: Path) -> None:
    daemon = Locks([row("node/a", "shared", "1")], [])
    found = [json.loads(line) for line in run(tmp_path, daemon, "watch", "--output", "json")]
    assert found == [
        {"name": "node/a", "mode": "shared", "owners": ["1"], "pending": []},
        {"name": "node/a", "mode": None, "owners": [], "pending": []},
    ]


def test_a_whole_level_is_shown_as_users_type_it(tmp_path: Path) -> None:
    level = row("node/[lockset]", "shared", "1", pending="2")
    assert run(tmp_path, Locks([level], []), "watch") == [
        "node/* is held shared by 1, wanted exclusive by 2",
        "node/* is free",
    ]
    [line, *_] = run(tmp_path, Locks([level]), "watch", "--output", "json")
    assert json.loads(line)["name"] == "node/*"
    daemon = Locks()
    daemon.waits = [LockWait("2", "node/[lockset]", LockMode.SHARED, [("1", LockMode.SHARED)], [])]
    assert run(tmp_path, daemon, "graph")[1] == "`- job 2 waits for node/* (shared), held shared"


def test_graph_shows_who_waits_for_whom(tmp_path: Path) -> None:
    daemon = Locks()
    assert run(tmp_path, daemon, "graph") == ["No job waits for a lock or for another job."]
    assert run(tmp_path, daemon, "graph", "--dot") == ["digraph locks {", "  rankdir=LR;", "}"]
    daemon.waits = [LockWait("2", "node/a", LockMode.SHARED, [("1", LockMode.EXCLUSIVE)], [])]
    assert run(tmp_path, daemon, "graph") == [
        "job 1",
        "`- job 2 waits for node/a (shared), held exclusive",
        "   `- job 3 waits for its end (dependency)",
    ]
    assert '  "job 2" -> "job 1" [label="node/a (shared), held exclusive"];' in run(
        tmp_path, daemon, "graph", "--dot"
    )


def test_a_lock_set_that_nobody_holds_or_wants_has_no_row(tmp_path: Path) -> None:
    class Held(Locks):
        def locks(self) -> list[LockRow]:
            return [row("node/[lockset]"), row("node/a", "shared", "1")]

    shown = run(tmp_path, Held(), "list")
    assert [line.split()[0] for line in shown] == ["name", "node/a"]
