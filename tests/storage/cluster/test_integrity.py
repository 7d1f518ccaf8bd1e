"""What does not fit: every rule once, over the whole and as a change; and problems that are old."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.clusters import made_configuration, uuid_of

from ganger.storage import config_files, errors
from ganger.storage.cluster.configuration import Change, Configuration
from ganger.storage.cluster.integrity import Index, problems
from ganger.storage.cluster.objects import CONTAINERS, Kind
from ganger.storage.cluster.tags import TAGS_MAX

RECORDED = Path(__file__).parents[2] / "compatibility/data/config.data"
NOW = 1_800_000_000.5
MASTER = uuid_of("cluster", 0)
NODE, NODE1, NODE2 = (uuid_of("nodes", number) for number in range(3))
INSTANCE, INSTANCE1 = (uuid_of("instances", number) for number in range(2))
NIC, NIC1 = (uuid_of("nics", number) for number in range(2))
DISK, DISK1, DISK2 = (uuid_of("disks", number) for number in range(3))
PART = uuid_of("parts", 0)
GROUP, GROUP1, NETWORK = uuid_of("nodegroups", 0), uuid_of("nodegroups", 1), uuid_of("networks", 0)

Edit = Callable[[dict[str, Any]], None]
"""Changes a document."""


def setting(path: str, value: Any) -> Edit:
    """Sets the value at this path: keys with slashes between them."""

    def edit(document: dict[str, Any]) -> None:
        *steps, last = (int(step) if step.isdecimal() else step for step in path.split("/"))
        part: Any = document
        for step in steps:
            part = part[step]
        part[last] = value

    return edit


def removing(path: str) -> Edit:
    def edit(document: dict[str, Any]) -> None:
        container, uuid = path.split("/")
        del document[container][uuid]

    return edit


def changes_between(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """The changes that lead from one document to the other."""
    found = [
        Change(kind, uuid, copy.deepcopy(after[kind].get(uuid)))
        for kind in CONTAINERS
        for uuid in before[kind] | after[kind]
        if before[kind].get(uuid) != after[kind].get(uuid)
    ]
    if before["cluster"] != after["cluster"]:
        found.append(Change(Kind.CLUSTER, MASTER, copy.deepcopy(after["cluster"])))
    return found


IN_USE = "is in use by"


def disputed(what: str, one: str, other: str) -> list[str]:
    """The problems of two places that claim the same."""
    return [f"{one}: {what} {IN_USE} {other}", f"{other}: {what} {IN_USE} {one}"]


AT_NODE, AT_NODE1 = f"nodes/{NODE}", f"nodes/{NODE1}"
AT_GROUP, AT_GROUP1 = f"nodegroups/{GROUP}", f"nodegroups/{GROUP1}"
AT_INSTANCE, AT_INSTANCE1 = f"instances/{INSTANCE}", f"instances/{INSTANCE1}"
AT_NIC, AT_NIC1 = f"{AT_INSTANCE}.nics[{NIC}]", f"{AT_INSTANCE1}.nics[{NIC1}]"
AT_DISK, AT_DISK1 = f"disks/{DISK}", f"disks/{DISK1}"
FEW = "cluster.candidate_pool_size: expected 4 master candidates, got 3; more nodes could be one"
BEYOND = "is above cluster.highest_used_port"

RULES: list[tuple[str, Edit, list[str]]] = [
    (
        "two nodes of one name",
        setting(f"{AT_NODE1}/name", "node0.example.com"),
        disputed("name of a node node0.example.com", f"{AT_NODE}.name", f"{AT_NODE1}.name"),
    ),
    (
        "two groups of one name",
        setting(f"{AT_GROUP1}/name", "group0"),
        disputed("name of a node group group0", f"{AT_GROUP}.name", f"{AT_GROUP1}.name"),
    ),
    (
        "two instances of one name",
        setting(f"{AT_INSTANCE1}/name", "instance0.example.com"),
        disputed(
            "name of an instance instance0.example.com",
            f"{AT_INSTANCE}.name",
            f"{AT_INSTANCE1}.name",
        ),
    ),
    (
        "a node with the address of another one",
        setting(f"{AT_NODE1}/secondary_ip", "10.0.0.1"),
        disputed("IP address 10.0.0.1", f"{AT_NODE}.primary_ip", f"{AT_NODE1}.secondary_ip"),
    ),
    (
        "the cluster with the address of a node",
        setting("cluster/master_ip", "10.0.0.1"),
        disputed("IP address 10.0.0.1", "cluster.master_ip", f"{AT_NODE}.primary_ip"),
    ),
    (
        "two interfaces with one MAC, in other letters",
        setting(f"{AT_INSTANCE1}/nics/0/mac", "AA:00:00:00:00:00"),
        disputed("MAC address aa:00:00:00:00:00", f"{AT_NIC}.mac", f"{AT_NIC1}.mac"),
    ),
    (
        "one address twice in a network",
        setting(f"{AT_INSTANCE1}/nics/0/ip", "10.128.0.10"),
        disputed(f"IP address 10.128.0.10 in network {NETWORK}", f"{AT_NIC}.ip", f"{AT_NIC1}.ip"),
    ),
    (
        "an instance with the port of a disk",
        setting(f"{AT_INSTANCE}/network_port", 11_001),
        disputed("port 11001", f"{AT_DISK}.logical_id[2]", f"{AT_INSTANCE}.network_port"),
    ),
    (
        "a used port in the pool of free ones",
        setting("cluster/tcpudp_port_pool", [11_000]),
        disputed("port 11000", "cluster.tcpudp_port_pool[11000]", f"{AT_INSTANCE}.network_port"),
    ),
    (
        "one free port twice",
        setting("cluster/tcpudp_port_pool", [10_999, 10_999]),
        ["cluster.tcpudp_port_pool[10999]: port 10999 is twice here"],
    ),
    (
        "a port above the highest one",
        setting(f"{AT_INSTANCE}/network_port", 12_000),
        [f"{AT_INSTANCE}.network_port: port 12000 {BEYOND} (11020)"],
    ),
    (
        "a highest port below those in use",
        setting("cluster/highest_used_port", 11_016),
        [
            f"disks/{uuid_of('disks', 8)}.logical_id[2]: port 11017 {BEYOND} (11016)",
            f"instances/{uuid_of('instances', 9)}.network_port: port 11018 {BEYOND} (11016)",
        ],
    ),
    (
        "one minor number twice on a node",
        # Disk 0 has the minor number 0 on node 0.
        setting(f"disks/{DISK2}/logical_id", [NODE, NODE2, 11_005, 0, 2, "secret"]),
        disputed(
            f"DRBD minor 0 on node {NODE}",
            f"{AT_DISK}.logical_id[3]",
            f"disks/{DISK2}.logical_id[3]",
        ),
    ),
    (
        "one part twice in a disk",
        setting(f"{AT_DISK}/children/1/uuid", PART),
        [f"{AT_DISK}.children[{PART}].uuid: UUID {PART} is twice here"],
    ),
    (
        "a disk of two instances",
        setting(f"{AT_INSTANCE1}/disks", [DISK]),
        disputed(
            f"attached disk {DISK}",
            f"{AT_INSTANCE}.disks[{DISK}]",
            f"{AT_INSTANCE1}.disks[{DISK}]",
        ),
    ),
    (
        "a node in no group",
        setting(f"{AT_NODE}/group", "gone"),
        [f"{AT_NODE}.group: there is no node group gone"],
    ),
    (
        "a group that is needed",
        removing(AT_GROUP1),
        [
            f"{AT_NODE1}.group: there is no node group {GROUP1}",
            f"nodes/{uuid_of('nodes', 3)}.group: there is no node group {GROUP1}",
        ],
    ),
    (
        "an instance on no node",
        setting(f"{AT_INSTANCE}/primary_node", "gone"),
        [f"{AT_INSTANCE}.primary_node: there is no node gone"],
    ),
    (
        "a disk that is needed",
        removing(AT_DISK),
        [f"{AT_INSTANCE}.disks[{DISK}]: there is no disk {DISK}"],
    ),
    (
        "a disk on no node",
        setting(f"{AT_DISK1}/nodes", ["gone"]),
        [f"{AT_DISK1}.nodes[gone]: there is no node gone"],
    ),
    (
        "a part of a disk on no node",
        setting(f"{AT_DISK}/children/0/nodes", ["gone"]),
        [f"{AT_DISK}.children[{PART}].nodes[gone]: there is no node gone"],
    ),
    (
        "a DRBD disk with an unknown peer",
        setting(f"{AT_DISK}/logical_id", [NODE, "gone", 11_001, 0, 0, "secret"]),
        [f"{AT_DISK}.logical_id[1]: there is no node gone"],
    ),
    (
        "a DRBD disk without a secret",
        setting(f"{AT_DISK}/logical_id", [NODE, NODE1, 11_001, 0, 0]),
        [f"{AT_DISK}.logical_id: expected two nodes, a port, two minor numbers and a secret"],
    ),
    (
        "an interface in no network",
        setting(f"{AT_INSTANCE}/nics/0/network", "gone"),
        [f"{AT_NIC}.network: there is no network gone"],
    ),
    (
        "a group in an unknown network",
        setting(f"{AT_GROUP}/networks", {"gone": {}}),
        [f"{AT_GROUP}.networks[gone]: there is no network gone"],
    ),
    (
        "no such master",
        setting("cluster/master_node", "gone"),
        [
            "cluster.master_node: there is no master candidate gone",
            "cluster.master_node: there is no node gone",
        ],
    ),
    (
        "a master that is no candidate",
        setting(f"{AT_NODE}/master_candidate", value=False),
        [FEW, f"cluster.master_node: there is no master candidate {NODE}"],
    ),
    (
        "too few candidates",
        setting(f"{AT_NODE1}/master_candidate", value=False),
        [FEW],
    ),
    (
        "a node in two states",
        setting(f"{AT_NODE1}/offline", value=True),
        [f"{AT_NODE1}.offline: a node cannot be master_candidate and offline at one time"],
    ),
    (
        "a key that is not the UUID",
        setting(f"{AT_GROUP}/uuid", "other"),
        [f"{AT_GROUP}.uuid: expected its key {GROUP}, got 'other'"],
    ),
    (
        "one UUID of two interfaces",
        setting(f"{AT_INSTANCE1}/nics/0/uuid", NIC),
        disputed(f"UUID {NIC}", f"{AT_NIC}.uuid", f"{AT_INSTANCE1}.nics[{NIC}].uuid"),
    ),
    (
        "a hypervisor that is not enabled",
        setting(f"{AT_INSTANCE}/hypervisor", "lxc"),
        [f"{AT_INSTANCE}.hypervisor: there is no enabled hypervisor lxc"],
    ),
    (
        "a disk template that is not enabled",
        setting(f"{AT_DISK1}/dev_type", "file"),
        [f"{AT_DISK1}.dev_type: there is no enabled disk template file"],
    ),
    (
        "a hypervisor without parameters",
        setting("cluster/enabled_hypervisors", ["kvm", "lxc"]),
        ["cluster.hvparams: no parameters of enabled hypervisor lxc"],
    ),
    (
        "a wrong tag",
        setting(f"{AT_NODE}/tags", ["good", "two words"]),
        [f"{AT_NODE}.tags: 'two words': Tag contains invalid characters"],
    ),
    (
        "too many tags",
        setting(f"{AT_NODE}/tags", [f"t{number}" for number in range(TAGS_MAX + 1)]),
        [f"{AT_NODE}.tags: expected at most 4096 tags"],
    ),
    (
        "a field of a wrong type",
        setting(f"{AT_NODE}/powered", "yes"),
        [f"{AT_NODE}.powered: expected bool, got str"],
    ),
]
ALL_RULES = pytest.mark.parametrize(
    ("edit", "expected"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES]
)


@ALL_RULES
def test_the_whole_check_finds_what_does_not_fit(edit: Edit, expected: list[str]) -> None:
    document = made_configuration()
    edit(document)
    assert sorted(problems(Configuration.load(document))) == sorted(expected)


@ALL_RULES
def test_a_change_that_does_not_fit_is_refused(edit: Edit, expected: list[str]) -> None:
    before = Configuration.load(made_configuration())
    index = Index(before)
    document = made_configuration()
    edit(document)
    changes = changes_between(before.to_document(), document)
    after = before.changed(changes, NOW)
    with pytest.raises(errors.IntegrityError) as caught:
        index.accept(before, after, changes)
    assert sorted(caught.value.text.split("; ", len(expected) - 1)) == sorted(expected)
    assert contents(index) == contents(Index(before))


@ALL_RULES
def test_a_configuration_with_an_old_problem_can_be_changed(
    edit: Edit, expected: list[str]
) -> None:
    document = made_configuration()
    edit(document)
    before = Configuration.load(document)
    index = Index(before)
    added = {**made_configuration()["networks"][NETWORK], "name": "new", "uuid": "new"}
    changes = [
        Change(Kind.NETWORK, "new", added),
        Change(Kind.CLUSTER, MASTER, {**before.cluster, "prealloc_wipe_disks": True}),
    ]
    after = before.changed(changes, NOW)
    index.accept(before, after, changes)
    assert sorted(problem.text for problem in index.problems(after)) == sorted(expected)


@ALL_RULES
def test_a_problem_can_be_repaired(edit: Edit, expected: list[str]) -> None:
    good = made_configuration()
    document = made_configuration()
    edit(document)
    changes = changes_between(document, good)
    before = Configuration.load(document)
    index = Index(before)
    assert len(index.problems(before)) == len(expected)
    after = before.changed(changes, NOW)
    index.accept(before, after, changes)
    assert index.problems(after) == []


def contents(index: Index) -> list[object]:
    return [
        {claim: sorted(places) for claim, places in index._holders.items()},
        index._needs,
        index._provided,
        {port: sorted(places) for port, places in index._ports.items()},
        (index._candidates, index._candidates_possible, index._port_max, index._pool_size),
    ]


@pytest.mark.parametrize(
    "document",
    [
        msgspec.json.decode(RECORDED.read_bytes()),
        made_configuration(),
        config_files.first_configuration("uuid", NOW),
    ],
    ids=["recorded", "made", "first"],
)
def test_a_good_configuration_has_no_problems(document: dict[str, Any]) -> None:
    assert problems(Configuration.load(document)) == []


def test_the_top_of_the_file_is_part_of_the_whole_check() -> None:
    document = made_configuration() | {"version": "3"}
    assert problems(Configuration.load(document)) == ["version: expected int, got str"]


def test_a_name_may_move_from_one_object_to_another_in_one_batch() -> None:
    before = Configuration.load(made_configuration())
    index = Index(before)
    nodes = [before.get(Kind.NODE, uuid) for uuid in (NODE, NODE1)]
    swapped = [
        Change(Kind.NODE, NODE, nodes[0] | {"name": nodes[1]["name"]}),
        Change(Kind.NODE, NODE1, nodes[1] | {"name": nodes[0]["name"]}),
    ]
    index.accept(before, before.changed(swapped, NOW), swapped)
    index = Index(before)
    with pytest.raises(errors.IntegrityError):
        index.accept(before, before.changed(swapped[:1], NOW), swapped[:1])


def test_the_same_address_may_be_in_two_networks_and_on_two_links() -> None:
    document = made_configuration(networks=2)
    nics = [document["instances"][uuid]["nics"][0] for uuid in (INSTANCE, INSTANCE1)]
    nics[1]["ip"] = nics[0]["ip"]
    assert problems(Configuration.load(document)) == []
    for nic, link in zip(nics, ("br0", "br1"), strict=True):
        del nic["network"]
        nic["nicparams"]["link"] = link
    assert problems(Configuration.load(document)) == []
    nics[1]["nicparams"]["link"] = "br0"
    assert [problem.partition(": ")[2] for problem in problems(Configuration.load(document))] == [
        f"IP address 10.128.0.10 on link br0 {IN_USE} instances/{INSTANCE1}.nics[{NIC1}].ip",
        f"IP address 10.128.0.10 on link br0 {IN_USE} instances/{INSTANCE}.nics[{NIC}].ip",
    ]


def test_a_cluster_that_is_being_destroyed_has_no_master() -> None:
    document = made_configuration()
    document["cluster"]["master_node"] = ""
    assert problems(Configuration.load(document)) == []


def test_a_third_user_of_a_disputed_value_is_refused() -> None:
    document = made_configuration()
    document["nodes"][NODE1]["name"] = document["nodes"][NODE]["name"]
    before = Configuration.load(document)
    index = Index(before)
    third = [
        Change(Kind.NODE, NODE2, {**before.get(Kind.NODE, NODE2), "name": "node0.example.com"})
    ]
    with pytest.raises(errors.IntegrityError, match=rf"^nodes/{NODE2}\.name: .* {IN_USE} "):
        index.accept(before, before.changed(third, NOW), third)


def test_an_old_problem_that_names_another_user_now_is_no_new_one() -> None:
    document = made_configuration()
    for uuid in (NODE1, NODE2):
        document["nodes"][uuid]["secondary_ip"] = "10.64.0.1"
    before = Configuration.load(document)
    index = Index(before)
    texts = {problem.text for problem in index.problems(before)}
    moved = [Change(Kind.NODE, NODE, {**before.get(Kind.NODE, NODE), "secondary_ip": "10.64.0.9"})]
    after = before.changed(moved, NOW)
    index.accept(before, after, moved)
    left = index.problems(after)
    assert [problem.place for problem in left] == [
        f"nodes/{uuid}.secondary_ip" for uuid in (NODE1, NODE2)
    ]
    assert not {problem.text for problem in left} <= texts


@pytest.mark.parametrize("state", ["offline", "drained"])
def test_a_node_that_is_away_need_not_be_a_candidate(state: str) -> None:
    document = made_configuration()
    document["nodes"][NODE1] |= {"master_candidate": False, state: True}
    assert problems(Configuration.load(document)) == []


def test_an_error_names_three_problems_and_counts_the_others() -> None:
    before = Configuration.load(made_configuration(instances=20))
    changes = [Change(Kind.NETWORK, NETWORK, None)]
    with pytest.raises(errors.IntegrityError) as caught:
        Index(before).accept(before, before.changed(changes, NOW), changes)
    # 20 interfaces and 2 groups.
    assert caught.value.text.endswith("; and 19 other problems")
    assert caught.value.text.count(f"there is no network {NETWORK}") == 3


def test_an_accepted_batch_can_be_taken_back() -> None:
    before = Configuration.load(made_configuration())
    index = Index(before)
    changes = [
        Change(Kind.NODE, NODE, {**before.get(Kind.NODE, NODE), "name": "renamed"}),
        Change(Kind.INSTANCE, INSTANCE, None),
        Change(Kind.CLUSTER, MASTER, {**before.cluster, "highest_used_port": 12_000}),
    ]
    after = before.changed(changes, NOW)
    index.accept(before, after, changes)
    assert contents(index) == contents(Index(after))
    index.take_back(before, after, changes)
    assert contents(index) == contents(Index(before))


@pytest.mark.parametrize("value", [None, 3, "x", [], {}, [None], {"uuid": 3}, [[1]], {"x": {}}])
def test_whatever_stands_in_a_field_is_a_problem_and_no_crash(value: object) -> None:
    good = made_configuration()
    objects = [("cluster", None), ("nodes", NODE), ("instances", INSTANCE), ("disks", DISK),
               ("nodegroups", GROUP), ("networks", NETWORK)]  # fmt: skip
    for kind, uuid in objects:
        for field in good[kind] if uuid is None else good[kind][uuid]:
            document = made_configuration()
            (document[kind] if uuid is None else document[kind][uuid])[field] = value
            assert all("\n" not in text for text in problems(Configuration.load(document)))
    for kind in CONTAINERS:
        found = problems(Configuration.load({kind.value: {"u": value}}))
        assert found
