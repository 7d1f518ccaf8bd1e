"""Fields that several kinds of objects have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from .fields import (
    NO_DATA,
    Answer,
    Field,
    FieldKind,
    Item,
    Source,
    field,
    normal,
    stored,
)


def or_no_data(value: object) -> Answer:
    """The value; without one, it is unknown."""
    return NO_DATA if value is None else normal(value)


def alias(name: str, of: Field[Source]) -> Field[Source]:
    """The field under another name."""
    return of._replace(definition=of.definition._replace(name=name))


def common(noun: str) -> Iterator[Field[Any]]:
    """The fields of every object of the configuration."""
    serial_doc = f"{noun} object serial number, incremented on each modification"
    yield stored("ctime", "CTime", FieldKind.TIMESTAMP, "Creation timestamp", "ctime")
    yield stored("mtime", "MTime", FieldKind.TIMESTAMP, "Modification timestamp", "mtime")
    yield stored("serial_no", "SerialNo", FieldKind.NUMBER, serial_doc, "serial_no")
    yield stored("tags", "Tags", FieldKind.OTHER, "Tags", "tags", unset=normal([]))
    yield stored("uuid", "UUID", FieldKind.TEXT, f"{noun} UUID", "uuid")


_NODE_PARAMETERS: Final = {
    "cpu_speed": (FieldKind.FLOAT, "ndp/cpu_speed"),
    "exclusive_storage": (FieldKind.BOOL, "ExclusiveStorage"),
    "oob_program": (FieldKind.OTHER, "OutOfBandProgram"),
    "ovs": (FieldKind.BOOL, "OpenvSwitch"),
    "ovs_link": (FieldKind.OTHER, "OpenvSwitchLink"),
    "ovs_name": (FieldKind.OTHER, "OpenvSwitchName"),
    "spindle_count": (FieldKind.NUMBER, "SpindleCount"),
    "ssh_port": (FieldKind.NUMBER, "ndp/ssh_port"),
}


def node_parameter_fields(
    filled: Callable[[Source, Item], Mapping[str, Any]],
) -> Iterator[Field[Source]]:
    """A field ``ndp/<name>`` for each node parameter."""
    for name, (kind, title) in _NODE_PARAMETERS.items():
        doc = f'The "{name}" node parameter'
        yield field(f"ndp/{name}", title, kind, doc, _one_of(filled, name))


def _one_of(
    filled: Callable[[Source, Item], Mapping[str, Any]], name: str
) -> Callable[[Source, Item], Answer]:
    return lambda source, item: or_no_data(filled(source, item).get(name))
