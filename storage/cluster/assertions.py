"""What one object of the configuration says that must fit what the others say.

`assertions_of` reads one object and looks at no other one. `integrity` compares the assertions of
all objects. A field of a wrong type asserts nothing: it is a problem by itself (`objects`).

Rules: Ganeti's verification of its configuration ("Ganeti design: daemon refactoring", WConfD).
"""

from __future__ import annotations

import collections
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from .. import errors
from ..wording import brief, shortened, shown
from . import tags
from .address_pools import AddressPool
from .objects import Object, ObjectKind, place_of, schema_problem

HYPERVISORS: Final = ("kvm", "xen-pvm", "chroot", "xen-hvm", "lxc", "fake")
"""Each has a file ``hvparams_<hypervisor>`` among the ssconf files."""

_DRBD_FIELDS: Final = (str, str, int, int, int, str)


class Claim(NamedTuple):
    """A value that only one place of the configuration may have."""

    what: str
    value: str
    scope: str = ""

    def __str__(self) -> str:
        return f"{self.what} {self.value}" + (f" {self.scope}" if self.scope else "")


def on_node(uuid: str) -> str:
    """The scope of what must be unique on one node."""
    return f"on node {uuid}"


class Token(NamedTuple):
    """Something that one object provides and others need, such as a node with this UUID."""

    what: str
    value: str

    def __str__(self) -> str:
        return f"{self.what} {self.value}"


class Assertions(NamedTuple):
    """All that one object says; places are paths such as ``instances/<uuid>.primary_node``."""

    problems: tuple[str, ...] = ()
    """What is wrong with the object by itself."""

    claims: tuple[tuple[Claim, str], ...] = ()
    needs: tuple[tuple[Token, str], ...] = ()
    provides: tuple[Token, ...] = ()
    ports: tuple[tuple[int, str], ...] = ()
    """The TCP and UDP ports in use, which the cluster's highest one must reach."""

    candidates_possible: int = 0
    """1 for a node that could be a master candidate."""

    candidates: int = 0
    """1 for a node that is one."""


NOTHING: Final = Assertions()

MASTER_CANDIDATE: Final = "master candidate"
MAC_ADDRESS: Final = "MAC address"
PORT: Final = "port"
MINOR: Final = "DRBD minor"
SECRET: Final = "DRBD secret"  # noqa: S105 - the name of a kind
VOLUME: Final = "logical volume"
_HYPERVISOR: Final = "enabled hypervisor"
_TEMPLATE: Final = "enabled disk template"
_WORDS: Final = {
    ObjectKind.CLUSTER: "cluster",
    ObjectKind.NODE: "node",
    ObjectKind.NODE_GROUP: "node group",
    ObjectKind.INSTANCE: "instance",
    ObjectKind.NETWORK: "network",
    ObjectKind.DISK: "disk",
    ObjectKind.FILTER: "filter rule",
}
_NO_LOCK_NAMES: Final = ("*", "[lockset]")
"""What stands for all locks of a level: an object with such a name would take them."""

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
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_WITH_UNIQUE_NAMES: Final = (
    ObjectKind.NODE,
    ObjectKind.NODE_GROUP,
    ObjectKind.INSTANCE,
    ObjectKind.NETWORK,
)


def assertions_of(kind: ObjectKind, uuid: str, found: object) -> Assertions:
    """What this object says; `NOTHING` for an object that is not there (None)."""
    if found is None:
        return NOTHING
    notes = _Notes(place_of(kind, uuid))
    problem = schema_problem(kind, uuid, found)
    if problem is not None:
        notes.problems.append(problem)
    if isinstance(found, dict):
        _note_common(kind, uuid, found, notes)
        _READERS[kind](found, notes)
    if kind is not ObjectKind.CLUSTER:
        notes.provides.append(Token(_WORDS[kind], uuid))
    return notes.assertions()


