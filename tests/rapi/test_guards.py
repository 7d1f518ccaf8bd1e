"""Connections that are silent, slow, half-open or too many end, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.rapi.noted import Noted

from ganger.rapi.application import error_answer
from ganger.rapi.guards import Limits
from ganger.rapi.problems import HttpError
from ganger.rapi.serving import Server
from ganger.storage.access import rapi_certificates, rapi_settings

LIMITS = Limits(
    connections=60,
    connections_of_address=40,
    handshake_seconds=0.4,
    head_seconds=0.4,
    body_seconds=0.4,
    unread_seconds=0.4,
)
"""Short deadlines, so that the tests are; the real ones are in `rapi_settings`."""

ENOUGH_SECONDS = 20.0
PATIENT = msgspec.structs.replace(
    LIMITS, handshake_seconds=ENOUGH_SECONDS, head_seconds=ENOUGH_SECONDS
)
"""On a busy machine, many handshakes take longer than the short deadlines."""

ATTACKER, OTHER = "127.0.0.1", "127.0.0.2"
LARGE = 32 * 1024 * 1024


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body; answers with its length, or with more than any buffer takes."""
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        if not message["more_body"]:
            break
    if scope["path"] == "/refused":
        await error_answer(HttpError(413))(scope, receive, send)
        return
    body = bytes(LARGE) if scope["path"] == "/large" else json.dumps(size).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


over_tls = pytest.mark.parametrize("serving", ["tls"], indirect=True)


