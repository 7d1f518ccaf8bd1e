"""What jobs have reserved before it is in the configuration; the coding of ``tempres.data``.

Each reservation belongs to an owner, as locks do, and ends when its owner dies or drops it: MAC
addresses, DRBD secrets, logical volumes, and changes of IPv4 addresses. DRBD minors belong to
their disk and stay until they are released (Ganeti's WConfD, temporary reservations).

What the configuration itself uses comes as an argument, and so does chance. An error changes
nothing.
"""

from __future__ import annotations

import enum
import ipaddress
import itertools
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from .. import errors
from ..locks.locks import Owner
from .address_pools import AddressPool, Network, Use

TRIES_MAX: Final = 64
"""How often a generated value may turn out to be in use, as in Ganeti."""

MAC_RANDOM_BYTES: Final = 3
"""The bytes of a MAC address behind its prefix."""

SECRET_BYTES: Final = 20
"""The bytes of a DRBD secret, which is written with two digits for each."""

RandomBytes = Callable[[int], bytes]
"""Gives this number of random bytes."""


class IpAction(enum.StrEnum):
    """What becomes of an address when its owner commits."""

    RESERVE = "reserve"
    RELEASE = "release"


class IpChange(msgspec.Struct, frozen=True, array_like=True):
    """A change of one IPv4 address in the pool of a network (its UUID), not yet committed."""

    action: IpAction
    address: str
    network: str

    @property
    def order(self) -> tuple[bool, str, int]:
        """The key that sorts changes as Ganeti does: reservations first, then releases."""
        # The address was checked when its change was recorded or read.
        number = int(ipaddress.IPv4Address(self.address))
        return (self.action is IpAction.RELEASE, self.network, number)


class Minor(NamedTuple):
    """The number of a DRBD device on a node (its UUID)."""

    node: str
    number: int


class ReservationsFile(msgspec.Struct, frozen=True):
    """The content of ``tempres.data``, with all lists in order. ``extra`` holds unknown keys."""

    minors: tuple[tuple[str, tuple[tuple[int, str], ...]], ...] = msgspec.field(
        name="dRBD", default=()
    )
    macs: tuple[tuple[Owner, tuple[str, ...]], ...] = msgspec.field(name="mACs", default=())
    secrets: tuple[tuple[Owner, tuple[str, ...]], ...] = msgspec.field(
        name="dRBDSecrets", default=()
    )
    volumes: tuple[tuple[Owner, tuple[str, ...]], ...] = msgspec.field(name="lVs", default=())
    ips: tuple[tuple[Owner, tuple[IpChange, ...]], ...] = msgspec.field(name="iPv4s", default=())
    extra: dict[str, Any] = {}


_EXTRA = "extra"
_KEYS = frozenset(one.encode_name for one in msgspec.structs.fields(ReservationsFile)) - {_EXTRA}


def encode(file: ReservationsFile) -> bytes:
    """The bytes of ``tempres.data``.

    >>> encode(ReservationsFile())
    b'{"dRBD":[],"mACs":[],"dRBDSecrets":[],"lVs":[],"iPv4s":[]}'
    """
    document = msgspec.to_builtins(file)
    extra = document.pop(_EXTRA)
    return msgspec.json.encode({**document, **extra})


def decode(data: bytes) -> ReservationsFile:
    """The content of ``tempres.data``; `StorageError` if the bytes are malformed."""
    try:
        raw = msgspec.json.decode(data, type=dict[str, Any])
        extra = {key: raw.pop(key) for key in list(raw) if key not in _KEYS}
        file = msgspec.convert({**raw, _EXTRA: extra}, ReservationsFile)
        for _owner, changes in file.ips:
            for change in changes:
                ipaddress.IPv4Address(change.address)
    except (ValueError, RecursionError) as error:
        raise errors.StorageError(f"tempres.data is not readable: {error}") from error
    return file


_Resource = TypeVar("_Resource")


