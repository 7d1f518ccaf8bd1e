"""Channels: whole frames between two ends, until one of them is gone."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.actors.processes import channels
from ganger.actors.processes.channels import (
    CONTROL_BYTES,
    PACKET_BYTES,
    Channel,
    ChannelClosedError,
)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    one, other = channels.pair()
    yield Channel(one), Channel(other)
    one.close()
    other.close()


@pytest.mark.parametrize(
    "size",
    [0, 1, PACKET_BYTES - 1, PACKET_BYTES, PACKET_BYTES + 1, 2 * PACKET_BYTES, 150_000],
)
def test_a_frame_arrives_whole(ends: tuple[Channel, Channel], size: int) -> None:
    one, other = ends
    frame = os.urandom(size)
    one.send(frame)
    assert other.receive() == frame
    assert other.receive() is None


@given(st.lists(st.integers(0, 40), max_size=12))
def test_frames_arrive_one_by_one_in_order(sizes: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channels, "PACKET_BYTES", 10)
        first, second = channels.pair()
        with contextlib.closing(first), contextlib.closing(second):
            one, other = Channel(first), Channel(second)
            frames = [bytes([number]) * size for number, size in enumerate(sizes)]
            for frame in frames:
                one.send(frame)
            assert [other.receive() for _ in frames] == frames
            assert other.receive() is None


def test_both_ends_may_speak(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    one.send(b"question")
    assert other.receive() == b"question"
    other.send(b"answer")
    assert one.receive() == b"answer"


def test_receiving_does_not_wait(ends: tuple[Channel, Channel]) -> None:
    assert ends[0].receive() is None


def test_waiting_ends_with_a_frame_and_with_the_other_end(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    assert not one.wait(0)
    other.send(b"news")
    assert one.wait(None)
    assert one.receive() == b"news"
    assert not one.wait(0)
    other.close()
    assert one.wait(None)


def test_a_closed_end_receives_nothing_from_the_file_that_has_its_number(
    ends: tuple[Channel, Channel],
) -> None:
    one, _ = ends
    number = one.fileno()
    one.close()
    again, beside = channels.pair()
    with contextlib.closing(again), contextlib.closing(beside):
        assert number in (again.fileno(), beside.fileno())
        with pytest.raises(ChannelClosedError):
            one.receive()
        again.send(b"not for it")
        beside.send(b"not for it")
        with pytest.raises(ChannelClosedError):
            one.receive()


def test_a_frame_in_the_making_is_not_received(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    one._end.send(b"\x01first ")
    assert other.receive() is None
    one._end.send(b"\x00second")
    assert other.receive() == b"first second"


def test_messages_sent_before_the_end_are_still_received(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    one.send(b"last words")
    one.close()
    assert other.receive() == b"last words"
    with pytest.raises(ChannelClosedError):
        other.receive()


def test_nothing_can_be_sent_to_an_end_that_is_gone(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    other.close()
    with pytest.raises(ChannelClosedError):
        one.send(b"hello?")


def test_a_closed_end_can_be_closed_and_asked_again(ends: tuple[Channel, Channel]) -> None:
    one, _ = ends
    one.close()
    one.close()
    assert one.fileno() == -1
    with pytest.raises(ChannelClosedError):
        one.send(b"x")
    with pytest.raises(ChannelClosedError):
        one.receive()


def test_a_channel_that_is_not_read_ends_and_is_never_out_of_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channels, "SEND_SECONDS", 0)
    first, second = channels.pair()
    with contextlib.closing(first), contextlib.closing(second):
        one, other = Channel(first), Channel(second)
        first.settimeout(0)
        assert send_until_closed(one, b"x" * (3 * PACKET_BYTES)) < 10_000
        # A part of the last frame may have gone; another frame must not be glued to it.
        with pytest.raises(ChannelClosedError):
            one.send(b"y")
        assert set(receive_until_closed(other)) <= {b"x" * (3 * PACKET_BYTES)}


def send_until_closed(end: Channel, frame: bytes) -> int:
    """The number of frames that an end takes without a reader."""
    for sent in range(10_000):
        try:
            end.send(frame)
        except ChannelClosedError:
            return sent
    return 10_000


def receive_until_closed(end: Channel) -> list[bytes]:
    """The frames that still come; the end must follow, and not just silence."""
    frames: list[bytes] = []
    while True:
        try:
            frame = end.receive()
        except ChannelClosedError:
            return frames
        assert frame is not None
        frames.append(frame)


def test_sending_has_a_time_limit(ends: tuple[Channel, Channel]) -> None:
    seconds = ends[0]._end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16)
    assert int.from_bytes(seconds[:8], "little") == channels.SEND_SECONDS > 0


def test_descriptors_travel_beside_a_packet_and_are_not_inherited() -> None:
    one, other = channels.pair()
    reader, writer = os.pipe()
    with contextlib.closing(one), contextlib.closing(other):
        channels.send_with_descriptors(one, b"take this", [writer])
        os.close(writer)
        data, [received] = channels.receive_with_descriptors(other)
        assert data == b"take this"
        assert not os.get_inheritable(received)
        os.write(received, b"x")
        os.close(received)
        assert os.read(reader, 10) == b"x"
        os.close(reader)
        one.close()
        assert channels.receive_with_descriptors(other) == (b"", [])


def test_a_packet_may_be_as_long_as_its_limit() -> None:
    one, other = channels.pair()
    with contextlib.closing(one), contextlib.closing(other):
        channels.send_with_descriptors(one, b"x" * CONTROL_BYTES, [])
        assert channels.receive_with_descriptors(other) == (b"x" * CONTROL_BYTES, [])


def test_what_was_sent_is_read_though_the_sender_left_something_unread() -> None:
    one, other = channels.pair()
    ours, theirs = Channel(one), Channel(other)
    theirs.send(b"never read")
    ours.send(b"first")
    ours.send(b"last")
    ours.close()
    assert [theirs.receive(), theirs.receive()] == [b"first", b"last"]
    with pytest.raises(channels.ChannelClosedError):
        theirs.receive()
    theirs.close()
