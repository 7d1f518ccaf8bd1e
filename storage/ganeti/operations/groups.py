"""The operations on node groups: add, remove, rename, set parameters, assign nodes.

Source: Ganeti's logical units of node groups; the texts and codes of errors are theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from ...cluster.configuration import ABSENT_SERIAL, Change, Configuration
from ...cluster.objects import ObjectKind
from ...opcodes import LevelNeeds, LockNeeds, OperationError
from .. import parameters
from . import disk_access, policies, values
from .base import (
    AnyOpcode,
    Circumstances,
    Code,
    Operation,
    Operations,
    Outcome,
    check_locks_suffice,
    execution_error,
    locks_suffice,
    prerequisite_error,
    warning,
)
from .group_locks import held_group, held_instances, locks_of_group, locks_of_group_and_instances
from .lookups import Object, find_group, find_node, holder_of, names_of, nodes_of_instance

_PREFERRED: Final = "preferred"
_COMMUNICATION: Final = {"mode": "routed", "link": "communication_rt", "vlan": ""}
"""How Ganeti connects a group to the network of instance communication."""

_STATES: Final = ("hv_state", "disk_state")
_SETTABLE: Final = ("ndparams", "diskparams", "alloc_policy", *_STATES, "ipolicy")


# ---------------------------------------------------------------- add


def _add_locks(_opcode: AnyOpcode, _: Configuration, circumstances: Circumstances) -> LockNeeds:
    return LockNeeds(nodegroup=LevelNeeds(exclusive=(circumstances.new_uuid,)))


def _add(opcode: AnyOpcode, configuration: Configuration, circumstances: Circumstances) -> Outcome:
    """Add a group; its result is null.

    The cluster may have a network for instance communication: the group is connected to it at
    once. (Ganeti submits a job for that.)
    """
    _check_is_new(configuration, opcode.group_name)
    group = {
        "name": opcode.group_name,
        "members": [],
        "ndparams": values.enforced(opcode.ndparams or {}, values.NODE),
        "alloc_policy": opcode.alloc_policy or _PREFERRED,
        **_new_states(opcode),
        "diskparams": values.new_disk_parameters(opcode.diskparams or {}),
        "ipolicy": policies.new_group_policy(configuration.cluster, opcode.ipolicy)
        if opcode.ipolicy
        else {},
        "networks": _communication_network(configuration),
        "uuid": circumstances.new_uuid,
        "tags": [],
    }
    return Outcome((Change(ObjectKind.NODE_GROUP, circumstances.new_uuid, group, ABSENT_SERIAL),))


def _check_is_new(configuration: Configuration, name: str) -> None:
    existing = holder_of(configuration, ObjectKind.NODE_GROUP, name)
    if existing is not None:
        text = f"Desired group name '{name}' already exists as a node group (UUID: {existing})"
        raise prerequisite_error(text, Code.EXISTS)


def _new_states(opcode: AnyOpcode) -> dict[str, Any]:
    return {
        f"{name}_static": _merged_state(name, None, given)
        for name in _STATES
        if (given := getattr(opcode, name))
    }


def _merged_state(name: str, old: Object | None, given: Object) -> dict[str, Any]:
    merge = values.hypervisor_state if name == "hv_state" else values.disk_state
    return merge(old, given)


def _communication_network(configuration: Configuration) -> dict[str, Any]:
    name = configuration.cluster.get("instance_communication_network")
    network = holder_of(configuration, ObjectKind.NETWORK, name) if name else None
    return {} if network is None else {network: dict(_COMMUNICATION)}


# ---------------------------------------------------------------- remove and rename


def _remove(
    opcode: AnyOpcode, configuration: Configuration, circumstances: Circumstances
) -> Outcome:
    """Remove a group without nodes, which is not the only one; its result is null."""
    group = held_group(configuration, opcode.group_name, circumstances.held)
    name, nodes = opcode.group_name, _members(configuration, group)
    if nodes:
        text = f"Group '{name}' not empty, has the following nodes: {', '.join(sorted(nodes))}"
        raise prerequisite_error(text, Code.WRONG_STATE)
    if configuration.count(ObjectKind.NODE_GROUP) == 1:
        text = f"Group '{name}' is the only group, cannot be removed"
        raise prerequisite_error(text, Code.WRONG_STATE)
    return Outcome((Change(ObjectKind.NODE_GROUP, group["uuid"], None),))


def _members(configuration: Configuration, group: Object) -> list[str]:
    nodes = configuration.objects(ObjectKind.NODE)
    return [uuid for uuid, node in nodes if node["group"] == group["uuid"]]


def _rename(
    opcode: AnyOpcode, configuration: Configuration, circumstances: Circumstances
) -> Outcome:
    """Give a group another name, which is the result."""
    group = held_group(configuration, opcode.group_name, circumstances.held)
    existing = holder_of(configuration, ObjectKind.NODE_GROUP, opcode.new_name)
    if existing is not None:
        text = (
            f"Desired new name '{opcode.new_name}' clashes with existing node group"
            f" (UUID: {existing})"
        )
        raise prerequisite_error(text, Code.EXISTS)
    return Outcome((_changed(group, {"name": opcode.new_name}),), opcode.new_name)


def _changed(group: Object, fields: Mapping[str, Any]) -> Change:
    return Change(ObjectKind.NODE_GROUP, group["uuid"], {**group, **fields})


# ---------------------------------------------------------------- set parameters


def _set_locks(
    opcode: AnyOpcode, configuration: Configuration, circumstances: Circumstances
) -> LockNeeds:
    _check_arguments(opcode)
    return locks_of_group_and_instances(opcode, configuration, circumstances)


def _check_arguments(opcode: AnyOpcode) -> None:
    if all(getattr(opcode, name) is None for name in _SETTABLE):
        raise prerequisite_error("Please pass at least one modification", Code.WRONG_INPUT)
    values.check_access_modes(opcode.diskparams or {})


def _set(opcode: AnyOpcode, configuration: Configuration, circumstances: Circumstances) -> Outcome:
    """Change parameters of a group; its result has the node and disk parameters that changed.

    An empty value changes nothing; ``default`` removes a parameter.
    """
    group = held_group(configuration, opcode.group_name, circumstances.held)
    instances = held_instances(configuration, group, circumstances.held)
    fields: dict[str, Any] = {}
    log: tuple[str, ...] = ()
    if opcode.ndparams:
        new = values.updated(group["ndparams"], opcode.ndparams)
        fields["ndparams"] = values.enforced(new, values.NODE)
    if opcode.diskparams:
        new = values.updated_disk_parameters(group["diskparams"], opcode.diskparams)
        _check_access(configuration, new, instances)
        fields["diskparams"] = new
    # Ganeti's result has the text that Python prints for the parameters.
    result = [[name, str(value)] for name, value in fields.items()]
    if opcode.alloc_policy:
        fields["alloc_policy"] = opcode.alloc_policy
    for name in _STATES:
        if given := getattr(opcode, name):
            stored = f"{name}_static"
            fields[stored] = _merged_state(name, group.get(stored), given)
    if opcode.ipolicy:
        new = policies.updated_policy(group["ipolicy"], opcode.ipolicy, of_group=True)
        fields["ipolicy"] = new
        log = _policy_log(configuration, group, new, instances)
    return Outcome((_changed(group, fields),), result, log)


def _check_access(
    configuration: Configuration, disk_parameters: Mapping[str, Any], instances: list[Object]
) -> None:
    """Refuse an access mode that the hypervisor of an instance of the group cannot use."""
    try:
        values.check_access_modes(disk_parameters)
        disk_access.check_usable(configuration, disk_parameters, instances)
    except OperationError as error:
        raise values.disk_problem(error) from error


def _policy_log(
    configuration: Configuration, group: Object, policy: Mapping[str, Any], instances: list[Object]
) -> tuple[str, ...]:
    """Check the new policy against the cluster; name the instances that violate it from now on."""
    cluster = configuration.cluster
    new = parameters.instance_policy(cluster, {"ipolicy": policy})
    policies.check_templates_enabled(cluster, new)
    old = parameters.instance_policy(cluster, group)
    found = policies.new_violators(configuration, old, new, instances)
    if not found:
        return ()
    listed = ", ".join(names_of(found))
    return (warning(f"After the ipolicy change the following instances violate them: {listed}"),)


# ---------------------------------------------------------------- assign nodes


class _Assignment(NamedTuple):
    """Nodes that come to a group, maybe from itself."""

    group: Object
    nodes: dict[str, Object]

    @classmethod
    def of(cls, opcode: AnyOpcode, configuration: Configuration) -> _Assignment:
        """No node is named: all nodes, as in Ganeti."""
        group = find_group(configuration, opcode.group_name)
        if not opcode.nodes:
            return cls(group, dict(configuration.objects(ObjectKind.NODE)))
        found = [find_node(configuration, name) for name in opcode.nodes]
        return cls(group, {node["uuid"]: node for node in found})

    def groups(self) -> set[str]:
        """The group, and those of the nodes now."""
        return {self.group["uuid"], *(node["group"] for node in self.nodes.values())}

    def moved(self) -> dict[str, Object]:
        """The nodes that are not in the group yet."""
        own = self.group["uuid"]
        return {uuid: node for uuid, node in self.nodes.items() if node["group"] != own}


def _assign_locks(opcode: AnyOpcode, configuration: Configuration, _: Circumstances) -> LockNeeds:
    assignment = _Assignment.of(opcode, configuration)
    return LockNeeds(
        nodegroup=LevelNeeds(exclusive=tuple(sorted(assignment.groups()))),
        node=LevelNeeds(exclusive=tuple(sorted(assignment.nodes))),
    )


def _assign(
    opcode: AnyOpcode, configuration: Configuration, circumstances: Circumstances
) -> Outcome:
    """Move nodes to a group; its result is null.

    A DRBD instance must not have nodes in two groups: that needs ``force``, and is logged.
    """
    assignment = _Assignment.of(opcode, configuration)
    _check_assignment_locks(assignment, circumstances.held)
    moved = assignment.moved()
    if not moved:
        return Outcome()
    log = _split_log(configuration, assignment, is_forced=opcode.force)
    own = assignment.group["uuid"]
    nodes = [
        Change(ObjectKind.NODE, uuid, {**node, "group": own})
        for uuid, node in sorted(moved.items())
    ]
    return Outcome((*nodes, *_touched_groups(configuration, assignment.groups())), None, log)


def _check_assignment_locks(assignment: _Assignment, held: LockNeeds) -> None:
    nodes = LockNeeds(node=LevelNeeds(exclusive=tuple(assignment.nodes)))
    text = "Nodes changed since locks were acquired; retry the operation"
    check_locks_suffice(held, nodes, text)
    groups = sorted(assignment.groups())
    if not locks_suffice(held, LockNeeds(nodegroup=LevelNeeds(exclusive=tuple(groups)))):
        raise execution_error(
            "Nodes changed groups since locks were acquired, current groups are"
            f" '{', '.join(groups)}', used to be '{', '.join(held.nodegroup.exclusive)}'"
        )


def _touched_groups(configuration: Configuration, uuids: Iterable[str]) -> list[Change]:
    """The groups whose members change: only their serial numbers and times show that."""
    groups = ((uuid, configuration.get(ObjectKind.NODE_GROUP, uuid)) for uuid in sorted(uuids))
    return [Change(ObjectKind.NODE_GROUP, uuid, dict(group)) for uuid, group in groups if group]


def _split_log(
    configuration: Configuration, assignment: _Assignment, *, is_forced: bool
) -> tuple[str, ...]:
    before, after = _split_instances(configuration, assignment)
    new = [instance for uuid, instance in after.items() if uuid not in before]
    if not new:
        return ()
    listed = ", ".join(names_of(new))
    if not is_forced:
        raise execution_error(
            f"The following instances get split by this change and --force was not given: {listed}"
        )
    log = [warning(f"This operation will split the following instances: {listed}")]
    old = [instance for uuid, instance in after.items() if uuid in before]
    if old:
        log.append(
            warning(
                "In addition, these already-split instances continue to be split across groups: "
                f"{', '.join(names_of(old))}"
            )
        )
    return tuple(log)


def _split_instances(
    configuration: Configuration, assignment: _Assignment
) -> tuple[dict[str, Object], dict[str, Object]]:
    """The DRBD instances, by UUID, with nodes in several groups before and after."""
    before: dict[str, Object] = {}
    after: dict[str, Object] = {}
    groups = {uuid: node["group"] for uuid, node in configuration.objects(ObjectKind.NODE)}
    new_groups = groups | dict.fromkeys(assignment.nodes, assignment.group["uuid"])
    for uuid, instance in configuration.objects(ObjectKind.INSTANCE):
        nodes = nodes_of_instance(configuration, instance)
        if len(nodes) == 1:
            # Only DRBD disks give an instance more than one node.
            continue
        if len({groups.get(node) for node in nodes}) > 1:
            before[uuid] = instance
        if len({new_groups.get(node) for node in nodes}) > 1:
            after[uuid] = instance
    return before, after


OPERATIONS: Final[Operations] = {
    "OP_GROUP_ADD": Operation(_add_locks, _add),
    "OP_GROUP_REMOVE": Operation(locks_of_group, _remove),
    "OP_GROUP_RENAME": Operation(locks_of_group, _rename),
    "OP_GROUP_SET_PARAMS": Operation(_set_locks, _set),
    "OP_GROUP_ASSIGN_NODES": Operation(_assign_locks, _assign),
}
