"""Filled parameters: cluster, group, node or instance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ganger.storage.ganeti import parameters

RECORDED = json.loads(
    (Path(__file__).parents[2] / "compatibility" / "data" / "config.data").read_text()
)
CLUSTER: dict[str, Any] = RECORDED["cluster"]


def test_a_node_overrides_its_group_which_overrides_the_cluster() -> None:
    group = {"ndparams": {"ssh_port": 2222, "cpu_speed": 2}}
    node = {"ndparams": {"cpu_speed": 3}}
    filled = parameters.node_parameters(CLUSTER, group, node)
    assert filled == {**CLUSTER["ndparams"], "ssh_port": 2222, "cpu_speed": 3}
    assert parameters.node_parameters(CLUSTER, group, None)["cpu_speed"] == 2
    assert parameters.node_parameters(CLUSTER, None, None) == CLUSTER["ndparams"]


def test_backend_parameters_show_the_old_name_of_the_memory() -> None:
    filled = parameters.backend_parameters(CLUSTER, {"beparams": {"maxmem": 512, "vcpus": 2}})
    assert filled == {
        "minmem": 128,
        "maxmem": 512,
        "vcpus": 2,
        "auto_balance": True,
        "always_failover": False,
        "spindle_use": 1,
        "memory": 512,
    }
    assert "memory" not in CLUSTER["beparams"]["default"]


def test_a_network_interface_overrides_the_default() -> None:
    assert parameters.interface_parameters(CLUSTER, {"nicparams": {"link": "br1"}}) == {
        "mode": "routed",
        "link": "br1",
        "vlan": "",
    }


def test_the_operating_system_stands_between_cluster_and_instance() -> None:
    cluster = {
        "hvparams": {"kvm": {"acpi": True, "kernel_args": "ro", "migration_port": 8102}},
        "os_hvp": {"debian+x": {"kvm": {"acpi": False, "kernel_args": "rw"}}},
    }
    instance = {"hypervisor": "kvm", "os": "debian+x", "hvparams": {"kernel_args": "quiet"}}
    filled = parameters.hypervisor_parameters(cluster, instance)
    assert filled == {"acpi": False, "kernel_args": "quiet"}
    other = parameters.hypervisor_parameters(cluster, {**instance, "os": "debian"})
    assert other == {"acpi": True, "kernel_args": "quiet"}


def test_the_parameters_of_whole_nodes_are_no_parameters_of_instances() -> None:
    (instance,) = [
        one for one in RECORDED["instances"].values() if one["name"].startswith("inst1.")
    ]
    assert CLUSTER["hvparams"]["fake"] == {"migration_mode": "live"}
    assert parameters.hypervisor_parameters(CLUSTER, instance) == {}


def test_a_variant_overrides_its_operating_system() -> None:
    cluster = {"osparams": {"debian": {"a": 1, "b": 1, "c": 1}, "debian+x": {"b": 2, "c": 2}}}
    instance = {"os": "debian+x", "osparams": {"c": 3}}
    assert parameters.system_parameters(cluster, instance) == {"a": 1, "b": 2, "c": 3}
    assert parameters.system_parameters(cluster, {"os": "debian"}) == {"a": 1, "b": 1, "c": 1}


def test_a_policy_is_filled_and_its_bounds_are_taken_whole() -> None:
    custom = {"minmax": [], "std": {"cpu-count": 4}, "vcpu-ratio": 2}
    filled = parameters.instance_policy(CLUSTER, {"ipolicy": custom})
    assert filled["minmax"] == []
    assert filled["std"] == {**CLUSTER["ipolicy"]["std"], "cpu-count": 4}
    assert (filled["vcpu-ratio"], filled["spindle-ratio"]) == (2, 32)
    assert parameters.instance_policy(CLUSTER, {"ipolicy": {}}) == CLUSTER["ipolicy"]


def test_disk_parameters_are_filled_for_each_template() -> None:
    custom = {"plain": {"stripes": 2}, "new": {"x": 1}}
    filled = parameters.disk_parameters(CLUSTER, {"diskparams": custom})
    assert filled == {**CLUSTER["diskparams"], "plain": {"stripes": 2}, "new": {"x": 1}}


def test_filling_changes_nothing_in_the_configuration() -> None:
    before = json.dumps(RECORDED)
    group = {"ipolicy": {"std": {"cpu-count": 4}}, "diskparams": {"drbd": {"metavg": "x"}}}
    parameters.instance_policy(CLUSTER, group)["std"]["cpu-count"] = 9
    parameters.disk_parameters(CLUSTER, group)["drbd"]["metavg"] = "y"
    parameters.node_parameters(CLUSTER, None, None)["ssh_port"] = 1
    assert json.dumps(RECORDED) == before
    assert group == {"ipolicy": {"std": {"cpu-count": 4}}, "diskparams": {"drbd": {"metavg": "x"}}}


def test_unset_parameters_count_as_empty() -> None:
    nothing: dict[str, Any] = {}
    assert parameters.node_parameters(nothing, nothing, nothing) == {}
    assert parameters.backend_parameters(nothing, nothing) == {}
    assert parameters.interface_parameters(nothing, nothing) == {}
    assert parameters.hypervisor_parameters(nothing, nothing) == {}
    assert parameters.system_parameters(nothing, nothing) == {}
    assert parameters.instance_policy(nothing, nothing) == {}
    assert parameters.disk_parameters(nothing, nothing) == {}
