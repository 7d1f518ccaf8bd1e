"""Objects by their names, and the nodes and instances that belong together."""

from __future__ import annotations

from typing import Any

import pytest
from tests.clusters import made_configuration, uuid_of

from ganger.storage.cluster.configuration import Configuration
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.ganeti.operations import lookups
from ganger.storage.opcodes import OperationError

NODES = [uuid_of("nodes", number) for number in range(3)]
GROUP0, GROUP1 = uuid_of("nodegroups", 0), uuid_of("nodegroups", 1)


def with_names(*names: str) -> Configuration:
    document = made_configuration(nodes=max(2, len(names)), instances=0)
    for uuid, name in zip(document["nodes"], names, strict=False):
        document["nodes"][uuid]["name"] = name
    return Configuration.load(document)


@pytest.mark.parametrize(
    ("names", "wanted", "found"),
    [
        (["web", "web.example.com"], "web", "web"),
        (["web.example.com", "db.example.com"], "WEB", "web.example.com"),
        (["web.example.com", "db.example.com"], "web.example", "web.example.com"),
        (["Web", "web.example.com"], "WEB", "Web"),
        (["WEB", "web"], "web", "web"),
        (["web1.example.com", "web.example.com"], "web", "web.example.com"),
    ],
)
def test_a_node_is_found_by_its_name_or_the_beginning_of_only_one(
    names: list[str], wanted: str, found: str
) -> None:
    assert lookups.find_node(with_names(*names), wanted)["name"] == found


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["web.example.com", "web.example.org"], "web"),
        (["WEB", "Web"], "web"),
        (["web.example.com", "db"], "we"),
        (["web.example.com", "db"], "web."),
        (["web.example.com", "db"], NODES[0]),
    ],
)
def test_other_names_of_nodes_are_not_known(names: list[str], wanted: str) -> None:
    with pytest.raises(OperationError, match="not known"):
        lookups.find_node(with_names(*names), wanted)


def test_a_uuid_goes_before_a_name() -> None:
    document = made_configuration(nodes=2, instances=0)
    document["nodegroups"][GROUP1]["name"] = GROUP0
    configuration = Configuration.load(document)
    assert lookups.find_group(configuration, GROUP0)["uuid"] == GROUP0
    assert lookups.holder_of(configuration, ObjectKind.NODE_GROUP, GROUP0) == GROUP0


def test_nodes_of_an_instance_are_its_primary_and_those_of_drbd_disks_at_any_depth() -> None:
    document = made_configuration(nodes=3, instances=2, groups=3)
    inner = {"dev_type": "drbd", "logical_id": [NODES[1], NODES[2], 1, 2, 3, "s"]}
    edits: list[tuple[dict[str, Any], set[str]]] = [
        ({}, {NODES[1]}),
        ({"dev_type": "drbd", "logical_id": inner["logical_id"]}, {NODES[1], NODES[2]}),
        ({"children": [{"dev_type": "plain", "children": [inner]}]}, {NODES[1], NODES[2]}),
        ({"dev_type": "drbd", "logical_id": None, "children": None}, {NODES[1]}),
    ]
    disk = document["disks"][uuid_of("disks", 1)]
    for edit, nodes in edits:
        document["disks"][uuid_of("disks", 1)] = {**disk, **edit}
        configuration = Configuration.load(document)
        instance = configuration.get(ObjectKind.INSTANCE, uuid_of("instances", 1))
        assert lookups.nodes_of_instance(configuration, instance) == nodes


def test_an_instance_that_is_only_reserved_may_have_no_nodes_and_no_disks() -> None:
    document = made_configuration(nodes=2, instances=2)
    reserved = {"name": "new", "uuid": "new", "forthcoming": True}
    document["instances"]["new"] = reserved
    document["instances"][uuid_of("instances", 1)]["disks"].append("gone")
    configuration = Configuration.load(document)
    assert lookups.nodes_of_instance(configuration, reserved) == set()
    names = lookups.names_of(lookups.instances_of_group(configuration, GROUP1))
    assert names == ["instance0.example.com", "instance1.example.com"]
    assert lookups.instances_of_group(configuration, "gone") == []


def test_names_are_in_natural_order() -> None:
    objects = [{"name": "node10"}, {"name": "node9"}, {}]
    assert lookups.names_of(objects) == ["", "node9", "node10"]
