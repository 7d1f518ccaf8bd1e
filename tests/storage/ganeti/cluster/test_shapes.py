"""The shape of a loaded configuration: what can be served, and what no reader can work with."""

from __future__ import annotations

from typing import Any

import pytest
from tests.clusters import made_configuration, uuid_of

from ganger.storage import config_files
from ganger.storage.cluster.configuration import Configuration
from ganger.storage.cluster.integrity import Index
from ganger.storage.cluster.shapes import problem, unservable

NODE = uuid_of("nodes", 0)
GROUP = uuid_of("nodegroups", 0)
INSTANCE = uuid_of("instances", 0)
DISK = uuid_of("disks", 0)


def made(path: str, value: object) -> dict[str, Any]:
    """A configuration with another value at this path."""
    document = made_configuration()
    holder: Any = document
    *way, last = path.split("/")
    for name in way:
        holder = holder[name]
    holder[last] = value
    return document


@pytest.mark.parametrize(
    "document",
    [made_configuration(), {}, {"cluster": {}}, config_files.first_configuration("u", 1.0)],
    ids=["made", "empty", "no settings", "first"],
)
def test_a_whole_configuration_has_no_problem(document: dict[str, Any]) -> None:
    assert problem(document) is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"nodes/{NODE}", {}),
        (f"nodes/{NODE}/name", 5),
        (f"nodes/{NODE}/name", None),
        (f"nodes/{NODE}/serial_no", "many"),
        (f"nodes/{NODE}/tags", [1, None]),
        (f"nodes/{NODE}/of_a_later_version", [{"a": []}]),
        (f"instances/{INSTANCE}/hypervisor", "of a later version"),
        (f"disks/{DISK}/logical_id", [1, ["x"]]),
        ("cluster/max_running_jobs", 1e5),
        ("of_a_later_version", [1]),
    ],
)
def test_single_values_of_a_wrong_type_and_unknown_fields_can_be_served(
    path: str, value: object
) -> None:
    document = made(path, value)
    assert problem(document) is None
    Index(Configuration.load(document))


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (
            f"nodes/{NODE}/group",
            [GROUP],
            f"nodes/{NODE}.group: expected a single value, got array",
        ),
        (
            f"nodes/{NODE}/ndparams",
            [],
            f"nodes/{NODE}.ndparams: expected object | null, got array",
        ),
        (
            f"instances/{INSTANCE}/nics",
            [5],
            f"instances/{INSTANCE}.nics[0]: expected object, got int",
        ),
        (
            f"disks/{DISK}/children",
            "x",
            f"disks/{DISK}.children: expected array | null, got str",
        ),
        (
            f"nodegroups/{GROUP}/ipolicy",
            {"minmax": {}},
            f"nodegroups/{GROUP}.ipolicy.minmax: expected array | null, got object",
        ),
        ("cluster/tags", "web", "cluster.tags: expected array | null, got str"),
        ("cluster/uid_pool", ["1-5"], "cluster.uid_pool[0]: expected array, got str"),
    ],
)
def test_a_wrong_shape_is_found_and_served(path: str, value: object, text: str) -> None:
    assert problem(made(path, value)) == text
    assert unservable(made(path, value)) is None


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (f"nodes/{NODE}", 5, f"nodes/{NODE}: expected an object, got int"),
        (f"nodes/{NODE}", None, f"nodes/{NODE}: expected an object, got null"),
        ("filters/x", [], "filters/x: expected an object, got list"),
        (
            f"nodes/{NODE}/of_a_later_version",
            [2**64],
            f"nodes/{NODE}: has a number of more than 64 bits",
        ),
        ("serial_no", 2**64, "top: has a number of more than 64 bits"),
        ("serial_no", 2**62, f"top.serial_no: {2**62} leaves no numbers for changes"),
    ],
)
def test_what_no_message_can_carry_is_named(path: str, value: object, text: str) -> None:
    assert problem(made(path, value)) == unservable(made(path, value)) == text