class Serving:
    """A server in a thread of its own."""

    def __init__(
        self, context: ssl.SSLContext | None, certificate: Path, limits: Limits = LIMITS
    ) -> None:
        self.notes = Noted()
        self.context = context
        self.certificate = certificate if context is not None else None
        self.server = Server(app, self.notes, limits=limits, context=lambda: context)
        self.loop = asyncio.new_event_loop()
        self.errors: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, found: self.errors.append(found))
        listener = socket.create_server((ATTACKER, 0), backlog=128)
        # All of 127.0.0.0/8 is ours, and clients with an address of their own reach it.
        self.address = listener.getsockname()
        self.server.pulse()
        self.loop.run_until_complete(self.server.listen(listener))
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    @contextlib.contextmanager
    def patient(self) -> Iterator[Serving]:
        """Another such server, with long deadlines."""
        server = Serving(self.context, self.certificate or Path(), PATIENT)
        try:
            yield server
            server.until_empty()
            assert server.errors == []
        finally:
            server.close()

    def close(self) -> None:
        self.call(self.server.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(ENOUGH_SECONDS)
        self.loop.close()

    def call(self, work: Callable[[], Any]) -> Any:
        """What ``work`` gives in the server's thread."""
        found: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.loop.call_soon_threadsafe(lambda: found.put(work()))
        return found.get(timeout=ENOUGH_SECONDS)

    def connect(self, address: str = ATTACKER, *, has_tls: bool = True) -> socket.socket:
        """A connection, after the TLS handshake if the server wants one."""
        plain = socket.create_connection(self.address, ENOUGH_SECONDS, (address, 0))
        if self.certificate is None or not has_tls:
            return plain
        context = ssl.create_default_context(cafile=self.certificate)
        try:
            return context.wrap_socket(plain, server_hostname=ATTACKER)
        except OSError:
            plain.close()
            raise

    def refuses(self, address: str) -> bool:
        """Whether a new connection of this address is ended at once."""
        try:
            with self.connect(address) as link:
                return link.recv(1) == b""
        except (ConnectionError, ssl.SSLError):
            return True

    def seconds_for_others(self) -> float:
        """How long a request of another address takes."""
        begin = time.monotonic()
        with contextlib.closing(self.connect(OTHER)) as link:
            link.sendall(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nab")
            assert answer(link) == (200, "2")
        return time.monotonic() - begin

    def until_empty(self) -> None:
        """Wait until the server has no connection."""
        deadline = time.monotonic() + ENOUGH_SECONDS
        while self.call(lambda: self.server.connections):
            assert time.monotonic() < deadline, "connections stay open"
            threading.Event().wait(0.02)


def answer(link: socket.socket) -> tuple[int, str]:
    """The status and the body of the answer that comes."""
    response = http.client.HTTPResponse(link)
    response.begin()
    return response.status, response.read().decode()


def message(link: socket.socket) -> str:
    """The message of the error that comes, after which the connection ends."""
    status, text = answer(link)
    found = json.loads(text)
    assert found["code"] == status
    assert link.recv(1) == b""
    return f"{status} {found['message']}"


def rest(link: socket.socket) -> bytes:
    """All that still comes until the connection ends."""
    parts = []
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while part := link.recv(65_536):
            parts.append(part)
    return b"".join(parts)


@pytest.fixture(name="certificate", scope="module")
def a_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "rapi.pem"
    rapi_certificates.create(path, [ATTACKER], days=1)
    return path


@pytest.fixture(name="serving", scope="module", params=["plain", "tls"])
def a_server(request: pytest.FixtureRequest, certificate: Path) -> Iterator[Serving]:
    context = None
    if request.param == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    serving = Serving(context, certificate)
    yield serving
    serving.close()


@pytest.fixture(autouse=True)
def others_are_served(serving: Serving) -> Iterator[None]:
    """Whatever a test does: no connection stays, nothing fails in the server."""
    serving.notes.taken()
    yield
    serving.until_empty()
    assert serving.errors == []
    assert serving.seconds_for_others() < 5


def dripped(link: socket.socket, data: bytes) -> bytes:
    """Send byte by byte until the other side has had enough; what it then says."""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        for at in range(len(data)):
            link.sendall(data[at : at + 1])
            threading.Event().wait(0.05)
    return rest(link)


def test_silent_connections_end_and_others_are_served_meanwhile(serving: Serving) -> None:
    links = [serving.connect() for _ in range(20)]
    assert serving.seconds_for_others() < 5
    assert [message(link)[:4] for link in links] == ["408 "] * 20
    for link in links:
        link.close()


def test_a_header_that_drips_ends(serving: Serving) -> None:
    with serving.connect() as link:
        link.sendall(b"GET / HTTP/1.1\r\nhost: a\r\nx: ")
        begin = time.monotonic()
        found = dripped(link, b"x" * 400)
        assert time.monotonic() - begin < ENOUGH_SECONDS / 2
        assert not found or found.startswith(b"HTTP/1.1 408 ")


def test_a_header_that_stops_ends_with_the_reason(serving: Serving) -> None:
    links = [serving.connect() for _ in range(20)]
    for link in links:
        link.sendall(b"GET / HTTP/1.1\r\nhost: ")
    assert serving.seconds_for_others() < 5
    assert {message(link) for link in links} == {"408 The request did not come in time"}
    for link in links:
        link.close()


def test_a_second_request_that_drips_ends_as_well(serving: Serving) -> None:
    with serving.connect() as link:
        link.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert answer(link) == (200, "0")
        link.sendall(b"GET / HT")
        assert message(link).startswith("408 ")


def test_a_body_that_drips_or_stops_ends(serving: Serving) -> None:
    head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 400\r\n\r\n"
    with serving.connect() as link, serving.connect() as stopped:
        stopped.sendall(head + b"ab")
        link.sendall(head)
        found = dripped(link, b"x" * 400)
        assert not found or found.startswith(b"HTTP/1.1 408 ")
        assert message(stopped).startswith("408 ")


def test_chunks_that_drip_end(serving: Serving) -> None:
    with serving.connect() as link:
        link.sendall(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
        found = dripped(link, b"1\r\nx\r\n" * 100)
        assert not found or found.startswith(b"HTTP/1.1 408 ")


def test_a_half_open_connection_ends(serving: Serving) -> None:
    """The client has sent its part, says that no more comes, and goes on listening."""
    with serving.connect() as link:
        link.sendall(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 400\r\n\r\nab")
        if serving.certificate is None:
            link.shutdown(socket.SHUT_WR)
        assert rest(link)[:13] in {b"", b"HTTP/1.1 408 "}
    # A client that vanishes without a word.
    gone = serving.connect()
    gone.sendall(b"GET / HTTP/1.1\r\nhost")
    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    gone.close()


def test_a_client_that_does_not_read_ends(serving: Serving) -> None:
    with serving.connect() as link:
        link.sendall(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
        assert serving.seconds_for_others() < 5
        serving.until_empty()
        assert len(rest(link)) < LARGE


@pytest.mark.parametrize(
    "data",
    [b"", b"rubbish\r\n\r\n", b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"],
    ids=["silent", "no HTTP", "served"],
)
def test_a_client_that_does_not_end_a_closed_connection_ends(serving: Serving, data: bytes) -> None:
    with serving.connect() as link:
        link.sendall(data)
        serving.until_empty()


def test_a_client_that_reads_slowly_gets_it_all(serving: Serving) -> None:
    with serving.connect() as link:
        # The server must notice what is read, and not the kernel alone.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        link.sendall(b"GET /large HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        size = 0
        for _ in range(40):
            threading.Event().wait(0.02)
            size += sum(len(link.recv(16_384)) for _ in range(16))
        assert size + len(rest(link)) > LARGE


def test_a_header_that_is_too_large_is_refused(serving: Serving) -> None:
    with serving.connect() as link:
        link.sendall(b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"x" * rapi_settings.HEAD_BYTES_MAX)
        with contextlib.suppress(ConnectionError):
            assert message(link) == "431 Request header is too large"


@pytest.mark.parametrize(
    "data",
    [b"\x16\x03\x01 nothing\r\n\r\n", b"\r\n\r\n\r\n", b"GET\r\n\r\n", b"\0" * 100 + b"\r\n\r\n"],
)
def test_what_is_no_http_is_refused(serving: Serving, data: bytes) -> None:
    with serving.connect() as link:
        link.sendall(data)
        assert message(link).startswith("400 Malformed HTTP request")


def test_connections_beyond_the_limit_of_an_address_are_refused_and_others_served(
    serving: Serving,
) -> None:
    with serving.patient() as server:
        with contextlib.ExitStack() as links:
            for _ in range(PATIENT.connections_of_address):
                links.enter_context(server.connect())
            assert all(server.refuses(ATTACKER) for _ in range(3))
            assert server.seconds_for_others() < 5
            warnings = [fields for _, event, fields in server.notes.taken() if "too many" in event]
            assert warnings == [{"whose": f" from {ATTACKER}"}]
        server.until_empty()
        with server.connect() as link:
            link.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            assert answer(link) == (200, "0")


def test_connections_beyond_the_limit_in_total_are_refused(serving: Serving) -> None:
    half = PATIENT.connections // 2
    with serving.patient() as server, contextlib.ExitStack() as links:
        for address in (ATTACKER, OTHER):
            for _ in range(half):
                links.enter_context(server.connect(address))
        assert server.refuses("127.0.0.3")


def test_an_answer_before_the_end_of_the_body_does_not_keep_the_connection(
    serving: Serving,
) -> None:
    with serving.connect() as link:
        link.sendall(b"POST /refused HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nabcd")
        assert answer(link)[0] == 413


@over_tls
def test_an_unfinished_handshake_ends(serving: Serving, certificate: Path) -> None:
    hello = ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=certificate)
    side = client.wrap_bio(ssl.MemoryBIO(), hello, server_hostname=ATTACKER)
    with contextlib.suppress(ssl.SSLWantReadError):
        side.do_handshake()
    begin = hello.read()
    silent = [serving.connect(has_tls=False) for _ in range(15)]
    stopped = [serving.connect(has_tls=False) for _ in range(15)]
    for link in stopped:
        link.sendall(begin[:40])
    with serving.connect(has_tls=False) as link:
        dripped(link, begin)
    assert serving.seconds_for_others() < 5
    for link in (*silent, *stopped):
        assert rest(link) == b""
        link.close()


@over_tls
def test_plain_http_where_tls_is_spoken_ends(serving: Serving) -> None:
    with serving.connect(has_tls=False) as link:
        link.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert b"HTTP" not in rest(link)


@over_tls
def test_old_versions_of_tls_are_refused(serving: Serving, certificate: Path) -> None:
    context = ssl.create_default_context(cafile=certificate)
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        serving.connect(has_tls=False) as link,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(link, server_hostname=ATTACKER)


def test_limits_stay_within_the_descriptors_of_the_process() -> None:
    found = Limits().within(150)
    assert found.connections == 150 - rapi_settings.DESCRIPTORS_OWN
    assert found.connections_of_address < found.connections
    assert Limits().within(100_000) == Limits()
    assert Limits().within(10).connections == 1
