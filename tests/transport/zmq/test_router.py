"""The local listener on real sockets: what gets through, and which peers have left."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import shutil
import socket
import threading
import time
from pathlib import Path

import pytest
import zmq
from tests.transport.zmq.routers import (
    PATIENCE_SECONDS,
    connect,
    connected_peer,
    link,
    made,
    received,
    serve,
)

from ganger.storage import errors, settings
from ganger.transport.zmq import dealer as dealers
from ganger.transport.zmq import local_listener
from ganger.transport.zmq import router as routers
from ganger.transport.zmq.connection_event import ConnectionEvent
from ganger.transport.zmq.dealer import Dealer
from ganger.transport.zmq.local_listener import LocalListener
from ganger.transport.zmq.peers import Credentials, Incoming
from ganger.transport.zmq.router import Router, Sent

ENDS_TRIED = 100
"""One of 50 or so used to go on for ever."""

# Frames.


def test_frames_go_both_ways(router: Router, dealer: Dealer) -> None:
    connect(router, dealer)
    assert dealer.send(b"question")
    incoming = received(router)
    assert incoming.data == b"question"
    assert router.send(incoming.peer, b"answer")
    assert dealer.receive(PATIENCE_SECONDS) == b"answer"


def test_a_peer_keeps_its_name_and_two_peers_have_two(
    router: Router, dealer: Dealer, path: Path
) -> None:
    with contextlib.closing(Dealer(f"ipc://{path}")) as other:
        names = []
        connect(router, dealer)
        connect(router, other)
        for each in (dealer, other, dealer):
            assert each.send(b"x")
            names.append(received(router).peer)
    assert names[0] == names[2] != names[1]


def test_receiving_without_a_message_gives_nothing_at_once(router: Router) -> None:
    assert router.receive() == []
    assert not router.has_more


def test_a_turn_reads_a_bounded_number_and_reports_that_there_is_more(
    router: Router, dealer: Dealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routers, "RECEIVE_FRAMES_MAX", 3)
    connect(router, dealer)
    for number in range(7):
        assert dealer.send(b"%d" % number)
    data: list[bytes] = []
    while len(data) < 7:
        part = serve(router, router.receive)
        assert len(part) <= 3
        data += [each.data for each in part]
    assert data == [b"%d" % number for number in range(7)]
    assert not router.has_more


def test_a_silent_connection_is_noticed_from_the_first_one_on(router: Router, path: Path) -> None:
    while router.has_more:
        router.receive()
    (news,) = router.filenos()
    poll = select.poll()
    poll.register(news, select.POLLIN)
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as silent:
        silent.connect(os.fspath(path))
        assert poll.poll(PATIENCE_SECONDS * 1_000)
        assert router.receive() == []
        assert router.has_connections


def test_no_reply_to_a_peer_that_has_left_is_kept(router: Router, dealer: Dealer) -> None:
    peer = connected_peer(router, dealer)
    dealer.close()
    serve(router, lambda: router.receive() or not router.send(peer, b"answer"))
    assert router.take_left() in ([peer], [])
    assert not router.send(peer, b"answer")
    local = router._listeners["local"]
    assert isinstance(local, LocalListener)
    assert (local._unsent_bytes, local._by_name) == (0, {})


def test_descriptors_are_quiet_about_what_must_wait(router: Router, dealer: Dealer) -> None:
    connect(router, dealer)
    poll = select.poll()
    for descriptor in router.filenos():
        poll.register(descriptor, select.POLLIN)

    def reported() -> list[int]:
        return [descriptor for descriptor, _ in poll.poll(0)]

    dealer.send(b"x")
    end = time.monotonic() + PATIENCE_SECONDS
    while not router.has_more:
        assert router.receive(limit=0) == []
        assert time.monotonic() < end
    assert router.receive(limit=0) == []
    assert reported() == []
    assert router.has_more
    assert [one.data for one in router.receive()] == [b"x"]
    assert not router.has_more


def test_another_thread_may_answer_unless_the_owner_is_at_work(
    router: Router, dealer: Dealer
) -> None:
    peer = connected_peer(router, dealer)
    # There is nothing that a descriptor would not report.
    assert router.receive() == []
    assert router.try_send(peer, b"answer") is Sent.YES
    assert dealer.receive(PATIENCE_SECONDS) == b"answer"
    with router._using:
        assert router.try_send(peer, b"answer") is Sent.NO
    assert router.try_send(b"Lnobody", b"answer") is Sent.NO
    router.close()
    assert router.try_send(peer, b"answer") is Sent.NO


class Owner:
    """Reads a router as the listener does; what comes is answered by it, and by another thread."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._asked: queue.SimpleQueue[Incoming | None] = queue.SimpleQueue()
        self._due: queue.SimpleQueue[Incoming] = queue.SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_over = False
        self.between = 0
        self._threads = [threading.Thread(target=work) for work in (self._own, self._answer)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._is_over = True
        os.eventfd_write(self._wake, 1)
        self._asked.put(None)
        for thread in self._threads:
            thread.join()
        os.close(self._wake)

    def _own(self) -> None:
        poll = select.epoll()
        for descriptor in (self._wake, *self._router.filenos()):
            poll.register(descriptor, select.EPOLLIN)
        while not self._is_over:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._wake in ready:
                os.eventfd_read(self._wake)
            for one in self._router.receive():
                self._asked.put(one)
            with contextlib.suppress(queue.Empty):
                while True:
                    one = self._due.get_nowait()
                    self._router.send(one.peer, one.data)
            while self._router.has_more:
                for one in self._router.receive():
                    self._asked.put(one)
        poll.close()

    def _answer(self) -> None:
        while (one := self._asked.get()) is not None:
            sent = self._router.try_send(one.peer, one.data)
            if sent is Sent.NO:
                self._due.put(one)
            else:
                self.between += 1
            if sent is not Sent.YES:
                os.eventfd_write(self._wake, 1)


def test_nothing_is_overlooked_while_two_threads_answer(router: Router, path: Path) -> None:
    owner = Owner(router)

    def ask(place: int, missing: list[int]) -> None:
        with contextlib.closing(Dealer(f"ipc://{path}")) as dealer:
            while dealer.receive(PATIENCE_SECONDS) is not ConnectionEvent.MADE:
                pass
            for number in range(500):
                dealer.send(b"%d" % number)
                if dealer.receive(PATIENCE_SECONDS) != b"%d" % number:
                    missing.append(place)
                    return

    missing: list[int] = []
    askers = [threading.Thread(target=ask, args=(place, missing)) for place in range(3)]
    try:
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
    finally:
        owner.end()
    assert missing == []
    assert owner.between > 0


def test_an_answer_to_a_peer_that_has_left_is_refused(router: Router, dealer: Dealer) -> None:
    peer = connected_peer(router, dealer)
    dealer.close()
    serve(router, lambda: router.receive() or not router.send(peer, b"answer"))
    assert not router.send(b"", b"x")
    assert not router.send(b"Lnobody", b"x")
    assert not router.send(b"Rnobody", b"x")


def test_a_peer_that_leaves_is_named_once_after_the_last_message(
    router: Router, dealer: Dealer, path: Path
) -> None:
    other = Dealer(f"ipc://{path}")
    with contextlib.closing(other):
        connect(router, dealer)
        connect(router, other)
        dealer.send(b"first")
        stayed = received(router).peer
        other.send(b"second")
        left = received(router).peer
        assert router.take_left() == []
        other.send(b"last words")
    assert received(router).data == b"last words"

    def look() -> list[bytes]:
        assert router.receive() == []
        return router.take_left()

    assert serve(router, look) == [left] != [stayed]
    assert router.take_left() == []


def test_no_peer_has_left_before_all_its_messages_were_read(
    router: Router, dealer: Dealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routers, "RECEIVE_FRAMES_MAX", 2)
    connect(router, dealer)
    for number in range(7):
        dealer.send(b"%d" % number)
    dealer.close()
    connections = router._order[0].connections
    count = 0

    def look() -> bool:
        nonlocal count
        count += len(router.receive())
        left = router.take_left()
        assert not left or (count, connections.count) == (7, 0)
        return bool(left)

    serve(router, look)


def test_a_peer_known_to_have_left_is_more_to_receive(router: Router, dealer: Dealer) -> None:
    peer = connected_peer(router, dealer)
    dealer.close()

    serve(router, lambda: router.receive() or router._leaving)
    while router.has_more:
        assert router.receive() == []
    assert router.take_left() == [peer]


def test_a_peer_that_does_not_read_is_given_up_without_blocking(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_listener, "SEND_QUEUE_MAX", 10)
    monkeypatch.setattr(dealers, "RECEIVE_QUEUE_MAX", 10)
    with (
        contextlib.closing(Router(path)) as router,
        contextlib.closing(Dealer(f"ipc://{path}")) as dealer,
    ):
        peer = connected_peer(router, dealer)
        frame = bytes(1_000_000)
        # A few get into the queues of both sockets and of the kernel.
        assert not all(router.send(peer, frame) for _ in range(100))
        assert router.dropped["a peer that does not read"] == 1


def test_a_peer_that_left_with_frames_unread_does_not_hold_up_the_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_listener, "SEND_QUEUE_MAX", 10)
    monkeypatch.setattr(dealers, "RECEIVE_QUEUE_MAX", 10)
    for _ in range(ENDS_TRIED):
        router = Router(path)
        with contextlib.closing(Dealer(f"ipc://{path}")) as dealer:
            peer = connected_peer(router, dealer)
            while router.send(peer, bytes(1_000_000)):
                pass
        closing = threading.Thread(target=router.close, daemon=True)
        closing.start()
        closing.join(PATIENCE_SECONDS)
        assert not closing.is_alive()


