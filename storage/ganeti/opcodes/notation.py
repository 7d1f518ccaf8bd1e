"""Turns Ganeti's notation for parameter types into types that msgspec checks.

A small recursive parser. `catalogue.json` explains the notation, under ``type_notation``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

import msgspec

from ...opcodes.declarations import NonEmptyStr

Enums = Mapping[str, list[str | int]]

_UNSIGNED = Annotated[int, msgspec.Meta(ge=0)]
_DISK_INDEX = Annotated[int, msgspec.Meta(ge=0, lt=16)]
_CHANGE = msgspec.Meta(min_length=2, max_length=3)

_PLAIN: dict[str, object] = {
    "any": Any,
    "bool": bool,
    "float": float,
    "int": int,
    "int>0": Annotated[int, msgspec.Meta(gt=0)],
    "int>=0": _UNSIGNED,
    "null": None,
    "str": str,
    "nonempty_str": NonEmptyStr,
    "disk_index": _DISK_INDEX,
    "disk_param": NonEmptyStr,
    "nic_param": NonEmptyStr,
    # Not written as a tuple: msgspec 0.22 crashes in the garbage collector on a union of a
    # tuple of fixed length and a constrained number or string.
    "disk_selection": _DISK_INDEX
    | Annotated[
        list[_DISK_INDEX | dict[NonEmptyStr, Any]], msgspec.Meta(min_length=2, max_length=2)
    ],
    # [what to do or which one, (which one or a name,) parameters]
    "disk_change": Annotated[
        list[_UNSIGNED | NonEmptyStr | dict[NonEmptyStr, int | NonEmptyStr | None]], _CHANGE
    ],
    "nic_change": Annotated[
        list[_UNSIGNED | NonEmptyStr | dict[NonEmptyStr, NonEmptyStr | None]], _CHANGE
    ],
    "ipv4": NonEmptyStr,
    "ipv4_cidr": NonEmptyStr,
    "ipv6": NonEmptyStr,
    "ipv6_cidr": NonEmptyStr,
}

ADDRESS_NOTATIONS = ("ipv4_cidr", "ipv6_cidr", "ipv4", "ipv6")
"""`check_address` checks these. Longer names come first, because they contain the others."""


def parse(notation: str, enums: Enums) -> object:
    """The type written as ``notation``; `ValueError` if it is not well-formed."""
    parsed, rest = _union(notation.replace(" ", ""), enums)
    if rest:
        raise ValueError(f"type {notation!r}: nothing expected at {rest!r}")
    return parsed


def check_address(kind: str, text: str) -> None:
    """Raise `ValueError` unless ``text`` is an address of ``kind``, one of `ADDRESS_NOTATIONS`."""
    # Imported here: only two opcodes have addresses.
    import ipaddress  # noqa: PLC0415

    known: dict[str, tuple[Callable[[str], object], str]] = {
        "ipv4": (ipaddress.IPv4Address, "IPv4 address"),
        "ipv4_cidr": (ipaddress.IPv4Interface, "IPv4 network (address/prefix length)"),
        "ipv6": (ipaddress.IPv6Address, "IPv6 address"),
        "ipv6_cidr": (ipaddress.IPv6Interface, "IPv6 network (address/prefix length)"),
    }
    read, description = known[kind]
    try:
        read(text)
    except ValueError as error:
        raise ValueError(f"expected {description}, got {text[:60]!r}") from error
    if kind.endswith("_cidr") and "/" not in text:
        raise ValueError(f"expected {description}, got {text[:60]!r}")


def _union(text: str, enums: Enums) -> tuple[Any, str]:
    member, rest = _member(text, enums)
    members = [member]
    while rest.startswith("|"):
        member, rest = _member(rest[1:], enums)
        members.append(member)
    return reduce(or_, members), rest


def _member(text: str, enums: Enums) -> tuple[Any, str]:
    end = next((place for place, sign in enumerate(text) if sign in "[],|"), len(text))
    name, rest = text[:end], text[end:]
    if not rest.startswith("["):
        return _simple(name, enums), rest
    arguments: list[Any] = []
    while rest[0] in "[,":
        argument, rest = _union(rest[1:], enums)
        arguments.append(argument)
        if not rest:
            raise ValueError(f"type {text!r}: a bracket is not closed")
    if rest[0] != "]":
        raise ValueError(f"type {text!r}: a bracket is not closed")
    return _composed(name, tuple(arguments)), rest[1:]


def _simple(name: str, enums: Enums) -> object:
    if name.startswith("enum:"):
        return Literal[tuple(enums[name.removeprefix("enum:")])]
    if name not in _PLAIN:
        raise ValueError(f"unknown type {name!r}")
    return _PLAIN[name]


def _composed(name: str, arguments: tuple[Any, ...]) -> object:
    match name:
        case "list":
            return list[arguments]  # type: ignore[valid-type]
        case "dict":
            return dict[arguments]  # type: ignore[misc, valid-type]
        case "tuple":
            return tuple[arguments]  # type: ignore[valid-type]
        case "set":
            return frozenset[arguments]  # type: ignore[valid-type]
        case "private" | "secret":
            return arguments[0]
        case _:
            raise ValueError(f"unknown type {name!r}")
