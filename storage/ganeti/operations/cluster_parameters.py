"""How ``OP_CLUSTER_SET_PARAMS`` changes the parameters that nodes and instances get.

Source: Ganeti's ``LUClusterSetParams``; the texts of the errors are Ganeti's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from ...cluster.configuration import Configuration
from ...cluster.objects import ObjectKind
from ...opcodes import OperationError
from .. import parameters
from ..defaults import INTERFACE
from . import hypervisors, policies, values
from .base import Code, prerequisite_error, warning
from .cluster_draft import ClusterDraft
from .lookups import Object, names_of, nodes_of_instance

_DEFAULT: Final = "default"
_MODES: Final = frozenset({"bridged", "openvswitch", "pool", "routed", "auto"})
_HYPERVISOR_STATE: Final = {
    "cpu_node": 1, "cpu_total": 1, "mem_hv": 0, "mem_node": 0, "mem_total": 0,
}  # fmt: skip
_DISK_STATE: Final = {"disk_overhead": 0, "disk_reserved": 0, "disk_total": 0}


def set_backend(draft: ClusterDraft) -> None:
    """``beparams``; ``memory`` stands for the least and the most memory."""
    given = draft.opcode.beparams
    if not given:
        return
    if "memory" in given:
        memory = given["memory"]
        others = {name: value for name, value in given.items() if name != "memory"}
        given = {"minmem": memory, "maxmem": memory, **others}
    _put_default(draft, "beparams", values.enforced(given, values.BACKEND))


def set_nodes(draft: ClusterDraft) -> None:
    """``ndparams``."""
    given = draft.opcode.ndparams
    if given:
        draft.put("ndparams", {**draft.of("ndparams"), **values.enforced(given, values.NODE)})


def set_states(draft: ClusterDraft) -> None:
    """``hv_state`` and ``disk_state``: what hypervisors and storages use for themselves."""
    opcode = draft.opcode
    if opcode.hv_state:
        found = values.hypervisor_state(draft.of("hv_state_static"), opcode.hv_state)
        filled = {name: {**_HYPERVISOR_STATE, **own} for name, own in found.items()}
        draft.put("hv_state_static", filled)
    if opcode.disk_state:
        found = values.disk_state(draft.of("disk_state_static"), opcode.disk_state)
        draft.put(
            "disk_state_static",
            {
                kind: {name: {**_DISK_STATE, **own} for name, own in storages.items()}
                for kind, storages in found.items()
            },
        )


def set_policy(draft: ClusterDraft) -> None:
    """``ipolicy``; the log names the instances that violate it from now on."""
    given, snapshot = draft.opcode.ipolicy, draft.snapshot
    if not given:
        policies.check_templates_enabled(draft.cluster, draft.of("ipolicy"))
        return
    policy = policies.updated_policy(draft.of("ipolicy"), given, of_group=False)
    policies.check_templates_enabled(draft.cluster, policy)
    violators = []
    for uuid, instances in _instances_by_group(snapshot).items():
        group = snapshot.get(ObjectKind.NODE_GROUP, uuid) or {}
        old = parameters.instance_policy(draft.before, group)
        new = parameters.instance_policy({"ipolicy": policy}, group)
        violators += policies.new_violators(snapshot, old, new, instances)
    if violators:
        listed = ", ".join(dict.fromkeys(names_of(violators)))
        text = f"After the ipolicy change the following instances violate them: {listed}"
        draft.log.append(warning(text))
    draft.put("ipolicy", policy)


def set_interfaces(draft: ClusterDraft) -> None:
    """``nicparams``, if the interfaces of all instances go with them."""
    given = draft.opcode.nicparams
    if not given:
        return
    new = {
        **INTERFACE,
        **draft.of("nicparams").get(_DEFAULT, {}),
        **values.enforced(given, values.INTERFACE),
    }
    problem = _interface_problem(new)
    if problem is not None:
        raise OperationError("ConfigurationError", problem)
    problems = []
    for _, instance in draft.snapshot.objects(ObjectKind.INSTANCE):
        for index, nic in enumerate(instance.get("nics") or ()):
            filled = {**new, **(nic.get("nicparams") or {})}
            problem = _interface_problem(filled)
            if problem is None and filled.get("mode") == "routed" and not nic.get("ip"):
                problem = "routed NIC with no ip address"
            if problem is not None:
                problems.append(f"Instance {instance['name']}, nic/{index}: {problem}")
    if problems:
        listed = "\n".join(problems)
        raise prerequisite_error(f"Cannot apply the change, errors:\n{listed}", Code.WRONG_INPUT)
    _put_default(draft, "nicparams", new)


def set_hypervisors(draft: ClusterDraft) -> None:
    """``enabled_hypervisors``, ``hvparams`` and ``os_hvp``."""
    opcode = draft.opcode
    new = draft.of("hvparams")
    for name, own in (opcode.hvparams or {}).items():
        _check_known(name)
        new[name] = {**new.get(name, {}), **own}
    for name in {**(opcode.hvparams or {}), **dict.fromkeys(opcode.enabled_hypervisors or ())}:
        new[name] = hypervisors.checked(name, hypervisors.filled(name, new.get(name, {})))
    if opcode.hvparams or opcode.enabled_hypervisors is not None:
        draft.put("hvparams", new)
    if opcode.hvparams:
        draft.unchecked.append("hvparams")
    if opcode.enabled_hypervisors is not None:
        enabled = list(dict.fromkeys(opcode.enabled_hypervisors))
        if not enabled:
            text = "Enabled hypervisors list must contain at least one member"
            raise prerequisite_error(text, Code.WRONG_INPUT)
        draft.put("enabled_hypervisors", enabled)
        draft.unchecked.append("enabled_hypervisors")
    if opcode.os_hvp:
        draft.put("os_hvp", _with_systems(draft, opcode.os_hvp, new))
        draft.unchecked.append("os_hvp")


def set_systems(draft: ClusterDraft) -> None:
    """``osparams`` and ``osparams_private_cluster``: parameters of operating systems."""
    for field in ("osparams", "osparams_private_cluster"):
        given = getattr(draft.opcode, field)
        if not given:
            continue
        found = draft.of(field)
        for system, own in given.items():
            found[system] = values.updated(found.get(system, {}), own, none_removes=True)
        draft.put(field, {system: own for system, own in found.items() if own})
        draft.unchecked.append(field)


def _instances_by_group(snapshot: Configuration) -> dict[str, list[Object]]:
    """The instances with a node in each group, by the UUIDs of the groups."""
    found: dict[str, list[Object]] = defaultdict(list)
    for _, instance in snapshot.objects(ObjectKind.INSTANCE):
        nodes = (
            snapshot.get(ObjectKind.NODE, uuid) for uuid in nodes_of_instance(snapshot, instance)
        )
        for group in {node["group"] for node in nodes if node is not None}:
            found[group].append(instance)
    return found


def _put_default(draft: ClusterDraft, field: str, new: Mapping[str, Any]) -> None:
    old = draft.of(field)
    draft.put(field, {**old, _DEFAULT: {**old.get(_DEFAULT, {}), **new}})


def _interface_problem(filled: Mapping[str, Any]) -> str | None:
    mode = filled.get("mode")
    if mode not in _MODES:
        return f"Invalid NIC mode '{mode}'"
    return "Missing bridged NIC link" if mode == "bridged" and not filled.get("link") else None


def _with_systems(
    draft: ClusterDraft, given: Mapping[str, Any], of_cluster: Mapping[str, Any]
) -> dict[str, Any]:
    found = draft.of("os_hvp")
    for system, own in given.items():
        merged = dict(found.get(system, {}))
        for name, new in own.items():
            if new is None:
                merged.pop(name, None)
                continue
            _check_known(name)
            merged[name] = values.enforced({**merged.get(name, {}), **new}, hypervisors.TYPES)
            defaults = hypervisors.filled(name, of_cluster.get(name, {}))
            hypervisors.checked(name, {**defaults, **merged[name]})
        found[system] = merged
    return found


def _check_known(hypervisor: str) -> None:
    if hypervisor not in hypervisors.DEFAULTS:
        raise OperationError("HypervisorError", f"Unknown hypervisor '{hypervisor}'")