class _Table(Generic[_Resource]):
    """Resources of one kind, each with its one owner."""

    def __init__(self, entries: Iterable[tuple[Owner, Iterable[_Resource]]]) -> None:
        self._by_owner: dict[Owner, set[_Resource]] = {}
        self._owners: dict[_Resource, Owner] = {}
        for owner, resources in entries:
            for resource in resources:
                self.add(owner, resource)

    def __contains__(self, resource: object) -> bool:
        return resource in self._owners

    def add(self, owner: Owner, resource: _Resource) -> None:
        if resource in self._owners:
            text = resource.address if isinstance(resource, IpChange) else resource
            raise errors.ReservationError(f"Duplicate reservation for resource '{text}'")
        self._owners[resource] = owner
        self._by_owner.setdefault(owner, set()).add(resource)

    def of(self, owner: Owner) -> Collection[_Resource]:
        return self._by_owner.get(owner, ())

    def drop(self, owner: Owner) -> bool:
        dropped = self._by_owner.pop(owner, ())
        for resource in dropped:
            del self._owners[resource]
        return bool(dropped)

    def owners(self) -> Iterable[Owner]:
        return self._by_owner.keys()

    def entries(
        self, order: Callable[[_Resource], Any]
    ) -> tuple[tuple[Owner, tuple[_Resource, ...]], ...]:
        return tuple(
            (owner, tuple(sorted(self._by_owner[owner], key=order)))
            for owner in sorted(self._by_owner)
        )


