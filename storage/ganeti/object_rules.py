"""What the objects of Ganeti's clusters say that must fit what the others say.

A rule is asked for one object and looks at no other one (`ganger.storage.cluster.assertions`).

Rules: Ganeti's verification of its configuration ("Ganeti design: daemon refactoring", WConfD).
"""

from __future__ import annotations

import collections
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from .. import errors
from ..cluster.assertions import WORDS, Notes, Token
from ..cluster.objects import Object, ObjectKind
from ..wording import brief, has_control, shortened
from . import tags
from .address_pools import AddressPool

HYPERVISORS: Final = ("kvm", "xen-pvm", "chroot", "xen-hvm", "lxc", "fake")
"""Each has a file ``hvparams_<hypervisor>`` among the ssconf files."""

_DRBD_FIELDS: Final = (str, str, int, int, int, str)


MASTER_CANDIDATE: Final = "master candidate"
MAC_ADDRESS: Final = "MAC address"
MINOR: Final = "DRBD minor"
SECRET: Final = "DRBD secret"  # noqa: S105 - the name of a kind
VOLUME: Final = "logical volume"
_HYPERVISOR: Final = "enabled hypervisor"
_TEMPLATE: Final = "enabled disk template"
_ONE_LINE: Final = (
    "name",
    "cluster_name",
    "primary_ip",
    "secondary_ip",
    "master_ip",
    "master_netdev",
    "file_storage_dir",
    "gluster_storage_dir",
    "shared_file_storage_dir",
)
"""Fields that scripts read in lines (`ssconf`): one with a line break would stand for several."""

_MAC_PREFIX = re.compile("[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){2}")


def note(kind: ObjectKind, found: Object, notes: Notes) -> None:
    """Note what this object says."""
    for field in _ONE_LINE:
        value = found.get(field)
        if isinstance(value, str) and has_control(value):
            notes.problem(field, f"expected no control characters, got {brief(value)}")
    _note_tags(_list(found.get("tags")), notes)
    _READERS[kind](found, notes)


def on_node(uuid: str) -> str:
    """The scope of what must be unique on one node."""
    return f"on node {uuid}"


def _note_tags(found: list[Any], notes: Notes) -> None:
    if len(found) > tags.TAGS_MAX:
        notes.problem("tags", f"expected at most {tags.TAGS_MAX} tags")
    for tag in found:
        try:
            tags.check(tag)
        except errors.TagError as error:
            notes.problem("tags", f"{brief(tag)}: {error.text}")
    for tag, times in collections.Counter(_texts(found)).items():
        if times > 1:
            notes.problem("tags", f"{brief(tag)}: expected once")


# ---------------------------------------------------------------- what the kinds say


def _note_cluster(found: Object, notes: Notes) -> None:
    for hypervisor in _texts(found.get("enabled_hypervisors")):
        notes.provides.append(Token(_HYPERVISOR, hypervisor))
        if hypervisor not in _dict(found.get("hvparams")):
            notes.problem("hvparams", f"no parameters of enabled hypervisor {hypervisor}")
    for template in _texts(found.get("enabled_disk_templates")):
        notes.provides.append(Token(_TEMPLATE, template))
    for field in ("enabled_hypervisors", "enabled_disk_templates"):
        if found.get(field) == []:
            notes.problem(field, "expected at least one entry")
    # An empty text: the cluster is being destroyed, and has no master any more.
    master = found.get("master_node")
    notes.need("master_node", WORDS[ObjectKind.NODE], master)
    notes.need("master_node", MASTER_CANDIDATE, master)
    _note_address("master_ip", found, notes)
    _note_mac_prefix(found, notes)
    notes.claim("master_ip", "IP address", found.get("master_ip"))
    for port in _list(found.get("tcpudp_port_pool")):
        notes.claim_port(f"tcpudp_port_pool[{port}]", port)
    _note_user_ids(_list(found.get("uid_pool")), notes)
    parameters = _dict(found.get("hvparams"))
    for hypervisor in HYPERVISORS:
        _note_lines_of(f"hvparams.{hypervisor}", _dict(parameters.get(hypervisor)), notes)


