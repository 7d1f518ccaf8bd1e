"""The values of fields, resource by resource."""

from __future__ import annotations

from typing import Any

import pytest
from tests.storage.ganeti.queries.views import view_of
from tests.storage.queries.recorded_answers import NETWORK, RECORDED, larger

from ganger.storage.ganeti.queries.answering import Resource, query, query_fields
from ganger.storage.ganeti.queries.cluster import CLUSTER
from ganger.storage.ganeti.queries.cluster_view import ClusterView
from ganger.storage.ganeti.queries.fields import FieldKind
from ganger.storage.ganeti.queries.groups import GROUPS
from ganger.storage.ganeti.queries.instances import INSTANCES
from ganger.storage.ganeti.queries.networks import NETWORKS
from ganger.storage.ganeti.queries.nodes import NODES

LARGER = view_of(larger())


def cells(
    resource: Resource[ClusterView], name: str, view: ClusterView = LARGER
) -> dict[str, list[Any]]:
    """All fields of one item: status and value."""
    fields = list(resource.fields)
    (row,) = query(resource, view, fields, ["==", "name", name])["data"]
    return dict(zip(fields, row, strict=True))


def shown(found: dict[str, list[Any]], *fields: str) -> list[Any]:
    """The values of these fields, which must be normal."""
    assert all(found[field][0] == 0 for field in fields)
    return [found[field][1] for field in fields]


# ---------------------------------------------------------------- nodes


@pytest.mark.parametrize(
    ("name", "role"), [("node1", "M"), ("node2", "C"), ("node3", "D"), ("node10", "O")]
)
def test_a_node_has_one_role(name: str, role: str) -> None:
    found = cells(NODES, name)
    assert shown(found, "role", "master") == [role, role == "M"]


def test_a_node_without_a_role_is_regular() -> None:
    document = larger()
    document["nodes"]["n3"]["drained"] = False
    assert cells(NODES, "node3", view_of(document))["role"] == [0, "R"]


def test_a_node_lists_its_instances() -> None:
    listed = ("pinst_cnt", "pinst_list", "sinst_cnt", "sinst_list")
    instances = [f"inst{number}.example.com" for number in range(1, 5)]
    assert shown(cells(NODES, "node1"), *listed) == [4, instances, 0, []]
    assert shown(cells(NODES, "node2"), *listed) == [1, ["inst10.example.com"], 0, []]
    assert shown(cells(NODES, "node3"), *listed) == [0, [], 1, ["inst10.example.com"]]


def test_live_fields_say_why_they_have_no_value() -> None:
    for name, status in (("node1", 2), ("node10", 4)):
        found = cells(NODES, name)
        assert {found[field][0] for field in ("bootid", "mfree", "dtotal", "ctotal")} == {status}
        assert found["mfree"][1] is None
    assert cells(NODES, "node1")["hv_state"] == [3, None]
    assert cells(NODES, "node1")["disk_state"] == [3, None]


def test_a_node_that_answered_shows_what_it_said() -> None:
    view = view_of(larger())
    said = {"mfree": 7, "bootid": "boot"}
    view.measured = dict.fromkeys(view.container("nodes"), said)
    answered = cells(NODES, "node1", view)
    assert [answered[name] for name in ("mfree", "bootid", "spfree")] == [
        [0, 7],
        [0, "boot"],
        [2, None],
    ]
    assert cells(NODES, "node10", view)["mfree"] == [4, None]


@pytest.mark.parametrize(
    ("templates", "folder"),
    [(["file", "plain"], "/srv/files"), (["sharedfile"], "/srv/shared"), (["plain"], None)],
)
def test_disks_lie_in_the_folder_of_the_first_template(
    templates: list[str], folder: str | None
) -> None:
    document = larger()
    document["cluster"] |= {
        "enabled_disk_templates": templates,
        "file_storage_dir": "/srv/files",
        "shared_file_storage_dir": "/srv/shared",
    }
    assert view_of(document).storage_folder == folder


def test_the_power_of_a_node_is_known_with_a_program_for_it() -> None:
    assert cells(NODES, "node1")["powered"] == [3, None]
    assert cells(NODES, "node3")["powered"] == [2, None]
    document = larger()
    document["nodes"]["n3"]["powered"] = False
    assert cells(NODES, "node3", view_of(document))["powered"] == [0, False]


def test_parameters_of_nodes_are_merged() -> None:
    found = cells(NODES, "node3")
    assert shown(found, "ndp/cpu_speed", "ndp/ssh_port", "ndp/oob_program") == [2, 22, "/bin/oob"]
    assert shown(found, "ndparams")[0]["cpu_speed"] == 2
    assert cells(NODES, "node2")["custom_ndparams"] == [0, {"ssh_port": 2222}]


def test_a_node_whose_group_is_missing_is_still_answered() -> None:
    document = larger()
    document["nodes"]["n3"]["group"] = "gone"
    found = cells(NODES, "node3", view_of(document))
    assert found["group"] == [2, None]
    assert found["ndparams"] == [2, None]
    assert found["ndp/ssh_port"] == [2, None]
    assert found["group.uuid"] == [0, "gone"]


