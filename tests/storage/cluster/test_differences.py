"""The differences of two snapshots: each field once, and no secret."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from tests.clusters import made_configuration, uuid_of

from ganger.storage.cluster.configuration import Change, Configuration
from ganger.storage.cluster.differences import SECRET_FIELDS, Difference, differences, masked
from ganger.storage.cluster.objects import ObjectKind

NODE, INSTANCE, DISK = uuid_of("nodes", 0), uuid_of("instances", 0), uuid_of("disks", 0)
HIDDEN = '"<redacted>"'


def between(before: dict[str, Any], after: dict[str, Any]) -> list[Difference]:
    return differences(Configuration.load(before), Configuration.load(after))


def edited(kind: str, uuid: str, **fields: object) -> dict[str, Any]:
    document = made_configuration()
    document[kind][uuid] |= fields
    return document


def test_equal_snapshots_do_not_differ() -> None:
    assert between(made_configuration(), made_configuration()) == []


def test_a_change_shows_with_its_stamps() -> None:
    before = Configuration.load(made_configuration())
    node = {**before.get(ObjectKind.NODE, NODE), "offline": True, "ndparams": {"ssh_port": 2222}}
    after = before.changed([Change(ObjectKind.NODE, NODE, node)], 2_000_000_000.5)
    assert differences(before, after) == [
        ("mtime", "1795225460.8566072", "2000000000.5"),
        ("serial_no", "7", "8"),
        (f"nodes/{NODE}.offline", "false", "true"),
        (f"nodes/{NODE}.ndparams.ssh_port", None, "2222"),
        (f"nodes/{NODE}.mtime", "1795225460.8566072", "2000000000.5"),
        (f"nodes/{NODE}.serial_no", "1", "2"),
    ]


def test_an_object_that_comes_or_goes_is_one_line() -> None:
    document = made_configuration()
    del document["nodes"][NODE]
    gone = between(made_configuration(), document)
    assert [(found.path, found.after) for found in gone] == [(f"nodes/{NODE}", None)]
    assert msgspec.json.decode(gone[0].before or "") == made_configuration()["nodes"][NODE]
    come = between(document, made_configuration())
    assert come == [(f"nodes/{NODE}", None, gone[0].before)]


def test_the_cluster_and_its_missing_fields_are_compared() -> None:
    document = made_configuration()
    del document["cluster"]["mac_prefix"]
    assert between(made_configuration(), document) == [("cluster.mac_prefix", '"aa:00:00"', None)]


def test_what_both_share_is_not_looked_at() -> None:
    # No JSON can be made of it.
    shared = object()
    old = Configuration.load(made_configuration())
    uuid, node = next(iter(old.objects(ObjectKind.NODE)))
    before, after = (
        old.changed([Change(ObjectKind.NODE, uuid, {**node, "x": shared, "powered": value})], 1.0)
        for value in (True, False)
    )
    places = {one.path: one for one in differences(before, after)}
    assert places[f"nodes/{uuid}.powered"][1:] == ("true", "false")


def test_numbers_of_another_kind_differ() -> None:
    for one, other in ((1, True), (0, False), (1, 1.5)):
        found = between(edited("nodes", NODE, x=one), edited("nodes", NODE, x=other))
        assert [item.path for item in found] == [f"nodes/{NODE}.x"]


def test_interfaces_are_compared_by_their_uuid() -> None:
    nic = made_configuration()["instances"][INSTANCE]["nics"][0]
    other = nic | {"uuid": "other", "mac": "aa:00:00:ff:ff:ff"}
    before = edited("instances", INSTANCE, nics=[nic, other])
    after = edited("instances", INSTANCE, nics=[other | {"ip": "10.128.0.99"}])
    assert [found.path for found in between(before, after)] == [
        f"instances/{INSTANCE}.nics[{nic['uuid']}]",
        f"instances/{INSTANCE}.nics[other].ip",
    ]


def test_another_order_of_interfaces_is_a_difference() -> None:
    nics = [{"uuid": "a"}, {"uuid": "b"}]
    found = between(
        edited("instances", INSTANCE, nics=nics), edited("instances", INSTANCE, nics=nics[::-1])
    )
    assert found == [(f"instances/{INSTANCE}.nics", '["a","b"]', '["b","a"]')]


def test_lists_without_uuids_are_compared_as_a_whole() -> None:
    found = between(edited("nodes", NODE, tags=["a"]), edited("nodes", NODE, tags=["b", "a"]))
    assert found == [(f"nodes/{NODE}.tags", '["a"]', '["b","a"]')]


def test_secret_parameters_show_only_their_names() -> None:
    before = edited("instances", INSTANCE, osparams_private={"one": "s1", "two": {"x": "s2"}})
    after = edited(
        "instances", INSTANCE, osparams_private={"one": "s3", "two": {"x": "s4"}, "three": [1]}
    )
    place = f"instances/{INSTANCE}.osparams_private"
    assert between(before, after) == [
        (f"{place}.one", HIDDEN, HIDDEN),
        (f"{place}.two.x", HIDDEN, HIDDEN),
        (f"{place}.three", None, HIDDEN),
    ]


@pytest.mark.parametrize("disk", ["itself", "part"])
def test_the_secret_of_a_drbd_disk_is_hidden(disk: str) -> None:
    documents = [made_configuration(), made_configuration()]
    place = f"disks/{DISK}"
    for document, secret in zip(documents, ("s3cret-1", "s3cret-2"), strict=True):
        found = document["disks"][DISK]
        if disk == "part":
            found["children"][0] |= {"dev_type": "drbd", "logical_id": found["logical_id"][:]}
            found = found["children"][0]
        found["logical_id"][5] = secret
        found["logical_id"][2] = 11_500
    if disk == "part":
        place += f".children[{uuid_of('parts', 0)}]"
    (found,) = between(*documents)
    assert found.path == f"{place}.logical_id"
    assert found.before == found.after
    assert msgspec.json.decode(found.before or "")[2:] == [11_500, 0, 0, "<redacted>"]


def put_secrets(document: dict[str, Any]) -> None:
    """Put a secret into every place for one."""
    document["cluster"]["osparams_private_cluster"] = {"debian": {"key": "s3cret-0"}}
    for number, field in enumerate(sorted(SECRET_FIELDS), 1):
        document["cluster"]["hvparams"]["kvm"][field] = f"s3cret-{number}"
        document["instances"][INSTANCE][field] = {"deep": [f"s3cret-{number}"]}
    document["disks"][DISK]["logical_id"][5] = "s3cret-x"
    document["disks"][DISK]["logical_id"].append("s3cret-y")


def test_no_secret_is_shown_in_any_place() -> None:
    document = made_configuration()
    put_secrets(document)
    original = copy.deepcopy(document)
    empty: dict[str, Any] = {"cluster": {}}
    for one, other in ((empty, document), (document, empty), (made_configuration(), document)):
        shown = msgspec.json.encode(between(one, other)).decode()
        assert "<redacted>" in shown
        assert "s3cret" not in shown
    assert "s3cret" not in str(masked(document))
    assert document == original


def test_a_disk_that_becomes_drbd_shows_no_secret() -> None:
    plain = made_configuration()
    plain["disks"][DISK] |= {"dev_type": "plain", "logical_id": ["xenvg", "lv"]}
    shown = msgspec.json.encode(between(plain, made_configuration())).decode()
    assert f"{0:040x}" not in shown
    assert "<redacted>" in shown
