"""Responses that go on: they end when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from ganger.rapi.event_streams import EventStream, event


class Client:
    """The other side of a response."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.has_gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.has_gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)


class Parts:
    """A stream without an end, which notes when it is closed."""

    def __init__(self) -> None:
        self.is_closed = False

    async def all(self) -> AsyncGenerator[bytes, None]:
        try:
            yield event("hello", {}, "1")
            while True:
                yield event("job", {"id": 1})
                await asyncio.sleep(0)
        finally:
            self.is_closed = True


async def respond(client: Client, parts: AsyncGenerator[bytes, None], method: str = "GET") -> None:
    scope = {"method": method}
    await asyncio.wait_for(EventStream(parts)(scope, client.receive, client.send), 10)


def test_a_stream_has_no_length_and_is_not_kept_by_others() -> None:
    client = Client()

    async def run() -> None:
        async def one() -> AsyncGenerator[bytes, None]:
            yield b"x"

        await respond(client, one())

    asyncio.run(run())
    start, first, last = client.sent
    headers = dict(start["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert headers[b"cache-control"] == b"no-store"
    assert b"content-length" not in headers
    assert (first["body"], first["more_body"]) == (b"x", True)
    assert (last["body"], last["more_body"]) == (b"", False)


def test_a_stream_ends_when_its_client_has_gone() -> None:
    parts = Parts()

    async def run() -> None:
        client = Client()
        asyncio.get_running_loop().call_later(0.01, client.has_gone.set)
        await respond(client, parts.all())

    asyncio.run(run())
    assert parts.is_closed


def test_who_asks_for_the_headers_only_waits_for_nothing() -> None:
    client = Client()

    async def run() -> None:
        await respond(client, Parts().all(), "HEAD")

    asyncio.run(run())
    assert [message.get("body") for message in client.sent] == [None, b""]
    assert client.sent[-1]["more_body"] is False
