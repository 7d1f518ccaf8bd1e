"""The operations that connect a network to a node group and disconnect it.

A connected network gives interfaces of the group's instances their mode, link and VLAN.

Source: Ganeti's logical units of networks; the texts and codes of errors are theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ... import errors
from ...cluster.configuration import Change, Configuration
from ...cluster.objects import ObjectKind
from ...opcodes import LevelNeeds, LockNeeds, OperationError
from ..address_pools import AddressPool, is_in
from .base import (
    AnyOpcode,
    Circumstances,
    Code,
    Outcome,
    check_locks_suffice,
    prerequisite_error,
    warning,
)
from .group_locks import held_group, held_instances, locks_of_group, locks_of_group_and_instances
from .lookups import Object, find_network, in_order


def connect_locks(
    opcode: AnyOpcode, configuration: Configuration, circumstances: Circumstances
) -> LockNeeds:
    """The group exclusively; its instances and the network shared, if conflicts are looked for."""
    network = find_network(configuration, opcode.network_name)
    if not opcode.conflicts_check:
        return locks_of_group(opcode, configuration, circumstances)
    needs = locks_of_group_and_instances(opcode, configuration, circumstances)
    shared = LevelNeeds(shared=(network["uuid"],))
    return LockNeeds(instance=needs.instance, nodegroup=needs.nodegroup, network=shared)


def connect(
    opcode: AnyOpcode, configuration: Configuration, circumstances: Circumstances
) -> Outcome:
    """Connect a network to a group; its result is null.

    ``conflicts_check`` refuses it if an instance of the group has an address of the network: such
    an interface may be in another network, or in none.
    """
    network = find_network(configuration, opcode.network_name)
    group = held_group(configuration, opcode.group_name, circumstances.held)
    instances = []
    if opcode.conflicts_check:
        instances = held_instances(configuration, group, circumstances.held)
        needed = LockNeeds(network=LevelNeeds(shared=(network["uuid"],)))
        text = (
            f"Network '{opcode.network_name}' changed since locks were acquired;"
            " retry the operation"
        )
        check_locks_suffice(circumstances.held, needed, text)
    if network["uuid"] in group["networks"]:
        text = f"Network '{opcode.network_name}' is already mapped to group '{group['name']}'"
        return Outcome(log=(warning(text),))
    if opcode.conflicts_check:
        pool = _pool_of(network)
        _check_conflicts(
            lambda nic: is_in(pool, nic.get("ip")),
            f"'{opcode.network_name}', which is about to connect to node group '{group['name']}'",
            instances,
        )
    connection = {
        "mode": opcode.network_mode,
        "link": opcode.network_link,
        "vlan": opcode.network_vlan,
    }
    return Outcome((_reconnected(group, {**group["networks"], network["uuid"]: connection}),))


def disconnect_locks(
    opcode: AnyOpcode, configuration: Configuration, circumstances: Circumstances
) -> LockNeeds:
    """The group exclusively, its instances shared."""
    find_network(configuration, opcode.network_name)
    return locks_of_group_and_instances(opcode, configuration, circumstances)


def disconnect(
    opcode: AnyOpcode, configuration: Configuration, circumstances: Circumstances
) -> Outcome:
    """Disconnect a network, which no instance of the group uses; its result is null."""
    uuid = find_network(configuration, opcode.network_name)["uuid"]
    group = held_group(configuration, opcode.group_name, circumstances.held)
    instances = held_instances(configuration, group, circumstances.held)
    if uuid not in group["networks"]:
        text = f"Network '{opcode.network_name}' is not mapped to group '{group['name']}'"
        return Outcome(log=(warning(text),))
    _check_conflicts(
        lambda nic: nic.get("network") == uuid,
        f"'{opcode.network_name}', which is about to disconnect from node group '{group['name']}'",
        instances,
    )
    left = {key: connection for key, connection in group["networks"].items() if key != uuid}
    return Outcome((_reconnected(group, left),))


def _reconnected(group: Object, networks: Mapping[str, Any]) -> Change:
    return Change(ObjectKind.NODE_GROUP, group["uuid"], {**group, "networks": dict(networks)})


def _pool_of(network: Object) -> AddressPool:
    try:
        return AddressPool.of(network)
    except errors.AddressPoolError as error:
        raise OperationError("AddressPoolError", error.text) from error


def _check_conflicts(
    is_conflict: Callable[[Object], bool], network: str, instances: list[Object]
) -> None:
    conflicts = list(_conflicts(is_conflict, instances))
    if not conflicts:
        return
    text = f"IP addresses from network {network}, are in use: {', '.join(conflicts)}"
    raise prerequisite_error(
        # With two spaces, as in Ganeti.
        "Conflicting IP addresses found;  remove/modify the corresponding network interfaces",
        Code.WRONG_STATE,
        log=(warning(text),),
    )


def _conflicts(is_conflict: Callable[[Object], bool], instances: list[Object]) -> Iterator[str]:
    for instance in in_order(instances):
        found = [
            f"nic{index}/{nic.get('ip')}"
            for index, nic in enumerate(instance.get("nics") or ())
            if is_conflict(nic)
        ]
        if found:
            yield f"{instance['name']}: {', '.join(found)}"
