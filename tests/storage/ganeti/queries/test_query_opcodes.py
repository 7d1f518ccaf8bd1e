"""The opcodes that read the cluster, as Ganeti answers them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ganger.storage import errors, opcodes
from ganger.storage.cluster.configuration import Configuration
from ganger.storage.ganeti.operations import deciding
from ganger.storage.ganeti.operations.base import Circumstances
from ganger.storage.opcodes import LockNeeds

DATA = Path(__file__).parents[3] / "compatibility" / "data"
KNOWN = {
    "software_version": "3.0.2",
    "vcs_version": "(ganeti) version 3.0.2-3",
    "architecture": ["64bits", "x86_64"],
    "drain_flag": False,
    "watcher_pause": None,
}


@pytest.fixture(name="snapshot", scope="module")
def snapshot_of_ganeti() -> Configuration:
    return Configuration.load(json.loads((DATA / "config.data").read_text()))


def answer(snapshot: Configuration, op_id: str, **parameters: Any) -> Any:
    opcode = opcodes.parse({"OP_ID": op_id, **parameters})
    given = Circumstances("", 0.0, known=KNOWN)
    assert deciding.locks_of(opcode, snapshot, given) == LockNeeds()
    outcome = deciding.decided(opcode, snapshot, given)
    assert (outcome.changes, outcome.log) == ((), ())
    return outcome.result


def test_the_cluster_is_described_as_by_ganeti(snapshot: Configuration) -> None:
    recorded = json.loads((DATA / "luxi" / "010-QueryClusterInfo.json").read_text())
    expected = recorded["response"]["result"]
    found = answer(snapshot, "OP_CLUSTER_QUERY")
    assert found.keys() == expected.keys()
    differing = {name for name in found if found[name] != expected[name]}
    # The configuration was recorded later: some of its fields had changed.
    assert differing == {"max_running_jobs", "mtime", "tags"}


def test_values_of_the_cluster_come_in_the_order_of_their_names(snapshot: Configuration) -> None:
    names = ["cluster_name", "drain_flag", "watcher_pause", "master_node", "config_version"]
    found = answer(snapshot, "OP_CLUSTER_CONFIG_QUERY", output_fields=names)
    assert found == ["cluster.example.com", False, None, "node1.example.com", 3_000_000]


def test_unknown_values_are_refused(snapshot: Configuration) -> None:
    with pytest.raises(errors.BadRequestError, match="Unknown output fields selected: nosuch"):
        answer(snapshot, "OP_CLUSTER_CONFIG_QUERY", output_fields=["cluster_name", "nosuch"])
