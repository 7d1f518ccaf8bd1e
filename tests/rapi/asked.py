"""Asks an application as uvicorn does, without a socket."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp, Message


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)


def basic(name: str, password: str) -> str:
    """The header of a user."""
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


async def ask(
    app: ASGIApp,
    method: str,
    path: str,
    *,
    authorization: str | None = None,
    body: Any = None,
    address: str = "192.0.2.1",
    more: dict[str, str] | None = None,
    parts: Sequence[bytes] = (),
    query: str = "",
) -> Reply:
    """The reply to one request. ``body`` goes as JSON; None: there is none, or ``parts``."""
    sent_parts = list(parts) or [b"" if body is None else json.dumps(body).encode()]
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    headers = [pair for pair in headers if pair[0].decode() not in (more or {})]
    headers += [(name.encode(), value.encode()) for name, value in (more or {}).items()]
    if authorization is not None:
        headers.append((b"authorization", authorization.encode()))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "https",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "client": (address, 1),
        "server": ("test", 1),
    }
    sent: list[Message] = []

    async def receive() -> Message:
        if sent_parts:
            data = sent_parts.pop(0)
            return {"type": "http.request", "body": data, "more_body": bool(sent_parts)}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    text = b"".join(part.get("body", b"") for part in sent[1:]).decode()
    return Reply(start["status"], found, text)