class Reservations:
    """All temporary reservations. Errors are `ReservationError`, in Ganeti's words.

    The writer stores `file` before it announces a reservation. If that fails, it begins anew with
    the file that it stored last.
    """

    def __init__(self, file: ReservationsFile | None = None) -> None:
        """Begin with what ``tempres.data`` holds; `StorageError` if it contradicts itself."""
        file = file or ReservationsFile()
        self._extra = file.extra
        self._disks: dict[Minor, str] = {}
        self._minors: dict[str, set[Minor]] = {}
        try:
            for node, minors in file.minors:
                for number, disk in minors:
                    self._add_minor(Minor(node, number), disk)
            self._macs = _Table(file.macs)
            self._secrets = _Table(file.secrets)
            self._volumes = _Table(file.volumes)
            self._ips = _Table(file.ips)
        except errors.ReservationError as error:
            raise errors.StorageError(f"tempres.data is not readable: {error.text}") from error

    def file(self) -> ReservationsFile:
        """All reservations, as ``tempres.data`` holds them."""
        by_node = itertools.groupby(sorted(self._disks.items()), key=lambda item: item[0].node)
        return ReservationsFile(
            minors=tuple(
                (node, tuple((minor.number, disk) for minor, disk in items))
                for node, items in by_node
            ),
            macs=self._macs.entries(str),
            secrets=self._secrets.entries(str),
            volumes=self._volumes.entries(lambda volume: volume.partition("/")),
            ips=self._ips.entries(lambda change: change.order),
            extra=self._extra,
        )

    def owners(self) -> set[Owner]:
        """The owners that have a reservation."""
        return {owner for table in self._tables() for owner in table.owners()}

    def drop(self, owner: Owner) -> bool:
        """End all reservations of the owner; whether there were any. Minors stay."""
        dropped = [table.drop(owner) for table in self._tables()]
        return any(dropped)

    # -------------------------------------------------------- MACs, secrets, volumes

    def reserve_mac(self, owner: Owner, mac: str, in_use: Container[object]) -> None:
        """Reserve a MAC address, which no interface may have."""
        mac = mac.lower()
        if mac in in_use:
            raise errors.ReservationError("MAC already in use")
        self._macs.add(owner, mac)

    def generate_mac(
        self, owner: Owner, prefix: str, in_use: Container[object], *, random_bytes: RandomBytes
    ) -> str:
        """Reserve a random MAC address with this prefix, such as ``aa:00:00``."""

        def make() -> str:
            return ":".join(
                [prefix.lower(), *(f"{one:02x}" for one in random_bytes(MAC_RANDOM_BYTES))]
            )

        return self._generated(self._macs, owner, in_use, make)

    def generate_secret(
        self, owner: Owner, in_use: Container[object], *, random_bytes: RandomBytes
    ) -> str:
        """Reserve a random DRBD secret of 40 hexadecimal digits."""
        return self._generated(
            self._secrets, owner, in_use, lambda: random_bytes(SECRET_BYTES).hex()
        )

    def reserve_volume(self, owner: Owner, volume: str, in_use: Container[object]) -> None:
        """Reserve a logical volume, ``group/name``, which no disk may have."""
        group, slash, name = volume.partition("/")
        if not (group and slash and name):
            raise errors.ReservationError(f"Logical volume '{volume}': expected group/name")
        if volume in in_use:
            # Ganeti says here that a MAC is in use, by mistake.
            raise errors.ReservationError("Logical volume already in use")
        self._volumes.add(owner, volume)

    def _generated(
        self, table: _Table[str], owner: Owner, in_use: Container[object], make: Callable[[], str]
    ) -> str:
        for _ in range(TRIES_MAX):
            made = make()
            if made not in in_use and made not in table:
                table.add(owner, made)
                return made
        raise errors.ReservationError("Not able generate new resource")

    # -------------------------------------------------------- addresses

    def reserve_ip(
        self, owner: Owner, network: Network, address: str, *, is_external_checked: bool
    ) -> None:
        """Record that the owner's commit reserves an address in a network's pool.

        Unless ``is_external_checked``, an address that is reserved externally is accepted.
        """
        pool = _pool(network)
        address = _in_pool(pool, address)
        if pool.is_reserved(address):
            raise errors.ReservationError("IP address already in use")
        if is_external_checked and pool.is_reserved(address, Use.EXTERNAL):
            raise errors.ReservationError("IP is externally reserved")
        self._ips.add(owner, IpChange(IpAction.RESERVE, address, network["uuid"]))

    def release_ip(self, owner: Owner, network: Network, address: str) -> None:
        """Record that the owner's commit releases an address in a network's pool."""
        address = _in_pool(_pool(network), address)
        self._ips.add(owner, IpChange(IpAction.RELEASE, address, network["uuid"]))

    def generate_ip(self, owner: Owner, network: Network) -> str:
        """Reserve the lowest address of a network that is free, and not recorded."""
        address = _pool(network).first_free(_Recorded(self._ips, network["uuid"]))
        if address is None:
            raise errors.ReservationError("Cannot generate IP. Network is full")
        self._ips.add(owner, IpChange(IpAction.RESERVE, address, network["uuid"]))
        return address

    def ip_changes(self, owner: Owner) -> list[IpChange]:
        """The recorded changes of this owner, as a list of reservations then of releases."""
        return sorted(self._ips.of(owner), key=lambda change: change.order)

    def committed_ips(self, owner: Owner, networks: Mapping[str, Network]) -> dict[str, Network]:
        """The networks (by UUID) as they are after the owner's commit, without those unchanged.

        Releases come first, so that an address that the owner releases and reserves is reserved.
        The reservations stay until they are dropped.
        """
        changed: dict[str, Network] = {}
        for change in reversed(self.ip_changes(owner)):
            network = changed.get(change.network) or networks.get(change.network)
            if network is None:
                raise network_missing(change.network)
            is_reserved = change.action is IpAction.RESERVE
            changed[change.network] = with_address(network, change.address, is_reserved=is_reserved)
        return changed

    # -------------------------------------------------------- minors

    def allocate_minors(
        self, disk: str, nodes: Sequence[str], in_use: Callable[[str], Container[object]]
    ) -> list[int]:
        """Reserve for the disk the smallest free minor on each of the nodes, in their order.

        ``in_use`` gives the minors of a node that disks of the configuration have.
        """
        if len(set(nodes)) < len(nodes):
            listed = ", ".join(nodes)
            raise errors.ReservationError(f"Duplicate nodes detected in list '{listed}'")
        minors = [self._first_free_minor(node, in_use(node)) for node in nodes]
        for minor in minors:
            self._add_minor(minor, disk)
        return [minor.number for minor in minors]

    def release_minors(self, disk: str) -> bool:
        """End all reservations of minors for the disk; whether there were any."""
        released = self._minors.pop(disk, ())
        for minor in released:
            del self._disks[minor]
        return bool(released)

    def minors_map(
        self, nodes: Iterable[str], used: Iterable[tuple[Minor, str]]
    ) -> dict[str, dict[int, str]]:
        """For each node the disk of each minor, also of those that are only reserved.

        ``used`` are the minors of the configuration, with their disks. A disk that was just added
        there may still have its reservation. `ReservationError` if two disks have one minor.
        """
        found: dict[str, dict[int, str]] = {node: {} for node in nodes}
        doubled = []
        for minor, disk in itertools.chain(self._disks.items(), used):
            disks = found.setdefault(minor.node, {})
            if disks.get(minor.number, disk) != disk:
                doubled.append(f"{minor.node}: {minor.number} ({disks[minor.number]}, {disk})")
            disks[minor.number] = disk
        if doubled:
            listed = "; ".join(sorted(doubled))
            raise errors.ReservationError(f"Duplicate DRBD ports detected: {listed}")
        return found

    def _first_free_minor(self, node: str, in_use: Container[object]) -> Minor:
        numbers = (Minor(node, number) for number in itertools.count())
        return next(
            minor for minor in numbers if minor not in self._disks and minor.number not in in_use
        )

    def _add_minor(self, minor: Minor, disk: str) -> None:
        if minor in self._disks:
            raise errors.ReservationError(f"Duplicate reservation for resource '{minor.number}'")
        self._disks[minor] = disk
        self._minors.setdefault(disk, set()).add(minor)

    def _tables(self) -> tuple[_Table[Any], ...]:
        return (self._macs, self._secrets, self._volumes, self._ips)


