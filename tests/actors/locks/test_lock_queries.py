"""Queries for locks: what is held and wanted, and the jobs that others depend on."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.actors.locks.lock_stage import NODE_A, NODE_B, Locks
from tests.actors.runtime.stage import Asker
from tests.core_alone import NEEDS_HIDDEN

from ganger.storage import settings
from ganger.transport import messages
from ganger.transport.messages import LockRow

pytestmark = NEEDS_HIDDEN


FIELDS = ["name", "mode", "owner", "pending"]


def answer(locks: Locks, asker: Asker, *rows: LockRow) -> list[list[Any]]:
    """The values of the answer when the queue has said which jobs others depend on."""
    [asked] = locks.stage.take_requests(messages.ListDependencies)
    assert asker.answers == []
    asked.reply(messages.DependenciesListed(rows=list(rows)))
    locks.actor.handle_mail()
    locks.actor.end_turn()
    locks.work_beside()
    found = asker.answer_as(messages.QueryAnswered)
    assert found.next_after is None
    return [[value for _, value in row] for row in json.loads(found.rows)]


def test_locks_and_awaited_jobs_are_one_list(locks: Locks) -> None:
    one, two = locks.holder_and_other()
    locks.ask(two, (NODE_A, "shared"), (NODE_B, "shared"))
    pending = [("success,error", ["job/8", "job/9"])]
    awaited = LockRow(name="job/7", mode=None, owners=[], pending=pending)
    asker = locks.actor.ask(messages.QueryLocks(FIELDS))
    assert answer(locks, asker, awaited) == [
        ["job/7", None, [], [["success,error", ["job/8", "job/9"]]]],
        ["node/[lockset]", None, [], []],
        [NODE_A, "exclusive", ["1"], [["shared", ["2"]]]],
        [NODE_B, None, [], [["shared", ["2"]]]],
    ]
    assert (one.identifier, two.identifier) == (1, 2)


def test_the_locks_are_those_of_the_moment_of_the_answer(locks: Locks) -> None:
    asker = locks.actor.ask(messages.QueryLocks(["name"], ["==", "name", NODE_A]))
    locks.holder_and_other()
    assert answer(locks, asker) == [[NODE_A]]


def test_all_pages_are_of_one_state(locks: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = locks.holder_and_other()
    monkeypatch.setattr(settings, "QUERY_PAGE_BYTES_MAX", 1)
    query = messages.QueryLocks(["name", "owner"])
    asker = locks.actor.ask(query)
    [asked] = locks.stage.take_requests(messages.ListDependencies)
    asked.reply(messages.DependenciesListed(rows=[]))
    locks.actor.handle_mail()
    locks.actor.end_turn()
    locks.work_beside()
    first = asker.answer_as(messages.QueryAnswered)
    locks.actor.ask(messages.ReleaseLocks(owner=one))
    again = msgspec.structs.replace(query, after=first.next_after)
    second = locks.actor.ask(again).answer_as(messages.QueryAnswered)
    assert json.loads(second.rows) == [[[0, NODE_A], [0, ["1"]]]]
    assert second.next_after is None
    # The answer is complete: another one begins anew, also behind a mark.
    asker = locks.actor.ask(again)
    assert answer(locks, asker) == []


def test_a_wrong_query_is_refused(locks: Locks) -> None:
    asker = locks.actor.ask(messages.QueryLocks(["name"], ["==", "nosuch", 1]))
    [asked] = locks.stage.take_requests(messages.ListDependencies)
    asked.reply(messages.DependenciesListed(rows=[]))
    locks.actor.handle_mail()
    locks.actor.end_turn()
    locks.work_beside()
    assert asker.refusal == ("ParameterError", "Can't find field named 'nosuch'")
