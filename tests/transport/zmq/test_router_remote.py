"""The remote listener on loopback: it accepts known keys, and tells others why not."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import zmq
from tests.transport.zmq.routers import (
    LOOPBACK,
    PATIENCE_SECONDS,
    client,
    connect,
    connected_peer,
    link,
    received,
)

from ganger.storage import errors
from ganger.storage.access import keys
from ganger.transport.zmq import remote_listener, sockets
from ganger.transport.zmq import router as routers
from ganger.transport.zmq.connection_event import ConnectionEvent
from ganger.transport.zmq.dealer import Dealer
from ganger.transport.zmq.peers import Backlog, Credentials, Incoming
from ganger.transport.zmq.remote_listener import RemoteListener
from ganger.transport.zmq.router import Router, Sent
from ganger.transport.zmq.sockets import new_key_pair


@pytest.fixture
def pair(tmp_path: Path) -> keys.KeyPair:
    """The key of somebody who may connect."""
    pair = new_key_pair()
    keys.authorise(tmp_path / "keys", pair.public, "somebody")
    return pair


@pytest.fixture
def far(remote: Router, pair: keys.KeyPair) -> Iterator[Dealer]:
    with contextlib.closing(client(remote, pair)) as dealer:
        yield dealer


def _far_listener(remote: Router) -> RemoteListener:
    listener = remote._listeners["remote"]
    assert isinstance(listener, RemoteListener)
    return listener


def test_a_known_key_comes_in_and_is_named(remote: Router, tmp_path: Path) -> None:
    pair = new_key_pair()
    keys.authorise(tmp_path / "keys", pair.public, "somebody")
    with contextlib.closing(client(remote, pair)) as dealer:
        connect(remote, dealer)
        dealer.send(b"x")
        incoming = received(remote)
        assert incoming.identity == Credentials(kind="remote", key=pair.public, address="127.0.0.1")
        assert remote.send(incoming.peer, b"answer")
        assert dealer.receive(PATIENCE_SECONDS) == b"answer"


def test_a_client_with_an_unknown_key_is_refused(remote: Router) -> None:
    with contextlib.closing(client(remote, new_key_pair())) as dealer:
        assert ConnectionEvent.MADE not in link(remote, dealer, ConnectionEvent.REFUSED)
        assert not dealer.send(b"x")
    assert remote.dropped == {"unknown key": 1}


def test_a_key_authorised_while_the_daemon_runs_is_known_at_once(
    remote: Router, tmp_path: Path
) -> None:
    pair = new_key_pair()
    with contextlib.closing(client(remote, pair)) as dealer:
        link(remote, dealer, ConnectionEvent.REFUSED)
    keys.authorise(tmp_path / "keys", pair.public, "somebody")
    with contextlib.closing(client(remote, pair)) as dealer:
        connect(remote, dealer)


def test_a_client_with_the_wrong_server_key_does_not_get_in(remote: Router, tmp_path: Path) -> None:
    pair = new_key_pair()
    keys.authorise(tmp_path / "keys", pair.public, "somebody")
    with contextlib.closing(client(remote, pair, new_key_pair().public)) as dealer:
        assert ConnectionEvent.MADE not in link(remote, dealer, ConnectionEvent.FAILED)


def test_a_client_without_a_key_does_not_get_in(remote: Router) -> None:
    with contextlib.closing(Dealer(remote.endpoints[1])) as dealer:
        assert ConnectionEvent.MADE not in link(remote, dealer, ConnectionEvent.FAILED)


def test_a_bad_key_file_is_named_when_the_listener_opens(path: Path, tmp_path: Path) -> None:
    keys.authorise(tmp_path / "keys", new_key_pair().public, "good")
    (tmp_path / "keys" / "clients" / "bad.pub").write_text("rubbish")
    with pytest.raises(errors.StorageError, match=r"bad\.pub"):
        Router(path, remote=LOOPBACK, keys=tmp_path / "keys")
    # The local listener is closed again.
    with contextlib.closing(Dealer(f"ipc://{path}")) as dealer:
        assert dealer.receive(0.1) is None


def test_both_listeners_are_open_at_once(remote: Router, dealer: Dealer, tmp_path: Path) -> None:
    pair = new_key_pair()
    keys.authorise(tmp_path / "keys", pair.public, "somebody")
    connect(remote, dealer)
    with contextlib.closing(client(remote, pair)) as far:
        connect(remote, far)
        kinds = []
        for each in (dealer, far, dealer):
            each.send(b"x")
            kinds.append(received(remote).identity.kind)
    assert kinds == ["local", "remote", "local"]


def test_a_flood_at_one_listener_does_not_close_the_other(
    remote: Router, dealer: Dealer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routers, "RECEIVE_FRAMES_MAX", 1)
    pair = new_key_pair()
    keys.authorise(tmp_path / "keys", pair.public, "somebody")
    connect(remote, dealer)
    with contextlib.closing(client(remote, pair)) as far:
        connect(remote, far)
        for _ in range(10):
            dealer.send(b"near")
            far.send(b"far")
        for descriptor in (listener.filenos()[0] for listener in remote._order):
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            assert poll.poll(PATIENCE_SECONDS * 1_000)
        first, second = (remote.receive()[0].identity.kind for _ in range(2))
        assert {first, second} == {"local", "remote"}


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:notaport", "tcp://256.0.0.1:1", "x"])
def test_an_endpoint_that_cannot_be_opened_is_named(
    path: Path, tmp_path: Path, endpoint: str
) -> None:
    with pytest.raises(errors.OperatorError, match=f"^{endpoint}: "):
        Router(path, remote=endpoint, keys=tmp_path / "keys")


def test_a_socket_is_asked_only_if_it_may_have_a_message(
    remote: Router, far: Dealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = connected_peer(remote, far)
    while remote.has_more:
        remote.receive()
    local = _far_listener(remote).socket
    asked: list[zmq.Socket[bytes]] = []

    def is_readable(one: zmq.Socket[bytes]) -> bool:
        asked.append(one)
        return sockets.is_readable(one)

    monkeypatch.setattr(remote_listener, "is_readable", is_readable)
    assert not remote.has_more
    assert remote.receive(reported=[]) == []
    assert asked == []
    # Its descriptor reports, or it was used.
    assert remote.receive(reported=[local.fileno()]) == []
    assert asked == [local]
    remote.send(peer, b"x")
    assert not remote.has_more
    assert asked == [local] * 2
    # It was not polled.
    assert remote.receive() == []
    assert asked == [local] * 3


def test_reports_of_connections_are_read_too(remote: Router, far: Dealer) -> None:
    peer = connected_peer(remote, far)
    while remote.has_more:
        remote.receive()
    far.close()
    monitor = _far_listener(remote).monitor.fileno()
    poll = select.poll()
    poll.register(monitor, select.POLLIN)
    assert poll.poll(PATIENCE_SECONDS * 1_000)
    assert remote.receive(reported=[]) == []
    assert remote.take_left() == []
    assert remote.receive(reported=[monitor]) == []
    assert remote.take_left() == [peer]


def test_an_answer_that_cannot_be_marked_spoils_no_other_one(
    remote: Router, far: Dealer, pair: keys.KeyPair
) -> None:
    with contextlib.closing(client(remote, pair)) as other:
        peers = []
        for each in (far, other):
            connect(remote, each)
            each.send(b"x")
            peers.append(received(remote).peer)
        assert remote.receive() == []
        with mock.patch.object(
            zmq, "Frame", mock.Mock(side_effect=OSError("no descriptors are left"))
        ):
            assert remote.try_send(peers[0], bytes(Backlog.MARK_BYTES)) is Sent.NO
        assert remote.try_send(peers[1], b"for the other one") is Sent.YES
        assert other.receive(PATIENCE_SECONDS) == b"for the other one"
        assert remote.send(peers[0], b"for the first")
        assert far.receive(PATIENCE_SECONDS) == b"for the first"


def test_a_request_that_comes_while_answers_are_sent_is_not_overlooked(
    remote: Router, far: Dealer
) -> None:
    # The report of the descriptor may be used up by the sending: `has_more` must tell.
    peer = connected_peer(remote, far)
    for number in range(200):
        far.send(b"%d" % number)
        got: list[Incoming] = []
        end = time.monotonic() + PATIENCE_SECONDS
        while not got:
            remote.send(peer, b"x")
            if remote.has_more:
                got = remote.receive()
            assert time.monotonic() < end
        assert got[0].data == b"%d" % number


def test_a_send_returns_the_events_that_no_descriptor_reports_any_more(
    remote: Router, far: Dealer
) -> None:
    peer = connected_peer(remote, far)
    for number in range(200):
        far.send(b"%d" % number)
        end = time.monotonic() + PATIENCE_SECONDS
        while remote.try_send(peer, b"x") is not Sent.YES_AND_READ_ON:
            assert time.monotonic() < end
        assert remote.has_more
        assert [one.data for one in remote.receive()] == [b"%d" % number]
        assert not remote.has_more
