"""The content of the ssconf files: the configuration as plain lines, for scripts on all nodes.

Holds no I/O. A file's lines end with a line feed; without lines it is empty (Ganeti, simple
configuration files).

How it works. Each file depends on few fields of few objects. `affected` compares these for one
changed object, so that most changes make no file anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from ..natural_order import natural_key
from .object_rules import HYPERVISORS
from .parameters import node_parameters

Configuration = Mapping[str, Any]
"""The whole of ``config.data``."""


class _File(NamedTuple):
    lines: Callable[[Configuration], Iterable[str]]
    depends: Mapping[str, tuple[str, ...]]
    """For each container (or ``cluster``) the fields that the lines depend on."""


def contents(configuration: Configuration, release: str) -> dict[str, str]:
    """The text of each ssconf file, by its name without ``ssconf_``.

    ``release`` is the version that goes into ``release_version``.
    """
    made = {name: _text(file.lines(configuration)) for name, file in _FILES.items()}
    return {**made, "release_version": _text([release])}


def content(configuration: Configuration, name: str) -> str:
    """The text of one file that depends on the configuration."""
    return _text(_FILES[name].lines(configuration))


def changed(before: Configuration, after: Configuration) -> dict[str, str]:
    """The text of each file that is another one after a change of the configuration."""
    return {
        name: text for name in _FILES if (text := content(after, name)) != content(before, name)
    }


def affected(
    container: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> frozenset[str]:
    """The files that the change of one object may change.

    ``container`` is that of the object, such as ``nodes``, or ``cluster``; None as object: it was
    added or removed.
    """
    return frozenset(
        name
        for name, file in _FILES.items()
        if (fields := file.depends.get(container)) is not None
        and (
            before is None
            or after is None
            or any(before.get(field) != after.get(field) for field in fields)
        )
    )


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


# ---------------------------------------------------------------- objects


def _shown(holder: Mapping[str, Any], field: str) -> str:
    """A field as text; empty if it is unset, as in a damaged file."""
    return str(holder.get(field) or "")


def _nodes(configuration: Configuration) -> list[dict[str, Any]]:
    nodes = configuration.get("nodes", {}).values()
    return sorted(nodes, key=lambda node: natural_key(_shown(node, "name")))


def _by_uuid(configuration: Configuration, container: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from sorted(configuration.get(container, {}).items())


def _candidates(configuration: Configuration) -> Iterator[dict[str, Any]]:
    master = configuration["cluster"].get("master_node")
    for uuid, node in _by_uuid(configuration, "nodes"):
        if uuid == master or node.get("master_candidate"):
            yield node


# ---------------------------------------------------------------- lines


def _master(configuration: Configuration) -> list[str]:
    uuid = configuration["cluster"].get("master_node")
    master = configuration.get("nodes", {}).get(uuid)
    return [_shown(master, "name") if master is not None else "NO MASTER"]


def _ssh_ports(configuration: Configuration) -> Iterator[str]:
    cluster, groups = configuration["cluster"], configuration.get("nodegroups", {})
    for node in _nodes(configuration):
        port = node_parameters(cluster, groups.get(node.get("group")), node).get("ssh_port", "")
        yield f"{_shown(node, 'name')}={port}"


def _instances(configuration: Configuration) -> list[str]:
    instances = configuration.get("instances", {}).values()
    # A forthcoming instance may have no name yet.
    return sorted((one["name"] for one in instances if one.get("name")), key=natural_key)


def _groups(configuration: Configuration) -> list[str]:
    groups = configuration.get("nodegroups", {}).items()
    ordered = sorted(groups, key=lambda item: natural_key(_shown(item[1], "name")))
    return [f"{uuid} {_shown(group, 'name')}" for uuid, group in ordered]


def _certificates(configuration: Configuration) -> list[str]:
    digests = configuration["cluster"].get("candidate_certs") or {}
    return [f"{uuid}={digest}" for uuid, digest in sorted(digests.items())]


def _user_ids(configuration: Configuration) -> list[str]:
    ranges = configuration["cluster"].get("uid_pool") or ()
    return [f"{low}-{high}" if low != high else f"{low}" for low, high in ranges]


def _hypervisor(name: str) -> Callable[[Configuration], list[str]]:
    def lines(configuration: Configuration) -> list[str]:
        parameters = (configuration["cluster"].get("hvparams") or {}).get(name) or {}
        return [f"{key}={_plain(value)}" for key, value in sorted(parameters.items())]

    return lines


def _plain(value: object) -> str:
    """A value in a line: texts without quotes, booleans with a capital letter."""
    return str(value) if isinstance(value, str | bool) else msgspec.json.encode(value).decode()


def _of_cluster(field: str) -> _File:
    """A file with one value of the cluster; it is empty if that is not set."""

    def lines(configuration: Configuration) -> list[str]:
        value = configuration["cluster"].get(field)
        return [] if value is None else [_plain(value)]

    return _File(lines, {"cluster": (field,)})


def _listed(field: str, *, is_sorted: bool = False) -> _File:
    """A file with a line for each item of a list of the cluster."""

    def lines(configuration: Configuration) -> list[str]:
        items = configuration["cluster"].get(field) or ()
        return sorted(items) if is_sorted else list(items)

    return _File(lines, {"cluster": (field,)})


def _of_candidates(field: str) -> _File:
    return _File(
        lambda configuration: [_shown(node, field) for node in _candidates(configuration)],
        {"cluster": ("master_node",), "nodes": ("master_candidate", field)},
    )


def _of_nodes(show: Callable[[dict[str, Any]], str | None], *fields: str) -> _File:
    """A file with a line for each node that ``show`` gives one, in natural order."""

    def lines(configuration: Configuration) -> Iterator[str]:
        for node in _nodes(configuration):
            line = show(node)
            if line is not None:
                yield line

    return _File(lines, {"nodes": ("name", *fields)})


_FILES: Final[dict[str, _File]] = {
    **{
        name: _of_cluster(name)
        for name in (
            "cluster_name",
            "enabled_user_shutdown",
            "file_storage_dir",
            "gluster_storage_dir",
            "maintain_node_health",
            "master_ip",
            "master_netdev",
            "master_netmask",
            "primary_ip_family",
            "shared_file_storage_dir",
        )
    },
    "cluster_tags": _listed("tags", is_sorted=True),
    "hypervisor_list": _listed("enabled_hypervisors"),
    "uid_pool": _File(_user_ids, {"cluster": ("uid_pool",)}),
    "master_node": _File(_master, {"cluster": ("master_node",), "nodes": ("name",)}),
    "master_candidates": _of_candidates("name"),
    "master_candidates_ips": _of_candidates("primary_ip"),
    "master_candidates_certs": _File(_certificates, {"cluster": ("candidate_certs",)}),
    "node_list": _of_nodes(lambda node: _shown(node, "name")),
    "offline_nodes": _of_nodes(
        lambda node: _shown(node, "name") if node.get("offline") else None, "offline"
    ),
    "online_nodes": _of_nodes(
        lambda node: None if node.get("offline") else _shown(node, "name"), "offline"
    ),
    "node_primary_ips": _of_nodes(
        lambda node: f"{_shown(node, 'name')} {_shown(node, 'primary_ip')}", "primary_ip"
    ),
    "node_secondary_ips": _of_nodes(
        lambda node: f"{_shown(node, 'name')} {_shown(node, 'secondary_ip')}", "secondary_ip"
    ),
    "node_vm_capable": _of_nodes(
        lambda node: f"{_shown(node, 'name')}={bool(node.get('vm_capable'))}", "vm_capable"
    ),
    "instance_list": _File(_instances, {"instances": ("name",)}),
    "nodegroups": _File(_groups, {"nodegroups": ("name",)}),
    "networks": _File(
        lambda configuration: [
            f"{uuid} {_shown(network, 'name')}"
            for uuid, network in _by_uuid(configuration, "networks")
        ],
        {"networks": ("name",)},
    ),
    "ssh_ports": _File(
        _ssh_ports,
        {
            "cluster": ("ndparams",),
            "nodegroups": ("ndparams",),
            "nodes": ("name", "group", "ndparams"),
        },
    ),
    **{
        f"hvparams_{name}": _File(_hypervisor(name), {"cluster": ("hvparams",)})
        for name in HYPERVISORS
    },
}
