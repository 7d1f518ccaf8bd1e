"""Checks submitted opcodes, and reads stored ones."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from .. import errors
from ..plain_values import INTEGER_MAX, INTEGER_MIN, check_plain
from ..wording import has_control, likeness, shown, text_of, type_name
from . import catalogue
from .declarations import (
    ANY_FAILED,
    COMMON_FIELDS,
    DEPENDENCY_WORDS,
    NO_LOCKS,
    Opcode,
    defaults,
)
from .explanations import explain
from .interrupts import is_ctrl_c

REDACTED = "<redacted>"
"""What a job file holds in place of a secret."""

_ALWAYS_STORED = ("depends", "comment")
_JOB_ID_DIGITS_MAX = 18
_PROBLEMS_SHOWN_MAX = 3


def check_opcode(raw: object) -> dict[str, Any]:
    """The opcode ``raw`` as a job file holds it: checked, with defaults, and with its secrets.

    Raises `OpcodeError` or `DependencyError`, which name the parameter and what was expected, and
    `OperationMissingError` if no operation is installed. `redacted` takes the secrets out.
    """
    plain = _mapping(raw)
    declared = _declared(plain)
    place = _place_of(plain, declared)
    if place is not None and (known := _checked.get(place)) is not None:
        return _decode(known)
    check_operation(declared)
    fields = _checked_fields(plain, declared)
    if place is not None:
        if len(_checked) >= _CHECKED_MAX:
            _checked.clear()
        _checked[place] = _encode(fields)
    return fields


_checked: dict[tuple[int, bytes], bytes] = {}
"""What the check of an opcode has made of it: jobs often repeat others."""

_CHECKED_MAX = 1_024
_CHECKED_BYTES_MAX = 512

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode


def _place_of(plain: Mapping[str, Any], declared: type[Opcode]) -> tuple[int, bytes] | None:
    """The place of an opcode among those that were checked; None: it is not kept there.

    What a user has installed may check something else each time, and secrets are not kept.
    """
    if not declared.built_in or declared.secret_fields:
        return None
    try:
        text = _encode(plain)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    return (catalogue.generation(), text) if len(text) <= _CHECKED_BYTES_MAX else None


def _checked_fields(plain: Mapping[str, Any], declared: type[Opcode]) -> dict[str, Any]:
    opcode = _convert(plain, declared)
    try:
        if (needs := opcode.lock_needs()) is not NO_LOCKS:
            for name, _ in needs.to_changes():
                _check_lock_name(name)
        stored = _stored_form(opcode)
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        # A plug-in's own code may raise anything; that must not stop the daemon.
        raise errors.OpcodeError(f"{declared.op_id}: {_error_text(error)}") from error
    if not declared.built_in:
        # A default that is no value of its type, say: the job could only fail when it reads it.
        _convert(stored, declared)
    return stored


def _check_lock_name(name: str) -> None:
    # Here, and not in `LockNeeds`: jobs that are stored already have the locks that they have.
    if has_control(name):
        raise ValueError(f"locks: expected no control characters, got {shown(name)}")


def check_operation(declared: type[Opcode]) -> None:
    """Raise `OperationMissingError` unless opcodes of this type have an operation."""
    if not declared.has_operation():
        raise errors.OperationMissingError(
            f"{declared.op_id}: this opcode is known, but nothing on this system can run it"
        )


def parse(fields: object) -> Opcode:
    """The typed value of a submitted or stored opcode, with or without an operation."""
    plain = _mapping(fields)
    return _convert(plain, _declared(plain))


def redacted(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with every secret value replaced. An unknown opcode has no known secrets."""
    secrets = secret_fields(fields)
    return {name: _hide(value) if name in secrets else value for name, value in fields.items()}


def without_private(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A copy for those who may not know everything: no values of private and secret parameters.

    In an unknown opcode every parameter may be private.
    """
    op_id = fields.get("OP_ID")
    declared = catalogue.find(op_id) if isinstance(op_id, str) else None
    if declared is None:
        open_to_all = ("OP_ID", *COMMON_FIELDS)
        return {
            name: value if name in open_to_all else _hide(value) for name, value in fields.items()
        }
    hidden = (*declared.secret_fields, *declared.private_fields)
    return {name: _hide(value) if name in hidden else value for name, value in fields.items()}


def lost_secret(fields: Mapping[str, Any]) -> str | None:
    """A parameter of a stored opcode whose secret, or a part of it, is redacted; None: none is.

    In an unknown opcode every parameter may be secret.
    """
    op_id = fields.get("OP_ID")
    declared = catalogue.find(op_id) if isinstance(op_id, str) else None
    names = tuple(fields) if declared is None else declared.secret_fields
    if not names:
        return None
    return next((name for name in names if _is_redacted(fields.get(name))), None)


def _is_redacted(value: object) -> bool:
    """Whether the value is, or contains at any depth, the mark for a redacted secret."""
    if isinstance(value, Mapping):
        return any(map(_is_redacted, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_is_redacted, value))
    return value == REDACTED


def secret_fields(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of this opcode's secret parameters, given or not."""
    op_id = fields.get("OP_ID")
    declared = catalogue.find(op_id) if isinstance(op_id, str) else None
    return declared.secret_fields if declared else ()


def dependencies(fields: Mapping[str, Any]) -> list[tuple[int, tuple[str, ...]]]:
    """The jobs that an opcode depends on, each with the final statuses that satisfy it.

    Negative ids count back from the job's own. `DependencyError` names the malformed place.
    """
    key, entries = "depends", fields.get("depends")
    if fields.get("depend") is not None:
        if entries is not None:
            raise errors.DependencyError("depends: given as 'depend' too; use one of the two")
        key, entries = "depend", fields["depend"]
    if entries is None:
        return []
    if not isinstance(entries, list | tuple):
        raise errors.DependencyError(f"{key}: expected list, got {type_name(entries)}")
    return [_dependency(entry, f"{key}[{place}]") for place, entry in enumerate(entries)]


def _dependency(entry: object, place: str) -> tuple[int, tuple[str, ...]]:
    match entry:
        case [job_id, [*statuses]]:
            pass
        case _:
            raise errors.DependencyError(f"{place}: expected [job id, [statuses]]")
    for status in statuses:
        if status not in DEPENDENCY_WORDS:
            known = ", ".join(DEPENDENCY_WORDS)
            got = shown(status) if isinstance(status, str) else type_name(status)
            raise errors.DependencyError(f"{place}: expected words among {known}, got {got}")
    if ANY_FAILED in statuses and len(statuses) > 1:
        raise errors.DependencyError(f"{place}: {ANY_FAILED} goes with no other word")
    return _job_id(job_id, place), tuple(map(str, statuses))


def _job_id(value: object, place: str) -> int:
    # Ganeti's clients may write an id as a string of digits.
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value) if len(value) <= _JOB_ID_DIGITS_MAX else INTEGER_MAX + 1
    if not isinstance(value, int) or isinstance(value, bool):
        raise errors.DependencyError(f"{place}: expected int as job id, got {type_name(value)}")
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise errors.DependencyError(f"{place}: this number is too large for a job id")
    return value