def test_a_frame_above_the_limit_ends_the_connection_and_no_other(
    router: Router, dealer: Dealer, path: Path
) -> None:
    connect(router, dealer)
    with contextlib.closing(Dealer(f"ipc://{path}")) as other:
        connect(router, other)
        assert other.send(bytes(settings.FRAME_BYTES_MAX + 1))
        assert ConnectionEvent.LOST in link(router, other, ConnectionEvent.LOST)
        assert dealer.send(bytes(settings.FRAME_BYTES_MAX))
        assert len(received(router).data) == settings.FRAME_BYTES_MAX


def test_a_message_in_several_parts_is_dropped_and_counted(router: Router, path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        raw.linger = 0
        raw.connect(f"ipc://{path}")
        raw.send_multipart([b"", b"one", b"two"])
        raw.send_multipart([b"good"])
        assert received(router).data == b"good"
    assert router.dropped == {"several parts": 1}


def test_a_peer_that_chose_its_own_name_is_not_heard(router: Router, path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        raw.linger = 0
        raw.routing_id = b"mine!"
        raw.connect(f"ipc://{path}")
        raw.send(b"x")
        serve(router, lambda: router.receive() or router.dropped)
    assert router.dropped == {"a name of its own": 1}


def test_garbage_ends_no_other_connection(router: Router, dealer: Dealer, path: Path) -> None:
    connect(router, dealer)
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(path))
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
        assert router.receive() == []
        raw.setblocking(False)  # noqa: FBT003 - positional in the standard library
        serve(router, lambda: router.receive() or _is_ended(raw))
    assert dealer.send(b"still here")
    assert received(router).data == b"still here"


def _is_ended(raw: socket.socket) -> bool:
    try:
        while raw.recv(1_000):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


# The local listener.


def test_the_kernel_names_the_process_of_a_local_peer(router: Router, dealer: Dealer) -> None:
    connect(router, dealer)
    dealer.send(b"x")
    assert received(router).identity == Credentials(kind="local", uid=os.geteuid(), pid=os.getpid())


def test_peers_of_different_processes_are_distinguished(
    router: Router, dealer: Dealer, path: Path
) -> None:
    connect(router, dealer)
    child = os.posix_spawn(
        "/usr/bin/env",
        ["env", os.path.realpath("/proc/self/exe"), "-c", _CHILD, str(path)],
        {**os.environ, "PYTHONPATH": os.pathsep.join(_import_path())},
    )
    try:
        incoming = received(router)
        assert (incoming.identity.pid, incoming.data) == (child, b"%d" % child)
    finally:
        router.send(incoming.peer, b"end")
        assert os.waitpid(child, 0)[1] == 0


_CHILD = """
import os, sys, zmq
with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
    socket.connect("ipc://" + sys.argv[1])
    socket.send(b"%d" % os.getpid())
    socket.recv()
"""


def _import_path() -> list[str]:
    return [str(Path(zmq.__file__).parents[1])]


@pytest.mark.usefixtures("router")
def test_the_socket_is_for_its_owner_alone(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_closing_takes_nothing_from_a_successor(path: Path, dealer: Dealer) -> None:
    first = Router(path)
    with contextlib.closing(Router(path)) as second:
        first.close()
        first.close()
        connect(second, dealer)


def test_the_socket_file_of_a_killed_daemon_is_no_hindrance(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))
    Router(path).close()


def test_a_local_socket_that_was_deleted_is_put_back_and_connections_stay(
    router: Router, dealer: Dealer, path: Path
) -> None:
    connect(router, dealer)
    assert not router.restore_local_socket()
    for _ in range(3):
        shutil.rmtree(path.parent)
        assert router.restore_local_socket()
        assert path.is_socket()
        assert path.stat().st_mode & 0o777 == 0o600
        with contextlib.closing(Dealer(f"ipc://{path}")) as newcomer:
            connect(router, newcomer)
            for each in (newcomer, dealer):
                assert each.send(b"x")
                assert received(router).data == b"x"


def test_a_path_too_long_for_a_socket_is_named(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 120) / "socket"
    with pytest.raises(errors.DataDirectoryError, match="too long for a socket"):
        Router(long)


def test_a_crowd_is_turned_away_until_some_leave(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "PEERS_MAX", 2)
    with contextlib.ExitStack() as stack:
        router = stack.enter_context(contextlib.closing(Router(path)))
        first, second, third = (
            stack.enter_context(contextlib.closing(Dealer(f"ipc://{path}"))) for _ in range(3)
        )
        crowd = [each for each in (first, second, third) if made(router, each)]
        assert len(crowd) == 2
        (outside,) = {first, second, third} - set(crowd)
        outside.move(outside.endpoint)
        assert not made(router, outside)
        crowd[0].close()
        serve(router, lambda: router.receive() or router._order[0].connections.count == 1)
        outside.move(outside.endpoint)
        assert made(router, outside)
        assert router.dropped == {"too many peers": 2}


def test_a_peer_that_was_turned_away_connects_again_by_itself(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "PEERS_MAX", 0)
    monkeypatch.setattr(dealers, "RECONNECT_SECONDS_MAX", 0.01)
    with (
        contextlib.closing(Router(path)) as router,
        contextlib.closing(Dealer(f"ipc://{path}")) as dealer,
    ):
        assert not made(router, dealer)
        router._order[0].peers_max = 1
        while not made(router, dealer):
            pass
