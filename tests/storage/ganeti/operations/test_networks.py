"""The operations on networks: locks, errors, results, and what they change."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clusters import made_configuration, uuid_of
from tests.storage.ganeti.operations.held_configuration import NEW, HeldConfiguration

from ganger.storage.ganeti.address_pools import AddressPool, Use
from ganger.storage.opcodes import LevelNeeds, LockNeeds, OperationError, summary

DOCUMENT = made_configuration(networks=2)
NETWORK0, NETWORK1 = uuid_of("networks", 0), uuid_of("networks", 1)
GROUP0, GROUP1 = uuid_of("nodegroups", 0), uuid_of("nodegroups", 1)
INSTANCES = tuple(f"instance{number}.example.com" for number in range(10))
WHOLE = LevelNeeds(shared=("*",))
CONNECTION = {"network_mode": "bridged", "network_link": "br7"}
CONFLICT = [
    "OpPrereqError",
    "Conflicting IP addresses found;  remove/modify the corresponding network interfaces",
    "wrong_state",
]


def held(document: dict[str, Any] | None = None) -> HeldConfiguration:
    """Networks 0 and 1, 10.128.0.0/24 and 10.129.0.0/24, are connected to both groups."""
    return HeldConfiguration(document or DOCUMENT)


def without_interfaces() -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    for instance in document["instances"].values():
        instance["nics"] = []
    return document


def reserved(network: dict[str, Any], use: Use = Use.EXTERNAL) -> list[str]:
    """The reserved addresses by their last number."""
    return [str(place) for place, digit in enumerate(network[use.value]) if digit == "1"]


def warned(text: str) -> str:
    return f" - WARNING: {text}"


def test_the_summaries_are_ganetis() -> None:
    for name in ("ADD", "REMOVE", "SET_PARAMS", "CONNECT", "DISCONNECT"):
        opcode = {"OP_ID": f"OP_NETWORK_{name}", "network_name": "net1"}
        assert summary(opcode) == f"NETWORK_{name}(net1)"
    assert summary({"OP_ID": "OP_NETWORK_RENAME", "network_name": "net1"}) == "NETWORK_RENAME"


# ---------------------------------------------------------------- add


def test_a_new_network_takes_its_own_lock_and_shares_all_nodes_if_it_looks_at_them() -> None:
    store = held()
    fields: dict[str, Any] = {"network_name": "net1", "network": "10.77.1.0/24"}
    own = LevelNeeds(exclusive=(NEW,))
    assert store.locks("OP_NETWORK_ADD", **fields) == LockNeeds(node=WHOLE, network=own)
    assert store.locks("OP_NETWORK_ADD", **fields, conflicts_check=False) == LockNeeds(network=own)


def test_a_new_network_reserves_its_own_addresses_and_those_that_are_named() -> None:
    store = held()
    outcome = store.run(
        "OP_NETWORK_ADD",
        network_name="net1",
        network="10.77.1.0/24",
        gateway="10.77.1.254",
        network6="fd00::/64",
        gateway6="fd00::1",
        mac_prefix="AA:BB:0c",
        add_reserved_ips=["10.77.1.7", "10.77.1.9"],
        tags=["web", "prod"],
    )
    assert (outcome.result, outcome.log) == (None, ())
    added = store.network("net1")
    assert list(added) == [
        "name", "mac_prefix", "network", "network6", "gateway", "gateway6",
        "reservations", "ext_reservations", "uuid", "ctime", "mtime", "serial_no", "tags",
    ]  # fmt: skip
    assert reserved(added) == ["0", "7", "9", "254", "255"]
    assert reserved(added, Use.INSTANCE) == []
    assert (added["mac_prefix"], added["gateway6"]) == ("aa:bb:0c", "fd00::1")
    assert (added["uuid"], added["serial_no"], added["tags"]) == (NEW, 1, ["prod", "web"])
    assert store.problems() == []


def test_a_wrong_prefix_is_refused_before_any_lock() -> None:
    with pytest.raises(OperationError, match="Invalid MAC address prefix"):
        held().locks("OP_NETWORK_ADD", network_name="a", network="10.7.0.0/24", mac_prefix="aa")


def test_what_a_new_network_lacks_is_absent() -> None:
    store = held()
    store.run("OP_NETWORK_ADD", network_name="net1", network="10.77.1.0/30")
    added = store.network("net1")
    assert not {"gateway", "network6", "gateway6", "mac_prefix"} & set(added)
    assert (added["reservations"], added["ext_reservations"]) == ("0000", "1001")


def test_the_addresses_of_nodes_and_of_the_master_are_reserved() -> None:
    document = made_configuration(nodes=2, instances=0)
    node0, node1 = (document["nodes"][uuid_of("nodes", number)] for number in range(2))
    node0.update(primary_ip="10.77.1.10", secondary_ip="10.77.1.10")
    node1.update(primary_ip="fd00::9", secondary_ip="10.77.1.11")
    document["cluster"]["master_ip"] = "10.77.1.1"
    fields: dict[str, Any] = {
        "network_name": "net1",
        "network": "10.77.1.0/24",
        "gateway": "10.77.1.1",
    }
    store = held(document)
    outcome = store.run("OP_NETWORK_ADD", **fields)
    assert outcome.log == (
        " - INFO: Reserved IP address of node 'node0.example.com' (10.77.1.10)",
        warned(
            "Cannot reserve IP address '10.77.1.10' of node 'node0.example.com':"
            " IP 10.77.1.10 is already externally reserved"
        ),
        " - INFO: Reserved IP address of node 'node1.example.com' (10.77.1.11)",
        warned(
            "Cannot reserve cluster master IP address (10.77.1.1):"
            " IP 10.77.1.1 is already externally reserved"
        ),
    )
    assert reserved(store.network("net1")) == ["0", "1", "10", "11", "255"]
    document["cluster"]["master_ip"] = "10.77.1.2"
    assert held(document).run("OP_NETWORK_ADD", **fields).log[-1] == (
        " - INFO: Reserved cluster master IP address (10.77.1.2)"
    )
    store = held(document)
    assert store.run("OP_NETWORK_ADD", **fields, conflicts_check=False).log == ()
    assert reserved(store.network("net1")) == ["0", "1", "255"]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        (
            {"network_name": "network1"},
            [
                "OpPrereqError",
                f"Desired network name 'network1' already exists as a network (UUID: {NETWORK1})",
                "already_exists",
            ],
        ),
        (
            {"mac_prefix": "aa:bb"},
            ["OpPrereqError", "Invalid MAC address prefix 'aa:bb'", "wrong_input"],
        ),
        ({"tags": ["a b"]}, ["TagError", "Tag contains invalid characters"]),
        (
            {"network": "10.0.0.0/8"},
            [
                "OpExecError",
                (
                    "Cannot create IP address pool for network 'net1': A big network with 16777216"
                    " host(s) is currently not supported. please specify at most a /16 network"
                ),
            ],
        ),
        (
            {"network": "10.0.0.0/31"},
            [
                "OpExecError",
                (
                    "Cannot create IP address pool for network 'net1': A network with only 2"
                    " host(s) is too small, please specify at least a /30 network"
                ),
            ],
        ),
        (
            {"gateway": "10.77.2.1"},
            [
                "OpExecError",
                (
                    "Cannot create IP address pool for network 'net1':"
                    " 10.77.1.0/24 does not contain 10.77.2.1"
                ),
            ],
        ),
        (
            {"gateway": "10.77.1.255"},
            [
                "OpExecError",
                (
                    "Cannot create IP address pool for network 'net1':"
                    " IP 10.77.1.255 is already externally reserved"
                ),
            ],
        ),
        (
            {"network6": "fd00::/64", "gateway6": "fd01::1"},
            [
                "OpExecError",
                (
                    "Cannot create IP address pool for network 'net1':"
                    " fd00::/64 does not contain fd01::1"
                ),
            ],
        ),
        (
            {"add_reserved_ips": ["10.77.1.3", "10.77.1.3"]},
            [
                "OpExecError",
                (
                    "Cannot reserve IP address '10.77.1.3': IP 10.77.1.3 is already externally"
                    " reserved"
                ),
            ],
        ),
        (
            {"add_reserved_ips": ["10.78.1.3"]},
            [
                "OpExecError",
                "Cannot reserve IP address '10.78.1.3': 10.77.1.0/24 does not contain 10.78.1.3",
            ],
        ),
    ],
)
def test_a_wrong_new_network_is_refused(fields: dict[str, Any], error: list[str]) -> None:
    given_fields = {"network_name": "net1", "network": "10.77.1.0/24"} | fields
    found, _ = held().refused("OP_NETWORK_ADD", **given_fields)
    assert found == error


# ---------------------------------------------------------------- remove and rename


def test_a_network_that_nothing_uses_is_removed() -> None:
    store = held()
    store.run("OP_NETWORK_ADD", network_name="net1", network="10.77.1.0/24")
    locks = store.locks("OP_NETWORK_REMOVE", network_name="net1")
    assert locks == LockNeeds(nodegroup=WHOLE, network=LevelNeeds(exclusive=(NEW,)))
    assert store.run("OP_NETWORK_REMOVE", network_name="net1").result is None
    assert store.network("net1") is None
    assert store.refused("OP_NETWORK_REMOVE", network_name="net1")[0] == [
        "OpPrereqError",
        "Network 'net1' not found",
        "unknown_entity",
    ]


@pytest.mark.parametrize("fields", [{}, {"force": True}])
def test_a_connected_network_stays_and_the_log_names_the_groups(fields: dict[str, Any]) -> None:
    error, log = held().refused("OP_NETWORK_REMOVE", network_name="network0", **fields)
    assert error == ["OpPrereqError", "Network still connected", "wrong_state"]
    text = "Network 'network0' is connected to the following node groups: group0, group1"
    assert log == (warned(text),)


def test_a_network_with_an_interface_stays_although_no_group_has_it() -> None:
    document = made_configuration(instances=2, networks=2)
    for group in document["nodegroups"].values():
        del group["networks"][NETWORK1]
    error, log = held(document).refused("OP_NETWORK_REMOVE", network_name="network1")
    assert error == ["OpPrereqError", "Network still in use", "wrong_state"]
    text = "Network 'network1' is used by the following instances: instance1.example.com"
    assert log == (warned(text),)


def test_a_network_is_renamed_and_the_result_is_its_name() -> None:
    store = held()
    fields = {"network_name": "network0", "new_name": "lan"}
    own = LockNeeds(network=LevelNeeds(exclusive=(NETWORK0,)))
    assert store.locks("OP_NETWORK_RENAME", **fields) == own
    assert store.run("OP_NETWORK_RENAME", **fields).result == "lan"
    assert store.network("lan")["uuid"] == NETWORK0
    error, _ = store.refused("OP_NETWORK_RENAME", network_name="lan", new_name="network1")
    assert error == [
        "OpPrereqError",
        f"Desired new name 'network1' clashes with existing network (UUID: {NETWORK1})",
        "already_exists",
    ]


@pytest.mark.parametrize(
    ("op_id", "fields"),
    [
        ("OP_NETWORK_REMOVE", {}),
        ("OP_NETWORK_RENAME", {"new_name": "lan"}),
        ("OP_NETWORK_SET_PARAMS", {}),
        ("OP_NETWORK_CONNECT", {"group_name": "group0", **CONNECTION}),
    ],
)
def test_a_network_that_took_over_the_name_is_left_alone(
    op_id: str, fields: dict[str, Any]
) -> None:
    store = held(without_interfaces())
    locks = store.locks(op_id, network_name="network0", **fields)
    store.run("OP_NETWORK_RENAME", network_name="network0", new_name="old")
    store.run("OP_NETWORK_RENAME", network_name="network1", new_name="network0")
    with pytest.raises(OperationError) as raised:
        store.decide(op_id, locks, network_name="network0", **fields)
    assert raised.value.details == [
        "Network 'network0' changed since locks were acquired; retry the operation",
        "wrong_state",
    ]


# ---------------------------------------------------------------- set parameters


def change(store: HeldConfiguration, **fields: Any) -> tuple[str, ...]:
    """Change network 0; the lines for the job log."""
    outcome = store.run("OP_NETWORK_SET_PARAMS", network_name="network0", **fields)
    assert outcome.result is None
    return outcome.log


def test_a_change_takes_the_lock_of_the_network() -> None:
    locks = held().locks("OP_NETWORK_SET_PARAMS", network_name="network0", gateway="10.128.0.9")
    assert locks == LockNeeds(network=LevelNeeds(exclusive=(NETWORK0,)))


def test_another_gateway_is_reserved_and_the_old_one_released() -> None:
    document = copy.deepcopy(DOCUMENT)
    # As Ganeti reserves them: network, gateway, broadcast.
    document["networks"][NETWORK0]["ext_reservations"] = "11" + "0" * 253 + "1"
    store = held(document)
    assert change(store, gateway="10.128.0.200") == ()
    assert store.network("network0")["gateway"] == "10.128.0.200"
    assert reserved(store.network("network0")) == ["0", "200", "255"]
    assert change(store, gateway="10.128.0.200") == (warned("Gateway is already 10.128.0.200"),)


def test_a_network_without_a_gateway_gets_one() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["networks"][NETWORK0].pop("gateway")
    store = held(document)
    assert change(store, gateway="10.128.0.200") == ()
    assert reserved(store.network("network0")) == ["0", "200", "254", "255"]


def test_a_gateway_that_cannot_be_reserved_changes_nothing() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["networks"][NETWORK0]["reservations"] = "0" * 10 + "1" + "0" * 245
    for gateway, error in [
        (
            "10.128.0.10",
            [
                "OpPrereqError",
                "Gateway IP address '10.128.0.10' is already reserved",
                "wrong_state",
            ],
        ),
        ("10.128.0.255", ["AddressPoolError", "IP 10.128.0.255 is already externally reserved"]),
        ("10.9.0.1", ["AddressPoolError", "10.128.0.0/24 does not contain 10.9.0.1"]),
        # The old gateway, 10.128.0.1, is not reserved here.
        ("10.128.0.7", ["AddressPoolError", "IP 10.128.0.1 is not externally reserved"]),
    ]:
        store = held(document)
        found, _ = store.refused("OP_NETWORK_SET_PARAMS", network_name="network0", gateway=gateway)
        assert found == error
        assert store.network("network0") == document["networks"][NETWORK0]


@pytest.mark.parametrize("which", ["add_reserved_ips", "remove_reserved_ips"])
def test_gateway_and_reservations_do_not_change_at_once(which: str) -> None:
    fields: dict[str, Any] = {"gateway": "10.128.0.9", which: ["10.128.0.8"]}
    with pytest.raises(OperationError) as raised:
        held().locks("OP_NETWORK_SET_PARAMS", network_name="network0", **fields)
    assert raised.value.details == ["Cannot modify gateway and reserved ips at once", "wrong_input"]


def test_addresses_are_reserved_and_released_as_far_as_possible() -> None:
    store = held()
    assert change(store, add_reserved_ips=["10.128.0.7", "10.128.0.0", "10.9.9.9"]) == (
        warned(
            "Cannot reserve IP address 10.128.0.0: IP 10.128.0.0 is already externally reserved"
        ),
        warned("Cannot reserve IP address 10.9.9.9: 10.128.0.0/24 does not contain 10.9.9.9"),
    )
    assert reserved(store.network("network0")) == ["0", "7", "254", "255"]
    assert change(store, remove_reserved_ips=["10.128.0.1", "10.128.0.7", "10.128.0.8"]) == (
        warned("Cannot unreserve Gateway's IP"),
        warned("Cannot release IP address 10.128.0.8: IP 10.128.0.8 is not externally reserved"),
    )
    assert reserved(store.network("network0")) == ["0", "254", "255"]


def test_the_mac_prefix_changes_and_goes() -> None:
    store = held()
    assert change(store, mac_prefix="CC:00:00") == ()
    assert store.network("network0")["mac_prefix"] == "cc:00:00"
    change(store, mac_prefix="none")
    assert "mac_prefix" not in store.network("network0")
    error, _ = store.refused("OP_NETWORK_SET_PARAMS", network_name="network0", mac_prefix="x")
    assert error == ["OpPrereqError", "Invalid MAC address prefix 'x'", "wrong_input"]


def test_the_ipv6_gateway_is_in_the_ipv6_network() -> None:
    store = held()
    change(store, network6="fd00::/64", gateway6="fd00::1")
    assert store.network("network0")["network6"] == "fd00::/64"
    error, _ = store.refused("OP_NETWORK_SET_PARAMS", network_name="network0", gateway6="fd01::1")
    assert error == ["AddressPoolError", "fd00::/64 does not contain fd01::1"]
    error, _ = store.refused("OP_NETWORK_SET_PARAMS", network_name="network0", network6="fd01::/64")
    assert error == ["AddressPoolError", "fd01::/64 does not contain fd00::1"]
    change(store, network6="fd01::/64", gateway6="fd01::1")
    assert store.network("network0")["gateway6"] == "fd01::1"


def test_what_an_opcode_does_not_name_stays_as_it_was_stored() -> None:
    document = copy.deepcopy(DOCUMENT)
    network = document["networks"][NETWORK0]
    for use in ("reservations", "ext_reservations"):
        del network[use]
    network.update(network6="fd00::/64", gateway6="fd01::1")
    store = held(document)
    change(store, mac_prefix="cc:00:00")
    changed = dict(store.network("network0"))
    assert changed.pop("mac_prefix") == "cc:00:00"
    stamps = {"serial_no": network["serial_no"], "mtime": network["mtime"]}
    assert {**changed, **stamps} == network


def test_a_network_with_a_damaged_pool_is_not_changed() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["networks"][NETWORK0]["reservations"] = "01"
    error, _ = held(document).refused(
        "OP_NETWORK_SET_PARAMS", network_name="network0", add_reserved_ips=["10.128.0.7"]
    )
    assert error[0] == "AddressPoolError"
    assert "expected 256 digits" in str(error[1])


# ---------------------------------------------------------------- connect and disconnect


def disconnected() -> HeldConfiguration:
    """Group 0 has no network; its instances have no interfaces."""
    document = without_interfaces()
    document["nodegroups"][GROUP0]["networks"] = {}
    return held(document)


def test_a_network_is_connected_under_locks_of_group_instances_and_network() -> None:
    store = disconnected()
    fields: dict[str, Any] = {"group_name": "group0", "network_name": "network0", **CONNECTION}
    locks = store.locks("OP_NETWORK_CONNECT", **fields)
    assert locks == LockNeeds(
        instance=LevelNeeds(shared=INSTANCES[::2]),
        nodegroup=LevelNeeds(exclusive=(GROUP0,)),
        network=LevelNeeds(shared=(NETWORK0,)),
    )
    assert store.locks("OP_NETWORK_CONNECT", **fields, conflicts_check=False) == LockNeeds(
        nodegroup=LevelNeeds(exclusive=(GROUP0,))
    )
    outcome = store.run("OP_NETWORK_CONNECT", **fields, network_vlan=".7")
    assert (outcome.result, outcome.log) == (None, ())
    assert store.group("group0")["networks"] == {
        NETWORK0: {"mode": "bridged", "link": "br7", "vlan": ".7"}
    }
    again = store.run("OP_NETWORK_CONNECT", **fields)
    assert (again.changes, again.log) == (
        (),
        (warned("Network 'network0' is already mapped to group 'group0'"),),
    )


def test_addresses_of_the_network_in_use_stop_a_connection() -> None:
    document = made_configuration(nodes=4, instances=3)
    document["nodegroups"][GROUP0]["networks"] = {}
    [nic] = document["instances"][uuid_of("instances", 0)]["nics"]
    # Neither of these interfaces is in a network; the last has an address of another one.
    nic.pop("network")
    others: list[dict[str, Any]] = [
        {"uuid": "a", "ip": None},
        {"uuid": "b", "ip": "10.128.0.99"},
        {"uuid": "c"},
    ]
    document["instances"][uuid_of("instances", 0)]["nics"] += [
        {"mac": f"aa:00:00:00:09:0{index}", "nicparams": {}, **other}
        for index, other in enumerate(others)
    ]
    document["instances"][uuid_of("instances", 2)]["nics"][0]["ip"] = "fd00::3"
    fields: dict[str, Any] = {"group_name": "group0", "network_name": "network0", **CONNECTION}
    error, log = held(document).refused("OP_NETWORK_CONNECT", **fields)
    assert error == CONFLICT
    assert log == (
        warned(
            "IP addresses from network 'network0', which is about to connect to node group"
            " 'group0', are in use: instance0.example.com: nic0/10.128.0.10, nic2/10.128.0.99"
        ),
    )
    assert held(document).run("OP_NETWORK_CONNECT", **fields, conflicts_check=False).changes


def test_a_network_is_disconnected_when_no_instance_of_the_group_uses_it() -> None:
    store = held(without_interfaces())
    fields: dict[str, Any] = {"group_name": "group0", "network_name": "network0"}
    assert store.locks("OP_NETWORK_DISCONNECT", **fields) == LockNeeds(
        instance=LevelNeeds(shared=INSTANCES[::2]), nodegroup=LevelNeeds(exclusive=(GROUP0,))
    )
    outcome = store.run("OP_NETWORK_DISCONNECT", **fields)
    assert (outcome.result, outcome.log) == (None, ())
    assert list(store.group("group0")["networks"]) == [NETWORK1]
    again = store.run("OP_NETWORK_DISCONNECT", **fields)
    assert (again.changes, again.log) == (
        (),
        (warned("Network 'network0' is not mapped to group 'group0'"),),
    )


def test_interfaces_in_the_network_stop_its_disconnection() -> None:
    document = made_configuration(nodes=4, instances=2)
    [nic] = document["instances"][uuid_of("instances", 0)]["nics"]
    nic.pop("ip")
    error, log = held(document).refused(
        "OP_NETWORK_DISCONNECT", group_name="group0", network_name="network0"
    )
    assert error == CONFLICT
    assert log == (
        warned(
            "IP addresses from network 'network0', which is about to disconnect from node group"
            " 'group0', are in use: instance0.example.com: nic0/None"
        ),
    )


@pytest.mark.parametrize("op_id", ["OP_NETWORK_CONNECT", "OP_NETWORK_DISCONNECT"])
def test_an_unknown_network_is_named_before_an_unknown_group(op_id: str) -> None:
    fields = CONNECTION if op_id == "OP_NETWORK_CONNECT" else {}
    for network, group, text in [
        ("lan", "rack", "Network 'lan' not found"),
        ("network0", "rack", "Node group 'rack' not found"),
    ]:
        error, _ = held().refused(op_id, network_name=network, group_name=group, **fields)
        assert error == ["OpPrereqError", text, "unknown_entity"]


@pytest.mark.parametrize("op_id", ["OP_NETWORK_CONNECT", "OP_NETWORK_DISCONNECT"])
def test_instances_that_came_to_the_group_meanwhile_stop_the_change(op_id: str) -> None:
    fields = CONNECTION if op_id == "OP_NETWORK_CONNECT" else {}
    store = held()
    locks = store.locks(op_id, group_name="group0", network_name="network0", **fields)
    store.run("OP_GROUP_ASSIGN_NODES", group_name="group0", nodes=["node1"], force=True)
    with pytest.raises(OperationError, match="Instances in node group 'group0' changed"):
        store.decide(op_id, locks, group_name="group0", network_name="network0", **fields)


def test_an_instance_that_is_only_reserved_may_lack_interfaces() -> None:
    document = without_interfaces()
    del document["instances"][uuid_of("instances", 0)]["nics"]
    document["instances"][uuid_of("instances", 0)]["forthcoming"] = True
    for group in document["nodegroups"].values():
        del group["networks"][NETWORK1]
    store = held(document)
    store.run("OP_NETWORK_REMOVE", network_name="network1")
    assert store.run("OP_NETWORK_DISCONNECT", group_name="group0", network_name="network0").changes


# ---------------------------------------------------------------- properties

ADDRESSES = st.integers(0, 255).map("10.128.0.{}".format)


@given(st.lists(ADDRESSES, max_size=6))
def test_what_is_reserved_and_then_released_is_as_before(addresses: list[str]) -> None:
    store = held()
    before = store.network("network0")
    log = change(store, add_reserved_ips=addresses)
    refused = {line.split("address ")[1].split(":")[0] for line in log}
    new = [
        address
        for address in dict.fromkeys(addresses)
        if not AddressPool.of(before).is_reserved(address, Use.EXTERNAL)
    ]
    assert refused >= set(addresses) - set(new)
    if "10.128.0.1" not in new:
        assert change(store, remove_reserved_ips=new) == ()
        stamps = {"serial_no": before["serial_no"], "mtime": before["mtime"]}
        assert {**store.network("network0"), **stamps} == before


NAMES = st.sampled_from(["network0", "network1", "lan"])
GROUPS = st.sampled_from(["group0", "group1", "rack"])
STEPS = st.one_of(
    st.builds(
        lambda name: ("OP_NETWORK_ADD", {"network_name": name, "network": "10.7.0.0/28"}), NAMES
    ),
    st.builds(lambda name: ("OP_NETWORK_REMOVE", {"network_name": name}), NAMES),
    st.builds(
        lambda name, new: ("OP_NETWORK_RENAME", {"network_name": name, "new_name": new}),
        NAMES,
        NAMES,
    ),
    st.builds(
        lambda name, group: (
            "OP_NETWORK_CONNECT",
            {"network_name": name, "group_name": group, **CONNECTION},
        ),
        NAMES,
        GROUPS,
    ),
    st.builds(
        lambda name, group: (
            "OP_NETWORK_DISCONNECT",
            {"network_name": name, "group_name": group},
        ),
        NAMES,
        GROUPS,
    ),
    st.builds(lambda group: ("OP_GROUP_ADD", {"group_name": group}), GROUPS),
    st.builds(lambda group: ("OP_GROUP_REMOVE", {"group_name": group}), GROUPS),
    st.builds(
        lambda group, nodes: (
            "OP_GROUP_ASSIGN_NODES",
            {"group_name": group, "nodes": nodes, "force": True},
        ),
        GROUPS,
        st.lists(st.sampled_from(["node0", "node1"]), min_size=1),
    ),
)


@given(st.lists(STEPS, max_size=12))
def test_whatever_succeeds_keeps_the_configuration_intact(
    steps: list[tuple[str, dict[str, Any]]],
) -> None:
    store = held(made_configuration(nodes=2, instances=2, networks=2))
    for number, (op_id, fields) in enumerate(steps):
        try:
            # The index refuses changes that do not fit: that is no `OperationError`.
            store.run(op_id, f"{number:08x}-0000-4000-8000-00000000ffff", **fields)
        except OperationError as error:
            refused = error.name
            assert refused in ("OpPrereqError", "OpExecError")
    assert store.problems() == []
