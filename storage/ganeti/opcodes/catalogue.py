"""Ganeti's opcodes from `catalogue.json`: a family of `ganger.storage.opcodes.catalogue`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec

from ...opcodes.declarations import COMMON_FIELDS, LevelNeeds, LockNeeds, Opcode
from . import notation

RUN_IN_STORE = frozenset(
    f"OP_{family}_{verb}"
    for family, verbs in {
        "CLUSTER": ("CONFIG_QUERY", "QUERY", "REDIST_CONF", "SET_PARAMS", "VERIFY_CONFIG"),
        "GROUP": ("ADD", "ASSIGN_NODES", "REMOVE", "RENAME", "SET_PARAMS"),
        "NETWORK": ("ADD", "CONNECT", "DISCONNECT", "REMOVE", "RENAME", "SET_PARAMS"),
        "NODE": ("REMOVE", "SET_PARAMS"),
        "TAGS": ("DEL", "GET", "SEARCH", "SET"),
    }.items()
    for verb in verbs
)
"""The opcodes whose operations need nothing but the configuration."""

QUERIES = frozenset({"OP_QUERY", "OP_QUERY_FIELDS"})
"""The opcodes whose operations ask for what queries answer (`actors/ganeti/query_operations`)."""

ON_NODES = frozenset(
    {
        "OP_CLUSTER_REDIST_CONF",
        "OP_CLUSTER_VERIFY",
        "OP_CLUSTER_VERIFY_GROUP",
        "OP_RESTRICTED_COMMAND",
    }
)
"""The opcodes whose processes ask hosts or submit jobs (`actors/ganeti/node_operations`)."""

_ASKED_BY = {
    **dict.fromkeys(QUERIES, "ganger.actors.ganeti.query_operations"),
    **dict.fromkeys(ON_NODES, "ganger.actors.ganeti.node_operations"),
}
_LOCKED_BY_STORE = RUN_IN_STORE | {"OP_QUERY", "OP_CLUSTER_VERIFY_GROUP", "OP_RESTRICTED_COMMAND"}

_CATALOGUE_FILE = f"{__file__.rpartition('/')[0]}/catalogue.json"

_cache: dict[str, Any] = {}
_made: dict[str, type[Opcode]] = {}


def known_ids() -> Collection[str]:
    """The ids of all of Ganeti's opcodes."""
    found: dict[str, Any] = _stored()["opcodes"]
    return found.keys()


def find(op_id: str) -> type[Opcode] | None:
    """The type of the opcodes called ``op_id``, if Ganeti has such."""
    if op_id not in _made and op_id in known_ids():
        _made[op_id] = _make(op_id)
    return _made.get(op_id)


def _stored() -> dict[str, Any]:
    if not _cache:
        with open(_CATALOGUE_FILE, "rb") as file:
            _cache.update(msgspec.json.decode(file.read()))
    return _cache


def _make(op_id: str) -> type[Opcode]:
    declared = _stored()["opcodes"][op_id]
    parameters: dict[str, dict[str, Any]] = declared["parameters"]
    types = {name: parameter["type"] for name, parameter in parameters.items()}
    namespace: dict[str, Any] = {
        "__doc__": f"Ganeti's {op_id}.",
        "op_id": op_id,
        "summary_field": declared.get("summary_field"),
        "built_in": op_id in RUN_IN_STORE or op_id in _ASKED_BY,
        "runs_in_store": op_id in RUN_IN_STORE,
        "asked_by": _ASKED_BY.get(op_id, ""),
        "reuses_process": op_id in RUN_IN_STORE or op_id in QUERIES,
        "is_locked_by_store": op_id in _LOCKED_BY_STORE,
        "secret_fields": tuple(name for name, text in types.items() if "secret[" in text),
        "private_fields": tuple(name for name, text in types.items() if "private[" in text),
    }
    if declared.get("exclusive_bgl"):
        namespace["lock_needs"] = _needs_everything
    if addresses := list(_addresses(types)):
        namespace["__post_init__"] = _address_check(addresses)
    if op_id in _SUMMARIES:
        namespace["summary_value"] = classmethod(_SUMMARIES[op_id])
    made: object = msgspec.defstruct(
        _class_name(op_id),
        [_field(name, parameter) for name, parameter in parameters.items()],
        bases=(Opcode,),
        namespace=namespace,
        module=__name__,
        kw_only=True,
    )
    assert isinstance(made, type)
    assert issubclass(made, Opcode)
    return made


def _class_name(op_id: str) -> str:
    return "".join(word.capitalize() for word in op_id.split("_"))


def _field(name: str, parameter: Mapping[str, Any]) -> tuple[str, Any, Any]:
    assert name not in COMMON_FIELDS
    annotation: Any = notation.parse(parameter["type"], _stored()["enums"])
    if "default" not in parameter:
        return name, annotation, msgspec.field()
    default = parameter["default"]
    if default is None:
        # A few parameters are of type "any"; unset is a value of that too.
        annotation = annotation | None
    return name, annotation, msgspec.field(default=default)


def _needs_everything(_self: Opcode) -> LockNeeds:
    return LockNeeds(cluster=LevelNeeds(exclusive=("BGL",)))


def _addresses(types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, text in types.items():
        kind = next((kind for kind in notation.ADDRESS_NOTATIONS if kind in text), None)
        if kind is not None:
            yield name, kind


def _address_check(addresses: list[tuple[str, str]]) -> Callable[[Opcode], None]:
    def check(self: Opcode) -> None:
        for name, kind in addresses:
            value = getattr(self, name)
            for text in value if isinstance(value, list) else [value]:
                try:
                    if text is not None:
                        notation.check_address(kind, text)
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from error

    return check


_TAG_KINDS = {
    "cluster": "TagKindCluster",
    "instance": "TagKindInstance",
    "network": "TagKindNetwork",
    "node": "TagKindNode",
    "nodegroup": "TagKindGroup",
}


def _tags_get_summary(_cls: type[Opcode], fields: Mapping[str, Any]) -> str | None:
    # Ganeti shows its internal word for the kind, and its clients print that.
    kind = fields.get("kind")
    return _TAG_KINDS.get(kind) if isinstance(kind, str) else None


def _allocator_summary(_cls: type[Opcode], fields: Mapping[str, Any]) -> str | None:
    return str(fields.get("iallocator"))


_SUMMARIES: dict[str, Callable[[type[Opcode], Mapping[str, Any]], str | None]] = {
    "OP_TAGS_GET": _tags_get_summary,
    "OP_TEST_ALLOCATOR": _allocator_summary,
}
