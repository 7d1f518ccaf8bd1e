"""Turns the complaints of msgspec about an opcode's parameters into sentences for its author."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from ..wording import shortened, shown


def explain(complaint: str, given: Mapping[str, Any], declared: type[msgspec.Struct]) -> str:
    """The sentence for msgspec's ``complaint`` about ``given``, converted to ``declared``.

    The values of secret and private parameters are never shown.
    """
    body, _, path = complaint.rpartition(" - at `")
    if not body:
        # The opcode's own check names the parameter itself.
        return complaint
    place = path.rstrip("`").replace("key` in `", "").removeprefix("$").removeprefix(".")
    field = _field_of(place)
    hidden = field in (
        *getattr(declared, "secret_fields", ()),
        *getattr(declared, "private_fields", ()),
    )
    hint = get_type_hints(declared, include_extras=True).get(field)
    if body.startswith("Invalid enum value "):
        value = "" if hidden else f", got {shortened(body.removeprefix('Invalid enum value '))}"
        choices = ", ".join(str(choice) for choice in dict.fromkeys(_choices(hint)))
        return f"{place}: expected one of {choices}{value}"
    if body.startswith("Object contains unknown field"):
        unknown = body.split("`")[1]
        return f"{place}: unknown key {shown(unknown)}{_keys(_hint_within(hint, place))}"
    if body.startswith("Object missing required field"):
        return f"{place}: missing key {shown(body.split('`')[1])}"
    if not body.startswith("Expected"):
        return f"{place}: {body}"
    number = given.get(place)
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    got = f", got {number}" if is_number and not hidden and "got " not in body else ""
    key = "a key: " if path.startswith("key`") else ""
    return f"{place}: {key}{_in_plain_words(body)}{got}"


def _field_of(place: str) -> str:
    return place.partition(".")[0].partition("[")[0]


def _in_plain_words(body: str) -> str:
    # Type names stand between backquotes; msgspec uses those of JSON.
    parts = body.split("`")
    parts[1::2] = [part.replace("array", "list").replace("object", "dict") for part in parts[1::2]]
    text = "".join(parts)
    return text[:1].lower() + text[1:]


def _choices(hint: object) -> Iterator[Any]:
    if get_origin(hint) is Literal:
        yield from get_args(hint)
        return
    for part in get_args(hint):
        yield from _choices(part)


def _hint_within(hint: object, place: str) -> object:
    """The type at ``place``, whose first name has the type ``hint``; None: unknown."""
    for name in place.split(".")[1:]:
        if not (isinstance(hint, type) and issubclass(hint, msgspec.Struct)):
            return None
        fields = dict(zip(hint.__struct_encode_fields__, hint.__struct_fields__, strict=True))
        hint = get_type_hints(hint, include_extras=True).get(fields.get(name, ""))
    return hint


def _keys(hint: object) -> str:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return f" (known: {', '.join(hint.__struct_encode_fields__)})"
    return ""
