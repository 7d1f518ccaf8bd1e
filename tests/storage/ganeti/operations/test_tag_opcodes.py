"""The opcodes of tags: what they lock, change, answer and refuse."""

from __future__ import annotations

import pytest
from tests.clusters import uuid_of
from tests.storage.ganeti.operations.played import after, locks, play, refusal, snapshot_of

from ganger.storage.cluster.configuration import Configuration
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.ganeti.tags import TAGS_MAX

OBJECTS = [
    ("cluster", "", ObjectKind.CLUSTER, uuid_of("cluster", 0), None),
    (
        "node",
        "node1.example.com",
        ObjectKind.NODE,
        uuid_of("nodes", 1),
        f"node/{uuid_of('nodes', 1)}",
    ),
    ("node", "node1", ObjectKind.NODE, uuid_of("nodes", 1), f"node/{uuid_of('nodes', 1)}"),
    ("node", "NODE1", ObjectKind.NODE, uuid_of("nodes", 1), f"node/{uuid_of('nodes', 1)}"),
    (
        "instance",
        "instance0",
        ObjectKind.INSTANCE,
        uuid_of("instances", 0),
        "instance/instance0.example.com",
    ),
    (
        "nodegroup",
        "group1",
        ObjectKind.NODE_GROUP,
        uuid_of("nodegroups", 1),
        f"nodegroup/{uuid_of('nodegroups', 1)}",
    ),
    (
        "network",
        uuid_of("networks", 0),
        ObjectKind.NETWORK,
        uuid_of("networks", 0),
        f"network/{uuid_of('networks', 0)}",
    ),
]


@pytest.fixture(scope="module")
def snapshot() -> Configuration:
    return snapshot_of(nodes=2, instances=2)


@pytest.mark.parametrize(("kind", "name", "container", "uuid", "lock"), OBJECTS)
def test_tags_are_added_read_and_removed_under_the_lock_of_their_object(
    snapshot: Configuration,
    kind: str,
    name: str,
    container: ObjectKind,
    uuid: str,
    lock: str | None,
) -> None:
    target = {"kind": kind, "name": name}
    exclusive = [] if lock is None else [(lock, "exclusive")]
    assert locks(snapshot, "OP_TAGS_SET", **target, tags=["a"]) == exclusive
    assert locks(snapshot, "OP_TAGS_DEL", **target, tags=["a"]) == exclusive
    before = sorted(snapshot.get(container, uuid)["tags"])
    tagged = after(snapshot, "OP_TAGS_SET", **target, tags=["b", "a"])
    assert tagged.get(container, uuid)["tags"] == ["a", "b", *before]
    assert tagged.get(container, uuid)["serial_no"] == 2
    assert play(tagged, "OP_TAGS_GET", **target).result == ["a", "b", *before]
    untagged = after(tagged, "OP_TAGS_DEL", **target, tags=["b", "a"])
    assert untagged.get(container, uuid)["tags"] == before


@pytest.mark.parametrize(("kind", "name", "lock"), [(one[0], one[1], one[4]) for one in OBJECTS])
def test_reading_locks_only_if_asked_to(
    snapshot: Configuration, kind: str, name: str, lock: str | None
) -> None:
    shared = [] if lock is None else [(lock, "shared")]
    assert locks(snapshot, "OP_TAGS_GET", kind=kind, name=name) == []
    assert locks(snapshot, "OP_TAGS_GET", kind=kind, name=name, use_locking=True) == shared


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("node", "Node 'nosuch' not known"),
        ("instance", "Instance 'nosuch' not known"),
        ("nodegroup", "Node group 'nosuch' not found"),
        ("network", "Network 'nosuch' not found"),
    ],
)
@pytest.mark.parametrize("op_id", ["OP_TAGS_GET", "OP_TAGS_SET", "OP_TAGS_DEL"])
def test_an_unknown_object_is_refused(
    snapshot: Configuration, op_id: str, kind: str, text: str
) -> None:
    tags = {} if op_id == "OP_TAGS_GET" else {"tags": ["a"]}
    expected = ["OpPrereqError", text, "unknown_entity"]
    assert refusal(snapshot, op_id, kind=kind, name="nosuch", **tags) == expected


