"""Modifications of the configuration as Ganeti's WConfD offers them, decided on a snapshot. Pure.

Each function gives the changes, and what its method gives when they are made (Ganeti design: daemon
refactoring, WConfD). Objects come as decoded JSON. Error texts are Ganeti's, except where those
name the opposite of what is wrong.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from .. import errors
from ..cluster.configuration import Change, Configuration
from ..cluster.objects import CONTAINERS, ObjectKind
from ..wording import shortened
from .reservations import network_missing, with_address

PORT_MAX: Final = 14_999
"""The last port that WConfD gives to an instance or a disk."""

_STAMPS: Final = frozenset({"ctime", "mtime", "serial_no"})
_KEPT: Final = ("version", "cluster", *(kind.value for kind in CONTAINERS))


class Modified(NamedTuple):
    """What a method changes, and what it gives, from the snapshot after the changes."""

    changes: Sequence[Change]
    value: Callable[[Configuration], Any] = lambda _: True


class InUse(NamedTuple):
    """What the objects of the configuration have: MAC addresses in small letters, and UUIDs."""

    macs: Container[object]
    uuids: Container[object]


def without_stamps(found: Mapping[str, Any]) -> dict[str, Any]:
    """The object without serial number and times, which each change sets."""
    return {name: value for name, value in found.items() if name not in _STAMPS}


# ---------------------------------------------------------------- instances


def added_instance(
    snapshot: Configuration,
    instance: Mapping[str, Any],
    in_use: InUse,
    *,
    replaces: bool,
    committed: Callable[[Configuration], Mapping[str, dict[str, Any]]],
) -> Modified:
    """Add or replace an instance; ``committed``: the networks that the owner's commit changes."""
    uuid, name = _uuid_of(instance), f'"{instance.get("name", "")}"'
    before = snapshot.get(ObjectKind.INSTANCE, uuid)
    own = set(_macs(before)) if replaces and before is not None else set()
    taken = sorted(mac for mac in _macs(instance) if mac in in_use.macs and mac not in own)
    if taken:
        text = f"Cannot add instance {name}; MAC addresses {', '.join(taken)} already in use"
        raise errors.ModificationError(text)
    if replaces and before is None:
        raise errors.ModificationError(f"Cannot replace {name}: UUID {uuid} not present")
    if not replaces and uuid in in_use.uuids:
        raise errors.ModificationError(f"Cannot add {name}: UUID {uuid} already in use")
    networks = [Change(ObjectKind.NETWORK, key, one) for key, one in committed(snapshot).items()]
    return Modified([Change(ObjectKind.INSTANCE, uuid, dict(instance)), *networks])


def removed_instance(snapshot: Configuration, uuid: str) -> Modified:
    """Remove an instance; its port and its addresses are free again.

    One that is not there is no error: the caller may repeat its request.
    """
    instance = snapshot.get(ObjectKind.INSTANCE, uuid)
    if instance is None:
        return Modified([])
    changes = [Change(ObjectKind.INSTANCE, uuid, None)]
    port = instance.get("network_port")
    if port is not None:
        changes.append(_with_ports(snapshot, port))
    networks: dict[str, dict[str, Any]] = {}
    for network, address in _addresses(instance):
        found = networks.get(network) or snapshot.get(ObjectKind.NETWORK, network)
        if found is not None:
            networks[network] = _without_address(found, address)
    changes += [Change(ObjectKind.NETWORK, key, network) for key, network in networks.items()]
    return Modified(changes)


def with_primary_node(snapshot: Configuration, uuid: str, node: str) -> Modified:
    """Give an instance another primary node, which integrity looks for."""
    instance = _instance(snapshot, uuid)
    return Modified([Change(ObjectKind.INSTANCE, uuid, {**instance, "primary_node": node})])


