"""Values of parameters: which names there are, of which type each is, and how an opcode sets them.

A value of a wrong type is made right where that is clear (``"22"`` becomes 22), as Ganeti does.
Each function gives new dictionaries. The texts of the errors are Ganeti's.

Source: Ganeti's tables of parameter types, and "Ganeti design: daemon refactoring" for who checks.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from ...opcodes import OperationError
from ...plain_values import INTEGER_MAX, INTEGER_MIN
from .base import Code, prerequisite_error

Values: TypeAlias = Mapping[str, Any]


class Type(enum.Enum):
    """What the value of a parameter is."""

    BOOLEAN = enum.auto()
    INTEGER = enum.auto()
    FLOAT = enum.auto()
    TEXT = enum.auto()
    TEXT_OR_NONE = enum.auto()
    SIZE = enum.auto()
    """MiB, or a text with a unit, such as ``2g``; a multiple of 4."""


Types: TypeAlias = Mapping[str, Type]

DEFAULT: Final = "default"
"""The value that removes a parameter, so that it has the value of the level above again."""

NODE: Final[Types] = {
    "oob_program": Type.TEXT,
    "spindle_count": Type.INTEGER,
    "exclusive_storage": Type.BOOLEAN,
    "ovs": Type.BOOLEAN,
    "ovs_name": Type.TEXT_OR_NONE,
    "ovs_link": Type.TEXT_OR_NONE,
    "ssh_port": Type.INTEGER,
    "cpu_speed": Type.FLOAT,
}
"""``ndparams``."""

BACKEND: Final[Types] = {
    "minmem": Type.SIZE,
    "maxmem": Type.SIZE,
    "vcpus": Type.INTEGER,
    "auto_balance": Type.BOOLEAN,
    "always_failover": Type.BOOLEAN,
    "spindle_use": Type.INTEGER,
}
"""``beparams``."""

INTERFACE: Final[Types] = {"mode": Type.TEXT, "link": Type.TEXT, "vlan": Type.TEXT}
"""``nicparams``."""

SPECIFICATION: Final[Types] = dict.fromkeys(
    ("memory-size", "disk-size", "disk-count", "cpu-count", "nic-count", "spindle-use"),
    Type.INTEGER,
)
"""The sizes of an instance in an ``ipolicy``."""

HYPERVISORS: Final = frozenset({"chroot", "fake", "kvm", "lxc", "xen-hvm", "xen-pvm"})

HYPERVISOR_STATE: Final[Types] = dict.fromkeys(
    ("mem_total", "mem_node", "mem_hv", "cpu_total", "cpu_node"), Type.INTEGER
)
"""What stands in ``hv_state`` for each hypervisor."""

STORAGE_OF_STATE: Final = frozenset({"plain"})

DISK_STATE: Final[Types] = dict.fromkeys(
    ("disk_total", "disk_reserved", "disk_overhead"), Type.INTEGER
)
"""What stands in ``disk_state`` for each storage of a type."""

_DRBD: Final[Types] = {
    "resync-rate": Type.INTEGER,
    "data-stripes": Type.INTEGER,
    "meta-stripes": Type.INTEGER,
    "disk-barriers": Type.TEXT,
    "meta-barriers": Type.BOOLEAN,
    "metavg": Type.TEXT,
    "disk-custom": Type.TEXT,
    "net-custom": Type.TEXT,
    "protocol": Type.TEXT,
    "dynamic-resync": Type.BOOLEAN,
    "c-plan-ahead": Type.INTEGER,
    "c-fill-target": Type.INTEGER,
    "c-delay-target": Type.INTEGER,
    "c-max-rate": Type.INTEGER,
    "c-min-rate": Type.INTEGER,
}
_ACCESS: Final[Types] = {"access": Type.TEXT}

DISK: Final[Mapping[str, Types]] = {
    "blockdev": {},
    "diskless": {},
    "drbd": _DRBD,
    "ext": _ACCESS,
    "file": {},
    "gluster": {**_ACCESS, "host": Type.TEXT, "volume": Type.TEXT, "port": Type.INTEGER},
    "plain": {"stripes": Type.INTEGER},
    "rbd": {**_ACCESS, "pool": Type.TEXT, "user-id": Type.TEXT},
    "sharedfile": {},
}
"""``diskparams``, by disk template."""

_ANY_DISK: Final[Types] = {name: kind for types in DISK.values() for name, kind in types.items()}

KERNEL_SPACE: Final = "kernelspace"
USER_SPACE: Final = "userspace"
ACCESS_MODES: Final = (KERNEL_SPACE, USER_SPACE)

TEMPLATES_WITH_ACCESS: Final = frozenset({"rbd", "gluster", "ext"})

_SIZE = re.compile(r"([.0-9]+)\s*([a-zA-Z]+)?")
_MEBIBYTES: Final = {
    **dict.fromkeys(("m", "mb", "mib"), 1),
    **dict.fromkeys(("g", "gb", "gib"), 1_024),
    **dict.fromkeys(("t", "tb", "tib"), 1_024**2),
}
_SIZE_STEP: Final = 4
_MAC_PREFIX = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){2}")


# ---------------------------------------------------------------- types


def enforced(values: object, types: Types) -> dict[str, Any]:
    """The values in the types of their parameters; `OperationError` (TypeEnforcementError).

    >>> enforced({"ssh_port": "22", "ovs": "True"}, NODE)
    {'ssh_port': 22, 'ovs': True}
    """
    if not isinstance(values, Mapping):
        raise _type_error(f"Expected dictionary, got '{values}'")
    return {name: _enforced(name, value, types) for name, value in values.items()}


def updated(
    old: Values, new: object, *, default_removes: bool = True, none_removes: bool = False
) -> dict[str, Any]:
    """The parameters after an opcode sets some and removes others."""
    if not isinstance(new, Mapping):
        raise _type_error(f"Expected dictionary, got '{new}'")
    found = dict(old)
    for name, value in new.items():
        if (default_removes and value == DEFAULT) or (none_removes and value is None):
            found.pop(name, None)
        else:
            found[name] = value
    return found


def _enforced(name: str, value: object, types: Types) -> object:
    if name not in types:
        raise _type_error(f"Unknown parameter '{name}'")
    match types[name]:
        case Type.BOOLEAN:
            return _boolean(name, value)
        case Type.INTEGER:
            return _integer(name, value)
        case Type.FLOAT:
            return _float(name, value)
        case Type.SIZE:
            return _size(name, value)
        case Type.TEXT_OR_NONE if value is None:
            return None
        case _:
            return _text(name, value)


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, str) or not value:
        return bool(value)
    known = {"true": True, "false": False}
    if value.lower() not in known:
        raise _type_error(f"'{name}' (value {value}) is not a valid boolean")
    return known[value.lower()]


def _integer(name: str, value: Any) -> int:  # noqa: ANN401 - decoded JSON
    try:
        found = int(value)
    except (ValueError, TypeError, OverflowError):
        found = INTEGER_MAX + 1
    # Larger ones cannot be stored.
    if not INTEGER_MIN <= found <= INTEGER_MAX:
        raise _type_error(f"'{name}' (value {value}) is not a valid integer")
    return found


def _float(name: str, value: Any) -> float:  # noqa: ANN401 - decoded JSON
    try:
        found = float(value)
    except (ValueError, TypeError, OverflowError):
        found = math.nan
    # JSON has no other numbers than finite ones.
    if not math.isfinite(found):
        raise _type_error(f"'{name}' (value {value}) is not a valid float")
    return found


def _text(name: str, value: object) -> str:
    if value is False:
        return ""
    if not isinstance(value, str):
        raise _type_error(f"'{name}' (value {value}) is not a valid string")
    return value


def _size(name: str, value: object) -> int:
    try:
        return _mebibytes(str(value))
    except (ValueError, OverflowError) as error:
        text = f"'{name}' (value {value}) is not a valid size. error: {error}"
        raise _type_error(text) from error


def _mebibytes(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("Invalid format")
    number, unit = match.groups()
    if (unit or "m").lower() not in _MEBIBYTES:
        raise ValueError(f"Unknown unit: {unit}")
    found = math.ceil(float(number) * _MEBIBYTES[(unit or "m").lower()])
    found += -found % _SIZE_STEP
    if found > INTEGER_MAX:
        raise ValueError("Invalid format")
    return found


def _type_error(text: str) -> OperationError:
    return OperationError("TypeEnforcementError", text)


# ---------------------------------------------------------------- states and addresses


def hypervisor_state(old: Values | None, new: Values) -> dict[str, Any]:
    """The ``hv_state`` after an opcode changes it: parameters by hypervisor."""
    unknown = sorted(set(new) - HYPERVISORS)
    if unknown:
        text = f"Invalid hypervisor(s) in hypervisor state: {', '.join(unknown)}"
        raise prerequisite_error(text, Code.WRONG_INPUT)
    return _updated_parts(old or {}, new, HYPERVISOR_STATE)


def disk_state(old: Values | None, new: Values) -> dict[str, Any]:
    """The ``disk_state`` after an opcode changes it: parameters by type and name of a storage."""
    unknown = sorted(set(new) - STORAGE_OF_STATE)
    if unknown:
        text = f"Invalid storage type(s) in disk state: {', '.join(unknown)}"
        raise prerequisite_error(text, Code.WRONG_INPUT)
    old = old or {}
    return {kind: _updated_parts(old.get(kind, {}), new[kind], DISK_STATE) for kind in new}


def mac_prefix(given: str) -> str:
    """Three octets in small letters; `OperationError` (wrong_input) if it is something else."""
    if not _MAC_PREFIX.fullmatch(given):
        raise prerequisite_error(f"Invalid MAC address prefix '{given}'", Code.WRONG_INPUT)
    return given.lower()


def _updated_parts(old: Values, new: object, types: Types) -> dict[str, Any]:
    if not isinstance(new, Mapping):
        raise _type_error(f"Expected dictionary, got '{new}'")
    changed = {
        name: enforced(updated(old.get(name, {}), value), types) for name, value in new.items()
    }
    return {**old, **changed}


# ---------------------------------------------------------------- disk parameters


def check_access_modes(parameters: Mapping[str, Values]) -> None:
    """Raise `OperationError` if a disk template's ``access`` has a value that does not exist."""
    for template, own in parameters.items():
        access = own.get("access", KERNEL_SPACE)
        if access not in ACCESS_MODES:
            raise OperationError(
                "OpPrereqError",
                f"Invalid value of '{template}:access': '{access}'"
                f" (expected one of {', '.join(ACCESS_MODES)})",
            )


