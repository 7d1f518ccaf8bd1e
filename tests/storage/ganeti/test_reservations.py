"""Temporary reservations: who has what, and the bytes of tempres.data."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clusters import made_configuration

from ganger.storage import errors
from ganger.storage.cluster.configuration import Configuration
from ganger.storage.cluster.integrity import Index
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.ganeti.address_pools import with_new_pool
from ganger.storage.ganeti.object_rules import MAC_ADDRESS, MINOR, SECRET, VOLUME, on_node
from ganger.storage.ganeti.reservations import (
    IpAction,
    IpChange,
    Minor,
    Reservations,
    ReservationsFile,
    decode,
    drbd_minors,
    encode,
    with_address,
)
from ganger.storage.locks.locks import Owner

JOB, OTHER = Owner(7, "/livelocks/job_7", 70), Owner(12, "/livelocks/job_12", 120)
NAMED = Owner("wconfd-ThreadId 5", "/livelocks/wconfd", 5)

NET: dict[str, Any] = {
    "uuid": "net-1",
    **with_new_pool({"name": "n", "network": "10.0.0.0/29", "gateway": "10.0.0.1"}),
}


def counting() -> Callable[[int], bytes]:
    """Random bytes that count: 0, 1, 2 ..."""
    numbers = itertools.count()
    return lambda count: next(numbers).to_bytes(count, "big")


def refused(said: str) -> Any:
    return pytest.raises(errors.ReservationError, match=f"^{said}$")


# ---------------------------------------------------------------- the file

FULL = (
    b'{"dRBD":[["node-1",[[0,"disk-a"],[2,"disk-b"]]],["node-2",[[1,"disk-a"]]]],'
    b'"mACs":[[["wconfd-ThreadId 5","/livelocks/wconfd",5],["aa:00:00:00:00:01"]],'
    b'[[7,"/livelocks/job_7",70],["aa:00:00:00:00:02","aa:00:00:00:00:03"]]],'
    b'"dRBDSecrets":[[[7,"/livelocks/job_7",70],["00ff"]]],'
    b'"lVs":[[[7,"/livelocks/job_7",70],["vg/a","vg/b"]]],'
    b'"iPv4s":[[[12,"/livelocks/job_12",120],[["reserve","10.0.0.9","net-1"],'
    b'["reserve","10.0.0.10","net-1"],["release","10.0.0.3","net-1"]]]]}'
)


def test_no_reservations_are_written_as_by_ganeti() -> None:
    empty = b'{"dRBD":[],"mACs":[],"dRBDSecrets":[],"lVs":[],"iPv4s":[]}'
    assert encode(Reservations().file()) == empty
    with_blanks = b'{"dRBD": [], "mACs": [], "dRBDSecrets": [], "lVs": [], "iPv4s": []}'
    assert decode(with_blanks) == ReservationsFile()


def test_the_file_comes_back_to_the_byte() -> None:
    assert encode(Reservations(decode(FULL)).file()) == FULL


def test_unknown_keys_are_kept() -> None:
    data = FULL[:-1] + b',"later":{"x":[1]},"extra":2,"a":null}'
    assert encode(Reservations(decode(data)).file()) == data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"mACs":[[[7,"x"],[]]]}',
        b'{"iPv4s":[[[7,"x",1],[["reserve","10.0.0.300","n"]]]]}',
        b'{"iPv4s":[[[7,"x",1],[["take","10.0.0.3","n"]]]]}',
        b'{"mACs":"\xff"}',
        b'{"dRBD":' + b"[" * 100_000,
    ],
)
def test_malformed_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(errors.StorageError, match=r"^tempres\.data is not readable: "):
        decode(data)


@pytest.mark.parametrize(
    "data",
    [
        b'{"mACs":[[[7,"x",1],["m"]],[[8,"x",1],["m"]]]}',
        b'{"dRBD":[["n",[[0,"a"],[0,"b"]]]]}',
    ],
)
def test_a_file_that_reserves_something_twice_is_refused(data: bytes) -> None:
    with pytest.raises(errors.StorageError, match=r"Duplicate reservation for resource '[m0]'"):
        Reservations(decode(data))


# ---------------------------------------------------------------- MACs, secrets, volumes


def test_a_mac_has_one_owner() -> None:
    held = Reservations()
    held.reserve_mac(JOB, "aa:00:00:00:00:01", ())
    with refused("Duplicate reservation for resource 'aa:00:00:00:00:01'"):
        held.reserve_mac(OTHER, "AA:00:00:00:00:01", ())
    with refused("Duplicate reservation for resource 'aa:00:00:00:00:01'"):
        held.reserve_mac(JOB, "aa:00:00:00:00:01", ())
    with refused("MAC already in use"):
        held.reserve_mac(OTHER, "AA:00:00:00:00:02", {"aa:00:00:00:00:02"})
    assert held.file().macs == ((JOB, ("aa:00:00:00:00:01",)),)


def test_a_generated_mac_is_neither_used_nor_reserved() -> None:
    held = Reservations()
    held.reserve_mac(OTHER, "bb:00:00:00:00:01", ())
    used = {"bb:00:00:00:00:00"}
    made = held.generate_mac(JOB, "BB:00:00", used, random_bytes=counting())
    assert made == "bb:00:00:00:00:02"
    with refused("Duplicate reservation for resource '.*:02'"):
        held.reserve_mac(OTHER, made, ())


def test_generating_ends_after_64_tries() -> None:
    asked = []

    def constant(count: int) -> bytes:
        asked.append(count)
        return bytes(count)

    held = Reservations()
    with refused("Not able generate new resource"):
        held.generate_mac(JOB, "bb:00:00", {"bb:00:00:00:00:00"}, random_bytes=constant)
    assert asked == [3] * 64
    assert held.file() == ReservationsFile()


def test_a_secret_has_40_digits_and_is_new() -> None:
    held = Reservations()
    make = counting()
    first = held.generate_secret(JOB, {"0" * 40}, random_bytes=make)
    assert first == "0" * 39 + "1"
    assert held.generate_secret(OTHER, (), random_bytes=make) == "0" * 39 + "2"
    assert held.file().secrets == ((JOB, (first,)), (OTHER, ("0" * 39 + "2",)))


def test_a_volume_has_one_owner() -> None:
    held = Reservations()
    held.reserve_volume(JOB, "vg/a", {"vg/b"})
    with refused("Duplicate reservation for resource 'vg/a'"):
        held.reserve_volume(OTHER, "vg/a", ())
    with refused("Logical volume already in use"):
        held.reserve_volume(OTHER, "vg/b", {"vg/b"})


@pytest.mark.parametrize("volume", ["", "vg", "vg/", "/a"])
def test_a_volume_is_named_with_its_group(volume: str) -> None:
    with refused(f"Logical volume '{volume}': expected group/name"):
        Reservations().reserve_volume(JOB, volume, ())


# ---------------------------------------------------------------- addresses


def test_addresses_are_generated_from_the_lowest_and_not_twice() -> None:
    held = Reservations()
    held.reserve_ip(OTHER, NET, "10.0.0.3", is_external_checked=True)
    assert [held.generate_ip(JOB, NET) for _ in range(4)] == [
        "10.0.0.2",
        "10.0.0.4",
        "10.0.0.5",
        "10.0.0.6",
    ]
    with refused("Cannot generate IP. Network is full"):
        held.generate_ip(JOB, NET)
    assert held.drop(OTHER)
    assert held.generate_ip(JOB, NET) == "10.0.0.3"


def test_an_address_that_somebody_will_release_is_not_generated() -> None:
    network = with_address(NET, "10.0.0.2", is_reserved=True)
    held = Reservations()
    held.release_ip(OTHER, network, "10.0.0.2")
    assert held.generate_ip(JOB, NET) == "10.0.0.3"


def test_an_address_in_use_is_not_reserved() -> None:
    network = with_address(NET, "10.0.0.2", is_reserved=True)
    held = Reservations()
    with refused("IP address already in use"):
        held.reserve_ip(JOB, network, "10.0.0.2", is_external_checked=False)
    with refused("IP is externally reserved"):
        held.reserve_ip(JOB, network, "10.0.0.1", is_external_checked=True)
    held.reserve_ip(JOB, network, "10.0.0.1", is_external_checked=False)
    with refused("Duplicate reservation for resource '10.0.0.1'"):
        held.reserve_ip(OTHER, network, "10.0.0.1", is_external_checked=False)
    with refused("10.0.0.0/29 does not contain 10.0.0.8"):
        held.reserve_ip(JOB, network, "10.0.0.8", is_external_checked=False)
    with refused("'here' is not an IPv4 address"):
        held.release_ip(JOB, network, "here")


def test_a_commit_changes_the_networks_and_keeps_the_reservations() -> None:
    before = with_address(NET, "10.0.0.2", is_reserved=True)
    held = Reservations()
    held.release_ip(JOB, before, "10.0.0.2")
    held.reserve_ip(JOB, before, "10.0.0.3", is_external_checked=True)
    held.reserve_ip(OTHER, before, "10.0.0.4", is_external_checked=True)
    after = held.committed_ips(JOB, {"net-1": before, "net-2": NET})
    assert after == {"net-1": with_address(NET, "10.0.0.3", is_reserved=True)}
    assert held.ip_changes(JOB) == [
        IpChange(IpAction.RESERVE, "10.0.0.3", "net-1"),
        IpChange(IpAction.RELEASE, "10.0.0.2", "net-1"),
    ]
    assert held.committed_ips(NAMED, {}) == {}


def test_an_address_that_is_released_and_taken_again_stays_reserved() -> None:
    before = with_address(NET, "10.0.0.2", is_reserved=True)
    held = Reservations()
    held.reserve_ip(JOB, NET, "10.0.0.2", is_external_checked=True)
    held.release_ip(JOB, before, "10.0.0.2")
    assert held.committed_ips(JOB, {"net-1": before}) == {"net-1": before}


def test_a_commit_that_cannot_be_applied_says_why() -> None:
    held = Reservations()
    held.generate_ip(JOB, NET)
    with refused("Network 'net-1' not found"):
        held.committed_ips(JOB, {})
    taken = with_address(NET, "10.0.0.2", is_reserved=True)
    with refused("IP 10.0.0.2 is already used by an instance"):
        held.committed_ips(JOB, {"net-1": taken})
    with refused("IP 10.0.0.2 is not used by an instance"):
        with_address(NET, "10.0.0.2", is_reserved=False)


# ---------------------------------------------------------------- minors


def test_each_node_gives_its_smallest_free_minor() -> None:
    held = Reservations()
    used = {"node-1": {0, 2}, "node-2": set[int]()}
    assert held.allocate_minors("disk-a", ["node-2", "node-1"], used.__getitem__) == [0, 1]
    assert held.allocate_minors("disk-b", ["node-1", "node-2"], used.__getitem__) == [3, 1]
    assert held.release_minors("disk-a")
    assert not held.release_minors("disk-a")
    assert held.allocate_minors("disk-c", ["node-1"], used.__getitem__) == [1]


def test_a_node_gives_one_minor_to_a_disk() -> None:
    held = Reservations()
    with refused("Duplicate nodes detected in list 'n, m, n'"):
        held.allocate_minors("disk-a", ["n", "m", "n"], lambda _node: ())
    assert held.file() == ReservationsFile()


def test_minors_stay_when_their_owner_drops_all() -> None:
    held = Reservations(decode(FULL))
    assert held.owners() == {JOB, OTHER, NAMED}
    for owner in (JOB, OTHER, NAMED):
        assert held.drop(owner)
        assert not held.drop(owner)
    assert held.file() == ReservationsFile(minors=decode(FULL).minors)


def test_the_map_of_minors_has_all_nodes() -> None:
    held = Reservations()
    held.allocate_minors("disk-a", ["node-1"], lambda _node: ())
    used = [(Minor("node-2", 0), "disk-b"), (Minor("node-1", 0), "disk-a")]
    assert held.minors_map(["node-1", "node-2", "node-3"], used) == {
        "node-1": {0: "disk-a"},
        "node-2": {0: "disk-b"},
        "node-3": {},
    }
    with refused(r"Duplicate DRBD ports detected: node-1: 0 \(disk-a, disk-b\)"):
        held.minors_map([], [(Minor("node-1", 0), "disk-b")])


def test_disks_are_read_with_their_children() -> None:
    data = {"dev_type": "plain", "logical_id": ["vg", "data"], "children": []}
    drbd = {"dev_type": "drbd", "logical_id": ["a", "b", 11000, 3, 4, "5ec"], "children": [data]}
    assert list(drbd_minors(drbd)) == [Minor("a", 3), Minor("b", 4)]
    nested = {"dev_type": "file", "logical_id": ["loop", "/x"], "children": [drbd]}
    assert list(drbd_minors(nested)) == [Minor("a", 3), Minor("b", 4)]
    assert list(drbd_minors({"dev_type": "drbd", "logical_id": ["a"]})) == []


# ---------------------------------------------------------------- beside a configuration


def test_what_the_configuration_uses_is_neither_reserved_nor_generated() -> None:
    configuration = Configuration.load(made_configuration(nodes=2, instances=4))
    index = Index(configuration)
    disks = [disk for _, disk in configuration.objects(ObjectKind.DISK)]
    drbd = next(disk for disk in disks if disk["dev_type"] == "drbd")
    instance = next(one for _, one in configuration.objects(ObjectKind.INSTANCE))
    held = Reservations()
    with refused("MAC already in use"):
        held.reserve_mac(JOB, instance["nics"][0]["mac"], index.claimed(MAC_ADDRESS))
    volume = "/".join(drbd["children"][0]["logical_id"])
    with refused("Logical volume already in use"):
        held.reserve_volume(JOB, volume, index.provided(VOLUME))
    secret = drbd["logical_id"][5]
    generated = held.generate_secret(JOB, index.provided(SECRET), random_bytes=counting())
    assert secret in index.provided(SECRET)
    assert generated not in index.provided(SECRET)
    node = drbd["logical_id"][0]
    (number,) = held.allocate_minors(
        "new", [node], lambda uuid: index.claimed(MINOR, on_node(uuid))
    )
    used = {minor.number for disk in disks for minor in drbd_minors(disk) if minor.node == node}
    assert used
    assert number == min(set(range(len(used) + 1)) - used)


# ---------------------------------------------------------------- many steps

OWNERS = st.sampled_from([JOB, OTHER, NAMED])
STEPS = st.one_of(
    st.tuples(st.just("mac"), OWNERS, st.sampled_from("abc")),
    st.tuples(st.just("volume"), OWNERS, st.sampled_from(["vg/a", "vg/b"])),
    st.tuples(st.just("drop"), OWNERS, st.none()),
)


@given(st.lists(STEPS, max_size=40))
def test_each_resource_has_one_owner_over_many_steps(steps: list[tuple[str, Owner, str]]) -> None:
    held = Reservations()
    model: dict[tuple[str, str], Owner] = {}
    for kind, owner, value in steps:
        if kind == "drop":
            assert held.drop(owner) == (owner in model.values())
            model = {key: other for key, other in model.items() if other != owner}
            continue
        change = held.reserve_mac if kind == "mac" else held.reserve_volume
        if (kind, value) in model:
            with refused(f"Duplicate reservation for resource '{value}'"):
                change(owner, value, ())
        else:
            change(owner, value, ())
            model[kind, value] = owner
    assert held.owners() == set(model.values())
    written = held.file()
    for kind, entries in (("mac", written.macs), ("volume", written.volumes)):
        listed = {(kind, value): owner for owner, values in entries for value in values}
        assert listed == {key: owner for key, owner in model.items() if key[0] == kind}
        assert [owner for owner, _ in entries] == sorted(owner for owner, _ in entries)
    assert Reservations(decode(encode(written))).file() == written