def _mapping(raw: object) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise errors.OpcodeError(f"opcode: expected dict, got {type_name(raw)}")
    return raw


def _declared(plain: Mapping[str, Any]) -> type[Opcode]:
    if "OP_ID" not in plain:
        raise errors.OpcodeError("opcode: missing OP_ID")
    op_id = plain["OP_ID"]
    if not isinstance(op_id, str):
        raise errors.OpcodeError(f"OP_ID: expected str, got {type_name(op_id)}")
    declared = catalogue.find(op_id)
    if declared is None:
        guess = _about_new_packages() or likeness(op_id, catalogue.known_ids())
        # It may be one of the plug-ins that could not be loaded.
        broken = "".join(f"; {problem}" for problem in catalogue.problems()[:_PROBLEMS_SHOWN_MAX])
        raise errors.OpcodeError(f"unknown opcode {shown(op_id)}{guess}{broken}")
    return declared


def _about_new_packages() -> str:
    packages = catalogue.installed_since()[:_PROBLEMS_SHOWN_MAX]
    if not packages:
        return ""
    verb = "brings" if len(packages) == 1 else "bring"
    return (
        f"; {', '.join(packages)} {verb} opcodes, but came after the daemon's start: restart it to "
        "load them"
    )


def _convert(plain: Mapping[str, Any], declared: type[Opcode]) -> Opcode:
    given = {name: value for name, value in plain.items() if name not in ("OP_ID", "depend")}
    try:
        _check_names(given, declared)
        if waited_for := dependencies(plain):
            given["depends"] = [[job_id, list(statuses)] for job_id, statuses in waited_for]
        for name, value in given.items():
            check_plain(value, name)
        return msgspec.convert(given, declared)
    except errors.DependencyError as error:
        raise errors.DependencyError(f"{declared.op_id}: {error.text}") from error
    except msgspec.ValidationError as error:
        text = explain(str(error), given, declared)
        raise errors.OpcodeError(f"{declared.op_id}: {text}") from error
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        # A plug-in's own check may raise anything; that must not stop the daemon.
        raise errors.OpcodeError(f"{declared.op_id}: {_error_text(error)}") from error


class _Names(msgspec.Struct, frozen=True):
    """The names of one kind of opcode's parameters, cached for the check of each opcode."""

    known: dict[str, None]
    required: tuple[str, ...]
    omitted: tuple[tuple[str, object], ...]
    """Those that are stored only if they differ from this default: null, or of a later version."""


@functools.cache
def _names(declared: type[Opcode]) -> _Names:
    known = defaults(declared)
    return _Names(
        dict.fromkeys(name for name, _ in known),
        tuple(name for name, default in known if default is msgspec.NODEFAULT),
        tuple(
            (name, default)
            for name, default in known
            if (default is None and name not in _ALWAYS_STORED) or name in declared.later_fields
        ),
    )


def _check_names(given: Mapping[str, Any], declared: type[Opcode]) -> None:
    names = _names(declared)
    for name in given:
        if not isinstance(name, str):
            raise ValueError(f"expected str as parameter name, got {type_name(name)}")  # noqa: TRY004
        if name not in names.known:
            own = [field for field in names.known if field not in COMMON_FIELDS]
            listed = ", ".join([*own, *COMMON_FIELDS])
            raise ValueError(f"unknown parameter {shown(name)} (known: {listed})")
    for name in names.required:
        if name not in given:
            raise ValueError(f"missing parameter '{name}'")


def _stored_form(opcode: Opcode) -> dict[str, Any]:
    # Through JSON and back: the result can be stored, and reads back as the same value.
    plain = msgspec.json.decode(msgspec.json.encode(opcode, order="deterministic"))
    for name, default in _names(type(opcode)).omitted:
        if plain[name] == default:
            del plain[name]
    common = {name: plain.pop(name) for name in COMMON_FIELDS if name in plain}
    return {**common, "OP_ID": opcode.op_id, **plain}


def _hide(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _hide(item) for name, item in value.items()}
    return None if value is None else REDACTED


def _error_text(error: BaseException) -> str:
    if isinstance(error, errors.GangerError):
        return error.text
    text = text_of(error)
    if not isinstance(error, ValueError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return " ".join(text.split())
