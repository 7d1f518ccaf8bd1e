"""``OP_CLUSTER_VERIFY_GROUP``: whether the nodes of a group are as they should be. Pure.

Hosts that have joined are asked (by the job's process) whether they answer, for their version,
their clock and the files that were copied there. Disks, volumes, instances, networks and hooks are
of no concern here: nothing on a host knows them. Source: Ganeti's ``LUClusterVerifyGroup``;
sections, texts and codes are Ganeti's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...cluster.configuration import Configuration
from ...cluster.objects import ObjectKind
from ...natural_order import natural_key
from ...opcodes import LevelNeeds, LockNeeds
from .base import AnyOpcode, Circumstances
from .lookups import find_group, nodes_of_instance
from .verify_report import Report

SKEW_SECONDS_MAX: Final = 150.0
"""How far the clock of a node may be from the master's."""

_NODE_RPC: Final = "ENODERPC"
_NODE_TIME: Final = "ENODETIME"
_NODE_VERSION: Final = "ENODEVERSION"
_FILES: Final = "ECLUSTERFILECHECK"
_BAD_NODE: Final = "EINSTANCEBADNODE"


class Said(NamedTuple):
    """What a node has said of itself. ``time``: its clock, in epoch seconds."""

    version: str
    protocol: int
    time: float
    files: Mapping[str, str]


class Master(NamedTuple):
    """What the nodes are compared with. ``begin``, ``end``: when they were asked, by its clock."""

    version: str
    protocol: int
    begin: float
    end: float
    files: Mapping[str, str]


class Group(NamedTuple):
    """What a group has. Nodes and instances are rows of queries, by the names of the fields."""

    name: str
    nodes: Sequence[Mapping[str, Any]]
    instances: Sequence[Mapping[str, Any]]


def locks(opcode: AnyOpcode, snapshot: Configuration, _: Circumstances) -> LockNeeds:
    """The group, its nodes, and the instances with a primary node there, all shared.

    Of instances whose disks are mirrored also the nodes elsewhere.
    """
    group = find_group(snapshot, opcode.group_name)["uuid"]
    nodes = {uuid for uuid, one in snapshot.objects(ObjectKind.NODE) if one["group"] == group}
    own = [
        one for _, one in snapshot.objects(ObjectKind.INSTANCE) if one.get("primary_node") in nodes
    ]
    others = [uuid for one in own for uuid in nodes_of_instance(snapshot, one)]
    return LockNeeds(
        instance=LevelNeeds(shared=tuple(sorted(one["name"] for one in own))),
        nodegroup=LevelNeeds(shared=(group,)),
        node=LevelNeeds(shared=tuple(sorted(nodes.union(others)))),
    )


def verify(
    opcode: AnyOpcode, group: Group, master: Master, said: Mapping[str, Said | str]
) -> Report:
    """What is wrong with the group. ``said``: by each node that is online, or why nothing was."""
    report = Report(opcode)
    report.begin(f"Verifying group '{group.name}'")
    if not group.nodes:
        report.begin("Empty node group, skipping verification")
        return report
    count = len(group.nodes)
    report.begin(f"Gathering data ({count} nodes)")
    report.begin(f"Gathering information about nodes ({count} nodes)")
    report.begin("Verifying configuration file consistency")
    for text in _differing(master, said):
        report.error(_FILES, text)
    report.begin("Verifying node status")
    for node in group.nodes:
        _verify_node(opcode, report, node, master, said)
    report.begin("Verifying instance status")
    for instance in group.instances:
        _verify_instance(opcode, report, instance, group, said)
    _tell_others(report, group)
    return report


def _verify_node(
    opcode: AnyOpcode,
    report: Report,
    node: Mapping[str, Any],
    master: Master,
    said: Mapping[str, Said | str],
) -> None:
    name = node["name"]
    if node["offline"]:
        if opcode.verbose:
            report.begin(f"Skipping offline node {name}")
        return
    if opcode.verbose:
        report.begin(f"Verifying node {name} ({_kind(node)})")
    of, own = ("node", name), said[name]
    if isinstance(own, str):
        report.error(_NODE_RPC, f"while contacting node: {own}", of=of)
        return
    if own.protocol != master.protocol:
        text = f"master {master.protocol}, node {own.protocol}"
        report.error(_NODE_VERSION, f"incompatible protocol versions: {text}", of=of)
    elif own.version != master.version:
        text = f"software version mismatch: master {master.version}, node {own.version}"
        report.error(_NODE_VERSION, text, of=of, is_warning=True)
    skew = 0.0
    if own.time < master.begin - SKEW_SECONDS_MAX:
        skew = master.begin - own.time
    elif own.time > master.end + SKEW_SECONDS_MAX:
        skew = own.time - master.end
    if skew:
        text = f"Node time diverges by at least {skew:.1f}s from master node time"
        report.error(_NODE_TIME, text, of=of)


def _kind(node: Mapping[str, Any]) -> str:
    if node["master"]:
        return "master"
    if node["master_candidate"]:
        return "master candidate"
    return "drained" if node["drained"] else "regular"


def _differing(master: Master, said: Mapping[str, Said | str]) -> Iterator[str]:
    """The files that some have otherwise than the others. A node without any is left out."""
    answered = {name: one for name, one in said.items() if isinstance(one, Said) and one.files}
    for file in sorted(master.files):
        missing = [name for name, one in answered.items() if file not in one.files]
        if missing:
            listed = ", ".join(sorted(missing, key=natural_key))
            yield f"File {file} is missing from node(s) {listed}"
        variants = defaultdict(list)
        for name, one in answered.items():
            if file in one.files:
                variants[one.files[file]].append(name)
        variants[master.files[file]].append("the master")
        if len(variants) > 1:
            told = "; ".join(
                f"variant {number} on {', '.join(sorted(names, key=natural_key))}"
                for number, (_, names) in enumerate(sorted(variants.items()), 1)
            )
            yield f"File {file} found with {len(variants)} different checksums ({told})"


def _verify_instance(
    opcode: AnyOpcode,
    report: Report,
    instance: Mapping[str, Any],
    group: Group,
    said: Mapping[str, Said | str],
) -> None:
    """Whether its nodes are in use: whether it runs there, nobody here knows."""
    name, primary = instance["name"], instance["pnode"]
    if opcode.verbose:
        report.begin(f"Verifying instance {name}")
    offline = {node["name"] for node in group.nodes if node["offline"]}
    if instance["admin_state"] == "up" and primary in offline:
        text = f"instance is marked as running and lives on offline node {primary}"
        report.error(_BAD_NODE, text, of=("instance", name))
    if isinstance(said.get(primary), str):
        text = f"instance {name}, connection to primary node failed"
        report.error(_NODE_RPC, text, of=("node", primary))


def _tell_others(report: Report, group: Group) -> None:
    report.begin("Other Notes")
    offline = sum(one["admin_state"] == "offline" for one in group.instances)
    away = sum(bool(node["offline"]) for node in group.nodes)
    # As Ganeti counts: a master or candidate is not drained.
    drained = sum(not node["offline"] and _kind(node) == "drained" for node in group.nodes)
    for count, what in (
        (offline, "offline instance"),
        (away, "offline node"),
        (drained, "drained node"),
    ):
        if count:
            report.note(f"{count} {what}(s) found.")
