"""The operations on networks: add, remove, rename, set parameters, connect to a group, disconnect.

A network has a pool of IPv4 addresses. What is not an instance is reserved in it externally: the
network and the broadcast address, the gateway, the addresses of nodes and of the master, and those
that an opcode names. IPv6 has no pool, as in Ganeti: only its network and gateway are checked.

Source: Ganeti's logical units of networks; the texts and codes of errors are theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ... import errors
from ...cluster.configuration import ABSENT_SERIAL, Change, Configuration
from ...cluster.objects import ObjectKind
from ...opcodes import LevelNeeds, LockNeeds, OperationError
from ...opcodes.declarations import WHOLE_LEVEL
from .. import address_pools, tags
from ..address_pools import AddressPool, Use, is_in
from . import connections, values
from .base import (
    AnyOpcode,
    Circumstances,
    Code,
    Operation,
    Operations,
    Outcome,
    check_locks_suffice,
    execution_error,
    information,
    prerequisite_error,
    warning,
)
from .lookups import Object, find_network, holder_of, in_order, names_of

_NONE: Final = "none"
"""The value of ``mac_prefix`` that removes it."""

_OPTIONAL: Final = ("gateway", "network6", "gateway6")


# ---------------------------------------------------------------- add


def _add_locks(opcode: AnyOpcode, _: Configuration, circumstances: Circumstances) -> LockNeeds:
    _normalized_prefix(opcode)
    return LockNeeds(
        node=LevelNeeds(shared=(WHOLE_LEVEL,)) if opcode.conflicts_check else LevelNeeds(),
        network=LevelNeeds(exclusive=(circumstances.new_uuid,)),
    )


def _add(opcode: AnyOpcode, configuration: Configuration, circumstances: Circumstances) -> Outcome:
    """Add a network with its pool; its result is null.

    ``conflicts_check`` reserves the addresses of all nodes and of the master in the pool.
    """
    prefix = _normalized_prefix(opcode)
    existing = holder_of(configuration, ObjectKind.NETWORK, opcode.network_name)
    if existing is not None:
        raise prerequisite_error(
            f"Desired network name '{opcode.network_name}' already exists as a network"
            f" (UUID: {existing})",
            Code.EXISTS,
        )
    own_tags = _checked_tags(opcode.tags)
    optional = {name: getattr(opcode, name) for name in _OPTIONAL} | {"mac_prefix": prefix}
    network = {
        "name": opcode.network_name,
        "network": opcode.network,
        **{name: value for name, value in optional.items() if value},
        "uuid": circumstances.new_uuid,
        "tags": own_tags,
    }
    pool, log = _new_pool(opcode, configuration, network)
    change = Change(
        ObjectKind.NETWORK, circumstances.new_uuid, pool.stored_in(network), ABSENT_SERIAL
    )
    return Outcome((change,), None, log)


def _normalized_prefix(opcode: AnyOpcode) -> str | None:
    return values.mac_prefix(opcode.mac_prefix) if opcode.mac_prefix else None


def _checked_tags(new: list[str]) -> list[str]:
    try:
        return tags.added([], new)
    except errors.TagError as error:
        raise OperationError("TagError", error.text) from error


def _new_pool(
    opcode: AnyOpcode, configuration: Configuration, network: Object
) -> tuple[AddressPool, tuple[str, ...]]:
    log: list[str] = []
    try:
        pool = AddressPool.of(address_pools.with_new_pool(network))
    except errors.AddressPoolError as error:
        name = opcode.network_name
        text = f"Cannot create IP address pool for network '{name}': {error.text}"
        raise execution_error(text) from error
    if opcode.conflicts_check:
        pool = _with_nodes(pool, configuration, log)
        pool = _with_master(pool, configuration, log)
    for address in opcode.add_reserved_ips or ():
        try:
            pool = pool.reserve(address, Use.EXTERNAL)
        except errors.AddressPoolError as error:
            text = f"Cannot reserve IP address '{address}': {error.text}"
            raise execution_error(text, log=tuple(log)) from error
    return pool, tuple(log)


def _with_nodes(pool: AddressPool, configuration: Configuration, log: list[str]) -> AddressPool:
    """The pool with the addresses of all nodes; a node may have one address for both."""
    for node in in_order(node for _, node in configuration.objects(ObjectKind.NODE)):
        for address in (node["primary_ip"], node["secondary_ip"]):
            if not is_in(pool, address):
                continue
            name = node["name"]
            try:
                pool = pool.reserve(address, Use.EXTERNAL)
                log.append(information(f"Reserved IP address of node '{name}' ({address})"))
            except errors.AddressPoolError as error:
                text = f"Cannot reserve IP address '{address}' of node '{name}': {error.text}"
                log.append(warning(text))
    return pool


def _with_master(pool: AddressPool, configuration: Configuration, log: list[str]) -> AddressPool:
    address = configuration.cluster.get("master_ip", "")
    if not is_in(pool, address):
        return pool
    try:
        pool = pool.reserve(address, Use.EXTERNAL)
        log.append(information(f"Reserved cluster master IP address ({address})"))
    except errors.AddressPoolError as error:
        text = f"Cannot reserve cluster master IP address ({address}): {error.text}"
        log.append(warning(text))
    return pool


# ---------------------------------------------------------------- remove and rename


def _network_lock(network: Object) -> LevelNeeds:
    return LevelNeeds(exclusive=(network["uuid"],))


def _locks(opcode: AnyOpcode, configuration: Configuration, _: Circumstances) -> LockNeeds:
    return LockNeeds(network=_network_lock(find_network(configuration, opcode.network_name)))


def _remove_locks(opcode: AnyOpcode, configuration: Configuration, _: Circumstances) -> LockNeeds:
    network = find_network(configuration, opcode.network_name)
    return LockNeeds(nodegroup=LevelNeeds(shared=(WHOLE_LEVEL,)), network=_network_lock(network))


def _remove(
    opcode: AnyOpcode, configuration: Configuration, circumstances: Circumstances
) -> Outcome:
    """Remove a network that is connected to no group; its result is null.

    ``force`` has no effect, as in Ganeti. A network in which an instance has an interface stays,
    too: Ganeti would leave a reference to nothing.
    """
    network = _held_network(configuration, opcode.network_name, circumstances.held)
    uuid, name = network["uuid"], opcode.network_name
    groups = [
        group
        for _, group in configuration.objects(ObjectKind.NODE_GROUP)
        if uuid in group["networks"]
    ]
    if groups:
        listed = ", ".join(names_of(groups))
        text = f"Network '{name}' is connected to the following node groups: {listed}"
        raise prerequisite_error("Network still connected", Code.WRONG_STATE, log=(warning(text),))
    users = [
        instance
        for _, instance in configuration.objects(ObjectKind.INSTANCE)
        if any(nic.get("network") == uuid for nic in instance.get("nics") or ())
    ]
    if users:
        listed = ", ".join(names_of(users))
        text = f"Network '{name}' is used by the following instances: {listed}"
        raise prerequisite_error("Network still in use", Code.WRONG_STATE, log=(warning(text),))
    return Outcome((Change(ObjectKind.NETWORK, uuid, None),))


def _rename(
    opcode: AnyOpcode, configuration: Configuration, circumstances: Circumstances
) -> Outcome:
    """Give a network another name, which is the result."""
    network = _held_network(configuration, opcode.network_name, circumstances.held)
    existing = holder_of(configuration, ObjectKind.NETWORK, opcode.new_name)
    if existing is not None:
        text = (
            f"Desired new name '{opcode.new_name}' clashes with existing network (UUID: {existing})"
        )
        raise prerequisite_error(text, Code.EXISTS)
    change = Change(ObjectKind.NETWORK, network["uuid"], {**network, "name": opcode.new_name})
    return Outcome((change,), opcode.new_name)


def _held_network(configuration: Configuration, name: str, held: LockNeeds) -> Object:
    """The network, which the job must hold exclusively; `OperationError` if it does not."""
    network = find_network(configuration, name)
    text = f"Network '{name}' changed since locks were acquired; retry the operation"
    check_locks_suffice(held, LockNeeds(network=_network_lock(network)), text)
    return network


# ---------------------------------------------------------------- set parameters


def _set_locks(
    opcode: AnyOpcode, configuration: Configuration, circumstances: Circumstances
) -> LockNeeds:
    _check_arguments(opcode)
    return _locks(opcode, configuration, circumstances)


def _check_arguments(opcode: AnyOpcode) -> None:
    if opcode.gateway and (opcode.add_reserved_ips or opcode.remove_reserved_ips):
        text = "Cannot modify gateway and reserved ips at once"
        raise prerequisite_error(text, Code.WRONG_INPUT)


def _set(opcode: AnyOpcode, configuration: Configuration, circumstances: Circumstances) -> Outcome:
    """Change a network and the addresses that are reserved in it; its result is null.

    An address that cannot be reserved or released is logged, and does not stop the others. The
    ``mac_prefix`` ``none`` removes it.
    """
    network = dict(_held_network(configuration, opcode.network_name, circumstances.held))
    log: list[str] = []
    try:
        pool = AddressPool.of(network)
        new_pool = pool
        if opcode.gateway:
            new_pool = _with_gateway(pool, network, opcode.gateway, log)
            network["gateway"] = opcode.gateway
        new_pool = _with_reserved(new_pool, opcode.add_reserved_ips or (), log)
        new_pool = _without_reserved(new_pool, network, opcode.remove_reserved_ips or (), log)
        _set_others(opcode, network)
    except errors.AddressPoolError as error:
        raise OperationError("AddressPoolError", error.text) from error
    if new_pool is not pool:
        network = new_pool.stored_in(network)
    return Outcome((Change(ObjectKind.NETWORK, network["uuid"], network),), None, tuple(log))


def _with_gateway(pool: AddressPool, network: Object, gateway: str, log: list[str]) -> AddressPool:
    if pool.is_reserved(gateway):
        text = f"Gateway IP address '{gateway}' is already reserved"
        raise prerequisite_error(text, Code.WRONG_STATE)
    old = network.get("gateway")
    if gateway == old:
        log.append(warning(f"Gateway is already {gateway}"))
        return pool
    pool = pool.reserve(gateway, Use.EXTERNAL)
    return pool.release(old, Use.EXTERNAL) if old else pool


def _with_reserved(pool: AddressPool, addresses: Iterable[str], log: list[str]) -> AddressPool:
    for address in addresses:
        try:
            pool = pool.reserve(address, Use.EXTERNAL)
        except errors.AddressPoolError as error:
            log.append(warning(f"Cannot reserve IP address {address}: {error.text}"))
    return pool


def _without_reserved(
    pool: AddressPool, network: Object, addresses: Iterable[str], log: list[str]
) -> AddressPool:
    for address in addresses:
        if address == network.get("gateway"):
            log.append(warning("Cannot unreserve Gateway's IP"))
            continue
        try:
            pool = pool.release(address, Use.EXTERNAL)
        except errors.AddressPoolError as error:
            log.append(warning(f"Cannot release IP address {address}: {error.text}"))
    return pool


def _set_others(opcode: AnyOpcode, network: dict[str, Any]) -> None:
    """Set the MAC prefix and the IPv6 part, whose gateway must be in its network."""
    if opcode.mac_prefix == _NONE:
        network.pop("mac_prefix", None)
    elif opcode.mac_prefix:
        network["mac_prefix"] = values.mac_prefix(opcode.mac_prefix)
    if not (opcode.network6 or opcode.gateway6):
        return
    given = {"network6": opcode.network6, "gateway6": opcode.gateway6}
    network.update({name: value for name, value in given.items() if value})
    address_pools.check_ipv6(network)


OPERATIONS: Final[Operations] = {
    "OP_NETWORK_ADD": Operation(_add_locks, _add),
    "OP_NETWORK_REMOVE": Operation(_remove_locks, _remove),
    "OP_NETWORK_SET_PARAMS": Operation(_set_locks, _set),
    "OP_NETWORK_CONNECT": Operation(connections.connect_locks, connections.connect),
    "OP_NETWORK_DISCONNECT": Operation(connections.disconnect_locks, connections.disconnect),
    "OP_NETWORK_RENAME": Operation(_locks, _rename),
}