def _note_user_ids(ranges: list[Any], notes: Notes) -> None:
    for one in ranges:
        match one:
            case [int() as low, int() as high] if low > high:
                notes.problem("uid_pool", f"expected the lower id first, got {low}-{high}")


def _note_lines_of(field: str, parameters: Mapping[str, object], notes: Notes) -> None:
    """Parameters of which each is a line in a file of `ssconf`."""
    for name, value in parameters.items():
        if has_control(name):
            notes.problem(field, f"expected no control characters, got {brief(name)}")
        elif isinstance(value, str) and has_control(value):
            text = f"expected no control characters, got {brief(value)}"
            notes.problem(f"{field}.{shortened(name)}", text)


def _note_node(found: Object, notes: Notes) -> None:
    notes.need("group", WORDS[ObjectKind.NODE_GROUP], found.get("group"))
    for field in ("primary_ip", "secondary_ip"):
        _note_address(field, found, notes)
    notes.claim("primary_ip", "IP address", found.get("primary_ip"))
    if found.get("secondary_ip") != found.get("primary_ip"):
        notes.claim("secondary_ip", "IP address", found.get("secondary_ip"))
    states = [
        name for name in ("master_candidate", "drained", "offline") if found.get(name) is True
    ]
    if len(states) > 1:
        notes.problem(states[1], f"a node cannot be {' and '.join(states)} at one time")
    if found.get("master_candidate") is True:
        notes.provides.append(Token(MASTER_CANDIDATE, notes.place.partition("/")[2]))
    is_away = found.get("offline") is True or found.get("drained") is True
    if found.get("master_capable") is True and not is_away:
        notes.candidates_possible = 1
        notes.candidates = int(found.get("master_candidate") is True)


def _note_group(found: Object, notes: Notes) -> None:
    for network in _dict(found.get("networks")):
        notes.need(f"networks[{network}]", WORDS[ObjectKind.NETWORK], network)


def _note_instance(found: Object, notes: Notes) -> None:
    notes.need("primary_node", WORDS[ObjectKind.NODE], found.get("primary_node"))
    notes.need("hypervisor", _HYPERVISOR, found.get("hypervisor"))
    notes.claim_port("network_port", found.get("network_port"))
    for disk in _texts(found.get("disks")):
        notes.need(f"disks[{disk}]", WORDS[ObjectKind.DISK], disk)
        notes.claim(f"disks[{disk}]", "attached disk", disk)
    for index, nic in enumerate(_list(found.get("nics"))):
        if isinstance(nic, dict):
            _note_nic(f"nics[{_part_name(index, nic)}]", nic, notes)


def _note_nic(field: str, nic: Object, notes: Notes) -> None:
    notes.claim(f"{field}.uuid", "UUID", nic.get("uuid"))
    mac, network = nic.get("mac"), nic.get("network")
    notes.claim(f"{field}.mac", MAC_ADDRESS, mac.lower() if isinstance(mac, str) else None)
    if isinstance(network, str):
        notes.need(f"{field}.network", WORDS[ObjectKind.NETWORK], network)
        scope = f"in network {network}"
    else:
        # Without a network, the link is where an address must be unique.
        link = _dict(nic.get("nicparams")).get("link")
        scope = f"on link {link}" if isinstance(link, str) else "on the default link"
    notes.claim(f"{field}.ip", "IP address", nic.get("ip"), scope)


def _note_disk(found: Object, notes: Notes) -> None:
    notes.need("dev_type", _TEMPLATE, found.get("dev_type"))
    _note_disk_part("", found, notes)


