"""The content of the ssconf files."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from ganger.storage.ganeti import ssconf

RECORDED = json.loads(
    (Path(__file__).parents[2] / "compatibility" / "data" / "config.data").read_text()
)
MASTER = "90910f02-036a-444f-8631-f25d6d53cb05"
GROUP = "aad6daca-256c-4de9-85af-9ccb6e387e22"


def node(name: str, number: int, **more: Any) -> dict[str, Any]:
    addresses = {"primary_ip": f"10.0.0.{number}", "secondary_ip": f"10.1.0.{number}"}
    return {"name": name, "group": GROUP, "ndparams": {}, "vm_capable": True, **addresses, **more}


def larger() -> dict[str, Any]:
    configuration: dict[str, Any] = copy.deepcopy(RECORDED)
    configuration["nodes"] |= {
        "0a": node("node10.example.com", 10, master_candidate=True, ndparams={"ssh_port": 2222}),
        "0b": node("node9.example.com", 9, offline=True, vm_capable=False),
    }
    return configuration


def test_the_files_of_a_recorded_configuration() -> None:
    made = ssconf.contents(RECORDED, "3.0.2")
    short = {name: text for name, text in made.items() if not name.startswith("hvparams_")}
    assert short == {
        "cluster_name": "cluster.example.com\n",
        "cluster_tags": "alpha\nbench\nbeta\ndelta\nzeta\n",
        "enabled_user_shutdown": "False\n",
        "file_storage_dir": "/srv/ganeti/file-storage\n",
        "gluster_storage_dir": "/var/run/ganeti/gluster\n",
        "hypervisor_list": "fake\n",
        "instance_list": "".join(f"inst{number}.example.com\n" for number in range(1, 5)),
        "maintain_node_health": "False\n",
        "master_candidates": "node1.example.com\n",
        "master_candidates_certs": f"{MASTER}="
        "C1:86:E3:8D:B0:37:A8:C2:A0:41:47:DE:45:09:F0:C5:CF:3E:8F:B6\n",
        "master_candidates_ips": "10.77.0.1\n",
        "master_ip": "10.77.0.100\n",
        "master_netdev": "gnt0\n",
        "master_netmask": "32\n",
        "master_node": "node1.example.com\n",
        "networks": "a2afc70c-965c-43d0-ba66-2bf9a40b3915 net1\n",
        "node_list": "node1.example.com\n",
        "node_primary_ips": "node1.example.com 10.77.0.1\n",
        "node_secondary_ips": "node1.example.com 10.77.0.1\n",
        "node_vm_capable": "node1.example.com=True\n",
        "nodegroups": f"{GROUP} default\n"
        "9356c736-496e-4140-bdbc-034ba6c6c2d3 rack2\n"
        "8523c08b-9002-4e55-8e57-fd33db0a2d8a rack3\n",
        "offline_nodes": "",
        "online_nodes": "node1.example.com\n",
        "primary_ip_family": "2\n",
        "release_version": "3.0.2\n",
        "shared_file_storage_dir": "/srv/ganeti/shared-file-storage\n",
        "ssh_ports": "node1.example.com=22\n",
        "uid_pool": "",
    }


def test_hypervisor_parameters_are_lines_in_order() -> None:
    made = ssconf.contents(RECORDED, "3.0.2")
    assert made["hvparams_fake"] == "migration_mode=live\n"
    assert made["hvparams_chroot"] == "init_script=/ganeti-chroot\n"
    lines = made["hvparams_kvm"].splitlines()
    assert lines == sorted(lines, key=lambda line: line.partition("=")[0])
    assert {"acpi=True", "cdrom_disk_type=", "cpu_cores=0", "use_chroot=False"} < set(lines)
    assert {name for name in made if name.startswith("hvparams_")} == {
        f"hvparams_{name}" for name in RECORDED["cluster"]["hvparams"]
    }


def test_nodes_are_listed_in_natural_order() -> None:
    made = ssconf.contents(larger(), "3.0.2")
    assert made["node_list"].split() == [f"node{n}.example.com" for n in (1, 9, 10)]
    assert made["offline_nodes"] == "node9.example.com\n"
    assert made["online_nodes"] == "node1.example.com\nnode10.example.com\n"
    assert made["node_vm_capable"].split()[1] == "node9.example.com=False"
    assert made["node_primary_ips"].splitlines()[2] == "node10.example.com 10.0.0.10"
    assert made["node_secondary_ips"].splitlines()[2] == "node10.example.com 10.1.0.10"
    assert made["ssh_ports"].splitlines()[2] == "node10.example.com=2222"


def test_the_master_is_a_candidate_and_candidates_are_in_the_order_of_their_uuids() -> None:
    configuration = larger()
    configuration["nodes"][MASTER]["master_candidate"] = False
    made = ssconf.contents(configuration, "3.0.2")
    assert made["master_candidates"] == "node10.example.com\nnode1.example.com\n"
    assert made["master_candidates_ips"] == "10.0.0.10\n10.77.0.1\n"


def test_ranges_of_user_ids_are_short_where_they_can_be() -> None:
    configuration = larger()
    configuration["cluster"]["uid_pool"] = [[100, 200], [300, 300]]
    assert ssconf.content(configuration, "uid_pool") == "100-200\n300\n"


def test_a_young_configuration_has_files_too() -> None:
    made = ssconf.contents({"cluster": {"cluster_name": "ganger"}}, "0.1")
    assert made.pop("cluster_name") == "ganger\n"
    assert made.pop("release_version") == "0.1\n"
    assert made.pop("master_node") == "NO MASTER\n"
    assert set(made.values()) == {""}


def test_a_damaged_configuration_has_files_too() -> None:
    kinds = ("nodes", "nodegroups", "networks", "instances")
    damaged: dict[str, Any] = {"cluster": {}, **{kind: {"u": {}} for kind in kinds}}
    made = ssconf.contents(damaged, "0.1")
    assert made["node_primary_ips"] == made["nodegroups"].replace("u", "") == " \n"
    assert made["ssh_ports"] == "=\n"


def test_an_instance_without_a_name_is_not_listed() -> None:
    configuration = {"cluster": {}, "instances": {"u": {"forthcoming": True}}}
    assert ssconf.content(configuration, "instance_list") == ""


def test_only_changed_files_are_given() -> None:
    before, after = larger(), larger()
    assert ssconf.changed(before, after) == {}
    after["nodes"]["0b"]["offline"] = False
    after["cluster"]["serial_no"] += 1
    assert set(ssconf.changed(before, after)) == {"offline_nodes", "online_nodes"}
    assert ssconf.changed(before, after)["offline_nodes"] == ""


# One change of each field that a file depends on: container, field, another value.
CHANGES = [
    ("cluster", "cluster_name", "other"),
    ("cluster", "tags", ["one"]),
    ("cluster", "master_node", "0a"),
    ("cluster", "master_ip", "10.0.0.1"),
    ("cluster", "master_netdev", "eth1"),
    ("cluster", "master_netmask", 24),
    ("cluster", "primary_ip_family", 10),
    ("cluster", "enabled_hypervisors", ["kvm"]),
    ("cluster", "maintain_node_health", True),
    ("cluster", "enabled_user_shutdown", True),
    ("cluster", "uid_pool", [[1, 2]]),
    ("cluster", "file_storage_dir", "/a"),
    ("cluster", "shared_file_storage_dir", "/b"),
    ("cluster", "gluster_storage_dir", "/c"),
    ("cluster", "hvparams", {"kvm": {"acpi": False}}),
    ("cluster", "candidate_certs", {}),
    ("cluster", "ndparams", {"ssh_port": 23}),
    ("nodes", "name", "node2.example.com"),
    ("nodes", "primary_ip", "10.0.0.99"),
    ("nodes", "secondary_ip", "10.0.0.98"),
    ("nodes", "offline", True),
    ("nodes", "vm_capable", False),
    ("nodes", "master_candidate", False),
    ("nodes", "ndparams", {"ssh_port": 24}),
    ("nodes", "group", "elsewhere"),
    ("nodegroups", "name", "other"),
    ("nodegroups", "ndparams", {"ssh_port": 25}),
    ("instances", "name", "inst77.example.com"),
    ("networks", "name", "net77"),
]
OBJECTS = {"nodes": "0a", "nodegroups": GROUP}


@pytest.mark.parametrize(("container", "field", "value"), CHANGES)
def test_a_file_that_changes_is_among_those_that_may(
    container: str, field: str, value: object
) -> None:
    before, after = larger(), larger()
    uuid = OBJECTS.get(container) or min(after[container])
    holders = [
        whole["cluster"] if container == "cluster" else whole[container][uuid]
        for whole in (before, after)
    ]
    holders[1][field] = value
    is_seen = field != "group"  # all groups have the same port here
    changed = set(ssconf.changed(before, after))
    assert bool(changed) == is_seen
    assert changed <= ssconf.affected(container, *holders)


@pytest.mark.parametrize("container", ["nodes", "nodegroups", "instances", "networks"])
def test_a_new_or_removed_object_changes_only_files_that_may_change(container: str) -> None:
    whole, without = larger(), larger()
    one = without[container].pop(OBJECTS.get(container) or min(without[container]))
    changed = set(ssconf.changed(whole, without))
    assert changed
    assert changed <= ssconf.affected(container, one, None) == ssconf.affected(container, None, one)


def test_what_no_file_shows_changes_none() -> None:
    one = RECORDED["nodes"][MASTER]
    assert ssconf.affected("nodes", one, {**one, "serial_no": 2, "tags": ["x"]}) == frozenset()
    assert ssconf.affected("filters", None, {}) == frozenset()
    assert ssconf.affected("disks", {}, None) == frozenset()
