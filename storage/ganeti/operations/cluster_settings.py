"""``OP_CLUSTER_SET_PARAMS``: changes the cluster's settings, all or none.

Refused is what would need more than a change of the configuration: another network device or
netmask of the master's IP address, and a communication network that jobs would have to set up.

Source: Ganeti's ``LUClusterSetParams``; the texts of the errors are Ganeti's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...cluster.configuration import Configuration
from ...cluster.objects import ObjectKind
from ...opcodes import LevelNeeds, LockNeeds, OperationError
from . import candidates, cluster_parameters, cluster_storage, values
from .base import (
    AnyOpcode,
    Circumstances,
    Code,
    Operation,
    Outcome,
    information,
    prerequisite_error,
    warning,
)
from .cluster_draft import ClusterDraft
from .lookups import Object, find_network, holder_of

_PLAIN: Final = (
    "max_running_jobs",
    "max_tracked_jobs",
    "maintain_node_health",
    "modify_etc_hosts",
    "prealloc_wipe_disks",
    "default_iallocator",
    "default_iallocator_params",
    "reserved_lvs",
    "use_external_mip_script",
    "enabled_user_shutdown",
    "compression_tools",
)
"""Parameters that are fields of the cluster, of the same name."""

_UID_MAX: Final = 2**32 - 1
_TOOL = re.compile(r"[-_a-zA-Z0-9]+")
_URL = re.compile(r"(https?|ftps?)://")
_SECURE: Final = {
    "gateway": (None, "has an IPv4 gateway"),
    "network": ("169.254.0.0/16", "has a non-standard IPv4 network address"),
    "gateway6": (None, "has an IPv6 gateway"),
    "network6": ("fe80::/10", "has a non-standard IPv6 network address"),
    "mac_prefix": ("52:54:00", "has a non-standard MAC prefix"),
}
"""What a network for the communication with instances should be, and how a warning says so."""


def _locks(opcode: AnyOpcode, snapshot: Configuration, _given: Circumstances) -> LockNeeds:
    _check_arguments(opcode, snapshot.cluster)
    everything = LevelNeeds(shared=("*",))
    return LockNeeds(instance=everything, nodegroup=everything, node=everything)


def _set(opcode: AnyOpcode, snapshot: Configuration, _given: Circumstances) -> Outcome:
    draft = ClusterDraft(opcode, snapshot)
    for step in _STEPS:
        step(draft)
    return draft.outcome()


# ---------------------------------------------------------------- arguments


def _check_arguments(opcode: AnyOpcode, cluster: Object) -> None:
    """What can be checked before the job waits for locks."""
    for ranges in (opcode.uid_pool, opcode.add_uids, opcode.remove_uids):
        _check_ranges(ranges or ())
    if opcode.mac_prefix:
        values.mac_prefix(opcode.mac_prefix)
    if opcode.diskparams:
        cluster_storage.checked_disk_parameters(opcode.diskparams)
    _check_image(opcode.install_image, "Install image must be an absolute path or a URL")
    for name in ("master_netdev", "master_netmask"):
        wanted = getattr(opcode, name)
        if wanted and wanted != cluster.get(name):
            text = f"{name}: this system cannot move the master's IP address, so it stays as it is"
            raise prerequisite_error(text, Code.WRONG_INPUT)


def _check_ranges(ranges: Sequence[Sequence[int]]) -> None:
    for lower, higher in ranges:
        if lower > higher:
            text = (
                f"Lower user-id range boundary value ({lower}) is larger than higher boundary"
                f" value ({higher})"
            )
        elif lower < 0:
            text = (
                f"Lower user-id range boundary value ({lower}) is smaller than UIDPOOL_UID_MIN (0)."
            )
        elif higher > _UID_MAX:
            text = (
                f"Higher user-id boundary value ({higher}) is larger than UIDPOOL_UID_MAX"
                f" ({_UID_MAX})."
            )
        else:
            continue
        raise prerequisite_error(text, Code.WRONG_INPUT)


def _check_image(image: str | None, text: str) -> None:
    if image is not None and not (_URL.match(image) or image.startswith("/")):
        raise OperationError("OpPrereqError", text)


# ---------------------------------------------------------------- single settings


def _set_plain(draft: ClusterDraft) -> None:
    opcode = draft.opcode
    if opcode.compression_tools:
        _check_tools(opcode.compression_tools)
    for name in _PLAIN:
        wanted = getattr(opcode, name)
        if wanted is not None:
            draft.put(name, wanted)
    if opcode.default_iallocator:
        draft.unchecked.append("default_iallocator")
    if opcode.mac_prefix:
        draft.put("mac_prefix", values.mac_prefix(opcode.mac_prefix))
    if opcode.install_image:
        draft.put("install_image", opcode.install_image)
    if opcode.zeroing_image is not None:
        text = "Zeroing image must be an absolute path or a URL"
        _check_image(opcode.zeroing_image, text)
        draft.put("zeroing_image", opcode.zeroing_image)


def _check_tools(tools: list[str]) -> None:
    illegal = [tool for tool in tools if not _TOOL.fullmatch(tool)]
    if illegal:
        text = (
            f"The tools '{', '.join(illegal)}' contain illegal characters: only alphanumeric"
            " values, dashes, and underscores are allowed"
        )
    elif "gzip" not in tools:
        text = (
            "For compatibility reasons, the gzip utility must be present among the compression"
            " tools"
        )
    elif "none" in tools:
        text = (
            "none is a reserved value used for no compression, and cannot be used as the name of"
            " a tool"
        )
    else:
        return
    raise prerequisite_error(text, Code.WRONG_INPUT)


def _set_uids(draft: ClusterDraft) -> None:
    opcode = draft.opcode
    pool = [list(one) for one in draft.texts("uid_pool")]
    added = [list(one) for one in opcode.add_uids or ()]
    if added:
        pool = sorted([*pool, *(one for one in added if one not in pool)])
    for one in map(list, opcode.remove_uids or ()):
        if one not in pool:
            text = (
                "User-id range to be removed is not found in the current user-id pool:"
                f" ({one[0]}, {one[1]})"
            )
            raise prerequisite_error(text, Code.WRONG_INPUT)
        pool.remove(one)
    if opcode.uid_pool is not None:
        pool = [list(one) for one in opcode.uid_pool]
    if pool != [list(one) for one in draft.texts("uid_pool")]:
        draft.put("uid_pool", pool)


def _set_system_lists(draft: ClusterDraft) -> None:
    for field, name in (("hidden_os", "hidden"), ("blacklisted_os", "blacklisted")):
        found = draft.texts(field)
        for how, system in getattr(draft.opcode, field) or ():
            if how not in ("add", "remove"):
                text = f"Invalid modification '{how}' of the {name} OS list"
                raise prerequisite_error(text, Code.WRONG_INPUT)
            if how == "add" and system in found:
                draft.log.append(f"OS {system} already in {name} OS list, ignoring")
            elif how == "add":
                found.append(system)
            elif system in found:
                found.remove(system)
            else:
                draft.log.append(f"OS {system} not found in {name} OS list, ignoring")
        if found != draft.texts(field):
            draft.put(field, found)


def _set_collectors(draft: ClusterDraft) -> None:
    opcode = draft.opcode
    found = {name: dict(own) for name, own in draft.of("data_collectors").items()}
    for given, field in (
        (opcode.enabled_data_collectors, "active"),
        (opcode.data_collector_interval, "interval"),
    ):
        for name, value in (given or {}).items():
            if name not in found:
                raise prerequisite_error(f"Unknown data collector '{name}'", Code.WRONG_INPUT)
            found[name][field] = value
    if found:
        draft.put("data_collectors", found)


def _set_candidates(draft: ClusterDraft) -> None:
    """Set the size of the candidate pool, and promote nodes so that it is full again."""
    size = draft.opcode.candidate_pool_size
    if size is None:
        return
    draft.put("candidate_pool_size", size)
    nodes = [one for _, one in draft.snapshot.objects(ObjectKind.NODE)]
    pool = candidates.pool_of(nodes, size)
    promoted = pool.promoted
    for node in promoted:
        draft.change_node(node, {"master_candidate": True})
    if promoted:
        listed = ", ".join(node["name"] for node in promoted)
        draft.log.append(information(f"Promoted nodes to master candidate role: {listed}"))
    if pool.present > pool.wanted:
        text = f"Note: more nodes are candidates ({pool.present}) than desired ({pool.wanted})"
        draft.log.append(information(text))


# ---------------------------------------------------------------- communication network


def _set_communication_network(draft: ClusterDraft) -> None:
    wanted = draft.opcode.instance_communication_network
    before = draft.before.get("instance_communication_network") or ""
    if wanted is None:
        return
    if wanted:
        _check_communication_network(draft, wanted)
    if wanted == before:
        text = f"Instance communication network already is '{wanted}', nothing to do."
        draft.log.append(text)
        return
    if holder_of(draft.snapshot, ObjectKind.NETWORK, before) is not None:
        text = f"Previous instance communication network '{before}' should be removed manually."
        draft.log.append(text)
    how = f"Changing instance communication network to '{wanted}'"
    if not wanted:
        how = "Disabling instance communication network"
    draft.log.append(f"{how}, only new instances will be affected.")
    draft.put("instance_communication_network", wanted)


def _check_communication_network(draft: ClusterDraft, name: str) -> None:
    """The network must exist in all groups: Ganeti would submit jobs that make it."""
    uuid = holder_of(draft.snapshot, ObjectKind.NETWORK, name)
    groups = [one for _, one in draft.snapshot.objects(ObjectKind.NODE_GROUP)]
    if uuid is None or any(uuid not in (group.get("networks") or ()) for group in groups):
        text = (
            f"instance_communication_network: there is no network '{name}' that is connected to"
            " every node group; add and connect it first"
        )
        raise prerequisite_error(text, Code.WRONG_STATE)
    network = find_network(draft.snapshot, name)
    for field, (expected, text) in _SECURE.items():
        if network.get(field) != expected:
            draft.log.append(
                warning(
                    f"Supplied instance communication network '{network['name']}' {text}"
                    f" '{network.get(field)}', this might pose a security risk (default is"
                    f" '{expected}')."
                )
            )


_STEPS: Final[tuple[Callable[[ClusterDraft], Any], ...]] = (
    cluster_storage.set_templates,
    cluster_storage.set_volume_group,
    cluster_storage.set_directories,
    cluster_storage.set_drbd_helper,
    cluster_parameters.set_backend,
    cluster_parameters.set_nodes,
    cluster_parameters.set_states,
    cluster_parameters.set_policy,
    cluster_parameters.set_interfaces,
    cluster_storage.set_disk_parameters,
    cluster_parameters.set_hypervisors,
    cluster_parameters.set_systems,
    _set_collectors,
    _set_plain,
    _set_uids,
    _set_system_lists,
    _set_candidates,
    _set_communication_network,
)

SET_PARAMETERS: Final = Operation(_locks, _set)