# ---------------------------------------------------------------- groups


def test_a_group_shows_its_nodes_and_instances() -> None:
    found = cells(GROUPS, "default")
    assert shown(found, "node_cnt", "node_list") == [
        3,
        ["node1.example.com", "node2.example.com", "node10.example.com"],
    ]
    assert shown(found, "pinst_cnt", "pinst_list") == [
        5,
        [f"inst{number}.example.com" for number in (1, 2, 3, 4, 10)],
    ]
    assert shown(cells(GROUPS, "rack10"), "node_cnt", "pinst_cnt") == [1, 0]


def test_a_group_shows_what_it_has_and_what_is_merged() -> None:
    found = cells(GROUPS, "rack10")
    assert shown(found, "custom_ipolicy", "custom_diskparams") == [{"vcpu-ratio": 2}, {}]
    policy = {**RECORDED["cluster"]["ipolicy"], "vcpu-ratio": 2}
    assert shown(found, "ipolicy", "diskparams") == [policy, RECORDED["cluster"]["diskparams"]]
    assert shown(found, "ndp/cpu_speed", "ndp/ssh_port") == [2, 22]
    assert found["alloc_policy"] == [2, None]


# ---------------------------------------------------------------- networks


def test_a_network_shows_its_pool() -> None:
    found = cells(NETWORKS, "net1")
    assert shown(found, "free_count", "reserved_count", "external_reservations") == [
        249,
        7,
        "10.77.1.0, 10.77.1.254, 10.77.1.255",
    ]
    assert found["map"] == [0, "XXXXX" + "." * 249 + "XX"]
    assert found["gateway"] == [0, "10.77.1.254"]
    assert found["gateway6"] == found["network6"] == found["mac_prefix"] == [3, None]


def test_a_network_shows_who_is_connected() -> None:
    found = cells(NETWORKS, "net1")
    assert found["group_cnt"] == [0, 2]
    assert found["group_list"] == [
        0,
        [["default", "routed", "gnt0", ""], ["rack10", "openvswitch", "switch1", "-"]],
    ]
    assert found["inst_cnt"] == [0, 5]
    assert found["inst_list"] == [
        0,
        [f"inst{number}.example.com" for number in (1, 2, 3, 4, 10)],
    ]


def test_a_network_with_a_damaged_pool_is_still_answered() -> None:
    document = larger()
    document["networks"][NETWORK]["reservations"] = "01"
    found = cells(NETWORKS, "net1", view_of(document))
    assert {found[name][0] for name in ("map", "free_count", "external_reservations")} == {2}
    assert found["network"] == [0, "10.77.1.0/24"]


# ---------------------------------------------------------------- instances


def test_an_instance_shows_its_nodes() -> None:
    found = cells(INSTANCES, "inst10")
    assert shown(found, "pnode", "pnode.group", "snodes", "snodes.group", "snodes.group.uuid") == [
        "node2.example.com",
        "default",
        ["node3.example.com"],
        ["rack10"],
        ["rack"],
    ]


def test_an_instance_shows_its_disks() -> None:
    found = cells(INSTANCES, "inst10")
    assert shown(found, "disk.count", "disk.sizes", "disk.names", "disk.uuids") == [
        2,
        [1024, 512],
        ["first", None],
        ["d1", "d2"],
    ]
    assert shown(found, "disk_usage", "disk_template") == [1024 + 128 + 512, "mixed"]
    assert shown(found, "disk.size/0", "sda_size", "disk.size/1", "sdb_size") == [
        1024,
        1024,
        512,
        512,
    ]
    assert found["disk.spindles/0"] == [0, 2]
    assert found["disk.spindles/1"] == [3, None]
    assert found["disk.name/1"] == found["disk.name/2"] == [3, None]


def test_an_instance_shows_its_network_interfaces() -> None:
    found = cells(INSTANCES, "inst10")
    assert shown(found, "nic.count", "nic.modes", "nic.links", "nic.bridges", "nic.vlans") == [
        2,
        ["bridged", "openvswitch"],
        ["gnt0", "gnt0"],
        ["gnt0", None],
        [None, "7"],
    ]
    assert shown(found, "nic.networks", "nic.networks.names", "nic.names", "nic.ips") == [
        [None, NETWORK],
        [None, "net1"],
        [None, "lan"],
        [None, "10.77.1.9"],
    ]
    assert shown(found, "mac", "bridge", "nic_mode", "nic_link") == [
        "aa:00:00:00:00:01",
        "gnt0",
        "bridged",
        "gnt0",
    ]
    assert shown(found, "nic.network.name/1", "nic.vlan/1") == ["net1", "7"]
    assert {found[name][0] for name in ("ip", "nic_network", "nic.bridge/1", "nic.mac/2")} == {3}


