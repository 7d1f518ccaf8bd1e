"""Runs a daemon's router and clients' dealers in one thread, each step waited for."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from ganger.storage.access import keys
from ganger.transport.zmq.connection_event import ConnectionEvent
from ganger.transport.zmq.dealer import Dealer
from ganger.transport.zmq.peers import Incoming
from ganger.transport.zmq.router import Router

PATIENCE_SECONDS = 20
LOOPBACK = "tcp://127.0.0.1:*"
T = TypeVar("T")


def serve(router: Router, until: Callable[[], T]) -> T:
    """Run the router as the daemon does, on their descriptors alone, until there is a result."""
    poll = select.poll()
    for descriptor in router.filenos():
        poll.register(descriptor, select.POLLIN)
    end = time.monotonic() + PATIENCE_SECONDS
    while not (result := until()):
        assert time.monotonic() < end, "nothing came"
        poll.poll(10)
    return result


def received(router: Router) -> Incoming:
    (incoming,) = serve(router, router.receive)
    return incoming


def connected_peer(router: Router, dealer: Dealer) -> bytes:
    """Connect, and read a first message; the peer that sent it."""
    connect(router, dealer)
    dealer.send(b"first")
    return received(router).peer


def link(router: Router, dealer: Dealer, wanted: ConnectionEvent) -> list[ConnectionEvent]:
    """The news that ``dealer`` gets, up to the one wanted."""
    news: list[ConnectionEvent] = []

    def look() -> bool:
        assert router.receive() == []
        while isinstance(item := dealer.take(), ConnectionEvent):
            news.append(item)
        return wanted in news

    serve(router, look)
    return news


def connect(router: Router, dealer: Dealer) -> None:
    link(router, dealer, ConnectionEvent.MADE)


def client(router: Router, pair: keys.KeyPair, server: str | None = None) -> Dealer:
    server = server or router.server_key
    return Dealer(router.endpoints[1], msgspec.structs.replace(pair, server=server))


def made(router: Router, dealer: Dealer) -> bool:
    """Whether the next handshake of ``dealer`` succeeds."""
    news: list[ConnectionEvent] = []

    def look() -> bool:
        router.receive()
        while isinstance(item := dealer.take(), ConnectionEvent):
            news.append(item)
        return ConnectionEvent.MADE in news or ConnectionEvent.TURNED_AWAY in news

    serve(router, look)
    return ConnectionEvent.MADE in news
