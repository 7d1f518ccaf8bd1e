"""Reservations are on disk before they are announced, and end with their owners."""

# ruff: noqa: FBT003 - arguments of Ganeti's methods have no names

from __future__ import annotations

from typing import Any

import pytest
from tests.actors.config.store_and_locks import StoreAndLocks
from tests.actors.ganeti.wconfd_calls import call
from tests.actors.runtime.stage import Asker
from tests.clusters import uuid_of
from tests.refusals import refusing

from ganger.actors.ganeti import notices
from ganger.storage.ganeti.reservations import ReservationsFile, decode
from ganger.storage.locks.locks import Owner
from ganger.transport import messages
from ganger.transport.messages import ConfigAnswered

NETWORK, NODE, OTHER = uuid_of("networks", 0), uuid_of("nodes", 0), uuid_of("nodes", 1)
MAC = "aa:00:00:ff:00:01"


def value(asker: Asker) -> Any:
    return asker.answer_as(ConfigAnswered).value


def ask(both: StoreAndLocks, message: Any) -> Asker:
    """In a turn of its own."""
    asker = both.ask(message)
    both.store.end_turn()
    return asker


def stored(both: StoreAndLocks) -> ReservationsFile:
    return decode(both.stage.places.reservations.read_bytes())


def test_a_reservation_is_on_disk_before_it_is_announced(both: StoreAndLocks) -> None:
    owner = both.locks.owner(7)
    asker = both.say(call("reserveMAC", owner, MAC))
    secret = both.say(call("generateDRBDSecret", owner))
    assert asker.answers == []
    both.store.end_turn()
    assert asker.answer == ConfigAnswered()
    assert stored(both).macs == ((owner, (MAC,)),)
    assert stored(both).secrets == ((owner, (value(secret),)),)
    mode = both.stage.places.reservations.stat().st_mode & 0o777
    assert mode == 0o600


def test_a_successor_knows_them(both: StoreAndLocks) -> None:
    owner = both.locks.owner(7)
    ask(both, call("reserveMAC", owner, MAC))
    ask(both, call("allocateDRBDMinor", "new", [NODE]))
    both.restart_store()
    name, text = ask(both, call("reserveMAC", both.locks.owner(8), MAC)).refusal
    assert name == "ReservationError"
    assert MAC in text
    assert value(ask(both, call("computeDRBDMap")))[NODE][1] == "new"


def test_when_the_disk_refuses_nothing_is_reserved(both: StoreAndLocks) -> None:
    owner = both.locks.owner(7)
    ask(both, call("reserveLV", owner, "xenvg/kept"))
    with refusing("rename"):
        assert ask(both, call("reserveMAC", owner, MAC)).refusal[0] == "StorageError"
    assert ask(both, call("reserveMAC", both.locks.owner(8), MAC)).answer == ConfigAnswered()
    assert stored(both).volumes == ((owner, ("xenvg/kept",)),)


def test_a_dead_owner_loses_its_reservations(both: StoreAndLocks) -> None:
    owner, other = both.locks.owner(7), both.locks.owner(8)
    ask(both, call("reserveMAC", owner, MAC))
    ask(both, call("reserveLV", other, "xenvg/x"))
    both.locks.kill(owner)
    due = [timer for timer in both.stage.timers if _is_sweep(timer.alarm)]
    assert [timer.seconds for timer in due] == [0.25]
    both.stage.timers.clear()
    both.store.turn(notices.SweepReservations())
    assert stored(both).macs == ()
    assert stored(both).volumes == ((other, ("xenvg/x",)),)
    # Looked at again and again, while there is anybody.
    assert any(_is_sweep(timer.alarm) for timer in both.stage.timers)
    ask(both, call("dropAllReservations", other))
    both.stage.timers.clear()
    both.store.turn(notices.SweepReservations())
    assert not any(_is_sweep(timer.alarm) for timer in both.stage.timers)


def _is_sweep(alarm: Any) -> bool:
    message = getattr(getattr(alarm, "item", None), "message", None)
    return isinstance(message, notices.SweepReservations)


def test_an_owner_that_died_before_the_store_began_has_none(both: StoreAndLocks) -> None:
    owner = both.locks.owner(7)
    ask(both, call("reserveMAC", owner, MAC))
    both.locks.kill(owner)
    both.restart_store()
    assert stored(both).macs == ()


