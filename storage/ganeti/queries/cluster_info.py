"""What describes the cluster as a whole: the result of LUXI's ``QueryClusterInfo``.

That is the result of ``OP_CLUSTER_QUERY``, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from .cluster import EXPORT_VERSION, OS_API_VERSION
from .cluster_view import ClusterView

_IPV6_FAMILY: Final = 10
_NOTHING: Final[dict[str, Any]] = {}

_BEFORE: Final = (
    "beparams",
    "osparams",
    "ipolicy",
    "nicparams",
    "ndparams",
    "diskparams",
    "candidate_pool_size",
    "max_running_jobs",
    "max_tracked_jobs",
    "mac_prefix",
    "master_netdev",
    "master_netmask",
    "use_external_mip_script",
    "volume_group_name",
    "drbd_usermode_helper",
    "file_storage_dir",
    "shared_file_storage_dir",
    "gluster_storage_dir",
    "maintain_node_health",
    "ctime",
    "mtime",
    "uuid",
    "tags",
    "uid_pool",
    "default_iallocator",
    "default_iallocator_params",
    "reserved_lvs",
)
_BETWEEN: Final = (
    "prealloc_wipe_disks",
    "hidden_os",
    "blacklisted_os",
    "enabled_disk_templates",
    "install_image",
    "instance_communication_network",
    "zeroing_image",
    "compression_tools",
    "enabled_user_shutdown",
)
_AFTER: Final = ["modify_ssh_setup", "ssh_key_type", "ssh_key_bits"]
"""Fields of the cluster that are shown as they are; null if they are unset."""


def cluster_info(view: ClusterView) -> dict[str, Any]:
    """The description of the cluster, with keys and values as in Ganeti.

    What the configuration does not hold (the versions of the software, the architecture) comes from
    what the view's maker knows; null if it does not.
    """
    cluster = view.cluster
    enabled = cluster.get("enabled_hypervisors") or ()
    collectors = cluster.get("data_collectors") or _NOTHING
    return {
        "software_version": view.known.get("software_version"),
        "protocol_version": view.version,
        "config_version": view.version,
        "os_api_version": OS_API_VERSION,
        "export_version": EXPORT_VERSION,
        "vcs_version": view.known.get("vcs_version"),
        "architecture": view.known.get("architecture"),
        "name": cluster.get("cluster_name"),
        "master": view.master_name,
        "default_hypervisor": enabled[0] if enabled else None,
        "enabled_hypervisors": list(enabled),
        "hvparams": cluster.get("hvparams") or {},
        "os_hvp": _of_enabled(cluster.get("os_hvp") or _NOTHING, enabled),
        **{name: cluster.get(name) for name in _BEFORE},
        "primary_ip_version": 6 if cluster.get("primary_ip_family") == _IPV6_FAMILY else 4,
        **{name: cluster.get(name) for name in _BETWEEN},
        "enabled_data_collectors": {
            name: collector.get("active") for name, collector in collectors.items()
        },
        "data_collector_interval": {
            name: collector.get("interval") for name, collector in collectors.items()
        },
        **{name: cluster.get(name) for name in _AFTER},
    }


def _of_enabled(
    systems: dict[str, dict[str, Any]], enabled: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The hypervisor parameters of operating systems, for the enabled hypervisors."""
    return {
        name: {one: found for one, found in hypervisors.items() if one in enabled}
        for name, hypervisors in systems.items()
    }
