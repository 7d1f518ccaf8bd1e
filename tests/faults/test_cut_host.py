"""Packets between a host and its master are lost, in both directions or in one: real ones."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any

import pytest
from tests.faults.own_namespaces import problem, told_by, unshare

PRINTED = [str(number) for number in range(1, 9)]


def _problem() -> str:
    if shutil.which("ip") is None:
        return "needs network namespaces: there is no ip"
    if os.geteuid() != 0:
        return "needs network namespaces: only root may make them here"
    if found := problem():
        return found
    trial = "mount -t tmpfs none /run && ip netns add t && ip link add v-1 type veth peer name v-2"
    command = [*unshare(), "--net", "sh", "-c", trial]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"needs network namespaces: {tried.stderr.strip()}" if tried.returncode else ""


@pytest.fixture(name="told", scope="module")
def cut_host(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if why_not := _problem():
        pytest.skip(why_not)
    folder = tmp_path_factory.mktemp("cut")
    return told_by("tests.faults.cut_host", folder, "--net", seconds=150)


@pytest.mark.parametrize("cut", ["both", "up", "down"])
def test_a_command_runs_once_and_its_output_comes_whole_over_a_cut(
    told: dict[str, Any], cut: str
) -> None:
    assert told["address"].startswith("10.9.0.2")
    assert told[cut] == ["success", PRINTED, ["x"]]


def test_a_job_says_that_its_host_is_silent_during_a_cut(told: dict[str, Any]) -> None:
    assert "is running: node web1 is silent since " in told["why"]