@pytest.mark.parametrize(
    "method",
    [
        lambda owner: call("reserveMAC", owner, MAC),
        lambda owner: call("generateMAC", owner, None),
        lambda owner: call("generateDRBDSecret", owner),
        lambda owner: call("reserveLV", owner, "xenvg/x"),
        lambda owner: call("reserveIp", owner, NETWORK, "10.128.0.9", True),
        lambda owner: call("releaseIp", owner, NETWORK, "10.128.0.9"),
        lambda owner: call("generateIp", owner, NETWORK),
        lambda owner: call("listReservedIps", owner),
        lambda owner: call("commitTemporaryIps", owner),
    ],
)
def test_an_owner_without_a_living_lock_file_is_refused(both: StoreAndLocks, method: Any) -> None:
    name, text = ask(both, method(Owner("x", "/nowhere/lock", 1))).refusal
    assert (name, text) == ("LockRequestError", "the owner's lock file /nowhere/lock is dead")
    assert not both.stage.places.reservations.exists()


def test_addresses_are_committed_also_while_somebody_has_the_lock(both: StoreAndLocks) -> None:
    owner = both.hold(7)
    address = value(ask(both, call("generateIp", owner, NETWORK)))
    assert value(ask(both, call("listReservedIps", owner))) == [["reserve", address, NETWORK]]
    assert ask(both, call("commitTemporaryIps", owner)).answer == ConfigAnswered()
    assert _pool(both).count("1") == 1
    released = call("commitReleaseTemporaryIp", NETWORK, address)
    assert ask(both, released).answer == ConfigAnswered()
    assert _pool(both).count("1") == 0
    assert ask(both, released).refusal[0] == "ReservationError"
    entries = both.say(messages.ReadHistory()).answer_as(messages.HistoryRead).entries
    assert [entry.who for entry in entries] == ["", "job 7"]


def _pool(both: StoreAndLocks) -> str:
    [network] = value(both.ask(call("readConfig")))["networks"].values()
    found: str = network["reservations"]
    return found


def test_what_the_configuration_uses_is_not_reserved(both: StoreAndLocks) -> None:
    owner = both.locks.owner(7)
    refused = [
        (call("reserveMAC", owner, "AA:00:00:00:00:00"), "MAC already in use"),
        (call("reserveLV", owner, "xenvg/disks-1.disk0"), "Logical volume already in use"),
        (call("generateMAC", owner, "x"), "Network 'x' not found"),
        (
            call("reserveIp", owner, NETWORK, "10.128.0.254", True),
            "IP is externally reserved",
        ),
        (
            call("allocateDRBDMinor", "d", [NODE, NODE]),
            f"Duplicate nodes detected in list '{NODE}, {NODE}'",
        ),
    ]
    for message, text in refused:
        assert ask(both, message).refusal == ("ReservationError", text)
    name, text = ask(both, call("allocateDRBDMinor", "d", ["x"])).refusal
    assert (name, text) == ("ModificationError", "Could not find node with UUID x")
    # Minor 0 is in use on both nodes of the first disk.
    assert value(ask(both, call("allocateDRBDMinor", "d", [NODE, OTHER]))) == [1, 1]
    ask(both, call("releaseDRBDMinors", "d"))
    assert stored(both).minors == ()


def test_an_instance_and_a_disk_that_are_added_take_their_reservations_with_them(
    both: StoreAndLocks,
) -> None:
    owner = both.locks.owner(7)
    found = value(both.ask(call("readConfig", reveals=True)))
    own = uuid_of("instances", 0)
    plain = found["disks"][uuid_of("disks", 1)]
    disk = plain | {"uuid": "new-disk", "logical_id": ["xenvg", "new"], "nodes": [NODE]}
    ask(both, call("allocateDRBDMinor", "new-disk", [NODE]))
    added = ask(both, call("addInstanceDisk", own, disk, None, False))
    assert value(added) is True
    assert stored(both).minors == ()
    ask(both, call("generateIp", owner, NETWORK))
    instance = found["instances"][own] | {"disks": [*found["instances"][own]["disks"], "new-disk"]}
    assert value(ask(both, call("addInstance", instance, owner, True))) is True
    assert _pool(both).count("1") == 1
