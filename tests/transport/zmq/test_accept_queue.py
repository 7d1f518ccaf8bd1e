"""Doors with few descriptors: what they take is bounded, and others are let in later."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from tests.transport.zmq.routers import LOOPBACK, connect, received, serve

from ganger.storage import errors, settings
from ganger.storage.settings import SOCKET_PATH_BYTES_MAX
from ganger.transport.zmq.accept_queue import AcceptQueue
from ganger.transport.zmq.dealer import Dealer
from ganger.transport.zmq.router import Router

FEW = 40
CROWD = 300


@pytest.fixture(autouse=True)
def _silence_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "UNHEARD_SECONDS", 0.05)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "socket"


@pytest.fixture
def router(path: Path, tmp_path: Path) -> Iterator[Router]:
    keys = tmp_path / "keys"
    with contextlib.closing(
        Router(path, remote=LOOPBACK, keys=keys, descriptors_max=FEW)
    ) as router:
        yield router


class SilentCrowd:
    """Connections that say nothing. Those that find no place try again at each `push`."""

    def __init__(self, address: str | tuple[str, int], count: int) -> None:
        self._address = address
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self._outside = [socket.socket(family, _SILENT) for _ in range(count)]
        self._inside: list[socket.socket] = []
        self.push()

    def push(self) -> None:
        """Let those that are outside try."""
        outside, self._outside = self._outside, []
        for each in outside:
            found = each.connect_ex(self._address)
            came = self._inside if found in {0, errno.EINPROGRESS} else self._outside
            came.append(each)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (*self._inside, *self._outside):
            each.close()


_SILENT = socket.SOCK_STREAM | socket.SOCK_NONBLOCK


def descriptors_open() -> int:
    """How many are open now, but for what others have left to the garbage collector."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def serve_for(router: Router, seconds: float, *crowds: SilentCrowd) -> int:
    """Run the router, without ending silent connections; the most descriptors used meanwhile."""
    end = time.monotonic() + seconds
    most = 0

    def look() -> bool:
        nonlocal most
        for each in crowds:
            each.push()
        router.receive()
        most = max(most, len(os.listdir("/proc/self/fd")))
        return time.monotonic() > end

    serve(router, look)
    return most


def test_a_local_crowd_takes_no_more_than_its_listener_may_have(router: Router, path: Path) -> None:
    before = descriptors_open() + CROWD
    with SilentCrowd(str(path), CROWD) as crowd:
        most = serve_for(router, 0.5, crowd)
    assert FEW / 2 < most - before <= FEW + 1


def test_a_full_remote_listener_pauses(router: Router) -> None:
    listener = router._listeners["remote"]
    with SilentCrowd(where(router, "remote"), CROWD):
        serve(router, lambda: router.receive() or listener.is_paused)
        serve_for(router, 0.2)
        inside = listener.connections.open_count
        with SilentCrowd(where(router, "remote"), CROWD):
            serve_for(router, 0.2)
            assert listener.connections.open_count == inside
    serve(router, lambda: router.receive() or not listener.is_paused)


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_a_full_listener_ends_the_silent_and_lets_others_in(router: Router, kind: str) -> None:
    listener = router._listeners[kind]  # type: ignore[index]
    address = where(router, kind)
    with (
        SilentCrowd(address, CROWD) as crowd,
        contextlib.closing(Dealer(router.endpoints[0])) as dealer,
    ):
        if kind == "remote":
            # Neither listener counts the crowd of the other.
            connect(router, dealer)

        def is_full() -> bool:
            crowd.push()
            router.receive()
            return not listener.has_room

        serve(router, is_full)
        if kind == "remote":
            assert not router._listeners["local"].is_paused

        def look() -> bool:
            router.receive()
            router.end_unheard()
            while dealer.take() is not None:
                pass
            return dealer.send(b"x")

        serve(router, look)
        assert received(router).data == b"x"
        serve(router, lambda: router.end_unheard() or listener.has_room)


