"""Reads what people write as JSON or YAML, in options and files, and checks that it can be sent.

What no frame can carry is refused here, where its place in the text is still known.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from ..storage import errors, explanations, settings

if TYPE_CHECKING:
    from collections.abc import Iterable

DEPTH_MAX = 100
"""Deepest nesting of a document: more than any opcode or rule may have, which say so themselves."""


def parse(text: str, source: str, root: str = "") -> Any:  # noqa: ANN401 - whatever was written
    """``text`` as JSON, else as YAML; `PlanError` names ``source`` and the place under ``root``."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        from .plans import parse_yaml  # noqa: PLC0415 - its home; most documents are JSON

        found = parse_yaml(text, source)
    _check(found, source, root)
    return found


def parse_json(text: str, option: str) -> Any:  # noqa: ANN401 - whatever was written
    """The JSON that stands behind an option; `UsageError` names the place in it."""
    try:
        found = json.loads(text)
        _check(found, option)
    except errors.PlanError as error:
        raise errors.UsageError(error.text) from error
    except RecursionError as error:
        raise errors.UsageError(f"{option}: nested deeper than can be read") from error
    except ValueError as error:
        raise errors.UsageError(f"{option}: not JSON: {error}") from error
    return found


def read_option(text: str, option: str, root: str = "") -> Any:  # noqa: ANN401 - as above
    """``text``, or the file that it names after an ``@``, as JSON, else as YAML."""
    source = option
    if text.startswith("@"):
        source, text = f"{option}: {text[1:]}", read_file(text[1:], option)
    try:
        return parse(text, source, root)
    except errors.PlanError as error:
        raise errors.UsageError(error.text) from error


def read_rule(text: str, option: str) -> dict[str, Any]:
    """A filter rule behind an option, as `read_option`; `UsageError` names the place in it."""
    found = read_option(text, option)
    if not isinstance(found, dict):
        raise errors.UsageError(f'{option}: expected an object such as {{"action": "PAUSE"}}')
    return found


def read_file(name: str, option: str) -> str:
    """The text of a file that an option names; `UsageError` if there is none."""
    try:
        with open(name, encoding="utf-8") as stream:  # noqa: PTH123
            return stream.read()
    except OSError as error:
        raise errors.UsageError(f"{option}: {name!r}: {error.strerror}") from error
    except ValueError as error:
        raise errors.UsageError(f"{option}: {name!r}: not UTF-8 text") from error


def read_submission(name: str) -> str:
    """The text of a file to be submitted, or of standard input (``-``)."""
    source = "standard input" if name == "-" else name
    try:
        if name == "-":
            return sys.stdin.buffer.read().decode()
        with open(name, encoding="utf-8") as stream:  # noqa: PTH123
            return stream.read()
    except OSError as error:
        raise errors.UsageError(f"{source}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise errors.PlanError(f"{source}: not UTF-8 text: {error.reason}") from error


def _check(found: object, source: str, root: str = "") -> None:
    """`PlanError` that names the place of what no frame can carry."""
    _check_size(found, source)
    try:
        explanations.check_plain(found, root, depth_max=DEPTH_MAX)
    except ValueError as error:
        # The whole document has no name: what is in it is told as a path from its top.
        place = str(error).removeprefix(".").removeprefix(": ")
        raise errors.PlanError(f"{source}: {place}") from error


def _check_size(found: object, source: str) -> None:
    """Bound depth and size first: an anchor of YAML may hold itself, or another many times."""
    left, size = [(found, 0)], 0
    while left:
        value, depth = left.pop()
        if not isinstance(value, dict | list):
            continue
        if depth == DEPTH_MAX:
            raise errors.PlanError(f"{source}: nested more than {DEPTH_MAX} levels deep")
        parts: Iterable[object] = value.values() if isinstance(value, dict) else value
        # Each value takes a byte of a frame at least, and each character of a text.
        size += len(value) + sum(len(part) for part in parts if isinstance(part, str))
        if size > settings.FRAME_BYTES_MAX:
            text = f"{source}: holds more than the {settings.FRAME_BYTES_MAX} bytes that are sent"
            raise errors.PlanError(text)
        left.extend((part, depth + 1) for part in parts if isinstance(part, dict | list))
