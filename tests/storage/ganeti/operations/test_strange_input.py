"""Strange parameters and damaged configurations: an opcode is refused, and the store lives."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.clusters import made_configuration
from tests.storage.ganeti.operations.held_configuration import HeldConfiguration

from ganger.storage import errors
from ganger.storage.cluster.objects import CONTAINERS
from ganger.storage.ganeti.operations import table
from ganger.storage.ganeti.operations.base import Operation
from ganger.storage.opcodes import OperationError

SMALL = made_configuration(nodes=2, instances=2)
CONNECTION = {"network_mode": "bridged", "network_link": "br7"}
SIZES = SMALL["cluster"]["ipolicy"]["std"]

OPCODES: list[tuple[str, dict[str, Any]]] = [
    ("OP_GROUP_ADD", {"group_name": "rack", "ipolicy": {"vcpu-ratio": 2}}),
    ("OP_GROUP_REMOVE", {"group_name": "group0"}),
    ("OP_GROUP_RENAME", {"group_name": "group0", "new_name": "rack"}),
    (
        "OP_GROUP_SET_PARAMS",
        {
            "group_name": "group0",
            "ndparams": {"ssh_port": 1},
            "diskparams": {"rbd": {"access": "userspace"}},
            "hv_state": {"kvm": {"cpu_total": 1}},
            "disk_state": {"plain": {"xenvg": {"disk_total": 1}}},
            "ipolicy": {"minmax": [{"min": SIZES, "max": SIZES}]},
        },
    ),
    ("OP_GROUP_ASSIGN_NODES", {"group_name": "group0", "nodes": ["node1", "node0"]}),
    ("OP_NETWORK_ADD", {"network_name": "lan", "network": "10.0.0.0/24"}),
    ("OP_NETWORK_REMOVE", {"network_name": "network0"}),
    ("OP_NETWORK_RENAME", {"network_name": "network0", "new_name": "lan"}),
    ("OP_NETWORK_SET_PARAMS", {"network_name": "network0", "gateway": "10.128.0.7"}),
    ("OP_NETWORK_CONNECT", {"group_name": "group0", "network_name": "network0", **CONNECTION}),
    ("OP_NETWORK_DISCONNECT", {"group_name": "group0", "network_name": "network0"}),
    ("OP_TAGS_SET", {"kind": "instance", "name": "instance0", "tags": ["a"]}),
    ("OP_TAGS_SEARCH", {"pattern": "web"}),
    ("OP_CLUSTER_VERIFY_CONFIG", {}),
    (
        "OP_CLUSTER_SET_PARAMS",
        {
            "candidate_pool_size": 1,
            "beparams": {"vcpus": 2},
            "ndparams": {"ssh_port": 1},
            "nicparams": {"link": "br1"},
            "ipolicy": {"vcpu-ratio": 2},
            "hvparams": {"kvm": {"acpi": False}},
            "enabled_disk_templates": ["plain", "drbd", "file"],
            "enabled_hypervisors": ["kvm"],
        },
    ),
]

ANYTHING = st.recursive(
    st.sampled_from([None, True, "*", 0, -1, 2.5, "", "default", "10.128.0.7", "a\n", 2**63 - 1])
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=4,
)


def run(store: HeldConfiguration, op_id: str, fields: dict[str, Any]) -> str | None:
    """Run the opcode; the name of the error that it is refused with."""
    try:
        store.run(op_id, **fields)
    except OperationError as error:
        return error.name
    except errors.BadRequestError as error:
        return error.luxi_name
    return None


PLACES = [
    (kind, uuid, field)
    for kind in CONTAINERS
    for uuid, found in SMALL[kind].items()
    for field in [*found, "gone"]
] + [("cluster", None, field) for field in SMALL["cluster"]]


@settings(max_examples=100)
@given(
    st.sampled_from(OPCODES),
    st.lists(st.tuples(st.sampled_from(PLACES), ANYTHING), min_size=1, max_size=3),
)
def test_no_damage_of_the_configuration_stops_the_store(
    opcode: tuple[str, dict[str, Any]], damage: list[tuple[Any, Any]]
) -> None:
    document = copy.deepcopy(SMALL)
    for (kind, uuid, field), value in damage:
        found = document[kind] if uuid is None else document[kind][uuid]
        if value is None:
            found.pop(field, None)
        else:
            found[field] = value
    run(HeldConfiguration(document), *opcode)


def test_damage_is_named_by_its_place() -> None:
    document = copy.deepcopy(SMALL)
    uuid, node = next(iter(document["nodes"].items()))
    del node["group"]
    with pytest.raises(OperationError) as raised:
        HeldConfiguration(document).run("OP_GROUP_REMOVE", group_name="group0")
    assert [raised.value.name, *raised.value.details] == [
        "ConfigurationError",
        f"the configuration is damaged: nodes/{uuid}: object missing required field group",
    ]


def test_a_mistake_in_an_operation_is_not_taken_for_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mistaken(*_: Any) -> Any:
        raise KeyError("a mistake")

    monkeypatch.setitem(table.OPERATIONS, "OP_GROUP_ADD", Operation(mistaken, mistaken))
    with pytest.raises(KeyError, match="a mistake"):
        HeldConfiguration(SMALL).run("OP_GROUP_ADD", group_name="rack")


NAMES = st.sampled_from([
    "minmax", "std", "disk-templates", "vcpu-ratio", "kvm", "plain", "drbd", "ssh_port", "ovs",
    "min", "max", "cpu-count", "x",
])  # fmt: skip
NESTED = st.recursive(
    ANYTHING | st.sampled_from([SIZES, [SIZES], {"min": SIZES, "max": SIZES}, ["plain"]]),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=4,
)
PARAMETERS = st.dictionaries(
    st.sampled_from(["ndparams", "hv_state", "disk_state", "ipolicy"]),
    st.dictionaries(NAMES, NESTED, max_size=3),
    min_size=1,
)


@settings(max_examples=100)
@given(st.sampled_from(["OP_GROUP_ADD", "OP_GROUP_SET_PARAMS"]), PARAMETERS)
def test_whatever_parameters_are_accepted_can_be_stored(
    op_id: str, parameters: dict[str, Any]
) -> None:
    name = "rack" if op_id == "OP_GROUP_ADD" else "group0"
    store = HeldConfiguration(SMALL)
    refusal = run(store, op_id, {"group_name": name, **parameters})
    assert refusal in (None, "OpPrereqError", "TypeEnforcementError")
    assert store.problems() == []
