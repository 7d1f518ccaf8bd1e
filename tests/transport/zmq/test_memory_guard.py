"""When connections are ended because the process grows, and which."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest
from tests.transport.zmq.routers import PATIENCE_SECONDS, client, connect, link, received, serve

from ganger.storage import settings
from ganger.storage.access import keys
from ganger.transport.zmq import memory_guard
from ganger.transport.zmq.connection_event import ConnectionEvent
from ganger.transport.zmq.dealer import Dealer
from ganger.transport.zmq.local_listener import KEPT_BYTES_MAX
from ganger.transport.zmq.memory_guard import (
    CALM_SECONDS,
    GROWTH_MAX_BYTES,
    MemoryGuard,
    ProcessMemory,
)
from ganger.transport.zmq.router import Router
from ganger.transport.zmq.sockets import new_key_pair

SIZE = 40 * 2**20
TOO_LARGE = SIZE + GROWTH_MAX_BYTES + 1


def test_growth_up_to_the_limit_ends_no_connection() -> None:
    judge = MemoryGuard(SIZE)
    assert not judge.is_suspected(SIZE + GROWTH_MAX_BYTES, 0.0)
    assert judge.look_seconds == memory_guard.LOOK_SECONDS
    assert judge.is_suspected(TOO_LARGE, 0.0)
    # The guard looks more often as long as it suspects a peer.
    assert judge.look_seconds == memory_guard.LOOK_SECONDS_SUSPECTED
    assert not judge.is_suspected(SIZE, 0.0)
    assert judge.look_seconds == memory_guard.LOOK_SECONDS


def test_growth_is_counted_from_the_smallest_size() -> None:
    judge = MemoryGuard(TOO_LARGE)
    assert not judge.is_suspected(SIZE, 0.0)
    assert judge.is_suspected(TOO_LARGE, 0.0)


def test_while_connections_are_ended_the_daemon_itself_has_not_grown() -> None:
    judge = MemoryGuard(SIZE)
    for now in range(100):
        assert judge.is_suspected(TOO_LARGE, now)
        # One look without a silent peer proves nothing.
        judge.ended(now % 2, TOO_LARGE, now)


def test_a_daemon_that_is_large_without_silent_peers_may_be_that_large() -> None:
    judge = MemoryGuard(SIZE)
    for _ in range(2):
        assert judge.is_suspected(TOO_LARGE, 0.0)
        judge.ended(0, TOO_LARGE, 0.0)
    assert not judge.is_suspected(TOO_LARGE + GROWTH_MAX_BYTES, 0.0)
    assert judge.is_suspected(TOO_LARGE + GROWTH_MAX_BYTES + 1, 0.0)
    # For a while, even if it shrinks: then that is what it is measured by.
    for now, is_calm in ((CALM_SECONDS - 1, True), (CALM_SECONDS, False)):
        assert not judge.is_suspected(SIZE, now)
        assert judge.is_suspected(TOO_LARGE, now) != is_calm


def test_looks_without_a_suspicion_do_not_count() -> None:
    judge = MemoryGuard(SIZE)
    for _ in range(3):
        assert judge.is_suspected(TOO_LARGE, 0.0)
        judge.ended(0, TOO_LARGE, 0.0)
        assert not judge.is_suspected(SIZE, 0.0)
    # Nor does one after which the system got its memory back.
    for _ in range(3):
        assert judge.is_suspected(TOO_LARGE, 0.0)
        judge.ended(0, SIZE, 0.0)


def test_what_was_explained_once_counts_for_a_while_after_it_has_gone() -> None:
    judge = MemoryGuard(SIZE)
    for _ in range(2):
        judge.ended(0, TOO_LARGE, 0.0)
    assert not judge.is_suspected(SIZE, CALM_SECONDS - 1)
    assert not judge.is_suspected(TOO_LARGE, CALM_SECONDS - 1)
    assert not judge.is_suspected(SIZE, CALM_SECONDS)
    assert judge.is_suspected(TOO_LARGE, CALM_SECONDS)


def test_the_size_is_that_of_this_process_and_shrinks_when_something_is_freed() -> None:
    size = ProcessMemory()
    try:
        # What earlier tests freed could hold the block otherwise, and nothing would grow.
        before = size.shrink()
        block = bytearray(os.urandom(1)) * (64 * 2**20)
        assert size.read() - before > 60 * 2**20
        del block
        assert size.shrink() - before < 30 * 2**20
    finally:
        size.close()
        size.close()


# With sockets.

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16 + 1 + 31)
_DEALER = b"\x05READY\x0bSocket-Type" + (6).to_bytes(4, "big") + b"DEALER"
READY = b"\x04" + bytes([len(_DEALER)]) + _DEALER


@pytest.fixture
def size(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size that the process seems to have; its last entry counts."""
    sizes = [SIZE]
    monkeypatch.setattr(ProcessMemory, "read", lambda _: sizes[-1])
    return sizes


