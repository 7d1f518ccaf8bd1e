"""A cluster that says nothing has Ganeti's defaults; what it says stays."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.system.ganeti.ganeti_stub import GANETI, PACKAGES, PYTHON

from ganger.storage import config_files
from ganger.storage.ganeti.defaults import with_defaults

FRESH = config_files.first_configuration("uuid", 1.0)["cluster"]
RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "compatibility/data/config.data").read_text()
)["cluster"]

_FILLED_BY_GANETI = """
import json, sys
from ganeti import objects
cluster = objects.Cluster.FromDict(json.load(sys.stdin))
cluster.UpgradeConfig()
print(json.dumps(cluster.ToDict(), default=list))
"""


def test_what_a_cluster_says_stays() -> None:
    assert with_defaults(RECORDED) == RECORDED


def test_a_part_of_its_own_is_filled_up() -> None:
    own = {
        "beparams": {"default": {"vcpus": 2}},
        "ipolicy": {"vcpu-ratio": 5},
        "ndparams": {"ssh_port": 2222},
        "osparams": None,
    }
    found = with_defaults(own)
    assert found["beparams"]["default"] == {
        **with_defaults({})["beparams"]["default"],
        "vcpus": 2,
    }
    assert (found["ipolicy"]["vcpu-ratio"], found["ipolicy"]["spindle-ratio"]) == (5, 32)
    assert (found["ndparams"]["ssh_port"], found["ndparams"]["cpu_speed"]) == (2222, 1)
    assert found["osparams"] == {}
    assert own["osparams"] is None


@pytest.mark.parametrize("damage", [{"beparams": 7}, {"beparams": {"default": 7}}, {"ipolicy": []}])
def test_damage_is_no_reason_to_fail(damage: dict[str, Any]) -> None:
    assert with_defaults(damage)["beparams"]["default"]["vcpus"] == 1


def test_the_defaults_are_those_of_ganeti() -> None:
    if not GANETI.is_dir() or not PYTHON.exists():
        pytest.skip("needs Ganeti's Python code (make test unpacks it)")
    done = subprocess.run(
        [PYTHON, "-W", "ignore", "-c", _FILLED_BY_GANETI],
        env={"PYTHONPATH": f"{GANETI}:{PACKAGES}"},
        input=json.dumps(FRESH),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = json.loads(done.stdout)
    found = with_defaults(FRESH)
    # The bridge of new interfaces is chosen when a cluster is made.
    expected["nicparams"]["default"]["link"] = found["nicparams"]["default"]["link"]
    same = {name for name in found.keys() & expected.keys() if found[name] == expected[name]}
    # Nothing here sets up SSH, and folders are not looked for.
    assert found.keys() & expected.keys() - same == {"modify_ssh_setup"}
    assert {"ipolicy", "ndparams", "beparams", "diskparams", "osparams", "uid_pool"} <= same