def test_an_instance_shows_parameters_of_its_hypervisor_only() -> None:
    found = cells(INSTANCES, "inst10")
    assert shown(found, "hv/acpi", "hv/kernel_args", "be/vcpus", "vcpus", "be/memory") == [
        False,
        "ro",
        3,
        3,
        128,
    ]
    assert found["hv/pae"] == [3, None]
    merged = shown(found, "hvparams")[0]
    assert merged["acpi"] is False
    assert "migration_mode" not in merged


def test_what_runs_is_not_known() -> None:
    found = cells(INSTANCES, "inst10")
    live = ("status", "oper_state", "oper_ram", "oper_vcpus", "console")
    assert found["status"] == [0, "ERROR_nodedown"]
    assert [found[name] for name in live[1:]] == [[2, None]] * 4
    document = larger()
    document["nodes"]["n2"]["offline"] = True
    found = cells(INSTANCES, "inst10", view_of(document))
    assert found["status"] == [0, "ERROR_nodeoffline"]
    assert [found[name] for name in live[1:]] == [[4, None]] * 4


def test_a_forthcoming_instance_lacks_data() -> None:
    found = cells(INSTANCES, "later")
    assert found["forthcoming"] == [0, True]
    assert cells(INSTANCES, "inst10")["forthcoming"] == [0, False]
    missing = ("admin_state", "admin_up", "os", "pnode", "pnode.group", "ctime")
    assert [found[name] for name in missing] == [[2, None]] * len(missing)
    assert shown(found, "disk.count", "nic.count", "disk_template", "snodes") == [
        0,
        0,
        "diskless",
        [],
    ]


def test_the_state_that_is_wanted_is_shown() -> None:
    states = ("admin_state", "admin_up", "network_port")
    assert shown(cells(INSTANCES, "inst10"), *states) == ["down", False, 11001]
    assert shown(cells(INSTANCES, "inst1"), "admin_state", "admin_up") == ["up", True]
    assert cells(INSTANCES, "inst1")["network_port"] == [3, None]


# ---------------------------------------------------------------- the cluster


def test_the_cluster_shows_what_is_stored_and_what_is_known() -> None:
    known = {"drain_flag": True, "watcher_pause": None, "software_version": "3.0.2"}
    view = view_of(RECORDED, known)
    found = cells_of_cluster(view)
    assert shown(found, "name", "cluster_name", "master_node", "drain_flag") == [
        "cluster.example.com",
        "cluster.example.com",
        "node1.example.com",
        True,
    ]
    assert shown(found, "config_version", "os_api_version", "export_version") == [3_000_000, 20, 0]
    assert found["software_version"] == [0, "3.0.2"]
    assert found["watcher_pause"] == found["volume_group_name"] == [3, None]
    assert found["architecture"] == found["vcs_version"] == [2, None]


def cells_of_cluster(view: ClusterView) -> dict[str, list[Any]]:
    fields = list(CLUSTER.fields)
    (row,) = query(CLUSTER, view, fields)["data"]
    return dict(zip(fields, row, strict=True))


def test_an_unknown_pause_of_the_watcher_is_no_data() -> None:
    assert cells_of_cluster(view_of(RECORDED))["watcher_pause"] == [2, None]
    paused = view_of(RECORDED, {"watcher_pause": 1795226000})
    assert cells_of_cluster(paused)["watcher_pause"] == [0, 1795226000]


# ---------------------------------------------------------------- all resources

TYPES: dict[FieldKind, tuple[type, ...]] = {
    FieldKind.TEXT: (str,),
    FieldKind.BOOL: (bool,),
    FieldKind.NUMBER: (int,),
    FieldKind.FLOAT: (int, float),
    FieldKind.UNIT: (int,),
    FieldKind.TIMESTAMP: (int, float),
}


@pytest.mark.parametrize(
    "resource", [NODES, GROUPS, NETWORKS, INSTANCES, CLUSTER], ids=lambda resource: resource.name
)
def test_normal_values_have_the_type_of_their_field(resource: Resource[ClusterView]) -> None:
    definitions = query_fields(resource, None)["fields"]
    assert [one["name"] for one in definitions] == list(resource.fields)
    rows = query(resource, LARGER, list(resource.fields))["data"]
    assert rows
    for row in rows:
        for definition, (status, value) in zip(definitions, row, strict=True):
            expected = TYPES.get(FieldKind(definition["kind"]))
            if status == 0 and expected is not None:
                assert isinstance(value, expected), definition
                assert isinstance(value, bool) == (expected == (bool,)), definition
            if status:
                assert value is None


@pytest.mark.parametrize(
    "resource", [NODES, GROUPS, NETWORKS, INSTANCES, CLUSTER], ids=lambda resource: resource.name
)
def test_titles_are_one_word(resource: Resource[ClusterView]) -> None:
    for one in query_fields(resource, None)["fields"]:
        assert one["title"]
        assert not set(one["title"]) & set(" \t")
        assert one["doc"]
