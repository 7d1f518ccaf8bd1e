"""The lock manager tells the scheduler what owners hold: only changes, and only of held locks."""

from __future__ import annotations

from tests.actors.locks.lock_stage import NODE_A, NODE_B, Locks
from tests.actors.runtime.stage import Stage

from ganger.actors.locks.lock_manager import LockManager
from ganger.storage.locks.locks import CONFIG_LOCK, Owner
from ganger.storage.prediction.lock_types import (
    NO_LOCKS,
    LockForecast,
    exclusive,
    forecast_of,
    shared,
)
from ganger.transport import messages

A = forecast_of(node=exclusive(["a"]))


def reported(locks: Locks) -> list[list[tuple[Owner, LockForecast | None]]]:
    """What was reported since the last time, by message."""
    found = locks.stage.take(messages.OwnersChanged, to="scheduler")
    assert not any(one.is_all for one in found)
    return [one.owners for one in found]


def without_big(forecast: LockForecast) -> LockForecast:
    return LockForecast(node=forecast.node, instance=forecast.instance)


def test_a_lock_manager_that_starts_reports_all_locks(stage: Stage) -> None:
    locks = Locks(stage)
    one, two = locks.holder_and_other()
    locks.ask(two, (NODE_A, "shared"))
    stage.make(LockManager, incarnation=2).turn(messages.Boot())
    report = stage.take(messages.OwnersChanged, to="scheduler")[-1]
    assert report == messages.OwnersChanged(owners=[(one, without_big(A))], is_all=True)


def test_one_message_tells_of_all_changes_of_a_turn(locks: Locks) -> None:
    one, two = locks.owner(1), locks.owner(2)
    locks.request(one, (NODE_A, "exclusive"))
    locks.request(two, (NODE_B, "shared"))
    locks.actor.end_turn()
    b = without_big(forecast_of(node=shared(["b"])))
    assert reported(locks) == [[(one, without_big(A)), (two, b)]]


def test_what_passes_from_one_owner_to_another_is_told_of_both(locks: Locks) -> None:
    one, two = locks.holder_and_other()
    locks.ask(two, (NODE_A, "exclusive"))
    reported(locks)
    locks.actor.ask(messages.ReleaseLocks(owner=one))
    [owners] = reported(locks)
    assert dict(owners) == {one: NO_LOCKS, two: without_big(A)}


def test_an_owner_that_only_waits_is_not_mentioned(locks: Locks) -> None:
    _, two = locks.holder_and_other()
    reported(locks)
    locks.ask(two, (NODE_A, "exclusive"))
    locks.actor.ask(messages.ReleaseLocks(owner=two))
    assert reported(locks) == []


def test_the_end_of_an_owner_is_told_once_and_apart_from_what_owners_give_back(
    locks: Locks,
) -> None:
    one, two = locks.holder_and_other()
    locks.take(two, (NODE_B, "exclusive"))
    reported(locks)
    locks.kill(one)
    ended = messages.OwnerEnded(lock_file=one.lock_file)
    locks.actor.turn(ended, messages.ReleaseLocks(owner=two))
    assert reported(locks) == [[(one, None), (two, NO_LOCKS)]]
    locks.actor.turn(ended)
    assert reported(locks) == []


def test_an_owner_that_gives_back_and_ends_in_one_turn_has_ended(locks: Locks) -> None:
    one, _ = locks.holder_and_other()
    reported(locks)
    locks.kill(one)
    ended = messages.OwnerEnded(lock_file=one.lock_file)
    locks.actor.turn(messages.ReleaseLocks(owner=one), ended)
    assert reported(locks) == [[(one, None)]]


def test_jobs_without_locks_and_the_configuration_lock_cost_no_message(locks: Locks) -> None:
    one = locks.owner(1)
    locks.actor.ask(messages.ReleaseLocks(owner=one))
    locks.actor.turn(messages.OwnerEnded(lock_file=one.lock_file))
    two = locks.owner(2)
    locks.take(two, (CONFIG_LOCK, "exclusive"))
    locks.actor.ask(messages.ReleaseLocks(owner=two))
    assert reported(locks) == []


def test_nothing_is_told_while_nobody_predicts(locks: Locks) -> None:
    locks.actor.turn(messages.ReportOwners(is_wanted=False))
    one = locks.owner(1)
    locks.take(one, (NODE_A, "exclusive"))
    assert reported(locks) == []
    locks.actor.turn(messages.ReportOwners())
    report = locks.stage.take_one(messages.OwnersChanged, to="scheduler")
    assert report == messages.OwnersChanged(owners=[(one, without_big(A))], is_all=True)
