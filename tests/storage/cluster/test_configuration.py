"""Snapshots of the configuration: what stays, what changes, and what is refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clusters import made_configuration, uuid_of
from tests.core_alone import NEEDS_HIDDEN

from ganger.storage import errors
from ganger.storage.cluster.configuration import Change, Configuration
from ganger.storage.cluster.objects import ObjectKind

RECORDED = Path(__file__).parents[2] / "compatibility/data/config.data"
NODE, OTHER_NODE = uuid_of("nodes", 0), uuid_of("nodes", 1)
NOW = 1_800_000_000.5


def made() -> Configuration:
    return Configuration.load(made_configuration())


def rule(uuid: str) -> dict[str, Any]:
    return {"uuid": uuid, "watermark": 1, "action": "PAUSE"}


def node(configuration: Configuration, uuid: str = NODE, **fields: object) -> Change:
    return Change(ObjectKind.NODE, uuid, {**configuration.get(ObjectKind.NODE, uuid), **fields})


def test_a_recorded_configuration_makes_the_round_trip_in_its_order() -> None:
    data = msgspec.json.decode(RECORDED.read_bytes())
    configuration = Configuration.load(copy.deepcopy(data))
    assert msgspec.json.encode(configuration.to_document()) == msgspec.json.encode(data)


def test_what_we_do_not_know_makes_the_round_trip() -> None:
    document = {"later": [1], "nodes": {"a": {"x": None}, "b": 3}, "filters": {}, "cluster": {}}
    configuration = Configuration.load(copy.deepcopy(document))
    assert configuration.to_document() == document
    assert list(configuration.to_document()) == list(document)
    assert configuration.top == {"later": [1]}
    assert configuration.serial_no == 0


def test_the_document_can_be_read_without_a_copy() -> None:
    configuration = made()
    assert configuration.document == configuration.to_document()
    assert configuration.document["nodes"][NODE] is configuration.get(ObjectKind.NODE, NODE)
    with pytest.raises(TypeError):
        configuration.document["nodes"] = {}  # type: ignore[index]


@pytest.mark.parametrize(
    ("decoded", "text"),
    [
        ([], "not a configuration: expected a JSON object"),
        ({"nodes": []}, "nodes: expected an object, got list"),
        ({"cluster": None}, "cluster: expected an object, got null"),
    ],
)
def test_what_has_no_containers_is_refused(decoded: object, text: str) -> None:
    with pytest.raises(errors.DataDirectoryError) as caught:
        Configuration.load(decoded)
    assert caught.value.text == text


def test_objects_are_found_by_uuid_and_by_name() -> None:
    configuration = made()
    found = configuration.get(ObjectKind.NODE, NODE)
    assert found["name"] == "node0.example.com"
    assert configuration.find_by_name(ObjectKind.NODE, "node0.example.com") is found
    assert configuration.find_by_name(ObjectKind.INSTANCE, "node0.example.com") is None
    assert configuration.find_by_name(ObjectKind.FILTER, "node0.example.com") is None
    assert configuration.get(ObjectKind.DISK, NODE) is None
    assert dict(configuration.objects(ObjectKind.NODE))[NODE] is found
    assert configuration.count(ObjectKind.NODE) == 4


def test_the_cluster_is_found_as_the_others_are() -> None:
    configuration = made()
    uuid = uuid_of("cluster", 0)
    cluster = configuration.get(ObjectKind.CLUSTER, uuid)
    assert cluster is configuration.cluster
    assert configuration.find_by_name(ObjectKind.CLUSTER, "cluster.example.com") is cluster
    assert configuration.find_by_name(ObjectKind.CLUSTER, "other") is None
    assert list(configuration.objects(ObjectKind.CLUSTER)) == [(uuid, cluster)]
    assert configuration.get(ObjectKind.CLUSTER, NODE) is None
    assert configuration.count(ObjectKind.CLUSTER) == 1
    empty = Configuration.load({})
    assert (empty.cluster, empty.count(ObjectKind.CLUSTER)) == ({}, 0)
    assert list(empty.objects(ObjectKind.CLUSTER)) == []


def test_a_change_counts_and_is_stamped() -> None:
    before = made()
    after = before.changed([node(before, offline=True)], NOW)
    changed = after.get(ObjectKind.NODE, NODE)
    assert changed == {
        **before.get(ObjectKind.NODE, NODE), "offline": True, "serial_no": 2, "mtime": NOW
    }  # fmt: skip
    assert (after.serial_no, after.top["mtime"]) == (8, NOW)
    assert after.top["ctime"] == before.top["ctime"]


def test_the_serial_number_follows_what_is_stored_and_not_what_is_given() -> None:
    before = made()
    after = before.changed([node(before, serial_no=77, mtime=1)], NOW)
    assert after.get(ObjectKind.NODE, NODE)["serial_no"] == 2


@NEEDS_HIDDEN
def test_a_new_object_begins_at_one() -> None:
    added = {"name": "new", "uuid": "n", "serial_no": 5, "later": 1}
    after = made().changed([Change(ObjectKind.NODE_GROUP, "n", added)], NOW)
    found = after.get(ObjectKind.NODE_GROUP, "n")
    assert found == added | {"serial_no": 1, "mtime": NOW, "ctime": NOW}
    assert list(found) == ["name", "ctime", "mtime", "uuid", "serial_no", "later"]


def test_a_filter_rule_gets_no_stamps() -> None:
    before = made()
    after = before.changed([Change(ObjectKind.FILTER, "f", rule("f"))], NOW)
    assert after.get(ObjectKind.FILTER, "f") == rule("f")
    assert after.serial_no == before.serial_no + 1


def test_containers_are_written_in_the_order_of_uuids() -> None:
    after = made().changed([Change(ObjectKind.FILTER, uuid, rule(uuid)) for uuid in "bca"], NOW)
    assert list(after.to_document()["filters"]) == ["a", "b", "c"]


def test_a_container_that_the_file_lacks_is_added() -> None:
    before = Configuration.load({"cluster": {}})
    after = before.changed([Change(ObjectKind.FILTER, "f", rule("f"))], NOW)
    assert before.to_document() == {"cluster": {}}
    assert after.to_document()["filters"] == {"f": rule("f")}
    assert after.serial_no == 1


def test_an_old_snapshot_stays_as_it_was() -> None:
    before = made()
    document = copy.deepcopy(before.to_document())
    changes = [
        node(before, name="renamed"),
        Change(ObjectKind.NODE, OTHER_NODE, None),
        Change(ObjectKind.INSTANCE, "i", {"name": "new", "uuid": "i"}),
        Change(
            ObjectKind.CLUSTER, uuid_of("cluster", 0), {**before.cluster, "master_ip": "192.0.2.2"}
        ),
    ]
    after = before.changed(changes, NOW)
    assert before.to_document() == document
    assert before.find_by_name(ObjectKind.NODE, "node0.example.com") is not None
    assert before.find_by_name(ObjectKind.INSTANCE, "new") is None
    assert after.get(ObjectKind.NODE, OTHER_NODE) is None
    assert after.cluster["master_ip"] == "192.0.2.2"
    assert after.cluster["serial_no"] == 2


def test_untouched_objects_and_containers_are_shared() -> None:
    before = made()
    after = before.changed([node(before)], NOW)
    assert after.get(ObjectKind.NODE, OTHER_NODE) is before.get(ObjectKind.NODE, OTHER_NODE)
    assert after._document["instances"] is before._document["instances"]
    assert after._names[ObjectKind.NODE] is before._names[ObjectKind.NODE]


def test_names_follow_the_changes() -> None:
    before = made()
    one, two = "node0.example.com", "node1.example.com"
    swapped = before.changed([node(before, name=two), node(before, OTHER_NODE, name=one)], NOW)
    assert swapped.find_by_name(ObjectKind.NODE, one)["uuid"] == OTHER_NODE
    assert swapped.find_by_name(ObjectKind.NODE, two)["uuid"] == NODE
    gone = swapped.changed([Change(ObjectKind.NODE, NODE, None)], NOW)
    assert gone.find_by_name(ObjectKind.NODE, two) is None
    assert gone.find_by_name(ObjectKind.NODE, one)["uuid"] == OTHER_NODE


@pytest.mark.parametrize(
    "kind", [ObjectKind.NODE_GROUP, ObjectKind.INSTANCE, ObjectKind.NETWORK, ObjectKind.DISK]
)
def test_all_kinds_with_names_are_found_by_a_new_one(kind: ObjectKind) -> None:
    before = made()
    uuid = uuid_of(kind, 0)
    changes = [Change(kind, uuid, {**before.get(kind, uuid), "name": "renamed"})]
    after = before.changed(changes, NOW)
    assert before.find_by_name(kind, "renamed") is None
    assert after.find_by_name(kind, "renamed") is after.get(kind, uuid)


def test_of_several_objects_of_one_name_the_first_is_found_until_it_goes() -> None:
    before = Configuration.load({"nodes": {uuid: {"name": "x", "uuid": uuid} for uuid in "bac"}})
    assert before.find_by_name(ObjectKind.NODE, "x")["uuid"] == "a"
    after = before.changed([Change(ObjectKind.NODE, "a", None)], NOW)
    assert after.find_by_name(ObjectKind.NODE, "x")["uuid"] == "b"


@pytest.mark.parametrize(
    ("kind", "uuid", "expected", "text"),
    [
        (
            ObjectKind.NODE,
            NODE,
            2,
            f"nodes/{NODE}: the change is for serial number 2, but it is 1 now",
        ),
        (
            ObjectKind.NODE,
            NODE,
            0,
            f"nodes/{NODE}: the change is for a new object, but there is one (it is 1 now)",
        ),
        (
            ObjectKind.NODE,
            "gone",
            3,
            "nodes/gone: the change is for serial number 3, but there is no such object",
        ),
        (
            ObjectKind.CLUSTER,
            uuid_of("cluster", 0),
            9,
            "cluster: the change is for serial number 9, but it is 1 now",
        ),
    ],
)
def test_a_stale_change_is_refused_with_both_numbers(
    kind: ObjectKind, uuid: str, expected: int, text: str
) -> None:
    before = made()
    document = copy.deepcopy(before.to_document())
    given_object = {**(before.get(kind, uuid) or {"uuid": uuid})}
    other = node(before, OTHER_NODE, offline=True)
    for target in (given_object, None):
        with pytest.raises(errors.StaleSerialError) as caught:
            before.changed([other, Change(kind, uuid, target, expected)], NOW)
        assert caught.value.text == text
    assert before.to_document() == document


def test_a_change_for_the_right_serial_number_is_made() -> None:
    before = made()
    found = before.get(ObjectKind.NODE, NODE)
    after = before.changed([Change(ObjectKind.NODE, NODE, found, 1)], NOW)
    assert (
        after.changed([Change(ObjectKind.NODE, NODE, None, 2)], NOW).get(ObjectKind.NODE, NODE)
        is None
    )
    new = before.changed([Change(ObjectKind.NODE, "new", {"uuid": "new"}, 0)], NOW)
    assert new.get(ObjectKind.NODE, "new")["serial_no"] == 1


def test_an_object_without_a_serial_number_has_none_to_expect() -> None:
    before = Configuration.load({"filters": {"f": rule("f")}, "nodes": {"n": {"serial_no": "3"}}})
    for kind, uuid in ((ObjectKind.FILTER, "f"), (ObjectKind.NODE, "n")):
        for expected in (0, 1, 3):
            with pytest.raises(errors.StaleSerialError, match="the object has none"):
                before.changed([Change(kind, uuid, {"uuid": uuid}, expected)], NOW)
    after = before.changed([Change(ObjectKind.NODE, "n", {"uuid": "n"})], NOW)
    assert after.get(ObjectKind.NODE, "n")["serial_no"] == 1


@pytest.mark.parametrize(
    "change",
    [
        Change(ObjectKind.NODE, "gone", None),
        Change(ObjectKind.CLUSTER, "gone", {"uuid": "gone"}),
    ],
)
def test_a_change_of_what_is_not_there_is_refused(change: Change) -> None:
    with pytest.raises(errors.UnknownObjectError, match="there is no such object"):
        made().changed([change], NOW)


def test_the_cluster_object_stays_and_keeps_its_uuid() -> None:
    before, uuid = made(), uuid_of("cluster", 0)
    with pytest.raises(errors.BadRequestError, match="cannot be removed"):
        before.changed([Change(ObjectKind.CLUSTER, uuid, None)], NOW)
    with pytest.raises(errors.BadRequestError, match=f"cluster.uuid: it is {uuid}"):
        before.changed([Change(ObjectKind.CLUSTER, uuid, {**before.cluster, "uuid": "other"})], NOW)


def test_a_cluster_object_can_be_the_first() -> None:
    after = Configuration.load({}).changed([Change(ObjectKind.CLUSTER, "c", {"uuid": "c"}, 0)], NOW)
    assert after.get(ObjectKind.CLUSTER, "c")["serial_no"] == 1


def test_an_object_is_changed_once_in_a_batch() -> None:
    before = made()
    with pytest.raises(AssertionError, match="once in a batch"):
        before.changed([node(before), node(before)], NOW)


NAMES = st.sampled_from(["a", "b", "c"])
BATCHES = st.lists(st.dictionaries(st.sampled_from("123"), st.none() | NAMES, max_size=3))


@given(BATCHES)
def test_the_names_are_those_of_the_objects(batches: list[dict[str, str | None]]) -> None:
    configuration = Configuration.load({})
    for batch in batches:
        changes = [
            Change(ObjectKind.NODE, uuid, None if name is None else {"uuid": uuid, "name": name})
            for uuid, name in batch.items()
            if name is not None or configuration.get(ObjectKind.NODE, uuid) is not None
        ]
        configuration = configuration.changed(changes, NOW)
        loaded = Configuration.load(configuration.to_document())
        assert configuration._names[ObjectKind.NODE] == loaded._names[ObjectKind.NODE]
    assert configuration.serial_no == len(batches)
