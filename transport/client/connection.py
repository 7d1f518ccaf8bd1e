"""Finds the daemon, and joins a `Session` with a socket to it: what both clients share."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from ...storage import errors
from ...storage.access import keys
from ...storage.disk import documents, ownership, paths
from ..zmq.connection_event import ConnectionEvent
from . import spans
from .session import Session

REREAD_SECONDS = 0.25
"""How often a client without a connection reads the endpoint file again."""

ITEMS_MAX = 256
"""Most frames that are taken in before due work is done."""


class EndpointFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a ready daemon writes into its data directory."""

    pid: int
    version: str
    protocol: int
    endpoints: list[str]
    socket: str


class EndpointResolver:
    """Where the daemon is now: at a fixed endpoint, or where its endpoint file says."""

    def __init__(self, data: str | os.PathLike[str] | None, endpoint: str | None) -> None:
        self._endpoint = endpoint
        self._endpoint_file = paths.places(data).endpoint_file
        start = "ganger up"
        if data is not None:
            start = f"GANGER_DATA={shlex.quote(os.fspath(self._endpoint_file.parent))} {start}"
        self.unreachable = (
            f"no daemon answers for data directory {self._endpoint_file.parent}; start one: {start}"
            if endpoint is None
            else f"no daemon answers at {endpoint}"
        )
        """The text of the error when no daemon answers."""

    def endpoint(self) -> str | None:
        """Where to connect to; None without an endpoint file, or if a loss of power has torn it."""
        if self._endpoint is not None:
            return self._endpoint
        data = documents.read(self._endpoint_file)
        if data is None:
            return None
        try:
            socket = msgspec.json.decode(data, type=EndpointFile).socket
        except msgspec.ValidationError as error:
            raise errors.StorageError(
                f"{self._endpoint_file}: no daemon wrote this: {error}"
            ) from error
        except msgspec.DecodeError:
            # The file was never flushed. The next daemon writes it anew.
            return None
        ownership.require_admitted(socket)
        return f"ipc://{socket}"


class ClientSocket(Protocol):
    """What a connection needs of the dealers of `transport.zmq`."""

    endpoint: str

    def move(self, endpoint: str) -> None:
        """Connect to another endpoint."""

    def send(self, data: bytes) -> bool:
        """Send a frame, if there is a connection."""

    def take(self) -> bytes | ConnectionEvent | None:
        """What has come in."""

    @property
    def is_intact(self) -> bool:
        """Whether its descriptors are open."""

    def give_up(self) -> None:
        """Leave a socket that is not intact."""

    def close(self) -> None:
        """Close."""


SocketT = TypeVar("SocketT", bound=ClientSocket)


class Connection(Generic[SocketT]):
    """A session on a socket to the daemon. ``open_socket_at`` decides how the client waits."""

    def __init__(
        self,
        open_socket_at: Callable[[str, keys.KeyPair | None], SocketT],
        resolver: EndpointResolver,
        pair: keys.KeyPair | None,
        *,
        timeout_seconds: float,
        on_outage: Callable[[str], None] | None,
    ) -> None:
        self.session = Session(resolver.unreachable, timeout_seconds, on_outage)
        self._open_socket_at = open_socket_at
        self._resolver = resolver
        self._pair = pair
        self.open_socket: SocketT | None = None
        """The socket in use, if there is one."""
        self._reread_at = math.inf

    @property
    def is_intact(self) -> bool:
        """Whether the process has left the socket's descriptors open."""
        return self.open_socket is None or self.open_socket.is_intact

    def give_up(self, now: float) -> None:
        """Leave a socket that is not intact; `socket` opens another one."""
        socket, self.open_socket = self.open_socket, None
        if socket is not None:
            socket.give_up()
            self.session.connection_changed(ConnectionEvent.LOST, now)

    def socket(self, now: float) -> SocketT:
        """The socket to the daemon, opened if need be.

        `DaemonUnreachableError` at once if there is no endpoint file.
        """
        if self.open_socket is None or self.session.wants_new_socket:
            self._close_socket()
            endpoint = self._resolver.endpoint()
            if endpoint is None:
                raise errors.DaemonUnreachableError(self._resolver.unreachable)
            self.open_socket = self._open_socket_at(endpoint, self._pair)
            self._opened(now)
        elif not self.session.is_connected and now >= self._reread_at:
            endpoint = self._resolver.endpoint() or self.open_socket.endpoint
            self._reread_at = now + REREAD_SECONDS
            if endpoint != self.open_socket.endpoint:
                self.open_socket.move(endpoint)
                self._opened(now)
        return self.open_socket

    def work(self, socket: SocketT, now: float) -> None:
        """Take in what has come, do what is due, send what can be sent; never blocks."""
        for _ in range(ITEMS_MAX):
            item = socket.take()
            if item is None:
                break
            self.take(item, now)
        self.session.tick(now)
        self.session.flush(socket.send, now)

    def take(self, item: bytes | ConnectionEvent, now: float) -> None:
        """Take in one thing that has come over the socket."""
        if isinstance(item, ConnectionEvent):
            if item is ConnectionEvent.LOST:
                self._reread_at = now + REREAD_SECONDS
            self.session.connection_changed(item, now)
        else:
            self.session.received(item, now)

    def wait_seconds(self, now: float) -> float | None:
        """How long to wait for something to come over the socket; None: as long as it takes."""
        seconds = self.session.wait_seconds(now)
        if seconds is not None:
            seconds = min(seconds, spans.SLEEP_SECONDS_MAX)
        if self.session.is_connected:
            return seconds
        reread = max(0.0, self._reread_at - now)
        return reread if seconds is None else min(seconds, reread)

    def flush(self, now: float) -> None:
        """Send what can be sent now."""
        if self.open_socket is not None:
            self.session.flush(self.open_socket.send, now)

    def close(self, error: Exception, now: float) -> None:
        """End what is under way with ``error``, and the socket. Twice is harmless."""
        self.session.fail_all(error)
        # Tells the daemon to end the watches.
        self.flush(now)
        self._close_socket()

    def _opened(self, now: float) -> None:
        self._reread_at = now + REREAD_SECONDS
        self.session.opened(now)

    def _close_socket(self) -> None:
        socket, self.open_socket = self.open_socket, None
        if socket is not None:
            socket.close()


def client_pair(
    endpoint: str | None, key_file: str | os.PathLike[str] | None, server_key: str | None
) -> keys.KeyPair | None:
    """The keys of a client: none at the local socket, needed at a tcp endpoint."""
    if endpoint is None or not endpoint.startswith("tcp:"):
        if key_file is not None or server_key is not None:
            raise errors.BadRequestError("key_file, server_key: only a tcp endpoint has keys")
        return None
    if key_file is None:
        raise errors.BadRequestError(f"key_file: the endpoint {endpoint} needs a key")
    pair = keys.read_key(Path(key_file))
    if server_key is not None:
        pair = msgspec.structs.replace(pair, server=keys.check_key(server_key, "server_key"))
    if pair.server is None:
        text = f"server_key: needed, because {os.fspath(key_file)} has no line 'server KEY'"
        raise errors.BadRequestError(text)
    return pair
