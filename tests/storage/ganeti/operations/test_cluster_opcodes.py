"""``OP_CLUSTER_SET_PARAMS``: what each parameter changes, locks, logs and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests import clusters
from tests.clusters import uuid_of
from tests.storage.ganeti.operations.played import NOW, after, locks, play, refusal, with_disks

from ganger.storage import config_files
from ganger.storage.cluster.configuration import Change, Configuration
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.opcodes import OperationError

SET = "OP_CLUSTER_SET_PARAMS"
WRONG, STATE = "wrong_input", "wrong_state"
SIZES = {
    "memory-size": 128, "disk-size": 1024, "disk-count": 1,
    "cpu-count": 1, "nic-count": 1, "spindle-use": 1,
}  # fmt: skip


@pytest.fixture(name="snapshot", scope="module")
def snapshot_with_disks() -> Configuration:
    return with_disks()


def with_cluster(snapshot: Configuration, **fields: Any) -> Configuration:
    cluster = {**snapshot.cluster, **fields}
    return snapshot.changed([Change(ObjectKind.CLUSTER, snapshot.cluster_uuid, cluster)], NOW)


def test_everything_is_shared_while_the_settings_change(snapshot: Configuration) -> None:
    assert locks(snapshot, SET, max_running_jobs=7) == [
        ("instance/[lockset]", "shared"),
        ("nodegroup/[lockset]", "shared"),
        ("node/[lockset]", "shared"),
    ]


PLAIN = {
    "max_running_jobs": 7,
    "max_tracked_jobs": 8,
    "maintain_node_health": True,
    "modify_etc_hosts": False,
    "prealloc_wipe_disks": True,
    "default_iallocator": "hail",
    "default_iallocator_params": {"a": 1},
    "reserved_lvs": ["root", "swap.*"],
    "use_external_mip_script": True,
    "enabled_user_shutdown": True,
    "compression_tools": ["gzip", "lzop"],
    "mac_prefix": "AA:bb:Cc",
    "install_image": "https://example.com/image",
    "zeroing_image": "/srv/zero",
    "file_storage_dir": "/srv/file",
    "shared_file_storage_dir": "/srv/shared",
    "gluster_storage_dir": "/srv/gluster",
    "uid_pool": [[5000, 6000]],
}


@pytest.mark.parametrize(("name", "value"), PLAIN.items())
def test_plain_settings_become_fields_of_the_cluster(
    snapshot: Configuration, name: str, value: object
) -> None:
    found = after(snapshot, SET, **{name: value}).cluster
    assert found[name] == (value.lower() if name == "mac_prefix" else value)  # type: ignore[attr-defined]
    others = {field for field in found if found[field] != snapshot.cluster.get(field)}
    assert others == {name, "serial_no", "mtime"}


def test_all_settings_of_one_opcode_are_one_change(snapshot: Configuration) -> None:
    outcome = play(snapshot, SET, **PLAIN)
    assert [change.kind for change in outcome.changes] == [ObjectKind.CLUSTER]
    assert outcome.result is None


def test_an_opcode_that_sets_what_is_set_already_changes_nothing(snapshot: Configuration) -> None:
    found = after(snapshot, SET, **PLAIN)
    assert play(found, SET, **PLAIN).changes == ()


def test_one_wrong_parameter_keeps_all_others_out(snapshot: Configuration) -> None:
    error = refusal(snapshot, SET, max_running_jobs=7, compression_tools=["lzop"])
    assert error[2] == WRONG


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        (
            {"uid_pool": [[9, 8]]},
            "Lower user-id range boundary value (9) is larger than higher boundary value (8)",
        ),
        (
            {"add_uids": [[-1, 8]]},
            "Lower user-id range boundary value (-1) is smaller than UIDPOOL_UID_MIN (0).",
        ),
        (
            {"remove_uids": [[1, 2**32]]},
            (
                "Higher user-id boundary value (4294967296) is larger than UIDPOOL_UID_MAX"
                " (4294967295)."
            ),
        ),
        (
            {"remove_uids": [[1, 2]]},
            "User-id range to be removed is not found in the current user-id pool: (1, 2)",
        ),
        ({"mac_prefix": "aa:00"}, "Invalid MAC address prefix 'aa:00'"),
        (
            {"compression_tools": ["gzip", "a b"]},
            (
                "The tools 'a b' contain illegal characters: only alphanumeric values, dashes, and"
                " underscores are allowed"
            ),
        ),
        (
            {"compression_tools": ["lzop"]},
            (
                "For compatibility reasons, the gzip utility must be present among the compression"
                " tools"
            ),
        ),
        (
            {"compression_tools": ["gzip", "none"]},
            (
                "none is a reserved value used for no compression, and cannot be used as the name"
                " of a tool"
            ),
        ),
        (
            {"master_netdev": "eth7"},
            "master_netdev: this system cannot move the master's IP address, so it stays as it is",
        ),
        (
            {"master_netmask": 24},
            "master_netmask: this system cannot move the master's IP address, so it stays as it is",
        ),
        ({"enabled_data_collectors": {"x": True}}, "Unknown data collector 'x'"),
        ({"hidden_os": [["attach", "x"]]}, "Invalid modification 'attach' of the hidden OS list"),
        (
            {"vg_name": ""},
            "Cannot unset volume group if lvm-based disk templates are or get enabled.",
        ),
        (
            {"enabled_hypervisors": []},
            "Enabled hypervisors list must contain at least one member",
        ),
    ],
)
def test_wrong_values_are_refused(
    snapshot: Configuration, parameters: dict[str, Any], error: str
) -> None:
    assert refusal(snapshot, SET, **parameters) == ["OpPrereqError", error, WRONG]


@pytest.mark.parametrize(
    "parameters",
    [
        {"uid_pool": [[9, 8]]},
        {"mac_prefix": "aa:00"},
        {"diskparams": {"plain": {"stripe": 2}}},
        {"install_image": "image"},
        {"master_netdev": "eth7"},
    ],
)
def test_wrong_arguments_are_refused_before_the_job_waits_for_locks(
    snapshot: Configuration, parameters: dict[str, Any]
) -> None:
    with pytest.raises(OperationError):
        locks(snapshot, SET, **parameters)


def test_ranges_of_user_ids_reach_from_the_least_to_the_largest(snapshot: Configuration) -> None:
    pool = [[0, 0], [5, 5], [7, 2**32 - 1]]
    assert after(snapshot, SET, uid_pool=pool).cluster["uid_pool"] == pool


def test_what_only_the_master_could_check_is_named(snapshot: Configuration) -> None:
    line = " - WARNING: No node was asked whether it can use these: default_iallocator"
    assert play(snapshot, SET, default_iallocator="hail").log == (line,)
    assert play(snapshot, SET, default_iallocator="").log == ()


@pytest.mark.parametrize("name", ["install_image", "zeroing_image"])
def test_an_image_is_a_path_or_a_url(snapshot: Configuration, name: str) -> None:
    kind = "Install" if name == "install_image" else "Zeroing"
    text = f"{kind} image must be an absolute path or a URL"
    assert refusal(snapshot, SET, **{name: "image"}) == ["OpPrereqError", text]


def test_the_masters_address_may_be_named_as_it_is(snapshot: Configuration) -> None:
    assert play(snapshot, SET, master_netdev="eth0", master_netmask=32).changes == ()


# User ids and lists.


def test_ranges_of_user_ids_are_added_and_removed(snapshot: Configuration) -> None:
    found = after(snapshot, SET, add_uids=[[5, 6], [1, 2], [1000, 1010]])
    assert found.cluster["uid_pool"] == [[1, 2], [5, 6], [1000, 1010]]
    assert after(found, SET, remove_uids=[[5, 6]]).cluster["uid_pool"] == [[1, 2], [1000, 1010]]


def test_operating_systems_are_hidden_and_shown(snapshot: Configuration) -> None:
    mods = [["add", "minix"], ["add", "hurd"], ["remove", "plan9"], ["remove", "hurd"]]
    outcome = play(snapshot, SET, hidden_os=mods, blacklisted_os=[["add", "dos"]])
    assert outcome.log == (
        "OS hurd already in hidden OS list, ignoring",
        "OS plan9 not found in hidden OS list, ignoring",
    )
    found = after(snapshot, SET, hidden_os=mods, blacklisted_os=[["add", "dos"]]).cluster
    assert (found["hidden_os"], found["blacklisted_os"]) == (["minix"], ["dos"])


def test_data_collectors_are_switched_and_paced(snapshot: Configuration) -> None:
    found = after(
        snapshot, SET, enabled_data_collectors={"lv": False}, data_collector_interval={"lv": 7}
    )
    assert found.cluster["data_collectors"] == {"lv": {"active": False, "interval": 7}}


# Parameters of nodes and instances.


def test_backend_parameters_are_set_over_the_old_ones(snapshot: Configuration) -> None:
    found = after(snapshot, SET, beparams={"memory": "1g", "vcpus": "4"}).cluster
    assert found["beparams"]["default"] == {
        "minmem": 1024,
        "maxmem": 1024,
        "vcpus": 4,
        "auto_balance": True,
    }
    error = refusal(snapshot, SET, beparams={"vcpus": "many"})
    assert error == ["TypeEnforcementError", "'vcpus' (value many) is not a valid integer"]
    error = refusal(snapshot, SET, beparams={"cpus": 1})
    assert error == ["TypeEnforcementError", "Unknown parameter 'cpus'"]


def test_node_parameters_are_set_over_the_old_ones(snapshot: Configuration) -> None:
    found = after(snapshot, SET, ndparams={"ssh_port": 1022}).cluster
    assert found["ndparams"] == {"ssh_port": 1022, "spindle_count": 1, "cpu_speed": 1}


def test_states_of_hypervisors_and_disks_are_filled(snapshot: Configuration) -> None:
    state = {"kvm": {"mem_total": 2048}}
    disks = {"plain": {"xenvg": {"disk_total": 7}}}
    found = after(snapshot, SET, hv_state=state, disk_state=disks).cluster
    assert found["hv_state_static"]["kvm"] == {
        "mem_total": 2048, "mem_node": 0, "mem_hv": 0, "cpu_total": 1, "cpu_node": 1,
    }  # fmt: skip
    assert found["disk_state_static"]["plain"]["xenvg"] == {
        "disk_total": 7, "disk_reserved": 0, "disk_overhead": 0,
    }  # fmt: skip
    assert refusal(snapshot, SET, hv_state={"vmware": {}})[2] == WRONG


def test_interfaces_must_go_with_new_defaults(snapshot: Configuration) -> None:
    found = after(snapshot, SET, nicparams={"link": "br7"}).cluster
    assert found["nicparams"]["default"] == {"mode": "bridged", "link": "br7", "vlan": ""}
    for own in (None, {}, {"default": {"link": "br1"}}):
        # A new cluster has what Ganeti takes for it.
        before = with_cluster(snapshot, nicparams=own)
        [change] = play(before, SET, nicparams={"link": "br7"}).changes
        assert change.object is not None
        new = change.object["nicparams"]["default"]
        assert new == {"mode": "bridged", "link": "br7", "vlan": ""}
    error = refusal(snapshot, SET, nicparams={"mode": "tunnel"})
    assert error == ["ConfigurationError", "Invalid NIC mode 'tunnel'"]


def test_a_bridged_interface_needs_a_link(snapshot: Configuration) -> None:
    without = with_cluster(snapshot, nicparams={"default": {"mode": "routed", "link": ""}})
    error = ["ConfigurationError", "Missing bridged NIC link"]
    assert refusal(without, SET, nicparams={"mode": "bridged"}) == error


def test_interfaces_without_an_address_cannot_be_routed(snapshot: Configuration) -> None:
    uuid = uuid_of("instances", 0)
    instance = snapshot.get(ObjectKind.INSTANCE, uuid)
    nic = {name: value for name, value in instance["nics"][0].items() if name != "ip"}
    changed = {**instance, "nics": [{**nic, "nicparams": {}}]}
    without = snapshot.changed([Change(ObjectKind.INSTANCE, uuid, changed)], NOW)
    assert refusal(without, SET, nicparams={"mode": "routed"}) == [
        "OpPrereqError",
        (
            "Cannot apply the change, errors:\n"
            "Instance instance0.example.com, nic/0: routed NIC with no ip address"
        ),
        WRONG,
    ]


def test_parameters_of_operating_systems_are_merged_and_removed(snapshot: Configuration) -> None:
    found = after(
        snapshot,
        SET,
        osparams={"debian": {"a": None, "c": 3}, "minix": {"x": 1}},
        osparams_private_cluster={"debian": {"root_password": None}},
    ).cluster
    assert found["osparams"] == {"debian": {"b": 2, "c": 3}, "minix": {"x": 1}}
    assert found["osparams_private_cluster"] == {}


def test_a_policy_is_set_and_its_violators_are_named(snapshot: Configuration) -> None:
    outcome = play(snapshot, SET, ipolicy={"vcpu-ratio": 8})
    assert outcome.log == ()
    found = after(snapshot, SET, ipolicy={"vcpu-ratio": 8}).cluster["ipolicy"]
    assert (found["vcpu-ratio"], found["spindle-ratio"]) == (8, 32)
    bounds = [{"min": {**SIZES, "memory-size": 256}, "max": {**SIZES, "memory-size": 512}}]
    std = {**SIZES, "memory-size": 256}
    roomy = [{"min": dict.fromkeys(SIZES, 0), "max": dict.fromkeys(SIZES, 10**6)}]
    before = after(snapshot, SET, ipolicy={"minmax": roomy})
    [line] = play(before, SET, ipolicy={"minmax": bounds, "std": std}).log
    assert line.startswith(
        " - WARNING: After the ipolicy change the following instances violate them:"
        " instance0.example.com, instance1.example.com"
    )
    error = refusal(snapshot, SET, ipolicy={"disk-templates": ["rbd"]})
    assert error[2] == WRONG
    assert "not enabled on the cluster: rbd" in error[1]


# The candidate pool.


def test_a_larger_pool_promotes_nodes_in_the_same_change() -> None:
    made = clusters.made_configuration(nodes=13)
    made["nodes"][uuid_of("nodes", 10)]["offline"] = True
    snapshot = Configuration.load(made)
    outcome = play(snapshot, SET, candidate_pool_size=11)
    assert outcome.log == (" - INFO: Promoted nodes to master candidate role: node11.example.com",)
    assert [change.kind for change in outcome.changes] == [ObjectKind.CLUSTER, ObjectKind.NODE]
    found = after(snapshot, SET, candidate_pool_size=50)
    assert found.get(ObjectKind.NODE, uuid_of("nodes", 12))["master_candidate"]
    assert not found.get(ObjectKind.NODE, uuid_of("nodes", 10))["master_candidate"]


def test_a_smaller_pool_leaves_the_candidates(snapshot: Configuration) -> None:
    assert play(snapshot, SET, candidate_pool_size=4).log == ()
    assert play(snapshot, SET, candidate_pool_size=3).log == (
        " - INFO: Note: more nodes are candidates (4) than desired (3)",
    )
    found = after(snapshot, SET, candidate_pool_size=3)
    assert all(node["master_candidate"] for _, node in found.objects(ObjectKind.NODE))


# The network for the communication with instances.


def test_a_communication_network_must_be_connected_everywhere(snapshot: Configuration) -> None:
    name, text, kind = refusal(snapshot, SET, instance_communication_network="nosuch")
    assert (name, kind) == ("OpPrereqError", STATE)
    assert "there is no network 'nosuch' that is connected to every node group" in text
    outcome = play(snapshot, SET, instance_communication_network="network0")
    assert outcome.log[-1] == (
        "Changing instance communication network to 'network0', only new instances will be"
        " affected."
    )
    assert any("might pose a security risk" in line for line in outcome.log)
    found = after(snapshot, SET, instance_communication_network="network0")
    outcome = play(found, SET, instance_communication_network="network0")
    assert outcome.changes == ()
    assert outcome.log[-1] == (
        "Instance communication network already is 'network0', nothing to do."
    )
    assert play(found, SET, instance_communication_network="").log == (
        "Previous instance communication network 'network0' should be removed manually.",
        "Disabling instance communication network, only new instances will be affected.",
    )


# Real and bare configurations.


def test_the_first_configuration_of_a_daemon_takes_settings() -> None:
    first = config_files.first_configuration(uuid_of("cluster", 0), NOW)
    found = after(Configuration.load(first), SET, max_running_jobs=3, reserved_lvs=["a"])
    assert (found.cluster["max_running_jobs"], found.cluster["reserved_lvs"]) == (3, ["a"])


def test_a_configuration_of_ganeti_takes_settings() -> None:
    path = Path(__file__).parents[3] / "compatibility" / "data" / "config.data"
    snapshot = Configuration.load(json.loads(path.read_text()))
    found = after(
        snapshot,
        SET,
        beparams={"vcpus": 2},
        hvparams={"kvm": {"acpi": False}},
        enabled_hypervisors=["fake", "lxc", "xen-pvm", "xen-hvm", "kvm", "chroot"],
        candidate_pool_size=5,
    )
    before = snapshot.cluster["hvparams"]
    assert found.cluster["hvparams"] == {**before, "kvm": {**before["kvm"], "acpi": False}}
