"""Address pools of networks, against plain sets of addresses."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.storage import errors
from ganger.storage.ganeti.address_pools import AddressPool, Ipv6Pool, Use, with_new_pool

RECORDED = Path(__file__).parents[3] / "compatibility" / "data" / "config.data"


TOO_BIG = (
    "A big network with 131072 host(s) is currently not supported. "
    "please specify at most a /16 network"
)


def small(**more: Any) -> dict[str, Any]:
    return {"name": "net", "network": "10.0.0.0/29", **more}


def test_the_pool_of_a_recorded_network_is_understood() -> None:
    (network,) = json.loads(RECORDED.read_text())["networks"].values()
    pool = AddressPool.of(network)
    assert [address for address in range(256) if pool.is_reserved(f"10.77.1.{address}")] == [
        1,
        2,
        3,
        4,
    ]
    assert pool.external_reservations == ["10.77.1.0", "10.77.1.254", "10.77.1.255"]
    assert (pool.reserved_count, pool.free_count) == (7, 249)
    assert pool.map == "XXXXX" + "." * 249 + "XX"
    assert pool.first_free() == "10.77.1.5"
    assert pool.stored_in(network) == network


def test_a_new_pool_reserves_the_networks_own_addresses() -> None:
    network = with_new_pool(small(gateway="10.0.0.6"))
    assert network["reservations"] == "00000000"
    assert network["ext_reservations"] == "10000011"
    assert with_new_pool(small())["ext_reservations"] == "10000001"


def test_a_new_pool_is_like_the_recorded_one() -> None:
    (recorded,) = json.loads(RECORDED.read_text())["networks"].values()
    bare = {key: value for key, value in recorded.items() if "reservations" not in key}
    assert with_new_pool(bare)["ext_reservations"] == recorded["ext_reservations"]


def test_a_network_without_strings_has_nothing_reserved() -> None:
    pool = AddressPool.of(small())
    assert pool.map == "........"
    assert pool.first_free() == "10.0.0.0"


def test_digits_behind_the_prefix_count_as_zero() -> None:
    assert AddressPool.of(small(network="10.0.0.5/29")).first_free() == "10.0.0.0"


@pytest.mark.parametrize(
    ("gateway", "said"),
    [
        ("10.0.1.1", "10.0.0.0/29 does not contain 10.0.1.1"),
        ("10.0.0.7", "IP 10.0.0.7 is already externally reserved"),
        ("fe80::1", "'fe80::1' is not an IPv4 address"),
    ],
)
def test_a_gateway_must_be_an_address_for_hosts(gateway: str, said: str) -> None:
    with pytest.raises(errors.AddressPoolError, match=said):
        with_new_pool(small(gateway=gateway))


def test_an_ipv6_gateway_must_be_in_the_network() -> None:
    right = small(network6="fd00::/64", gateway6="fd00::1")
    assert with_new_pool(right)["gateway6"] == "fd00::1"
    with pytest.raises(errors.AddressPoolError, match="fd00::/64 does not contain fd01::1"):
        with_new_pool({**right, "gateway6": "fd01::1"})


@pytest.mark.parametrize(
    ("subnet", "said"),
    [
        ("10.0.0.0/15", TOO_BIG),
        (
            "10.0.0.0/31",
            "A network with only 2 host(s) is too small, please specify at least a /30 network",
        ),
        ("10.0.0.0/99", "'10.0.0.0/99' is not an IPv4 network"),
        ("fd00::/64", "'fd00::/64' is not an IPv4 network"),
        (None, "'None' is not an IPv4 network"),
    ],
)
def test_networks_of_other_sizes_have_no_pool(subnet: str | None, said: str) -> None:
    with pytest.raises(errors.AddressPoolError) as refused:
        AddressPool.of(small(network=subnet))
    assert refused.value.text == said


@pytest.mark.parametrize("prefix", [16, 30])
def test_the_largest_and_the_smallest_network_have_a_pool(prefix: int) -> None:
    pool = AddressPool.of(with_new_pool(small(network=f"10.0.0.0/{prefix}")))
    assert pool.reserved_count == 2
    assert pool.free_count == 2 ** (32 - prefix) - 2


@pytest.mark.parametrize("digits", ["0000000", "000000000", "0000000x", "0 000000", 7])
def test_a_string_that_is_no_pool_is_refused(digits: object) -> None:
    said = "network 'net': ext_reservations: expected 8 digits that are 0 or 1"
    with pytest.raises(errors.AddressPoolError, match=said):
        AddressPool.of(small(ext_reservations=digits))


@pytest.mark.parametrize(
    ("use", "reserved", "free"),
    [
        (Use.INSTANCE, "already used by an instance", "not used by an instance"),
        (Use.EXTERNAL, "already externally reserved", "not externally reserved"),
    ],
)
def test_a_reservation_is_made_once_and_ended_once(use: Use, reserved: str, free: str) -> None:
    pool = AddressPool.of(small())
    with pytest.raises(errors.AddressPoolError, match=f"IP 10.0.0.3 is {free}"):
        pool.release("10.0.0.3", use)
    changed = pool.reserve("10.0.0.3", use)
    assert changed.is_reserved("10.0.0.3", use)
    assert not pool.is_reserved("10.0.0.3", use)
    with pytest.raises(errors.AddressPoolError, match=f"IP 10.0.0.3 is {reserved}"):
        changed.reserve("10.0.0.3", use)
    assert changed.release("10.0.0.3", use) == pool


def test_the_first_free_address_is_in_no_way_taken() -> None:
    pool = AddressPool.of(small(reservations="11000000", ext_reservations="00100001"))
    assert pool.first_free() == "10.0.0.3"
    assert pool.first_free({"10.0.0.3", "10.0.0.4"}) == "10.0.0.5"
    assert pool.first_free([f"10.0.0.{number}" for number in range(8)]) is None
    assert AddressPool.of(small(reservations="11111111")).first_free() is None


@pytest.mark.parametrize("address", ["10.0.0.8", "9.255.255.255"])
def test_an_address_outside_is_refused(address: str) -> None:
    pool = AddressPool.of(small())
    assert not pool.contains(address)
    for change in (pool.reserve, pool.release, pool.is_reserved):
        with pytest.raises(
            errors.AddressPoolError, match=f"10.0.0.0/29 does not contain {address}"
        ):
            change(address)


STEPS = st.lists(st.tuples(st.booleans(), st.sampled_from(Use), st.integers(0, 7)), max_size=40)


@given(STEPS)
def test_the_pool_holds_what_two_sets_hold(steps: list[tuple[bool, Use, int]]) -> None:
    pool = AddressPool.of(small())
    held: dict[Use, set[int]] = {use: set() for use in Use}
    for is_reserving, use, number in steps:
        change = pool.reserve if is_reserving else pool.release
        if (number in held[use]) == is_reserving:
            with pytest.raises(errors.AddressPoolError):
                change(f"10.0.0.{number}", use)
        else:
            pool = change(f"10.0.0.{number}", use)
            held[use] ^= {number}
    both = held[Use.INSTANCE] | held[Use.EXTERNAL]
    assert pool.map == "".join("X" if number in both else "." for number in range(8))
    assert (pool.reserved_count, pool.free_count) == (len(both), 8 - len(both))
    free = [number for number in range(8) if number not in both]
    assert pool.first_free() == (f"10.0.0.{free[0]}" if free else None)
    assert AddressPool.of(pool.stored_in(small())) == pool


def small6(**more: Any) -> dict[str, Any]:
    return {"name": "net", "network": "10.0.0.0/29", "network6": "fd00::/125", **more}


def pool6(*addresses: str, **more: Any) -> Ipv6Pool:
    pool = Ipv6Pool.of(small6(**more), addresses)
    assert pool is not None
    return pool


def test_a_network_without_ipv6_has_no_ipv6_pool() -> None:
    assert Ipv6Pool.of(small(), ["fd00::1"]) is None


def test_an_ipv6_pool_comes_from_the_addresses_of_the_interfaces() -> None:
    pool = pool6("fd00::1", "fd00:0::3", "10.0.0.2", "fd01::5", "dhcp", gateway6="fd00::2")
    taken = [number for number in range(8) if pool.is_reserved(f"fd00::{number}")]
    # The lowest address belongs to the routers, and ::2 is the gateway.
    assert taken == [0, 1, 2, 3]
    assert pool.first_free() == "fd00::4"
    assert pool.first_free({"fd00::4"}) == "fd00::5"


def test_ipv6_addresses_are_reserved_and_released() -> None:
    pool = pool6()
    changed = pool.reserve("fd00::1")
    assert changed.first_free() == "fd00::2"
    assert changed.release("fd00:0:0::1") == pool
    with pytest.raises(errors.AddressPoolError, match="IP fd00::1 is already used by an instance"):
        changed.reserve("fd00::1")
    with pytest.raises(errors.AddressPoolError, match="IP fd00::1 is not used by an instance"):
        pool.release("fd00::1")
    with pytest.raises(errors.AddressPoolError, match="fd00::/125 does not contain fd00::8"):
        pool.reserve("fd00::8")
    with pytest.raises(errors.AddressPoolError, match="'fd' is not an IPv6 address"):
        pool.reserve("fd")


def test_a_full_ipv6_network_has_no_free_address() -> None:
    assert pool6(*(f"fd00::{number}" for number in range(1, 8))).first_free() is None


def test_the_size_of_an_ipv6_network_costs_nothing() -> None:
    pool = pool6("fd00::1", network6="fd00::/16")
    assert pool.first_free() == "fd00::2"


def test_both_addresses_of_a_point_to_point_network_are_free() -> None:
    assert pool6(network6="fd00::/127").first_free() == "fd00::"


@pytest.mark.parametrize("text", ["fd00::/129", "10.0.0.0/24", "here"])
def test_what_is_no_ipv6_network_is_refused(text: str) -> None:
    with pytest.raises(errors.AddressPoolError, match=f"'{text}' is not an IPv6 network"):
        Ipv6Pool.of(small6(network6=text), ())


def test_addresses_are_compared_as_numbers() -> None:
    full = ipaddress.IPv6Address("fd00::1").exploded
    assert pool6(full).is_reserved("fd00::1")
