"""What a broken package brings is left out, and the operator hears of it: of each group."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.rapi.served import Served

from ganger.storage import entry_points

GROUPS = [
    entry_points.OPCODE_FAMILIES,
    entry_points.LOCK_DECLARATIONS,
    entry_points.LISTENERS,
    entry_points.ANSWERS,
    entry_points.CONFIG_KINDS,
    entry_points.CONFIG_PARTS,
    entry_points.CONFIG_FILES,
    entry_points.RESOURCES,
]


def install(folder: Path) -> None:
    """A package whose part of every group cannot be loaded."""
    information = folder / "broken-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    entries = "\n".join(f"[{group}]\nbad = no_such_module:X" for group in GROUPS)
    (information / "entry_points.txt").write_text(entries)


def test_what_is_left_out_is_in_the_log_in_the_status_and_in_fsck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "target")
    monkeypatch.setenv("PYTHONPATH", os.fspath(tmp_path / "target"))
    with Served(tmp_path) as daemon:
        with daemon.client() as client:
            found = client.info().opcode_problems
        status = daemon.run("status").stdout
        log = daemon.places.log.read_text()
        daemon.run("down")
        checked = daemon.run("fsck", check=False)
    assert {problem.partition(":")[0] for problem in found} == {*GROUPS}
    assert len(found) == len(GROUPS)
    for problem in found:
        assert f"{problem.split()[1]} (no_such_module:X) cannot be loaded" in problem
        assert f"Not loaded: {problem}" in status
        assert problem.partition(" cannot")[0] in log
    [files] = [problem for problem in found if problem.startswith(entry_points.CONFIG_FILES)]
    assert f"Not checked: {files}" in checked.stderr
