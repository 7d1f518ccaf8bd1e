"""Which addresses of a network are free, used by instances, or reserved for others.

How it works
------------
An IPv4 network keeps two strings with one digit for each of its addresses, ``1`` if it is
reserved: ``reservations`` for instances, ``ext_reservations`` for what is not an instance (the
network and broadcast address, the gateway, hosts that the administrator names). An `AddressPool`
is a value made from them; `AddressPool.stored_in` writes it back.

Ganeti has no such string for IPv6, and there could be none: a /64 has too many addresses. So an
`Ipv6Pool` is made from the addresses that network interfaces of instances have, whenever it is
needed; nothing of it is stored. It gives the smallest free address.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

import msgspec

from .. import errors

IPV4_PREFIX_MIN, IPV4_PREFIX_MAX = 16, 30
"""The sizes of IPv4 networks that have a pool: from /16 to /30, as in Ganeti."""

_FREE, _RESERVED = "0", "1"
_LINK: Final = 2
"""The addresses of an IPv6 network between two routers, which are both for hosts (RFC 6164)."""
_MAP: Final = str.maketrans({_FREE: ".", _RESERVED: "X"})

Network = dict[str, Any]
"""A network of the configuration."""


class Use(enum.Enum):
    """For whom an address is reserved; the value is the key in the network."""

    INSTANCE = "reservations"
    EXTERNAL = "ext_reservations"


_IS_RESERVED = {
    Use.INSTANCE: "already used by an instance",
    Use.EXTERNAL: "already externally reserved",
}
_IS_FREE = {Use.INSTANCE: "not used by an instance", Use.EXTERNAL: "not externally reserved"}


class AddressPool(msgspec.Struct, frozen=True):
    """The addresses of an IPv4 network. Every change gives a new pool.

    Each method raises `AddressPoolError` for an address that the network does not contain.
    """

    network: ipaddress.IPv4Network
    digits: dict[Use, str]

    @classmethod
    def of(cls, network: Mapping[str, Any]) -> AddressPool:
        """The pool of a network; `AddressPoolError` if its size or a string is wrong."""
        subnet = _ipv4_network(network.get("network"))
        _check_size(subnet)
        return cls(subnet, {use: _digits(network, use, subnet.num_addresses) for use in Use})

    def stored_in(self, network: Mapping[str, Any]) -> Network:
        """A copy of the network with this pool."""
        return {**network, **{use.value: digits for use, digits in self.digits.items()}}

    def contains(self, address: str) -> bool:
        """Whether the network contains ``address``."""
        return _ipv4(address) in self.network

    def is_reserved(self, address: str, use: Use = Use.INSTANCE) -> bool:
        """Whether the address is reserved for this use."""
        return self.digits[use][self._place(address)] == _RESERVED

    def reserve(self, address: str, use: Use = Use.INSTANCE) -> AddressPool:
        """The pool with this address reserved; `AddressPoolError` if it is already."""
        if self.is_reserved(address, use):
            raise errors.AddressPoolError(f"IP {address} is {_IS_RESERVED[use]}")
        return self._with(address, use, _RESERVED)

    def release(self, address: str, use: Use = Use.INSTANCE) -> AddressPool:
        """The pool with this address free; `AddressPoolError` if it is already."""
        if not self.is_reserved(address, use):
            raise errors.AddressPoolError(f"IP {address} is {_IS_FREE[use]}")
        return self._with(address, use, _FREE)

    def first_free(self, taken: Container[object] = ()) -> str | None:
        """The lowest address that is neither reserved nor in ``taken``; None: there is none."""
        instances, external = self.digits[Use.INSTANCE], self.digits[Use.EXTERNAL]
        place = instances.find(_FREE)
        while place >= 0:
            if external[place] == _FREE and (address := str(self.network[place])) not in taken:
                return address
            place = instances.find(_FREE, place + 1)
        return None

    @property
    def reserved_count(self) -> int:
        """The number of addresses that are reserved for any use."""
        return self._all().bit_count()

    @property
    def free_count(self) -> int:
        """The number of addresses that are reserved for no use."""
        return self.network.num_addresses - self.reserved_count

    @property
    def map(self) -> str:
        """One character for each address: ``.`` if it is free, ``X`` if it is reserved."""
        return format(self._all(), f"0{self.network.num_addresses}b").translate(_MAP)

    @property
    def external_reservations(self) -> list[str]:
        """The addresses that are reserved for others than instances, from the lowest."""
        digits = self.digits[Use.EXTERNAL]
        return [str(self.network[place]) for place, one in enumerate(digits) if one == _RESERVED]

    def _all(self) -> int:
        """Both uses in one number, whose highest bit stands for the lowest address."""
        return int(self.digits[Use.INSTANCE], 2) | int(self.digits[Use.EXTERNAL], 2)

    def _place(self, address: str) -> int:
        found = _ipv4(address)
        if found not in self.network:
            raise errors.AddressPoolError(f"{self.network} does not contain {address}")
        return int(found) - int(self.network.network_address)

    def _with(self, address: str, use: Use, digit: str) -> AddressPool:
        place, digits = self._place(address), self.digits[use]
        changed = digits[:place] + digit + digits[place + 1 :]
        return AddressPool(self.network, {**self.digits, use: changed})


def is_in(pool: AddressPool, address: object) -> bool:
    """Whether this is an address of the pool's network; an IPv6 address or None never is."""
    found = _parsed(address) if isinstance(address, str) else None
    return isinstance(found, ipaddress.IPv4Address) and found in pool.network


