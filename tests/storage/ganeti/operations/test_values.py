"""Values of parameters: types, removal, names."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.storage.ganeti.operations import values
from ganger.storage.ganeti.operations.values import Type
from ganger.storage.opcodes import OperationError

RIGHT: list[tuple[Type, Any, Any]] = [
    (Type.BOOLEAN, True, True),
    (Type.BOOLEAN, "TRUE", True),
    (Type.BOOLEAN, "false", False),
    (Type.BOOLEAN, "", False),
    (Type.BOOLEAN, None, False),
    (Type.BOOLEAN, 3, True),
    (Type.INTEGER, 7, 7),
    (Type.INTEGER, " 7 ", 7),
    (Type.INTEGER, 7.9, 7),
    (Type.INTEGER, True, 1),
    (Type.FLOAT, 1, 1.0),
    (Type.FLOAT, "1.5", 1.5),
    (Type.TEXT, "a", "a"),
    (Type.TEXT, False, ""),
    (Type.TEXT_OR_NONE, None, None),
    (Type.TEXT_OR_NONE, "a", "a"),
    (Type.SIZE, 128, 128),
    (Type.SIZE, "129", 132),
    (Type.SIZE, "2g", 2048),
    (Type.SIZE, "1.5 GiB", 1536),
    (Type.SIZE, "1T", 1_048_576),
    (Type.SIZE, "0.1", 4),
]

WRONG: list[tuple[Type, Any, str]] = [
    (Type.BOOLEAN, "yes", "'x' (value yes) is not a valid boolean"),
    (Type.INTEGER, "seven", "'x' (value seven) is not a valid integer"),
    (Type.INTEGER, None, "'x' (value None) is not a valid integer"),
    (Type.INTEGER, [1], "'x' (value [1]) is not a valid integer"),
    (Type.INTEGER, math.inf, "'x' (value inf) is not a valid integer"),
    (Type.INTEGER, str(2**64), f"'x' (value {2**64}) is not a valid integer"),
    (Type.FLOAT, "fast", "'x' (value fast) is not a valid float"),
    (Type.FLOAT, "nan", "'x' (value nan) is not a valid float"),
    (Type.FLOAT, {}, "'x' (value {}) is not a valid float"),
    (Type.TEXT, None, "'x' (value None) is not a valid string"),
    (Type.TEXT, 0, "'x' (value 0) is not a valid string"),
    (Type.TEXT_OR_NONE, 1, "'x' (value 1) is not a valid string"),
    (Type.SIZE, "much", "'x' (value much) is not a valid size. error: Invalid format"),
    (Type.SIZE, "1 k", "'x' (value 1 k) is not a valid size. error: Unknown unit: k"),
    (Type.SIZE, "9" * 40, f"'x' (value {'9' * 40}) is not a valid size. error: Invalid format"),
]


@pytest.mark.parametrize(("kind", "given_value", "expected"), RIGHT)
def test_a_value_that_can_be_made_right_is(kind: Type, given_value: Any, expected: Any) -> None:
    found = values.enforced({"x": given_value}, {"x": kind})["x"]
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(("kind", "given_value", "text"), WRONG)
def test_another_value_is_refused_in_ganetis_words(kind: Type, given_value: Any, text: str) -> None:
    with pytest.raises(OperationError) as raised:
        values.enforced({"x": given_value}, {"x": kind})
    assert (raised.value.name, raised.value.details) == ("TypeEnforcementError", [text])


@pytest.mark.parametrize(
    ("given_values", "text"),
    [({"speed": 1}, "Unknown parameter 'speed'"), ("fast", "Expected dictionary, got 'fast'")],
)
def test_unknown_parameters_and_other_things_than_parameters_are_refused(
    given_values: Any, text: str
) -> None:
    with pytest.raises(OperationError, match=text):
        values.enforced(given_values, values.NODE)


def test_default_removes_a_parameter_and_none_only_where_that_is_meant() -> None:
    old = {"ssh_port": 22, "cpu_speed": 1.0}
    assert values.updated(old, {"ssh_port": "default", "ovs": "default"}) == {"cpu_speed": 1.0}
    assert values.updated(old, {"ssh_port": None}) == {"ssh_port": None, "cpu_speed": 1.0}
    assert values.updated(old, {"ssh_port": None, "ovs": True}, none_removes=True) == {
        "cpu_speed": 1.0,
        "ovs": True,
    }
    assert values.updated({}, {"ovs_name": "default"}, default_removes=False) == {
        "ovs_name": "default"
    }
    assert old == {"ssh_port": 22, "cpu_speed": 1.0}
    with pytest.raises(OperationError, match="Expected dictionary, got '7'"):
        values.updated(old, 7)


def test_the_state_of_hypervisors_is_merged_for_each() -> None:
    old = {"kvm": {"mem_total": 4, "cpu_total": 2}, "fake": {"cpu_node": 1}}
    new = {"kvm": {"mem_total": "8", "cpu_total": "default"}}
    assert values.hypervisor_state(old, new) == {
        "kvm": {"mem_total": 8},
        "fake": {"cpu_node": 1},
    }
    assert values.hypervisor_state(None, {"lxc": {"mem_hv": 1}}) == {"lxc": {"mem_hv": 1}}
    with pytest.raises(OperationError) as raised:
        values.hypervisor_state(None, {"qemu": {}, "bochs": {}})
    assert raised.value.details == [
        "Invalid hypervisor(s) in hypervisor state: bochs, qemu",
        "wrong_input",
    ]
    with pytest.raises(OperationError, match="Unknown parameter 'mem_free'"):
        values.hypervisor_state(None, {"kvm": {"mem_free": 1}})
    with pytest.raises(OperationError, match="Expected dictionary, got '3'"):
        values.hypervisor_state(None, {"kvm": 3})


def test_the_state_of_disks_is_merged_for_each_storage() -> None:
    old = {"plain": {"xenvg": {"disk_total": 4}, "slow": {"disk_total": 9}}}
    assert values.disk_state(old, {"plain": {"xenvg": {"disk_reserved": "1"}}}) == {
        "plain": {"xenvg": {"disk_total": 4, "disk_reserved": 1}, "slow": {"disk_total": 9}}
    }
    with pytest.raises(OperationError) as raised:
        values.disk_state(None, {"drbd": {}})
    assert raised.value.details == ["Invalid storage type(s) in disk state: drbd", "wrong_input"]
    with pytest.raises(OperationError, match="Expected dictionary, got '1'"):
        values.disk_state(None, {"plain": 1})


def test_a_mac_prefix_has_three_octets_and_gets_small_letters() -> None:
    assert values.mac_prefix("AA:00:0f") == "aa:00:0f"
    for wrong in ("aa:00", "aa:00:00:01", "aa:00:0g", "aa:00:00\n", "none"):
        with pytest.raises(OperationError) as raised:
            values.mac_prefix(wrong)
        assert raised.value.details == [f"Invalid MAC address prefix '{wrong}'", "wrong_input"]


# ---------------------------------------------------------------- disk parameters


def test_disk_parameters_have_the_names_and_types_of_their_template() -> None:
    given_parameters = {"drbd": {"resync-rate": "1024", "dynamic-resync": "true"}, "file": {}}
    assert values.new_disk_parameters(given_parameters) == {
        "drbd": {"resync-rate": 1024, "dynamic-resync": True},
        "file": {},
    }
    with pytest.raises(OperationError) as raised:
        values.new_disk_parameters({"drbd": {"stripes": 1}, "plain": {"pool": "a", "stripes": 2}})
    unknown = ("Provided option keys not supported: drbd/stripes, plain/pool", "wrong_input")
    assert raised.value.details == [f"While verify diskparams options: {unknown}", "wrong_input"]
    with pytest.raises(OperationError, match="Unknown parameter 'stripe'"):
        values.new_disk_parameters({"plain": {"stripe": 1}})


def test_an_update_of_disk_parameters_touches_no_other_template() -> None:
    old: dict[str, Any] = {"plain": {"stripes": 2}, "drbd": {"metavg": "xenvg", "c-max-rate": 1}}
    new = {"drbd": {"metavg": "default", "protocol": "A"}, "rbd": {"pool": "fast"}}
    assert values.updated_disk_parameters(old, new) == {
        "plain": {"stripes": 2},
        "drbd": {"c-max-rate": 1, "protocol": "A"},
        "rbd": {"pool": "fast"},
    }
    with pytest.raises(OperationError, match="not supported: floppy"):
        values.updated_disk_parameters({"floppy": {}}, {"drbd": {}})
    with pytest.raises(OperationError, match="drbd/pool"):
        values.updated_disk_parameters(old, {"drbd": {"pool": "a"}})


def test_access_to_disks_has_two_modes() -> None:
    values.check_access_modes({"rbd": {"access": "userspace"}, "ext": {}})
    with pytest.raises(OperationError) as raised:
        values.check_access_modes({"rbd": {"access": "pink bunny"}})
    assert (raised.value.name, raised.value.details) == (
        "OpPrereqError",
        [
            "Invalid value of 'rbd:access': 'pink bunny' (expected one of kernelspace, userspace)",
        ],
    )
    assert values.disk_problem(raised.value).details[0] == (
        "While verify diskparams options: Invalid value of 'rbd:access': 'pink bunny'"
        " (expected one of kernelspace, userspace)"
    )


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=3,
)


@given(st.sampled_from(list(Type)), ANYTHING)
def test_what_was_enforced_once_stays_as_it_is(kind: Type, value: Any) -> None:
    try:
        found = values.enforced({"x": value}, {"x": kind})
    except OperationError as error:
        name = error.name
    else:
        name = "TypeEnforcementError"
        assert values.enforced(found, {"x": kind}) == found
    assert name == "TypeEnforcementError"
