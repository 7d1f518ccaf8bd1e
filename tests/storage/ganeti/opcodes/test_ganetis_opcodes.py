"""Ganeti's opcodes: each is as the catalogue file declares it, and of the right types."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganger.storage import errors, opcodes
from ganger.storage.ganeti.opcodes import catalogue as ganetis
from ganger.storage.ganeti.opcodes import notation
from ganger.storage.opcodes import catalogue
from ganger.storage.opcodes.declarations import Opcode

STORED: dict[str, Any] = json.loads(Path(ganetis.__file__).with_name("catalogue.json").read_text())
ENUMS = STORED["enums"]
NOTATIONS = sorted(
    {
        parameter["type"]
        for declared in STORED["opcodes"].values()
        for parameter in declared["parameters"].values()
    }
)

# The corpus of a running Ganeti: parameters as its job processes wrote them.
FROM_GANETI: list[dict[str, Any]] = [
    {"OP_ID": "OP_CLUSTER_POST_INIT", "dry_run": None, "debug_level": 0},
    {
        "OP_ID": "OP_TEST_DELAY",
        "duration": 0.01,
        "on_master": True,
        "on_nodes": [],
        "on_node_uuids": ["90910f02-036a-444f-8631-f25d6d53cb05"],
        "depends": [[154, ["success"]]],
        "reason": [["gnt:opcode:test_delay", "job=155;index=0", 1795226695537971000]],
    },
    {"OP_ID": "OP_TAGS_SET", "kind": "cluster", "tags": ["bench"], "name": ""},
    {"OP_ID": "OP_OS_DIAGNOSE", "output_fields": ["name", "variants"], "names": []},
    {
        "OP_ID": "OP_NETWORK_ADD",
        "network_name": "net1",
        "network": "10.77.1.0/24",
        "gateway": "10.77.1.254",
        "network6": None,
        "add_reserved_ips": None,
        "conflicts_check": True,
        "tags": [],
    },
    {
        "OP_ID": "OP_INSTANCE_CREATE",
        "instance_name": "inst1.example.com",
        "beparams": {"vcpus": 1, "maxmem": 128},
        "disks": [],
        "disk_template": "diskless",
        "hypervisor": "fake",
        "mode": "create",
        "nics": [{"ip": "pool", "network": "net1"}],
        "osparams_secret": {},
        "os_type": "noop+default",
        "forthcoming": False,
        "helper_startup_timeout": 300,
    },
    {
        "OP_ID": "OP_GROUP_ADD",
        "group_name": "rack2",
        "alloc_policy": None,
        "diskparams": {},
        "ipolicy": {},
    },
]


OURS = {"OP_EXEC", "OP_NODE_CALL", "OP_NODE_COPY"}
"""The opcodes that Ganeti does not have."""


def test_all_of_ganetis_opcodes_and_our_own_are_known() -> None:
    assert len(STORED["opcodes"]) == 76
    assert catalogue.known_ids() == sorted([*STORED["opcodes"], *OURS])


def test_every_known_opcode_can_be_made_checked_and_collected() -> None:
    for op_id in catalogue.known_ids():
        declared = catalogue.find(op_id)
        assert declared is not None
        assert declared.op_id == op_id
        try:
            msgspec.convert({}, declared)
        except msgspec.ValidationError as error:
            assert "missing required field" in str(error)  # noqa: PT017 - not all have one
    # Some combinations of types crash the collector rather than the conversion.
    gc.collect()


def test_parameters_and_defaults_are_those_of_the_catalogue_file() -> None:
    for op_id, stored in STORED["opcodes"].items():
        declared = catalogue.find(op_id)
        assert declared is not None
        fields = {field.name: field for field in msgspec.structs.fields(declared)}
        for name, parameter in stored["parameters"].items():
            assert fields[name].required == ("default" not in parameter), (op_id, name)
            default = fields[name].default
            if fields[name].default_factory is not msgspec.NODEFAULT:
                default = fields[name].default_factory()
            if "default" in parameter:
                assert default == parameter["default"], (op_id, name)
        common = set(Opcode.__struct_fields__)
        assert set(fields) - common == set(stored["parameters"]), op_id


def test_a_type_is_made_only_once() -> None:
    assert catalogue.find("OP_NODE_ADD") is catalogue.find("OP_NODE_ADD")


def test_our_own_opcodes_and_those_of_the_configuration_have_an_operation() -> None:
    with_operation = {op_id for op_id in catalogue.known_ids() if catalogue.has_operation(op_id)}
    ours = OURS | {"OP_TEST_DELAY"} | ganetis.QUERIES | ganetis.ON_NODES
    assert with_operation == ours | ganetis.RUN_IN_STORE


@pytest.mark.parametrize("op_id", catalogue.known_ids())
def test_an_opcode_knows_whether_the_store_carries_it_out(op_id: str) -> None:
    declared = catalogue.find(op_id)
    assert declared is not None
    assert declared.runs_in_store == (op_id in ganetis.RUN_IN_STORE)


@pytest.mark.parametrize("fields", FROM_GANETI, ids=lambda fields: fields["OP_ID"])
def test_files_of_ganeti_are_read(fields: dict[str, Any]) -> None:
    opcode = opcodes.parse(fields)
    for name, value in fields.items():
        if name not in ("OP_ID", "depends", "reason"):
            assert getattr(opcode, name) == value


def test_opcodes_that_need_the_whole_cluster_take_its_lock() -> None:
    needing = [op_id for op_id, stored in STORED["opcodes"].items() if stored.get("exclusive_bgl")]
    assert len(needing) == 8
    opcode = opcodes.parse({"OP_ID": "OP_CLUSTER_DESTROY"})
    assert opcode.lock_needs().to_changes() == [("cluster/BGL", "exclusive")]


# Parameter types.


@pytest.mark.parametrize("text", NOTATIONS)
def test_every_type_of_the_catalogue_file_can_be_parsed(text: str) -> None:
    annotation: Any = notation.parse(text, ENUMS)
    if text.endswith("|null"):
        assert msgspec.convert(None, annotation) is None


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("bool", [True], [0, "true", None]),
        ("int", [-5, 0], [1.5, "1", True]),
        ("int>=0", [0, 7], [-1]),
        ("int>0|null", [1, None], [0]),
        ("float", [1.5, 2], ["1", None]),
        ("nonempty_str", ["a"], ["", 1]),
        ("disk_index", [0, 15], [-1, 16]),
        ("enum:TagKind", ["node"], ["disk", 1]),
        ("list[nonempty_str]", [[], ["a"]], ["a", [""], {}]),
        ("dict[str,any]", [{}, {"a": [1]}], [[], "a"]),
        ("dict[enum:DiskTemplate,dict[str,any]]|null", [None, {"drbd": {}}], [{"x": {}}]),
        ("list[tuple[int,int]]|null", [[[1, 2]], None], [[[1]], [[1, 2, 3]], [1]]),
        ("list[disk_selection]", [[0, [1, {"size": 1}]]], [[16], [[1]], [[1, {}, 2]]]),
        ("list[disk_change]", [[["add", {"size": 1}], [0, "x", {}]]], [[["add"]], ["add"]]),
        ("nonempty_str|list[any]", ["a", [1]], ["", {}]),
        ("dict[str,secret[any]]|null", [{"a": 1}, None], [[]]),
    ],
)
def test_a_type_accepts_its_values_and_nothing_else(
    text: str, good: list[object], bad: list[object]
) -> None:
    annotation: Any = notation.parse(text, ENUMS)
    for value in good:
        assert msgspec.to_builtins(msgspec.convert(value, annotation)) is not NotImplemented
    for value in bad:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(value, annotation)


def test_a_set_forgets_repetitions() -> None:
    annotation: Any = notation.parse("set[enum:SshKeyType]", ENUMS)
    assert msgspec.convert(["rsa", "dsa", "rsa"], annotation) == {"rsa", "dsa"}


@pytest.mark.parametrize(
    "text", ["list[int", "list[int,", "list[int|", "lisst[int]", "list[int]]", "number", ""]
)
def test_a_type_that_is_not_well_formed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="type"):
        notation.parse(text, ENUMS)


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        ("network", "10.0.0.0", "IPv4 network"),
        ("network", "10.0.0.0/33", "IPv4 network"),
        ("gateway", "10.0.0", "IPv4 address"),
        ("gateway6", "10.0.0.1", "IPv6 address"),
        ("network6", "fe80::", "IPv6 network"),
        ("add_reserved_ips", ["10.0.0.1", "x"], "IPv4 address"),
    ],
)
def test_addresses_are_checked(parameter: str, value: object, expected: str) -> None:
    network: dict[str, Any] = {
        "OP_ID": "OP_NETWORK_ADD",
        "network_name": "n",
        "network": "10.0.0.1/24",
        "network6": "fe80::/64",
        "gateway6": "fe80::1",
        "add_reserved_ips": ["10.0.0.9"],
    }
    opcodes.parse(network)
    with pytest.raises(errors.OpcodeError) as caught:
        opcodes.parse({**network, parameter: value})
    assert f"OP_NETWORK_ADD: {parameter}: expected {expected}" in caught.value.text


def test_what_ganeti_writes_is_stored_with_its_defaults() -> None:
    for op_id in catalogue.known_ids():
        declared = catalogue.find(op_id)
        assert declared is not None
        assert op_id in OURS or declared.later_fields == (), op_id
