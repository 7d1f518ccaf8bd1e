"""Ganeti's documents on a Unix socket: JSON, each ended by one byte 0x03. No sockets, no clock.

LuxiD and WConfD speak this (Ganeti design: daemon refactoring). A request is an object with
``method`` and ``args``; its reply has ``success`` and ``result``. An error is a pair of a name and
its arguments, or, if the request could not be read, one text; after that the server closes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ...storage import errors
from ...storage.wording import one_line, type_name

END = b"\x03"

DOCUMENT_BYTES_MAX = 64 * 1024 * 1024
"""Largest document that is read."""

CONTAINERS_MAX = 1_000_000
"""Most arrays and objects of one document: an empty one takes thirty times its text in memory."""

VALUES_MAX = 3_000_000
"""Most values of one document: a number takes ten times its text. A comma stands for one."""


class Call(NamedTuple):
    """One request."""

    method: str
    args: list[Any]


class UnreadableCallError(errors.BadRequestError):
    """The document is no request."""


class DocumentReader:
    """Cuts a stream of bytes into documents."""

    def __init__(self, bytes_max: int = DOCUMENT_BYTES_MAX) -> None:
        # In one piece: documents may come in drips of a byte.
        self._rest = bytearray()
        self._bytes_max = bytes_max

    @property
    def size(self) -> int:
        """How many bytes of a document are there whose end is not."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """The documents that end in ``data``. Raises `UnreadableCallError` for a large one."""
        *ended, rest = data.split(END)
        found = []
        for piece in ended:
            self._add(piece)
            found.append(bytes(self._rest))
            self._rest.clear()
        self._add(rest)
        return found

    def _add(self, piece: bytes) -> None:
        if len(self._rest) + len(piece) > self._bytes_max:
            raise UnreadableCallError(f"the document has more than {self._bytes_max} bytes")
        self._rest += piece


def decode_call(document: bytes) -> Call:
    """The request in ``document``. Raises `UnreadableCallError`.

    >>> decode_call(b'{"method": "echo", "args": ["hi"], "version": 3000000}')
    Call(method='echo', args=['hi'])
    """
    if document.count(b"[") + document.count(b"{") > CONTAINERS_MAX:
        raise UnreadableCallError(f"the document has more than {CONTAINERS_MAX} arrays and objects")
    if document.count(b",") > VALUES_MAX:
        raise UnreadableCallError(f"the document has more than {VALUES_MAX} values")
    try:
        found = msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = f"parsing top-level JSON message: Invalid JSON: {error}"
        raise UnreadableCallError(text) from error
    if not isinstance(found, dict):
        raise UnreadableCallError("parsing top-level JSON message: it is no object")
    for key, kind, name in (("method", str, "string"), ("args", list, "array")):
        if not isinstance(found.get(key), kind):
            # Without the value, which may be a secret: errors go into logs.
            shown = type_name(found.get(key))
            raise UnreadableCallError(f"key '{key}': expected {name}, got {shown}")
    return Call(found["method"], found["args"])


def encode_result(value: object) -> bytes:
    """The document that answers with ``value``."""
    return msgspec.json.encode({"success": True, "result": value}) + END


def encode_error(name: str, *args: object) -> bytes:
    """The document that refuses with Ganeti's exception ``name``; its texts are one line each."""
    plain = [one_line(arg) if isinstance(arg, str) else arg for arg in args]
    return msgspec.json.encode({"success": False, "result": [name, plain]}) + END


def encode_unreadable(text: str) -> bytes:
    """The last document on a connection whose request could not be read."""
    result = f"Failed to parse request: {one_line(text)}"
    return msgspec.json.encode({"success": False, "result": result}) + END
