"""Connections that take too long, are too many, or send too much: none keeps others from theirs.

A `ConnectionGuard` sees each connection before TLS and counts it, by address and in total. TLS,
the header and the body of a request each have a deadline. What came in time is served by uvicorn's
own protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..storage.access import rapi_settings
from . import problems

if TYPE_CHECKING:
    from collections.abc import Callable

    from .notes import Notes


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one connection, and all together, may take. Times in seconds."""

    connections: int = rapi_settings.CONNECTIONS_MAX
    connections_of_address: int = rapi_settings.CONNECTIONS_OF_ADDRESS_MAX
    handshake_seconds: float = rapi_settings.HANDSHAKE_SECONDS
    head_seconds: float = rapi_settings.HEAD_SECONDS
    body_seconds: float = rapi_settings.BODY_SECONDS
    unread_seconds: float = rapi_settings.UNREAD_SECONDS

    def within(self, descriptors: int) -> Limits:
        """These limits, with no more connections than this process may open descriptors."""
        possible = max(1, descriptors - rapi_settings.DESCRIPTORS_OWN)
        connections = min(self.connections, possible)
        return msgspec.structs.replace(
            self,
            connections=connections,
            # One address leaves some for others.
            connections_of_address=min(self.connections_of_address, max(1, connections * 3 // 4)),
        )


class Counts:
    """The open connections, by address; warns once when a limit is reached."""

    def __init__(self, limits: Limits, notes: Notes) -> None:
        self._limits = limits
        self._notes = notes
        self._of_address: Counter[str] = Counter()
        self._is_warned = False

    @property
    def total(self) -> int:
        """All open connections."""
        return self._of_address.total()

    def enter(self, address: str) -> bool:
        """Count one more connection from this address; False if that is one too many."""
        limits = self._limits
        is_full = self.total >= limits.connections
        if is_full or self._of_address[address] >= limits.connections_of_address:
            if not self._is_warned:
                self._is_warned = True
                whose = "" if is_full else f" from {address}"
                self._notes.warning("too many connections: one is refused", whose=whose)
            return False
        self._of_address[address] += 1
        return True

    def leave(self, address: str) -> None:
        """A connection has ended."""
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]
        if self.total < self._limits.connections // 2:
            self._is_warned = False


class ConnectionGuard(asyncio.Protocol):
    """Takes a new connection: counts it, and upgrades it to TLS within a deadline."""

    def __init__(
        self,
        make_protocol: Callable[[], GuardedProtocol],
        context: ssl.SSLContext | None,
        counts: Counts,
        limits: Limits,
    ) -> None:
        self._make_protocol = make_protocol
        self._context = context
        self._counts = counts
        self._limits = limits
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A connection was accepted."""
        plain = cast("asyncio.Transport", transport)
        peer = plain.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        if not self._counts.enter(address):
            plain.abort()
            return
        protocol = self._make_protocol()
        protocol.when_lost(lambda: self._counts.leave(address))
        if self._context is None:
            plain.set_protocol(protocol)
            protocol.carried_by(plain)
            protocol.connection_made(plain)
            return
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._upgrade(plain, protocol, self._context))

    async def _upgrade(
        self, plain: asyncio.Transport, protocol: GuardedProtocol, context: ssl.SSLContext
    ) -> None:
        loop = asyncio.get_running_loop()
        seconds = self._limits.handshake_seconds
        secured = None
        try:
            with contextlib.suppress(OSError, TimeoutError):
                secured = await loop.start_tls(
                    plain,
                    protocol,
                    context,
                    server_side=True,
                    ssl_handshake_timeout=seconds,
                    # While the client reads, the end may take long; see `_look_at_reader`.
                    ssl_shutdown_timeout=rapi_settings.SHUTDOWN_SECONDS,
                )
        finally:
            if secured is None:
                plain.abort()
                protocol.lose()
        if secured is not None and not secured.is_closing():
            protocol.carried_by(plain)
            protocol.connection_made(secured)


class GuardedProtocol(H11Protocol):
    """uvicorn's protocol, with deadlines for a request's header and body, and errors in JSON."""

    limits = Limits()

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*arguments, **named)
        self._alarm: asyncio.TimerHandle | None = None
        self._is_made = False
        self._early = bytearray()
        self._unread_alarm: asyncio.TimerHandle | None = None
        self._plain: asyncio.WriteTransport | None = None
        self._carrier: asyncio.Transport | None = None
        self._lost: list[Callable[[], None]] = []

    def carried_by(self, plain: asyncio.WriteTransport) -> None:
        """The connection without TLS."""
        self._plain = plain

    def when_lost(self, work: Callable[[], None]) -> None:
        """Call this once when the connection ends."""
        self._lost.append(work)

    def lose(self) -> None:
        """The connection has ended."""
        lost, self._lost = self._lost, []
        for work in lost:
            work()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there, after TLS."""
        carrier = cast("asyncio.Transport", transport)
        self._carrier = carrier
        super().connection_made(carrier)
        self._is_made = True
        self._set_alarm(self.limits.head_seconds)
        early, self._early = bytes(self._early), bytearray()
        if early:
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        """Something has come; it may come with the last bytes of TLS's handshake."""
        if not self._is_made:
            self._early += data
        else:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if not self._is_made:
            self.lose()
            return
        self._set_alarm(None)
        self._cancel_unread_alarm()
        self._is_made = False
        super().connection_lost(exc)
        self.lose()

    def handle_events(self) -> None:
        """Look at what has come; then await the rest of it within a deadline."""
        super().handle_events()
        state = self.conn.their_state
        if self.transport.is_closing():
            self._set_alarm(None)
        elif state is h11.SEND_BODY:
            self._await(self.limits.body_seconds)
        elif state is h11.IDLE and self.conn.trailing_data[0]:
            self._await(self.limits.head_seconds)
        else:
            self._set_alarm(None)
        self._await_end()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing came for long after an answer: uvicorn closes the connection."""
        super().timeout_keep_alive_handler()
        self._await_end()

    def pause_writing(self) -> None:
        """The client does not read: it may do so for a while only."""
        super().pause_writing()
        if self._unread_alarm is None:
            self._await_reader()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._cancel_unread_alarm()

    def on_response_complete(self) -> None:
        """An answer was written; the client may not have read it yet."""
        super().on_response_complete()
        if self._unread_alarm is None and self._unread():
            self._await_reader()
        self._await_end()

    def _await_end(self) -> None:
        """After a close: TLS ends only when the client agrees, for which it has some time."""
        if self._is_made and self._unread_alarm is None and self.transport.is_closing():
            self._await_reader()

    def _cancel_unread_alarm(self) -> None:
        alarm, self._unread_alarm = self._unread_alarm, None
        if alarm is not None:
            alarm.cancel()

    def _await_reader(self) -> None:
        """Look again after the time within which something must be read."""
        self._unread_alarm = self.loop.call_later(
            self.limits.unread_seconds, self._look_at_reader, self._unread()
        )

    def _look_at_reader(self, unread: int) -> None:
        """End the connection unless the client has read something: a slow line is no attack."""
        self._unread_alarm = None
        left = self._unread()
        if (left and left >= unread) or (not left and self.transport.is_closing()):
            # Not closed in order: that would wait until everything is read, and the client agrees.
            self.transport.abort()
        elif left:
            self._await_reader()

    def _unread(self) -> int:
        """Bytes that wait for the client, before and after TLS."""
        waiting = self._plain.get_write_buffer_size() if self._plain is not None else 0
        if self._carrier is not None and self._carrier is not self._plain:
            waiting += self._carrier.get_write_buffer_size()
        return waiting

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is no HTTP."""
        del msg  # uvicorn's own words
        if len(self.conn.trailing_data[0]) > rapi_settings.HEAD_BYTES_MAX:
            self._refuse(431, "Request header is too large")
        else:
            self._refuse(400, "Malformed HTTP request")

    # ------------------------------------------------------------ deadlines

    _waits_for = 0.0

    def _await(self, seconds: float) -> None:
        """The rest must come within so many seconds of its beginning."""
        if self._alarm is None or self._waits_for != seconds:
            self._set_alarm(seconds)

    def _set_alarm(self, seconds: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._waits_for = seconds or 0.0
        self._alarm = None if seconds is None else self.loop.call_later(seconds, self._too_late)

    def _too_late(self) -> None:
        self._alarm = None
        self._refuse(408, "The request did not come in time")

    def _refuse(self, code: int, text: str) -> None:
        """Answer with an error, if nothing of another answer was sent, and end the connection."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            data = msgspec.json.encode(problems.body(code, text)) + b"\n"
            headers = [
                (b"content-type", b"application/json"),
                (b"cache-control", b"no-store"),
                (b"x-content-type-options", b"nosniff"),
                (b"content-length", str(len(data)).encode()),
                (b"connection", b"close"),
                *self.server_state.default_headers,
            ]
            phrase = problems.EXPLANATIONS[code][0].encode()
            with contextlib.suppress(h11.LocalProtocolError):
                response = h11.Response(status_code=code, headers=headers, reason=phrase)
                self.transport.write(self.conn.send(response) or b"")
                self.transport.write(self.conn.send(h11.Data(data=data)) or b"")
                self.transport.write(self.conn.send(h11.EndOfMessage()) or b"")
        self.transport.close()
        self._await_end()
