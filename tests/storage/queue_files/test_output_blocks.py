from __future__ import annotations

import os
import struct
import zlib
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.storage.queue_files import output_blocks
from ganger.storage.queue_files.output_blocks import (
    LIMIT_REACHED,
    NOT_STORED,
    STDERR,
    STDOUT,
    Packer,
    Segment,
)

SEGMENTS = st.lists(
    st.one_of(
        st.builds(Segment, st.sampled_from([STDOUT, STDERR]), st.binary(max_size=300)),
        st.builds(
            Segment, st.sampled_from([LIMIT_REACHED, NOT_STORED]), missing=st.integers(0, 99)
        ),
    ),
    max_size=5,
)


def packed(blocks: list[tuple[int, list[Segment]]], place: int = 0) -> bytes:
    packer, data = Packer(), b""
    for op_index, segments in blocks:
        data += packer.pack(op_index, segments, place + len(data))
    return data


def unpacked(found: output_blocks.ScanResult) -> list[tuple[int, list[Segment]]]:
    return [(block.op_index, block.segments()) for block in found.blocks]


@given(st.lists(st.tuples(st.integers(0, 999), SEGMENTS), max_size=5), st.integers(0, 2**40))
def test_packed_segments_are_found_again(
    blocks: list[tuple[int, list[Segment]]], place: int
) -> None:
    data = packed(blocks, place)
    found = output_blocks.find_blocks(data, place)
    assert unpacked(found) == blocks
    assert found.end == place + len(data)
    assert not found.damaged


@given(st.lists(st.tuples(st.integers(0, 9), SEGMENTS), min_size=1, max_size=4), st.data())
def test_a_cut_at_the_end_takes_the_last_blocks_alone(
    blocks: list[tuple[int, list[Segment]]], data: st.DataObject
) -> None:
    whole = packed(blocks)
    cut = data.draw(st.integers(0, len(whole) - 1))
    found = output_blocks.find_blocks(whole[:cut], 0)
    assert unpacked(found) == blocks[: len(found.blocks)]
    assert len(found.blocks) < len(blocks)
    assert found.end <= cut
    assert not found.damaged
    # What comes then is found from there on.
    rest = output_blocks.find_blocks(whole[found.end :], found.end)
    assert unpacked(found) + unpacked(rest) == blocks


@given(st.data())
def test_a_changed_byte_costs_its_block_alone_and_is_named(data: st.DataObject) -> None:
    blocks = [(index, [Segment(STDOUT, b"%d" % index * 50)]) for index in range(3)]
    whole = bytearray(packed(blocks))
    ends = [block.end for block in output_blocks.find_blocks(bytes(whole), 0).blocks]
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    found = output_blocks.find_blocks(bytes(whole), 0)
    hit = next(index for index, end in enumerate(ends) if place < end)
    if hit == 2:
        # Nothing comes behind it: it may be one that is still being written.
        assert (unpacked(found), found.end) == (blocks[:2], ends[1])
        return
    assert unpacked(found) == blocks[:hit] + blocks[hit + 1 :]
    assert found.damaged == [([0, *ends][hit], ends[hit])]


@given(st.integers(0, 200))
def test_a_reader_may_begin_anywhere(start: int) -> None:
    whole = packed([(index, [Segment(STDOUT, os.urandom(60))]) for index in range(4)])
    blocks = output_blocks.find_blocks(whole, 0).blocks
    found = output_blocks.find_blocks(whole[start:], start)
    assert [b.start for b in found.blocks] == [b.start for b in blocks if b.start >= start]


def test_output_that_is_itself_such_a_file_is_not_taken_for_blocks() -> None:
    inner = packed([(7, [Segment(STDOUT, os.urandom(500))]) for _ in range(3)])
    whole = packed([(0, [Segment(STDOUT, b"x" * 100)]), (0, [Segment(STDOUT, inner)])])
    assert inner in whole
    found = output_blocks.find_blocks(whole[1:], 1)
    assert [block.op_index for block in found.blocks] == [0]


def test_text_is_compressed_and_noise_is_not() -> None:
    packer = Packer()
    text = packer.pack(0, [Segment(STDOUT, b"all work and no play\n" * 10_000)], 0)
    assert len(text) < 10_000
    noise = Segment(STDOUT, os.urandom(output_blocks.BLOCK_BYTES))
    for _ in range(1 + Packer.SKIPPED_BLOCKS):
        assert len(packer.pack(0, [noise], 0)) < len(noise.data) + 100
    assert len(packer.pack(0, [Segment(STDOUT, b"a" * 100_000)], 0)) < 1_000
    # A little text is stored as it is.
    sizes = [len(packer.pack(0, [Segment(STDOUT, b"a" * size)], 0)) for size in (58, 59)]
    assert sizes[0] == output_blocks.HEADER_BYTES + 63 > sizes[1]


def test_of_a_large_block_of_noise_only_a_sample_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def compress(raw: bytes, level: int) -> bytes:
        tried.append(len(raw))
        return zlib.compress(raw, level)

    monkeypatch.setattr(output_blocks, "zlib", mock.Mock(wraps=zlib, compress=compress))
    Packer().pack(0, [Segment(STDOUT, os.urandom(output_blocks.BLOCK_BYTES))], 0)
    assert tried == [4_096]
    text = b"all work and no play\n" * 10_000
    assert len(Packer().pack(0, [Segment(STDOUT, text)], 0)) < 10_000
    assert len(tried) == 3


def test_the_largest_block_is_no_larger_than_its_limit() -> None:
    pieces = output_blocks.SEGMENTS_MAX
    size = output_blocks.BLOCK_BYTES // pieces
    segments = [Segment(STDOUT + index % 2, os.urandom(size)) for index in range(pieces)]
    block = Packer().pack(0, segments, 0)
    assert len(block) <= output_blocks.STORED_BYTES_MAX
    [found] = output_blocks.find_blocks(block, 0).blocks
    assert found.segments() == segments


def test_segments_of_a_later_version_are_left_out() -> None:
    raw = struct.pack("<BI", 9, 3) + b"new" + struct.pack("<BI", STDOUT, 2) + b"hi"
    header = struct.pack("<4sBIQII", b"GOB1", 0, 5, 0, len(raw), len(raw))
    block = header + struct.pack("<I", zlib.crc32(raw, zlib.crc32(header))) + raw
    assert unpacked(output_blocks.find_blocks(block, 0)) == [(5, [Segment(STDOUT, b"hi")])]


def test_the_format_stays_readable() -> None:
    stored = bytes.fromhex(
        "474f4231000300000000000000000000001b0000001b000000c50411d8"
        "01030000006f757402010000006504080000000700000000000000"
    )
    segments = [Segment(STDOUT, b"out"), Segment(STDERR, b"e"), Segment(NOT_STORED, missing=7)]
    assert unpacked(output_blocks.find_blocks(stored, 0)) == [(3, segments)]
    assert packed([(3, segments)]) == stored
