"""The opcodes of tags: read, add, remove and search.

Locks, errors and results follow Ganeti's ``cmdlib/tags.py``: the tags of the cluster need no lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ... import errors
from ...cluster.configuration import Change, Configuration
from ...cluster.objects import ObjectKind
from ...opcodes import LevelNeeds, LockMode, LockNeeds, OperationError
from ...opcodes.declarations import NO_LOCKS
from .. import tags
from .base import AnyOpcode, Circumstances, Operation, Operations, Outcome
from .lookups import Object, find_group, find_instance, find_network, find_node


class _Target(NamedTuple):
    """How the objects of a kind of tags are found and locked."""

    kind: ObjectKind
    find: Callable[[Configuration, str], Object]
    level: str
    lock_field: str = "uuid"


_TARGETS: Final = {
    "instance": _Target(ObjectKind.INSTANCE, find_instance, "instance", lock_field="name"),
    "node": _Target(ObjectKind.NODE, find_node, "node"),
    "nodegroup": _Target(ObjectKind.NODE_GROUP, find_group, "nodegroup"),
    "network": _Target(ObjectKind.NETWORK, find_network, "network"),
}
"""By the kind that the opcode gives; ``cluster`` has neither names nor locks."""


def _tagged(opcode: AnyOpcode, snapshot: Configuration) -> tuple[ObjectKind, Object]:
    target = _TARGETS.get(opcode.kind)
    if target is None:
        return ObjectKind.CLUSTER, snapshot.cluster
    return target.kind, target.find(snapshot, opcode.name or "")


def _locks(opcode: AnyOpcode, snapshot: Configuration, mode: LockMode) -> LockNeeds:
    target = _TARGETS.get(opcode.kind)
    if target is None:
        return NO_LOCKS
    found = target.find(snapshot, opcode.name or "")
    return LockNeeds(**{target.level: LevelNeeds(**{mode: (found[target.lock_field],)})})


def _locks_to_read(opcode: AnyOpcode, snapshot: Configuration, _given: Circumstances) -> LockNeeds:
    needs = _locks(opcode, snapshot, "shared")
    return needs if opcode.use_locking else NO_LOCKS


def _locks_to_change(
    opcode: AnyOpcode, snapshot: Configuration, _given: Circumstances
) -> LockNeeds:
    return _locks(opcode, snapshot, "exclusive")


def _no_locks(_opcode: AnyOpcode, _snapshot: Configuration, _given: Circumstances) -> LockNeeds:
    return NO_LOCKS


def _read(opcode: AnyOpcode, snapshot: Configuration, _given: Circumstances) -> Outcome:
    _, found = _tagged(opcode, snapshot)
    return Outcome(result=sorted(_tags_of(found)))


def _add(opcode: AnyOpcode, snapshot: Configuration, _given: Circumstances) -> Outcome:
    kind, found = _tagged(opcode, snapshot)
    for tag in opcode.tags:
        tags.check(tag)
    try:
        changed = tags.added(_tags_of(found), opcode.tags)
    except errors.TagError as error:
        raise OperationError("OpExecError", f"Error while setting tag: {error.text}") from error
    return _changed(kind, found, changed)


def _remove(opcode: AnyOpcode, snapshot: Configuration, _given: Circumstances) -> Outcome:
    kind, found = _tagged(opcode, snapshot)
    return _changed(kind, found, tags.removed(_tags_of(found), opcode.tags))


def _search(opcode: AnyOpcode, snapshot: Configuration, _given: Circumstances) -> Outcome:
    found = tags.search(snapshot.document, opcode.pattern)
    return Outcome(result=[list(pair) for pair in found])


def _changed(kind: ObjectKind, found: Object, changed: list[str]) -> Outcome:
    if set(changed) == set(_tags_of(found)):
        return Outcome()
    return Outcome((Change(kind, found.get("uuid", ""), {**found, "tags": changed}),))


def _tags_of(found: Object) -> list[str]:
    return found.get("tags") or []


OPERATIONS: Final[Operations] = {
    "OP_TAGS_GET": Operation(_locks_to_read, _read),
    "OP_TAGS_SET": Operation(_locks_to_change, _add),
    "OP_TAGS_DEL": Operation(_locks_to_change, _remove),
    "OP_TAGS_SEARCH": Operation(_no_locks, _search),
}
