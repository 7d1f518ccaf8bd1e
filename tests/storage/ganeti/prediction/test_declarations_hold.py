"""Declaration and actual requests of every opcode that has an operation agree."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import util
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.clusters import made_configuration, uuid_of
from tests.storage.prediction.levels import uncovered
from tests.storage.queries.recorded_answers import larger

from ganger.storage import opcodes
from ganger.storage.cluster.configuration import Configuration
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.ganeti.operations import deciding
from ganger.storage.ganeti.operations.base import Circumstances
from ganger.storage.ganeti.prediction.group_locks import NEW
from ganger.storage.opcodes import LockNeeds, catalogue
from ganger.storage.prediction.declared import answer_to, forecast, question_of
from ganger.storage.prediction.declared_needs import LookupSnapshot
from ganger.storage.prediction.lock_types import (
    LEVELS,
    NO_LOCKS,
    LockForecast,
    forecast_of_locks,
)

NEW_UUID = "99999999-0000-4000-8000-000000000000"
CONFIGURATIONS = {
    "made": Configuration.load(made_configuration(nodes=5, instances=12, networks=2)),
    "recorded": Configuration.load(larger()),
}
EXAMPLE = Path(__file__).parents[4] / "docs/examples/ganger-example-opcodes"

Case = dict[str, Any]


def some(snapshot: Configuration, kind: ObjectKind) -> list[str]:
    """The names of objects, as they are written in full, in short and in capitals."""
    full = [one["name"] for _, one in snapshot.objects(kind)]
    if kind in {ObjectKind.NODE, ObjectKind.INSTANCE}:
        return [*full, full[0].split(".")[0], full[-1].upper()]
    return [*full, *(uuid for uuid, _ in snapshot.objects(kind))]


def cases(snapshot: Configuration) -> dict[str, list[Case]]:
    """Parameters for each opcode with an operation, by its id."""
    instances, nodes = some(snapshot, ObjectKind.INSTANCE), some(snapshot, ObjectKind.NODE)
    groups, networks = some(snapshot, ObjectKind.NODE_GROUP), some(snapshot, ObjectKind.NETWORK)
    tagged: list[Case] = [{"kind": "cluster"}]
    for kind, names in (
        ("instance", instances),
        ("node", nodes),
        ("nodegroup", groups),
        ("network", networks),
    ):
        tagged += [{"kind": kind, "name": name} for name in names]
    pairs = [{"group_name": group, "network_name": net} for group in groups for net in networks]
    link = {"network_mode": "bridged", "network_link": "br0"}
    return {
        "OP_CLUSTER_CONFIG_QUERY": [{"output_fields": ["cluster_name"]}],
        "OP_CLUSTER_QUERY": [{}],
        "OP_CLUSTER_REDIST_CONF": [{}],
        "OP_CLUSTER_SET_PARAMS": [{"max_running_jobs": 5}],
        "OP_CLUSTER_VERIFY": [{}, {"group_name": groups[0]}],
        "OP_CLUSTER_VERIFY_CONFIG": [{}],
        "OP_CLUSTER_VERIFY_GROUP": [{"group_name": group} for group in groups],
        "OP_EXEC": [{"argv": ["true"], "locks": one} for one in NEEDS],
        "OP_FILE_CHECKSUM": [{"path": "/a"}, {"path": "/a", "node": "n1"}],
        "OP_GROUP_ADD": [{"group_name": "new"}],
        "OP_GROUP_ASSIGN_NODES": [
            {"group_name": group, "nodes": some_nodes}
            for group in groups
            for some_nodes in ([nodes[0]], nodes[1:], [])
        ],
        "OP_GROUP_REMOVE": [{"group_name": group} for group in groups],
        "OP_GROUP_RENAME": [{"group_name": group, "new_name": "other"} for group in groups],
        "OP_GROUP_SET_PARAMS": [
            {"group_name": group, "alloc_policy": "preferred"} for group in groups
        ],
        "OP_NETWORK_ADD": [
            {"network_name": "new", "network": "10.200.0.0/24", **more}
            for more in ({}, {"conflicts_check": False}, {"conflicts_check": True})
        ],
        "OP_NETWORK_CONNECT": [
            {**pair, **link, **more} for pair in pairs for more in ({}, {"conflicts_check": False})
        ],
        "OP_NETWORK_DISCONNECT": pairs,
        "OP_NETWORK_REMOVE": [{"network_name": name} for name in networks],
        "OP_NETWORK_RENAME": [{"network_name": name, "new_name": "other"} for name in networks],
        "OP_NETWORK_SET_PARAMS": [
            {"network_name": name, "gateway": "10.0.0.1"} for name in networks
        ],
        "OP_NODE_REMOVE": [{"node_name": name} for name in nodes],
        "OP_NODE_SET_PARAMS": [
            {"node_name": name, **more}
            for name in nodes
            for more in (
                {"drained": True},
                {"offline": True, "auto_promote": True},
                {"master_candidate": False, "auto_promote": True},
                {"master_candidate": True, "auto_promote": True},
                {"master_capable": False, "auto_promote": True},
                {"vm_capable": False},
            )
        ],
        "OP_NODE_CALL": [
            {"call": "version"},
            {"call": "version", "node": "n1"},
            {"call": "version", "nodes": ["n2", "n1", "n2"]},
        ],
        "OP_RESTRICTED_COMMAND": [
            {"command": "look", "nodes": some_nodes, "use_locking": alone}
            for some_nodes in ([nodes[0]], nodes[1:3])
            for alone in (False, True)
        ],
        "OP_NODE_COPY": [
            {"path": "/a", "content": "", "nodes": ["n1"]},
            {"path": "/a", "content": "", "node": "n1"},
        ],
        "OP_QUERY": queries(instances, nodes),
        "OP_QUERY_FIELDS": [{"what": "node"}],
        "OP_TAGS_DEL": [{**one, "tags": ["a"]} for one in tagged],
        "OP_TAGS_GET": [{**one, "use_locking": locks} for one in tagged for locks in (True, False)],
        "OP_TAGS_SEARCH": [{"pattern": "a"}],
        "OP_TAGS_SET": [{**one, "tags": ["a"]} for one in tagged],
        "OP_TEST_DELAY": [
            {"duration": 1, **more}
            for more in (
                {},
                {"on_master": False},
                {"on_nodes": ["n1", "n2"], "on_master": False},
                {"on_nodes": ["n1"], "on_node_uuids": ["u2"]},
                {"on_nodes": ["n1"], "on_node_uuids": []},
                {"on_nodes": [nodes[0], "n1"], "on_master": False},
                {"on_nodes": nodes[:2]},
                {"on_node_uuids": [uuid_of("nodes", 1), nodes[2]], "on_master": False},
            )
        ],
    }


NEEDS: list[Case] = [
    {},
    {"cluster": {"exclusive": ["BGL"]}},
    {"node": {"shared": ["n2"], "exclusive": ["n1"]}},
    {"node": {"exclusive": ["*"]}, "instance": {"shared": ["*"]}},
    {
        "node-res": {"shared": ["?"]},
        "nodegroup": {"exclusive": ["g"]},
        "network": {"shared": ["w"]},
    },
]


def queries(instances: list[str], nodes: list[str]) -> list[Case]:
    """Queries with and without locking, live fields and names."""
    found = []
    for use_locking in (True, False):
        for fields in (["name"], ["name", "mfree"], ["status"], ["status", "pnode.group"]):
            for what, names in (("instance", instances), ("node", nodes), ("group", ["g"])):
                named = [["==", "name", names[0]], ["|", *(["==", "name", n] for n in names[:2])]]
                found += [
                    {"what": what, "use_locking": use_locking, "fields": fields, "qfilter": tree}
                    for tree in (None, *named)
                ]
    return found


@pytest.fixture(scope="module", autouse=True)
def example() -> Iterator[None]:
    """The example package of user opcodes, loaded as the daemon loads it."""
    with pytest.MonkeyPatch.context() as patch:
        spec = util.spec_from_file_location(
            "ganger_example_opcodes", EXAMPLE / "ganger_example_opcodes.py"
        )
        assert spec is not None
        assert spec.loader is not None
        module = util.module_from_spec(spec)
        patch.setitem(sys.modules, "ganger_example_opcodes", module)
        spec.loader.exec_module(module)
        patch.setitem(catalogue._from_users, "OP_FILE_CHECKSUM", module.OpFileChecksum)
        yield


def requested(opcode: Mapping[str, Any], snapshot: Configuration) -> LockForecast:
    """What the job of this opcode asks the lock manager for."""
    typed = opcodes.parse(opcode)
    if typed.is_locked_by_store:
        given = Circumstances(NEW_UUID, 1_800_000_000.0)
        needs: LockNeeds = deciding.locks_of(typed, snapshot, given)
    else:
        needs = typed.lock_needs()
    return forecast_of_locks(needs.to_changes())


def with_new_uuid(found: LockForecast) -> LockForecast:
    """The forecast, as if the UUID of a new object were known to it."""
    text = msgspec.json.encode(found).decode()
    return msgspec.json.decode(text.replace(f"{NEW}new", NEW_UUID), type=LockForecast)


def test_each_opcode_with_an_operation_has_cases_here() -> None:
    with_operation = {one for one in catalogue.known_ids() if catalogue.has_operation(one)}
    assert {*cases(CONFIGURATIONS["made"])} == with_operation


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_resolved_forecast_is_what_the_job_requests(name: str) -> None:
    snapshot = CONFIGURATIONS[name]
    names, count = LookupSnapshot(snapshot), 0
    for op_id, several in cases(snapshot).items():
        for case in several:
            opcode = {"OP_ID": op_id, **case}
            real = requested(opcode, snapshot)
            found = with_new_uuid(forecast(opcode, names))
            assert uncovered(found, real) == [], opcode
            if op_id == "OP_GROUP_ASSIGN_NODES" and not case["nodes"]:
                # All nodes one by one, as in Ganeti; the forecast has the whole level.
                continue
            assert found == real, opcode
            count += real != NO_LOCKS
    assert count > 80, "most cases take locks"


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_forecast_without_the_configuration_covers_what_the_job_requests(name: str) -> None:
    snapshot = CONFIGURATIONS[name]
    for op_id, several in cases(snapshot).items():
        for case in several:
            opcode = {"OP_ID": op_id, **case}
            real = requested(opcode, snapshot)
            found = with_new_uuid(forecast(opcode))
            assert uncovered(found, real) == [], opcode


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_answer_to_a_question_is_the_resolved_forecast(name: str) -> None:
    snapshot, asked = CONFIGURATIONS[name], 0
    names = LookupSnapshot(snapshot)
    for op_id, several in cases(snapshot).items():
        for case in several:
            opcode = {"OP_ID": op_id, "comment": "secret", "priority": 3, **case}
            question = question_of(opcode)
            found = forecast(opcode) if question is None else answer_to(question, names)
            assert found == forecast(opcode, names), opcode
            assert "secret" not in (question or ""), "only what the locks depend on is asked"
            asked += question is not None
    assert asked > 80


def test_a_new_opcode_without_a_declaration_may_take_any_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = catalogue.find("OP_GROUP_REMOVE")
    assert real is not None
    monkeypatch.setitem(catalogue._from_users, "OP_NEW", real)
    found = forecast({"OP_ID": "OP_NEW", "group_name": "g"})
    assert all(getattr(found, level).type == "unknown_exclusive" for level in LEVELS)


def test_names_of_the_made_configuration_are_locks() -> None:
    """The comparison above is of names that exist: it compares no empty sets."""
    names = LookupSnapshot(CONFIGURATIONS["made"])
    found = forecast({"OP_ID": "OP_GROUP_SET_PARAMS", "group_name": "group0"}, names)
    assert found.nodegroup.names == (uuid_of("nodegroups", 0),)
    assert len(found.instance.names) > 3
