"""The forecast of each opcode of the catalogue, without the configuration and with it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.clusters import made_configuration, uuid_of
from tests.storage.prediction.shown import NAMES, shown

from ganger.storage.cluster.configuration import Configuration
from ganger.storage.opcodes import catalogue
from ganger.storage.prediction.declared import DECLARED, forecast
from ganger.storage.prediction.declared_needs import LookupSnapshot
from ganger.storage.prediction.lock_types import LEVELS, LevelForecast

DRBD, PLAIN = "instance0", "instance1"


def declares(op_id: str, unresolved: str, resolved: str, **parameters: Any) -> Any:
    return pytest.param(f"OP_{op_id}", parameters, unresolved, resolved, id=_id(op_id, parameters))


def _id(op_id: str, parameters: dict[str, Any]) -> str:
    return " ".join([op_id, *(f"{name}={value}" for name, value in parameters.items())])


I_X, I_S = "instance X i0", "instance s i0"
OWN = {"instance_name": DRBD}
EVERYTHING = "everything"
TABLE = [
    # Instances: 0 has a DRBD disk on nodes 0 and 1, 1 has a plain disk on node 1.
    declares("BACKUP_EXPORT", "instance X?, node X*", f"{I_X}, node X*", **OWN),
    declares("BACKUP_EXPORT", "instance X?", I_X, **OWN, mode="remote"),
    declares(
        "BACKUP_EXPORT",
        "instance X?, node X?",
        f"{I_X}, node X n0",
        **OWN,
        mode="remote",
        zero_free_space=True,
    ),
    declares("BACKUP_PREPARE", "instance X?", I_X, **OWN),
    declares("BACKUP_REMOVE", "node X*", "node X*", **OWN),
    declares("INSTANCE_ACTIVATE_DISKS", "instance X?, node X?", f"{I_X}, node X n0 n1", **OWN),
    declares("INSTANCE_DEACTIVATE_DISKS", "instance X?, node X?", f"{I_X}, node X n0 n1", **OWN),
    declares(
        "INSTANCE_CHANGE_GROUP",
        "nodegroup s*, instance s?, node s*",
        f"nodegroup s*, {I_S}, node s*",
        **OWN,
    ),
    declares(
        "INSTANCE_CHANGE_GROUP",
        "nodegroup s?, instance s?, node s?",
        "nodegroup s g1, instance s i1, node s n1 n3 n5",
        instance_name=PLAIN,
        target_groups=["group1"],
    ),
    declares("INSTANCE_CONSOLE", "instance s?", I_S, **OWN),
    declares(
        "INSTANCE_CREATE",
        "nodegroup s*, instance X new, node X*, node_res X*",
        "nodegroup s*, instance X new, node X*, node_res X*",
        instance_name="new",
        mode="create",
    ),
    declares(
        "INSTANCE_CREATE",
        "nodegroup s?, instance X new, node X?, node_res X?",
        "nodegroup s?, instance X new, node X?, node_res X?",
        instance_name="new",
        mode="create",
        iallocator="hail",
        opportunistic_locking=True,
    ),
    declares(
        "INSTANCE_CREATE",
        "nodegroup s?, instance X new, node X?, node_res X?",
        "nodegroup s g0 g1, instance X new, node X n0 n1, node_res X n0 n1",
        instance_name="new",
        mode="create",
        pnode="node0",
        snode="node1",
    ),
    declares(
        "INSTANCE_CREATE",
        "nodegroup s?, instance X new, node X?, node_res X?",
        "nodegroup s g0, instance X new, node X n0 n3, node_res X n0 n3",
        instance_name="new",
        mode="import",
        pnode_uuid=uuid_of("nodes", 0),
        src_node="node3",
    ),
    declares(
        "INSTANCE_CREATE",
        "nodegroup s*, instance X new, node X*, node_res X*",
        "nodegroup s*, instance X new, node X*, node_res X*",
        instance_name="new",
        mode="import",
        pnode="node0",
    ),
    *(
        declares(
            op_id,
            "instance X?, node X?, node_res X?",
            f"{I_X}, node X n0 n1, node_res X n0 n1",
            **OWN,
        )
        for op_id in (
            "INSTANCE_FAILOVER",
            "INSTANCE_GROW_DISK",
            "INSTANCE_MIGRATE",
            "INSTANCE_RECREATE_DISKS",
            "INSTANCE_REMOVE",
            "INSTANCE_REPLACE_DISKS",
        )
    ),
    declares(
        "INSTANCE_MOVE",
        "instance X?, node X?, node_res X?",
        f"{I_X}, node X n0 n4, node_res X n0 n4",
        **OWN,
        target_node="node4",
    ),
    declares(
        "INSTANCE_MULTI_ALLOC",
        "node s*, node_res s*",
        "node s*, node_res s*",
        iallocator="hail",
        instances=[{"instance_name": "a"}],
    ),
    declares(
        "INSTANCE_MULTI_ALLOC",
        "node s?, node_res s?",
        "node s?, node_res s?",
        instances=[{"instance_name": "a"}],
        opportunistic_locking=True,
    ),
    declares(
        "INSTANCE_MULTI_ALLOC",
        "node s?, node_res s?",
        "node s n0 n2, node_res s n0 n2",
        instances=[{"pnode": "node0"}, {"pnode": "node2", "snode": "node0"}],
    ),
    declares(
        "INSTANCE_QUERY_DATA",
        "nodegroup s?, instance s*, node s?, network s?",
        "nodegroup s?, instance s*, node s?, network s?",
    ),
    declares(
        "INSTANCE_QUERY_DATA",
        "nodegroup s?, instance s?, node s?, network s?",
        "nodegroup s g0 g1, instance s i0 i1, node s n0 n1, network s w0 w1",
        instances=[DRBD, PLAIN],
        use_locking=True,
        static=True,
    ),
    declares("INSTANCE_QUERY_DATA", "", "", instances=[DRBD], static=True),
    declares("INSTANCE_REBOOT", "instance X?", I_X, **OWN),
    declares("INSTANCE_REINSTALL", "instance X?", I_X, **OWN),
    declares("INSTANCE_SHUTDOWN", "instance X?", I_X, **OWN),
    declares(
        "INSTANCE_RECREATE_DISKS",
        "instance X?, node X?, node_res X?",
        f"{I_X}, node X n2 n4, node_res X n2 n4",
        **OWN,
        nodes=["node2", "node4"],
    ),
    declares(
        "INSTANCE_RECREATE_DISKS",
        "nodegroup s?, instance X?, node X?, node_res X?",
        f"nodegroup s g0, {I_X}, node X n0 n2 n4, node_res X n0 n2 n4",
        **OWN,
        iallocator="hail",
    ),
    declares("INSTANCE_RENAME", "instance X?", "instance X i0 new", **OWN, new_name="new"),
    declares(
        "INSTANCE_REPLACE_DISKS",
        "instance X?, node X?, node_res X?",
        f"{I_X}, node X n0 n1 n5, node_res X n0 n1 n5",
        **OWN,
        remote_node="node5",
        mode="replace_new_secondary",
    ),
    declares(
        "INSTANCE_REPLACE_DISKS",
        "nodegroup s?, instance X?, node X?, node_res X?",
        "nodegroup s g1, instance X i1, node X n1 n3 n5, node_res X n1 n3 n5",
        instance_name=PLAIN,
        iallocator="hail",
        mode="replace_new_secondary",
    ),
    declares(
        "INSTANCE_SET_PARAMS",
        "nodegroup s?, instance X?, node X?",
        f"nodegroup s g0 g1, {I_X}, node X n0 n1",
        **OWN,
    ),
    declares(
        "INSTANCE_SET_PARAMS",
        "nodegroup s?, instance X?, node X?, node_res X?",
        "nodegroup s g1, instance X i1, node X n1 n4, node_res X n1 n4",
        instance_name=PLAIN,
        disk_template="drbd",
        remote_node="node4",
    ),
    declares(
        "INSTANCE_SET_PARAMS",
        "nodegroup s?, instance X?, node X?, node_res X?",
        "nodegroup s g1, instance X i1, node X n1 n3 n5, node_res X n1 n3 n5",
        instance_name=PLAIN,
        disk_template="drbd",
        iallocator="hail",
    ),
    declares("INSTANCE_STARTUP", "instance X?, node_res X?", f"{I_X}, node_res X n0", **OWN),
    declares("CLUSTER_REPAIR_DISK_SIZES", "instance X*, node_res s*", "instance X*, node_res s*"),
    declares(
        "CLUSTER_REPAIR_DISK_SIZES",
        "instance X?, node_res s?",
        "instance X i0 i1, node_res s n0 n1",
        instances=[DRBD, PLAIN],
    ),
    # Nodes.
    declares(
        "NODE_EVACUATE",
        "nodegroup s?, instance s?, node s?",
        "nodegroup s g0, instance s?, node s n0 n2 n4",
        node_name="node0",
    ),
    declares(
        "NODE_EVACUATE",
        "nodegroup s?, instance s?, node s?",
        "nodegroup s g0 g1, instance s?, node s n0 n5",
        node_name="node0",
        remote_node="node5",
    ),
    declares("NODE_MIGRATE", "node s?", "node s n2", node_name="node2"),
    declares("NODE_MODIFY_STORAGE", "node X?", "node X n2", node_name="node2"),
    declares("REPAIR_NODE_STORAGE", "node X?", "node X n2", node_uuid=uuid_of("nodes", 2)),
    *(
        param
        for op_id in ("NODE_QUERYVOLS", "NODE_QUERY_STORAGE")
        for param in (
            declares(op_id, "node s*", "node s*"),
            declares(op_id, "node s?", "node s n1 n2", nodes=["node1", "node2"]),
        )
    ),
    declares(
        "NODE_SET_PARAMS",
        "node X?, node_res X?",
        "node X n2, node_res X n2",
        node_name="node2",
        offline=True,
    ),
    declares(
        "NODE_SET_PARAMS",
        "node X?, node_res X?",
        "node X n2, node_res X n2",
        node_name="node2",
        auto_promote=True,
        offline=False,
    ),
    declares(
        "NODE_SET_PARAMS",
        "node X*, node_res X*",
        "node X*, node_res X*",
        node_name="node2",
        auto_promote=True,
        master_candidate=False,
    ),
    declares(
        "NODE_SET_PARAMS",
        "instance s?, node X?, node_res X?",
        "instance s?, node X n2, node_res X n2",
        node_name="node2",
        secondary_ip="10.0.0.1",
    ),
    declares("OOB_COMMAND", "node X*", "node X*", command="power-on"),
    declares("OOB_COMMAND", "node X?", "node X n2", node_names=["node2"], command="power-on"),
    declares("RESTRICTED_COMMAND", "node s?", "node s n2", nodes=["node2"], command="x"),
    declares("RESTRICTED_COMMAND", "node X?", "node X n2", nodes=["node2"], use_locking=True),
    declares("TEST_JQUEUE", "node X?", "node X n0"),
    # Groups and networks.
    declares("GROUP_ADD", "nodegroup X new:g", "nodegroup X new:g", group_name="g"),
    declares(
        "GROUP_ASSIGN_NODES",
        "nodegroup X?, node X?",
        "nodegroup X g0 g1, node X n1 n3",
        group_name="group0",
        nodes=["node1", "node3"],
    ),
    declares(
        "GROUP_ASSIGN_NODES",
        "nodegroup X*, node X*",
        "nodegroup X*, node X*",
        group_name="group0",
        nodes=[],
    ),
    declares(
        "GROUP_EVACUATE",
        "nodegroup s*, instance s?, node s?",
        "nodegroup s*, instance s i0 i10 i2 i4 i6 i8, node s?",
        group_name="group0",
    ),
    declares(
        "GROUP_EVACUATE",
        "nodegroup s?, instance s?, node s?",
        "nodegroup s g0 g1, instance s i0 i10 i2 i4 i6 i8, node s n0 n1 n2 n3 n4 n5",
        group_name="group0",
        target_groups=["group1"],
    ),
    declares("GROUP_REMOVE", "nodegroup X?", "nodegroup X g1", group_name="group1"),
    declares("GROUP_RENAME", "nodegroup X?", "nodegroup X g1", group_name="group1", new_name="x"),
    declares(
        "GROUP_SET_PARAMS",
        "nodegroup X?, instance s?",
        "nodegroup X g0, instance s i0 i10 i2 i4 i6 i8",
        group_name="group0",
    ),
    declares(
        "GROUP_VERIFY_DISKS",
        "nodegroup s?, instance s?, node s?",
        "nodegroup s g0 g1, instance s i0 i10 i2 i4 i6 i8, node s n0 n1 n2 n3 n4 n5",
        group_name="group0",
    ),
    declares(
        "GROUP_VERIFY_DISKS",
        "nodegroup s?, instance s?, node s?",
        "nodegroup s g0 g1, instance s?, node s?",
        group_name="group0",
        is_strict=False,
    ),
    declares("CLUSTER_VERIFY_DISKS", "nodegroup s*", "nodegroup s*"),
    declares("CLUSTER_VERIFY_DISKS", "nodegroup s?", "nodegroup s g1", group_name="group1"),
    declares(
        "CLUSTER_VERIFY_GROUP",
        "nodegroup s?, instance s?, node s?",
        "nodegroup s g0, instance s i0 i10 i2 i4 i6 i8, node s n0 n1 n2 n3 n4 n5",
        group_name="group0",
    ),
    declares(
        "NETWORK_ADD", "node s*, network X new:w", "node s*, network X new:w", network_name="w"
    ),
    declares(
        "NETWORK_ADD", "network X new:w", "network X new:w", network_name="w", conflicts_check=False
    ),
    declares(
        "NETWORK_REMOVE",
        "nodegroup s*, network X?",
        "nodegroup s*, network X w1",
        network_name="network1",
    ),
    declares("NETWORK_RENAME", "network X?", "network X w1", network_name="network1"),
    declares("NETWORK_SET_PARAMS", "network X?", "network X w1", network_name="network1"),
    declares(
        "NETWORK_CONNECT",
        "nodegroup X?",
        "nodegroup X g1",
        group_name="group1",
        network_name="network1",
        conflicts_check=False,
    ),
    declares(
        "NETWORK_CONNECT",
        "nodegroup X?, instance s?, network s?",
        "nodegroup X g0, instance s i0 i10 i2 i4 i6 i8, network s w1",
        group_name="group0",
        network_name="network1",
    ),
    declares(
        "NETWORK_DISCONNECT",
        "nodegroup X?, instance s?",
        "nodegroup X g0, instance s i0 i10 i2 i4 i6 i8",
        group_name="group0",
        network_name="network1",
    ),
    # The cluster, tags, queries, and what declares itself.
    *(
        declares(op_id, EVERYTHING, EVERYTHING)
        for op_id in (
            "CLUSTER_ACTIVATE_MASTER_IP",
            "CLUSTER_DEACTIVATE_MASTER_IP",
            "CLUSTER_DESTROY",
            "CLUSTER_POST_INIT",
            "CLUSTER_RENAME",
            "NODE_ADD",
            "NODE_REMOVE",
            "TEST_ALLOCATOR",
        )
    ),
    *(
        declares(op_id, "", "")
        for op_id in (
            "CLUSTER_CONFIG_QUERY",
            "CLUSTER_QUERY",
            "CLUSTER_VERIFY",
            "EXT_STORAGE_DIAGNOSE",
            "NODE_POWERCYCLE",
            "OS_DIAGNOSE",
            "QUERY_FIELDS",
            "TAGS_SEARCH",
            "TEST_DUMMY",
            "TEST_OS_PARAMS",
        )
    ),
    declares("CLUSTER_REDIST_CONF", "node s*", "node s*"),
    declares("CLUSTER_RENEW_CRYPTO", "node X*", "node X*"),
    declares("CLUSTER_SET_PARAMS", *["nodegroup s*, instance s*, node s*"] * 2),
    declares(
        "CLUSTER_VERIFY_CONFIG",
        *["nodegroup s*, instance s*, node s*, node_res s*, network s*"] * 2,
    ),
    declares("TAGS_SET", "", "", kind="cluster", tags=["a"]),
    declares("TAGS_SET", "instance X?", I_X, kind="instance", name="instance0", tags=["a"]),
    declares("TAGS_DEL", "node X?", "node X n2", kind="node", name="node2", tags=["a"]),
    declares("TAGS_GET", "", "", kind="nodegroup", name="group1"),
    declares(
        "TAGS_GET",
        "nodegroup s?",
        "nodegroup s g1",
        kind="nodegroup",
        name="group1",
        use_locking=True,
    ),
    declares(
        "TAGS_GET", "network s?", "network s w1", kind="network", name="network1", use_locking=True
    ),
    declares("QUERY", "", "", what="node", fields=["mfree"]),
    declares("QUERY", "node s?", "node s*", what="node", fields=["mfree"], use_locking=True),
    declares("QUERY", "node s?", "", what="node", fields=["name"], use_locking=True),
    declares(
        "QUERY",
        "nodegroup s?, instance s?, node s?, network s?",
        "instance s i0, node s n0 n1, network s w0",
        what="instance",
        fields=["status"],
        qfilter=["==", "name", DRBD],
        use_locking=True,
    ),
    declares("QUERY", "", "", what="lock", fields=["name"], use_locking=True),
    declares("EXEC", "", "", argv=["true"]),
    declares(
        "EXEC",
        *["instance X a, node s*"] * 2,
        argv=["true"],
        locks={"instance": {"exclusive": ["a"]}, "node": {"shared": ["*"]}},
    ),
    declares("EXEC", EVERYTHING, EVERYTHING, locks={"cluster": {"exclusive": ["BGL"]}}),
    declares("NODE_CALL", "", "", call="version"),
    declares("NODE_CALL", *["node s a"] * 2, call="version", node="a"),
    declares("NODE_CALL", *["node s a b"] * 2, call="version", nodes=["b", "a", "b"]),
    declares("NODE_COPY", *["node s a"] * 2, path="/a", source="/a", node="a"),
    declares("EXEC", *["node s a b"] * 2, argv=["true"], nodes=["a", "b"]),
    declares("TEST_DELAY", "node X?", "node X a b n0", duration=1, on_nodes=["b", "a"]),
    declares("TEST_DELAY", "node X?", "node X n2 n3", on_nodes=["node2", "node3"], on_master=False),
    declares("TEST_DELAY", "", "", duration=1, on_master=False),
]


@pytest.mark.parametrize(
    ("op_id", "group", "resolved"),
    [
        ("GROUP_VERIFY_DISKS", 0, "nodegroup s g0 g1, instance s i0, node s n0 n1 n2 n4"),
        ("GROUP_VERIFY_DISKS", 1, "nodegroup s g0 g1, instance s i0, node s n0 n1 n3 n5"),
        ("CLUSTER_VERIFY_GROUP", 0, "nodegroup s g0, instance s i0, node s n0 n1 n2 n4"),
        ("CLUSTER_VERIFY_GROUP", 1, "nodegroup s g1, node s n1 n3 n5"),
    ],
)
def test_a_verification_takes_the_nodes_of_one_group_and_of_its_instances(
    op_id: str, group: int, resolved: str
) -> None:
    # One instance, on node 0 of the first group with its second node in the other.
    names = LookupSnapshot(Configuration.load(made_configuration(nodes=6, instances=1)))
    opcode = {"OP_ID": f"OP_{op_id}", "group_name": f"group{group}"}
    assert shown(forecast(opcode, names)) == resolved


@pytest.mark.parametrize(("op_id", "parameters", "unresolved", "resolved"), TABLE)
def test_each_opcode_of_the_catalogue_is_declared(
    op_id: str, parameters: dict[str, Any], unresolved: str, resolved: str
) -> None:
    opcode = {"OP_ID": op_id, **parameters}
    assert shown(forecast(opcode)) == unresolved
    assert shown(forecast(opcode, NAMES)) == resolved
    found = forecast(opcode)
    has_lock = any(getattr(found, level) != LevelForecast() for level in LEVELS)
    if found.big_lock != "exclusive":
        assert found.big_lock == ("shared" if has_lock else "none")


def test_no_opcode_of_the_catalogue_is_missing_here() -> None:
    tested = {param.values[0] for param in TABLE}
    assert tested == {*catalogue.known_ids()} - {*catalogue._from_users} == {*DECLARED}
