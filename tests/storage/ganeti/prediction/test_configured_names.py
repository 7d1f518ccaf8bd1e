"""Names that forecasts resolve are found as the operations find them; which changes touch them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.clusters import made_configuration, uuid_of

from ganger.storage.cluster.configuration import Change, Configuration
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.ganeti.operations.lookups import find_instance, find_node, instances_of_group
from ganger.storage.ganeti.prediction.configured_names import ConfiguredNames
from ganger.storage.opcodes import OperationError
from ganger.storage.prediction.declared import changes_forecasts

SNAPSHOT = Configuration.load(made_configuration(nodes=6, instances=12, networks=2))
NAMES = ConfiguredNames(SNAPSHOT)
WORDS = st.lists(st.sampled_from(["a", "A", "b", "", "aa"]), min_size=1, max_size=3).map(".".join)


@settings(max_examples=60)
@given(st.lists(WORDS, max_size=5, unique=True), WORDS)
def test_a_name_is_found_as_the_operations_find_it(existing: list[str], wanted: str) -> None:
    document = made_configuration(nodes=2, instances=0)
    document["instances"] = {f"i{n}": {"name": name} for n, name in enumerate(existing)}
    document["nodes"] = {
        f"n{n}": {"name": name, "uuid": f"n{n}"} for n, name in enumerate(existing)
    }
    snapshot = Configuration.load(document)
    names = ConfiguredNames(snapshot)
    assert names.instance(wanted) == found(find_instance, snapshot, wanted, "name")
    assert names.node(wanted) == found(find_node, snapshot, wanted, "uuid")


def found(find: Any, snapshot: Configuration, wanted: str, field: str) -> str | None:
    try:
        one: str = find(snapshot, wanted)[field]
    except OperationError:
        return None
    return one


def test_instances_of_a_group_are_those_of_the_operations() -> None:
    for number in range(2):
        group = uuid_of("nodegroups", number)
        expected = frozenset(one["name"] for one in instances_of_group(SNAPSHOT, group))
        assert NAMES.instances_of_group(group) == expected
        assert expected


def test_what_does_not_exist_is_not_known() -> None:
    assert NAMES.nodes_of_instance("nobody") is None
    assert NAMES.moves_between_any_nodes("nobody") is None
    assert NAMES.primary_node("nobody") is None
    assert NAMES.groups_of_nodes(["nobody"]) is None
    assert NAMES.group("nobody") is NAMES.network("nobody") is NAMES.node("nobody") is None
    assert ConfiguredNames(Configuration.load({})).master_node() is None


def test_a_node_is_found_by_its_uuid() -> None:
    assert NAMES.node(uuid_of("nodes", 3)) == uuid_of("nodes", 3)


@pytest.mark.parametrize(
    ("kind", "number", "fields", "is_read"),
    [
        (ObjectKind.CLUSTER, 0, {"tags": ["a"]}, False),
        (ObjectKind.CLUSTER, 0, {"master_node": "other"}, True),
        (ObjectKind.NODE, 1, {"offline": True}, False),
        (ObjectKind.NODE, 1, {"group": "other"}, True),
        (ObjectKind.NODE, 1, {"name": "other"}, True),
        (ObjectKind.NODE_GROUP, 0, {"ndparams": {"ssh_port": 5}}, False),
        (ObjectKind.NODE_GROUP, 0, {"name": "other"}, True),
        (ObjectKind.INSTANCE, 2, {"admin_state": "down", "tags": ["x"]}, False),
        (ObjectKind.INSTANCE, 2, {"primary_node": "other"}, True),
        (ObjectKind.INSTANCE, 2, {"disks": []}, True),
        (ObjectKind.INSTANCE, 2, {"nics": []}, True),
        (ObjectKind.INSTANCE, 2, {"name": "other"}, True),
        (ObjectKind.DISK, 0, {"size": 5}, False),
        (ObjectKind.DISK, 0, {"logical_id": ["a", "b"]}, True),
        (ObjectKind.NETWORK, 0, {"gateway": None}, False),
        (ObjectKind.NETWORK, 0, {"name": "other"}, True),
    ],
)
def test_only_changes_that_forecasts_read_change_names(
    kind: ObjectKind, number: int, fields: dict[str, Any], *, is_read: bool
) -> None:
    uuid = SNAPSHOT.cluster_uuid if kind is ObjectKind.CLUSTER else uuid_of(kind.value, number)
    changes = [Change(kind, uuid, {**SNAPSHOT.get(kind, uuid), **fields})]
    assert changes_forecasts(SNAPSHOT, SNAPSHOT.changed(changes, 5.0), changes) == is_read


def test_another_address_of_an_interface_changes_no_name_but_another_network_does() -> None:
    uuid = uuid_of("instances", 2)
    one = SNAPSHOT.get(ObjectKind.INSTANCE, uuid)
    for field, value, is_read in (("ip", "10.9.9.9", False), ("network", "other", True)):
        nics = [{**one["nics"][0], field: value}]
        changes = [Change(ObjectKind.INSTANCE, uuid, {**one, "nics": nics})]
        after = SNAPSHOT.changed(changes, 5.0)
        assert changes_forecasts(SNAPSHOT, after, changes) == is_read


def test_objects_that_come_and_go_change_names_and_rules_do_not() -> None:
    uuid = uuid_of("networks", 0)
    gone = [Change(ObjectKind.NETWORK, uuid, None)]
    without = SNAPSHOT.changed(gone, 5.0)
    assert changes_forecasts(SNAPSHOT, without, gone)
    back = [Change(ObjectKind.NETWORK, uuid, dict(SNAPSHOT.get(ObjectKind.NETWORK, uuid)))]
    assert changes_forecasts(without, without.changed(back, 6.0), back)
    rule = [Change(ObjectKind.FILTER, "u", {"uuid": "u", "action": "PAUSE"})]
    assert not changes_forecasts(SNAPSHOT, SNAPSHOT.changed(rule, 5.0), rule)
