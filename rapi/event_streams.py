"""Server-sent events: how they are written, and a response that goes on.

Source: HTML Living Standard, section Server-sent events.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_encode = msgspec.json.Encoder().encode

COMMENT = b": still here\n\n"
"""Sent while nothing happens, so that both sides notice the end of the connection."""


def event(kind: str, data: Any, number: str = "") -> bytes:  # noqa: ANN401 - JSON
    r"""One event, with its id if it has one.

    >>> event("job", {"id": 1}, "7")
    b'id: 7\nevent: job\ndata: {"id":1}\n\n'
    """
    head = f"id: {number}\n" if number else ""
    return head.encode() + f"event: {kind}\ndata: ".encode() + _encode(data) + b"\n\n"


class EventStream(Response):
    """A response that goes on until the client goes, or the parts end, or it may not go on.

    ``may_go_on`` is asked before each part: the user may have been removed meanwhile.

    `guards` ends the connection of a client that does not read.
    """

    media_type = "text/event-stream"

    def __init__(self, parts: AsyncGenerator[bytes, None]) -> None:
        self._parts = parts
        self.may_go_on: Callable[[], bool] = _always
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    def init_headers(self, headers: Any = None) -> None:  # noqa: ANN401 - starlette's
        """As for any response, but without a length."""
        self.body = b""
        super().init_headers(headers)
        self.raw_headers = [pair for pair in self.raw_headers if pair[0] != b"content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts; none to who asks for the headers only."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            sending.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        async with contextlib.aclosing(self._parts) as parts:
            async for part in parts:
                if not self.may_go_on():
                    break
                # It waits while the client does not read what was sent before.
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _always() -> bool:
    return True


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
