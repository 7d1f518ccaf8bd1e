"""Filled parameters: a value of the cluster, unless a group, node or instance has its own.

Each function gives a new dictionary, but its values may be those of the configuration: callers
must not change them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

GLOBAL_HYPERVISOR_PARAMETERS: Final = frozenset(
    {"migration_bandwidth", "migration_mode", "migration_port", "xen_cmd"}
)
"""Hypervisor parameters that hold for whole nodes: instances do not show them."""

_DEFAULT = "default"

Parameters = dict[str, Any]
"""Values by parameter."""

Object = Mapping[str, Any]
"""An object of the configuration."""


def node_parameters(cluster: Object, group: Object | None, node: Object | None) -> Parameters:
    """The ``ndparams`` of a node, or of a group if ``node`` is None."""
    return _filled(cluster, "ndparams") | _filled(group, "ndparams") | _filled(node, "ndparams")


def backend_parameters(cluster: Object, instance: Object) -> Parameters:
    """The ``beparams`` of an instance; ``memory`` is the old name of ``maxmem``."""
    defaults = _filled(cluster, "beparams").get(_DEFAULT, {})
    filled = {**defaults, **_filled(instance, "beparams")}
    if "maxmem" in filled:
        filled["memory"] = filled["maxmem"]
    return filled


def interface_parameters(cluster: Object, interface: Object) -> Parameters:
    """The ``nicparams`` of a network interface."""
    defaults = _filled(cluster, "nicparams").get(_DEFAULT, {})
    return {**defaults, **_filled(interface, "nicparams")}


def hypervisor_parameters(cluster: Object, instance: Object) -> Parameters:
    """The ``hvparams`` of an instance, without those that hold for whole nodes.

    Those of its operating system come between those of the cluster and its own.
    """
    hypervisor = instance.get("hypervisor") or ""
    defaults = _filled(cluster, "hvparams").get(hypervisor, {})
    of_system = _filled(cluster, "os_hvp").get(instance.get("os") or "", {}).get(hypervisor, {})
    filled = {**defaults, **of_system, **_filled(instance, "hvparams")}
    return {name: filled[name] for name in filled if name not in GLOBAL_HYPERVISOR_PARAMETERS}


def system_parameters(cluster: Object, instance: Object) -> Parameters:
    """The ``osparams`` of an instance: of its system, of that with its variant, its own."""
    system = instance.get("os") or ""
    known = _filled(cluster, "osparams")
    name = system.partition("+")[0]
    return {**known.get(name, {}), **known.get(system, {}), **_filled(instance, "osparams")}


def instance_policy(cluster: Object, group: Object) -> Parameters:
    """The ``ipolicy`` of a group. Only the standard specification is filled inside."""
    default, custom = _filled(cluster, "ipolicy"), _filled(group, "ipolicy")
    filled = {**default, **custom}
    if "std" in default and "std" in custom:
        filled["std"] = {**default["std"], **custom["std"]}
    return filled


def disk_parameters(cluster: Object, group: Object) -> dict[str, Parameters]:
    """The ``diskparams`` of a group, for each disk template."""
    default, custom = _filled(cluster, "diskparams"), _filled(group, "diskparams")
    names = [*default, *(name for name in custom if name not in default)]
    return {name: {**default.get(name, {}), **custom.get(name, {})} for name in names}


def _filled(holder: Object | None, key: str) -> Parameters:
    """What the object has under this key; nothing if there is no object, or it is unset."""
    found = holder.get(key) if holder is not None else None
    return found if isinstance(found, dict) else {}