def with_new_pool(network: Mapping[str, Any]) -> Network:
    """The network with a new pool, in which only its own addresses are reserved.

    These are the network address, the broadcast address and, if there is one, the gateway.
    """
    free = {use.value: "" for use in Use}
    pool = AddressPool.of({**network, **free})
    own = [str(pool.network.network_address), str(pool.network.broadcast_address)]
    for address in [*own, *filter(None, [network.get("gateway")])]:
        pool = pool.reserve(address, Use.EXTERNAL)
    check_ipv6(network)
    return pool.stored_in(network)


def check_ipv6(network: Mapping[str, Any]) -> None:
    """Raise `AddressPoolError` if the IPv6 gateway of a network is outside its IPv6 range."""
    pool = Ipv6Pool.of(network, ())
    gateway = network.get("gateway6")
    if pool is not None and gateway and not pool.contains(gateway):
        raise errors.AddressPoolError(f"{pool.network} does not contain {gateway}")


class Ipv6Pool(msgspec.Struct, frozen=True):
    """The addresses of an IPv6 network. Every change gives a new pool.

    Each method raises `AddressPoolError` for an address that the network does not contain.
    """

    network: ipaddress.IPv6Network
    reserved: frozenset[int]
    gateway: int | None = None

    @classmethod
    def of(cls, network: Mapping[str, Any], addresses: Iterable[str]) -> Ipv6Pool | None:
        """The pool of a network; None if it has no IPv6 part.

        ``addresses`` are those of the network interfaces in this network. Others than IPv6
        addresses of its range are ignored.
        """
        if not network.get("network6"):
            return None
        subnet = _ipv6_network(network["network6"])
        gateway = network.get("gateway6")
        found = (_parsed(address) for address in addresses)
        reserved = frozenset(
            int(address)
            for address in found
            if isinstance(address, ipaddress.IPv6Address) and address in subnet
        )
        return cls(subnet, reserved, int(_ipv6(gateway)) if gateway else None)

    def contains(self, address: str) -> bool:
        """Whether the network contains ``address``."""
        return _ipv6(address) in self.network

    def is_reserved(self, address: str) -> bool:
        """Whether the address is used by an instance, the gateway or the network itself."""
        return self._is_reserved(self._number(address))

    def reserve(self, address: str) -> Ipv6Pool:
        """The pool with this address reserved; `AddressPoolError` if it is already."""
        number = self._number(address)
        if self._is_reserved(number):
            raise errors.AddressPoolError(f"IP {address} is {_IS_RESERVED[Use.INSTANCE]}")
        return Ipv6Pool(self.network, self.reserved | {number}, self.gateway)

    def release(self, address: str) -> Ipv6Pool:
        """The pool with this address free; `AddressPoolError` if no instance uses it."""
        number = self._number(address)
        if number not in self.reserved:
            raise errors.AddressPoolError(f"IP {address} is {_IS_FREE[Use.INSTANCE]}")
        return Ipv6Pool(self.network, self.reserved - {number}, self.gateway)

    def first_free(self, taken: Container[object] = ()) -> str | None:
        """The lowest address that is neither reserved nor in ``taken``; None: there is none."""
        lowest = int(self.network.network_address)
        for number in range(lowest, lowest + self.network.num_addresses):
            if not self._is_reserved(number):
                address = str(ipaddress.IPv6Address(number))
                if address not in taken:
                    return address
        return None

    def _is_reserved(self, number: int) -> bool:
        # The lowest address means "any router of this network" (RFC 4291, section 2.6.1).
        if number == int(self.network.network_address) and self.network.num_addresses > _LINK:
            return True
        return number == self.gateway or number in self.reserved

    def _number(self, address: str) -> int:
        found = _ipv6(address)
        if found not in self.network:
            raise errors.AddressPoolError(f"{self.network} does not contain {address}")
        return int(found)


# ---------------------------------------------------------------- reading


def _check_size(network: ipaddress.IPv4Network) -> None:
    count = network.num_addresses
    if network.prefixlen < IPV4_PREFIX_MIN:
        raise errors.AddressPoolError(
            f"A big network with {count} host(s) is currently not supported. "
            f"please specify at most a /{IPV4_PREFIX_MIN} network"
        )
    if network.prefixlen > IPV4_PREFIX_MAX:
        raise errors.AddressPoolError(
            f"A network with only {count} host(s) is too small, "
            f"please specify at least a /{IPV4_PREFIX_MAX} network"
        )


def _digits(network: Mapping[str, Any], use: Use, count: int) -> str:
    """The string of one use; a missing one means that nothing is reserved."""
    found = network.get(use.value) or _FREE * count
    is_right = isinstance(found, str) and found.count(_FREE) + found.count(_RESERVED) == count
    if not is_right or len(found) != count:
        name = network.get("name", "?")
        raise errors.AddressPoolError(
            f"network '{name}': {use.value}: expected {count} digits that are 0 or 1"
        )
    return found


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None


def _ipv4(address: str) -> ipaddress.IPv4Address:
    found = _parsed(address)
    if not isinstance(found, ipaddress.IPv4Address):
        raise errors.AddressPoolError(f"'{address}' is not an IPv4 address")
    return found


def _ipv6(address: str) -> ipaddress.IPv6Address:
    found = _parsed(address)
    if not isinstance(found, ipaddress.IPv6Address):
        raise errors.AddressPoolError(f"'{address}' is not an IPv6 address")
    return found


def _ipv4_network(text: object) -> ipaddress.IPv4Network:
    try:
        # As in Ganeti, digits behind the prefix are allowed and count as 0.
        return ipaddress.IPv4Network(str(text), strict=False)
    except ValueError as error:
        raise errors.AddressPoolError(f"'{text}' is not an IPv4 network") from error


def _ipv6_network(text: object) -> ipaddress.IPv6Network:
    try:
        return ipaddress.IPv6Network(str(text), strict=False)
    except ValueError as error:
        raise errors.AddressPoolError(f"'{text}' is not an IPv6 network") from error