def test_peers_that_speak_stay_when_silent_ones_are_ended(router: Router, path: Path) -> None:
    with contextlib.closing(Dealer(router.endpoints[0])) as dealer:
        connect(router, dealer)
        assert dealer.send(b"one")
        peer = received(router).peer
        with SilentCrowd(str(path), CROWD) as crowd:
            ended = 0

            def look() -> bool:
                nonlocal ended
                crowd.push()
                router.receive()
                ended += router.end_unheard()
                return ended >= FEW

            serve(router, look)
        assert dealer.send(b"two")
        again = received(router)
        assert (again.peer, again.data) == (peer, b"two")


def test_connections_that_come_and_go_leave_nothing_behind(router: Router, path: Path) -> None:
    serve_for(router, 0.05)
    before = descriptors_open()
    for _ in range(2 * FEW):
        with SilentCrowd(str(path), 1):
            serve(router, lambda: router.receive() or router._order[0].connections.open_count)
    serve(router, lambda: not router.receive() and descriptors_open() == before)
    assert os.listdir(path.parent) == ["socket"]


_LOWERED = """
import os, resource, select, socket, sys, time
from pathlib import Path
from ganger.transport.zmq.router import Router

path = Path(sys.argv[1])
router = Router(path, descriptors_max=1_000)
before = resource.getrlimit(resource.RLIMIT_NOFILE)
silent = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(10)]
for each in silent:
    each.connect(str(path))
lowest = os.dup(0)
os.close(lowest)
for room in range(6):
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + room, before[1]))
    for _ in range(5):
        assert router.receive() == []
        router.end_unheard()
        time.sleep(0.01)
resource.setrlimit(resource.RLIMIT_NOFILE, before)
end = time.monotonic() + 10
while router._listeners["local"].connections.open_count < 10:
    assert time.monotonic() < end
    router.receive()
    router.end_unheard()
print("all are in")
"""


def test_a_limit_that_is_lowered_while_the_daemon_runs_does_not_end_it(path: Path) -> None:
    script = [sys.executable, "-c", _LOWERED, str(path)]
    done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "all are in\n"), done.stderr


_LARGE = """
import os, resource, sys, time
from pathlib import Path
from ganger.transport.zmq.dealer import Dealer
from ganger.transport.zmq.router import Router

path = Path(sys.argv[1])
router = Router(path)
dealer = Dealer(router.endpoints[0])
incoming = []
end = time.monotonic() + 10
while not incoming:
    assert time.monotonic() < end
    incoming = router.receive()
    while dealer.take() is not None:
        pass
    dealer.send(b"give")
lowest = os.dup(0)
os.close(lowest)
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
large = bytes(1_000_000)
assert router.send(incoming[0].peer, large)
while (got := dealer.take()) is None:
    assert time.monotonic() < end
    router.receive()
assert got == large
print("it came")
"""


def test_a_large_answer_needs_no_descriptors(path: Path) -> None:
    script = [sys.executable, "-c", _LARGE, str(path)]
    done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=60)
    assert "it came" in done.stdout, done.stderr


def test_the_longest_path_of_a_socket_can_be_that_of_a_listener(tmp_path: Path) -> None:
    name = "n" * (SOCKET_PATH_BYTES_MAX - len(os.fsencode(tmp_path)) - 1)
    with (
        contextlib.closing(Router(tmp_path / name)),
        contextlib.closing(Dealer(f"ipc://{tmp_path / name}")),
    ):
        pass
    with pytest.raises(errors.DataDirectoryError, match="too long for a socket"):
        AcceptQueue(tmp_path / (name + "n"), 1)


def where(router: Router, kind: str) -> str | tuple[str, int]:
    """The address of a listener."""
    if kind == "local":
        return router.endpoints[0].removeprefix("ipc://")
    return "127.0.0.1", int(router.endpoints[1].rpartition(":")[2])
