"""Whether a loaded configuration has the shape that its readers rely on.

A field that is missing, or of a wrong type, is a problem of its object: the configuration is
served, and can be repaired (`integrity`). What cannot even be sent is `unservable`, and refused
when the file is read. Between the two, a list where an object belongs makes single queries and
opcodes fail; the check of a data directory looks for it (`problem`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import inspect

from ..wording import type_name
from .objects import ObjectKind, place_of, schemas, worded

_SERIAL_END: Final = 2**62
_SINGLE: Final = str | int | float | bool | None
_SINGLE_WORDS: Final = "bool | int | float | str | null"


def unservable(document: Mapping[str, Any]) -> str | None:
    """The first thing in a decoded ``config.data`` that no message can carry; None if all is well.

    The containers must be objects. Costs the size of the configuration.
    """
    found = (_unservable(place, one) for place, one, _ in _objects(document))
    return next(filter(None, found), None)


def problem(document: Mapping[str, Any]) -> str | None:
    """As `unservable`; also the first value of a wrong shape, such as a list for an object."""
    return unservable(document) or next(filter(None, _misshapen(document)), None)


def _unservable(place: str, found: object) -> str | None:
    if not isinstance(found, dict):
        return f"{place}: expected an object, got {type_name(found)}"
    try:
        msgspec.msgpack.encode(found)
    except OverflowError:
        return f"{place}: has a number of more than 64 bits"
    except RecursionError:
        return f"{place}: nested deeper than can be sent"
    serial = found.get("serial_no")
    if isinstance(serial, int) and serial >= _SERIAL_END:
        return f"{place}.serial_no: {serial} leaves no numbers for changes"
    return None


def _misshapen(document: Mapping[str, Any]) -> Iterator[str]:
    for place, found, kind in _objects(document):
        try:
            msgspec.convert(found, _shape_of(kind))
        except msgspec.ValidationError as error:
            yield worded(place, str(error)).replace(_SINGLE_WORDS, "a single value")


def _objects(document: Mapping[str, Any]) -> Iterator[tuple[str, object, ObjectKind | None]]:
    for kind in ObjectKind:
        found = document.get(kind.value, {})
        if kind is ObjectKind.CLUSTER:
            yield place_of(kind, ""), found, kind
            continue
        for uuid, one in found.items():
            yield place_of(kind, uuid), one, kind
    yield "top", {name: value for name, value in document.items() if name not in _KINDS}, None


# Made when first needed: a daemon needs none of them to start, and they take long.
@functools.cache
def _shape_of(kind: ObjectKind | None) -> Any:  # noqa: ANN401 - a type
    """The loose type of the objects of a kind; None: of what else the document has."""
    schema = None if kind is None else schemas().get(kind)
    return dict[str, Any] if schema is None else _loose(inspect.type_info(schema))


def _loose(info: inspect.Type, around: tuple[type, ...] = ()) -> Any:  # noqa: ANN401 - a type
    """The type of everything that has the same shape."""
    match info:
        case inspect.StructType(cls=schema, fields=fields):
            if schema in around:
                return dict[str, Any]
            inside = (*around, schema)
            return msgspec.defstruct(
                f"Loose{schema.__name__}",
                [_loose_field(one, inside) for one in fields],
                kw_only=True,
            )
        case inspect.ListType(item_type=item):
            return list[_loose(item, around)]  # type: ignore[misc]
        case inspect.TupleType(item_types=items):
            return tuple[tuple(_loose(item, around) for item in items)]  # type: ignore[misc]
        case inspect.DictType(value_type=value):
            return dict[str, _loose(value, around)]  # type: ignore[misc]
        case inspect.UnionType(types=types):
            parts = [_loose(one, around) for one in types if not isinstance(one, inspect.NoneType)]
            return parts[0] | None if len(parts) == 1 else _SINGLE
        case inspect.AnyType():
            return Any
        case _:
            return _SINGLE


def _loose_field(field: inspect.Field, inside: tuple[type, ...]) -> tuple[str, Any, Any]:
    name = msgspec.field(name=field.encode_name, default=None)
    return field.name, _loose(field.type, inside) | None, name


_KINDS: Final = frozenset(kind.value for kind in ObjectKind)
