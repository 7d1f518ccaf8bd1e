"""Reads JSON and YAML from options and files.

Values that no frame can carry are refused here, where their place in the text is still known.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from ..storage import errors, plain_values, settings
from . import output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import BinaryIO

DEPTH_MAX = 100
"""Deepest nesting of a document: opcodes and rules have lower limits of their own."""


def parse(
    text: str, source: str, root: str = "", check_jobs: Callable[[int], None] | None = None
) -> Any:  # noqa: ANN401 - whatever was written
    """``text`` as JSON, else as YAML; `PlanError` names ``source`` and the place under ``root``.

    ``check_jobs`` as in `parse_yaml`: YAML is read slowly enough to stop when a plan is too long.
    """
    try:
        found = json.loads(text, object_pairs_hook=_mapping)
    except (ValueError, RecursionError):
        from .yaml_documents import parse_yaml  # noqa: PLC0415 - most documents are JSON

        found = parse_yaml(text, source, check_jobs)
    _check(found, source, root)
    return found


def parse_json(text: str, option: str) -> Any:  # noqa: ANN401 - whatever was written
    """The JSON that stands behind an option; `UsageError` names the place in it."""
    try:
        found = json.loads(text, object_pairs_hook=_mapping)
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
        raise errors.UsageError(_about_operators(error, text)) from error


def _about_operators(error: errors.PlanError, text: str) -> str:
    """The error's text, with advice if YAML has misread an operator of a filter."""
    advice = 'in YAML operators stand in quotes, as in ["=", OP_ID, OP_EXEC]'
    if error.text.endswith(": expected str as key, got null"):
        # The question mark of YAML begins a key.
        return f"{error.text}; {advice}"
    problem = getattr(error.__cause__, "problem", None)
    mark = getattr(error.__cause__, "problem_mark", None)
    if problem is None or mark is None or not error.text.endswith(f": {problem}"):
        return error.text
    if "end of stream" in problem:
        # A bracket or a quote is not closed; the last character is not the cause.
        return error.text
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    if not _OPERATOR_SIGNS.intersection(line[max(0, mark.column - 1) : mark.column + 1]):
        return error.text
    return f"{error.text.removesuffix(problem)}{advice}"


_OPERATOR_SIGNS = frozenset("=!<>&|?")


def read_rule(text: str, option: str) -> dict[str, Any]:
    """A filter rule behind an option, as `read_option`; `UsageError` names the place in it.

    One rule alone in a list is a rule too: so ``ganger filter info -o json`` prints it.
    """
    found = read_option(text, option)
    if isinstance(found, list) and len(found) > 1:
        raise errors.UsageError(f"{option}: expected one rule, found a list of {len(found)}")
    if isinstance(found, list) and found:
        (found,) = found
    if not isinstance(found, dict):
        raise errors.UsageError(f'{option}: expected an object such as {{"action": "PAUSE"}}')
    times = {name: found[name] for name in _TIMES if isinstance(found.get(name), str)}
    for name, written in times.items():
        try:
            found[name] = moment(written)
        except ValueError as error:
            raise errors.UsageError(f"{option}: {name}: {error}") from error
    return found


_TIMES = ("valid_from", "valid_until")


def moment(text: str, *, is_past: bool = False) -> float:
    """A time in seconds since the epoch; `ValueError` says how it may be written.

    It is ``now``, ``+30m``, ISO 8601, or seconds since the epoch. ``is_past``: a span goes into the
    past, as ``-7d`` or ``7d``.
    """
    try:
        found = _moment(text, _AGO if is_past else _AHEAD, -1 if is_past else 1)
        # Milliseconds, probably: they would be in the year 57859.
        dt.datetime.fromtimestamp(found, dt.UTC)
    except (ValueError, OverflowError, OSError) as error:
        spans = "-30m, -2h, -7d" if is_past else "+30m, +2h"
        raise ValueError(
            f"{text[:60]!r}: expected now, {spans}, 2026-11-21T18:00 (local time, unless "
            "it has a zone), or seconds since the epoch"
        ) from error
    return found


