"""Fields of instances for their parts: parameters, disks and network interfaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from .. import parameters
from .cluster_view import ClusterView, Object
from .common_fields import alias, or_no_data
from .fields import (
    UNAVAILABLE,
    Answer,
    Field,
    FieldKind,
    field,
    normal,
    or_unavailable,
)

DISKS_MAX: Final = 16
INTERFACES_MAX: Final = 8
"""Disks and network interfaces of an instance that have fields of their own."""

DRBD_METADATA_MIB: Final = 128
"""What a DRBD disk takes on a node beside its data."""

Getter = Callable[[ClusterView, Object], Answer]
PartGetter = Callable[[ClusterView, Object], Any]
"""From a disk or an interface to one of its values; None: it has none."""

# ---------------------------------------------------------------- parameters

_BACKEND: Final = (
    ("always_failover", FieldKind.BOOL, "be/always_failover"),
    ("auto_balance", FieldKind.BOOL, "Auto_balance"),
    ("maxmem", FieldKind.UNIT, "ConfigMaxMem"),
    ("minmem", FieldKind.UNIT, "ConfigMinMem"),
    ("spindle_use", FieldKind.NUMBER, "be/spindle_use"),
    ("vcpus", FieldKind.NUMBER, "ConfigVCPUs"),
)

_HYPERVISOR: Final = {
    FieldKind.BOOL: (
        "acpi pae serial_console spice_playback_compression spice_use_tls spice_use_vdagent "
        "use_bootloader use_chroot use_guest_agent use_localtime user_shutdown vhost_net viridian "
        "vnc_tls vnc_x509_verify vnet_hdr"
    ),
    FieldKind.NUMBER: (
        "cpu_cap cpu_cores cpu_sockets cpu_threads cpu_weight kvm_pci_reservations "
        "migration_downtime num_ttys serial_speed spice_ip_version startup_timeout "
        "virtio_net_queues"
    ),
    FieldKind.OTHER: (
        "blockdev_prefix boot_order bootloader_args bootloader_path cdrom2_image_path "
        "cdrom_disk_type cdrom_image_path cpu_mask cpu_type cpuid device_model devices disk_aio "
        "disk_cache disk_discard disk_type drop_capabilities extra_cgroups extra_config "
        "floppy_image_path init_script initrd_path kernel_args kernel_path keymap kvm_extra "
        "kvm_flag kvm_path machine_version mem_path migration_caps nic_type pci_pass "
        "reboot_behavior root_path scsi_controller_type security_domain security_model soundhw "
        "spice_bind spice_image_compression spice_jpeg_wan_compression spice_password_file "
        "spice_streaming_video spice_tls_ciphers spice_zlib_glz_wan_compression usb_devices "
        "usb_mouse vga vif_script vif_type vnc_bind_address vnc_password_file vnc_x509_path"
    ),
}

_HYPERVISOR_TITLES: Final = {
    "acpi": "ACPI",
    "boot_order": "Boot_order",
    "cdrom_image_path": "CDROM_image_path",
    "cpu_type": "cpu_type",
    "disk_type": "Disk_type",
    "initrd_path": "Initrd_path",
    "kernel_path": "Kernel_path",
    "nic_type": "NIC_type",
    "pae": "PAE",
    "pci_pass": "pci_pass",
    "vnc_bind_address": "VNC_bind_address",
}


def parameter_fields() -> Iterator[Field[ClusterView]]:
    """A field for each backend and hypervisor parameter, and for an old name of one."""
    for name, kind, title in _BACKEND:
        doc = f'The "{name}" backend parameter'
        one = field(f"be/{name}", title, kind, doc, _backend(name))
        yield one
        if name == "maxmem":
            yield alias("be/memory", one)
        if name == "vcpus":
            yield alias("vcpus", one)
    for kind, names in _HYPERVISOR.items():
        for name in names.split():
            title = _HYPERVISOR_TITLES.get(name, f"hv/{name}")
            doc = f'The "{name}" hypervisor parameter'
            yield field(f"hv/{name}", title, kind, doc, _hypervisor(name))


def _backend(name: str) -> Getter:
    return lambda view, instance: or_no_data(
        view.filled(parameters.backend_parameters, instance).get(name)
    )


def _hypervisor(name: str) -> Getter:
    return lambda view, instance: or_unavailable(
        view.filled(parameters.hypervisor_parameters, instance).get(name)
    )


# ---------------------------------------------------------------- disks


def disk_template(view: ClusterView, instance: Object) -> Answer:
    """The type of all disks; ``mixed`` if they differ."""
    types = {str(disk.get("dev_type", "")) for disk in view.disks(instance)}
    if len(types) > 1:
        return normal("mixed")
    return normal(types.pop() if types else "diskless")


def disk_usage(view: ClusterView, instance: Object) -> Answer:
    """What all disks take on each of their nodes, in MiB."""
    return normal(sum(map(_usage, view.disks(instance))))


def _usage(disk: Object) -> int:
    if disk.get("dev_type") in {"blockdev", "diskless"}:
        return 0
    extra = DRBD_METADATA_MIB if disk.get("dev_type") == "drbd" else 0
    return int(disk.get("size") or 0) + extra


def _own(key: str) -> PartGetter:
    return lambda _view, part: part.get(key)


_DISK_PARTS: Final = (
    ("size", "sizes", "Disk/{}", FieldKind.UNIT, "Disk size", "List of disk sizes"),
    (
        "spindles",
        "spindles",
        "DiskSpindles/{}",
        FieldKind.NUMBER,
        "Spindles",
        "List of disk spindles",
    ),
    ("name", "names", "DiskName/{}", FieldKind.TEXT, "Name", "List of disk names"),
    ("uuid", "uuids", "DiskUUID/{}", FieldKind.TEXT, "UUID", "List of disk UUIDs"),
)

_DISK_LIST_TITLES: Final = {"uuids": "Disk_UUIDs"}


def disk_fields() -> Iterator[Field[ClusterView]]:
    """The fields of all disks together, and of the first ones."""
    yield field(
        "disk.count",
        "Disks",
        FieldKind.NUMBER,
        "Number of disks",
        lambda _view, instance: normal(len(instance.get("disks") or ())),
    )
    for key, listed, title, kind, doc, list_doc in _DISK_PARTS:
        list_title = _DISK_LIST_TITLES.get(listed, f"Disk_{listed}")
        yield field(
            f"disk.{listed}", list_title, FieldKind.OTHER, list_doc, _all_of(_disks, _own(key))
        )
        for place in range(DISKS_MAX):
            one = field(
                f"disk.{key}/{place}",
                title.format(place),
                kind,
                f"{doc} of {_ordinal(place + 1)} disk",
                _one_of(_disks, _own(key), place),
            )
            yield one
            if key == "size" and place < len("ab"):
                yield alias(f"sd{'ab'[place]}_size", one)


def _disks(view: ClusterView, instance: Object) -> Sequence[Object]:
    return view.disks(instance)


# ---------------------------------------------------------------- network interfaces


def _filled(key: str) -> PartGetter:
    """A parameter of an interface, its own or the cluster's."""
    return lambda view, part: view.filled(parameters.interface_parameters, part).get(key)


