"""Says in one line what is wrong with a parameter, in the words of whoever wrote it.

Refuses what no store could hold (`check_plain`), and turns the complaints of msgspec into
sentences that name the parameter, what was expected and what was given.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

DEPTH_MAX = 32
"""Deepest nesting of a parameter."""

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
"""What every store and every door can carry."""

_SHOWN_CHARACTERS_MAX = 60


def check_plain(value: object, place: str, depth: int = 0, *, depth_max: int = DEPTH_MAX) -> None:
    """Raise `ValueError` that names the place unless JSON, and every store, can hold ``value``."""
    if _is_surely_plain(value, depth_max - depth):
        return
    if not isinstance(value, list | tuple | dict):
        _check_scalar(value, place)
        return
    if depth >= depth_max:
        raise ValueError(f"{place}: nested more than {depth_max} levels deep")
    if isinstance(value, dict):
        for key, item in value.items():
            where = f"{place}.{_checked_key(key, place)}"
            check_plain(item, where, depth + 1, depth_max=depth_max)
    else:
        for index, item in enumerate(value):
            check_plain(item, f"{place}[{index}]", depth + 1, depth_max=depth_max)


def _is_surely_plain(value: object, levels_left: int) -> bool:
    """Whether there is nothing to look at more closely, found without naming any place."""
    if isinstance(value, str):
        return value.isascii()
    if value is None:
        return True
    if isinstance(value, int):
        return INTEGER_MIN <= value <= INTEGER_MAX
    if isinstance(value, float):
        return math.isfinite(value)
    if levels_left <= 0:
        return False
    if isinstance(value, dict):
        keys_are_plain = all(map(_is_plain_key, value))
        return keys_are_plain and _are_surely_plain(value.values(), levels_left - 1)
    return isinstance(value, list | tuple) and _are_surely_plain(value, levels_left - 1)


def _is_plain_key(key: object) -> bool:
    return isinstance(key, str) and key.isascii()


def _are_surely_plain(values: Iterable[object], levels_left: int) -> bool:
    for value in values:  # noqa: SIM110 - a generator costs as much as the look
        if not _is_surely_plain(value, levels_left):
            return False
    return True


def explain(complaint: str, given: Mapping[str, Any], declared: type[msgspec.Struct]) -> str:
    """The sentence for msgspec's ``complaint`` about ``given``, converted to ``declared``.

    The values of secret and private parameters are never shown.
    """
    body, _, path = complaint.rpartition(" - at `")
    if not body:
        # A check of the opcode's own: it names the parameter itself.
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


def counted(count: int, noun: str) -> str:
    """So many of something, such as ``1 job`` and ``2 jobs``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def likeness(word: str, known: Iterable[str]) -> str:
    """`` (did you mean X?)`` if ``word`` is nearly one of ``known``, else nothing."""
    if len(word) > _SHOWN_CHARACTERS_MAX:
        return ""
    # Only a mistake costs this import.
    from difflib import get_close_matches  # noqa: PLC0415

    close = get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def shown(text: str) -> str:
    """The text in quotes, cut to a length that fits a sentence."""
    # Cut first: the quoted form of a huge text would be made only to be thrown away.
    return shortened(repr(text[: _SHOWN_CHARACTERS_MAX + 1]))


def shortened(text: str) -> str:
    """The text, cut to a length that fits a sentence."""
    if len(text) <= _SHOWN_CHARACTERS_MAX:
        return text
    return text[: _SHOWN_CHARACTERS_MAX - 3] + "..."


def type_name(value: object) -> str:
    """The name of the value's type, as users know it."""
    return "null" if value is None else type(value).__name__


def _check_scalar(value: object, place: str) -> None:
    match value:
        case None | bool():
            pass
        case str():
            _check_text(value, place)
        case int():
            if not INTEGER_MIN <= value <= INTEGER_MAX:
                raise ValueError(f"{place}: expected an integer of at most 64 bits")
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{place}: expected a finite number, got {value}")
        case _:
            raise ValueError(f"{place}: expected plain data, got {type_name(value)}")


def _checked_key(key: object, place: str) -> str:
    if not isinstance(key, str):
        raise ValueError(f"{place}: expected str as key, got {type_name(key)}")  # noqa: TRY004
    _check_text(key, place)
    return shortened(key)


def _check_text(text: str, place: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{place}: expected text that UTF-8 can hold") from None


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
    """The type at ``place``, of which the first name has the type ``hint``; None: nobody knows."""
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
