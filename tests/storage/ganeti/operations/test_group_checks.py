"""``OP_CLUSTER_VERIFY_GROUP``: what is told of nodes by what they say of themselves."""

from __future__ import annotations

from typing import Any

import pytest
from tests import clusters
from tests.clusters import uuid_of
from tests.storage.ganeti.operations.played import locks

from ganger.storage import opcodes
from ganger.storage.cluster.configuration import Configuration
from ganger.storage.ganeti.operations.group_checks import Group, Master, Said, verify
from ganger.storage.opcodes import OperationError

MASTER = Master("0.1.0", 7, 1000.0, 1002.0, {"ssconf_a": "11", "ssconf_b": "22"})
WELL = Said("0.1.0", 7, 1001.0, {})
DIFFERENT = "found with 2 different checksums (variant 1 on the master; variant 2 on a)"
FLAGS = dict.fromkeys(("offline", "drained", "master_candidate", "master"), False)


def told(said: Said | str, node: dict[str, Any] | None = None, **fields: Any) -> list[str]:
    """What is wrong with a group of two nodes, of which ``a`` says this."""
    opcode = opcodes.parse({"OP_ID": "OP_CLUSTER_VERIFY_GROUP", "group_name": "g", **fields})
    nodes = [{"name": "a", **FLAGS, **(node or {})}, {"name": "b", **FLAGS}]
    instances = [{"name": "i1", "admin_state": "up", "pnode": "a"}]
    report = verify(opcode, Group("g", nodes, instances), MASTER, {"a": said, "b": WELL})
    assert report.is_bad == any("ERROR" in line for line in report.lines)
    return [line for line in report.lines if line.startswith("  - ")]


def test_a_node_that_is_well_needs_no_word() -> None:
    assert told(WELL) == []


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            WELL._replace(protocol=6),
            "ERROR: node a: incompatible protocol versions: master 7, node 6",
        ),
        (
            WELL._replace(version="0.0.9"),
            "WARNING: node a: software version mismatch: master 0.1.0, node 0.0.9",
        ),
        (
            WELL._replace(time=849.0),
            "ERROR: node a: Node time diverges by at least 151.0s from master node time",
        ),
        (
            WELL._replace(time=1153.5),
            "ERROR: node a: Node time diverges by at least 151.5s from master node time",
        ),
        (
            WELL._replace(files={"ssconf_a": "11"}),
            "ERROR: cluster : File ssconf_b is missing from node(s) a",
        ),
        (
            WELL._replace(files={"ssconf_a": "12", "ssconf_b": "22"}),
            f"ERROR: cluster : File ssconf_a {DIFFERENT}",
        ),
    ],
)
def test_what_is_wrong_has_ganetis_words(said: Said, line: str) -> None:
    assert told(said) == [f"  - {line}"]


@pytest.mark.parametrize("time", [850.0, 1152.0])
def test_a_clock_may_differ_a_little(time: float) -> None:
    assert told(WELL._replace(time=time)) == []


def test_a_node_that_does_not_answer_fails_its_instances_too() -> None:
    assert told("why") == [
        "  - ERROR: node a: while contacting node: why",
        "  - ERROR: node a: instance i1, connection to primary node failed",
    ]
    assert told("why", error_codes=True, ignore_errors=["ENODERPC"])[0] == (
        "  - WARNING:ENODERPC:node:a:while contacting node: why"
    )


def test_an_offline_node_is_not_asked_and_its_instances_are_told() -> None:
    assert told("why is of no interest", {"offline": True})[0].startswith(
        "  - ERROR: instance i1: instance is marked as running and lives on offline node a"
    )


def test_a_group_without_nodes_is_well() -> None:
    opcode = opcodes.parse({"OP_ID": "OP_CLUSTER_VERIFY_GROUP", "group_name": "g"})
    report = verify(opcode, Group("g", [], []), MASTER, {})
    assert (report.is_bad, report.lines) == (
        False,
        ["* Verifying group 'g'", "* Empty node group, skipping verification"],
    )


def test_it_shares_the_group_with_its_nodes_and_their_instances() -> None:
    configuration = Configuration.load(clusters.made_configuration(nodes=4, instances=2, groups=2))
    taken = locks(configuration, "OP_CLUSTER_VERIFY_GROUP", group_name=uuid_of("nodegroups", 0))
    assert {mode for _, mode in taken} == {"shared"}
    levels = {name.partition("/")[0] for name, _ in taken}
    assert levels == {"instance", "nodegroup", "node"}
    with pytest.raises(OperationError, match="not"):
        locks(configuration, "OP_CLUSTER_VERIFY_GROUP", group_name="nowhere")
