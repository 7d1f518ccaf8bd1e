"""Submitted opcodes, checked as strictly as LuxiD checks them (Ganeti 3.0, LUXI). Pure.

An opcode needs its ``reason``, even an empty one; its priority is one of Ganeti's three; a null
stands for the default. Opcodes that Ganeti does not know, Ganger's own and users', are checked in
the same way.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from ...storage import errors, settings
from ...storage.opcodes import Opcode, catalogue, checks, declarations
from ...storage.wording import brief, type_name
from ...transport.ganeti.luxi import UnreadableCallError

PRIORITIES: Final = (-10, 0, 10)
"""The priorities that a submission may have: high, normal, low."""

_KEYS_CHARACTERS_MAX = 1_900


def checked(method: str, ops: object) -> list[dict[str, Any]]:
    """The opcodes of one job, without parameters that are null where null means the default.

    ``method`` is the LUXI method, for the text. Raises `UnreadableCallError` for the first opcode
    that LuxiD would not parse, else `OperationMissingError` for one that nothing here can run.
    """
    return checked_jobs(method, [ops])[0]


def checked_jobs(method: str, jobs: object) -> list[list[dict[str, Any]]]:
    """The opcodes of several jobs, as `checked`. One malformed opcode refuses them all."""
    found: list[list[dict[str, Any]]] = []
    kinds: dict[type[Opcode], None] = {}
    for ops in _array(method, jobs):
        given = _array(method, ops)
        opcodes: list[dict[str, Any]] = []
        if len(given) > settings.OPCODES_PER_JOB_MAX:
            # The queue refuses this job by its length. To parse all of it might take seconds.
            given = given[: settings.OPCODES_PER_JOB_MAX + 1]
        for raw in given:
            opcode, kind = _parsed(method, raw)
            opcodes.append(opcode)
            kinds[kind] = None
        found.append(opcodes)
    for kind in kinds:
        checks.check_operation(kind)
    return found


def _array(method: str, value: object) -> list[Any]:
    if not isinstance(value, list):
        raise _unreadable(method, f"Unable to read array, got {type_name(value)}")
    return value


def _parsed(method: str, raw: object) -> tuple[dict[str, Any], type[Opcode]]:
    if not isinstance(raw, dict):
        raise _unreadable(method, f"Unable to read JSObject, got {type_name(raw)}")
    # LuxiD reads the parameters that all opcodes have before the others.
    _check_priority(method, raw.get("priority"))
    _check_dependencies(method, raw)
    _require(method, raw, ("reason", "OP_ID"))
    op_id = raw["OP_ID"]
    declared = catalogue.find(op_id) if isinstance(op_id, str) else None
    if declared is not None:
        fields = _fields(declared)
        _require(method, raw, fields.required)
        _check_names(method, raw, declared)
        raw = {
            name: value
            for name, value in raw.items()
            if value is not None or name not in fields.optional
        }
    try:
        return raw, type(checks.parse(raw))
    except errors.BadRequestError as error:
        raise _unreadable(method, error.text) from error


def _check_priority(method: str, value: object) -> None:
    # In JSON, true is no number.
    if value is not None and (type(value) is not int or value not in PRIORITIES):
        text = f"Invalid string value for type OpSubmitPriority: {brief(value)}"
        raise _unreadable(method, f"Can't parse value for 'priority': {text}")


def _check_dependencies(method: str, raw: dict[str, Any]) -> None:
    try:
        checks.dependencies(raw)
    except errors.DependencyError as error:
        raise _unreadable(method, f"Can't parse value for 'depends': {error.text}") from error


def _require(method: str, raw: dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if name not in raw:
            keys = _listed(raw)
            raise _unreadable(method, f"key '{name}' not found, object contains only {keys}")


def _check_names(method: str, raw: dict[str, Any], declared: type[Opcode]) -> None:
    known = declared.__struct_encode_fields__
    extra = sorted(raw.keys() - {"OP_ID", "depend", *known})
    if extra:
        allowed = _listed(sorted({"OP_ID", *known}))
        text = f"Superfluous dictionary keys: {_listed(extra)}, but only {allowed} allowed."
        raise _unreadable(method, text)


class _Fields(msgspec.Struct, frozen=True):
    """The parameters of one kind of opcode, by whether they have a default."""

    required: tuple[str, ...]
    optional: frozenset[str]


@functools.cache
def _fields(declared: type[Opcode]) -> _Fields:
    known = declarations.defaults(declared)
    required = tuple(name for name, default in known if default is msgspec.NODEFAULT)
    return _Fields(required, frozenset(declared.__struct_encode_fields__) - {*required, "reason"})


def _listed(names: Iterable[str]) -> str:
    """The names as a JSON array, cut if a request has very many."""
    text = msgspec.json.encode(list(names)).decode()
    return text if len(text) <= _KEYS_CHARACTERS_MAX else f"{text[:_KEYS_CHARACTERS_MAX]}..."


def _unreadable(method: str, text: str) -> UnreadableCallError:
    return UnreadableCallError(f"{method}: {text}")
