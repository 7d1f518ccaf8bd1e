"""Serves an application at a listening socket: uvicorn's protocol behind our `guards`."""

from __future__ import annotations

import asyncio
import time
from asyncio import sslproto
from email.utils import formatdate
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.server import ServerState

from ..storage.access import rapi_settings
from ..storage.version import version
from . import uvicorn_hooks
from .guards import ConnectionGuard, Counts, GuardedProtocol, Limits

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from .notes import Notes

SERVER = "Ganeti 3.0.2 (Ganger {})"
"""The ``Server`` header. Clients of Ganeti look at the version."""


class Server:
    """One application at one socket. ``context``: TLS for the next connection; None: without."""

    def __init__(
        self,
        app: ASGIApp,
        notes: Notes,
        *,
        limits: Limits,
        context: Callable[[], ssl.SSLContext | None],
    ) -> None:
        uvicorn_hooks.require()
        self._config = uvicorn.Config(
            app,
            http=GuardedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            # Not a line for each client that speaks no HTTP.
            log_level="error",
            access_log=False,
            h11_max_incomplete_event_size=rapi_settings.HEAD_BYTES_MAX,
        )
        self._config.load()
        # asyncio has no parameter for it, and takes 256 KiB.
        sslproto.SSLProtocol.max_size = rapi_settings.TLS_BUFFER_BYTES
        self._limits = limits
        self._context = context
        self._state = ServerState()
        self._counts = Counts(limits, notes)
        self._server: asyncio.Server | None = None

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._counts.total

    async def listen(self, listener: socket.socket) -> None:
        """Take connections from now on. Call `pulse` before, and once a second."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._gate, sock=listener, backlog=rapi_settings.BACKLOG
        )

    def pulse(self) -> None:
        """Bring the headers of every answer up to date."""
        self._state.default_headers = [
            (b"date", formatdate(time.time(), usegmt=True).encode()),
            (b"server", SERVER.format(version()).encode()),
        ]

    def close(self) -> None:
        """Take no more connections."""
        if self._server is not None:
            self._server.close()

    def _gate(self) -> ConnectionGuard:
        return ConnectionGuard(self._protocol, self._context(), self._counts, self._limits)

    def _protocol(self) -> GuardedProtocol:
        protocol = GuardedProtocol(self._config, self._state, {}, asyncio.get_running_loop())
        protocol.limits = self._limits
        return protocol
