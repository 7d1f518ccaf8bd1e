"""The remote listener on loopback: it accepts known keys, and tells others why not."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from tests.transport.zmq.routers import LOOPBACK, PATIENCE_SECONDS, client, connect, link, received

from ganger.storage import errors, keys
from ganger.transport.zmq import router as routers
from ganger.transport.zmq.connection_event import ConnectionEvent
from ganger.transport.zmq.dealer import Dealer
from ganger.transport.zmq.peers import Credentials
from ganger.transport.zmq.router import Router
from ganger.transport.zmq.sockets import new_key_pair


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
        for listener in remote._listeners.values():
            assert listener.socket.poll(PATIENCE_SECONDS * 1_000)
        first, second = (remote.receive()[0].identity.kind for _ in range(2))
        assert {first, second} == {"local", "remote"}


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:notaport", "tcp://256.0.0.1:1", "x"])
def test_an_endpoint_that_cannot_be_opened_is_named(
    path: Path, tmp_path: Path, endpoint: str
) -> None:
    with pytest.raises(errors.OperatorError, match=f"^{endpoint}: "):
        Router(path, remote=endpoint, keys=tmp_path / "keys")
