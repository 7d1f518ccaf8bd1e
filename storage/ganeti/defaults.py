"""What a cluster has that does not say otherwise, as Ganeti fills it in when it reads one.

Ganger stores nothing of this. A new data directory has a cluster with a name and hardly more, and
an older one of Ganeti lacks what was added since; queries show both as Ganeti's tools expect them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from . import parameters

_SMALLEST: Final = {
    "cpu-count": 1,
    "disk-count": 1,
    "disk-size": 1024,
    "memory-size": 128,
    "nic-count": 1,
    "spindle-use": 1,
}
_LARGEST: Final = {
    "cpu-count": 8,
    "disk-count": 16,
    "disk-size": 1024 * 1024,
    "memory-size": 32 * 1024,
    "nic-count": 8,
    "spindle-use": 12,
}

_FLAT: Final[Mapping[str, Any]] = {
    "os_hvp": {},
    "osparams": {},
    "hidden_os": [],
    "blacklisted_os": [],
    "enabled_hypervisors": [],
    "enabled_disk_templates": [],
    "reserved_lvs": [],
    "uid_pool": [],
    "tags": [],
    "default_iallocator": "",
    "default_iallocator_params": {},
    "use_external_mip_script": False,
    "maintain_node_health": False,
    "prealloc_wipe_disks": False,
    "file_storage_dir": "",
    "shared_file_storage_dir": "",
    "gluster_storage_dir": "",
    "install_image": "",
    "instance_communication_network": "",
    "zeroing_image": "",
    "compression_tools": ["gzip", "gzip-fast", "gzip-slow"],
    "enabled_user_shutdown": False,
    "modify_ssh_setup": False,
    "ssh_key_type": "rsa",
    "ssh_key_bits": 2048,
}
"""Values that hold as a whole, unless the cluster has its own."""

_BACKEND: Final = {
    "always_failover": False,
    "auto_balance": True,
    "maxmem": 128,
    "minmem": 128,
    "spindle_use": 1,
    "vcpus": 1,
}
INTERFACE: Final = {"link": "xen-br0", "mode": "bridged", "vlan": ""}

_NESTED: Final[Mapping[str, Any]] = {
    "ndparams": {
        "cpu_speed": 1,
        "exclusive_storage": False,
        "oob_program": "",
        "ovs": False,
        "ovs_link": "",
        "ovs_name": "switch1",
        "spindle_count": 1,
        "ssh_port": 22,
    },
    "diskparams": {
        "blockdev": {},
        "diskless": {},
        "drbd": {
            "c-delay-target": 1,
            "c-fill-target": 0,
            "c-max-rate": 60 * 1024,
            "c-min-rate": 4 * 1024,
            "c-plan-ahead": 20,
            "data-stripes": 1,
            "disk-barriers": "n",
            "disk-custom": "",
            "dynamic-resync": False,
            "meta-barriers": False,
            "meta-stripes": 1,
            "metavg": "xenvg",
            "net-custom": "",
            "protocol": "C",
            "resync-rate": 60 * 1024,
        },
        "ext": {"access": "kernelspace"},
        "file": {},
        "gluster": {
            "access": "kernelspace",
            "host": "127.0.0.1",
            "port": 24007,
            "volume": "gv0",
        },
        "plain": {"stripes": 1},
        "rbd": {"access": "kernelspace", "pool": "rbd"},
        "sharedfile": {},
    },
    "ipolicy": {
        "disk-templates": [
            "blockdev",
            "diskless",
            "drbd",
            "ext",
            "file",
            "gluster",
            "plain",
            "rbd",
            "sharedfile",
        ],
        "minmax": [{"max": _LARGEST, "min": _SMALLEST}],
        "spindle-ratio": 32,
        "std": _SMALLEST,
        "vcpu-ratio": 4,
    },
}
"""Values of which a cluster may have a part of its own."""


def with_defaults(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster with a value for all that Ganeti fills. Its parts must not be changed."""
    own = {name: value for name, value in cluster.items() if value is not None}
    return {
        **cluster,
        **_FLAT,
        **own,
        "ndparams": parameters.node_parameters(_NESTED, cluster, None),
        "diskparams": parameters.disk_parameters(_NESTED, cluster),
        "ipolicy": parameters.instance_policy(_NESTED, cluster),
        "beparams": _with_default_group(cluster.get("beparams"), _BACKEND),
        "nicparams": _with_default_group(cluster.get("nicparams"), INTERFACE),
    }


def _with_default_group(groups: object, defaults: Mapping[str, Any]) -> dict[str, Any]:
    own = groups if isinstance(groups, dict) else {}
    default = own.get("default")
    return {**own, "default": {**defaults, **(default if isinstance(default, dict) else {})}}