def test_a_short_name_that_means_several_nodes_means_none() -> None:
    snapshot = Configuration.load(
        {"nodes": {uuid: {"uuid": uuid, "name": f"n.{uuid}"} for uuid in ("a", "b")}}
    )
    error = ["OpPrereqError", "Node 'n' not known", "unknown_entity"]
    assert refusal(snapshot, "OP_TAGS_GET", kind="node", name="n") == error
    assert play(snapshot, "OP_TAGS_GET", kind="node", name="n.b").result == []


def test_without_a_name_there_is_no_object(snapshot: Configuration) -> None:
    error = ["OpPrereqError", "Node '' not known", "unknown_entity"]
    assert refusal(snapshot, "OP_TAGS_GET", kind="node") == error


@pytest.mark.parametrize(
    ("tag", "text"),
    [
        ("", "Tags cannot be empty"),
        ("a b", "Tag contains invalid characters"),
        ("a" * 129, "Tag too long (>128 characters)"),
    ],
)
@pytest.mark.parametrize("op_id", ["OP_TAGS_SET", "OP_TAGS_DEL"])
def test_malformed_tags_are_refused(
    snapshot: Configuration, op_id: str, tag: str, text: str
) -> None:
    error = ["TagError", text]
    assert refusal(snapshot, op_id, kind="cluster", tags=["good", tag]) == error


def test_a_tag_too_many_is_refused(snapshot: Configuration) -> None:
    tags = [f"t{number}" for number in range(TAGS_MAX)]
    full = after(snapshot, "OP_TAGS_SET", kind="cluster", tags=tags)
    error = ["OpExecError", "Error while setting tag: Too many tags"]
    assert refusal(full, "OP_TAGS_SET", kind="cluster", tags=["more"]) == error
    # One that is there already is no new one.
    assert not play(full, "OP_TAGS_SET", kind="cluster", tags=["t0"]).changes


def test_tags_that_are_not_there_cannot_be_removed(snapshot: Configuration) -> None:
    tagged = after(snapshot, "OP_TAGS_SET", kind="cluster", tags=["here"])
    error = ["OpPrereqError", "Tag(s) 'a', 'b' not found", "unknown_entity"]
    assert refusal(tagged, "OP_TAGS_DEL", kind="cluster", tags=["b", "here", "a"]) == error


def test_what_is_as_wanted_already_changes_nothing(snapshot: Configuration) -> None:
    tagged = after(snapshot, "OP_TAGS_SET", kind="cluster", tags=["a"])
    assert not play(tagged, "OP_TAGS_SET", kind="cluster", tags=["a"]).changes
    assert not play(tagged, "OP_TAGS_DEL", kind="cluster", tags=[]).changes


def test_a_search_looks_at_all_objects(snapshot: Configuration) -> None:
    tagged = snapshot
    for kind, name, *_ in OBJECTS:
        tagged = after(tagged, "OP_TAGS_SET", kind=kind, name=name, tags=["prod-1", "other"])
    assert play(tagged, "OP_TAGS_SEARCH", pattern="^prod").result == [
        ["/cluster", "prod-1"],
        ["/instances/instance0.example.com", "prod-1"],
        ["/nodes/node1.example.com", "prod-1"],
        ["/nodegroup/group1", "prod-1"],
        ["/network/network0", "prod-1"],
    ]
    assert locks(tagged, "OP_TAGS_SEARCH", pattern="a") == []


def test_a_malformed_pattern_is_refused(snapshot: Configuration) -> None:
    name, text, kind = refusal(snapshot, "OP_TAGS_SEARCH", pattern="(")
    assert (name, kind) == ("OpPrereqError", "wrong_input")
    assert text.startswith("Invalid search pattern '(': ")
