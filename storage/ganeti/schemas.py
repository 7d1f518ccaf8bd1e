"""The schemas of the objects in ``config.data``.

The structures here hold no data: they give each field's type, and their order is the order in which
Ganeti writes the fields.

Source: Ganeti 3.0's ``config.data``, and "Ganeti design: disk and instance reservation" for
``forthcoming``.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from ..cluster.objects import Count, ObjectKind, PredictiveQueue
from ..disk.disk_parts import DiskLimits

Hypervisor = Literal["chroot", "fake", "kvm", "lxc", "xen-hvm", "xen-pvm"]
DiskTemplate = Literal[
    "blockdev", "diskless", "drbd", "ext", "file", "gluster", "plain", "rbd", "sharedfile"
]
Name = Annotated[str, msgspec.Meta(min_length=1)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65_535)]
Parameters: TypeAlias = dict[str, Any]


class NicParameters(msgspec.Struct, kw_only=True):
    """How a network interface is attached; an absent field has the cluster's default."""

    mode: str | None = None
    link: str | None = None
    vlan: str | None = None


class NodeParameters(msgspec.Struct, kw_only=True):
    """Parameters of nodes; an absent field has the default of the group or the cluster."""

    oob_program: str | None = None
    spindle_count: int | None = None
    exclusive_storage: bool | None = None
    ovs: bool | None = None
    ovs_name: str | None = None
    ovs_link: str | None = None
    ssh_port: int | None = None
    cpu_speed: float | None = None


class BackendParameters(msgspec.Struct, kw_only=True):
    """Parameters of instances, memory in MiB; an absent field has the cluster's default."""

    minmem: int | None = None
    maxmem: int | None = None
    vcpus: int | None = None
    auto_balance: bool | None = None
    always_failover: bool | None = None
    spindle_use: int | None = None


class InstanceSpec(msgspec.Struct, kw_only=True, rename="kebab"):
    """The sizes of an instance, memory and disks in MiB."""

    memory_size: int | None = None
    disk_size: int | None = None
    disk_count: int | None = None
    cpu_count: int | None = None
    nic_count: int | None = None
    spindle_use: int | None = None


class SpecBounds(msgspec.Struct, kw_only=True):
    """The smallest and the largest instance that a policy lets in."""

    min: InstanceSpec
    max: InstanceSpec


class InstancePolicy(msgspec.Struct, kw_only=True, rename="kebab"):
    """Which instances the cluster or a group takes; a group has only what differs."""

    minmax: list[SpecBounds] | None = None
    std: InstanceSpec | None = None
    spindle_ratio: float | None = None
    vcpu_ratio: float | None = None
    disk_templates: list[DiskTemplate] | None = None


class DataCollector(msgspec.Struct, kw_only=True):
    """Whether a collector of the monitoring daemon runs, and each how many microseconds."""

    active: bool
    interval: float


class Cluster(msgspec.Struct, kw_only=True):
    """What holds for the whole cluster."""

    rsahostkeypub: str | None = None
    dsahostkeypub: str | None = None
    highest_used_port: Count
    tcpudp_port_pool: list[Port]
    mac_prefix: str
    volume_group_name: str | None = None
    reserved_lvs: list[str] | None = None
    drbd_usermode_helper: str | None = None
    master_node: str
    master_ip: str
    master_netdev: str
    master_netmask: Count
    use_external_mip_script: bool | None = None
    cluster_name: Name
    file_storage_dir: str | None = None
    shared_file_storage_dir: str | None = None
    gluster_storage_dir: str | None = None
    enabled_hypervisors: list[Hypervisor]
    hvparams: dict[str, Parameters]
    os_hvp: dict[str, dict[str, Parameters]] | None = None
    beparams: dict[str, BackendParameters]
    osparams: dict[str, Parameters] | None = None
    osparams_private_cluster: dict[str, Parameters] | None = None
    nicparams: dict[str, NicParameters]
    ndparams: NodeParameters
    diskparams: dict[DiskTemplate, Parameters] | None = None
    candidate_pool_size: Annotated[int, msgspec.Meta(ge=1)]
    modify_etc_hosts: bool | None = None
    modify_ssh_setup: bool | None = None
    maintain_node_health: bool | None = None
    uid_pool: list[tuple[int, int]] | None = None
    default_iallocator: str | None = None
    default_iallocator_params: Parameters | None = None
    hidden_os: list[str] | None = None
    blacklisted_os: list[str] | None = None
    primary_ip_family: Literal[2, 10] | None = None
    prealloc_wipe_disks: bool | None = None
    ipolicy: InstancePolicy
    hv_state_static: dict[str, Any] | None = None
    disk_state_static: dict[str, Any] | None = None
    enabled_disk_templates: list[DiskTemplate]
    candidate_certs: dict[str, str] | None = None
    max_running_jobs: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_tracked_jobs: Annotated[int, msgspec.Meta(ge=1)] | None = None
    install_image: str | None = None
    instance_communication_network: str | None = None
    zeroing_image: str | None = None
    compression_tools: list[str] | None = None
    enabled_user_shutdown: bool | None = None
    data_collectors: dict[str, DataCollector] | None = None
    ssh_key_type: Literal["rsa", "dsa", "ecdsa"] | None = None
    ssh_key_bits: int | None = None
    enabled_predictive_queue: bool | None = None
    predictive_queue: PredictiveQueue | None = None
    disk_limits: DiskLimits | None = None
    ctime: float
    mtime: float
    uuid: Name
    serial_no: Count
    tags: list[str]


