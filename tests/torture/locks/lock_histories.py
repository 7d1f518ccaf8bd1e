"""Histories of concurrent lock requests through a daemon's ZeroMQ door, judged (`linearizing`).

Several owners, each on a thread and a connection of its own, play scripts against each other on few
locks; in half of the histories the lock manager has a process of its own. Every request and every
reply gets the time of one clock. What repeats a run is the seed of its scripts; how they meet is
the machine's affair.
"""

from __future__ import annotations

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from tests.faults.harness import Daemon
from tests.torture.locks.linearizing import Operation, find_order
from tests.torture.locks.scripts import Step, script
from tests.torture.tally import Tally

from ganger.storage import settings
from ganger.storage.alive import lock_files
from ganger.storage.locks.locks import Owner
from ganger.transport import frames, messages
from ganger.transport.messages import ClientReply, LocksGranted, LocksPending, Message
from ganger.transport.zmq.dealer import Dealer

if TYPE_CHECKING:
    from pathlib import Path

OWNERS_MAX = 5
PATIENCE_SECONDS = 10.0
"""Far longer than the others need to their ends; who still waits then waits in vain."""

REPLIES = ClientReply | LocksGranted | LocksPending


def run_lock_histories(count: int, seed: int, folder: Path) -> Tally:
    """Record ``count`` histories: one order of its operations must explain each."""
    tally = Tally()
    operations = waits = overlaps = 0
    with ExitStack() as stack:
        everybody = []
        for placement in settings.PLACEMENTS:
            (folder / placement).mkdir()
            daemon = stack.enter_context(Daemon(folder / placement, placement=placement))
            everybody.append([stack.enter_context(each) for each in _players(daemon)])
        threads = stack.enter_context(ThreadPoolExecutor(OWNERS_MAX))
        for case in range(count):
            dice = random.Random(f"{seed} history {case}")
            players = everybody[case % len(everybody)]
            history = record(players[: dice.randint(2, OWNERS_MAX)], dice, threads)
            operations += len(history)
            waits += sum(one.message is None for one in history)
            overlaps += _overlaps(history)
            if find_order(history) is None:
                shown = "\n".join(str(one) for one in sorted(history, key=lambda one: one.begun))
                tally.failed(f"seed {seed} history {case} is not linearizable:\n{shown}")
            else:
                tally.passed()
    tally.figures = {
        "operations": str(operations),
        "grants after waiting": str(waits),
        "overlapping operations": str(overlaps),
    }
    return tally


def _players(daemon: Daemon) -> list[Player]:
    """Some ask the process of the lock manager itself, if it has one of its own."""
    sockets = [daemon.places.socket]
    if daemon.placement == "apart":
        sockets.append(daemon.places.authority_socket)
    return [Player(daemon, number, sockets[number % len(sockets)]) for number in range(OWNERS_MAX)]


def record(
    players: list[Player], dice: random.Random, threads: ThreadPoolExecutor
) -> list[Operation]:
    """Let the players play at the same time; everything that they said and heard."""
    start = threading.Barrier(len(players))
    scripts = [script(player.owner, dice) for player in players]
    playing = [
        threads.submit(player.play, steps, start)
        for player, steps in zip(players, scripts, strict=True)
    ]
    return [operation for one in playing for operation in one.result()]


def _overlaps(history: list[Operation]) -> int:
    """How many operations began while one of another owner was under way."""
    ordered = sorted(history, key=lambda one: one.begun)
    latest, found = 0, 0
    for one in ordered:
        found += one.begun < latest
        latest = max(latest, one.ended)
    return found


class Player:
    """An owner with a lock file and a connection of its own."""

    def __init__(self, daemon: Daemon, number: int, socket: Path) -> None:
        name = f"player-{number}"
        self._held = lock_files.create(daemon.places.lock_files, name)
        self.owner = Owner(name, self._held.path, os.getpid())
        self._dealer = Dealer(f"ipc://{socket}")
        self._number = 0
        self._waiting: int | None = None
        self._waiting_since = 0
        self._history: list[Operation] = []

    def __enter__(self) -> Self:
        self._call(messages.ReadOwner(self.owner))
        return self

    def __exit__(self, *_: object) -> None:
        self._dealer.close()
        self._held.remove()

    def play(self, steps: list[Step], start: threading.Barrier) -> list[Operation]:
        """Take the steps, one after the other."""
        self._history = []
        start.wait(PATIENCE_SECONDS)
        for step in steps:
            self._call(step.message)
            if self._waiting is not None and step.is_patient and not self._await_grant():
                break
        self._waiting = None
        return self._history

    def _call(self, message: Message) -> None:
        self._number += 1
        data = frames.encode(message, self._number)
        begun = time.monotonic_ns()
        while not self._dealer.send(data):
            self._dealer.receive(0.1)
            begun = time.monotonic_ns()
        reply, ended = self._receive(self._number)
        assert reply is not None, f"no reply to {message}"
        self._history.append(Operation(self.owner, message, reply, begun, ended))
        if isinstance(reply, LocksPending):
            self._waiting, self._waiting_since = self._number, ended
        elif isinstance(message, _WITHDRAWING) or isinstance(reply, LocksGranted):
            # The second reply to a request that was repeated is the only one.
            self._waiting = None

    def _await_grant(self) -> bool:
        if self._waiting is None:
            return True
        reply, ended = self._receive(self._waiting)
        if reply is None:
            # Every other owner has reached its end, and holds nothing.
            self._history.append(Operation(self.owner, None, None, ended, ended))
            self._call(messages.ReleaseLocks(self.owner))
            return False
        return True

    def _receive(self, number: int) -> tuple[Message | None, int]:
        """The reply to this request, and when it came; None: it did not come."""
        end = time.monotonic() + PATIENCE_SECONDS
        while (left := end - time.monotonic()) > 0:
            item = self._dealer.receive(left)
            now = time.monotonic_ns()
            if not isinstance(item, bytes):
                continue
            frame = frames.decode(item, REPLIES)
            is_grant = frame.number == self._waiting and isinstance(frame.message, LocksGranted)
            if is_grant:
                grant = Operation(self.owner, None, frame.message, self._waiting_since, now)
                self._history.append(grant)
                self._waiting = None
            if frame.number == number:
                return frame.message, now
        return None, time.monotonic_ns()


_WITHDRAWING = (messages.ReleaseLocks, messages.DowngradeLocks, messages.KeepLocks)
