"""D11: whatever comes in at a door, the daemon neither stops nor grows without bound.

Nearly all frames go through the real decoder in this process, which must either give a frame
or say what is wrong with it. A few thousand go to a real daemon, from sockets that never read their
answers, beside raw connections that stay half open; an ordinary client must be served meanwhile.
"""

from __future__ import annotations

import contextlib
import random
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgpack
import psutil
import zmq
from tests.faults.harness import Daemon
from tests.torture.tally import Tally

from ganger.storage import errors, settings
from ganger.transport import frames, messages
from ganger.transport.messages import PROTOCOL

GROWTH_MAX_BYTES = 25 * settings.FRAME_BYTES_MAX
REAL_FRAMES_MAX = 3_000
"""How many frames go to the real daemon; the others are decoded here."""

ALLOWED = messages.ClientRequest | messages.JobMessage
_DOORS = (messages.ClientRequest, messages.JobMessage, messages.ClientReply, messages.ToJob)
KINDS = sorted({str(kind.__struct_config__.tag) for door in _DOORS for kind in get_args(door)})
FIELDS = sorted(
    {name for door in _DOORS for kind in get_args(door) for name in kind.__struct_fields__}
)
HARMLESS = (b"stop_daemon", b"crash_component", b"submit_jobs", b"retry_job", b"replace_filter")
"""Requests that, by chance, might be understood, and do something: not sent to the daemon."""


