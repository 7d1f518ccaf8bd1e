"""Hypervisors of ``OP_CLUSTER_SET_PARAMS``: which are enabled, and their parameters."""

from __future__ import annotations

from typing import Any

import pytest
from tests.storage.cluster.operations.played import NOW, after, play, refusal, with_disks

from ganger.storage.cluster.configuration import Configuration
from ganger.storage.cluster.integrity import problems

SET = "OP_CLUSTER_SET_PARAMS"


@pytest.fixture(name="snapshot", scope="module")
def snapshot_with_disks() -> Configuration:
    return with_disks()


def test_a_newly_enabled_hypervisor_gets_its_defaults(snapshot: Configuration) -> None:
    found = after(snapshot, SET, enabled_hypervisors=["kvm", "fake", "lxc"]).cluster
    assert found["enabled_hypervisors"] == ["kvm", "fake", "lxc"]
    assert found["hvparams"]["lxc"]["num_ttys"] == 6
    assert found["hvparams"]["kvm"]["vnc_password_file"] == "/etc/vnc"


def test_a_hypervisor_in_use_cannot_be_disabled(snapshot: Configuration) -> None:
    outcome = play(snapshot, SET, enabled_hypervisors=["fake"])
    found = snapshot.changed(outcome.changes, NOW)
    # The store refuses the change: it would make the configuration contradict itself.
    assert any("there is no enabled hypervisor kvm" in one for one in problems(found))


def test_hypervisor_parameters_are_set_over_the_old_ones(snapshot: Configuration) -> None:
    found = after(snapshot, SET, hvparams={"kvm": {"boot_order": "network"}}).cluster
    assert found["hvparams"]["kvm"]["boot_order"] == "network"
    assert found["hvparams"]["kvm"]["vnc_password_file"] == "/etc/vnc"
    assert found["hvparams"]["fake"] == {"migration_mode": "live"}


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({"nosuch": 1}, ["TypeEnforcementError", "Unknown parameter 'nosuch'"]),
        ({"num_ttys": 1}, ["HypervisorError", "Parameter 'num_ttys' is not supported"]),
        (
            {"boot_order": "moon"},
            [
                "HypervisorError",
                (
                    "Parameter 'boot_order' fails syntax check: The value must be one of: cdrom,"
                    " disk, floppy, network (current value: 'moon')"
                ),
            ],
        ),
        (
            {"kvm_path": ""},
            ["HypervisorError", "Parameter 'kvm_path' is required but is currently not defined"],
        ),
        (
            {"migration_port": 65_535},
            [
                "HypervisorError",
                (
                    "Parameter 'migration_port' fails syntax check: invalid port number (current"
                    " value: '65535')"
                ),
            ],
        ),
        (
            {"boot_order": "cdrom"},
            ["HypervisorError", "Cannot boot from cdrom without an ISO path"],
        ),
    ],
)
def test_wrong_hypervisor_parameters_are_refused(
    snapshot: Configuration, parameters: dict[str, Any], error: list[str]
) -> None:
    assert refusal(snapshot, SET, hvparams={"kvm": parameters}) == error


def test_an_unknown_hypervisor_has_no_parameters(snapshot: Configuration) -> None:
    error = ["HypervisorError", "Unknown hypervisor 'vmware'"]
    assert refusal(snapshot, SET, hvparams={"vmware": {}}) == error
    assert refusal(snapshot, SET, os_hvp={"debian": {"vmware": {}}}) == error


def test_hypervisor_parameters_of_systems_are_merged_and_removed(snapshot: Configuration) -> None:
    given = {"debian": {"kvm": {"acpi": "false"}, "lxc": {"num_ttys": 7}}}
    found = after(snapshot, SET, os_hvp=given)
    assert found.cluster["os_hvp"] == {"debian": {"kvm": {"acpi": False}, "lxc": {"num_ttys": 7}}}
    found = after(found, SET, os_hvp={"debian": {"lxc": None}})
    assert found.cluster["os_hvp"] == {"debian": {"kvm": {"acpi": False}}}
