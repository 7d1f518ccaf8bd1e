"""Each rule of integrity: an edit of a good configuration that breaks it, and the problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.clusters import uuid_of

from ganger.storage.ganeti.tags import TAGS_MAX

MASTER = uuid_of("cluster", 0)
NODE, NODE1, NODE2 = (uuid_of("nodes", number) for number in range(3))
INSTANCE, INSTANCE1 = (uuid_of("instances", number) for number in range(2))
NIC, NIC1 = (uuid_of("nics", number) for number in range(2))
DISK, DISK1, DISK2 = (uuid_of("disks", number) for number in range(3))
PART = uuid_of("parts", 0)
GROUP, GROUP1, NETWORK = uuid_of("nodegroups", 0), uuid_of("nodegroups", 1), uuid_of("networks", 0)

Edit = Callable[[dict[str, Any]], None]
"""Changes a document."""


def setting(path: str, value: Any) -> Edit:
    """Sets the value at this path: keys with slashes between them."""

    def edit(document: dict[str, Any]) -> None:
        *steps, last = (int(step) if step.isdecimal() else step for step in path.split("/"))
        part: Any = document
        for step in steps:
            part = part[step]
        part[last] = value

    return edit


def removing(path: str) -> Edit:
    def edit(document: dict[str, Any]) -> None:
        container, uuid = path.split("/")
        del document[container][uuid]

    return edit


IN_USE = "is in use by"


def disputed(what: str, one: str, other: str) -> list[str]:
    """The problems of two places that claim the same."""
    return [f"{one}: {what} {IN_USE} {other}", f"{other}: {what} {IN_USE} {one}"]


AT_NODE, AT_NODE1 = f"nodes/{NODE}", f"nodes/{NODE1}"
AT_GROUP, AT_GROUP1 = f"nodegroups/{GROUP}", f"nodegroups/{GROUP1}"
AT_INSTANCE, AT_INSTANCE1 = f"instances/{INSTANCE}", f"instances/{INSTANCE1}"
AT_NIC, AT_NIC1 = f"{AT_INSTANCE}.nics[{NIC}]", f"{AT_INSTANCE1}.nics[{NIC1}]"
AT_DISK, AT_DISK1 = f"disks/{DISK}", f"disks/{DISK1}"
FEW = "cluster.candidate_pool_size: expected 4 master candidates, got 3; more nodes could be one"
BEYOND = "is above cluster.highest_used_port"

RULES: list[tuple[str, Edit, list[str]]] = [
    (
        "two nodes of one name",
        setting(f"{AT_NODE1}/name", "node0.example.com"),
        disputed("name of a node node0.example.com", f"{AT_NODE}.name", f"{AT_NODE1}.name"),
    ),
    (
        "two groups of one name",
        setting(f"{AT_GROUP1}/name", "group0"),
        disputed("name of a node group group0", f"{AT_GROUP}.name", f"{AT_GROUP1}.name"),
    ),
    (
        "an instance with the name of all locks",
        setting(f"{AT_INSTANCE}/name", "*"),
        [f"{AT_INSTANCE}.name: '*' stands for all locks of a level"],
    ),
    (
        "a group with the UUID of all locks",
        lambda document: document["nodegroups"].update(
            {"[lockset]": {**document["nodegroups"][GROUP], "uuid": "[lockset]", "name": "new"}}
        ),
        ["nodegroups/[lockset].uuid: '[lockset]' stands for all locks of a level"],
    ),
    (
        "two instances of one name",
        setting(f"{AT_INSTANCE1}/name", "instance0.example.com"),
        disputed(
            "name of an instance instance0.example.com",
            f"{AT_INSTANCE}.name",
            f"{AT_INSTANCE1}.name",
        ),
    ),
    (
        "a node with the address of another one",
        setting(f"{AT_NODE1}/secondary_ip", "10.0.0.1"),
        disputed("IP address 10.0.0.1", f"{AT_NODE}.primary_ip", f"{AT_NODE1}.secondary_ip"),
    ),
    (
        "the cluster with the address of a node",
        setting("cluster/master_ip", "10.0.0.1"),
        disputed("IP address 10.0.0.1", "cluster.master_ip", f"{AT_NODE}.primary_ip"),
    ),
    (
        "two interfaces with one MAC, in other letters",
        setting(f"{AT_INSTANCE1}/nics/0/mac", "AA:00:00:00:00:00"),
        disputed("MAC address aa:00:00:00:00:00", f"{AT_NIC}.mac", f"{AT_NIC1}.mac"),
    ),
    (
        "one address twice in a network",
        setting(f"{AT_INSTANCE1}/nics/0/ip", "10.128.0.10"),
        disputed(f"IP address 10.128.0.10 in network {NETWORK}", f"{AT_NIC}.ip", f"{AT_NIC1}.ip"),
    ),
    (
        "an instance with the port of a disk",
        setting(f"{AT_INSTANCE}/network_port", 11_001),
        disputed("port 11001", f"{AT_DISK}.logical_id[2]", f"{AT_INSTANCE}.network_port"),
    ),
    (
        "a used port in the pool of free ones",
        setting("cluster/tcpudp_port_pool", [11_000]),
        disputed("port 11000", "cluster.tcpudp_port_pool[11000]", f"{AT_INSTANCE}.network_port"),
    ),
    (
        "one free port twice",
        setting("cluster/tcpudp_port_pool", [10_999, 10_999]),
        ["cluster.tcpudp_port_pool[10999]: port 10999 is twice here"],
    ),
    (
        "a port above the highest one",
        setting(f"{AT_INSTANCE}/network_port", 12_000),
        [f"{AT_INSTANCE}.network_port: port 12000 {BEYOND} (11020)"],
    ),
    (
        "a highest port below those in use",
        setting("cluster/highest_used_port", 11_016),
        [
            f"disks/{uuid_of('disks', 8)}.logical_id[2]: port 11017 {BEYOND} (11016)",
            f"instances/{uuid_of('instances', 9)}.network_port: port 11018 {BEYOND} (11016)",
        ],
    ),
    (
        "one minor number twice on a node",
        # Disk 0 has the minor number 0 on node 0.
        setting(f"disks/{DISK2}/logical_id", [NODE, NODE2, 11_005, 0, 2, "secret"]),
        disputed(
            f"DRBD minor 0 on node {NODE}",
            f"{AT_DISK}.logical_id[3]",
            f"disks/{DISK2}.logical_id[3]",
        ),
    ),
    (
        "one volume twice on a node",
        # Disk 1 is on node 1, too.
        setting(f"{AT_DISK1}/logical_id", ["xenvg", "parts-0.disk0"]),
        disputed(
            f"logical volume xenvg/parts-0.disk0 on node {NODE1}",
            f"{AT_DISK}.children[{PART}].logical_id",
            f"{AT_DISK1}.logical_id",
        ),
    ),
    (
        "one part twice in a disk",
        setting(f"{AT_DISK}/children/1/uuid", PART),
        [f"{AT_DISK}.children[{PART}].uuid: UUID {PART} is twice here"],
    ),
    (
        "a disk of two instances",
        setting(f"{AT_INSTANCE1}/disks", [DISK]),
        disputed(
            f"attached disk {DISK}",
            f"{AT_INSTANCE}.disks[{DISK}]",
            f"{AT_INSTANCE1}.disks[{DISK}]",
        ),
    ),
    (
        "a node in no group",
        setting(f"{AT_NODE}/group", "gone"),
        [f"{AT_NODE}.group: there is no node group gone"],
    ),
    (
        "a group that is needed",
        removing(AT_GROUP1),
        [
            f"{AT_NODE1}.group: there is no node group {GROUP1}",
            f"nodes/{uuid_of('nodes', 3)}.group: there is no node group {GROUP1}",
        ],
    ),
    (
        "an instance on no node",
        setting(f"{AT_INSTANCE}/primary_node", "gone"),
        [f"{AT_INSTANCE}.primary_node: there is no node gone"],
    ),
    (
        "a disk that is needed",
        removing(AT_DISK),
        [f"{AT_INSTANCE}.disks[{DISK}]: there is no disk {DISK}"],
    ),
    (
        "a disk on no node",
        setting(f"{AT_DISK1}/nodes", ["gone"]),
        [f"{AT_DISK1}.nodes[gone]: there is no node gone"],
    ),
    (
        "a part of a disk on no node",
        setting(f"{AT_DISK}/children/0/nodes", ["gone"]),
        [f"{AT_DISK}.children[{PART}].nodes[gone]: there is no node gone"],
    ),
    (
        "a DRBD disk with an unknown peer",
        setting(f"{AT_DISK}/logical_id", [NODE, "gone", 11_001, 0, 0, "secret"]),
        [f"{AT_DISK}.logical_id[1]: there is no node gone"],
    ),
    (
        "a DRBD disk without a secret",
        setting(f"{AT_DISK}/logical_id", [NODE, NODE1, 11_001, 0, 0]),
        [f"{AT_DISK}.logical_id: expected two nodes, a port, two minor numbers and a secret"],
    ),
    (
        "an interface in no network",
        setting(f"{AT_INSTANCE}/nics/0/network", "gone"),
        [f"{AT_NIC}.network: there is no network gone"],
    ),
    (
        "a group in an unknown network",
        setting(f"{AT_GROUP}/networks", {"gone": {}}),
        [f"{AT_GROUP}.networks[gone]: there is no network gone"],
    ),
    (
        "no such master",
        setting("cluster/master_node", "gone"),
        [
            "cluster.master_node: there is no master candidate gone",
            "cluster.master_node: there is no node gone",
        ],
    ),
    (
        "a master that is no candidate",
        setting(f"{AT_NODE}/master_candidate", value=False),
        [FEW, f"cluster.master_node: there is no master candidate {NODE}"],
    ),
    (
        "too few candidates",
        setting(f"{AT_NODE1}/master_candidate", value=False),
        [FEW],
    ),
    (
        "a node in two states",
        setting(f"{AT_NODE1}/offline", value=True),
        [f"{AT_NODE1}.offline: a node cannot be master_candidate and offline at one time"],
    ),
    (
        "a key that is not the UUID",
        setting(f"{AT_GROUP}/uuid", "other"),
        [f"{AT_GROUP}.uuid: expected its key {GROUP}, got 'other'"],
    ),
    (
        "one UUID of two interfaces",
        setting(f"{AT_INSTANCE1}/nics/0/uuid", NIC),
        disputed(f"UUID {NIC}", f"{AT_NIC}.uuid", f"{AT_INSTANCE1}.nics[{NIC}].uuid"),
    ),
    (
        "a hypervisor that is not enabled",
        setting(f"{AT_INSTANCE}/hypervisor", "lxc"),
        [f"{AT_INSTANCE}.hypervisor: there is no enabled hypervisor lxc"],
    ),
    (
        "a disk template that is not enabled",
        setting(f"{AT_DISK1}/dev_type", "file"),
        [f"{AT_DISK1}.dev_type: there is no enabled disk template file"],
    ),
    (
        "a hypervisor without parameters",
        setting("cluster/enabled_hypervisors", ["kvm", "lxc"]),
        ["cluster.hvparams: no parameters of enabled hypervisor lxc"],
    ),
    (
        "a wrong tag",
        setting(f"{AT_NODE}/tags", ["good", "two words"]),
        [f"{AT_NODE}.tags: 'two words': Tag contains invalid characters"],
    ),
    (
        "a name that would be two lines for scripts",
        setting(f"{AT_NODE}/name", "a\nb"),
        [f"{AT_NODE}.name: expected no control characters, got 'a\\nb'"],
    ),
    (
        "a name of the cluster with a control character",
        setting("cluster/cluster_name", "a\x1b[2J"),
        ["cluster.cluster_name: expected no control characters, got 'a\\x1b[2J'"],
    ),
    (
        "what is no MAC prefix",
        setting("cluster/mac_prefix", "zz"),
        ["cluster.mac_prefix: expected three bytes, such as aa:00:00, got 'zz'"],
    ),
    (
        "what is no address",
        setting(f"{AT_NODE}/primary_ip", "999.1.1.1"),
        [f"{AT_NODE}.primary_ip: expected an IP address, got '999.1.1.1'"],
    ),
    (
        "a network without a pool",
        setting(f"networks/{NETWORK}/network", "10.0.0.0/99"),
        [f"networks/{NETWORK}.network: '10.0.0.0/99' is not an IPv4 network"],
    ),
    (
        "a repeated tag",
        setting("cluster/tags", ["b", "a", "a", "a"]),
        ["cluster.tags: 'a': expected once"],
    ),
    (
        "an inverted range of user ids",
        setting("cluster/uid_pool", [[1, 1], [20, 10]]),
        ["cluster.uid_pool: expected the lower id first, got 20-10"],
    ),
    (
        "a parameter of a hypervisor with a line break",
        setting("cluster/hvparams/kvm", {"kernel_path": "/a\nb", "serial_speed": 5}),
        ["cluster.hvparams.kvm.kernel_path: expected no control characters, got '/a\\nb'"],
    ),
    (
        "a name of a parameter with a line break",
        setting("cluster/hvparams/kvm", {"a\nb": "/a"}),
        ["cluster.hvparams.kvm: expected no control characters, got 'a\\nb'"],
    ),
    (
        "too many tags",
        setting(f"{AT_NODE}/tags", [f"t{number}" for number in range(TAGS_MAX + 1)]),
        [f"{AT_NODE}.tags: expected at most 4096 tags"],
    ),
    (
        "a field of a wrong type",
        setting(f"{AT_NODE}/powered", "yes"),
        [f"{AT_NODE}.powered: expected bool, got str"],
    ),
]