def with_status(snapshot: Configuration, uuid: str, state: Mapping[str, Any]) -> Modified:
    """Change these fields of an instance, unless they are None. Gives the instance."""
    instance = _instance(snapshot, uuid)
    given = {name: value for name, value in state.items() if value is not None}
    changed = {**instance, **given}
    changes = [Change(ObjectKind.INSTANCE, uuid, changed)] if changed != instance else []
    return Modified(changes, lambda after: after.get(ObjectKind.INSTANCE, uuid))


def _instance(snapshot: Configuration, uuid: str) -> dict[str, Any]:
    found: dict[str, Any] | None = snapshot.get(ObjectKind.INSTANCE, uuid)
    if found is None:
        text = f"Could not find instance with UUID {shortened(uuid)}"
        raise errors.ModificationError(text)
    return found


def _macs(instance: Mapping[str, Any]) -> Iterator[str]:
    for nic in _nics(instance):
        if isinstance(mac := nic.get("mac"), str):
            yield mac.lower()


def _addresses(instance: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Network and IPv4 address of each interface that has both."""
    for nic in _nics(instance):
        network, address = nic.get("network"), nic.get("ip")
        if isinstance(network, str) and isinstance(address, str) and _is_ipv4(address):
            yield network, address


def _nics(instance: Mapping[str, Any]) -> list[dict[str, Any]]:
    nics = instance.get("nics")
    return [nic for nic in nics if isinstance(nic, dict)] if isinstance(nics, list) else []


def _is_ipv4(address: str) -> bool:
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        return False
    return True


def _without_address(network: dict[str, Any], address: str) -> dict[str, Any]:
    """The network with the address free; one that is free already must not keep its instance."""
    try:
        return with_address(network, address, is_reserved=False)
    except errors.ReservationError:
        return network


# ---------------------------------------------------------------- disks


def added_disk(
    snapshot: Configuration,
    uuid: str,
    disk: Mapping[str, Any],
    in_use: InUse,
    *,
    index: int | None,
    replaces: bool,
) -> Modified:
    """Add or replace a disk, and attach it to the instance ``uuid``."""
    own, name = _uuid_of(disk), f'"{disk.get("name") or ""}"'
    if replaces and snapshot.get(ObjectKind.DISK, own) is None:
        raise errors.ModificationError(f"Cannot replace {name}: UUID {own} not present")
    if not replaces and own in in_use.uuids:
        raise errors.ModificationError(f"Cannot add {name}: UUID {own} already in use")
    return _attached(snapshot, uuid, {own: dict(disk)}, own, index)


def attached_disk(snapshot: Configuration, uuid: str, disk: str, index: int | None) -> Modified:
    """Attach a disk to the instance ``uuid``, at this index or as the last one."""
    if snapshot.get(ObjectKind.DISK, disk) is None:
        raise errors.ModificationError(f"Disk {shortened(disk)} doesn't exist")
    return _attached(snapshot, uuid, {}, disk, index)


def detached_disk(
    snapshot: Configuration, uuid: str, disk: str, *, is_removed: bool = False
) -> Modified:
    """Detach a disk from the instance ``uuid``, if it is attached, and perhaps remove it."""
    instance = _instance(snapshot, uuid)
    disks = list(instance.get("disks") or ())
    changes = []
    if disk in disks:
        at = disks.index(disk)
        left = [one for one in disks if one != disk]
        changes = _with_disks(snapshot, instance, left, at, {})
    elif is_removed:
        for _, other in snapshot.objects(ObjectKind.INSTANCE):
            if disk in (other.get("disks") or ()):
                text = f"Cannot remove disk {disk}. Disk is attached to an instance"
                raise errors.DiskAttachedError(text)
    if is_removed and snapshot.get(ObjectKind.DISK, disk) is not None:
        changes.append(Change(ObjectKind.DISK, disk, None))
    return Modified(changes)


def _attached(
    snapshot: Configuration, uuid: str, new: dict[str, dict[str, Any]], disk: str, index: int | None
) -> Modified:
    instance = _instance(snapshot, uuid)
    disks = list(instance.get("disks") or ())
    at = len(disks) if index is None else index
    if at < 0:
        raise errors.DiskIndexError("Not accepting negative indices")
    if at > len(disks):
        raise errors.DiskIndexError(f"Got disk index {at}, but there are only {len(disks)}")
    for _, other in snapshot.objects(ObjectKind.INSTANCE):
        if disk in (other.get("disks") or ()):
            name = f'"{other.get("name", "")}"'
            raise errors.ReservationError(f"Disk {disk} already attached to instance {name}")
    disks.insert(at, disk)
    return Modified(_with_disks(snapshot, instance, disks, at, new))


def _with_disks(
    snapshot: Configuration,
    instance: Mapping[str, Any],
    disks: list[str],
    first: int,
    new: Mapping[str, dict[str, Any]],
) -> list[Change]:
    """The instance with these disks, which have their names by their places from ``first`` on."""
    changes = [Change(ObjectKind.INSTANCE, instance["uuid"], {**instance, "disks": disks})]
    for at, uuid in enumerate(disks[first:], first):
        found = new.get(uuid) or snapshot.get(ObjectKind.DISK, uuid)
        if found is None:
            raise errors.ModificationError(f"Could not find disk with UUID {uuid}")
        if uuid in new or found.get("iv_name") != f"disk/{at}":
            changes.append(Change(ObjectKind.DISK, uuid, {**found, "iv_name": f"disk/{at}"}))
    return changes


# ---------------------------------------------------------------- ports and networks


def allocated_port(snapshot: Configuration) -> Modified:
    """Take a port from the pool, or the one above the highest used one. Gives the port."""
    cluster = snapshot.cluster
    pool, highest = list(cluster.get("tcpudp_port_pool") or ()), cluster.get("highest_used_port")
    if pool:
        port, *left = pool
        changed = {**cluster, "tcpudp_port_pool": left}
    elif not isinstance(highest, int):
        raise errors.ModificationError("cluster.highest_used_port: there is none")
    elif highest >= PORT_MAX:
        text = f"The highest used port is greater than {PORT_MAX}. Aborting."
        raise errors.ModificationError(text)
    else:
        port = highest + 1
        changed = {**cluster, "highest_used_port": port}
    return Modified([Change(ObjectKind.CLUSTER, snapshot.cluster_uuid, changed)], lambda _: port)


def added_port(snapshot: Configuration, port: int) -> Modified:
    """Put a port into the pool."""
    change = _with_ports(snapshot, port)
    return Modified([change] if change.object != snapshot.cluster else [])


def _with_ports(snapshot: Configuration, port: int) -> Change:
    cluster = snapshot.cluster
    others = [one for one in cluster.get("tcpudp_port_pool") or () if one != port]
    changed = {**cluster, "tcpudp_port_pool": [port, *others]}
    return Change(ObjectKind.CLUSTER, snapshot.cluster_uuid, changed)


def released_address(snapshot: Configuration, uuid: str, address: str) -> Modified:
    """Release an address in the pool of a network."""
    network = snapshot.get(ObjectKind.NETWORK, uuid)
    if network is None:
        raise network_missing(uuid)
    changed = with_address(network, address, is_reserved=False)
    return Modified([Change(ObjectKind.NETWORK, uuid, changed)], lambda _: None)


def without_master(snapshot: Configuration) -> Modified:
    """The cluster is about to be destroyed."""
    change = Change(
        ObjectKind.CLUSTER, snapshot.cluster_uuid, {**snapshot.cluster, "master_node": ""}
    )
    return Modified([change], lambda _: None)


# ---------------------------------------------------------------- whole objects


def updated(snapshot: Configuration, kind: ObjectKind, found: Mapping[str, Any]) -> Modified:
    """Replace an object that has the serial number of ``found``. Gives its new stamps.

    Nothing changes if it is like that already: the caller may repeat its request.
    """
    uuid = snapshot.cluster_uuid if kind is ObjectKind.CLUSTER else _uuid_of(found)
    current = snapshot.get(kind, uuid)
    if current is None:
        raise errors.ModificationError("Configuration object unknown")
    changes = []
    if without_stamps(found) != without_stamps(current):
        serials = current.get("serial_no", 0), found.get("serial_no")
        if serials[0] != serials[1]:
            text = f"Configuration object updated since it has been read: {serials[0]} != "
            raise errors.StaleSerialError(text + shortened(str(serials[1])))
        changes.append(Change(kind, uuid, dict(found)))

    def stamps(after: Configuration) -> list[Any]:
        one = after.get(kind, uuid)
        return [one.get("serial_no", 0), one.get("mtime", 0.0)]

    return Modified(changes, stamps)


def _uuid_of(found: Mapping[str, Any]) -> str:
    uuid = found.get("uuid")
    if not isinstance(uuid, str) or not uuid:
        raise errors.ModificationError("the object has no UUID")
    return uuid


# ---------------------------------------------------------------- the whole configuration


class Rewrite(NamedTuple):
    """An object that a client read and writes otherwise; None: there was none, or it goes."""

    kind: ObjectKind
    uuid: str
    old: Mapping[str, Any] | None
    new: dict[str, Any] | None


def differing(
    present: Configuration, base: Mapping[str, Any], given: Mapping[str, Any]
) -> list[Rewrite]:
    """What is another in ``given`` than in ``base``, whole configurations; looks at all of it.

    `ModificationError` if ``given`` is no configuration, or one of another version.
    """
    _check_whole(present, given)
    found = []
    for kind in ObjectKind:
        if kind.value not in given:
            continue
        old, new = _objects(base, kind), _objects(given, kind)
        for uuid in (*new, *(uuid for uuid in old if uuid not in new)):
            both = old.get(uuid), new.get(uuid)
            if _content(both[0]) != _content(both[1]):
                found.append(Rewrite(kind, uuid, *both))
    return found


def rewritten(
    present: Configuration, wanted: Iterable[Rewrite], view: Callable[[Any], Any]
) -> list[Change]:
    """The changes of a client that read a configuration, and writes these objects otherwise.

    ``view`` shows an object as it has it: perhaps without its secrets. What others have changed
    meanwhile stays; `StaleSerialError` if it is the same object.
    """
    changes = []
    for kind, uuid, old, new in wanted:
        change = Change(kind, uuid, new)
        now = view(present.get(kind, uuid))
        if _content(now) == _content(new):
            continue
        if _content(now) != _content(old):
            text = f"{change.place}: somebody else has changed it since it was read"
            raise errors.StaleSerialError(text)
        changes.append(change)
    return changes


def _check_whole(present: Configuration, given: Mapping[str, Any]) -> None:
    version = present.top.get("version")
    if given.get("version", version) != version:
        text = f"version: expected {version}, got {shortened(str(given['version']))}"
        raise errors.ModificationError(text)
    for name in _KEPT[1:]:
        container = given.get(name, {})
        is_right = isinstance(container, dict)
        if is_right and name != ObjectKind.CLUSTER.value:
            is_right = all(isinstance(one, dict) for one in container.values())
        if not is_right:
            raise errors.ModificationError(f"{name}: expected objects")
    if "cluster" in given and given["cluster"].get("uuid", "") != present.cluster_uuid:
        raise errors.ModificationError("cluster.uuid: it cannot change")


def _objects(whole: Mapping[str, Any], kind: ObjectKind) -> Mapping[str, Any]:
    found: Mapping[str, Any] = whole.get(kind.value, {})
    return {str(found.get("uuid", "")): found} if kind is ObjectKind.CLUSTER else found


def _content(found: Mapping[str, Any] | None) -> bytes | None:
    """The object as bytes, which tell 1 from 1.0 and true; None: there is none."""
    if found is None:
        return None
    return msgspec.json.encode(without_stamps(found), order="sorted")
