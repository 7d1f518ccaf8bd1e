"""The operations on node groups: locks, errors, results, and what they change."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.clusters import made_configuration, uuid_of
from tests.storage.ganeti.operations.held_configuration import NEW, HeldConfiguration

from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.opcodes import LevelNeeds, LockNeeds, OperationError, summary

GROUP0, GROUP1 = uuid_of("nodegroups", 0), uuid_of("nodegroups", 1)
NODES = [uuid_of("nodes", number) for number in range(4)]
DOCUMENT = made_configuration(networks=2)
INSTANCES = tuple(f"instance{number}.example.com" for number in range(10))


def held(document: dict[str, Any] | None = None) -> HeldConfiguration:
    """Nodes 0 and 2 in group 0, 1 and 3 in group 1; each even instance has DRBD on both."""
    return HeldConfiguration(document or DOCUMENT)


def exclusive(*groups: str) -> LockNeeds:
    return LockNeeds(nodegroup=LevelNeeds(exclusive=groups))


def edited(**edits: Any) -> dict[str, Any]:
    """The document with other fields of the cluster."""
    document = copy.deepcopy(DOCUMENT)
    document["cluster"].update(edits)
    return document


def test_the_summaries_are_ganetis() -> None:
    assert summary({"OP_ID": "OP_GROUP_ADD", "group_name": "rack2"}) == "GROUP_ADD(rack2)"
    assert summary({"OP_ID": "OP_GROUP_RENAME", "group_name": "a", "new_name": "b"}) == (
        "GROUP_RENAME"
    )


# ---------------------------------------------------------------- add


def test_a_new_group_has_defaults_and_the_uuid_of_its_lock() -> None:
    store = held()
    assert store.locks("OP_GROUP_ADD", group_name="rack2") == exclusive(NEW)
    outcome = store.run("OP_GROUP_ADD", group_name="rack2")
    assert (outcome.result, outcome.log) == (None, ())
    added = store.group("rack2")
    assert list(added) == [
        "name", "members", "ndparams", "alloc_policy", "ipolicy", "diskparams", "networks",
        "ctime", "mtime", "uuid", "serial_no", "tags",
    ]  # fmt: skip
    assert added == {
        "name": "rack2",
        "members": [],
        "ndparams": {},
        "alloc_policy": "preferred",
        "ipolicy": {},
        "diskparams": {},
        "networks": {},
        "ctime": added["mtime"],
        "mtime": added["mtime"],
        "uuid": NEW,
        "serial_no": 1,
        "tags": [],
    }
    assert store.problems() == []


def test_a_new_group_gets_its_parameters_in_their_types() -> None:
    store = held()
    store.run(
        "OP_GROUP_ADD",
        group_name="rack2",
        alloc_policy="last_resort",
        ndparams={"ssh_port": "2222", "ovs": "true"},
        diskparams={"drbd": {"resync-rate": "100"}},
        ipolicy={"vcpu-ratio": 2},
        hv_state={"kvm": {"cpu_total": "4"}},
        disk_state={"plain": {"xenvg": {"disk_total": 100}}},
    )
    added = store.group("rack2")
    assert added["alloc_policy"] == "last_resort"
    assert added["ndparams"] == {"ssh_port": 2222, "ovs": True}
    assert added["diskparams"] == {"drbd": {"resync-rate": 100}}
    assert added["ipolicy"] == {"vcpu-ratio": 2.0}
    assert added["hv_state_static"] == {"kvm": {"cpu_total": 4}}
    assert added["disk_state_static"] == {"plain": {"xenvg": {"disk_total": 100}}}
    assert store.problems() == []


@pytest.mark.parametrize("name", ["group1", GROUP1])
def test_the_name_of_a_new_group_is_no_name_or_uuid_of_another(name: str) -> None:
    error, _ = held().refused("OP_GROUP_ADD", group_name=name)
    assert error == [
        "OpPrereqError",
        f"Desired group name '{name}' already exists as a node group (UUID: {GROUP1})",
        "already_exists",
    ]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        (
            {"ndparams": {"ssh_port": "many"}},
            ["TypeEnforcementError", "'ssh_port' (value many) is not a valid integer"],
        ),
        (
            {"hv_state": {"qemu": {}}},
            [
                "OpPrereqError",
                "Invalid hypervisor(s) in hypervisor state: qemu",
                "wrong_input",
            ],
        ),
        (
            {"disk_state": {"file": {}}},
            ["OpPrereqError", "Invalid storage type(s) in disk state: file", "wrong_input"],
        ),
        (
            {"diskparams": {"plain": {"stripe": 1}}},
            ["TypeEnforcementError", "Unknown parameter 'stripe'"],
        ),
        (
            {"ipolicy": {"disk-templates": ["rbd"]}},
            [
                "OpPrereqError",
                (
                    "The following disk templates are allowed by the ipolicy, but not enabled on"
                    " the cluster: rbd"
                ),
                "wrong_input",
            ],
        ),
    ],
)
def test_wrong_parameters_of_a_new_group_are_refused(
    fields: dict[str, Any], error: list[str]
) -> None:
    found, _ = held().refused("OP_GROUP_ADD", group_name="rack2", **fields)
    assert found == error


def test_a_new_group_is_connected_to_the_network_of_instance_communication() -> None:
    store = held(edited(instance_communication_network="network1"))
    store.run("OP_GROUP_ADD", group_name="rack2")
    assert store.group("rack2")["networks"] == {
        uuid_of("networks", 1): {"mode": "routed", "link": "communication_rt", "vlan": ""}
    }
    without = held(edited(instance_communication_network="gone"))
    without.run("OP_GROUP_ADD", group_name="rack2")
    assert without.group("rack2")["networks"] == {}


# ---------------------------------------------------------------- remove and rename


def test_an_empty_group_is_removed() -> None:
    store = held()
    store.run("OP_GROUP_ADD", group_name="rack2")
    assert store.locks("OP_GROUP_REMOVE", group_name="rack2") == exclusive(NEW)
    assert store.run("OP_GROUP_REMOVE", group_name="rack2").result is None
    assert store.group("rack2") is None
    assert store.refused("OP_GROUP_REMOVE", group_name="rack2")[0] == [
        "OpPrereqError",
        "Node group 'rack2' not found",
        "unknown_entity",
    ]


def test_a_group_with_nodes_or_the_only_one_stays() -> None:
    error, _ = held().refused("OP_GROUP_REMOVE", group_name="group0")
    assert error == [
        "OpPrereqError",
        f"Group 'group0' not empty, has the following nodes: {NODES[0]}, {NODES[2]}",
        "wrong_state",
    ]
    document = copy.deepcopy(DOCUMENT)
    document.update(nodes={}, instances={}, disks={})
    del document["nodegroups"][GROUP1]
    error, _ = held(document).refused("OP_GROUP_REMOVE", group_name="group0")
    assert error == [
        "OpPrereqError",
        "Group 'group0' is the only group, cannot be removed",
        "wrong_state",
    ]


def test_a_group_is_renamed_and_the_result_is_its_name() -> None:
    store = held()
    assert store.locks("OP_GROUP_RENAME", group_name=GROUP0, new_name="rack") == exclusive(GROUP0)
    assert store.run("OP_GROUP_RENAME", group_name=GROUP0, new_name="rack").result == "rack"
    assert store.group("rack")["uuid"] == GROUP0
    assert store.group("rack")["serial_no"] == 2
    assert store.group("group0") is None
    for name in ("rack", "group1", GROUP1):
        uuid = GROUP0 if name == "rack" else GROUP1
        error, _ = store.refused("OP_GROUP_RENAME", group_name="rack", new_name=name)
        assert error == [
            "OpPrereqError",
            f"Desired new name '{name}' clashes with existing node group (UUID: {uuid})",
            "already_exists",
        ]


@pytest.mark.parametrize("op_id", ["OP_GROUP_REMOVE", "OP_GROUP_RENAME", "OP_GROUP_SET_PARAMS"])
def test_a_group_that_took_over_the_name_is_left_alone(op_id: str) -> None:
    fields: dict[str, Any] = {
        "OP_GROUP_REMOVE": {},
        "OP_GROUP_RENAME": {"new_name": "rack"},
        "OP_GROUP_SET_PARAMS": {"alloc_policy": "preferred"},
    }[op_id]
    store = held()
    locks = store.locks(op_id, group_name="group0", **fields)
    store.run("OP_GROUP_RENAME", group_name="group0", new_name="old")
    store.run("OP_GROUP_RENAME", group_name="group1", new_name="group0")
    with pytest.raises(OperationError) as raised:
        store.decide(op_id, locks, group_name="group0", **fields)
    assert raised.value.details == [
        "Node group 'group0' changed since locks were acquired; retry the operation",
        "wrong_state",
    ]


# ---------------------------------------------------------------- set parameters


def test_a_change_of_parameters_shares_the_instances_of_the_group() -> None:
    document = made_configuration(nodes=4, instances=4)
    locks = held(document).locks(
        "OP_GROUP_SET_PARAMS", group_name="group1", alloc_policy="preferred"
    )
    # Instance 0 and 2 are on nodes of both groups; 1 and 3 on node 1 and 3, of group 1.
    assert locks == LockNeeds(
        instance=LevelNeeds(shared=INSTANCES[:4]), nodegroup=LevelNeeds(exclusive=(GROUP1,))
    )
    locks = held(document).locks("OP_GROUP_SET_PARAMS", group_name="group0", ndparams={})
    assert locks.instance == LevelNeeds(shared=(INSTANCES[0], INSTANCES[2]))


def test_a_change_without_parameters_is_refused_before_any_lock() -> None:
    store = held()
    with pytest.raises(OperationError) as raised:
        store.locks("OP_GROUP_SET_PARAMS", group_name="group0")
    assert [raised.value.name, *raised.value.details] == [
        "OpPrereqError",
        "Please pass at least one modification",
        "wrong_input",
    ]
    with pytest.raises(OperationError, match="'plain:access': 'magic'"):
        store.locks(
            "OP_GROUP_SET_PARAMS", group_name="group0", diskparams={"plain": {"access": "magic"}}
        )


def test_parameters_are_merged_and_the_result_has_node_and_disk_parameters() -> None:
    store = held()
    store.run("OP_GROUP_SET_PARAMS", group_name="group0", ndparams={"ssh_port": 22, "ovs": True})
    outcome = store.run(
        "OP_GROUP_SET_PARAMS",
        group_name="group0",
        ndparams={"ssh_port": "2222", "ovs": "default"},
        diskparams={"drbd": {"metavg": "fast"}},
        alloc_policy="unallocable",
        hv_state={"kvm": {"mem_total": 4}},
        disk_state={"plain": {"xenvg": {"disk_total": 1}}},
        ipolicy={"spindle-ratio": 12},
    )
    assert outcome.result == [
        ["ndparams", "{'ssh_port': 2222}"],
        ["diskparams", "{'drbd': {'metavg': 'fast'}}"],
    ]
    group = store.group("group0")
    assert group["ndparams"] == {"ssh_port": 2222}
    assert group["diskparams"] == {"drbd": {"metavg": "fast"}}
    assert group["alloc_policy"] == "unallocable"
    assert group["hv_state_static"] == {"kvm": {"mem_total": 4}}
    assert group["disk_state_static"] == {"plain": {"xenvg": {"disk_total": 1}}}
    assert group["ipolicy"] == {"spindle-ratio": 12.0}
    assert group["serial_no"] == 3
    assert store.problems() == []
    assert store.run("OP_GROUP_SET_PARAMS", group_name="group0", ipolicy={}).result == []
    cleared = store.run(
        "OP_GROUP_SET_PARAMS", group_name="group0", ipolicy={"spindle-ratio": "default"}
    )
    assert cleared.result == []
    assert store.group("group0")["ipolicy"] == {}


def test_instances_that_came_to_the_group_meanwhile_stop_the_change() -> None:
    document = made_configuration(nodes=4, instances=4)
    store = held(document)
    locks = store.locks("OP_GROUP_SET_PARAMS", group_name="group0", alloc_policy="preferred")
    store.run("OP_GROUP_ASSIGN_NODES", group_name="group0", nodes=["node1"], force=True)
    with pytest.raises(OperationError) as raised:
        store.decide("OP_GROUP_SET_PARAMS", locks, group_name="group0", alloc_policy="preferred")
    have, wanted = ", ".join(INSTANCES[:4:2]), ", ".join(INSTANCES[:3])
    assert raised.value.details == [
        (
            f"Instances in node group 'group0' changed since locks were acquired,"
            f" wanted '{wanted}', have '{have}'; retry the operation"
        ),
        "wrong_state",
    ]


def test_instances_that_left_the_group_meanwhile_do_not() -> None:
    store = held(made_configuration(nodes=4, instances=4))
    locks = store.locks("OP_GROUP_SET_PARAMS", group_name="group1", alloc_policy="preferred")
    store.run("OP_GROUP_ASSIGN_NODES", group_name="group0", nodes=["node1"], force=True)
    store.make(
        store.decide("OP_GROUP_SET_PARAMS", locks, group_name="group1", alloc_policy="preferred")
    )
    assert store.group("group1")["serial_no"] == 3


def test_a_change_checks_the_whole_policy_and_all_disk_parameters() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["nodegroups"][GROUP0]["diskparams"] = {"rbd": {"access": "magic"}}
    error, _ = held(document).refused(
        "OP_GROUP_SET_PARAMS", group_name="group0", diskparams={"plain": {"stripes": 2}}
    )
    assert error == [
        "OpPrereqError",
        (
            "While verify diskparams options: Invalid value of 'rbd:access': 'magic'"
            " (expected one of kernelspace, userspace)"
        ),
        "wrong_input",
    ]
    error, _ = held(document).refused(
        "OP_GROUP_SET_PARAMS", group_name="group0", ipolicy={"disk-templates": ["rbd"]}
    )
    assert error == [
        "OpPrereqError",
        (
            "The following disk templates are allowed by the ipolicy, but not enabled on"
            " the cluster: rbd"
        ),
        "wrong_input",
    ]


def test_a_policy_that_instances_violate_is_set_and_logged() -> None:
    sizes = DOCUMENT["cluster"]["ipolicy"]["minmax"][0]["min"]
    large = dict.fromkeys(sizes, 1_000_000)
    bounds = {"min": sizes, "max": {**large, "cpu-count": 1}}
    outcome = held(made_configuration(nodes=4, instances=4)).run(
        "OP_GROUP_SET_PARAMS", group_name="group0", ipolicy={"minmax": [bounds]}
    )
    # The cluster's policy allows one processor as well: they violated it before.
    assert outcome.log == ()
    wide = made_configuration(nodes=4, instances=4)
    wide["cluster"]["ipolicy"]["minmax"] = [{"min": sizes, "max": large}]
    outcome = held(wide).run(
        "OP_GROUP_SET_PARAMS", group_name="group0", ipolicy={"minmax": [bounds]}
    )
    assert outcome.log == (
        (
            " - WARNING: After the ipolicy change the following instances violate them:"
            " instance0.example.com, instance2.example.com"
        ),
    )


def test_disks_in_user_space_need_a_hypervisor_that_can() -> None:
    document = edited(enabled_disk_templates=["drbd", "plain", "rbd"])
    document["disks"][uuid_of("disks", 1)].update(dev_type="rbd", logical_id=["rbd", "disk1"])
    user_space = {"rbd": {"access": "userspace"}}
    store = held(document)
    store.run("OP_GROUP_SET_PARAMS", group_name="group1", diskparams=user_space)
    document["instances"][uuid_of("instances", 1)]["hypervisor"] = "fake"
    error, _ = held(document).refused(
        "OP_GROUP_SET_PARAMS", group_name="group1", diskparams=user_space
    )
    assert error == [
        "OpPrereqError",
        (
            "While verify diskparams options: Instance instance1.example.com: cannot use"
            " 'userspace' access setting with fake hypervisor and rbd disk type."
        ),
        "wrong_input",
    ]


# ---------------------------------------------------------------- assign nodes


def test_nodes_move_to_a_group_and_all_groups_concerned_count_it() -> None:
    store = held(made_configuration(nodes=4, instances=0))
    locks = store.locks("OP_GROUP_ASSIGN_NODES", group_name="group0", nodes=["node1", "NODE3"])
    assert locks == LockNeeds(
        nodegroup=LevelNeeds(exclusive=(GROUP0, GROUP1)),
        node=LevelNeeds(exclusive=(NODES[1], NODES[3])),
    )
    outcome = store.run("OP_GROUP_ASSIGN_NODES", group_name="group0", nodes=["node1", "NODE3"])
    assert (outcome.result, outcome.log) == (None, ())
    assert {store.node(f"node{number}.example.com")["group"] for number in range(4)} == {GROUP0}
    assert [store.group(name)["serial_no"] for name in ("group0", "group1")] == [2, 2]
    assert [store.node(f"node{number}.example.com")["serial_no"] for number in range(4)] == [
        1, 2, 1, 2,
    ]  # fmt: skip


def test_nodes_that_are_in_the_group_already_change_nothing() -> None:
    store = held()
    outcome = store.run("OP_GROUP_ASSIGN_NODES", group_name="group0", nodes=["node0", "node2"])
    assert outcome.changes == ()


def test_no_nodes_means_all_of_them() -> None:
    store = held(made_configuration(nodes=3, instances=0))
    store.run("OP_GROUP_ASSIGN_NODES", group_name="group1", nodes=[])
    assert store.problems() == []
    assert {node["group"] for _, node in store.configuration.objects(ObjectKind.NODE)} == {GROUP1}


@pytest.mark.parametrize("name", ["node9", "node", "node1.example.co", NODES[1]])
def test_an_unknown_node_is_named(name: str) -> None:
    error, _ = held().refused("OP_GROUP_ASSIGN_NODES", group_name="group0", nodes=["node1", name])
    assert error == ["OpPrereqError", f"Node '{name}' not known", "unknown_entity"]


def test_a_name_that_several_nodes_go_on_is_no_name() -> None:
    document = made_configuration(nodes=2, instances=0)
    document["nodes"][NODES[1]]["name"] = "node0.example.org"
    error, _ = held(document).refused("OP_GROUP_ASSIGN_NODES", group_name="group0", nodes=["node0"])
    assert error == ["OpPrereqError", "Node 'node0' not known", "unknown_entity"]


def test_a_node_whose_group_is_missing_gets_one() -> None:
    document = made_configuration(nodes=4, instances=0)
    document["nodes"][NODES[1]]["group"] = "gone"
    store = held(document)
    locks = store.locks("OP_GROUP_ASSIGN_NODES", group_name="group0", nodes=["node1"])
    assert locks.nodegroup == LevelNeeds(exclusive=(GROUP0, "gone"))
    store.run("OP_GROUP_ASSIGN_NODES", group_name="group0", nodes=["node1"])
    assert store.problems() == []


def test_an_instance_that_is_split_stops_the_move_unless_forced() -> None:
    document = made_configuration(nodes=4, instances=4, groups=1)
    document["nodegroups"][GROUP1] = {
        **document["nodegroups"][GROUP0], "name": "group1", "uuid": GROUP1,
    }  # fmt: skip
    fields: dict[str, Any] = {"group_name": "group1", "nodes": ["node1"]}
    error, _ = held(document).refused("OP_GROUP_ASSIGN_NODES", **fields)
    assert error == [
        "OpExecError",
        (
            "The following instances get split by this change and --force was not given:"
            " instance0.example.com"
        ),
    ]
    store = held(document)
    outcome = store.run("OP_GROUP_ASSIGN_NODES", **fields, force=True)
    assert outcome.log == (
        " - WARNING: This operation will split the following instances: instance0.example.com",
    )
    outcome = store.run("OP_GROUP_ASSIGN_NODES", group_name="group1", nodes=["node2"], force=True)
    assert outcome.log == (
        " - WARNING: This operation will split the following instances: instance2.example.com",
        (
            " - WARNING: In addition, these already-split instances continue to be split across"
            " groups: instance0.example.com"
        ),
    )
    # The others of both instances: no instance is split any more.
    assert store.run("OP_GROUP_ASSIGN_NODES", group_name="group1", nodes=["node0"]).log == ()


def test_nodes_that_changed_their_group_meanwhile_stop_the_move() -> None:
    store = held(made_configuration(nodes=4, instances=0))
    store.run("OP_GROUP_ADD", group_name="rack2")
    locks = store.locks("OP_GROUP_ASSIGN_NODES", group_name="group0", nodes=["node1"])
    store.run("OP_GROUP_ASSIGN_NODES", group_name="rack2", nodes=["node1"])
    with pytest.raises(OperationError) as raised:
        store.decide("OP_GROUP_ASSIGN_NODES", locks, group_name="group0", nodes=["node1"])
    assert [raised.value.name, *raised.value.details] == [
        "OpExecError",
        (
            f"Nodes changed groups since locks were acquired, current groups are '{GROUP0}, {NEW}',"
            f" used to be '{GROUP0}, {GROUP1}'"
        ),
    ]


def test_a_node_that_took_over_a_name_is_left_alone() -> None:
    store = held(made_configuration(nodes=4, instances=0))
    locks = store.locks("OP_GROUP_ASSIGN_NODES", group_name="group0", nodes=["node1"])
    with pytest.raises(OperationError) as raised:
        store.decide("OP_GROUP_ASSIGN_NODES", locks, group_name="group0", nodes=["node3"])
    assert raised.value.details == [
        "Nodes changed since locks were acquired; retry the operation",
        "wrong_state",
    ]


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.sampled_from(["group0", "group1"]), st.sets(st.integers(0, 3))), max_size=4
    )
)
def test_whatever_moves_keeps_the_configuration_intact(
    moves: list[tuple[str, set[int]]],
) -> None:
    store = held(made_configuration(nodes=4, instances=4))
    for group, numbers in moves:
        nodes = [f"node{number}" for number in sorted(numbers)]
        store.run("OP_GROUP_ASSIGN_NODES", group_name=group, nodes=nodes, force=True)
    assert store.problems() == []


@settings(max_examples=30)
@given(st.sets(st.integers(0, 3), min_size=1))
def test_nodes_that_move_back_leave_only_serial_numbers_and_times(numbers: set[int]) -> None:
    store = held()
    before = {number: store.node(f"node{number}.example.com")["group"] for number in range(4)}
    nodes = [f"node{number}" for number in sorted(numbers)]
    store.run("OP_GROUP_ASSIGN_NODES", group_name="group0", nodes=nodes, force=True)
    for number in sorted(numbers):
        store.run(
            "OP_GROUP_ASSIGN_NODES",
            group_name=before[number],
            nodes=[f"node{number}"],
            force=True,
        )
    after = store.configuration.to_document()
    for kind in ("nodes", "nodegroups"):
        for uuid, found in after[kind].items():
            original = DOCUMENT[kind][uuid]
            stamps = {"serial_no": original["serial_no"], "mtime": original["mtime"]}
            assert {**found, **stamps} == original
