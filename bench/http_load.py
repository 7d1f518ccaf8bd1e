"""Sends prepared HTTP requests over kept connections, and times the answers. No HTTP library."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import TYPE_CHECKING, NamedTuple

from .figures import Timings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Load(NamedTuple):
    """The time of each request, and requests per second of all connections together."""

    timings: Timings
    per_second: float
    body: bytes
    """The last answer's body."""


def prepared(
    method: str, path: str, authorization: str = "", body: bytes = b"", more: str = ""
) -> bytes:
    """The bytes of a request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{more}"
    if authorization:
        head += f"Authorization: {authorization}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def run(port: int, certificate: Path, requests: Sequence[Sequence[bytes]]) -> Load:
    """Send the requests of each connection, one after the other."""
    return asyncio.run(_run(port, certificate, requests))


async def _run(port: int, certificate: Path, requests: Sequence[Sequence[bytes]]) -> Load:
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    opened = [
        await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=2**26) for _ in requests
    ]
    timings, bodies = Timings(), [b""]

    async def send(place: int) -> None:
        reader, writer = opened[place]
        for request in requests[place]:
            begin = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            if b" 200 " not in lines[0]:
                raise RuntimeError(head.decode())
            size = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
            bodies[0] = await reader.readexactly(size)
            timings.seconds.append(time.perf_counter() - begin)

    begin = time.perf_counter()
    await asyncio.gather(*(send(place) for place in range(len(requests))))
    seconds = time.perf_counter() - begin
    for _, writer in opened:
        writer.close()
    return Load(timings, len(timings.seconds) / seconds, bodies[0])
