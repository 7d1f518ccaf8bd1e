"""Once faults end, every owner that waits for locks is served, in the order of the line.

Owners that hold locks do not wait here, so the one exception to that order does not apply.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.actors.locks.lock_stage import Locks
from tests.actors.runtime.stage import Asker, Stage
from tests.properties.locking_model import LOCKS, conflict

from ganger.actors.locks.lock_manager import LockManager
from ganger.storage import errors
from ganger.storage.locks.lock_journal import LockJournal
from ganger.storage.locks.locks import LockMode, Owner, Pending
from ganger.transport import messages
from ganger.transport.messages import LocksGranted

FAULTS = ("restart", "restart", "death", "refusing disk", "lost repetition")
wants = st.dictionaries(
    st.sampled_from(LOCKS), st.sampled_from(["shared", "exclusive"]), min_size=1, max_size=2
)


class World:
    """A lock manager, owners that hold or wait, and faults."""

    def __init__(self, stage: Stage, locks: Locks) -> None:
        self.stage = stage
        self.locks = locks
        self.holders: set[Owner] = set()
        self.waiters: dict[Owner, tuple[Asker, messages.RequestLocks]] = {}
        self.served: list[Owner] = []

    def ask(self, number: int, priority: int, changes: dict[str, str]) -> None:
        """A new owner asks for locks."""
        owner = self.locks.owner(number)
        request = messages.RequestLocks(owner, priority, sorted(changes.items()))
        self.waiters[owner] = (self.locks.actor.ask(request), request)
        self.look()

    def look(self) -> None:
        """Which owners have been granted what they wait for?"""
        for owner, (asker, _) in list(self.waiters.items()):
            if LocksGranted() in asker.answers:
                del self.waiters[owner]
                self.holders.add(owner)
                self.served.append(owner)

    def line(self) -> list[Pending]:
        return list(self.locks.actor.component._state.snapshot().pending)

    def suffer(self, kind: str, data: st.DataObject) -> None:
        """One fault; no living owner loses its locks or its place."""
        before = self.line()
        dead: Owner | None = None
        match kind:
            case "restart":
                self.locks.actor.close()
                self.locks.actor = self.stage.start(LockManager)
            case "death":
                dead = data.draw(st.sampled_from(sorted({*self.holders, *self.waiters})))
                self.locks.kill(dead)
                self.holders.discard(dead)
                self.waiters.pop(dead, None)
                self.locks.actor.turn(messages.OwnerEnded(dead.lock_file))
            case "refusing disk":
                self.refuse_once(data)
            case _:
                # One of the owners hears nothing of it.
                self.repeat(data, leave_out=1)
        self.look()
        if kind != "death":
            assert self.line() == before

    def refuse_once(self, data: st.DataObject) -> None:
        """The disk takes no write; the turn is announced when it does."""
        owner = self.locks.owner(1_000 + data.draw(st.integers(0, 10**9)))
        refusal = errors.StorageError("no space left")
        refusing = mock.patch.multiple(
            LockJournal,
            append=mock.Mock(side_effect=refusal),
            begin=mock.Mock(side_effect=refusal),
        )
        with refusing:
            asker = self.locks.actor.ask(messages.TryLocks(owner, [("network/z", "shared")]))
            assert asker.answers == []
        self.locks.actor.turn(messages.DiskRetried())
        assert asker.answer == messages.LocksTried([])
        self.locks.actor.ask(messages.ReleaseLocks(owner))

    def repeat(self, data: st.DataObject, leave_out: int = 0) -> None:
        """The waiting owners repeat their requests, in any order."""
        order = data.draw(st.permutations(sorted(self.waiters)))
        for owner in order[leave_out:]:
            _, request = self.waiters[owner]
            self.waiters[owner] = (self.locks.actor.ask(request), request)
        self.look()

    def release(self, owner: Owner) -> None:
        self.holders.remove(owner)
        self.locks.actor.ask(messages.ReleaseLocks(owner))
        self.look()


@contextmanager
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder))
        locks = Locks(stage)
        try:
            yield World(stage, locks)
        finally:
            locks.actor.close()
            for held in locks.held.values():
                held.remove()
            stage.daemon_lock.remove()


@settings(max_examples=60)
@given(
    asked=st.lists(st.tuples(st.sampled_from([0, 0, -5]), wants), min_size=2, max_size=9),
    faults=st.lists(st.sampled_from(FAULTS), max_size=5),
    data=st.data(),
)
def test_when_faults_have_ended_all_waiting_owners_are_served_in_order(
    asked: list[tuple[int, dict[str, str]]], faults: list[str], data: st.DataObject
) -> None:
    with world() as made:
        for number, (priority, changes) in enumerate(asked, 1):
            made.ask(number, priority, changes)
        for kind in faults:
            if made.holders or made.waiters:
                made.suffer(kind, data)
        made.repeat(data)
        line = made.line()
        assert {pending.owner for pending in line} == made.waiters.keys()
        made.served.clear()
        while made.holders:
            made.release(data.draw(st.sampled_from(sorted(made.holders))))
        assert not made.waiters, "they wait for ever"
        assert sorted(made.served) == sorted(pending.owner for pending in line)
        for place, later in enumerate(line):
            for earlier in line[:place]:
                if conflict(modes(earlier), modes(later)):
                    assert made.served.index(earlier.owner) < made.served.index(later.owner)


def modes(pending: Pending) -> dict[str, LockMode]:
    return {lock: LockMode(change) for lock, change in pending.changes}
