"""Finds the daemon, and joins a `Session` with a line to it: what both clients share."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from ...storage import documents, errors, keys, ownership, settings
from ..zmq.connection_event import ConnectionEvent
from .session import Session

REREAD_SECONDS = 0.25
"""How often a client without a connection looks whether the daemon is elsewhere now."""

ITEMS_MAX = 256
"""Most frames taken in before due work is looked at."""


class EndpointFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a ready daemon writes into its data directory."""

    pid: int
    version: str
    protocol: int
    endpoints: list[str]
    socket: str


class Whereabouts:
    """Where the daemon is now: at a fixed endpoint, or where its endpoint file says."""

    def __init__(self, data: str | os.PathLike[str] | None, endpoint: str | None) -> None:
        self._endpoint = endpoint
        self._endpoint_file = settings.places(data).endpoint_file
        start = "ganger up"
        if data is not None:
            start = f"GANGER_DATA={shlex.quote(os.fspath(self._endpoint_file.parent))} {start}"
        self.unreachable = (
            f"no daemon answers for data directory {self._endpoint_file.parent}; start one: {start}"
            if endpoint is None
            else f"no daemon answers at {endpoint}"
        )
        """The sentence to say when nobody is there."""

    def endpoint(self) -> str | None:
        """Where to connect to; None if no daemon has left word, or a loss of power has torn it."""
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
            # It was never flushed. The next daemon writes it anew.
            return None
        ownership.require_admitted(socket)
        return f"ipc://{socket}"


class Line(Protocol):
    """What a connection needs of `wire.Dealer` and `async_dealer.AsyncDealer`."""

    endpoint: str

    def __init__(self, endpoint: str, pair: keys.KeyPair | None) -> None: ...

    def move(self, endpoint: str) -> None:
        """Connect to another endpoint."""

    def send(self, data: bytes) -> bool:
        """Send a frame, if there is a connection."""

    def take(self) -> bytes | ConnectionEvent | None:
        """What has come in."""

    def close(self) -> None:
        """Close."""


LineT = TypeVar("LineT", bound=Line)


class Connection(Generic[LineT]):
    """A session on a line to wherever the daemon is. ``line_type`` decides how one waits."""

    def __init__(
        self,
        line_type: type[LineT],
        where: Whereabouts,
        pair: keys.KeyPair | None,
        *,
        timeout_seconds: float,
        on_outage: Callable[[str], None] | None,
    ) -> None:
        self.session = Session(where.unreachable, timeout_seconds, on_outage)
        self._line_type = line_type
        self._where = where
        self._pair = pair
        self.open_line: LineT | None = None
        """The line in use, if there is one."""
        self._reread_at = math.inf

    def line(self, now: float) -> LineT:
        """The line to the daemon, opened if need be.

        `DaemonUnreachableError` at once if no daemon has left word where it is.
        """
        if self.open_line is None or self.session.wants_new_line:
            self._close_line()
            endpoint = self._where.endpoint()
            if endpoint is None:
                raise errors.DaemonUnreachableError(self._where.unreachable)
            self.open_line = self._line_type(endpoint, self._pair)
            self._opened(now)
        elif not self.session.is_connected and now >= self._reread_at:
            endpoint = self._where.endpoint() or self.open_line.endpoint
            self._reread_at = now + REREAD_SECONDS
            if endpoint != self.open_line.endpoint:
                self.open_line.move(endpoint)
                self._opened(now)
        return self.open_line

    def work(self, line: LineT, now: float) -> None:
        """Take in what has come, do what is due, send what can be sent; never blocks."""
        for _ in range(ITEMS_MAX):
            item = line.take()
            if item is None:
                break
            self.take(item, now)
        self.session.tick(now)
        self.session.flush(line.send, now)

    def take(self, item: bytes | ConnectionEvent, now: float) -> None:
        """Take in one thing that has come over the line."""
        if isinstance(item, ConnectionEvent):
            if item is ConnectionEvent.LOST:
                self._reread_at = now + REREAD_SECONDS
            self.session.connection_changed(item, now)
        else:
            self.session.received(item, now)

    def wait_seconds(self, now: float) -> float | None:
        """How long to wait for something to come over the line; None: as long as it takes."""
        seconds = self.session.wait_seconds(now)
        if self.session.is_connected:
            return seconds
        reread = max(0.0, self._reread_at - now)
        return reread if seconds is None else min(seconds, reread)

    def flush(self, now: float) -> None:
        """Send what can be sent now."""
        if self.open_line is not None:
            self.session.flush(self.open_line.send, now)

    def close(self, error: Exception, now: float) -> None:
        """End what is under way with ``error``, and the line. Twice is harmless."""
        self.session.fail_all(error)
        # The daemon is told that nobody watches any more.
        self.flush(now)
        self._close_line()

    def _opened(self, now: float) -> None:
        self._reread_at = now + REREAD_SECONDS
        self.session.opened(now)

    def _close_line(self) -> None:
        line, self.open_line = self.open_line, None
        if line is not None:
            line.close()


def client_pair(
    endpoint: str | None, key_file: str | os.PathLike[str] | None, server_key: str | None
) -> keys.KeyPair | None:
    """The keys a client uses: none at the local door; at a remote one they are needed."""
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
