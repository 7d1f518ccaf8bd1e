"""Questions about all locks: answered from copies, in a thread beside."""

from __future__ import annotations

from unittest import mock

import pytest
from tests.actors.locks.lock_stage import NODE_A, NODE_B, Locks

from ganger.actors.locks import lock_views
from ganger.actors.locks.locking import LockState
from ganger.storage import errors
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import LocksGranted


def names(listed: messages.LocksListed) -> list[str]:
    return [row.name for row in listed.rows]


def test_locks_are_granted_while_a_question_is_being_answered(locks: Locks) -> None:
    one, two = locks.owner(1), locks.owner(2)
    locks.take(one, (NODE_A, "exclusive"))
    asker = locks.actor.ask(messages.ListLocks())
    assert locks.ask(two, (NODE_B, "exclusive")).answer == LocksGranted()
    locks.actor.ask(messages.ReleaseLocks(owner=one))
    assert asker.answers == []
    locks.work_beside()
    # As it was when the copy was made.
    found = asker.answer_as(messages.LocksListed)
    assert names(found) == ["node/[lockset]", NODE_A]
    assert names(locks.question(messages.ListLocks()).answer_as(messages.LocksListed)) == [
        "node/[lockset]",
        NODE_B,
    ]


def test_all_that_ask_meanwhile_are_answered_from_one_copy(
    locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore = mock.Mock(side_effect=LockState.restore)
    monkeypatch.setattr(LockState, "restore", restore)
    one = locks.owner(1)
    askers = [locks.actor.ask(messages.ListLocks()) for _ in range(3)]
    locks.take(one, (NODE_A, "exclusive"))
    askers.append(locks.actor.ask(messages.ReadLockTable()))
    assert len(locks.stage.timers) == 1
    locks.work_beside()
    lists = [asker.answer_as(messages.LocksListed) for asker in askers[:3]]
    assert [names(found) for found in lists] == [[], *[["node/[lockset]", NODE_A]] * 2]
    assert [name for name, _ in askers[3].answer_as(messages.LockTable).held] == [
        "node/[lockset]",
        NODE_A,
    ]
    assert restore.call_count == 2


def test_the_answer_tells_since_when_locks_were_held_at_the_copy(locks: Locks) -> None:
    one, two = locks.holder_and_other()
    locks.ask(two, (NODE_A, "exclusive"))
    asker = locks.actor.ask(messages.ExplainOwner(lock_file=two.lock_file))
    locks.stage.today += 60.0
    locks.actor.ask(messages.ReleaseLocks(owner=one))
    locks.work_beside()
    [want] = asker.answer_as(messages.OwnerExplained).locks
    assert want.holders == [(1, "exclusive", locks.stage.today - 60.0)]


def test_a_question_that_cannot_be_answered_is_refused_and_spoils_no_other(
    locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        lock_views, "simulated", mock.Mock(side_effect=errors.BadRequestError("nothing ends"))
    )
    first = locks.actor.say(messages.SimulateLocks(ended=[]))
    second = locks.actor.ask(messages.ListLocks())
    locks.work_beside()
    assert first.refusal == ("BadRequestError", "nothing ends")
    assert second.answer_as(messages.LocksListed).rows == []


def test_an_error_of_ours_ends_the_lock_manager(
    locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_views, "waits", mock.Mock(side_effect=ZeroDivisionError))
    locks.actor.ask(messages.ReadLockWaits())
    locks.stage.run_timers()
    [answered] = locks.stage.take(messages.QuestionsAnswered)
    locks.actor.actor.handle(Envelope(answered))
    [failed] = locks.stage.take(messages.ComponentFailed)
    assert failed.component == "lock_manager"
    assert "ZeroDivisionError" in failed.text
