"""``OP_CLUSTER_VERIFY_CONFIG``: whether the configuration fits together.

The job log has the problems, the result is whether there are none. Certificates lie on nodes, and
are not looked at. Source: Ganeti's ``LUClusterVerifyConfig``; sections and forms are Ganeti's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from ...cluster.configuration import Configuration
from ...cluster.integrity import problems
from ...cluster.objects import ObjectKind
from ...natural_order import natural_key
from ...opcodes import LevelNeeds, LockNeeds, OperationError
from . import hypervisors
from .base import AnyOpcode, Circumstances, Operation, Outcome
from .lookups import Object
from .values import Values
from .verify_report import Report

_CONFIGURATION: Final = "ECLUSTERCFG"
_NODES: Final = "ECLUSTERDANGLINGNODES"
_INSTANCES: Final = "ECLUSTERDANGLINGINST"


def _locks(_opcode: AnyOpcode, _snapshot: Configuration, _given: Circumstances) -> LockNeeds:
    everything = LevelNeeds(shared=("*",))
    return LockNeeds(
        instance=everything,
        nodegroup=everything,
        node=everything,
        node_res=everything,
        network=everything,
    )


def _verify(opcode: AnyOpcode, snapshot: Configuration, _given: Circumstances) -> Outcome:
    report = Report(opcode)
    report.begin("Verifying cluster config")
    for problem in problems(snapshot):
        report.error(_CONFIGURATION, problem)
    report.begin("Verifying hypervisor parameters")
    for problem in _hypervisor_problems(snapshot):
        report.error(_CONFIGURATION, problem)
    report.begin("Verifying all nodes belong to an existing group")
    _report_dangling(snapshot, report)
    return Outcome(result=not report.is_bad, log=tuple(report.lines))


# ---------------------------------------------------------------- hypervisors


def _hypervisor_problems(snapshot: Configuration) -> Iterator[str]:
    for origin, hypervisor, parameters in _hypervisor_parameters(snapshot):
        place = f"hypervisor {origin} parameters syntax check (source {hypervisor})"
        if hypervisor not in hypervisors.DEFAULTS:
            yield f"{place}: Unknown hypervisor '{hypervisor}'"
            continue
        try:
            hypervisors.checked(hypervisor, hypervisors.filled(hypervisor, parameters))
        except OperationError as error:
            yield f"{place}: {error}"


def _hypervisor_parameters(snapshot: Configuration) -> Iterator[tuple[str, str, Values]]:
    """Whose parameters, of which hypervisor, and the parameters above the defaults."""
    cluster = snapshot.cluster
    of_cluster, of_systems = _mapping(cluster, "hvparams"), _mapping(cluster, "os_hvp")
    for hypervisor in cluster.get("enabled_hypervisors") or ():
        yield "cluster", hypervisor, _mapping(of_cluster, hypervisor)
    for system in of_systems:
        for hypervisor, own in _mapping(of_systems, system).items():
            if own:
                found = {**_mapping(of_cluster, hypervisor), **own}
                yield f"os {system}", hypervisor, found
    for instance in _ordered(snapshot, ObjectKind.INSTANCE):
        if own := _mapping(instance, "hvparams"):
            hypervisor = str(instance.get("hypervisor"))
            of_system = _mapping(_mapping(of_systems, str(instance.get("os"))), hypervisor)
            found = {**_mapping(of_cluster, hypervisor), **of_system, **own}
            yield f"instance {instance.get('name')}", hypervisor, found


# ---------------------------------------------------------------- nodes and groups


def _report_dangling(snapshot: Configuration, report: Report) -> None:
    on_node: dict[str, list[str]] = defaultdict(list)
    lost = []
    for instance in _ordered(snapshot, ObjectKind.INSTANCE):
        name, primary = str(instance.get("name")), instance.get("primary_node")
        on_node[str(primary)].append(name)
        is_placed = primary is not None or not instance.get("forthcoming")
        if is_placed and snapshot.get(ObjectKind.NODE, str(primary)) is None:
            lost.append(name)
    dangling = [
        f"{node.get('name')} ({', '.join(on_node[str(node.get('uuid'))])})"
        for node in _ordered(snapshot, ObjectKind.NODE)
        if snapshot.get(ObjectKind.NODE_GROUP, str(node.get("group"))) is None
    ]
    text = "the following nodes (and their instances) belong to a non existing group"
    report.error_if(dangling, _NODES, text)
    text = "the following instances have a non-existing primary-node"
    report.error_if(lost, _INSTANCES, text)


def _ordered(snapshot: Configuration, kind: ObjectKind) -> list[Object]:
    """All objects of a kind, also of a damaged configuration, in the order of their names."""
    found = (one for _, one in snapshot.objects(kind) if isinstance(one, dict))
    return sorted(found, key=lambda one: natural_key(str(one.get("name"))))


def _mapping(holder: Values, key: str) -> Values:
    found = holder.get(key)
    return found if isinstance(found, dict) else {}


VERIFY: Final = Operation(_locks, _verify, is_long=True)
