from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganger.cli import logs
from ganger.storage import errors
from ganger.storage import settings as limits
from ganger.storage.jobs.job_views import OutputChunk
from ganger.storage.queue_files import output_blocks
from ganger.storage.queue_files.output_blocks import (
    LIMIT_REACHED,
    NOT_STORED,
    REMOVED,
    STDERR,
    STDOUT,
    Segment,
)
from ganger.transport import messages
from ganger.transport.client.output_reading import OutputReading, checked_reading

PAGE = 2 * output_blocks.STORED_BYTES_MAX


def stored(*blocks: tuple[int, list[Segment]]) -> bytes:
    packer, data = output_blocks.Packer(), b""
    for op_index, segments in blocks:
        data += packer.pack(op_index, segments, len(data))
    return data


def read(reading: OutputReading, data: bytes, page: int = PAGE) -> list[OutputChunk]:
    """All that a reading finds in a file of this content."""
    chunks: list[OutputChunk] = []
    for _ in range(1_000):
        asked = reading.request()
        count = min(page, max(asked.bytes_max or page, output_blocks.STORED_BYTES_MAX))
        part = data[asked.offset : asked.offset + count]
        if asked.offset + len(part) == asked.known:
            # The daemon takes it for known, and waits for more.
            assert not output_blocks.find_blocks(part, asked.offset).blocks
        chunks += reading.take(messages.OutputPage(data=part, size=len(data)))
        if reading.is_at_end:
            return chunks + reading.finish()
    raise AssertionError("no end in sight")


def text(chunks: list[OutputChunk]) -> bytes:
    return b"".join(chunk.data for chunk in chunks)


TWO_OPS = stored(
    (0, [Segment(STDOUT, b"one\n"), Segment(STDERR, b"bad\n")]),
    (1, [Segment(STDOUT, b"two\nthree"), Segment(LIMIT_REACHED)]),
    (1, [Segment(LIMIT_REACHED, missing=7), Segment(NOT_STORED, missing=9)]),
)


@pytest.mark.parametrize("op_index", [None, 0, 1])
def test_a_mark_in_place_of_all_output_is_a_gap_of_each_opcode(op_index: int | None) -> None:
    data = stored((0, [Segment(REMOVED, missing=10_000)]))
    [chunk] = read(OutputReading(5, op_index=op_index), data)
    assert (chunk.gap, chunk.missing, chunk.data) == ("removed", 10_000, b"")
    text = "its output (9.8 KiB as stored) was removed, to make room on a full disk"
    assert logs._missing(chunk) == text


def test_output_comes_in_order_with_what_is_missing() -> None:
    chunks = read(OutputReading(5), TWO_OPS)
    assert [(c.op_index, c.stream, c.data, c.gap, c.missing) for c in chunks] == [
        (0, "stdout", b"one\n", "", 0),
        (0, "stderr", b"bad\n", "", 0),
        (1, "stdout", b"two\nthree", "", 0),
        (1, "", b"", "limit", 0),
        (1, "", b"", "limit", 7),
        (1, "", b"", "disk", 9),
    ]
    assert {chunk.job_id for chunk in chunks} == {5}


def test_a_stream_and_an_opcode_can_be_chosen() -> None:
    assert text(read(OutputReading(1, stream="stderr"), TWO_OPS)) == b"bad\n"
    assert text(read(OutputReading(1, op_index=1), TWO_OPS)) == b"two\nthree"
    assert read(OutputReading(1, op_index=2), TWO_OPS) == []
    assert read(OutputReading(1), b"") == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [(0, b""), (1, b"three"), (2, b"two\nthree"), (3, b"one\ntwo\nthree"), (9, b"one\ntwo\nthree")],
)
def test_the_last_lines_are_found(lines: int, expected: bytes) -> None:
    assert text(read(OutputReading(1, tail=lines, stream="stdout"), TWO_OPS)) == expected


def test_a_last_line_with_an_end_counts_once() -> None:
    data = stored((0, [Segment(STDOUT, b"a\nb\n")]), (0, [Segment(STDOUT, b"c\n")]))
    assert text(read(OutputReading(1, tail=1), data)) == b"c\n"
    assert text(read(OutputReading(1, tail=2), data)) == b"b\nc\n"
    assert text(read(OutputReading(1, tail=1), stored((0, [Segment(STDOUT, b"\n\n")])))) == b"\n"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 120_000), min_size=1, max_size=12),
    st.integers(0, 60),
    st.integers(0, 10**6),
)
def test_the_last_lines_are_those_of_the_whole(sizes: list[int], lines: int, seed: int) -> None:
    pieces = []
    for place, size in enumerate(sizes):
        # Noise, which is stored as it is, so that there are many windows to look through.
        noise = bytearray(os.urandom(size).replace(b"\n", b" "))
        for at in range((seed + place) % 977, size, 9_973):
            noise[at] = 10
        pieces.append(bytes(noise))
    data = stored(*((0, [Segment(STDOUT, piece)]) for piece in pieces))
    whole = b"".join(pieces)
    ended = whole.split(b"\n")
    body = ended[:-1] if ended[-1] == b"" else ended
    expected = b"\n".join(body[-lines:]) if lines and body else b""
    if expected or (lines and body):
        expected += b"\n" if ended[-1] == b"" else b""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(limits, "OUTPUT_PAGE_BYTES", PAGE)
        assert text(read(OutputReading(1, tail=lines), data)) == expected


