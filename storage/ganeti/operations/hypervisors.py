"""Parameters of hypervisors: which there are, their defaults, and what their values may be.

What needs a look at a node (does the file exist?) is not checked. The texts of the errors are
Ganeti's, which gives them in an error of the name ``HypervisorError``.

Source: the ``config.data`` that Ganeti 3.0 writes for a new cluster, and its checks of the syntax.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ...opcodes import OperationError
from .values import Type, Types, Values, enforced

# fmt: off
DEFAULTS: Final[Mapping[str, Values]] = {
    "chroot": {
        "init_script": "/ganeti-chroot",
    },
    "fake": {
        "migration_mode": "live",
    },
    "kvm": {
        "acpi": True, "boot_order": "disk", "cdrom2_image_path": "", "cdrom_disk_type": "",
        "cdrom_image_path": "", "cpu_cores": 0, "cpu_mask": "all", "cpu_sockets": 0,
        "cpu_threads": 0, "cpu_type": "", "disk_aio": "threads", "disk_cache": "default",
        "disk_discard": "default", "disk_type": "paravirtual", "floppy_image_path": "",
        "initrd_path": "", "kernel_args": "ro", "kernel_path": "/boot/vmlinuz-3-kvmU",
        "keymap": "", "kvm_extra": "", "kvm_flag": "", "kvm_path": "/usr/bin/kvm",
        "kvm_pci_reservations": 12, "machine_version": "", "mem_path": "",
        "migration_bandwidth": 32, "migration_caps": "", "migration_downtime": 30,
        "migration_mode": "live", "migration_port": 8102, "nic_type": "paravirtual",
        "reboot_behavior": "reboot", "root_path": "/dev/vda1", "scsi_controller_type": "lsi",
        "security_domain": "", "security_model": "none", "serial_console": True,
        "serial_speed": 38400, "soundhw": "", "spice_bind": "", "spice_image_compression": "",
        "spice_ip_version": 0, "spice_jpeg_wan_compression": "", "spice_password_file": "",
        "spice_playback_compression": True, "spice_streaming_video": "",
        "spice_tls_ciphers": "HIGH:-DES:-3DES:-EXPORT:-DH", "spice_use_tls": False,
        "spice_use_vdagent": True, "spice_zlib_glz_wan_compression": "", "usb_devices": "",
        "usb_mouse": "", "use_chroot": False, "use_guest_agent": False, "use_localtime": False,
        "user_shutdown": False, "vga": "", "vhost_net": False, "virtio_net_queues": 1,
        "vnc_bind_address": "", "vnc_password_file": "", "vnc_tls": False, "vnc_x509_path": "",
        "vnc_x509_verify": False, "vnet_hdr": True,
    },
    "lxc": {
        "cpu_mask": "",
        "devices":
            "c 1:3 rw,c 1:5 rw,c 1:7 rw,c 1:8 rw,c 1:9 rw,c 1:10 rw,c 5:0 rw,c 5:1 rw,c 5:2 rw,"
            "c 136:* rw",
        "drop_capabilities": "mac_override,sys_boot,sys_module,sys_time,sys_admin",
        "extra_cgroups": "", "extra_config": "", "num_ttys": 6, "startup_timeout": 30,
    },
    "xen-hvm": {
        "acpi": True, "blockdev_prefix": "hd", "boot_order": "cd", "cdrom_image_path": "",
        "cpu_cap": 0, "cpu_mask": "all", "cpu_weight": 256, "cpuid": "",
        "device_model": "/usr/lib/xen/bin/qemu-dm", "disk_type": "paravirtual",
        "kernel_path": "/usr/lib/xen/boot/hvmloader", "migration_mode": "non-live",
        "migration_port": 8002, "nic_type": "rtl8139", "pae": True, "pci_pass": "",
        "reboot_behavior": "reboot", "soundhw": "", "use_localtime": False, "vif_script": "",
        "vif_type": "ioemu", "viridian": False, "vnc_bind_address": "0.0.0.0",  # noqa: S104 - a default of Ganeti's
        "vnc_password_file": "/etc/ganeti/vnc-cluster-password", "xen_cmd": "xm",
    },
    "xen-pvm": {
        "blockdev_prefix": "sd", "bootloader_args": "", "bootloader_path": "", "cpu_cap": 0,
        "cpu_mask": "all", "cpu_weight": 256, "cpuid": "", "initrd_path": "",
        "kernel_args": "ro", "kernel_path": "/boot/vmlinuz-3-xenU", "migration_mode": "live",
        "migration_port": 8002, "reboot_behavior": "reboot", "root_path": "/dev/xvda1",
        "soundhw": "", "use_bootloader": False, "vif_script": "", "xen_cmd": "xm",
    },
}
# fmt: on
"""The value of each parameter on a new cluster, by hypervisor."""

_TYPES_BY_VALUE: Final = {bool: Type.BOOLEAN, int: Type.INTEGER, str: Type.TEXT}

TYPES: Final[Types] = {
    name: _TYPES_BY_VALUE[type(value)] for own in DEFAULTS.values() for name, value in own.items()
}
"""The types of all parameters; one of several hypervisors has the same type in each."""


class _Check(NamedTuple):
    """What a value must fulfil, unless it is empty; an empty one may be ``is_required``."""

    is_right: Callable[[Any], object]
    text: str
    is_required: bool = False


def _one_of(*allowed: str, is_required: bool = True) -> _Check:
    listed = ", ".join(sorted(allowed))
    return _Check(
        lambda value: value in allowed, f"The value must be one of: {listed}", is_required
    )


def _up_to(highest: int, text: str, *, lowest: int = 0, is_required: bool = False) -> _Check:
    return _Check(lambda value: lowest <= value <= highest, text, is_required)


def _is_multiple_mask(value: str) -> bool:
    return all(one == "all" or _is_mask(one) for one in value.split(":"))


def _is_mask(value: str) -> bool:
    ranges = [_RANGE.fullmatch(one) for one in value.split(",")]
    return all(one is not None and int(one[1]) <= int(one[2] or one[1]) for one in ranges)


_RANGE = re.compile(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?", re.ASCII)
_ABSOLUTE = re.compile(r"/|(/(?!\.{1,2}(/|\Z))[^/]+)+")
_URL = re.compile(r"(https?|ftps?)://")
_IPV4 = re.compile(r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?!\Z)|\Z)){4}", re.ASCII)

_FILE: Final = _Check(_ABSOLUTE.fullmatch, "must be an absolute normalized path")
_REQUIRED_FILE: Final = _FILE._replace(is_required=True)
_FILE_OR_URL: Final = _Check(
    lambda value: _ABSOLUTE.fullmatch(value) or _URL.match(value),
    "must be an absolute normalized path or a URL",
)
_PORT: Final = _up_to(65_534, "invalid port number", lowest=1, is_required=True)
_NOT_NEGATIVE: Final = _Check(lambda value: value >= 0, "cannot be negative")
_REQUIRED_NOT_NEGATIVE: Final = _NOT_NEGATIVE._replace(is_required=True)
_MASK: Final = _Check(_is_mask, "CPU mask definition is not well-formed")
_MULTIPLE_MASK: Final = _Check(_is_multiple_mask, "Multiple CPU mask definition is not well-formed")
_MIGRATION: Final = _Check(
    lambda value: value in ("live", "non-live"), "invalid migration mode", is_required=True
)
_REBOOT: Final = _one_of("exit", "reboot")
_WEIGHT: Final = "invalid weight"
_KVM_DISKS: Final = (
    "ide", "mtd", "paravirtual", "pflash", "scsi", "scsi-block", "scsi-cd", "scsi-generic",
    "scsi-hd", "sd",
)  # fmt: skip
_SPICE_LOSSY: Final = _one_of("always", "auto", "never", is_required=False)

_CHECKS: Final[Mapping[str, Mapping[str, _Check]]] = {
    "chroot": {"init_script": _REQUIRED_FILE},
    "fake": {"migration_mode": _MIGRATION},
    "kvm": {
        "boot_order": _one_of("cdrom", "disk", "floppy", "network"),
        "cdrom2_image_path": _FILE_OR_URL,
        "cdrom_disk_type": _one_of(*_KVM_DISKS, is_required=False),
        "cdrom_image_path": _FILE_OR_URL,
        "cpu_cores": _NOT_NEGATIVE,
        "cpu_mask": _MULTIPLE_MASK,
        "cpu_sockets": _NOT_NEGATIVE,
        "cpu_threads": _NOT_NEGATIVE,
        "disk_aio": _one_of("native", "threads", is_required=False),
        "disk_cache": _one_of("default", "none", "writeback", "writethrough"),
        "disk_discard": _one_of("default", "ignore", "unmap", is_required=False),
        "disk_type": _one_of(*_KVM_DISKS),
        "floppy_image_path": _FILE,
        "initrd_path": _FILE,
        "kernel_path": _FILE,
        "kvm_flag": _one_of("disabled", "enabled", is_required=False),
        "kvm_path": _REQUIRED_FILE,
        "kvm_pci_reservations": _up_to(32, "The number of PCI slots managed by QEMU (max: 32)"),
        "mem_path": _FILE,
        "migration_bandwidth": _REQUIRED_NOT_NEGATIVE,
        "migration_downtime": _REQUIRED_NOT_NEGATIVE,
        "migration_mode": _MIGRATION,
        "migration_port": _PORT,
        "nic_type": _one_of(
            "e1000",
            "i82551",
            "i82557b",
            "i82559er",
            "ne2k_isa",
            "ne2k_pci",
            "paravirtual",
            "pcnet",
            "rtl8139",
        ),
        "reboot_behavior": _REBOOT,
        "scsi_controller_type": _one_of("lsi", "megasas", "virtio-scsi-pci"),
        "security_model": _one_of("none", "pool", "user"),
        "spice_image_compression": _one_of(
            "auto_glz", "auto_lz", "glz", "lz", "off", "quic", is_required=False
        ),
        "spice_ip_version": _Check(
            lambda value: value in (0, 4, 6), "The SPICE IP version should be 4 or 6"
        ),
        "spice_jpeg_wan_compression": _SPICE_LOSSY,
        "spice_password_file": _FILE,
        "spice_streaming_video": _one_of("all", "filter", "off", is_required=False),
        "spice_zlib_glz_wan_compression": _SPICE_LOSSY,
        "usb_mouse": _one_of("mouse", "tablet", is_required=False),
        "virtio_net_queues": _up_to(8, "invalid number of queues", lowest=1),
        "vnc_password_file": _FILE,
        "vnc_x509_path": _FILE,
    },
    "lxc": {
        "cpu_mask": _MASK,
        "num_ttys": _REQUIRED_NOT_NEGATIVE,
        "startup_timeout": _NOT_NEGATIVE,
    },
    "xen-hvm": {
        "boot_order": _Check(
            lambda value: not value.strip("acdn"),
            "Invalid boot order specified, must be one or more of [acdn]",
            is_required=True,
        ),
        "cdrom_image_path": _FILE,
        "cpu_mask": _MULTIPLE_MASK,
        "cpu_weight": _up_to(65_534, _WEIGHT, lowest=1),
        "device_model": _REQUIRED_FILE,
        "disk_type": _one_of("ioemu", "paravirtual"),
        "kernel_path": _REQUIRED_FILE,
        "migration_mode": _MIGRATION,
        "migration_port": _PORT,
        "nic_type": _one_of("e1000", "ne2k_isa", "ne2k_pci", "paravirtual", "rtl8139"),
        "reboot_behavior": _REBOOT,
        "vif_script": _FILE,
        "vif_type": _one_of("ioemu", "vif", is_required=False),
        "vnc_bind_address": _Check(_IPV4.fullmatch, "VNC bind address is not a valid IP address"),
        "vnc_password_file": _REQUIRED_FILE,
        "xen_cmd": _one_of("xl", "xm"),
    },
    "xen-pvm": {
        "bootloader_path": _FILE,
        "cpu_cap": _NOT_NEGATIVE,
        "cpu_mask": _MULTIPLE_MASK,
        "cpu_weight": _up_to(65_535, _WEIGHT, lowest=1),
        "initrd_path": _FILE,
        "kernel_path": _REQUIRED_FILE,
        "migration_mode": _MIGRATION,
        "migration_port": _PORT,
        "reboot_behavior": _REBOOT,
        "vif_script": _FILE,
        "xen_cmd": _one_of("xl", "xm"),
    },
}
"""What is checked of each parameter; the others may have any value of their type."""

_SERIAL_SPEEDS: Final = (
    75, 110, 300, 600, 1_200, 1_800, 2_400, 4_800, 9_600, 14_400, 19_200, 28_800, 38_400, 57_600,
    115_200, 230_400, 345_600, 460_800,
)  # fmt: skip
_NEED_SPICE_BIND: Final = (
    "spice_image_compression",
    "spice_ip_version",
    "spice_jpeg_wan_compression",
    "spice_password_file",
    "spice_streaming_video",
    "spice_use_tls",
    "spice_zlib_glz_wan_compression",
)


def filled(hypervisor: str, own: Values) -> dict[str, Any]:
    """All parameters of a hypervisor: the defaults of a new cluster under its ``own`` values."""
    return {**DEFAULTS[hypervisor], **own}


def checked(hypervisor: str, parameters: Values) -> dict[str, Any]:
    """The parameters in their types; `OperationError` names the first one that is wrong.

    Its name is TypeEnforcementError or HypervisorError.
    """
    found = enforced(parameters, TYPES)
    for name in found:
        if name not in DEFAULTS[hypervisor]:
            raise _error(f"Parameter '{name}' is not supported")
    for name, check in _CHECKS[hypervisor].items():
        if name not in found:
            raise _error(f"Parameter '{name}' is missing")
        value = found[name]
        if value == "" and check.is_required:
            raise _error(f"Parameter '{name}' is required but is currently not defined")
        if value != "" and not check.is_right(value):
            text = f"{check.text} (current value: '{value}')"
            raise _error(f"Parameter '{name}' fails syntax check: {text}")
    if hypervisor == "kvm":
        _check_kvm(found)
    return found


def _check_kvm(found: Values) -> None:
    """What the parameters of KVM must be together."""
    if found["boot_order"] == "cdrom" and not found["cdrom_image_path"]:
        raise _error("Cannot boot from cdrom without an ISO path")
    if found["kernel_path"] and not found.get("root_path"):
        raise _error("Need a root partition for the instance, if a kernel is defined")
    has_domain = bool(found.get("security_domain"))
    if found["security_model"] == "user" and not has_domain:
        raise _error("A security domain (user to run kvm as) must be specified")
    if found["security_model"] != "user" and has_domain:
        raise _error("Cannot have a security domain when the security model is 'none' or 'pool'")
    if found.get("serial_console") and found.get("serial_speed") not in _SERIAL_SPEEDS:
        listed = ", ".join(map(str, _SERIAL_SPEEDS))
        raise _error(f"Invalid serial console speed, must be one of: {listed}")
    if found.get("vnc_x509_verify") and not found["vnc_x509_path"]:
        raise _error("vnc_x509_path must be defined, if vnc_x509_verify is")
    for name in () if found.get("spice_bind") else _NEED_SPICE_BIND:
        if found.get(name):
            raise _error(f"SPICE: {name} requires spice_bind to be set")
    if found["disk_aio"] == "native" and found["disk_cache"] != "none":
        raise _error(
            "When 'disk_aio' is set to 'native', the only supported value for 'disk_cache' is"
            " 'none'."
        )


def _error(text: str) -> OperationError:
    return OperationError("HypervisorError", text)