def _note_disk_part(prefix: str, disk: Object, notes: Notes) -> None:
    """A disk, or a disk of which another one consists: ``prefix`` is the path inside that one."""
    for node in _texts(disk.get("nodes")):
        notes.need(f"{prefix}nodes[{node}]", WORDS[ObjectKind.NODE], node)
    if disk.get("dev_type") == "drbd" and disk.get("logical_id") is not None:
        _note_drbd(f"{prefix}logical_id", disk["logical_id"], notes)
    if disk.get("dev_type") == "plain":
        _note_volume(f"{prefix}logical_id", disk, notes)
    for index, child in enumerate(_list(disk.get("children"))):
        if isinstance(child, dict):
            field = f"{prefix}children[{_part_name(index, child)}]"
            notes.claim(f"{field}.uuid", "UUID", child.get("uuid"))
            _note_disk_part(f"{field}.", child, notes)


def _note_volume(field: str, disk: Object, notes: Notes) -> None:
    """Volume group and volume; the two nodes of a DRBD disk have volumes of one name."""
    identity = _list(disk.get("logical_id"))
    if len(identity) != len(list(_texts(identity))) or len(identity) != len(("group", "volume")):
        return
    volume = "/".join(identity)
    notes.provides.append(Token(VOLUME, volume))
    for node in dict.fromkeys(_texts(disk.get("nodes"))):
        notes.claim(field, VOLUME, volume, on_node(node))


def _note_drbd(field: str, identity: object, notes: Notes) -> None:
    """Both nodes, the port, the minor number on each node, and the secret."""
    if not (
        isinstance(identity, list)
        and len(identity) == len(_DRBD_FIELDS)
        and all(type(value) is kind for value, kind in zip(identity, _DRBD_FIELDS, strict=True))
    ):
        notes.problem(field, "expected two nodes, a port, two minor numbers and a secret")
        return
    nodes, port, minors, secret = identity[:2], identity[2], identity[3:5], identity[5]
    notes.claim_port(f"{field}[2]", port)
    notes.provides.append(Token(SECRET, secret))
    for index, (node, minor) in enumerate(zip(nodes, minors, strict=True)):
        notes.need(f"{field}[{index}]", WORDS[ObjectKind.NODE], node)
        notes.claim(f"{field}[{index + 3}]", MINOR, str(minor), on_node(node))


def _note_network(found: Object, notes: Notes) -> None:
    _note_mac_prefix(found, notes)
    if isinstance(found.get("network"), str):
        try:
            AddressPool.of(found)
        except errors.AddressPoolError as error:
            notes.problem("network", error.text)


def _note_address(field: str, found: Object, notes: Notes) -> None:
    value = found.get(field)
    # An empty text: there is none.
    if isinstance(value, str) and value:
        try:
            ipaddress.ip_address(value)
        except ValueError:
            notes.problem(field, f"expected an IP address, got {brief(value)}")


def _note_mac_prefix(found: Object, notes: Notes) -> None:
    value = found.get("mac_prefix")
    if isinstance(value, str) and value and not _MAC_PREFIX.fullmatch(value):
        notes.problem("mac_prefix", f"expected three bytes, such as aa:00:00, got {brief(value)}")


def _note_nothing(_found: Object, _notes: Notes) -> None:
    """A filter rule refers to no other object."""


_READERS: Final[dict[ObjectKind, Callable[[Object, Notes], None]]] = {
    ObjectKind.CLUSTER: _note_cluster,
    ObjectKind.NODE: _note_node,
    ObjectKind.NODE_GROUP: _note_group,
    ObjectKind.INSTANCE: _note_instance,
    ObjectKind.NETWORK: _note_network,
    ObjectKind.DISK: _note_disk,
    ObjectKind.FILTER: _note_nothing,
}


def _part_name(index: int, part: Object) -> str:
    """A part of an object by its UUID, which outlives the removal of the parts before it."""
    uuid = part.get("uuid")
    return uuid if isinstance(uuid, str) else str(index)


def _list(found: object) -> list[Any]:
    return found if isinstance(found, list) else []


def _texts(found: object) -> Iterator[str]:
    return (item for item in _list(found) if isinstance(item, str))


def _dict(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