def drbd_minors(disk: Mapping[str, Any]) -> Iterator[Minor]:
    """The minors that a disk of the configuration has, with those of its children."""
    match disk:
        case {
            "dev_type": "drbd",
            "logical_id": [str(one), str(other), _, int(first), int(second), *_],
        }:
            yield Minor(one, first)
            yield Minor(other, second)
    for child in disk.get("children") or ():
        yield from drbd_minors(child)


def with_address(network: Network, address: str, *, is_reserved: bool) -> Network:
    """The network with the address reserved, or free; `ReservationError` if it is already."""
    pool = _pool(network)
    try:
        changed = pool.reserve(address) if is_reserved else pool.release(address)
    except errors.AddressPoolError as error:
        raise errors.ReservationError(error.text) from error
    return changed.stored_in(network)


def network_missing(uuid: str) -> errors.ReservationError:
    """The error for a network that the configuration does not have."""
    return errors.ReservationError(f"Network '{uuid}' not found")


class _Recorded(Container[object]):
    """The addresses of one network that some owner has recorded to change."""

    def __init__(self, table: _Table[IpChange], network: str) -> None:
        self._table, self._network = table, network

    def __contains__(self, address: object) -> bool:
        return any(
            IpChange(action, str(address), self._network) in self._table for action in IpAction
        )


def _pool(network: Network) -> AddressPool:
    try:
        return AddressPool.of(network)
    except errors.AddressPoolError as error:
        raise errors.ReservationError(error.text) from error


def _in_pool(pool: AddressPool, address: str) -> str:
    """The address, which the network must contain, in its usual form."""
    try:
        pool.is_reserved(address)
    except errors.AddressPoolError as error:
        raise errors.ReservationError(error.text) from error
    return str(ipaddress.IPv4Address(address))
