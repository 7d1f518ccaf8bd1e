"""The schema of configuration objects: what it accepts, and how it names what it refuses."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.clusters import made_configuration, uuid_of

from ganger.storage.cluster.objects import (
    CONTAINERS,
    ObjectKind,
    in_order,
    schema_problem,
    top_problem,
)

RECORDED = Path(__file__).parents[3] / "compatibility/data/config.data"


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(RECORDED.read_bytes())
    return found


def objects_of(document: dict[str, Any]) -> list[tuple[ObjectKind, str, dict[str, Any]]]:
    cluster = document["cluster"]
    contained = [
        (kind, uuid, found) for kind in CONTAINERS for uuid, found in document[kind].items()
    ]
    return [(ObjectKind.CLUSTER, cluster["uuid"], cluster), *contained]


@pytest.mark.parametrize("document", [recorded(), made_configuration()], ids=["recorded", "made"])
def test_valid_objects_have_no_problem(document: dict[str, Any]) -> None:
    for kind, uuid, found in objects_of(document):
        assert schema_problem(kind, uuid, found) is None
    assert (
        top_problem({name: document[name] for name in ("version", "ctime", "mtime", "serial_no")})
        is None
    )


def test_the_fields_of_a_recorded_configuration_are_in_our_order() -> None:
    for kind, _, found in objects_of(recorded()):
        turned = dict(reversed(found.items()))
        # Filter rules have no schema here: their fields stay as they are.
        expected = turned if kind is ObjectKind.FILTER else found
        assert list(in_order(kind, turned).items()) == list(expected.items())


def test_unknown_fields_are_kept_and_come_last() -> None:
    assert in_order(ObjectKind.NODE, {"of_later": 1, "tags": [], "name": "x"}) == {
        "name": "x",
        "tags": [],
        "of_later": 1,
    }
    assert list(in_order(ObjectKind.NODE, {"of_later": 1, "tags": []})) == ["tags", "of_later"]


NODE, GROUP, INSTANCE = uuid_of("nodes", 0), uuid_of("nodegroups", 0), uuid_of("instances", 0)
DISK, NETWORK = uuid_of("disks", 0), uuid_of("networks", 0)


@pytest.mark.parametrize(
    ("kind", "uuid", "path", "value", "text"),
    [
        (
            ObjectKind.NODE,
            NODE,
            ["serial_no"],
            "1",
            f"nodes/{NODE}.serial_no: expected int, got str",
        ),
        (
            ObjectKind.NODE,
            NODE,
            ["serial_no"],
            True,
            f"nodes/{NODE}.serial_no: expected int, got bool",
        ),
        (ObjectKind.NODE, NODE, ["serial_no"], -1, f"nodes/{NODE}.serial_no: expected int >= 0"),
        (ObjectKind.NODE, NODE, ["mtime"], "x", f"nodes/{NODE}.mtime: expected float, got str"),
        (ObjectKind.NODE, NODE, ["tags"], [3], f"nodes/{NODE}.tags[0]: expected str, got int"),
        (ObjectKind.NODE, NODE, ["name"], "", f"nodes/{NODE}.name: expected str of length >= 1"),
        (
            ObjectKind.NODE_GROUP,
            GROUP,
            ["alloc_policy"],
            "last",
            f"nodegroups/{GROUP}.alloc_policy: invalid enum value 'last'",
        ),
        (
            ObjectKind.INSTANCE,
            INSTANCE,
            ["nics", 0, "mac"],
            None,
            f"instances/{INSTANCE}.nics[0].mac: expected str, got null",
        ),
        (
            ObjectKind.INSTANCE,
            INSTANCE,
            ["network_port"],
            70_000,
            f"instances/{INSTANCE}.network_port: expected int <= 65535",
        ),
        (
            ObjectKind.DISK,
            DISK,
            ["children", 1, "size"],
            "big",
            f"disks/{DISK}.children[1].size: expected int, got str",
        ),
        (
            ObjectKind.NETWORK,
            NETWORK,
            ["network"],
            1,
            f"networks/{NETWORK}.network: expected str, got int",
        ),
        (
            ObjectKind.CLUSTER,
            "",
            ["enabled_hypervisors"],
            ["vax"],
            "cluster.enabled_hypervisors[0]: invalid enum value 'vax'",
        ),
        (
            ObjectKind.CLUSTER,
            "",
            ["ipolicy", "std", "memory-size"],
            "big",
            "cluster.ipolicy.std.memory-size: expected int | null, got str",
        ),
    ],
)
def test_a_problem_names_the_object_and_the_field(
    kind: ObjectKind, uuid: str, path: list[Any], value: object, text: str
) -> None:
    document = copy.deepcopy(made_configuration())
    found = document[kind] if kind is ObjectKind.CLUSTER else document[kind][uuid]
    part = found
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    assert schema_problem(kind, uuid, found) == text


@pytest.mark.parametrize(("kind", "uuid", "field"), [
    (ObjectKind.NODE, NODE, "group"), (ObjectKind.INSTANCE, INSTANCE, "os"),
    (ObjectKind.DISK, DISK, "size"),
])  # fmt: skip
def test_a_missing_field_is_named(kind: ObjectKind, uuid: str, field: str) -> None:
    found = made_configuration()[kind][uuid]
    del found[field]
    problem = schema_problem(kind, uuid, found)
    assert problem == f"{kind}/{uuid}: object missing required field {field}"


@pytest.mark.parametrize("kind", [ObjectKind.INSTANCE, ObjectKind.DISK])
def test_a_forthcoming_object_may_lack_most_fields(kind: ObjectKind) -> None:
    found = {"uuid": "u", "forthcoming": True}
    assert schema_problem(kind, "u", found) is None
    assert schema_problem(kind, "u", found | {"forthcoming": False}) is not None
    assert schema_problem(kind, "u", found | {"serial_no": "1"}) is not None


def test_a_cluster_that_was_not_set_up_may_lack_most_fields() -> None:
    assert schema_problem(ObjectKind.CLUSTER, "u", {"uuid": "u", "max_running_jobs": 20}) is None
    problem = schema_problem(ObjectKind.CLUSTER, "u", {"uuid": "u", "max_running_jobs": 0})
    assert problem == "cluster.max_running_jobs: expected int >= 1"


@pytest.mark.parametrize("kind", list(ObjectKind))
def test_what_is_no_object_is_a_problem(kind: ObjectKind) -> None:
    place = "cluster" if kind is ObjectKind.CLUSTER else f"{kind}/u"
    assert schema_problem(kind, "u", [1]) == f"{place}: expected an object, got list"


def test_the_top_of_the_file_is_checked() -> None:
    top = {"version": 3_000_000, "ctime": 1, "mtime": 2.5, "serial_no": 3, "other": None}
    assert top_problem(top) is None
    assert top_problem(top | {"version": "3"}) == "version: expected int, got str"
    assert top_problem({}) == "top: object missing required field version"
