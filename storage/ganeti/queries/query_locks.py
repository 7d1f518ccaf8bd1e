"""The locks of ``OP_QUERY``: shared ones of the items, if it asks for locking and for live fields.

As in Ganeti: a query for nodes locks these; one for instances locks these, their nodes, their
networks and, if it shows where they are, their node groups. Without names it is all of each level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

from ... import errors
from ...cluster.configuration import Configuration
from ...cluster.objects import ObjectKind
from ...filters.filters import fields_of, parse_filter
from ...opcodes import LevelNeeds, LockNeeds
from ...opcodes.declarations import NO_LOCKS, WHOLE_LEVEL
from ..operations.base import AnyOpcode, Circumstances, Code, Operation, prerequisite_error
from ..operations.lookups import nodes_of_instance
from .answering import requested_names
from .cluster_view import ClusterView
from .instances import INSTANCES
from .nodes import LIVE_FIELDS as LIVE_OF_NODES
from .nodes import NODES

LIVE_OF_INSTANCES: Final = frozenset({"console", "oper_ram", "oper_state", "oper_vcpus", "status"})
"""The fields of instances that only their nodes know."""

_WITH_GROUPS: Final = frozenset(
    {"pnode", "pnode.group", "pnode.group.uuid", "snodes.group", "snodes.group.uuid"}
)

Object = Mapping[str, Any]


def _locks(opcode: AnyOpcode, snapshot: Configuration, _given: Circumstances) -> LockNeeds:
    """Raises `UnknownObjectError`, or `FilterRuleError`."""
    tree = parse_filter(opcode.qfilter)
    asked = {*opcode.fields, *fields_of(tree)}
    if not opcode.use_locking:
        return NO_LOCKS
    if opcode.what == "node" and asked & LIVE_OF_NODES:
        nodes = _named(snapshot, NODES, tree)
        return LockNeeds(node=_shared(None if nodes is None else _uuids(nodes)))
    if opcode.what == "instance" and asked & LIVE_OF_INSTANCES:
        found = _named(snapshot, INSTANCES, tree)
        return _of_instances(snapshot, found, has_groups=bool(asked & _WITH_GROUPS))
    return NO_LOCKS


def _of_instances(
    snapshot: Configuration, instances: list[Object] | None, *, has_groups: bool
) -> LockNeeds:
    if instances is None:
        levels = ["instance", *(["nodegroup"] if has_groups else []), "node", "network"]
        return LockNeeds(**{level: _shared(None) for level in levels})
    nodes = {uuid for one in instances for uuid in nodes_of_instance(snapshot, one)}
    found = [node for uuid in nodes if (node := snapshot.get(ObjectKind.NODE, uuid)) is not None]
    nics = [nic for one in instances for nic in one.get("nics") or ()]
    names = {
        "instance": {one.get("name") for one in instances},
        "nodegroup": {node.get("group") for node in found} if has_groups else set(),
        "node": nodes,
        "network": {nic.get("network") for nic in nics},
    }
    known = {level: {str(name) for name in some if name} for level, some in names.items()}
    return LockNeeds(**{level: _shared(some) for level, some in known.items() if some})


def _named(snapshot: Configuration, resource: Any, tree: Any) -> list[Object] | None:  # noqa: ANN401 - of any source
    """The items that the filter names; None: it names none."""
    names = requested_names(resource, tree)
    if names is None:
        return None
    view = ClusterView(snapshot)
    found = []
    for name in names:
        item = resource.find(view, name)
        if item is None:
            raise errors.UnknownObjectError(f"{resource.noun} {name} not found")
        found.append(item)
    return found


def _uuids(objects: Iterable[Object]) -> Iterable[str]:
    return (str(one["uuid"]) for one in objects)


def _shared(names: Iterable[str] | None) -> LevelNeeds:
    """These locks of a level; None: all."""
    return LevelNeeds(shared=(WHOLE_LEVEL,) if names is None else tuple(sorted(set(names))))


def _refuse(opcode: AnyOpcode, _snapshot: Configuration, _given: Circumstances) -> NoReturn:
    """The job's process asks page by page; the whole answer is not made at once."""
    raise prerequisite_error(f"{opcode.op_id}: it is asked page by page", Code.WRONG_INPUT)


QUERY: Final = Operation(_locks, _refuse)
"""What the store does for an ``OP_QUERY``: it names its locks."""
