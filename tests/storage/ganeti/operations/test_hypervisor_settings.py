"""Hypervisors of ``OP_CLUSTER_SET_PARAMS``: which are enabled, and their parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.storage.ganeti.operations.played import NOW, after, play, refusal, with_disks

from ganger.storage.cluster.configuration import Configuration
from ganger.storage.cluster.integrity import problems
from ganger.storage.ganeti.operations import hypervisors
from ganger.storage.opcodes import OperationError

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


def test_hypervisor_parameters_of_systems_are_checked_over_those_of_the_cluster(
    snapshot: Configuration,
) -> None:
    given = {"debian": {"kvm": {"boot_order": "cdrom"}}}
    error = ["HypervisorError", "Cannot boot from cdrom without an ISO path"]
    assert refusal(snapshot, SET, os_hvp=given) == error
    found = after(snapshot, SET, hvparams={"kvm": {"cdrom_image_path": "/iso"}})
    assert after(found, SET, os_hvp=given).cluster["os_hvp"] == given


@pytest.mark.parametrize(
    "parameters",
    [
        {"hvparams": {"kvm": {"acpi": False}}},
        {"enabled_hypervisors": ["kvm", "fake"]},
        {"os_hvp": {"debian": {"kvm": {"acpi": False}}}},
        {"osparams": {"debian": {"a": 2}}},
        {"osparams_private_cluster": {"debian": {"a": 2}}},
    ],
)
def test_what_only_nodes_could_check_is_named(
    snapshot: Configuration, parameters: dict[str, Any]
) -> None:
    [name] = parameters
    line = f" - WARNING: No node was asked whether it can use these: {name}"
    assert play(snapshot, SET, **parameters).log == (line,)


# The table of parameters.


@pytest.mark.parametrize("name", hypervisors.DEFAULTS)
def test_defaults_are_right(name: str) -> None:
    assert hypervisors.checked(name, hypervisors.DEFAULTS[name]) == hypervisors.DEFAULTS[name]


def test_defaults_are_those_that_ganeti_wrote() -> None:
    path = Path(__file__).parents[3] / "compatibility" / "data" / "config.data"
    assert json.loads(path.read_text())["cluster"]["hvparams"] == hypervisors.DEFAULTS


def wrong(hypervisor: str, **own: Any) -> str:
    """The error about these parameters over the defaults."""
    with pytest.raises(OperationError) as caught:
        hypervisors.checked(hypervisor, hypervisors.filled(hypervisor, own))
    assert caught.value.name == "HypervisorError"
    return str(caught.value)


@pytest.mark.parametrize(
    ("hypervisor", "name", "right", "not_right"),
    [
        ("kvm", "kernel_path", ["", "/", "/boot/x", "/a/..b"], ["boot", "/a/../b", "/a/", "/a//b"]),
        ("kvm", "cdrom_image_path", ["", "/x", "http://x"], ["x", "file://x"]),
        ("kvm", "cpu_mask", ["", "all", "0", "0-3,5", "all:1-2"], ["x", "3-1", "1,,2", "1-2-3"]),
        ("kvm", "cpu_cores", [0, 8], [-1]),
        ("kvm", "migration_port", [1, 65_534], [0, 65_535]),
        ("kvm", "kvm_pci_reservations", [0, 32], [-1, 33]),
        ("kvm", "virtio_net_queues", [1, 8], [0, 9]),
        ("kvm", "spice_ip_version", [0], [5]),
        ("kvm", "usb_mouse", ["", "mouse"], ["trackball"]),
        ("lxc", "cpu_mask", ["", "1-2"], ["all", "1:2"]),
        ("lxc", "num_ttys", [0], [-1]),
        ("xen-hvm", "boot_order", ["a", "dcn"], ["x", "ax", ""]),
        (
            "xen-hvm",
            "vnc_bind_address",
            ["", "127.0.0.1"],
            ["1.2.3", "::1", "1.1.1.256"],
        ),
        ("xen-pvm", "cpu_weight", [1, 65_535], [0, 65_536]),
        ("xen-pvm", "xen_cmd", ["xl"], ["xe"]),
        ("chroot", "init_script", ["/i"], ["i", ""]),
        ("fake", "migration_mode", ["live", "non-live"], ["dead"]),
    ],
)
def test_each_kind_of_value_has_its_bounds(
    hypervisor: str, name: str, right: list[Any], not_right: list[Any]
) -> None:
    for value in right:
        filled = hypervisors.filled(hypervisor, {name: value})
        assert hypervisors.checked(hypervisor, filled)[name] == value
    for value in not_right:
        assert name in wrong(hypervisor, **{name: value})


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ({"root_path": ""}, "Need a root partition for the instance, if a kernel is defined"),
        (
            {"security_model": "user"},
            "A security domain (user to run kvm as) must be specified",
        ),
        (
            {"security_domain": "alice"},
            "Cannot have a security domain when the security model is 'none' or 'pool'",
        ),
        ({"serial_speed": 7}, "Invalid serial console speed, must be one of: 75, 110"),
        ({"vnc_x509_verify": True}, "vnc_x509_path must be defined, if vnc_x509_verify is"),
        ({"spice_use_tls": True}, "SPICE: spice_use_tls requires spice_bind to be set"),
        ({"disk_aio": "native"}, "When 'disk_aio' is set to 'native', the only supported value"),
    ],
)
def test_parameters_of_kvm_must_go_together(own: dict[str, Any], text: str) -> None:
    assert wrong("kvm", **own).startswith(text)


@pytest.mark.parametrize(
    "own",
    [
        {"root_path": "", "kernel_path": ""},
        {"security_model": "user", "security_domain": "alice"},
        {"serial_speed": 7, "serial_console": False},
        {"vnc_x509_verify": True, "vnc_x509_path": "/x"},
        {"spice_use_tls": True, "spice_bind": "127.0.0.1"},
        {"disk_aio": "native", "disk_cache": "none"},
        {"boot_order": "cdrom", "cdrom_image_path": "/iso"},
    ],
)
def test_parameters_of_kvm_that_go_together_are_right(own: dict[str, Any]) -> None:
    assert hypervisors.checked("kvm", hypervisors.filled("kvm", own))


def test_a_parameter_that_is_checked_must_be_there() -> None:
    with pytest.raises(OperationError, match="Parameter 'migration_mode' is missing"):
        hypervisors.checked("fake", {})
