"""The locks of a node group and of its instances, and whether a job still holds those it needs.

A job names its locks before it has them. When it has them, the configuration may be another one:
a group may have got instances, or another group the name. Then the job is to try again.

Source: Ganeti's check of the instances of a group after their locks were acquired.
"""

from __future__ import annotations

from ...cluster.configuration import Configuration
from ...opcodes import LevelNeeds, LockNeeds
from .base import (
    AnyOpcode,
    Circumstances,
    Code,
    check_locks_suffice,
    locks_suffice,
    prerequisite_error,
)
from .lookups import Object, find_group, instances_of_group, names_of


def locks_of_group(opcode: AnyOpcode, configuration: Configuration, _: Circumstances) -> LockNeeds:
    """The group ``group_name`` exclusively."""
    group = find_group(configuration, opcode.group_name)
    return LockNeeds(nodegroup=LevelNeeds(exclusive=(group["uuid"],)))


def locks_of_group_and_instances(
    opcode: AnyOpcode,
    configuration: Configuration,
    _: Circumstances,
) -> LockNeeds:
    """The group ``group_name`` exclusively; its instances, by their names, shared."""
    group = find_group(configuration, opcode.group_name)
    instances = instances_of_group(configuration, group["uuid"])
    return LockNeeds(
        instance=LevelNeeds(shared=tuple(instance["name"] for instance in instances)),
        nodegroup=LevelNeeds(exclusive=(group["uuid"],)),
    )


def held_group(configuration: Configuration, name: str, held: LockNeeds) -> Object:
    """The group, which the job must hold exclusively; `OperationError` if it does not."""
    group = find_group(configuration, name)
    needed = LockNeeds(nodegroup=LevelNeeds(exclusive=(group["uuid"],)))
    text = f"Node group '{name}' changed since locks were acquired; retry the operation"
    check_locks_suffice(held, needed, text)
    return group


def held_instances(configuration: Configuration, group: Object, held: LockNeeds) -> list[Object]:
    """The instances of the group, which the job must share; `OperationError` if it does not."""
    found = instances_of_group(configuration, group["uuid"])
    wanted = tuple(instance["name"] for instance in found)
    if not locks_suffice(held, LockNeeds(instance=LevelNeeds(shared=wanted))):
        have = ", ".join(sorted({*held.instance.shared, *held.instance.exclusive}))
        raise prerequisite_error(
            f"Instances in node group '{group['name']}' changed since locks were acquired,"
            f" wanted '{', '.join(names_of(found))}', have '{have}'; retry the operation",
            Code.WRONG_STATE,
        )
    return found