def new_disk_parameters(given: Mapping[str, Values]) -> dict[str, Any]:
    """The ``diskparams`` of a new object, by disk template."""
    found = {template: enforced(own, _ANY_DISK) for template, own in given.items()}
    _check_disk_names(found)
    return found


def updated_disk_parameters(old: Mapping[str, Values], new: Mapping[str, Values]) -> dict[str, Any]:
    """The ``diskparams`` after an opcode changes some, by disk template."""
    changed = {
        template: enforced(updated(old.get(template, {}), own), _ANY_DISK)
        for template, own in new.items()
    }
    found = {**old, **changed}
    _check_disk_names(found)
    return found


def disk_problem(error: OperationError) -> OperationError:
    """The error about disk parameters, inside the one in which Ganeti wraps it."""
    inner = tuple(error.details) if len(error.details) > 1 else error.details[0]
    return prerequisite_error(f"While verify diskparams options: {inner}", Code.WRONG_INPUT)


def _check_disk_names(parameters: Mapping[str, Values]) -> None:
    unknown = list(_unknown_names(parameters))
    if unknown:
        text = f"Provided option keys not supported: {', '.join(unknown)}"
        raise disk_problem(prerequisite_error(text, Code.WRONG_INPUT))


def _unknown_names(parameters: Mapping[str, Values]) -> Iterable[str]:
    for template, own in parameters.items():
        if template not in DISK:
            yield template
            continue
        yield from (f"{template}/{name}" for name in own if name not in DISK[template])
