"""What WConfD's modifications change, and what they refuse."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from tests.clusters import made_configuration, uuid_of

from ganger.storage import errors
from ganger.storage.cluster.configuration import Change, Configuration
from ganger.storage.cluster.differences import masked
from ganger.storage.cluster.integrity import Index
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.ganeti import modifications
from ganger.storage.ganeti.modifications import InUse, Modified
from ganger.storage.ganeti.object_rules import MAC_ADDRESS

INSTANCE, OTHER = uuid_of("instances", 0), uuid_of("instances", 1)
FIRST, SECOND, THIRD = (uuid_of("disks", number) for number in range(3))
NETWORK = uuid_of("networks", 0)
NEW = "99999999-0000-4000-8000-000000000000"


@pytest.fixture
def snapshot() -> Configuration:
    made = made_configuration(instances=4)
    made["cluster"]["tcpudp_port_pool"] = []
    return Configuration.load(made)


def in_use(snapshot: Configuration) -> InUse:
    index = Index(snapshot)
    return InUse(index.claimed(MAC_ADDRESS), index.claimed("UUID"))


def after(snapshot: Configuration, modified: Modified) -> Configuration:
    """The next snapshot, which must be a valid one."""
    found = snapshot.changed(modified.changes, 5.0)
    Index(snapshot).accept(snapshot, found, modified.changes)
    return found


def refused(text: str, kind: type[errors.GangerError] = errors.ModificationError) -> Any:
    return pytest.raises(kind, match=f"^{text}$")


def with_reserved(snapshot: Configuration, *places: int) -> Configuration:
    """These addresses of the network are reserved."""
    network = snapshot.get(ObjectKind.NETWORK, NETWORK)
    digits = "".join("1" if at in places else "0" for at in range(256))
    return snapshot.changed(
        [Change(ObjectKind.NETWORK, NETWORK, network | {"reservations": digits})], 1
    )


# Instances.


def new_instance(snapshot: Configuration, **fields: Any) -> dict[str, Any]:
    found = copy.deepcopy(snapshot.get(ObjectKind.INSTANCE, INSTANCE))
    found |= {"uuid": NEW, "name": "new", "disks": [], "nics": []} | fields
    del found["network_port"]
    return found  # type: ignore[no-any-return]


def add(snapshot: Configuration, instance: dict[str, Any], *, replaces: bool = False) -> Modified:
    return modifications.added_instance(
        snapshot, instance, in_use(snapshot), replaces=replaces, committed=lambda _: {}
    )


def test_an_instance_comes_with_the_addresses_that_its_owner_commits(
    snapshot: Configuration,
) -> None:
    network = with_reserved(snapshot, 9).get(ObjectKind.NETWORK, NETWORK)
    modified = modifications.added_instance(
        snapshot,
        new_instance(snapshot),
        in_use(snapshot),
        replaces=False,
        committed=lambda _: {NETWORK: network},
    )
    found = after(snapshot, modified)
    assert found.get(ObjectKind.INSTANCE, NEW)["name"] == "new"
    assert found.get(ObjectKind.NETWORK, NETWORK)["reservations"][9] == "1"
    assert modified.value(found) is True


def test_an_instance_with_a_mac_or_a_uuid_of_another_one_is_refused(
    snapshot: Configuration,
) -> None:
    nic = snapshot.get(ObjectKind.INSTANCE, OTHER)["nics"][0]
    with refused(f'Cannot add instance "new"; MAC addresses {nic["mac"]} already in use'):
        add(snapshot, new_instance(snapshot, nics=[nic | {"mac": nic["mac"].upper()}]))
    with refused(f'Cannot add "new": UUID {FIRST} already in use'):
        add(snapshot, new_instance(snapshot, uuid=FIRST))
    with refused("the object has no UUID"):
        add(snapshot, new_instance(snapshot, uuid=5))


def test_an_instance_is_replaced_if_it_is_there(snapshot: Configuration) -> None:
    with refused(f'Cannot replace "new": UUID {NEW} not present'):
        add(snapshot, new_instance(snapshot), replaces=True)
    before = snapshot.get(ObjectKind.INSTANCE, INSTANCE)
    found = after(snapshot, add(snapshot, before | {"os": "other"}, replaces=True))
    assert found.get(ObjectKind.INSTANCE, INSTANCE)["os"] == "other"


def test_a_removed_instance_gives_its_port_and_its_addresses_back(
    snapshot: Configuration,
) -> None:
    # Instance 1 has the address 11 of the network; instance 0, whose address is free, the port.
    snapshot = with_reserved(snapshot, 11, 12)
    modified = modifications.removed_instance(snapshot, OTHER)
    found = after(snapshot, modified)
    assert found.get(ObjectKind.INSTANCE, OTHER) is None
    assert found.cluster["tcpudp_port_pool"] == [11_002]
    reservations = found.get(ObjectKind.NETWORK, NETWORK)["reservations"]
    assert [at for at in range(256) if reservations[at] == "1"] == [12]
    found = after(found, modifications.removed_instance(found, INSTANCE))
    assert found.cluster["tcpudp_port_pool"] == [11_000, 11_002]
    assert modifications.removed_instance(found, INSTANCE).changes == []


def test_the_state_and_the_primary_node_of_an_instance_change(snapshot: Configuration) -> None:
    state = {"admin_state": "down", "disks_active": None, "admin_state_source": "user"}
    modified = modifications.with_status(snapshot, INSTANCE, state)
    found = after(snapshot, modified)
    shown = modified.value(found)
    assert (shown["admin_state"], shown["disks_active"], shown["admin_state_source"]) == (
        "down",
        True,
        "user",
    )
    assert shown["serial_no"] == 2
    again = modifications.with_status(found, INSTANCE, state)
    assert again.changes == []
    assert again.value(found) == shown
    node = uuid_of("nodes", 3)
    found = after(found, modifications.with_primary_node(found, INSTANCE, node))
    assert found.get(ObjectKind.INSTANCE, INSTANCE)["primary_node"] == node


@pytest.mark.parametrize(
    "modify",
    [
        lambda now: modifications.with_status(now, "x", {}),
        lambda now: modifications.with_primary_node(now, "x", "y"),
        lambda now: modifications.attached_disk(now, "x", FIRST, None),
        lambda now: modifications.detached_disk(now, "x", FIRST),
        lambda now: modifications.detached_disk(now, "x", FIRST, is_removed=True),
    ],
)
def test_an_unknown_instance_is_named(
    snapshot: Configuration, modify: Callable[[Configuration], Modified]
) -> None:
    with refused("Could not find instance with UUID x"):
        modify(snapshot)


# Disks.


def disks(snapshot: Configuration, instance: str = INSTANCE) -> list[tuple[str, str]]:
    """UUID and name of each disk of the instance."""
    found = snapshot.get(ObjectKind.INSTANCE, instance)["disks"]
    return [(uuid, snapshot.get(ObjectKind.DISK, uuid)["iv_name"]) for uuid in found]


def new_disk(snapshot: Configuration, name: str = "new") -> dict[str, Any]:
    found: dict[str, Any] = snapshot.get(ObjectKind.DISK, SECOND)
    return found | {"uuid": NEW, "logical_id": ["xenvg", name]}


def add_disk(
    snapshot: Configuration,
    disk: dict[str, Any],
    index: int | None = None,
    *,
    replaces: bool = False,
) -> Modified:
    return modifications.added_disk(
        snapshot, INSTANCE, disk, in_use(snapshot), index=index, replaces=replaces
    )


def test_disks_are_named_by_their_places(snapshot: Configuration) -> None:
    found = after(snapshot, add_disk(snapshot, new_disk(snapshot), 0))
    assert disks(found) == [(NEW, "disk/0"), (FIRST, "disk/1")]
    found = after(found, modifications.detached_disk(found, OTHER, SECOND))
    found = after(found, modifications.attached_disk(found, INSTANCE, SECOND, 1))
    assert disks(found) == [(NEW, "disk/0"), (SECOND, "disk/1"), (FIRST, "disk/2")]
    found = after(found, modifications.detached_disk(found, INSTANCE, NEW, is_removed=True))
    assert disks(found) == [(SECOND, "disk/0"), (FIRST, "disk/1")]
    assert found.get(ObjectKind.DISK, NEW) is None
    # Only what changed is written.
    modified = modifications.attached_disk(
        after(found, modifications.detached_disk(found, INSTANCE, FIRST)), INSTANCE, FIRST, None
    )
    assert [change.kind for change in modified.changes] == [ObjectKind.INSTANCE]


def test_a_disk_that_is_not_attached_is_removed_and_one_that_is_gone_is_no_error(
    snapshot: Configuration,
) -> None:
    found = after(snapshot, modifications.detached_disk(snapshot, INSTANCE, FIRST))
    assert modifications.detached_disk(found, INSTANCE, FIRST).changes == []
    found = after(found, modifications.detached_disk(found, INSTANCE, FIRST, is_removed=True))
    assert found.get(ObjectKind.DISK, FIRST) is None
    assert modifications.detached_disk(found, INSTANCE, FIRST, is_removed=True).changes == []


def test_a_disk_of_another_instance_is_not_removed(snapshot: Configuration) -> None:
    text = f"Cannot remove disk {SECOND}. Disk is attached to an instance"
    with refused(text, errors.DiskAttachedError):
        modifications.detached_disk(snapshot, INSTANCE, SECOND, is_removed=True)


def test_a_disk_is_added_once_and_attached_once(snapshot: Configuration) -> None:
    with refused(f'Cannot replace "": UUID {NEW} not present'):
        add_disk(snapshot, new_disk(snapshot), replaces=True)
    with refused(f'Cannot add "": UUID {SECOND} already in use'):
        add_disk(snapshot, new_disk(snapshot) | {"uuid": SECOND})
    text = f'Disk {SECOND} already attached to instance "instance1.example.com"'
    with refused(text, errors.ReservationError):
        modifications.attached_disk(snapshot, INSTANCE, SECOND, None)
    with refused("Disk x doesn't exist"):
        modifications.attached_disk(snapshot, INSTANCE, "x", None)
    with refused("Not accepting negative indices", errors.DiskIndexError):
        add_disk(snapshot, new_disk(snapshot), -1)
    with refused("Got disk index 2, but there are only 1", errors.DiskIndexError):
        add_disk(snapshot, new_disk(snapshot), 2)


# Ports and addresses.


def test_a_port_comes_from_the_pool_first(snapshot: Configuration) -> None:
    highest = snapshot.cluster["highest_used_port"]
    modified = modifications.allocated_port(snapshot)
    found = after(snapshot, modified)
    assert modified.value(found) == found.cluster["highest_used_port"] == highest + 1
    found = after(found, modifications.added_port(found, highest + 1))
    assert modifications.added_port(found, highest + 1).changes == []
    modified = modifications.allocated_port(found)
    assert modified.value(found) == highest + 1
    assert after(found, modified).cluster["tcpudp_port_pool"] == []


def test_ports_have_an_end(snapshot: Configuration) -> None:
    for highest, text in [
        (14_999, "The highest used port is greater than 14999. Aborting."),
        (None, "cluster.highest_used_port: there is none"),
    ]:
        cluster = {**snapshot.cluster, "highest_used_port": highest}
        full = snapshot.changed([Change(ObjectKind.CLUSTER, snapshot.cluster_uuid, cluster)], 1.0)
        with refused(text):
            modifications.allocated_port(full)


def test_an_address_is_released_at_once(snapshot: Configuration) -> None:
    reserved = with_reserved(snapshot, 9)
    found = after(reserved, modifications.released_address(reserved, NETWORK, "10.128.0.9"))
    assert "1" not in found.get(ObjectKind.NETWORK, NETWORK)["reservations"]
    with pytest.raises(errors.ReservationError):
        modifications.released_address(found, NETWORK, "10.128.0.9")
    with refused("Network 'x' not found", errors.ReservationError):
        modifications.released_address(found, "x", "10.128.0.9")


# Single objects.


def test_an_object_is_replaced_under_its_serial_number(snapshot: Configuration) -> None:
    node = snapshot.get(ObjectKind.NODE, uuid_of("nodes", 1))
    modified = modifications.updated(snapshot, ObjectKind.NODE, node | {"powered": False})
    found = after(snapshot, modified)
    assert modified.value(found) == [2, 5.0]
    again = modifications.updated(found, ObjectKind.NODE, node | {"powered": False})
    assert again.changes == []
    assert again.value(found) == [2, 5.0]
    text = "Configuration object updated since it has been read: 2 != 1"
    with refused(text, errors.StaleSerialError):
        modifications.updated(found, ObjectKind.NODE, node | {"powered": True, "offline": True})
    with refused("Configuration object unknown"):
        modifications.updated(found, ObjectKind.NODE, node | {"uuid": NEW})


# The whole.


def rewrite(
    present: Configuration, base: Configuration, given: dict[str, Any], *, hides: bool = False
) -> list[Change]:
    view = masked if hides else lambda value: value
    wanted = modifications.differing(present, view(base.to_document()), given)
    return modifications.rewritten(present, wanted, view)


def test_only_what_the_writer_changed_is_changed(snapshot: Configuration) -> None:
    given = copy.deepcopy(snapshot.to_document())
    assert rewrite(snapshot, snapshot, given) == []
    given["serial_no"] += 5
    given["nodes"][uuid_of("nodes", 1)] |= {"powered": False, "serial_no": 9, "mtime": 1.0}
    given["nodes"][NEW] = {"uuid": NEW}
    del given["disks"][FIRST]
    given["cluster"]["tags"] = ["x"]
    # Somebody else has changed another object meanwhile.
    present = with_reserved(snapshot, 9)
    changes = rewrite(present, snapshot, given)
    assert {(change.kind, change.uuid, change.object is None) for change in changes} == {
        (ObjectKind.CLUSTER, snapshot.cluster_uuid, False),
        (ObjectKind.NODE, uuid_of("nodes", 1), False),
        (ObjectKind.NODE, NEW, False),
        (ObjectKind.DISK, FIRST, True),
    }
    # Repeated, when all of it was made.
    made = present.changed(changes, 5.0)
    assert rewrite(made, snapshot, given) == []


def test_an_object_that_two_have_changed_is_refused(snapshot: Configuration) -> None:
    given = copy.deepcopy(snapshot.to_document())
    given["networks"][NETWORK]["tags"] = ["x"]
    text = f"networks/{NETWORK}: somebody else has changed it since it was read"
    with refused(text, errors.StaleSerialError):
        rewrite(with_reserved(snapshot, 9), snapshot, given)


def test_masked_secrets_count_as_unchanged(snapshot: Configuration) -> None:
    given = copy.deepcopy(masked(snapshot.to_document()))
    given["nodes"][uuid_of("nodes", 1)]["powered"] = False
    [change] = rewrite(snapshot, snapshot, given, hides=True)
    assert change.kind is ObjectKind.NODE


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"version": 2}, "version: expected 3000000, got 2"),
        ({"nodes": []}, "nodes: expected objects"),
        ({"disks": {"x": 5}}, "disks: expected objects"),
        ({"cluster": []}, "cluster: expected objects"),
        ({"cluster": {"uuid": "x"}}, "cluster.uuid: it cannot change"),
    ],
)
def test_what_is_no_configuration_of_this_cluster_is_refused(
    snapshot: Configuration, wrong: dict[str, Any], text: str
) -> None:
    with refused(text):
        rewrite(snapshot, snapshot, snapshot.to_document() | wrong)


def test_a_container_that_is_missing_stays(snapshot: Configuration) -> None:
    given = snapshot.to_document()
    del given["instances"], given["cluster"]
    assert rewrite(snapshot, snapshot, given) == []


def test_a_cluster_without_a_master_is_valid(snapshot: Configuration) -> None:
    assert after(snapshot, modifications.without_master(snapshot)).cluster["master_node"] == ""