def _moment(text: str, spans: re.Pattern[str], direction: int) -> float:
    if text == "now":
        return time.time()
    if span := spans.fullmatch(text):
        return time.time() + direction * float(span[1]) * _SPANS[span[2]]
    if _SECONDS.fullmatch(text):
        return float(text)
    return dt.datetime.fromisoformat(text).timestamp()


def seconds(text: str) -> float:
    """The seconds of a span such as ``30m``, or ``90``; `ValueError` says how it may be written."""
    if span := _SPAN.fullmatch(text):
        return float(span[1]) * _SPANS[span[2] or "s"]
    raise ValueError(f"{text[:60]!r}: expected a span such as 90, 30m, 2h, 7d or 2w")


_SPANS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_AHEAD = re.compile(r"\+([0-9]+(?:\.[0-9]+)?)([smhdw])")
_AGO = re.compile(r"-?([0-9]+(?:\.[0-9]+)?)([smhdw])")
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)")
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def read_file(name: str, option: str) -> str:
    """The text of a file that an option names; `UsageError` if there is none."""
    try:
        with open(name, "rb") as stream:  # noqa: PTH123
            return _text(stream, f"{option}: {name!r}")
    except OSError as error:
        raise errors.UsageError(f"{option}: {name!r}: {error.strerror}") from error
    except errors.PlanError as error:
        raise errors.UsageError(error.text) from error


def _text(stream: BinaryIO, source: str) -> str:
    """The text of a document, or `PlanError`. No more is read than can be one: it may not end."""
    data = stream.read(settings.DOCUMENT_BYTES_MAX + 1)
    if len(data) > settings.DOCUMENT_BYTES_MAX:
        most = f"{settings.DOCUMENT_BYTES_MAX // 1_048_576} MiB"
        raise errors.PlanError(f"{source}: longer than the {most} that are read")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise errors.PlanError(f"{source}: not UTF-8 text: {error.reason}") from error


def standard_output() -> BinaryIO:
    """Standard output, as bytes. `errors.UsageError`: this process was started without one."""
    if output.is_missing(sys.stdout):
        raise errors.UsageError("standard output: it is closed")
    return sys.stdout.buffer


def standard_input() -> BinaryIO:
    """Standard input, as bytes. `errors.UsageError`: this process was started without one."""
    if sys.stdin is None:
        raise errors.UsageError("standard input: it is closed")
    return sys.stdin.buffer


def read_submission(name: str) -> str:
    """The text of a file to be submitted, or of standard input (``-``)."""
    source = "standard input" if name == "-" else name
    try:
        if name == "-":
            return _text(standard_input(), source)
        with open(name, "rb") as stream:  # noqa: PTH123
            return _text(stream, source)
    except OSError as error:
        raise errors.UsageError(f"{source}: {error.strerror}") from error


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {double!r} stands in a mapping twice")
    return found


def _check(found: object, source: str, root: str = "") -> None:
    """Raise `PlanError`, which names the place, for a value that no frame can carry."""
    _check_size(found, source)
    try:
        plain_values.check_plain(found, root, depth_max=DEPTH_MAX)
    except ValueError as error:
        # The document itself has no name: places in it are paths from its top.
        place = str(error).removeprefix(".").removeprefix(": ")
        raise errors.PlanError(f"{source}: {place}") from error


def _check_size(found: object, source: str) -> None:
    """Bound depth and size first: a YAML anchor may contain itself, or another one many times."""
    left, size = [(found, 0)], 0
    while left:
        value, depth = left.pop()
        if not isinstance(value, dict | list):
            continue
        if depth == DEPTH_MAX:
            raise errors.PlanError(f"{source}: nested more than {DEPTH_MAX} levels deep")
        parts: Iterable[object] = value.values() if isinstance(value, dict) else value
        # In a frame each value, and each character of a text, takes at least a byte.
        size += len(value) + sum(len(part) for part in parts if isinstance(part, str))
        if size > settings.FRAME_BYTES_MAX:
            text = f"{source}: holds more than the {settings.FRAME_BYTES_MAX} bytes that are sent"
            raise errors.PlanError(text)
        left.extend((part, depth + 1) for part in parts if isinstance(part, dict | list))