def test_a_local_client_that_waits_for_its_reply_is_never_ended(
    size: list[int], router: Router, dealer: Dealer
) -> None:
    """It would send its request again, and the daemon do the same work again, without an end."""
    before = router.has_connections
    connect(router, dealer)
    assert (before, router.has_connections) == (False, True)
    assert router.guard_memory() == 0
    assert dealer.send(b"question")
    asked = received(router)
    size.append(TOO_LARGE)
    for _ in range(10):
        assert router.guard_memory() == 0
        size.append(size[-1] + GROWTH_MAX_BYTES + 1)
    assert router.send(asked.peer, b"answer")
    assert dealer.receive(PATIENCE_SECONDS) == b"answer"


def beginning(router: Router, path: Path, length: int) -> socket.socket:
    """A local connection on which the first ``length`` bytes of a larger frame have come."""
    raw = socket.socket(socket.AF_UNIX)
    raw.connect(os.fspath(path))
    raw.setblocking(False)  # noqa: FBT003 - positional in the standard library
    frame = b"\x02" + settings.FRAME_BYTES_MAX.to_bytes(8, "big") + bytes(length - 9)
    left = GREETING + READY + frame

    def is_sent() -> bool:
        nonlocal left
        assert not router.receive()
        with contextlib.suppress(BlockingIOError):
            left = left[raw.send(left) :]
        return not left

    serve(router, is_sent)
    router.receive()
    return raw


def test_local_connections_that_keep_much_are_ended_when_the_daemon_grows(
    size: list[int], router: Router, dealer: Dealer, path: Path
) -> None:
    connect(router, dealer)
    length = settings.FRAME_BYTES_MAX - 1024 * 1024
    count = KEPT_BYTES_MAX // length + 1
    with contextlib.ExitStack() as stack:
        raws = [stack.enter_context(beginning(router, path, length)) for _ in range(count - 1)]
        size.append(TOO_LARGE)
        router.guard_memory()
        # So much may wait for its rest at any time.
        assert router.guard_memory() == 0
        size.append(size[-1] + GROWTH_MAX_BYTES + 1)
        raws.append(stack.enter_context(beginning(router, path, length)))
        router.guard_memory()
        assert router.guard_memory() == count
        for raw in raws:
            raw.setblocking(True)  # noqa: FBT003 - positional in the standard library
            with contextlib.suppress(ConnectionError):
                while raw.recv(1_000_000):
                    pass
        # The client that kept nothing is still there.
        assert dealer.send(b"question")
        assert received(router).data == b"question"


def test_remote_connections_that_say_nothing_are_ended_when_the_daemon_grows(
    size: list[int], remote: Router, tmp_path: Path
) -> None:
    pair = new_key_pair()
    keys.authorise(tmp_path / "keys", pair.public, "mine")
    with contextlib.closing(client(remote, pair)) as dealer:
        connect(remote, dealer)
        size.append(TOO_LARGE)
        # A new connection gets a moment.
        assert remote.guard_memory() == 0
        assert remote.guard_memory() == 1
        # It comes again by itself.
        assert ConnectionEvent.LOST in link(remote, dealer, ConnectionEvent.MADE)


def test_a_number_that_is_another_files_by_now_is_left_alone(router: Router) -> None:
    listener = router._listeners["local"]
    reader, writer = os.pipe()
    ours, theirs = socket.socketpair()
    listening = socket.create_server(("127.0.0.1", 0))
    caller = socket.create_connection(listening.getsockname())
    accepted, _ = listening.accept()
    with ours, theirs, listening, caller, accepted:
        for descriptor in (reader, ours.fileno(), accepted.fileno(), 2**20):
            assert not listener.end(descriptor)
        os.write(writer, b"x")
        assert os.read(reader, 1) == b"x"
        for sender, receiver in ((ours, theirs), (caller, accepted)):
            sender.sendall(b"x")
            assert receiver.recv(1) == b"x"
    os.close(reader)
    os.close(writer)


def test_a_message_that_does_not_end_is_ended_by_the_real_size(router: Router, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(os.fspath(path))
        raw.sendall(GREETING + READY)
        part = b"\x03" + (2**20).to_bytes(8, "big") + bytes(2**20)
        raw.setblocking(False)  # noqa: FBT003 - positional in the standard library
        left = b""

        def is_ended() -> bool:
            nonlocal left
            router.receive()
            router.guard_memory()
            try:
                while True:
                    left = left or part
                    left = left[raw.send(left) :]
            except BlockingIOError:
                return False
            except ConnectionError:
                return True

        assert serve(router, is_ended)


def test_what_the_daemon_keeps_on_purpose_is_no_growth(
    size: list[int], remote: Router, tmp_path: Path
) -> None:
    pair = new_key_pair()
    keys.authorise(tmp_path / "keys", pair.public, "mine")
    with contextlib.closing(client(remote, pair)) as dealer:
        connect(remote, dealer)
        assert remote.guard_memory() == 0
        size.append(TOO_LARGE)
        assert remote.guard_memory(kept=1) == 0
        assert remote.guard_memory(kept=1) == 0
        assert remote.guard_memory() == 1