def run_fuzzed_frames(count: int, seed: int, folder: Path) -> Tally:
    """Decode ``count`` frames, of which some thousands are also sent to a real daemon."""
    tally = Tally()
    chance = random.Random(seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024
    for number in range(count):
        data = _frame(chance)
        try:
            frames.decode(data, ALLOWED)
        except errors.FrameError:
            pass
        except BaseException as error:  # noqa: BLE001 - whatever else it is, it is wrong
            tally.failed(f"seed {seed} frame {number}: {error!r:.200} for {data[:80]!r}")
            continue
        tally.passed()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024 - before
    if grown > GROWTH_MAX_BYTES:
        tally.failed(f"seed {seed}: the decoder has grown by {grown:,} bytes")
    tally.figures["decoder"] = f"{grown / 2**20:+.0f} MiB"
    _attack(min(REAL_FRAMES_MAX, max(300, count // 20)), chance, folder, tally)
    return tally


# ---------------------------------------------------------------- a real daemon


def _attack(count: int, chance: random.Random, folder: Path, tally: Tally) -> None:
    with Daemon(folder) as daemon, daemon.client() as client:
        process = psutil.Process(client.info().pid)
        before = process.memory_info().rss
        with contextlib.ExitStack() as stack:
            dealers = _dealers(stack, daemon)
            for number in range(count):
                frame = _frame(chance)
                if any(word in frame for word in HARMLESS):
                    continue
                with contextlib.suppress(zmq.Again):
                    chance.choice(dealers).send_multipart(_parts(frame, chance), zmq.DONTWAIT)
                if number % 50 == 0:
                    _connect_raw(stack, daemon, chance)
                    # An ordinary client is served while all this comes in.
                    client.info(timeout=20)
            client.wait(client.submit(_delay(), timeout=20), timeout=30)
        info = client.info(timeout=20)
        grown = process.memory_info().rss - before
        restarted = [part.name for part in info.components if part.restarts]
        if info.pid != process.pid or restarted:
            tally.failed(f"the daemon was replaced, or {restarted} were")
        elif grown > GROWTH_MAX_BYTES:
            tally.failed(f"the daemon has grown by {grown:,} bytes")
        else:
            tally.passed()
        tally.figures["daemon"] = f"{count} frames, {grown / 2**20:+.0f} MiB"


def _delay() -> dict[str, Any]:
    return {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": False}


def _dealers(stack: contextlib.ExitStack, daemon: Daemon) -> list[Any]:
    context = stack.enter_context(zmq.Context())
    found = []
    for _ in range(8):
        dealer = stack.enter_context(context.socket(zmq.DEALER))
        dealer.linger = 0
        # What comes back is never read.
        dealer.rcvhwm = 1
        dealer.connect(f"ipc://{daemon.places.socket}")
        found.append(dealer)
    return found


def _parts(frame: bytes, chance: random.Random) -> list[bytes]:
    match chance.randrange(6):
        case 0:
            return [b"", frame]
        case 1:
            return [frame] * chance.randint(2, 50)
        case 2:
            return [b""]
        case _:
            return [frame]


def _connect_raw(stack: contextlib.ExitStack, daemon: Daemon, chance: random.Random) -> None:
    """A connection that says something else than a ZeroMQ peer does, or nothing, and stays."""
    raw = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    raw.settimeout(0)
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL"
    said = chance.choice([b"", greeting[: chance.randrange(14)], chance.randbytes(200), greeting])
    with contextlib.suppress(OSError):
        raw.connect(str(daemon.places.socket))
        raw.send(said)


# ---------------------------------------------------------------- frames


def _frame(chance: random.Random) -> bytes:
    match chance.randrange(8):
        case 0:
            return chance.randbytes(chance.randint(0, 200))
        case 1:
            return _bombs(chance)
        case 2 | 3:
            return _damaged(_packed(_envelope(chance)), chance)
        case _:
            return _packed(_envelope(chance))


def _packed(value: object) -> bytes:
    data: bytes = msgpack.packb(value, use_bin_type=True, default=str)
    return data


def _envelope(chance: random.Random) -> list[Any]:
    """Nearly a frame: each part is right most of the time."""
    version = chance.choice([PROTOCOL] * 8 + [0, 2, True, "1", None])
    number = chance.choice([1, 7, 2**31, 2**63 - 1, -1, "x", None, 0.5, True])
    deadline = chance.choice([None, None, 1.5, 0, -1, float("nan"), float("inf"), "soon"])
    parts: list[Any] = [version, number, deadline, _message(chance)]
    if chance.randrange(30) == 0:
        parts = parts[: chance.randrange(4)]
    return parts


def _message(chance: random.Random) -> Any:
    if chance.randrange(30) == 0:
        return _value(chance, 3)
    names = chance.sample(FIELDS, chance.randint(0, 6))
    body: dict[Any, Any] = {name: _value(chance, 3) for name in names}
    body["type"] = chance.choice([*KINDS, "no_such", 5])
    return body


def _value(chance: random.Random, depth: int) -> Any:
    simple: list[Any] = [
        None, True, 0, 1, -1, 2**63, -(2**63), 0.5, float("nan"), "", "x", "\x00", "success",
        b"\xff\xfe", b"x" * chance.randrange(300), [], {},
    ]  # fmt: skip
    if depth == 0 or chance.randrange(3):
        return chance.choice(simple)
    some = [_value(chance, depth - 1) for _ in range(chance.randrange(4))]
    return some if chance.randrange(2) else dict(enumerate(some))


def _damaged(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data) or 1)
    match chance.randrange(4):
        case 0:
            return data[:place]
        case 1:
            return data + data
        case 2:
            return data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]
        case _:
            return data[:place] + chance.randbytes(4) + data[place:]


def _bombs(chance: random.Random) -> bytes:
    """Small frames that claim to be, or to hold, something large; and large ones."""
    return chance.choice(list(_claims()))


def _claims() -> Iterator[bytes]:
    for head in (b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9"):
        yield head + b"\xff\xff\xff\xff"
        yield b"\x94\x01\x01\xc0" + head + b"\x7f\xff\xff\xff"
    yield b"\x91" * 5_000
    yield b"\x94\x01\x01\xc0" + b"\x81\xa1a" * 5_000
    yield b"\xd4\xff\x00"
    yield b"\x94\x01\x01\xc0\xd7\xff" + bytes(8)
    yield b"\xc1"
    yield b""
