"""What the process of the remote API says to its daemon: lines of JSON through a socket pair."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import msgspec

LINE_BYTES_MAX = 16 * 1024
"""Longest line."""


class Said(msgspec.Struct, omit_defaults=True):
    """One line. A line without an event is a sign of life."""

    event: str = ""
    level: str = ""
    fields: dict[str, Any] = {}


class Notes:
    """Writes to the daemon's log; a line is dropped while the daemon does not read."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._encode = msgspec.json.Encoder(enc_hook=repr).encode

    def info(self, event: str, **fields: object) -> None:
        """Something has happened."""
        self._say(Said(event, "info", fields))

    def warning(self, event: str, **fields: object) -> None:
        """The operator may have to look at it."""
        self._say(Said(event, "warning", fields))

    def error(self, event: str, **fields: object) -> None:
        """The operator must act."""
        self._say(Said(event, "error", fields))

    def alive(self) -> None:
        """Give a sign of life."""
        self._say(Said())

    def _say(self, said: Said) -> None:
        line = self._encode(said)
        if len(line) > LINE_BYTES_MAX:
            # What clients send may be long; that there was such a line must still be known.
            line = self._encode(Said(said.event, said.level, {"fields": "too long"}))
        with contextlib.suppress(BlockingIOError):
            self._control.send(line, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