def _filled_in_mode(key: str, mode: str) -> PartGetter:
    """A parameter that has a meaning in one mode only."""

    def get(view: ClusterView, part: Object) -> Any:  # noqa: ANN401 - decoded JSON
        filled = view.filled(parameters.interface_parameters, part)
        return filled.get(key) if filled.get("mode") == mode else None

    return get


def _network_name(view: ClusterView, part: Object) -> Any:  # noqa: ANN401 - decoded JSON
    network = view.container("networks").get(part.get("network", ""))
    return network.get("name") if network is not None else None


_EACH: Final = "List containing each network interface's "

_INTERFACE_PARTS: Final = (
    ("bridge", "bridges", "Bridge", "Bridge", f"{_EACH}bridge", _filled_in_mode("link", "bridged")),
    ("ip", "ips", "IP", "IP address", f"{_EACH}IP address", _own("ip")),
    ("link", "links", "Link", "Link", f"{_EACH}link", _filled("link")),
    ("mac", "macs", "MAC", "MAC address", f"{_EACH}MAC address", _own("mac")),
    ("mode", "modes", "Mode", "Mode", f"{_EACH}mode", _filled("mode")),
    ("name", "names", "Name", "Name address", f"{_EACH}name", _own("name")),
    (
        "network",
        "networks",
        "Network",
        "Network",
        "List containing each interface's network",
        _own("network"),
    ),
    (
        "network.name",
        "networks.names",
        "NetworkName",
        "Network name",
        "List containing the name of each interface's network",
        _network_name,
    ),
    ("uuid", "uuids", "UUID", "UUID address", f"{_EACH}UUID", _own("uuid")),
    ("vlan", "vlans", "VLAN", "VLAN", f"{_EACH}VLAN", _filled_in_mode("vlan", "openvswitch")),
)

