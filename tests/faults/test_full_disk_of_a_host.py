"""A host's disk is full: its tasks are refused with the reason, or lose output; nothing hangs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.faults.own_namespaces import problem, told_by


@pytest.fixture(name="told", scope="module")
def life_of_a_small_host(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if why_not := problem():
        pytest.skip(why_not)
    return told_by("tests.faults.full_disk_of_a_host", tmp_path_factory.mktemp("small"))


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
