"""A host's disk is full: its tasks are refused with the reason, or lose output; nothing hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.checkout import ROOT
from tests.faults import test_full_disk_of_6_mb as small_disk

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(name="told", scope="module")
def life_of_a_small_host(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if problem := small_disk.problem():
        pytest.skip(problem)
    folder: Path = tmp_path_factory.mktemp("small")
    program = ["tests.faults.full_disk_of_a_host", os.fspath(folder)]
    done = subprocess.run(
        [*small_disk.unshare(), sys.executable, "-m", *program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_output_that_the_host_s_disk_refuses_is_cut_with_a_mark(told: dict[str, Any]) -> None:
    marks = [line for line in told["log"] if "of output are missing" in line]
    assert marks, told["log"]
    assert all(line.startswith("web1: ") for line in marks)
    lost = "web1: 5 bytes of output are missing: the disk refused them\n"
    assert told["meanwhile"] in ([0, lost], [0, "well\n"])


def test_a_task_for_a_full_host_is_refused_with_the_reason(told: dict[str, Any]) -> None:
    code, said = told["full"]
    assert code != 0
    assert "web1: " in said
    assert "the disk is full" in said
    assert "  there  " in told["state"][1]


def test_a_host_with_space_again_works_again(told: dict[str, Any]) -> None:
    assert told["again"] == [0, "well\n"]
