"""The kinds of objects in ``config.data``, and checks of plain dictionaries with their schemas.

The configuration keeps its objects as decoded JSON, so unknown fields survive and absent ones stay
absent. Packages bring the schemas. Filter rules have their own module, ``storage/filters/rules``.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Protocol, TypeAlias

import msgspec

from .. import entry_points
from ..wording import type_name

Object: TypeAlias = Mapping[str, Any]
"""One object of the configuration: decoded JSON. Its owner copies it before a change."""


class ObjectKind(enum.StrEnum):
    """What an object is. The value is its key at the top of ``config.data``."""

    CLUSTER = "cluster"
    NODE = "nodes"
    NODE_GROUP = "nodegroups"
    INSTANCE = "instances"
    NETWORK = "networks"
    DISK = "disks"
    FILTER = "filters"


CONTAINERS: Final = tuple(kind for kind in ObjectKind if kind is not ObjectKind.CLUSTER)
"""The kinds of which there may be many: each has a container, from UUIDs to objects."""

Count = Annotated[int, msgspec.Meta(ge=0)]
Cost = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]


class PredictiveCosts(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What waiting for locks costs in the predictive queue; an absent one has its default."""

    free: Cost | None = None
    spare_shared: Cost | None = None
    spare_exclusive: Cost | None = None
    may_block: Cost | None = None
    blocks: Cost | None = None


class PredictiveQueue(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Parameters of the predictive queue (`storage/prediction/policy`). Ganeti has none of them."""

    holds_back: bool | None = None
    all_opcodes: bool | None = None
    tick_seconds: Annotated[float, msgspec.Meta(gt=0, le=3_600)] | None = None
    ticks: Annotated[float, msgspec.Meta(gt=0, le=1_000)] | None = None
    base: Cost | None = None
    costs: PredictiveCosts | None = None


class Top(msgspec.Struct, kw_only=True):
    """What stands in ``config.data`` beside the cluster and the containers."""

    version: int
    ctime: float
    mtime: float
    serial_no: Count


class Kinds(Protocol):
    """What a package says of the objects of some kinds."""

    SCHEMAS: Mapping[ObjectKind, type[msgspec.Struct]]

    def note(self, kind: ObjectKind, found: Object, notes: Any, /) -> None:  # noqa: ANN401 - `assertions.Notes`
        """Note what the object says that must fit what others say."""


@functools.cache
def installed_kinds() -> tuple[Kinds, ...]:
    """What packages say. They are looked up once."""
    return tuple(entry_points.load(entry_points.CONFIG_KINDS).objects.values())


@functools.cache
def schemas() -> dict[ObjectKind, type[msgspec.Struct]]:
    """The schema of each kind; a kind without one may have any fields."""
    return {kind: schema for one in installed_kinds() for kind, schema in one.SCHEMAS.items()}


@functools.cache
def _partial(kind: ObjectKind) -> type[msgspec.Struct] | None:
    schema = schemas().get(kind)
    return None if schema is None else _without_required(schema)


@functools.cache
def _fields(kind: ObjectKind) -> tuple[str, ...]:
    schema = schemas().get(kind)
    return (
        ()
        if schema is None
        else tuple(field.encode_name for field in msgspec.structs.fields(schema))
    )


def _without_required(schema: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The same fields, all of which may be absent."""
    fields = [(field.name, field.type | None, None) for field in msgspec.structs.fields(schema)]
    return msgspec.defstruct(f"Partial{schema.__name__}", fields, kw_only=True)


_PLACE = re.compile(r"(.*) - at `(?:key` in `)?\$(.*)`", re.DOTALL)


def place_of(kind: ObjectKind, uuid: str) -> str:
    """How errors and paths name an object: ``nodes/<uuid>``, or ``cluster``."""
    return kind.value if kind is ObjectKind.CLUSTER else f"{kind}/{uuid}"


def schema_problem(kind: ObjectKind, uuid: str, found: object) -> str | None:
    """What is wrong with the fields of an object, in one line with its path; None if nothing is.

    Gives the first of several problems. Looks at no other object: references and uniqueness are
    checked elsewhere (`integrity`). Most fields of a forthcoming object may be absent, and of a
    cluster that was not set up yet.
    """
    place = place_of(kind, uuid)
    if not isinstance(found, dict):
        return f"{place}: expected an object, got {type_name(found)}"
    schema = _partial(kind) if _is_partial(kind, found) else schemas().get(kind)
    return None if schema is None else _mismatch(found, schema, place)


def top_problem(top: Object) -> str | None:
    """What is wrong with the fields at the top of ``config.data``; None if nothing is."""
    return _mismatch(dict(top), Top, "")


def in_order(kind: ObjectKind, found: Object) -> dict[str, Any]:
    """The object with its fields in Ganeti's order; fields that Ganeti does not know come last."""
    known = _fields(kind)
    ordered = {name: found[name] for name in known if name in found}
    return ordered | {name: value for name, value in found.items() if name not in ordered}


def _is_partial(kind: ObjectKind, found: Object) -> bool:
    if kind is ObjectKind.CLUSTER:
        return "master_node" not in found
    return kind in (ObjectKind.INSTANCE, ObjectKind.DISK) and found.get("forthcoming") is True


def _mismatch(found: object, schema: type[msgspec.Struct], place: str) -> str | None:
    try:
        msgspec.convert(found, schema)
    except msgspec.ValidationError as error:
        return worded(place, str(error))
    return None


def worded(place: str, text: str) -> str:
    """The text of msgspec as one line that begins with the path of the field."""
    match = _PLACE.fullmatch(text)
    problem, path = match.groups() if match else (text, "")
    problem = problem.replace("`", "")
    where = f"{place}{path}".lstrip(".") or "top"
    return f"{where}: {problem[0].lower()}{problem[1:]}"
