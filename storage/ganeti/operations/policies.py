"""Instance policies: how an opcode sets them, what must hold in them, and who violates them.

A policy has bounds of sizes (``minmax``, of which an instance must fit one pair), a standard size
(``std``, the cluster's only), two ratios and the disk templates that are allowed. A group has only
what differs from the cluster. The texts of the errors are Ganeti's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...cluster.configuration import Configuration
from ...cluster.objects import ObjectKind
from ...opcodes import OperationError
from .. import parameters
from . import values
from .base import Code, prerequisite_error
from .lookups import Object, disks_of_instance, nodes_of_instance
from .values import Values

BOUNDS, STANDARD, TEMPLATES = "minmax", "std", "disk-templates"
RATIOS: Final = ("vcpu-ratio", "spindle-ratio")
_KEYS: Final = (BOUNDS, STANDARD, TEMPLATES, *RATIOS)
_PAIR: Final = ("max", "min")
_DISKLESS: Final = "diskless"


def new_group_policy(cluster: Object, given: Values) -> dict[str, Any]:
    """The policy of a new group; `OperationError` if it, filled by the cluster's, is wrong."""
    own = {key: _typed(key, value) for key, value in given.items()}
    filled = parameters.instance_policy(cluster, {"ipolicy": own})
    _check_syntax(filled, with_standard=False)
    check_templates_enabled(cluster, filled)
    return own


def updated_policy(old: Values, new: Values, *, of_group: bool) -> dict[str, Any]:
    """The policy after an opcode changes it; `OperationError` if that is wrong.

    An empty value or ``default`` removes a key of a group's policy; the cluster must have all.
    """
    found = dict(old)
    for key, value in new.items():
        if key not in _KEYS:
            raise _wrong_input(f"Invalid key in new ipolicy: {key}")
        if not value or value in (values.DEFAULT, [values.DEFAULT]):
            if not of_group:
                raise _wrong_input(f"Can't unset ipolicy attribute '{key}' on the cluster'")
            found.pop(key, None)
        elif key == STANDARD and of_group:
            raise _wrong_input(f"{key} cannot appear in group instance specs")
        elif key == STANDARD:
            standard = values.updated(old.get(key, {}), value, default_removes=False)
            found[key] = _typed(key, standard)
        else:
            found[key] = _typed(key, value)
    _check_syntax(found, with_standard=not of_group)
    return found


def check_templates_enabled(cluster: Object, filled: Values) -> None:
    """Raise `OperationError` if a filled policy allows a disk template that is not enabled."""
    excess = sorted(set(filled.get(TEMPLATES, ())) - set(cluster.get("enabled_disk_templates", ())))
    if excess:
        raise _wrong_input(
            "The following disk templates are allowed by the ipolicy, but not enabled on the"
            f" cluster: {', '.join(excess)}"
        )


def new_violators(
    configuration: Configuration, old: Values, new: Values, instances: Iterable[Object]
) -> list[Object]:
    """The instances that violate the new filled policy and did not violate the old one."""
    return [
        instance
        for instance in instances
        if violations(configuration, new, instance) and not violations(configuration, old, instance)
    ]


def violations(configuration: Configuration, policy: Values, instance: Object) -> list[str]:
    """How an instance violates a filled policy, in one text each; none if it does not."""
    disks = disks_of_instance(configuration, instance)
    backend = parameters.backend_parameters(configuration.cluster, instance)
    sizes: dict[str, Any] = {
        "memory-size": backend.get("maxmem"),
        "cpu-count": backend.get("vcpus"),
        "nic-count": len(instance.get("nics") or ()),
        "spindle-use": backend.get("spindle_use"),
    }
    found = []
    if _has_exclusive_storage(configuration, instance):
        spindles = [disk.get("spindles") for disk in disks]
        sizes["spindle-use"] = None if None in spindles else sum(filter(None, spindles))
        if None in spindles:
            found.append(
                "Number of spindles not configured for disks of instance"
                f" {instance.get('name')} while exclusive storage is enabled"
            )
    if disks:
        sizes["disk-count"] = len(disks)
    return [
        *found,
        *_forbidden_templates(policy, disks),
        *_out_of_bounds(policy, sizes, [disk["size"] for disk in disks]),
    ]


def _forbidden_templates(policy: Values, disks: list[Object]) -> Iterable[str]:
    allowed = policy.get(TEMPLATES)
    if allowed is None:
        return
    listed = ", ".join(sorted(allowed))
    if not disks and _DISKLESS not in allowed:
        yield f"Disk template {_DISKLESS} is not allowed (allowed templates {listed})"
    forbidden = sorted({disk["dev_type"] for disk in disks} - set(allowed))
    if forbidden:
        names = ", ".join(forbidden)
        yield f"Disk template {names} is not allowed (allowed templates: {listed})"


