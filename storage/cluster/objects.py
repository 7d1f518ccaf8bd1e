"""The schema of the objects in ``config.data``, to check plain dictionaries with it.

The configuration keeps its objects as decoded JSON, so unknown fields survive and absent ones stay
absent. The structures here hold no data: they give each field's type, and their order is the order
in which Ganeti writes the fields. Filter rules have their own module, ``storage/filters/rules``.

Source: Ganeti 3.0's ``config.data``, and "Ganeti design: disk and instance reservation" for
``forthcoming``.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from ..wording import type_name

Object: TypeAlias = Mapping[str, Any]
"""One object of the configuration: decoded JSON. Its owner copies it before a change."""


class ObjectKind(enum.StrEnum):
    """What an object is. The value is its key at the top of ``config.data``."""

    CLUSTER = "cluster"
    NODE = "nodes"
    NODE_GROUP = "nodegroups"
    INSTANCE = "instances"
    NETWORK = "networks"
    DISK = "disks"
    FILTER = "filters"


CONTAINERS: Final = tuple(kind for kind in ObjectKind if kind is not ObjectKind.CLUSTER)
"""The kinds of which there may be many: each has a container, from UUIDs to objects."""

Hypervisor = Literal["chroot", "fake", "kvm", "lxc", "xen-hvm", "xen-pvm"]
DiskTemplate = Literal[
    "blockdev", "diskless", "drbd", "ext", "file", "gluster", "plain", "rbd", "sharedfile"
]
Name = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
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


Cost = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]


class PredictiveCosts(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What waiting for locks costs in the predictive queue; an absent one has its default."""

    free: Cost | None = None
    spare_shared: Cost | None = None
    spare_exclusive: Cost | None = None
    may_block: Cost | None = None
    blocks: Cost | None = None


class PredictiveQueue(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Parameters of the predictive queue (`storage/prediction/policy`). Ganeti has none of them."""

    holds_back: bool | None = None
    all_opcodes: bool | None = None
    tick_seconds: Annotated[float, msgspec.Meta(gt=0, le=3_600)] | None = None
    ticks: Annotated[float, msgspec.Meta(gt=0, le=1_000)] | None = None
    base: Cost | None = None
    costs: PredictiveCosts | None = None


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


class Top(msgspec.Struct, kw_only=True):
    """What stands in ``config.data`` beside the cluster and the containers."""

    version: int
    ctime: float
    mtime: float
    serial_no: Count


SCHEMAS: Final[dict[ObjectKind, type[msgspec.Struct]]] = {
    ObjectKind.CLUSTER: Cluster,
    ObjectKind.NODE: Node,
    ObjectKind.NODE_GROUP: NodeGroup,
    ObjectKind.INSTANCE: Instance,
    ObjectKind.NETWORK: Network,
    ObjectKind.DISK: Disk,
}


def _without_required(schema: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The same fields, all of which may be absent."""
    fields = [(field.name, field.type | None, None) for field in msgspec.structs.fields(schema)]
    return msgspec.defstruct(f"Partial{schema.__name__}", fields, kw_only=True)


_PARTIAL: Final = {
    kind: _without_required(SCHEMAS[kind])
    for kind in (ObjectKind.CLUSTER, ObjectKind.INSTANCE, ObjectKind.DISK)
}

_FIELDS: Final = {
    kind: tuple(field.encode_name for field in msgspec.structs.fields(schema))
    for kind, schema in SCHEMAS.items()
}

_PLACE = re.compile(r"(.*) - at `(?:key` in `)?\$(.*)`", re.DOTALL)


def place_of(kind: ObjectKind, uuid: str) -> str:
    """How errors and paths name an object: ``nodes/<uuid>``, or ``cluster``."""
    return kind.value if kind is ObjectKind.CLUSTER else f"{kind}/{uuid}"


def schema_problem(kind: ObjectKind, uuid: str, found: object) -> str | None:
    """What is wrong with the fields of an object, in one line with its path; None if nothing is.

    Gives the first of several problems. Looks at no other object: references and uniqueness are
    checked elsewhere (`integrity`). Most fields of a forthcoming object may be absent, and of a
    cluster that was not set up yet.
    """
    place = place_of(kind, uuid)
    if not isinstance(found, dict):
        return f"{place}: expected an object, got {type_name(found)}"
    schema = _PARTIAL[kind] if _is_partial(kind, found) else SCHEMAS.get(kind)
    return None if schema is None else _mismatch(found, schema, place)


def top_problem(top: Object) -> str | None:
    """What is wrong with the fields at the top of ``config.data``; None if nothing is."""
    return _mismatch(dict(top), Top, "")


def in_order(kind: ObjectKind, found: Object) -> dict[str, Any]:
    """The object with its fields in Ganeti's order; fields that Ganeti does not know come last."""
    known = _FIELDS.get(kind, ())
    ordered = {name: found[name] for name in known if name in found}
    return ordered | {name: value for name, value in found.items() if name not in ordered}


def _is_partial(kind: ObjectKind, found: Object) -> bool:
    if kind is ObjectKind.CLUSTER:
        return "master_node" not in found
    return kind in _PARTIAL and found.get("forthcoming") is True


def _mismatch(found: object, schema: type[msgspec.Struct], place: str) -> str | None:
    try:
        msgspec.convert(found, schema)
    except msgspec.ValidationError as error:
        return worded(place, str(error))
    return None


def worded(place: str, text: str) -> str:
    """The text of msgspec as one line that begins with the path of the field."""
    match = _PLACE.fullmatch(text)
    problem, path = match.groups() if match else (text, "")
    problem = problem.replace("`", "")
    where = f"{place}{path}".lstrip(".") or "top"
    return f"{where}: {problem[0].lower()}{problem[1:]}"
