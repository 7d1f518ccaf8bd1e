"""All operations on locks, the words of refusals, owners that no executor watches, watchers."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from tests.actors.locks.lock_stage import NODE_A, NODE_B, Locks
from tests.refusals import refusing

from ganger.actors.locks import owner_watch
from ganger.actors.locks.lock_manager import LockManager
from ganger.storage.alive import lock_files
from ganger.storage.locks.locks import LockChange, LockLevel, LockMode, Owner, Pending
from ganger.transport import messages
from ganger.transport.messages import Done, LocksGranted, LocksPending, Message

SHARED, EXCLUSIVE = LockMode.SHARED, LockMode.EXCLUSIVE
NETWORK = "network/n"


def foreign(locks: Locks, name: str = "luxid") -> Owner:
    """A program with a lock file of its own."""
    held = lock_files.create(locks.stage.places.lock_files, name)
    owner = Owner(name, held.path, os.getpid())
    locks.held[owner] = held
    return owner


def sweep(locks: Locks) -> None:
    locks.stage.run_timers()
    locks.actor.turn(*locks.stage.take(messages.SweepOwners, to="lock_manager"))


# Operations.


def test_a_request_is_made_at_once_or_never(locks: Locks) -> None:
    one, two = locks.holder_and_other()
    tried = locks.actor.say(messages.TryLocks(two, [(NODE_B, "shared"), (NODE_A, "shared")]))
    assert tried.answers == []
    locks.actor.end_turn()
    assert tried.answer == messages.LocksTried([one])
    assert locks.on_disk() == {1: [NODE_A]}
    tried = locks.actor.ask(messages.TryLocks(two, [(NODE_B, "shared")]))
    assert tried.answer == messages.LocksTried([])
    assert locks.on_disk() == {1: [NODE_A], 2: [NODE_B]}
    assert locks.actor.ask(messages.ReadOwner(two)).answer == messages.OwnerRead(
        [(NODE_B, SHARED)], is_waiting=False
    )


def test_what_is_tried_and_gives_back_wakes_the_next_owner(locks: Locks) -> None:
    one, two = locks.holder_and_other()
    asker = locks.ask(two, (NODE_A, "shared"))
    assert locks.actor.ask(messages.ReadOwner(two)).answer == messages.OwnerRead(
        [], is_waiting=True
    )
    locks.actor.ask(messages.TryLocks(one, [(NODE_A, "release")]))
    assert asker.answers == [LocksPending([one]), LocksGranted()]


def test_free_locks_are_taken_unless_they_are_too_few(locks: Locks) -> None:
    _, two = locks.holder_and_other()
    wanted = [(NODE_A, SHARED), (NODE_B, SHARED), ("node/c", EXCLUSIVE)]
    taken = locks.actor.ask(messages.TakeFreeLocks(two, wanted, at_least=3))
    assert taken.answer == messages.LocksTaken([])
    assert locks.on_disk() == {1: [NODE_A]}
    taken = locks.actor.ask(messages.TakeFreeLocks(two, wanted, at_least=2))
    assert taken.answer == messages.LocksTaken(["node/c", NODE_B])
    assert locks.on_disk() == {1: [NODE_A], 2: [NODE_B, "node/c"]}


@pytest.mark.parametrize(
    ("message", "left", "is_woken"),
    [
        (messages.ReleaseLocks, {}, True),
        (lambda owner: messages.ReleaseLocks(owner, LockLevel.NODE), {NETWORK: EXCLUSIVE}, True),
        (
            lambda owner: messages.ReleaseLocks(owner, LockLevel.NETWORK),
            {NODE_A: EXCLUSIVE},
            False,
        ),
        (
            lambda owner: messages.DowngradeLocks(owner, LockLevel.NODE),
            {NODE_A: SHARED, NETWORK: EXCLUSIVE},
            True,
        ),
        (lambda owner: messages.KeepLocks(owner, [NETWORK]), {NETWORK: EXCLUSIVE}, True),
        (lambda owner: messages.KeepLocks(owner, [NODE_A]), {NODE_A: EXCLUSIVE}, False),
    ],
)
def test_an_owner_gives_back_a_part(
    locks: Locks, message: Callable[[Owner], Message], left: dict[str, LockMode], *, is_woken: bool
) -> None:
    one, two = locks.owner(1), locks.owner(2)
    locks.take(one, (NODE_A, "exclusive"), (NETWORK, "exclusive"))
    asker = locks.ask(two, (NODE_A, "shared"))
    assert locks.actor.ask(message(one)).answer == Done()
    found = locks.actor.ask(messages.ReadOwner(one)).answer_as(messages.OwnerRead)
    assert dict(found.locks) == left
    assert (asker.answers[-1] == LocksGranted()) == is_woken


def test_giving_back_drops_the_waiting_request(locks: Locks) -> None:
    one, two = locks.holder_and_other()
    asker = locks.ask(two, (NODE_A, "shared"))
    locks.actor.ask(messages.DowngradeLocks(two, LockLevel.NODE))
    locks.actor.ask(messages.ReleaseLocks(one))
    assert asker.answers == [LocksPending([one])]
    assert locks.on_disk() == {}


def test_the_table_names_owners_and_the_line(locks: Locks) -> None:
    one, two = locks.holder_and_other()
    locks.ask(two, (NODE_A, "shared"), priority=-5)
    assert locks.question(messages.ReadLockTable()).answer == messages.LockTable(
        held=[("node/[lockset]", []), (NODE_A, [(one, EXCLUSIVE)])],
        pending=[Pending(-5, two, ((NODE_A, LockChange.SHARED),))],
    )
    [wait] = locks.question(messages.ReadLockWaits()).answer_as(messages.LockWaits).waits
    assert wait == messages.LockWait("2", NODE_A, SHARED, [("1", EXCLUSIVE)], [])


# Refusals.


def test_a_refusal_names_the_rule_and_what_is_held_since_when(locks: Locks) -> None:
    locks.stage.today = 1_800_000_000.0
    one = locks.owner(1)
    locks.take(one, (NODE_B, "shared"))
    assert locks.request(one, (NODE_A, "shared")).refusal == (
        "LockOrderError",
        (
            'Order violation: requesting Node "a" while holding Node "b" (locks are acquired in the'
            " order cluster, instance, nodegroup, node, node-res, network, config, and by name;"
            " job 1 holds node/b (shared, since 2027-01-15 08:00:00 UTC))"
        ),
    )


def test_a_refusal_names_what_the_owner_waits_for(locks: Locks) -> None:
    _, two = locks.holder_and_other()
    locks.ask(two, (NODE_A, "shared"))
    assert locks.request(two, (NODE_B, "shared")).refusal == (
        "LockWaitError",
        (
            "cannot update locks while having pending requests (an owner has one waiting request at"
            " a time; job 2 waits for node/a (shared))"
        ),
    )


def test_a_refusal_of_a_ring_names_the_other_owner(locks: Locks) -> None:
    one, two = locks.owner(1), locks.owner(2)
    for owner in (one, two):
        locks.take(owner, (NODE_A, "shared"))
    locks.ask(one, (NODE_A, "exclusive"))
    name, text = locks.request(two, (NODE_A, "exclusive")).refusal
    assert name == "LockRingError"
    assert text.startswith("Deadlock: 1 holds what is requested and waits for what the requester")
    assert "two owners that share a lock cannot both make it exclusive; job 1 holds node/a" in text
    assert text.endswith("job 1 waits for node/a (exclusive))")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            [(NODE_A, "shared"), (NODE_A, "release")],
            'Inconsitent requests for lock Node "a" (a request names each lock once)',
        ),
        ([("nodes/a", "shared")], "Unknown lock name 'nodes/a'"),
        ([(NODE_A, "mine")], "Unknown lock change: 'mine' is not a valid LockChange"),
    ],
)
def test_a_malformed_request_is_refused_in_one_line(
    locks: Locks, changes: list[tuple[str, str]], text: str
) -> None:
    assert locks.request(locks.owner(1), *changes).refusal[1] == text


# Owners that no executor watches.


def test_the_locks_of_a_foreign_owner_that_died_are_free_soon(locks: Locks) -> None:
    one, two = foreign(locks), locks.owner(2)
    locks.take(one, (NODE_A, "exclusive"))
    asker = locks.ask(two, (NODE_A, "shared"))
    sweep(locks)
    assert asker.answers == [LocksPending([one])]
    locks.kill(one)
    sweep(locks)
    assert asker.answers[-1] == LocksGranted()
    # Nobody is left to be looked at.
    assert locks.stage.timers == []


def test_a_foreign_owner_without_locks_is_not_looked_at(locks: Locks) -> None:
    one = foreign(locks)
    locks.take(one, (NODE_A, "exclusive"))
    locks.actor.ask(messages.ReleaseLocks(one))
    sweep(locks)
    assert locks.stage.timers == []


def test_a_foreign_owner_is_looked_at_once_between_two_looks_at_all(
    locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []
    is_dead = lock_files.is_dead

    def looking(path: str) -> bool:
        looked_at.append(path)
        return is_dead(path)

    monkeypatch.setattr(lock_files, "is_dead", looking)
    one = foreign(locks)
    for _ in range(3):
        locks.take(one, (NODE_A, "exclusive"))
        locks.actor.ask(messages.ReleaseLocks(one))
    assert looked_at == [one.lock_file]
    sweep(locks)
    locks.take(one, (NODE_A, "exclusive"))
    assert looked_at == [one.lock_file] * 2


def test_a_foreign_owner_that_dies_between_two_looks_keeps_nothing(locks: Locks) -> None:
    one, two = foreign(locks), foreign(locks, "wconfd")
    locks.take(one, (NODE_A, "exclusive"))
    locks.actor.ask(messages.ReleaseLocks(one))
    locks.kill(one)
    # On its way when its sender died.
    locks.take(one, (NODE_A, "exclusive"))
    asker = locks.ask(two, (NODE_A, "exclusive"))
    sweep(locks)
    assert asker.answers == [LocksPending([one]), LocksGranted()]
    refused = locks.actor.say(messages.TryLocks(one, [])).refusal
    assert refused[0] == "FencedOwnerError"


def test_a_successor_looks_at_foreign_owners_again(locks: Locks) -> None:
    one = foreign(locks)
    locks.take(one, (NODE_A, "exclusive"))
    locks.actor = locks.stage.start(LockManager)
    locks.kill(one)
    sweep(locks)
    assert locks.on_disk() == {}


def test_an_owner_whose_locks_were_taken_away_gets_no_others(locks: Locks) -> None:
    locks.stage.today = 1_800_000_000.0
    one = foreign(locks)
    locks.take(one, (NODE_A, "exclusive"))
    locks.kill(one)
    sweep(locks)
    # It holds its lock file again, as a program does that has only dropped it for a while.
    locks.held[one] = lock_files.create(locks.stage.places.lock_files, "luxid")
    assert locks.held[one].path == one.lock_file
    text = (
        f"'luxid' (pid {os.getpid()}) lost its locks at 2027-01-15 08:00:00 UTC, because no"
        f" process held its lock file {one.lock_file};"
        " an owner that lost its locks gets no others"
    )
    expected = ("FencedOwnerError", text)
    for _ in range(2):
        assert locks.request(one, (NODE_A, "shared")).refusal == expected
        assert locks.actor.say(messages.TryLocks(one, [])).refusal == expected
        assert locks.actor.say(messages.TakeFreeLocks(one, [])).refusal == expected
        # Nor from a successor.
        locks.actor = locks.stage.start(LockManager)


def test_the_oldest_fences_are_forgotten(locks: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_watch, "FENCED_MAX", 2)
    for number in range(3):
        one = foreign(locks, f"luxid{number}")
        locks.take(one, (NODE_A, "exclusive"))
        locks.kill(one)
        sweep(locks)
    fenced = [owner.identifier for owner in locks.actor.component._owners.fenced]
    assert fenced == ["luxid1", "luxid2"]


# Watchers.


def test_who_awaits_a_change_gets_it_when_it_is_on_disk(locks: Locks) -> None:
    one = locks.owner(1)
    now = locks.question(messages.ListLocks()).answer_as(messages.LocksListed)
    assert now.rows == []
    asker = locks.actor.ask(messages.AwaitLocks(now.revision, 30.0))
    assert asker.answers == []
    with refusing("pwrite"), refusing("write"):
        locks.ask(one, (NODE_A, "shared"))
    assert asker.answers == []
    locks.stage.run_timers()
    locks.actor.turn(*locks.stage.take(messages.DiskRetried))
    locks.work_beside()
    found = asker.answer_as(messages.LocksListed)
    assert [row.name for row in found.rows] == ["node/[lockset]", NODE_A]
    assert found.revision > now.revision
    # Who is behind gets an answer at once.
    again = locks.question(messages.AwaitLocks(now.revision, 30.0))
    assert again.answer == found


def test_without_a_change_the_answer_comes_after_the_time(locks: Locks) -> None:
    now = locks.question(messages.ListLocks()).answer_as(messages.LocksListed)
    asker = locks.actor.ask(messages.AwaitLocks(now.revision, 30.0))
    [timer] = locks.stage.timers
    assert timer.seconds == 30.0
    locks.stage.run_timers()
    locks.actor.turn(*locks.stage.take(messages.LocksAwaitedTooLong))
    locks.work_beside()
    assert asker.answer == now


def test_a_revision_of_a_predecessor_is_another_one(locks: Locks) -> None:
    now = locks.question(messages.ListLocks()).answer_as(messages.LocksListed)
    locks.actor = locks.stage.start(LockManager)
    asker = locks.question(messages.AwaitLocks(now.revision, 30.0))
    found = asker.answer_as(messages.LocksListed)
    assert found.revision > now.revision
