"""Valid configurations of any size, for tests and benchmarks. The same arguments, the same one."""

from __future__ import annotations

import ipaddress
from typing import Any

TIME = 1_795_225_460.856_607_2

INSTANCES = {"100 KB": 60, "1 MB": 635, "5 MB": 3_180}
"""Instances of `made_configuration` for about these sizes as JSON."""

_SPEC = {
    "memory-size": 128, "disk-size": 1024, "disk-count": 1,
    "cpu-count": 1, "nic-count": 1, "spindle-use": 1,
}  # fmt: skip


def uuid_of(kind: str, number: int) -> str:
    """The UUID of the object of this kind and number."""
    kinds = ("cluster", "nodes", "nodegroups", "instances", "networks", "disks", "nics", "parts")
    return f"{kinds.index(kind):08x}-0000-4000-8000-{number:012x}"


def made_configuration(
    nodes: int = 4, instances: int = 10, *, groups: int = 2, networks: int = 1
) -> dict[str, Any]:
    """A decoded ``config.data``: nodes in groups; instances with a DRBD or plain disk and a NIC."""
    assert nodes >= 2
    return {
        "version": 3_000_000,
        "cluster": _cluster(nodes, instances),
        "nodes": _by_uuid(_node(number, groups) for number in range(nodes)),
        "nodegroups": _by_uuid(_group(number, networks) for number in range(groups)),
        "instances": _by_uuid(_instance(number, nodes, networks) for number in range(instances)),
        "networks": _by_uuid(_network(number) for number in range(networks)),
        "disks": _by_uuid(_disk(number, nodes) for number in range(instances)),
        "filters": {},
        "ctime": TIME,
        "mtime": TIME,
        "serial_no": 7,
    }


