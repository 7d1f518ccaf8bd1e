"""What does not fit: every rule once, over the whole and as a change; and problems that are old."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.clusters import made_configuration
from tests.storage.ganeti.cluster.integrity_rules import (
    DISK,
    GROUP,
    IN_USE,
    INSTANCE,
    INSTANCE1,
    MASTER,
    NETWORK,
    NIC,
    NIC1,
    NODE,
    NODE1,
    NODE2,
    RULES,
    Edit,
)

from ganger.storage import config_files, errors
from ganger.storage.cluster.assertions import PORT
from ganger.storage.cluster.configuration import Change, Configuration
from ganger.storage.cluster.integrity import Index, problems
from ganger.storage.cluster.objects import CONTAINERS, ObjectKind
from ganger.storage.ganeti.object_rules import (
    MAC_ADDRESS,
    MINOR,
    SECRET,
    VOLUME,
    on_node,
)

RECORDED = Path(__file__).parents[3] / "compatibility/data/config.data"
NOW = 1_800_000_000.5


def changes_between(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """The changes that lead from one document to the other."""
    found = [
        Change(kind, uuid, copy.deepcopy(after[kind].get(uuid)))
        for kind in CONTAINERS
        for uuid in before[kind] | after[kind]
        if before[kind].get(uuid) != after[kind].get(uuid)
    ]
    if before["cluster"] != after["cluster"]:
        found.append(Change(ObjectKind.CLUSTER, MASTER, copy.deepcopy(after["cluster"])))
    return found


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
        Change(ObjectKind.NETWORK, "new", added),
        Change(ObjectKind.CLUSTER, MASTER, {**before.cluster, "prealloc_wipe_disks": True}),
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
    nodes = [before.get(ObjectKind.NODE, uuid) for uuid in (NODE, NODE1)]
    swapped = [
        Change(ObjectKind.NODE, NODE, nodes[0] | {"name": nodes[1]["name"]}),
        Change(ObjectKind.NODE, NODE1, nodes[1] | {"name": nodes[0]["name"]}),
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
        Change(
            ObjectKind.NODE,
            NODE2,
            {**before.get(ObjectKind.NODE, NODE2), "name": "node0.example.com"},
        )
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
    moved = [
        Change(
            ObjectKind.NODE,
            NODE,
            {**before.get(ObjectKind.NODE, NODE), "secondary_ip": "10.64.0.9"},
        )
    ]
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
    changes = [Change(ObjectKind.NETWORK, NETWORK, None)]
    with pytest.raises(errors.IntegrityError) as caught:
        Index(before).accept(before, before.changed(changes, NOW), changes)
    # 20 interfaces and 2 groups.
    assert caught.value.text.endswith("; and 19 other problems")
    assert caught.value.text.count(f"there is no network {NETWORK}") == 3


def test_the_index_knows_what_is_in_use() -> None:
    before = Configuration.load(made_configuration())
    index = Index(before)
    macs, minors = index.claimed(MAC_ADDRESS), index.claimed(MINOR, on_node(NODE))
    volumes, secrets = index.provided(VOLUME), index.provided(SECRET)
    assert "aa:00:00:00:00:00" in macs
    assert "aa:00:00:00:00:ff" not in macs
    # The disks 0, 4 and 8 are on the nodes 0 and 1.
    assert [number for number in range(10) if number in minors] == [0, 4, 8]
    assert [port for port in range(10_998, 11_003) if port in index.claimed(PORT)] == [
        10_999, 11_000, 11_001, 11_002
    ]  # fmt: skip
    assert "xenvg/parts-0.disk0" in volumes
    assert f"{8:040x}" in secrets
    changes = [
        Change(ObjectKind.INSTANCE, INSTANCE, None),
        Change(ObjectKind.DISK, DISK, None),
    ]
    index.accept(before, before.changed(changes, NOW), changes)
    assert "aa:00:00:00:00:00" not in macs
    assert 0 not in minors
    assert "xenvg/parts-0.disk0" not in volumes
    assert f"{0:040x}" not in secrets


def test_an_accepted_batch_can_be_taken_back() -> None:
    before = Configuration.load(made_configuration())
    index = Index(before)
    changes = [
        Change(ObjectKind.NODE, NODE, {**before.get(ObjectKind.NODE, NODE), "name": "renamed"}),
        Change(ObjectKind.INSTANCE, INSTANCE, None),
        Change(ObjectKind.CLUSTER, MASTER, {**before.cluster, "highest_used_port": 12_000}),
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
