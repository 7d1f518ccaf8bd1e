"""Attacks on the memory of a daemon through LUXI's socket: large, endless, deep, unread."""

from __future__ import annotations

import contextlib
import json
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from tests.torture.fuzz.through_sockets import PATIENCE_SECONDS, Look

from ganger.actors.ganeti.luxi_listener import DOCUMENT_BYTES_MAX
from ganger.transport.ganeti import luxi

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from ganger import Client

_LARGE = DOCUMENT_BYTES_MAX - 1_000
_CROWD = 40


def run_document_floods(path: Path, client: Client, figures: dict[str, str]) -> Iterator[str]:
    """What was wrong after each attack; nothing: all was well. Notes by how much it has grown."""
    for name, attack in ATTACKS.items():
        look = Look(client)
        with ExitStack() as stack:
            problem = attack(_Crowd(path, stack)) or look.compare(client)
        figures[name] = f"{look.grown() / 2**20:+.0f} MiB"
        yield f"{name}: {problem}" if problem else ""


class _Crowd:
    """Connections that live as long as the attack."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path = path
        self._stack = stack

    def join(self) -> socket.socket:
        """One more."""
        made = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        made.settimeout(PATIENCE_SECONDS)
        made.connect(str(self._path))
        return made

    def asked(self, parts: Iterable[bytes]) -> str:
        """Send a document; how its refusal begins, or what came instead of one."""
        link = self.join()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for part in parts:
                link.sendall(part)
            link.sendall(luxi.END)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while data := link.recv(65_536):
                answer += data
        found = json.loads(answer.removesuffix(luxi.END) or b"{}")
        result = found.get("result")
        return result if isinstance(result, str) else f"no refusal, but {found!r:.200}"


def _refused(words: str, parts: Callable[[], Iterable[bytes]]) -> Callable[[_Crowd], str]:
    def attack(crowd: _Crowd) -> str:
        found = crowd.asked(parts())
        expected = f"Failed to parse request: {words}"
        return "" if found.startswith(expected) else f"{found!r:.300} instead of {expected!r}"

    return attack


def _call(inner: bytes) -> list[bytes]:
    return [b'{"method": "QueryTags", "args": [', inner, b"]}"]


def _held(crowd: _Crowd) -> str:
    """Many peers, each with a large document that does not end."""
    size = 6 * 2**20
    for _ in range(_CROWD):
        link = crowd.join()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            link.sendall(b" " * size)
    return ""


def _unread(crowd: _Crowd) -> str:
    """Many peers that ask for much again and again, and read nothing."""
    everything = json.dumps({"method": "QueryFields", "args": ["instance", None]}).encode()
    for _ in range(_CROWD):
        link = crowd.join()
        link.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            for _ in range(1_000):
                link.send(everything + luxi.END)
    return ""


def _dripped(crowd: _Crowd) -> str:
    """A document that comes in pieces of a byte."""
    link = crowd.join()
    for _ in range(50_000):
        link.send(b" ")
    link.sendall(b"{}" + luxi.END)
    return "" if b"key 'method'" in link.recv(65_536) else "no answer to a document in drips"


ATTACKS: Final[dict[str, Callable[[_Crowd], str]]] = {
    "a document without end": _refused(
        "the document has more than", lambda: [b" " * 2**20] * (_LARGE // 2**20 + 2)
    ),
    "millions of arrays": _refused(
        "the document has more than 1000000 arrays", lambda: _call(b"[]," * (_LARGE // 3))
    ),
    "a million arrays": _refused(
        "Cannot convert value", lambda: _call(b"[]," * (luxi.CONTAINERS_MAX - 2) + b"0")
    ),
    "millions of numbers": _refused(
        "the document has more than 3000000 values", lambda: _call(b"1e9," * (_LARGE // 4))
    ),
    "some millions of numbers": _refused(
        "Cannot convert value", lambda: _call(b"1e9," * (luxi.VALUES_MAX - 2) + b"0")
    ),
    "a long name": _refused(
        "Unable to parse LUXI request method",
        lambda: [b'{"args": [], "method": "', b"x" * (_LARGE - 100), b'"}'],
    ),
    "deep arrays": _refused(
        "parsing top-level JSON message", lambda: _call(b"[" * 900_000 + b"]" * 900_000)
    ),
    "a megabyte of keys": _refused(
        "SubmitJob: key 'reason' not found",
        lambda: [
            b'{"method": "SubmitJob", "args": [[{',
            b",".join(b'"%d":1' % number for number in range(1_000_000)),
            b"}]]}",
        ],
    ),
    "documents that many peers begin": _held,
    "replies that are never read": _unread,
    "a document in drips": _dripped,
}
"""Each sends something, and says what was wrong with the answer."""
