"""A socket for documents: order, pipelining, slow peers, many peers. Real sockets, no threads."""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ganger.actors.ganeti import document_sockets
from ganger.actors.ganeti.document_sockets import DocumentSocket, Rights
from ganger.storage import errors
from ganger.transport.ganeti import luxi


class Door:
    """A socket, what it watches, and what it has to serve."""

    def __init__(self, path: Path, **more: Any) -> None:
        self.path = path
        self.now = 0.0
        self.poll = select.epoll()
        self.served: list[tuple[int, bytes]] = []
        self.echoes = False
        self.rights = Rights()
        """Those of the next peer."""
        self.peers: list[socket.socket] = []
        self.socket = DocumentSocket(
            self,  # type: ignore[arg-type]
            path,
            self.serve,
            rights=lambda _peer: self.rights,
            **more,
        )
        self.socket.open(0o600)

    # What a runtime does.

    def clock(self) -> float:
        return self.now

    def watch(self, descriptor: int) -> None:
        self.poll.register(descriptor, select.EPOLLIN)

    def watch_for(self, descriptor: int, *, reading: bool, writing: bool) -> None:
        self.poll.modify(descriptor, select.EPOLLIN * reading | select.EPOLLOUT * writing)

    def forget(self, descriptor: int) -> None:
        self.poll.unregister(descriptor)

    # What a test does.

    def serve(self, number: int, document: bytes) -> None:
        self.served.append((number, document))
        if self.echoes:
            self.socket.reply(number, document + luxi.END)

    def turn(self) -> bool:
        """Handle what is ready; False if nothing is."""
        found = [descriptor for descriptor, _ in self.poll.poll(0)]
        self.socket.readable(found)
        return bool(found)

    def settle(self) -> None:
        for _ in range(1_000):
            if not self.turn():
                return
        raise AssertionError("it never comes to rest")

    def peer(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        self.peers.append(made)
        made.settimeout(5)
        made.connect(str(self.path))
        self.settle()
        return made


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    made = Door(tmp_path / "socket")
    yield made
    made.socket.close()
    for peer in made.peers:
        peer.close()
    made.poll.close()
    assert not made.path.exists()


def test_documents_are_served_one_at_a_time_in_order(door: Door) -> None:
    peer = door.peer()
    peer.sendall(b"a\x03b\x03c")
    door.settle()
    assert door.served == [(1, b"a")]
    door.socket.reply(1, b"A\x03")
    assert door.served == [(1, b"a"), (1, b"b")]
    peer.sendall(b"\x03")
    door.settle()
    door.socket.reply(1, b"B\x03")
    door.socket.reply(1, b"C\x03")
    assert [document for _, document in door.served] == [b"a", b"b", b"c"]
    assert peer.recv(100) == b"A\x03B\x03C\x03"


def test_a_flood_that_is_answered_at_once_lets_others_have_their_turn(door: Door) -> None:
    door.echoes = True
    flooding, other = door.peer(), door.peer()
    flooding.sendall(b"x\x03" * 1_000)
    other.sendall(b"hello\x03")
    door.turn()
    assert (2, b"hello") in door.served
    assert len(door.served) <= 2 * document_sockets.DOCUMENTS_PER_LOOK + 1
    door.settle()
    assert len(door.served) == 1_001


def test_peers_that_may_only_read_leave_connections_for_others(tmp_path: Path) -> None:
    door = Door(tmp_path / "socket", connections_max=8)
    door.rights = Rights(is_trusted=False)
    peers = [door.peer() for _ in range(10)]
    assert [one.recv(1) for one in peers[6:]] == [b""] * 4
    peers[0].close()
    door.settle()
    # A place is free for another one.
    peers.append(door.peer())
    door.rights = Rights()
    trusted = [door.peer(), door.peer()]
    for one in (peers[-1], *trusted):
        one.sendall(b"x\x03")
        door.settle()
    assert len(door.served) == 3
    for one in (*peers, *trusted):
        one.close()
    door.socket.close()
    door.poll.close()


def test_peers_that_may_only_read_make_room_for_a_trusted_one(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_sockets, "HELD_BYTES_MAX", 40_000)
    trusted = door.peer()
    door.rights = Rights(20_000, is_trusted=False)
    others = [door.peer() for _ in range(3)]
    trusted.sendall(b"x" * 30_000)
    door.settle()
    for other in others:
        other.sendall(b"y" * 9_000)
        door.settle()
    assert [one.number for one in door.socket._connections.values() if one.held] == [1, 4]
    others[2].sendall(b"y" * 20_000)
    door.settle()
    assert others[2].recv(1_000).startswith(b'{"success":false')


def test_connections_that_found_no_descriptor_are_accepted_later(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Exhausted:
        def accept(self) -> None:
            raise OSError(errno.EMFILE, "no descriptor")

        def fileno(self) -> int:
            return descriptor

    listener = door.socket._listener
    assert listener is not None
    descriptor = listener.fileno()
    monkeypatch.setattr(door.socket, "_listener", Exhausted())
    peer = door.peer()
    peer.sendall(b"x\x03")
    monkeypatch.setattr(door.socket, "_listener", listener)
    door.settle()
    assert door.served == []
    assert door.socket.needs_looks
    door.socket.end_stalled()
    door.settle()
    assert door.served == [(1, b"x")]


def test_others_are_served_while_one_waits(door: Door) -> None:
    first, second = door.peer(), door.peer()
    first.sendall(b"slow\x03")
    second.sendall(b"fast\x03")
    door.settle()
    door.socket.reply(2, b"done\x03")
    assert second.recv(100) == b"done\x03"
    assert door.served == [(1, b"slow"), (2, b"fast")]


def test_a_peer_that_sends_without_reading_is_not_read_for_ever(door: Door) -> None:
    peer = door.peer()
    peer.sendall(b"x\x03" * 2_000)
    door.settle()
    # One is served, and one piece more than may wait was read at most.
    [connection] = door.socket._connections.values()
    assert connection.watched == (False, False)
    door.echoes = True
    door.socket.reply(1, b"x\x03")
    door.settle()
    assert len(door.served) == 2_000
    assert receive(peer, 4_000) == b"x\x03" * 2_000


def test_a_reply_larger_than_the_kernel_takes_is_sent_as_it_is_read(door: Door) -> None:
    peer = door.peer()
    peer.sendall(b"x\x03")
    door.settle()
    large = bytes(5_000_000) + luxi.END
    door.socket.reply(1, large)
    received = b""
    while len(received) < len(large):
        received += peer.recv(1_000_000)
        door.turn()
    assert received == large
    [connection] = door.socket._connections.values()
    assert connection.watched == (True, False)


def test_the_last_reply_is_sent_before_the_end(door: Door) -> None:
    peer = door.peer()
    peer.sendall(b"x\x03y\x03")
    door.settle()
    door.socket.reply(1, b"bye\x03", is_last=True)
    assert (peer.recv(100), peer.recv(100)) == (b"bye\x03", b"")
    assert door.served == [(1, b"x")]
    # A late reply has no receiver.
    door.socket.reply(1, b"late\x03")
    assert not door.socket.has_connections


def test_a_document_that_is_too_large_ends_its_connection(door: Door) -> None:
    peer = door.peer()
    [connection] = door.socket._connections.values()
    connection.reader = luxi.DocumentReader(bytes_max=3)
    peer.sendall(b"1234")
    door.settle()
    assert b"Failed to parse request: the document has more than 3 bytes" in peer.recv(1_000)
    assert peer.recv(1) == b""


def test_a_peer_that_leaves_is_forgotten_while_it_is_served(door: Door) -> None:
    peer = door.peer()
    peer.sendall(b"x\x03")
    door.settle()
    peer.close()
    door.settle()
    assert not door.socket.has_connections
    door.socket.reply(1, b"late\x03")


def test_a_peer_that_only_ends_its_own_sending_gets_its_replies(door: Door) -> None:
    peer = door.peer()
    peer.sendall(b"a\x03b\x03half")
    peer.shutdown(socket.SHUT_WR)
    door.settle()
    door.socket.reply(1, b"A\x03")
    assert door.served == [(1, b"a"), (1, b"b")]
    door.socket.reply(1, b"B\x03")
    assert receive(peer, 4) == b"A\x03B\x03"
    assert peer.recv(1) == b""
    assert not door.socket.has_connections


def test_a_peer_that_leaves_is_forgotten_while_it_is_not_read(door: Door) -> None:
    peer = door.peer()
    peer.sendall(b"x\x03" * 2_000)
    door.settle()
    peer.close()
    door.settle()
    assert not door.socket.has_connections


def test_a_peer_that_never_reads_is_neither_served_nor_read(door: Door) -> None:
    large = b"x" * 100_000 + luxi.END
    door.echoes = True
    peer = door.peer()
    for _ in range(1_000):
        if not select.select([], [peer], [], 0)[1]:
            break
        peer.send(large, socket.MSG_DONTWAIT)
        door.settle()
    [connection] = door.socket._connections.values()
    assert connection.watched == (False, True)
    assert len(connection.unsent) < document_sockets.UNSENT_BYTES_MAX + 2 * len(large)
    assert connection.held < 2 * 1024 * 1024
    served = len(door.served)
    assert served < 100
    # As soon as it reads, the rest is served.
    received = 0
    while len(door.served) == served:
        received += len(peer.recv(1_000_000))
        door.settle()
    assert received > 0


def test_the_peer_that_holds_most_makes_room_for_others(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_sockets, "HELD_BYTES_MAX", 100)
    small, large, last = (door.peer() for _ in range(3))
    for peer, data in ((small, b"x" * 20), (large, b"x\x03" * 10 + b"x" * 35), (last, b"x" * 31)):
        peer.sendall(data)
        door.settle()
    assert door.socket._held == 20 + 9 + 35 + 31
    small.sendall(b"x" * 6)
    door.settle()
    assert large.recv(1) == b""
    assert door.socket._held == 26 + 31
    small.sendall(b"y\x03")
    door.settle()
    assert door.served[-1] == (1, b"x" * 26 + b"y")
    for peer in (small, last):
        peer.close()
    door.settle()
    assert door.socket._held == 0


def test_the_peer_that_has_not_read_for_longest_makes_room_for_others(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_sockets, "REPLIES_BYTES_MAX", 9_000_000)
    peers = [door.peer() for _ in range(3)]
    for number, peer in enumerate(peers, 1):
        peer.sendall(b"x\x03")
        door.settle()
        door.now += 1
        door.socket.reply(number, bytes(3_000_000) + luxi.END)
        door.settle()
    assert list(door.socket._connections) == [1, 2, 3]
    late = door.peer()
    late.sendall(b"x\x03")
    # The first one has read something since.
    peers[0].recv(1_000_000)
    door.now += 1
    door.settle()
    door.socket.reply(4, bytes(3_000_000) + luxi.END)
    assert list(door.socket._connections) == [1, 3, 4]
    for peer in (*peers, late):
        peer.close()
    door.settle()
    assert (door.socket.has_connections, door.socket._unsent) == (False, 0)


def test_one_reply_may_be_larger_than_all_together(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_sockets, "REPLIES_BYTES_MAX", 1_000_000)
    peer = door.peer()
    peer.sendall(b"x\x03")
    door.settle()
    door.socket.reply(1, bytes(5_000_000) + luxi.END)
    assert door.socket.has_connections


def test_what_a_refused_document_held_is_given_back(door: Door) -> None:
    peer = door.peer()
    [connection] = door.socket._connections.values()
    connection.reader = luxi.DocumentReader(bytes_max=3)
    for data in (b"123", b"\x03ab", b"cd"):
        peer.sendall(data)
        door.settle()
    door.socket.reply(1, b"A\x03")
    peer.close()
    door.settle()
    assert (door.socket.has_connections, door.socket._held) == (False, 0)


@pytest.mark.parametrize("what", ["half a document", "drips", "a reply that is not read"])
def test_a_connection_without_progress_is_ended(door: Door, what: str) -> None:
    silent, stalled = door.peer(), door.peer()
    if what == "a reply that is not read":
        stalled.sendall(b"x\x03")
        door.settle()
        door.socket.reply(2, bytes(5_000_000))
    else:
        stalled.sendall(b"half")
        door.settle()
    if what == "drips":
        for _ in range(10):
            door.now += document_sockets.STALLED_SECONDS / 10
            stalled.sendall(b"x")
            door.settle()
    else:
        door.now += document_sockets.STALLED_SECONDS
    assert door.socket.end_stalled() == []
    door.now += 0.1
    assert door.socket.end_stalled() == [2]
    # One that says nothing may stay.
    silent.sendall(b"x\x03")
    door.settle()
    assert door.served[-1] == (1, b"x")


def test_a_document_that_waits_for_us_does_not_stall(door: Door) -> None:
    peer = door.peer()
    peer.sendall(b"x\x03" * (document_sockets.PIPELINED_MAX + 1) + b"half")
    door.settle()
    # The first is served all the time, and we do not read.
    door.now += document_sockets.STALLED_SECONDS + 1
    assert door.socket.end_stalled() == []
    door.socket.reply(1, b"X\x03")
    door.settle()
    door.now += document_sockets.STALLED_SECONDS
    assert door.socket.end_stalled() == []
    door.now += 0.1
    assert door.socket.end_stalled() == [1]


def test_more_peers_than_allowed_wait_their_turn(tmp_path: Path) -> None:
    door = Door(tmp_path / "socket", connections_max=2)
    peers = [door.peer() for _ in range(3)]
    peers[2].sendall(b"late\x03")
    door.settle()
    assert door.served == []
    peers[0].close()
    door.settle()
    assert door.served == [(3, b"late")]
    for peer in peers:
        peer.close()
    door.socket.close()
    door.poll.close()


def test_a_deleted_socket_is_made_again_and_connections_stay(door: Door) -> None:
    peer = door.peer()
    door.path.unlink()
    door.socket.open(0o600)
    assert door.path.stat().st_mode & 0o777 == 0o600
    other = door.peer()
    for one, number in ((peer, 1), (other, 2)):
        one.sendall(b"x\x03")
        door.settle()
        assert door.served[-1] == (number, b"x")


@pytest.mark.parametrize("is_open", [False, True])
def test_a_file_that_is_not_ours_outlives_the_socket(tmp_path: Path, is_open: bool) -> None:  # noqa: FBT001
    path = tmp_path / "precious"
    made = Door(path) if is_open else None
    path.unlink(missing_ok=True)
    path.write_text("a letter")
    (DocumentSocket(_Nothing(), path, lambda *_: None) if made is None else made.socket).close()  # type: ignore[arg-type]
    assert path.read_text() == "a letter"
    if made is not None:
        made.poll.close()


def test_a_replaced_socket_is_made_again(door: Door) -> None:
    door.path.unlink()
    door.path.touch()
    assert not door.socket.is_open
    door.socket.open(0o600)
    door.peer().sendall(b"x\x03")
    door.settle()
    assert door.served == [(1, b"x")]


def test_a_socket_in_a_folder_of_all_gets_its_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    door = Door(tmp_path / "socket")
    assert door.path.stat().st_mode & 0o777 == 0o600
    door.socket.close()
    door.poll.close()


def test_the_rights_of_a_socket_are_not_given_to_what_has_replaced_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, victim = tmp_path / "socket", tmp_path / "victim"
    tmp_path.chmod(0o777)
    victim.touch(0o600)

    class Raced(socket.socket):
        def bind(self, address: Any) -> None:
            super().bind(address)
            path.unlink()
            path.symlink_to(victim)

    monkeypatch.setattr(socket, "socket", Raced)
    made = DocumentSocket(_Nothing(), path, lambda *_: None)  # type: ignore[arg-type]
    with pytest.raises(errors.StorageError, match="another program has replaced this socket"):
        made.open(0o666)
    assert victim.stat().st_mode & 0o777 == 0o600


def test_a_path_that_no_socket_can_have_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 110)
    made = DocumentSocket(_Nothing(), path, lambda *_: None)  # type: ignore[arg-type]
    with pytest.raises(errors.StorageError, match="path too long"):
        made.open(0o600)
    made.close()


class _Nothing:
    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def receive(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += peer.recv(size)
    return data
