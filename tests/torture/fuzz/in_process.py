"""Hostile frames in this process: through the listener's own code, and on into the single writers.

Each frame goes to the real listener, whose sockets alone are replaced. It must be answered with
an error, or passed on to its receiver: one of the two, once. What is passed on to the job
queue, the lock manager or the configuration store is handled there, each on a stage of its own;
an unexpected error shows as the failure of a component. Some frames go to the listener of a process
of the lock manager as well, which must refuse all of them: no job has proved itself there.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

from tests.actors.listeners.test_wire_listener import Sockets
from tests.actors.runtime.stage import Asker, Stage, Staged
from tests.torture.fuzz import frame_maker

from ganger.actors.config.config_store import ConfigStore
from ganger.actors.listeners.authority_listener import AuthorityListener
from ganger.actors.listeners.wire_listener import WireListener
from ganger.actors.locks.lock_manager import LockManager
from ganger.actors.queue.job_queue import JobQueue
from ganger.storage import errors
from ganger.storage.access import keys
from ganger.transport import frames, messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import JobSpec
from ganger.transport.zmq.peers import Credentials, Incoming

LOCAL = Credentials(kind="local", uid=os.geteuid(), pid=2**22 + 1)
STRANGER = Credentials(kind="local", uid=2**30, pid=2**22 + 1)
REMOTE = Credentials(kind="remote", key="x" * 40, address="192.0.2.1")
TURN_FRAMES = 8
"""Frames between two ends of a turn, which cost a flush each."""

ROUND_FRAMES = 20_000
"""Frames for one queue directory, after which another one is begun."""

_DELAY: dict[str, Any] = {"OP_ID": "OP_TEST_DELAY", "duration": 1.0}


def fuzz_listeners(count: int, seed: int, folder: Path) -> Iterator[str]:
    """What was wrong with each frame; nothing: all was well."""
    for first in range(0, count, ROUND_FRAMES):
        numbers = range(first, min(first + ROUND_FRAMES, count))
        yield from _fuzz_round(numbers, seed, folder / str(first))
        # Jobs and rules that were stored are kept, as they must be, and so is the stage's log.
        shutil.rmtree(folder / str(first))


def _fuzz_round(numbers: range, seed: int, folder: Path) -> Iterator[str]:
    with ExitStack() as stack:
        listener = FuzzedListener(folder / "listener")
        stack.callback(listener.close)
        apart = FuzzedAuthority(folder / "apart")
        stack.callback(apart.close)
        writers = _Writers(folder)
        # Those that live in the end: after an error there are others.
        stack.callback(lambda: writers.close())  # noqa: PLW0108
        for number in numbers:
            dice = random.Random(f"{seed}-door-{number}")
            try:
                is_end = number % TURN_FRAMES == 0
                problem = _one(listener, writers, dice, is_end=is_end)
                if is_end:
                    problem = problem or apart.refuse(frame_maker.frame(dice))
            except Exception as error:  # noqa: BLE001 - every error is unexpected here
                problem = f"{str(error)[:300]!r}"
                # As the supervisor would: a new one on the same directory.
                writers.close()
                writers = _Writers(folder)
            yield f"listener frame {number}: {problem}" if problem else ""


def _one(listener: FuzzedListener, writers: _Writers, dice: random.Random, *, is_end: bool) -> str:
    data = frame_maker.frame(dice)
    identity = dice.choice((LOCAL, LOCAL, LOCAL, LOCAL, STRANGER, REMOTE))
    passed, answers = listener.take(data, identity)
    if len(passed) + len(answers) != 1:
        return f"{len(passed)} messages and {len(answers)} answers were sent for {data[:80]!r}"
    try:
        expected = frames.decode(data, frame_maker.DOOR)
    except errors.FrameError as error:
        # An unknown peer is refused before its frame is read.
        number = 0 if identity is STRANGER else getattr(error, "number", 0)
        right = bool(answers) and answers[0][0] == number
        return "" if right else f"{answers} instead of one under {number} for {data[:80]!r}"
    if identity is STRANGER and not answers:
        return f"another user was heard: {type(expected.message).__name__}"
    is_jobs = isinstance(expected.message, messages.JOB_MESSAGES)
    if identity is REMOTE and is_jobs and not answers:
        return f"a peer that is no job sent a job's message: {type(expected.message).__name__}"
    if identity is LOCAL and not is_jobs and answers:
        return f"refused: {answers[0]} for {type(expected.message).__name__}"
    for receiver, envelope in passed:
        writers.take(receiver, envelope, is_end=is_end)
    return ""


class FuzzedListener:
    """The listener on a stage."""

    def __init__(self, root: Path) -> None:
        self._stage = Stage(root)
        assert REMOTE.key is not None
        keys.authorise(self._stage.places.keys, REMOTE.key, "fuzzing")
        self._actor = self._start()
        sockets: Any = self._actor.component._router
        self._sockets: Sockets = sockets
        self._peers = 0

    def _start(self) -> Staged[Any]:
        with mock.patch("ganger.actors.listeners.wire_listener.Router", Sockets):
            return self._stage.start(WireListener)

    def take(
        self, data: bytes, identity: Credentials
    ) -> tuple[list[tuple[str, Envelope]], list[tuple[int, str]]]:
        """What it passes on, and what it answers: number and error."""
        self._stage.requests.clear()
        self._stage.sent.clear()
        self._sockets.sent.clear()
        self._peers += 1
        peer = b"L" + self._peers.to_bytes(5, "big")
        self._sockets.coming = deque([Incoming(peer, data, identity)])
        self._actor.end_turn()
        # The peer leaves, so that nothing of it is kept.
        passed = list(self._stage.requests)
        self._actor.component._forget_peer(peer)
        return passed, [_read(sent) for sent in self._sockets.sent]

    def close(self) -> None:
        self._actor.close()
        self._stage.daemon_lock.remove()


class FuzzedAuthority(FuzzedListener):
    """The listener of a process that has the lock manager for itself, on a stage."""

    def _start(self) -> Staged[Any]:
        components = {"lock_manager": (LockManager, "core")}
        socket = self._stage.places.authority_socket
        given = socket, components, lambda: None, lambda _: None
        with mock.patch("ganger.actors.listeners.authority_listener.Router", Sockets):
            actor = self._stage.make(AuthorityListener, *given)
            actor.say(messages.Boot())
            actor.end_turn()
        return actor

    def refuse(self, data: bytes) -> str:
        """What is wrong if it does not."""
        passed, answers = self.take(data, LOCAL)
        if passed or len(answers) != 1:
            return f"apart: {passed} and {answers} for {data[:80]!r}"
        return ""


def _read(data: bytes) -> tuple[int, str]:
    answer = frames.decode(data, messages.ClientReply)
    assert isinstance(answer.message, messages.Failure), answer
    return answer.number, answer.message.error


class _Writers:
    """The job queue, the lock manager and the configuration store, each on its stage."""

    def __init__(self, folder: Path) -> None:
        kinds = {"job_queue": JobQueue, "lock_manager": LockManager, "config_store": ConfigStore}
        self._stages = {name: Stage(folder / name) for name in kinds}
        self._actors: dict[str, Staged[Any]] = {}
        for name, stage in self._stages.items():
            self._actors[name] = stage.start(kinds[name])
        queue = self._actors["job_queue"]
        if not queue.ask(messages.ListJobs()).answer_as(messages.JobRows).rows:
            specs = [JobSpec(ops=[dict(_DELAY)]) for _ in range(6)]
            queue.ask(messages.SubmitJobs(jobs=specs, key="key"))
            queue.ask(messages.CancelJob(id=1))
            queue.ask(messages.CancelJob(id=2))
            queue.ask(messages.ArchiveJob(id=1))

    def take(self, receiver: str, envelope: Envelope, *, is_end: bool) -> None:
        """Let the receiver handle it; now and then its turn ends."""
        actor = self._actors.get(receiver)
        if actor is None:
            # The supervisor and the executor are met with a real daemon.
            return
        message = envelope.message
        actor.handle(Envelope(message, Asker(), envelope.number, envelope.deadline, envelope.peer))
        if isinstance(message, messages.SetDrain) and message.is_drained:
            actor.ask(messages.SetDrain(is_drained=False))
        if is_end:
            actor.end_turn()
        self._stages[receiver].sent.clear()
        self._stages[receiver].requests.clear()

    def close(self) -> None:
        """Close all of them, whatever became of them."""
        for name, actor in self._actors.items():
            actor.close()
            self._stages[name].daemon_lock.remove()