_INTERFACE_LIST_TITLES: Final = {
    "ips": "NIC_IPs",
    "macs": "NIC_MACs",
    "names": "NIC_Names",
    "networks.names": "NIC_networks_names",
    "uuids": "NIC_UUIDs",
    "vlans": "NIC_VLANs",
}

_INTERFACE_ALIASES: Final = {
    "nic.ip/0": "ip",
    "nic.mac/0": "mac",
    "nic.bridge/0": "bridge",
    "nic.mode/0": "nic_mode",
    "nic.link/0": "nic_link",
    "nic.network/0": "nic_network",
}


def interface_fields() -> Iterator[Field[ClusterView]]:
    """The fields of all network interfaces together, and of the first ones."""
    yield field(
        "nic.count",
        "NICs",
        FieldKind.NUMBER,
        "Number of network interfaces",
        lambda _view, instance: normal(len(instance.get("nics") or ())),
    )
    for key, listed, title, doc, list_doc, get in _INTERFACE_PARTS:
        list_title = _INTERFACE_LIST_TITLES.get(listed, f"NIC_{listed}")
        yield field(
            f"nic.{listed}", list_title, FieldKind.OTHER, list_doc, _all_of(_interfaces, get)
        )
        for place in range(INTERFACES_MAX):
            name = f"nic.{key}/{place}"
            one = field(
                name,
                f"Nic{title}/{place}",
                FieldKind.TEXT,
                f"{doc} of {_ordinal(place + 1)} network interface",
                _one_of(_interfaces, get, place),
            )
            yield one
            if name in _INTERFACE_ALIASES:
                yield alias(_INTERFACE_ALIASES[name], one)


def _interfaces(_view: ClusterView, instance: Object) -> Sequence[Object]:
    found: Sequence[Object] = instance.get("nics") or ()
    return found


# ---------------------------------------------------------------- one or all of a kind

_Parts = Callable[[ClusterView, Object], Sequence[Object]]


def _all_of(parts: _Parts, get: PartGetter) -> Getter:
    return lambda view, instance: normal([get(view, part) for part in parts(view, instance)])


def _one_of(parts: _Parts, get: PartGetter, place: int) -> Getter:
    def answer(view: ClusterView, instance: Object) -> Answer:
        found = parts(view, instance)
        return or_unavailable(get(view, found[place])) if place < len(found) else UNAVAILABLE

    return answer


def _ordinal(number: int) -> str:
    """The number as a word of order.

    >>> [_ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13)]
    ['1st', '2nd', '3rd', '4th', '11th', '12th', '13th']
    """
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{endings.get(number, 'th')}"