def sized_configuration(size: str) -> dict[str, Any]:
    """A configuration of about this size: a key of `INSTANCES`."""
    instances = INSTANCES[size]
    return made_configuration(
        max(2, instances // 20), instances, groups=1 + instances // 500, networks=4
    )


def _by_uuid(objects: Any) -> dict[str, dict[str, Any]]:
    return {made["uuid"]: made for made in objects}


def _stamps(kind: str, number: int) -> dict[str, Any]:
    uuid = uuid_of(kind, number)
    return {"ctime": TIME, "mtime": TIME + number, "uuid": uuid, "serial_no": 1, "tags": []}


def _cluster(nodes: int, instances: int) -> dict[str, Any]:
    return {
        "rsahostkeypub": "AAAAB3NzaC1yc2E",
        "highest_used_port": 11_000 + 2 * instances,
        "tcpudp_port_pool": [10_999],
        "mac_prefix": "aa:00:00",
        "volume_group_name": "xenvg",
        "reserved_lvs": [],
        "master_node": uuid_of("nodes", 0),
        "master_ip": "192.0.2.1",
        "master_netdev": "eth0",
        "master_netmask": 32,
        "use_external_mip_script": False,
        "cluster_name": "cluster.example.com",
        "enabled_hypervisors": ["kvm", "fake"],
        "hvparams": {
            "kvm": {"kernel_path": "/boot/vmlinuz", "acpi": True, "vnc_password_file": "/etc/vnc"},
            "fake": {"migration_mode": "live"},
        },
        "os_hvp": {},
        "beparams": {"default": {"minmem": 128, "maxmem": 128, "vcpus": 1, "auto_balance": True}},
        "osparams": {},
        "osparams_private_cluster": {"debian": {"root_password": "hunter2"}},
        "nicparams": {"default": {"mode": "bridged", "link": "br0", "vlan": ""}},
        "ndparams": {"ssh_port": 22, "spindle_count": 1, "cpu_speed": 1},
        "diskparams": {"drbd": {"resync-rate": 61_440}, "plain": {"stripes": 1}},
        "candidate_pool_size": min(10, nodes),
        "uid_pool": [[1000, 1010]],
        "primary_ip_family": 2,
        "ipolicy": {
            "minmax": [{"min": {**_SPEC}, "max": {**_SPEC, "memory-size": 32_768}}],
            "std": {**_SPEC},
            "spindle-ratio": 32,
            "vcpu-ratio": 4,
            "disk-templates": ["drbd", "plain"],
        },
        "enabled_disk_templates": ["drbd", "plain"],
        "candidate_certs": {},
        "max_running_jobs": 20,
        "max_tracked_jobs": 25,
        **_stamps("cluster", 0),
    }


def _node(number: int, groups: int) -> dict[str, Any]:
    return {
        "name": f"node{number}.example.com",
        "primary_ip": str(ipaddress.IPv4Address("10.0.0.0") + number + 1),
        "secondary_ip": str(ipaddress.IPv4Address("10.64.0.0") + number + 1),
        "master_candidate": number < 10,
        "offline": False,
        "drained": False,
        "group": uuid_of("nodegroups", number % groups),
        "master_capable": True,
        "vm_capable": True,
        "ndparams": {},
        "powered": True,
        **_stamps("nodes", number),
    }


def _group(number: int, networks: int) -> dict[str, Any]:
    connection = {"mode": "bridged", "link": "br0", "vlan": ""}
    return {
        "name": f"group{number}",
        "members": [],
        "ndparams": {},
        "alloc_policy": "preferred",
        "ipolicy": {},
        "diskparams": {},
        "networks": {uuid_of("networks", network): connection for network in range(networks)},
        **_stamps("nodegroups", number),
    }


def _instance(number: int, nodes: int, networks: int) -> dict[str, Any]:
    network = number % networks
    address = ipaddress.IPv4Address("10.128.0.0") + (network << 16) + number // networks + 10
    nic = {
        "mac": "aa:00:00:" + ":".join(f"{byte:02x}" for byte in number.to_bytes(3, "big")),
        "ip": str(address),
        "nicparams": {"mode": "bridged", "link": "br0", "vlan": ""},
        "network": uuid_of("networks", network),
        "uuid": uuid_of("nics", number),
    }
    return {
        "name": f"instance{number}.example.com",
        "primary_node": uuid_of("nodes", number % nodes),
        "os": "debian+default",
        "hypervisor": "kvm",
        "hvparams": {},
        "beparams": {"minmem": 128, "maxmem": 256, "vcpus": 2},
        "osparams": {"size": "small"},
        "osparams_private": {"password": f"secret-{number}"},
        "admin_state": "up",
        "admin_state_source": "admin",
        "nics": [nic],
        "disks": [uuid_of("disks", number)],
        "disks_active": True,
        "network_port": 11_000 + 2 * number,
        **_stamps("instances", number),
        "tags": ["web", f"customer:{number}"],
    }


def _network(number: int) -> dict[str, Any]:
    return {
        "name": f"network{number}",
        "network": f"10.{128 + number}.0.0/24",
        "gateway": f"10.{128 + number}.0.1",
        "reservations": "0" * 256,
        "ext_reservations": "1" + "0" * 253 + "11",
        "uuid": uuid_of("networks", number),
        "ctime": TIME,
        "mtime": TIME,
        "serial_no": 1,
        "tags": [],
    }


def _disk(number: int, nodes: int) -> dict[str, Any]:
    """DRBD for every even number, plain for the odd ones."""
    if number % 2:
        return _disk_part(number, "disks", number, [uuid_of("nodes", number % nodes)])
    pair = [uuid_of("nodes", number % nodes), uuid_of("nodes", (number + 1) % nodes)]
    children = [_disk_part(2 * number + part, "parts", number, pair) for part in range(2)]
    secret = f"{number:040x}"
    return {
        **_disk_part(number, "disks", number, pair),
        "logical_id": [*pair, 11_001 + 2 * number, number, number, secret],
        "dev_type": "drbd",
        "children": children,
    }


def _disk_part(number: int, kind: str, disk: int, nodes: list[str]) -> dict[str, Any]:
    return {
        "logical_id": ["xenvg", f"{kind}-{number}.disk0"],
        "dev_type": "plain",
        "children": [],
        "nodes": nodes,
        "iv_name": "disk/0",
        "size": 1024,
        "mode": "rw",
        "params": {},
        "uuid": uuid_of(kind, number),
        "serial_no": 1,
        "ctime": TIME + disk,
        "mtime": TIME + disk,
    }
