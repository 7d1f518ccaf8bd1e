"""What the process says reaches the daemon, whatever it repeats."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import msgspec
import pytest

from ganger.rapi.notes import LINE_BYTES_MAX, Notes, Said


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def heard(control: socket.socket) -> Said:
    return msgspec.json.decode(control.recv(LINE_BYTES_MAX + 1), type=Said)


def test_a_line_has_its_event_and_fields(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    notes = Notes(ours)
    notes.warning("request refused", user="joe")
    assert heard(theirs) == Said("request refused", "warning", {"user": "joe"})


@pytest.mark.parametrize("text", ["\x01" * 65_536, "x" * 5_000_000])
def test_a_line_that_is_too_long_keeps_its_event(
    pair: tuple[socket.socket, socket.socket], text: str
) -> None:
    ours, theirs = pair
    Notes(ours).error("request failed", path=text)
    assert heard(theirs) == Said("request failed", "error", {"fields": "too long"})


def test_lines_that_nobody_reads_are_dropped(pair: tuple[socket.socket, socket.socket]) -> None:
    notes = Notes(pair[0])
    for _ in range(2_000):
        notes.info("x" * 1_000)
