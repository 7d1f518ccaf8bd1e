"""What is written to a connection at one go is sent with one system call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..storage.access import rapi_settings

if TYPE_CHECKING:
    import asyncio


class JoiningTransport:
    """Sends what is written at one go with one system call: a short answer with its header.

    Everything else is as ``carrier`` does it.
    """

    def __init__(self, carrier: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._carrier = carrier
        self._loop = loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send these bytes in this turn of the event loop."""
        if not data:
            return
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(data)
        if len(data) > rapi_settings.JOINED_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Send what was written."""
        parts, self._parts = self._parts, []
        if self._carrier.is_closing():
            return
        if parts and len(parts[-1]) > rapi_settings.JOINED_BYTES_MAX:
            # To send it by itself costs less than a copy.
            if parts[:-1]:
                self._carrier.write(b"".join(parts[:-1]))
            self._carrier.write(parts[-1])
        elif parts:
            self._carrier.write(b"".join(parts))

    def waiting_bytes(self, plain: asyncio.WriteTransport | None) -> int:
        """Bytes that wait here, and in the carrier if that is not the plain connection itself."""
        own = sum(map(len, self._parts))
        return own if self._carrier is plain else own + self._carrier.get_write_buffer_size()

    def close(self) -> None:
        """Close when everything is sent."""
        self.flush()
        self._carrier.close()

    def abort(self) -> None:
        """Close at once."""
        self._parts.clear()
        self._carrier.abort()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the carrier has
        return getattr(self._carrier, name)
