"""The checker of histories: it accepts what a lock manager does, and finds one that is broken."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.actors.locks.lock_stage import Locks
from tests.actors.runtime.stage import Asker, Stage
from tests.torture.locks.linearizing import Operation, find_order
from tests.torture.locks.scripts import Step, script

from ganger.actors.locks import lock_manager
from ganger.actors.locks.allocating import Wants
from ganger.actors.locks.locking import LockState
from ganger.actors.locks.waiting import Position, Waiter
from ganger.storage.locks.locks import Owner
from ganger.transport.messages import (
    Done,
    DowngradeLocks,
    Failure,
    KeepLocks,
    LocksGranted,
    LocksPending,
    LocksTried,
    Message,
    ReleaseLocks,
    RequestLocks,
    TryLocks,
)

ONE, TWO, THREE = (Owner(number, f"/l/{number}", number) for number in (1, 2, 3))
NODE_A = [("node/a", "exclusive")]


def tried(owner: Owner, begun: int, ended: int, *blockers: Owner) -> Operation:
    return Operation(owner, TryLocks(owner, NODE_A), LocksTried([*blockers]), begun, ended)


def asked(owner: Owner, begun: int, ended: int, *blockers: Owner) -> Operation:
    reply = LocksPending([*blockers]) if blockers else LocksGranted()
    return Operation(owner, RequestLocks(owner, 0, NODE_A), reply, begun, ended)


def told(owner: Owner, begun: int, ended: int) -> Operation:
    return Operation(owner, None, LocksGranted(), begun, ended)


def released(owner: Owner, begun: int, ended: int) -> Operation:
    return Operation(owner, ReleaseLocks(owner), Done(), begun, ended)


LINEARIZABLE = {
    "nothing": [],
    "one after the other": [tried(ONE, 1, 2), tried(TWO, 3, 4, ONE), released(ONE, 5, 6)],
    "the second one came first": [tried(ONE, 1, 9, TWO), tried(TWO, 2, 8)],
    "a release that overlaps": [tried(ONE, 1, 2), released(ONE, 3, 9), tried(TWO, 4, 5)],
    "granted after waiting": [
        asked(ONE, 1, 2), asked(TWO, 3, 4, ONE), released(ONE, 5, 6), told(TWO, 4, 7),
    ],
    "granted before the releasing owner heard": [
        asked(ONE, 1, 2), asked(TWO, 3, 4, ONE), released(ONE, 5, 9), told(TWO, 4, 7),
    ],
    "a wait that was given up": [
        asked(ONE, 1, 2), asked(TWO, 3, 4, ONE), released(TWO, 5, 6), released(ONE, 7, 8),
    ],
    "in line": [
        asked(ONE, 1, 2), asked(TWO, 3, 4, ONE), asked(THREE, 5, 6, ONE), released(ONE, 7, 8),
        told(TWO, 4, 9), released(TWO, 10, 11), told(THREE, 6, 12),
    ],
    "never told, and rightly": [
        asked(ONE, 1, 2), asked(TWO, 3, 4, ONE), Operation(TWO, None, None, 9, 9),
    ],
}  # fmt: skip
BROKEN = {
    "both have it": [tried(ONE, 1, 2), tried(TWO, 3, 4)],
    "both have it, at the same time": [tried(ONE, 1, 4), tried(TWO, 2, 3)],
    "free, but refused": [tried(ONE, 1, 2), released(ONE, 3, 4), tried(TWO, 5, 6, ONE)],
    "told before it was free": [
        asked(ONE, 1, 2), asked(TWO, 3, 4, ONE), told(TWO, 4, 5), released(ONE, 6, 7),
    ],
    "never told": [
        asked(ONE, 1, 2), asked(TWO, 3, 4, ONE), released(ONE, 5, 6),
        Operation(TWO, None, None, 9, 9),
    ],
    "told twice": [
        asked(ONE, 1, 2), asked(TWO, 3, 4, ONE), released(ONE, 5, 6), told(TWO, 4, 7),
        told(TWO, 4, 8),
    ],
    "in the wrong order": [
        asked(ONE, 1, 2), asked(TWO, 3, 4, ONE), asked(THREE, 5, 6, ONE), released(ONE, 7, 8),
        told(THREE, 6, 9), released(THREE, 10, 11), told(TWO, 4, 12),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", LINEARIZABLE)
def test_a_history_that_one_order_explains_is_linearizable(name: str) -> None:
    order = find_order(LINEARIZABLE[name])
    assert order is not None
    assert sorted(map(str, order)) == sorted(map(str, LINEARIZABLE[name]))


@pytest.mark.parametrize("name", BROKEN)
def test_a_history_that_no_order_explains_is_found(name: str) -> None:
    assert find_order(BROKEN[name]) is None


# A lock manager on the stage, with and without faults.


class GrantsConflicting(LockState):
    """Overlooks an owner that holds the lock, if there is only one."""

    def _obstacles(
        self, owner: Owner, wants: Wants, position: Position
    ) -> tuple[set[Owner], list[Waiter]]:
        holding_up, harmed = super()._obstacles(owner, wants, position)
        return (set() if len(holding_up) == 1 else holding_up), harmed


class LosesWakeUps(LockState):
    """Tries no request again when an owner gives back its locks."""

    def release_owner(self, owner: Owner) -> tuple[Owner, ...]:
        self._drop(owner)
        return ()


class ServesTheLastFirst(LockState):
    """Lets new requests pass those in line."""

    def _obstacles(
        self, owner: Owner, wants: Wants, position: Position
    ) -> tuple[set[Owner], list[Waiter]]:
        holding_up, _ = super()._obstacles(owner, wants, position)
        return holding_up, []


class ForgetsNews(lock_manager.LockManager):
    """Grants what waits, but does not say so."""

    def _wake(self, woken: Iterable[Owner]) -> None:
        for owner in woken:
            self._waiting.pop(owner, None)


@dataclass
class Player:
    """An owner on the stage."""

    owner: Owner
    steps: list[Step]
    begun: int = 0
    message: Message | None = None
    """What it has said, until that is answered; None: it waits for its grant, if at all."""
    asker: Asker | None = None
    waits: Asker | None = None
    waits_since: int = 0
    is_patient: bool = True

    @property
    def is_idle(self) -> bool:
        return self.message is None and not (self.waits is not None and self.is_patient)


def play(locks: Locks, dice: random.Random, owners: list[Owner]) -> list[Operation]:
    """A history on the stage: in each turn some owners speak, and all replies come at its end."""
    history: list[Operation] = []
    now = 0
    players = [Player(owner, script(owner, dice)) for owner in owners]
    while ready := [one for one in players if one.is_idle and one.steps]:
        for player in dice.sample(ready, dice.randint(1, len(ready))):
            now += 1
            player.message, player.is_patient = player.steps.pop(0)
            player.begun, player.asker = now, locks.actor.say(player.message, number=now)
        locks.actor.end_turn()
        for player in players:
            now += 1
            _hear(player, now, history)
    # Each owner that has not reached its end waits, and no other one holds anything.
    history += [Operation(one.owner, None, None, now, now) for one in players if not one.is_idle]
    return history


def _hear(player: Player, now: int, history: list[Operation]) -> None:
    asker, message = player.asker, player.message
    if asker is not None and message is not None:
        reply = asker.answers[0]
        history.append(Operation(player.owner, message, reply, player.begun, now))
        player.message = None
        is_withdrawn = isinstance(message, ReleaseLocks | DowngradeLocks | KeepLocks)
        if isinstance(reply, LocksPending):
            player.waits, player.waits_since = asker, player.begun
        elif (is_withdrawn and not isinstance(reply, Failure)) or isinstance(reply, LocksGranted):
            player.waits = None
    if player.waits is not None and len(player.waits.answers) > 1:
        history.append(Operation(player.owner, None, LocksGranted(), player.waits_since, now))
        player.waits = None


def faults_found(tmp_path: Path, count: int) -> int:
    """How many of so many histories on the stage are not linearizable."""
    found = 0
    stage = Stage(tmp_path)
    for case in range(count):
        locks = Locks(stage)
        owners = [locks.owner(number) for number in range(1, 5)]
        found += find_order(play(locks, random.Random(f"stage {case}"), owners)) is None
        for owner in owners:
            locks.actor.ask(ReleaseLocks(owner))
            locks.kill(owner)
        locks.actor.close()
        for path in (stage.places.locks, stage.places.lock_journal):
            path.unlink()
    stage.daemon_lock.remove()
    return found


def test_every_history_of_the_lock_manager_is_linearizable(tmp_path: Path) -> None:
    assert faults_found(tmp_path, 100) == 0


@pytest.mark.parametrize("broken", [GrantsConflicting, LosesWakeUps, ServesTheLastFirst])
def test_a_broken_lock_state_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: type[LockState]
) -> None:
    monkeypatch.setattr(lock_manager, "LockState", broken)
    assert faults_found(tmp_path, 30) > 0


def test_a_lock_manager_that_does_not_tell_of_a_grant_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_manager.LockManager, "_wake", ForgetsNews._wake)
    assert faults_found(tmp_path, 30) > 0