class _Notes:
    """Collects the assertions of one object, or of a part of it."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.problems: list[str] = []
        self.claims: list[tuple[Claim, str]] = []
        self.needs: list[tuple[Token, str]] = []
        self.provides: list[Token] = []
        self.ports: list[tuple[int, str]] = []
        self.candidates_possible = 0
        self.candidates = 0

    def problem(self, field: str, text: str) -> None:
        self.problems.append(f"{self.place}.{field}: {text}")

    def claim(self, field: str, what: str, value: object, scope: str = "") -> None:
        """No other object may have this value; what is no text claims nothing."""
        if isinstance(value, str) and value:
            self.claims.append((Claim(what, value, scope), f"{self.place}.{field}"))

    def claim_port(self, field: str, value: object) -> None:
        if isinstance(value, int) and not isinstance(value, bool):
            self.claim(field, PORT, str(value))
            self.ports.append((value, f"{self.place}.{field}"))

    def need(self, field: str, what: str, value: object) -> None:
        """Some object must provide this; what is empty or no text needs nothing."""
        if isinstance(value, str) and value:
            self.needs.append((Token(what, value), f"{self.place}.{field}"))

    def assertions(self) -> Assertions:
        return Assertions(
            tuple(self.problems),
            tuple(self.claims),
            tuple(self.needs),
            tuple(self.provides),
            tuple(self.ports),
            self.candidates_possible,
            self.candidates,
        )


# ---------------------------------------------------------------- what every object says


def _note_common(kind: ObjectKind, uuid: str, found: Object, notes: _Notes) -> None:
    own = found.get("uuid")
    if isinstance(own, str) and own != uuid:
        notes.problem("uuid", f"expected its key {uuid}, got {shown(own)}")
    notes.claims.append((Claim("UUID", uuid), notes.place))
    if kind in _WITH_UNIQUE_NAMES:
        _note_lock_names({"uuid": uuid, "name": found.get("name")}, notes)
        notes.claim("name", f"name of {_article(_WORDS[kind])}", found.get("name"))
    for field in _ONE_LINE:
        value = found.get(field)
        if isinstance(value, str) and _CONTROL.search(value):
            notes.problem(field, f"expected no control characters, got {brief(value)}")
    _note_tags(_list(found.get("tags")), notes)


def _note_lock_names(fields: Mapping[str, object], notes: _Notes) -> None:
    for field, name in fields.items():
        if name in _NO_LOCK_NAMES:
            notes.problem(field, f"{shown(str(name))} stands for all locks of a level")


def _article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def _note_tags(found: list[Any], notes: _Notes) -> None:
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


def _note_cluster(found: Object, notes: _Notes) -> None:
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
    notes.need("master_node", _WORDS[ObjectKind.NODE], master)
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


def _note_user_ids(ranges: list[Any], notes: _Notes) -> None:
    for one in ranges:
        match one:
            case [int() as low, int() as high] if low > high:
                notes.problem("uid_pool", f"expected the lower id first, got {low}-{high}")


def _note_lines_of(field: str, parameters: Mapping[str, object], notes: _Notes) -> None:
    """Parameters of which each is a line in a file of `ssconf`."""
    for name, value in parameters.items():
        if _CONTROL.search(name):
            notes.problem(field, f"expected no control characters, got {brief(name)}")
        elif isinstance(value, str) and _CONTROL.search(value):
            text = f"expected no control characters, got {brief(value)}"
            notes.problem(f"{field}.{shortened(name)}", text)


def _note_node(found: Object, notes: _Notes) -> None:
    notes.need("group", _WORDS[ObjectKind.NODE_GROUP], found.get("group"))
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


def _note_group(found: Object, notes: _Notes) -> None:
    for network in _dict(found.get("networks")):
        notes.need(f"networks[{network}]", _WORDS[ObjectKind.NETWORK], network)


def _note_instance(found: Object, notes: _Notes) -> None:
    notes.need("primary_node", _WORDS[ObjectKind.NODE], found.get("primary_node"))
    notes.need("hypervisor", _HYPERVISOR, found.get("hypervisor"))
    notes.claim_port("network_port", found.get("network_port"))
    for disk in _texts(found.get("disks")):
        notes.need(f"disks[{disk}]", _WORDS[ObjectKind.DISK], disk)
        notes.claim(f"disks[{disk}]", "attached disk", disk)
    for index, nic in enumerate(_list(found.get("nics"))):
        if isinstance(nic, dict):
            _note_nic(f"nics[{_part_name(index, nic)}]", nic, notes)


def _note_nic(field: str, nic: Object, notes: _Notes) -> None:
    notes.claim(f"{field}.uuid", "UUID", nic.get("uuid"))
    mac, network = nic.get("mac"), nic.get("network")
    notes.claim(f"{field}.mac", MAC_ADDRESS, mac.lower() if isinstance(mac, str) else None)
    if isinstance(network, str):
        notes.need(f"{field}.network", _WORDS[ObjectKind.NETWORK], network)
        scope = f"in network {network}"
    else:
        # Without a network, the link is where an address must be unique.
        link = _dict(nic.get("nicparams")).get("link")
        scope = f"on link {link}" if isinstance(link, str) else "on the default link"
    notes.claim(f"{field}.ip", "IP address", nic.get("ip"), scope)


def _note_disk(found: Object, notes: _Notes) -> None:
    notes.need("dev_type", _TEMPLATE, found.get("dev_type"))
    _note_disk_part("", found, notes)


def _note_disk_part(prefix: str, disk: Object, notes: _Notes) -> None:
    """A disk, or a disk of which another one consists: ``prefix`` is the path inside that one."""
    for node in _texts(disk.get("nodes")):
        notes.need(f"{prefix}nodes[{node}]", _WORDS[ObjectKind.NODE], node)
    if disk.get("dev_type") == "drbd" and disk.get("logical_id") is not None:
        _note_drbd(f"{prefix}logical_id", disk["logical_id"], notes)
    if disk.get("dev_type") == "plain":
        _note_volume(f"{prefix}logical_id", disk, notes)
    for index, child in enumerate(_list(disk.get("children"))):
        if isinstance(child, dict):
            field = f"{prefix}children[{_part_name(index, child)}]"
            notes.claim(f"{field}.uuid", "UUID", child.get("uuid"))
            _note_disk_part(f"{field}.", child, notes)


def _note_volume(field: str, disk: Object, notes: _Notes) -> None:
    """Volume group and volume; the two nodes of a DRBD disk have volumes of one name."""
    identity = _list(disk.get("logical_id"))
    if len(identity) != len(list(_texts(identity))) or len(identity) != len(("group", "volume")):
        return
    volume = "/".join(identity)
    notes.provides.append(Token(VOLUME, volume))
    for node in dict.fromkeys(_texts(disk.get("nodes"))):
        notes.claim(field, VOLUME, volume, on_node(node))


def _note_drbd(field: str, identity: object, notes: _Notes) -> None:
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
        notes.need(f"{field}[{index}]", _WORDS[ObjectKind.NODE], node)
        notes.claim(f"{field}[{index + 3}]", MINOR, str(minor), on_node(node))


def _note_network(found: Object, notes: _Notes) -> None:
    _note_mac_prefix(found, notes)
    if isinstance(found.get("network"), str):
        try:
            AddressPool.of(found)
        except errors.AddressPoolError as error:
            notes.problem("network", error.text)


def _note_address(field: str, found: Object, notes: _Notes) -> None:
    value = found.get(field)
    # An empty text: there is none.
    if isinstance(value, str) and value:
        try:
            ipaddress.ip_address(value)
        except ValueError:
            notes.problem(field, f"expected an IP address, got {brief(value)}")


def _note_mac_prefix(found: Object, notes: _Notes) -> None:
    value = found.get("mac_prefix")
    if isinstance(value, str) and value and not _MAC_PREFIX.fullmatch(value):
        notes.problem("mac_prefix", f"expected three bytes, such as aa:00:00, got {brief(value)}")


def _note_nothing(_found: Object, _notes: _Notes) -> None:
    """A filter rule refers to no other object."""


_READERS: Final[dict[ObjectKind, Callable[[Object, _Notes], None]]] = {
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
