"""Hostile frames to a real daemon, over real sockets, while an ordinary client is served.

One sender reads its answers: every frame that no decoder takes must have been refused, under its
number if that can be read, before the answer to a good request sent after it; every request that
can be answered at once must have been answered. Others send messages in several parts, never
read, or do not speak the protocol at all.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import zmq
from tests.faults.harness import Daemon
from tests.torture.fuzz import frame_maker

from ganger import Client
from ganger.storage import errors, settings
from ganger.transport import frames, messages

BATCH_FRAMES = 50
PATIENCE_SECONDS = 20
"""How long an ordinary client waits for any of its answers."""

GROWTH_MAX_BYTES = 25 * settings.FRAME_BYTES_MAX

DELAY: dict[str, Any] = {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": False}

_KEPT_BACK = (messages.StopDaemon, messages.CrashComponent)
"""What would do what it says: the tests' daemon lets its components be crashed."""

_MAY_WAIT_FOR_EVER = ("WatchJobs", "AttachJob", "RequestLocks")
"""Requests whose last answer comes when something happens that need not happen."""


def fuzz_daemon(count: int, seed: int, folder: Path) -> Iterator[str]:
    """What was wrong after each batch of frames; nothing: all was well."""
    with Daemon(folder) as daemon, daemon.client() as client, ExitStack() as stack:
        before = Look(client)
        context = stack.enter_context(zmq.Context())
        sender = _Sender(stack, context, daemon)
        deaf = [_dealer(stack, context, daemon) for _ in range(4)]
        for _ in range(3):
            client.submit(DELAY, timeout=PATIENCE_SECONDS)
        for batch in range(max(1, count // BATCH_FRAMES)):
            dice = random.Random(f"{seed}-daemon-{batch}")
            _shout(deaf, dice)
            _connect_raw(stack, daemon, dice)
            problem = sender.send(dice) or before.compare(client)
            yield f"daemon batch {batch}: {problem}" if problem else ""
        _tidy(client)
        client.wait(client.submit(DELAY, timeout=PATIENCE_SECONDS), timeout=PATIENCE_SECONDS)
        problem = sender.finish() or before.compare(client)
        yield f"daemon after {count} frames: {problem}" if problem else ""


class Look:
    """What the daemon was like before, to be compared with what it is like now."""

    def __init__(self, client: Client) -> None:
        self.pid = client.info(timeout=PATIENCE_SECONDS).pid
        self._memory = psutil.Process(self.pid).memory_info().rss
        self._noted: Counter[str] = Counter()
        # From here on the kernel notes the highest use anew.
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def grown(self) -> int:
        """By how many bytes it has grown at most."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
        return peak * 1_024 - self._memory

    def compare(self, client: Client) -> str:
        """What has changed that may not."""
        info = client.info(timeout=PATIENCE_SECONDS)
        restarts = Counter({part.name: part.restarts for part in info.components if part.restarts})
        new, self._noted = restarts - self._noted, restarts
        if info.pid != self.pid:
            return "there is another daemon"
        if new:
            return f"components failed: {dict(new)}"
        if info.is_read_only:
            return "the queue takes no changes"
        if self.grown() > GROWTH_MAX_BYTES:
            return f"the daemon has grown by {self.grown():,} bytes"
        return ""


class _Sender:
    """A peer that sends anything, and reads what comes back."""

    def __init__(self, stack: ExitStack, context: zmq.Context[Any], daemon: Daemon) -> None:
        self._socket = _dealer(stack, context, daemon, is_paused=False)
        self._numbers = itertools.count(1_000)
        # So far from the others that no damage makes one of these of them.
        self._last_numbers = itertools.count(2**40)
        self._open: dict[int, str] = {}

    def send(self, dice: random.Random) -> str:
        """Send a batch; what of it was not answered as it must be."""
        refused: Counter[int] = Counter()
        for _ in range(BATCH_FRAMES):
            data = frame_maker.frame(dice, next(self._numbers))
            try:
                frame = frames.decode(data, frame_maker.DOOR)
            except errors.FrameError as error:
                refused[getattr(error, "number", 0)] += 1
            else:
                if isinstance(frame.message, _KEPT_BACK):
                    continue
                if isinstance(frame.message, messages.Request):
                    self._open[frame.number] = type(frame.message).__name__
            self._socket.send(data)
        last = next(self._last_numbers)
        self._open[last] = "ReadInfo"
        self._socket.send(frames.encode(messages.ReadInfo(), last))
        answers = self._answers(last)
        if last in self._open:
            return f"no answer to a good request within {PATIENCE_SECONDS} s"
        # Refusals come from the listener itself, in order; other answers may come later.
        missing = refused - answers
        return f"unreadable frames were not refused: {dict(missing)}" if missing else ""

    def finish(self) -> str:
        """Which requests have never been answered, of those that need not wait for anything."""
        self._open = {
            number: name for number, name in self._open.items() if name not in _MAY_WAIT_FOR_EVER
        }
        self._answers(None)
        return f"never answered: {dict(Counter(self._open.values()))}" if self._open else ""

    def _answers(self, last: int | None) -> Counter[int]:
        """The numbers of all answers up to the one to ``last``; None: until nothing is open."""
        found: Counter[int] = Counter()
        while self._open and self._socket.poll(PATIENCE_SECONDS * 1_000):
            answer = frames.decode(self._socket.recv(), messages.ClientReply | messages.ToJob)
            found[answer.number] += 1
            self._open.pop(answer.number, None)
            if answer.number == last:
                break
        return found


def _dealer(
    stack: ExitStack, context: zmq.Context[Any], daemon: Daemon, *, is_paused: bool = True
) -> Any:
    dealer = stack.enter_context(context.socket(zmq.DEALER))
    dealer.linger = 0
    dealer.rcvhwm = 1 if is_paused else 0
    dealer.sndhwm = 1_000 if is_paused else 0
    dealer.connect(f"ipc://{daemon.places.socket}")
    return dealer


def _shout(deaf: list[Any], dice: random.Random) -> None:
    """Messages of several parts, and good ones whose answers are never read."""
    for dealer in deaf:
        parts = [b"", frame_maker.frame(dice), b"\0" * dice.choice((0, 5, 70_000))]
        several = dice.choice(([parts[0]], parts, parts[1:], [parts[2]] * dice.randint(2, 300)))
        asked = frames.encode(dice.choice((messages.ReadInfo(), messages.ListJobs())), 1)
        with contextlib.suppress(zmq.Again):
            # Never waiting: a peer that does not read does not see either that it was cut off, as
            # libzmq leaves a connection that cannot be written to only when reading fails too.
            said = [each for each in several if not _is_kept_back(each)] or [b""]
            dealer.send_multipart(said, zmq.DONTWAIT)
            for _ in range(dice.randrange(20)):
                dealer.send(asked, zmq.DONTWAIT)


def _is_kept_back(data: bytes) -> bool:
    try:
        return isinstance(frames.decode(data, frame_maker.DOOR).message, _KEPT_BACK)
    except errors.FrameError:
        return False


def _connect_raw(stack: ExitStack, daemon: Daemon, dice: random.Random) -> None:
    """A connection that says something else than a ZeroMQ peer does, or nothing, and stays."""
    if dice.randrange(3):
        return
    raw = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    raw.settimeout(0)
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL"
    said = (
        b"",
        greeting[: dice.randrange(14)],
        dice.randbytes(200),
        greeting,
        greeting + b"\xff" * 99,
    )
    with contextlib.suppress(OSError):
        raw.connect(str(daemon.places.socket))
        raw.send(dice.choice(said))


def _tidy(client: Client) -> None:
    """Take back what chance has asked for and what would hold back jobs for good."""
    client.drain(drained=False, timeout=PATIENCE_SECONDS)
    client.limits(running=settings.RUNNING_JOBS_MAX, timeout=PATIENCE_SECONDS)
    for rule in client.filters(timeout=PATIENCE_SECONDS):
        client.delete_filter(rule.uuid, timeout=PATIENCE_SECONDS)
