"""The operations on nodes: set parameters and roles, remove.

Source: Ganeti's ``LUNodeSetParams`` and ``LUNodeRemove``; the texts and codes of errors are theirs.
What they ask of the node itself is left out: a node daemon learns of its role when it is used.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final, NamedTuple

from ...cluster.configuration import Change, Configuration
from ...cluster.objects import ObjectKind
from ...opcodes import LevelNeeds, LockNeeds
from ...opcodes.declarations import WHOLE_LEVEL
from .. import parameters
from . import candidates, values
from .base import (
    AnyOpcode,
    Circumstances,
    Code,
    Operation,
    Operations,
    Outcome,
    check_locks_suffice,
    information,
    never_decided,
    prerequisite_error,
    warning,
)
from .lookups import Object, find_node, nodes_of_instance

_ROLES: Final = ("master_candidate", "drained", "offline")
_CAPABILITIES: Final = ("master_capable", "vm_capable")
_MODIFICATIONS: Final = (
    "offline", "master_candidate", "drained", "master_capable", "vm_capable", "secondary_ip",
    "ndparams", "hv_state", "disk_state",
)  # fmt: skip
_GLOBAL: Final = frozenset({"exclusive_storage"})
"""Parameters that a single node cannot have otherwise than its cluster or group."""
_TOO_FEW: Final = (
    "Not enough master candidates, please pass auto promote option to allow promotion "
    "(--auto-promote or RAPI auto_promote=True)"
)


def _node(opcode: AnyOpcode, configuration: Configuration) -> Object:
    if opcode.node_uuid is None:
        return find_node(configuration, opcode.node_name)
    found: Object | None = configuration.get(ObjectKind.NODE, opcode.node_uuid)
    if found is None:
        raise prerequisite_error(f"Node '{opcode.node_uuid}' not known", Code.UNKNOWN)
    return found


# ---------------------------------------------------------------- set parameters


def _set_locks(opcode: AnyOpcode, configuration: Configuration, _: Circumstances) -> LockNeeds:
    node = _node(opcode, configuration)
    _check_arguments(opcode)
    is_all = opcode.auto_promote and _may_demote(opcode)
    level = LevelNeeds(exclusive=(WHOLE_LEVEL if is_all else node["uuid"],))
    shared: tuple[str, ...] = ()
    if opcode.secondary_ip is not None:
        shared = tuple(sorted(_instances_on(configuration, node["uuid"], mirrored=True)))
    return LockNeeds(node=level, node_res=level, instance=LevelNeeds(shared=shared))


def _check_arguments(opcode: AnyOpcode) -> None:
    given = [getattr(opcode, name) for name in _MODIFICATIONS]
    if all(value is None for value in given):
        raise prerequisite_error("Please pass at least one modification", Code.WRONG_INPUT)
    if sum(value is True for value in given) > 1:
        text = "Can't set the node into more than one state at the same time"
        raise prerequisite_error(text, Code.WRONG_INPUT)
    if opcode.secondary_ip is not None and not _is_ipv4(opcode.secondary_ip):
        text = f"Secondary IP ({opcode.secondary_ip}) needs to be a valid IPv4 address"
        raise prerequisite_error(text, Code.WRONG_INPUT)


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _may_demote(opcode: AnyOpcode) -> bool:
    leaves = opcode.master_candidate is False or opcode.master_capable is False
    return bool(leaves or opcode.offline or opcode.drained)


class _Roles(NamedTuple):
    """The roles that a node is to have; None: as it is."""

    master_candidate: bool | None
    drained: bool | None
    offline: bool | None

    def of(self, node: Object) -> dict[str, bool]:
        """All three roles of the node afterwards: at most one is true."""
        if not any(self):
            if all(role is None for role in self):
                return {name: bool(node.get(name)) for name in _ROLES}
            return dict.fromkeys(_ROLES, False)
        return {name: bool(role) for name, role in zip(_ROLES, self, strict=True)}


def _set(opcode: AnyOpcode, configuration: Configuration, circumstances: Circumstances) -> Outcome:
    """Change parameters and roles of a node; its result has what changed, as texts."""
    node = _node(opcode, configuration)
    changed = "Nodes changed since locks were acquired; retry the operation"
    check_locks_suffice(
        circumstances.held, _set_locks(opcode, configuration, circumstances), changed
    )
    _check_roles(opcode, configuration, node)
    fields, result = _fields(opcode, configuration, node)
    log: list[str] = []
    roles = _roles(opcode, configuration, node, log).of(node)
    for name, value in roles.items():
        if value != bool(node.get(name)):
            result.append([name, str(value)])
    if node.get("offline") and not roles["offline"]:
        log.append(
            warning(
                "Transitioning node from offline to online state without using re-add. Please "
                "make sure the node is healthy!"
            )
        )
    changes = [Change(ObjectKind.NODE, node["uuid"], {**node, **fields, **roles})]
    if roles != {name: bool(node.get(name)) for name in _ROLES}:
        if opcode.auto_promote and _may_demote(opcode):
            changes += _promotions(configuration, node["uuid"], log)
        _check_pool(configuration, changes)
    return Outcome(tuple(changes), result, tuple(log))


def _check_pool(configuration: Configuration, changes: list[Change]) -> None:
    """Refuse to leave the pool smaller than it can be: the configuration would be wrong."""
    after = dict(configuration.objects(ObjectKind.NODE))
    after |= {one.uuid: one.object for one in changes if one.object is not None}
    pool = candidates.pool_of(after.values(), _pool_size(configuration))
    if pool.present < pool.wanted:
        raise prerequisite_error(_TOO_FEW, Code.WRONG_STATE)


def _check_roles(opcode: AnyOpcode, configuration: Configuration, node: Object) -> None:
    cluster, name, uuid = configuration.cluster, node["name"], node["uuid"]
    is_master = uuid == cluster.get("master_node")
    if is_master and any(getattr(opcode, role) is not None for role in _ROLES):
        text = "The master role can be changed only via master-failover"
        raise prerequisite_error(text, Code.WRONG_INPUT)
    if opcode.master_candidate and not node.get("master_capable"):
        text = f"Node {name} is not master capable, cannot make it a master candidate"
        raise prerequisite_error(text, Code.WRONG_STATE)
    if opcode.vm_capable is False and _instances_on(configuration, uuid):
        text = f"Node {name} hosts instances, cannot unset the vm_capable flag"
        raise prerequisite_error(text, Code.WRONG_STATE)
    if node.get("master_candidate") and _may_demote(opcode) and not opcode.auto_promote:
        pool = _pool(configuration, uuid)
        if pool.present < pool.wanted:
            raise prerequisite_error(_TOO_FEW, Code.WRONG_STATE)
    _check_power(opcode, configuration, node)
    if opcode.master_capable is False and node.get("master_candidate") and is_master:
        raise prerequisite_error("Master must remain master capable", Code.WRONG_STATE)


def _check_power(opcode: AnyOpcode, configuration: Configuration, node: Object) -> None:
    group = configuration.get(ObjectKind.NODE_GROUP, node["group"])
    own = parameters.node_parameters(configuration.cluster, group, node)
    if own.get("oob_program"):
        if opcode.offline is False and not (node.get("powered") or opcode.powered):
            text = (
                f"Node {opcode.node_name} needs to be turned on before its offline status can be "
                "reset"
            )
            raise prerequisite_error(text, Code.WRONG_STATE)
    elif opcode.powered is not None:
        text = (
            f"Unable to change powered state for node {opcode.node_name} as it does not support "
            "out-of-band handling"
        )
        raise prerequisite_error(text, Code.WRONG_STATE)


def _pool(configuration: Configuration, *without: str) -> candidates.Pool:
    nodes = [one for _, one in configuration.objects(ObjectKind.NODE)]
    return candidates.pool_of(nodes, _pool_size(configuration), without)


def _pool_size(configuration: Configuration) -> int:
    return configuration.cluster.get("candidate_pool_size") or 0


def _roles(opcode: AnyOpcode, configuration: Configuration, node: Object, log: list[str]) -> _Roles:
    """The roles that are asked for, and those that follow."""
    asked = {name: getattr(opcode, name) for name in _ROLES}
    for name in _ROLES:
        if asked[name] is False and not node.get(name):
            log.append(information(f"Ignoring request to unset flag {name}, already unset"))
            asked[name] = None
    is_back = asked["drained"] is False or asked["offline"] is False
    was_capable = bool(node.get("master_capable"))
    is_capable = was_capable if opcode.master_capable is None else opcode.master_capable
    # Ganeti promotes one that can be no master, too, such as a host.
    if is_capable and (is_back or not was_capable):
        pool = _pool(configuration)
        # The node itself makes the pool larger by one.
        if pool.present < min(pool.wanted + 1, _pool_size(configuration)):
            asked["master_candidate"] = True
            log.append(information("Auto-promoting node to master candidate"))
    if opcode.master_capable is False and node.get("master_candidate"):
        asked["master_candidate"] = False
        log.append(information("Demoting from master candidate"))
    if asked["master_candidate"]:
        return _Roles(master_candidate=True, drained=None, offline=None)
    return _Roles(**asked)


def _fields(
    opcode: AnyOpcode, configuration: Configuration, node: Object
) -> tuple[dict[str, Any], list[list[str]]]:
    """The other fields that change, and what the result says of them."""
    fields: dict[str, Any] = {}
    if opcode.secondary_ip is not None:
        fields["secondary_ip"] = _secondary(opcode, configuration, node)
    if opcode.ndparams:
        if used := sorted(_GLOBAL.intersection(opcode.ndparams)):
            text = (
                "The following node parameters are global and cannot be customized at node level, "
                f"please modify them at cluster or group level: {', '.join(used)}"
            )
            raise prerequisite_error(text, Code.WRONG_INPUT)
        new = values.updated(node["ndparams"], opcode.ndparams)
        fields["ndparams"] = values.enforced(new, values.NODE)
    if opcode.hv_state:
        fields["hv_state_static"] = values.hypervisor_state(
            node.get("hv_state_static"), opcode.hv_state
        )
    if opcode.disk_state:
        fields["disk_state_static"] = values.disk_state(
            node.get("disk_state_static"), opcode.disk_state
        )
    for name in ("powered", *_CAPABILITIES):
        if (value := getattr(opcode, name)) is not None:
            fields[name] = value
    told = [name for name in (*_CAPABILITIES, "secondary_ip") if name in fields]
    return fields, [[name, str(fields[name])] for name in told]


def _secondary(opcode: AnyOpcode, configuration: Configuration, node: Object) -> str:
    """The new secondary address; where nodes have one address, the master changes first."""
    address: str = opcode.secondary_ip
    master = configuration.get(ObjectKind.NODE, configuration.cluster.get("master_node") or "")
    master = node if master is None else master
    is_single = master["secondary_ip"] == master["primary_ip"]
    is_forced = opcode.force and node["uuid"] == master["uuid"]
    if is_single and address != node["primary_ip"] and not is_forced:
        text = (
            "Changing the secondary ip on a single-homed cluster requires the --force option to "
            "be passed, and the target node to be the master"
        )
        raise prerequisite_error(text, Code.WRONG_INPUT)
    if not is_single and address == node["primary_ip"] and not is_forced:
        text = (
            "Cannot set the secondary IP to be the same as the primary IP on a multi-homed "
            "cluster, unless the --force option is passed, and the target node is the master"
        )
        raise prerequisite_error(text, Code.WRONG_INPUT)
    if _instances_on(configuration, node["uuid"]):
        text = (
            f"Node {node['name']} has instances: whether they are down and reach the new "
            "secondary IP address cannot be checked here"
        )
        raise prerequisite_error(text, Code.WRONG_STATE)
    return address


def _promotions(configuration: Configuration, demoted: str, log: list[str]) -> list[Change]:
    promoted = _pool(configuration, demoted).promoted
    if promoted:
        listed = ", ".join(node["name"] for node in promoted)
        log.append(information(f"Promoted nodes to master candidate role: {listed}"))
    return [
        Change(ObjectKind.NODE, node["uuid"], {**node, "master_candidate": True})
        for node in promoted
    ]


def _instances_on(configuration: Configuration, uuid: str, *, mirrored: bool = False) -> list[str]:
    """The names of the instances that have the node as their primary or secondary one.

    ``mirrored``: only those with another node besides.
    """
    instances = configuration.objects(ObjectKind.INSTANCE)
    nodes = ((one["name"], nodes_of_instance(configuration, one)) for _, one in instances)
    return [name for name, own in nodes if uuid in own and len(own) > mirrored]


# ---------------------------------------------------------------- remove


def _remove_locks(_opcode: AnyOpcode, _: Configuration, __: Circumstances) -> LockNeeds:
    return LockNeeds(cluster=LevelNeeds(exclusive=("BGL",)))


def _remove(opcode: AnyOpcode, configuration: Configuration, _: Circumstances) -> Outcome:
    """Remove a node without instances, which is not the master; its result is null."""
    node = _node(opcode, configuration)
    uuid = node["uuid"]
    if uuid == configuration.cluster.get("master_node"):
        text = "Node is the master node, failover to another node is required"
        raise prerequisite_error(text, Code.WRONG_INPUT)
    if found := _instances_on(configuration, uuid):
        text = f"Instance {found[0]} is still running on the node, please remove first"
        raise prerequisite_error(text, Code.WRONG_INPUT)
    log: list[str] = []
    promotions = _promotions(configuration, uuid, log)
    return Outcome((*promotions, Change(ObjectKind.NODE, uuid, None)), None, tuple(log))


# ---------------------------------------------------------------- restricted commands


def _restricted_locks(
    opcode: AnyOpcode, configuration: Configuration, _: Circumstances
) -> LockNeeds:
    """The nodes: exclusively with ``use_locking``, else shared."""
    found = [find_node(configuration, name)["uuid"] for name in opcode.nodes]
    nodes = tuple(dict.fromkeys(found or opcode.node_uuids or ()))
    if opcode.use_locking:
        return LockNeeds(node=LevelNeeds(exclusive=nodes))
    return LockNeeds(node=LevelNeeds(shared=nodes))


OPERATIONS: Final[Operations] = {
    "OP_RESTRICTED_COMMAND": Operation(_restricted_locks, never_decided),
    "OP_NODE_REMOVE": Operation(_remove_locks, _remove),
    "OP_NODE_SET_PARAMS": Operation(_set_locks, _set),
}
"""The operations by the ids of their opcodes."""