class Node(msgspec.Struct, kw_only=True):
    """A machine of the cluster."""

    name: Name
    primary_ip: str
    secondary_ip: str
    master_candidate: bool
    offline: bool
    drained: bool
    group: Name
    master_capable: bool
    vm_capable: bool
    ndparams: NodeParameters
    powered: bool
    hv_state_static: dict[str, Any] | None = None
    disk_state_static: dict[str, Any] | None = None
    ctime: float
    mtime: float
    uuid: Name
    serial_no: Count
    tags: list[str]


class NodeGroup(msgspec.Struct, kw_only=True):
    """Nodes that share a network and a policy."""

    name: Name
    members: list[str] | None = None
    ndparams: NodeParameters
    alloc_policy: Literal["preferred", "last_resort", "unallocable"]
    ipolicy: InstancePolicy
    diskparams: dict[DiskTemplate, Parameters]
    networks: dict[str, NicParameters]
    hv_state_static: dict[str, Any] | None = None
    disk_state_static: dict[str, Any] | None = None
    ctime: float
    mtime: float
    uuid: Name
    serial_no: Count
    tags: list[str]


class Nic(msgspec.Struct, kw_only=True):
    """A network interface of an instance."""

    mac: Name
    ip: str | None = None
    nicparams: NicParameters
    network: str | None = None
    name: str | None = None
    uuid: Name


class Instance(msgspec.Struct, kw_only=True):
    """A virtual machine, or one that is only reserved (``forthcoming``)."""

    name: Name
    primary_node: Name
    os: str
    hypervisor: Hypervisor
    hvparams: Parameters
    beparams: BackendParameters
    osparams: Parameters
    osparams_private: Parameters
    admin_state: Literal["up", "down", "offline"]
    admin_state_source: Literal["admin", "user"]
    nics: list[Nic]
    disks: list[str]
    disks_active: bool
    network_port: Port | None = None
    ctime: float
    mtime: float
    uuid: Name
    serial_no: Count
    tags: list[str]
    forthcoming: bool | None = None


class Disk(msgspec.Struct, kw_only=True):
    """A disk of an instance, or a part of one (DRBD), its size in MiB."""

    logical_id: list[Any]
    dev_type: DiskTemplate
    children: list[Disk]
    nodes: list[str]
    iv_name: str
    size: Count
    mode: Literal["rw", "ro"]
    name: str | None = None
    spindles: int | None = None
    params: Parameters | None = None
    uuid: Name
    serial_no: Count
    ctime: float
    mtime: float
    forthcoming: bool | None = None


class Network(msgspec.Struct, kw_only=True):
    """An IP network; a reservation is a string of 0 and 1, one for each address."""

    name: Name
    mac_prefix: str | None = None
    network: Name
    network6: str | None = None
    gateway: str | None = None
    gateway6: str | None = None
    reservations: str | None = None
    ext_reservations: str | None = None
    uuid: Name
    ctime: float
    mtime: float
    serial_no: Count
    tags: list[str]


SCHEMAS: Final[dict[ObjectKind, type[msgspec.Struct]]] = {
    ObjectKind.CLUSTER: Cluster,
    ObjectKind.NODE: Node,
    ObjectKind.NODE_GROUP: NodeGroup,
    ObjectKind.INSTANCE: Instance,
    ObjectKind.NETWORK: Network,
    ObjectKind.DISK: Disk,
}