def _out_of_bounds(policy: Values, sizes: Values, disk_sizes: list[int]) -> list[str]:
    """The violations of the pair of bounds that the instance violates least."""
    named = [(name, name, value) for name, value in sizes.items()]
    named += [("disk-size", f"disk-size/{index}", size) for index, size in enumerate(disk_sizes)]
    found = [
        [text for name, shown, value in named if (text := _outside(bounds, name, shown, value))]
        for bounds in policy.get(BOUNDS) or ()
    ]
    return min(found, key=len, default=[])


def _outside(bounds: Values, name: str, shown: str, value: int | None) -> str | None:
    if value is None:
        return None
    lowest, highest = bounds["min"].get(name, value), bounds["max"].get(name, value)
    if lowest <= value <= highest:
        return None
    return f"{shown} value {value} is not in range [{lowest}, {highest}]"


def _has_exclusive_storage(configuration: Configuration, instance: Object) -> bool:
    cluster = configuration.cluster
    for uuid in nodes_of_instance(configuration, instance):
        node = configuration.get(ObjectKind.NODE, uuid)
        group = None if node is None else configuration.get(ObjectKind.NODE_GROUP, node["group"])
        if parameters.node_parameters(cluster, group, node).get("exclusive_storage"):
            return True
    return False


# ---------------------------------------------------------------- syntax


def _typed(key: str, value: Any) -> Any:  # noqa: ANN401 - decoded JSON
    """The value of one key in its type."""
    if key in RATIOS:
        return _ratio(key, value)
    if key == STANDARD:
        return values.enforced(value, values.SPECIFICATION)
    if not isinstance(value, list):
        raise _policy_error(f"'{key}' (value {value}) is not a list")
    return [_typed_bounds(pair) for pair in value] if key == BOUNDS else list(value)


def _typed_bounds(pair: object) -> dict[str, Any]:
    if not isinstance(pair, Mapping):
        raise _policy_error(f"Missing instance specification: {', '.join(_PAIR)}")
    return {name: values.enforced(own, values.SPECIFICATION) for name, own in pair.items()}


def _ratio(key: str, value: Any) -> float:  # noqa: ANN401 - decoded JSON
    try:
        found = float(value)
    except (ValueError, TypeError, OverflowError) as error:
        text = f"Invalid value for attribute '{key}': '{value}', error: {error}"
        raise _wrong_input(text) from error
    if not math.isfinite(found):
        raise _wrong_input(f"Invalid value for attribute '{key}': '{value}', error: not finite")
    return found


def _check_syntax(policy: Values, *, with_standard: bool) -> None:
    """Raise `OperationError` unless a policy, maybe of a group and not filled, is well-formed."""
    unknown = sorted(set(policy) - set(_KEYS))
    if unknown:
        raise _policy_error(f"Invalid keys in ipolicy: {', '.join(unknown)}")
    if BOUNDS in policy:
        _check_bounds(policy, with_standard=with_standard)
    if TEMPLATES in policy:
        _check_templates(policy[TEMPLATES])


def _check_bounds(policy: Values, *, with_standard: bool) -> None:
    if with_standard:
        if STANDARD not in policy:
            raise _policy_error(f"Missing key in ipolicy: {STANDARD}")
        _check_complete(STANDARD, policy[STANDARD])
    if not policy[BOUNDS]:
        raise _policy_error("Empty minmax specifications")
    for pair in policy[BOUNDS]:
        _check_pair(pair)
    standard = policy.get(STANDARD, {})
    if with_standard and not any(_contains(pair, standard) for pair in policy[BOUNDS]):
        raise _policy_error("Invalid std specifications")


def _check_pair(pair: Values) -> None:
    missing = [name for name in _PAIR if name not in pair]
    if missing:
        raise _policy_error(f"Missing instance specification: {', '.join(missing)}")
    for name, specification in pair.items():
        _check_complete(name, specification)
    for name in values.SPECIFICATION:
        lowest, highest = pair["min"][name], pair["max"][name]
        if lowest > highest:
            raise _policy_error(
                f"Invalid specification of min/max values for {name}: {lowest}/{highest}"
            )


def _check_complete(name: str, specification: Values) -> None:
    missing = sorted(set(values.SPECIFICATION) - set(specification))
    if missing:
        raise _policy_error(f"Missing instance specs parameters for {name}: {', '.join(missing)}")


def _contains(pair: Values, standard: Values) -> bool:
    return all(
        pair["min"][name] <= standard.get(name, pair["min"][name]) <= pair["max"][name]
        for name in values.SPECIFICATION
    )


def _check_templates(templates: list[Any]) -> None:
    if not templates:
        raise _policy_error("Instance policy must contain at least one disk template")
    wrong = sorted(
        str(one) for one in templates if not isinstance(one, str) or one not in values.DISK
    )
    if wrong:
        raise _policy_error(f"Invalid disk template(s) {', '.join(wrong)}")


def _policy_error(text: str) -> OperationError:
    return _wrong_input(f"Invalid instance policy: {text}")


def _wrong_input(text: str) -> OperationError:
    return prerequisite_error(text, Code.WRONG_INPUT)