def test_a_block_that_is_cut_off_comes_whole_with_the_next_page() -> None:
    pieces = [os.urandom(output_blocks.BLOCK_BYTES) for _ in range(7)]
    data = stored(*((0, [Segment(STDOUT, piece)]) for piece in pieces))
    assert text(read(OutputReading(1), data)) == b"".join(pieces)
    reading = OutputReading(1)
    assert reading.take(messages.OutputPage(data=data[:20], size=20)) == []
    assert reading.request(3.0) == messages.ReadOutput(id=1, offset=0, known=20, wait_seconds=3.0)
    [chunk] = reading.take(messages.OutputPage(data=data[:300_000], size=300_000))
    assert chunk.data == pieces[0]


def test_damage_is_reported_where_it_lies() -> None:
    data = bytearray(stored(*((0, [Segment(STDOUT, b"%d" % n * 40)]) for n in range(3))))
    ends = [block.end for block in output_blocks.find_blocks(bytes(data), 0).blocks]
    data[ends[0] + 5] ^= 1
    chunks = read(OutputReading(1), bytes(data) + b"torn")
    assert [(c.data[:1], c.gap, c.missing) for c in chunks] == [
        (b"0", "", 0), (b"", "damage", ends[1] - ends[0]), (b"2", "", 0), (b"", "damage", 4),
    ]  # fmt: skip


def test_damage_that_is_larger_than_a_page_is_passed() -> None:
    first = stored((0, [Segment(STDOUT, b"1")]))
    noise = os.urandom(3 * PAGE)
    last = output_blocks.Packer().pack(0, [Segment(STDOUT, b"2")], len(first) + len(noise))
    chunks = read(OutputReading(1), first + noise + last)
    assert text(chunks) == b"12"
    assert sum(chunk.missing for chunk in chunks) == len(noise)
    assert text(read(OutputReading(1, tail=1), first + noise + last)) in (b"12", b"2")


def test_the_last_line_is_found_in_front_of_damage_that_fills_a_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "OUTPUT_PAGE_BYTES", PAGE)
    data = stored((0, [Segment(STDOUT, b"1\n")]), (0, [Segment(STDOUT, b"2\n3")]))
    # The page begins within the second block.
    assert text(read(OutputReading(1, tail=1), data + os.urandom(PAGE - 3))) == b"3"


def test_a_growing_file_is_read_to_where_it_was_at_the_first_look() -> None:
    data = stored(*((0, [Segment(STDOUT, b"%d" % n)]) for n in range(9)))
    end = output_blocks.find_blocks(data, 0).blocks[2].end
    reading = OutputReading(1)
    assert not reading.is_done
    chunks = reading.take(messages.OutputPage(data=data[:end], size=end))
    assert text(chunks) == b"012"
    assert reading.is_done


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"job_id": "1"}, "job id '1'"),
        ({"stream": "both"}, "stream: expected stdout or stderr, got 'both'"),
        ({"tail": -1}, "tail: expected a whole number from 0, got -1"),
        ({"op": True}, "op: expected a whole number from 0, got True"),
    ],
)
def test_wrong_arguments_of_output_are_named(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(errors.BadRequestError, match=expected):
        checked_reading(**{"job_id": 1, "stream": None, "op": None, "tail": None, **arguments})


@pytest.mark.parametrize(
    ("size", "passed"),
    [(output_blocks.STORED_BYTES_MAX, 1), (output_blocks.STORED_BYTES_MAX - 1, 0)],
)
def test_damage_that_fills_a_page_in_which_a_block_would_have_fitted_is_passed(
    size: int, passed: int
) -> None:
    reading = checked_reading(7, stream=None, op=0, tail=None)
    found = reading.take(messages.OutputPage(data=bytes(size), size=size + 100))
    assert len(found) == passed
    assert reading.request().offset == passed
    assert not reading.is_at_end


@pytest.mark.parametrize("name", ["op", "tail"])
def test_an_opcode_or_a_tail_is_a_number_from_0(name: str) -> None:
    fields: dict[str, object] = {"stream": None, "op": None, "tail": None}
    checked_reading(7, **fields | {name: 0})
    for wrong in (-1, True, 1.0, "1"):
        with pytest.raises(errors.BadRequestError, match=f"{name}: expected a whole number from 0"):
            checked_reading(7, **fields | {name: wrong})
