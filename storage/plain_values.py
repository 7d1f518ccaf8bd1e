"""Whether JSON and frames can hold a value: its depth, integers, numbers and texts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from .wording import shortened, text_of, type_name

DEPTH_MAX = 32
"""Deepest nesting of a parameter."""

_encode = msgspec.json.Encoder().encode

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
"""The integers that job files and frames can hold."""


def check_plain(value: object, place: str, depth: int = 0, *, depth_max: int = DEPTH_MAX) -> None:
    """Raise `ValueError` that names the place unless JSON can hold ``value``."""
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


def encoded(value: object) -> bytes:
    """``value`` as JSON, with escapes for what UTF-8 cannot hold in its texts (`encodable`)."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(encodable(value))


def encodable(value: object) -> Any:  # noqa: ANN401 - plain data
    """``value`` as plain data, with escapes for what UTF-8 cannot hold in its texts.

    Such as the parts of a file name that are not UTF-8.
    """
    return _escaped(msgspec.to_builtins(value, builtin_types=(bytes,)))


def _escaped(plain: object) -> object:
    match plain:
        case str():
            return text_of(plain)
        case dict():
            return {_escaped(key): _escaped(item) for key, item in plain.items()}
        case list() | tuple():
            return [_escaped(item) for item in plain]
        case _:
            return plain


def _is_surely_plain(value: object, levels_left: int) -> bool:
    """Whether the value is plain beyond doubt: a fast test that names no places."""
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
