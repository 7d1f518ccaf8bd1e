"""The format of a job's stored output: self-contained blocks. No files.

How it works. One file holds the output of all commands of a job, in the order in which the job
read it. The file is a sequence of blocks, and only grows. A block holds a header and segments
(kind, length, bytes) of one opcode, compressed if that makes them shorter. The header has the
block's own place in the file, and a checksum of header and segments: so a reader can begin
anywhere and finds the next block, and never mistakes other bytes for a block (not even output
that is such a file itself). A block that a crash has cut off is no block.

Integers are little-endian. Header: ``GOB1``, flags (1: compressed), the opcode's place, the
block's place in the file, stored bytes, bytes before compression, CRC-32 of all this and of the
stored bytes. A segment: kind, number of bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

import msgspec

STDOUT, STDERR, LIMIT_REACHED, NOT_STORED, LOGGED, REMOVED = 1, 2, 3, 4, 5, 6
"""Kinds of segments. After the first two, marks: they hold a count of missing bytes, or a serial.
"""

STREAMS = {STDOUT: "stdout", STDERR: "stderr"}
KINDS = {name: kind for kind, name in STREAMS.items()}

ABOUT_OUTPUT = "output"
"""Kind of entries of the job's log that repeat what a reader of the output sees."""

IN_OUTPUT = (*KINDS, ABOUT_OUTPUT)
"""Kinds of entries of the job's log that a reader of the output need not see."""

BLOCK_BYTES = 256 * 1024
"""Most output in one block."""

SEGMENTS_MAX = 16_384
"""Most segments of a block."""

MAGIC = b"GOB1"
_HEADER = struct.Struct("<4sBIQII")
_CHECKSUM = struct.Struct("<I")
_SEGMENT = struct.Struct("<BI")
_COUNT = struct.Struct("<Q")
_COMPRESSED = 1
HEADER_BYTES = _HEADER.size + _CHECKSUM.size
_RAW_BYTES_MAX = BLOCK_BYTES + SEGMENTS_MAX * _SEGMENT.size
STORED_BYTES_MAX = HEADER_BYTES + _RAW_BYTES_MAX
"""Largest block in the file."""

_COMPRESSION_LEVEL = 1
_WORTH_COMPRESSING = 64
"""Shorter blocks are stored as they are."""

_SAMPLE_BYTES = 4 * 1024
"""How much of a large block is tried first."""


class Segment(msgspec.Struct, frozen=True):
    """Output, or a mark with the number of ``missing`` bytes and without ``data``.

    A `LIMIT_REACHED` of 0 means that output is dropped from here on; another one at the end has the
    number of dropped bytes. ``missing`` of a `LOGGED` is the serial of the newest entry in the
    job's log that is no output: this entry, and those before it, came before what follows. A
    `REMOVED` is all that is left of a file that had so many bytes.
    """

    kind: int
    data: bytes = b""
    missing: int = 0


class Block(msgspec.Struct, frozen=True):
    """A whole block; ``start`` and ``end`` are its offsets in the file."""

    op_index: int
    start: int
    end: int
    stored: memoryview
    raw_bytes: int
    is_compressed: bool

    def segments(self) -> list[Segment]:
        """The segments of the block, without those of unknown kinds."""
        data = zlib.decompress(self.stored, bufsize=self.raw_bytes) if self.is_compressed else None
        return list(_segments(bytes(self.stored) if data is None else data))

    def output_bytes(self) -> int:
        """How much output is in the block, before compression."""
        return sum(len(segment.data) for segment in self.segments())


class Packer:
    """Makes blocks. After one that compression did not shorten, it pauses compression."""

    SKIPPED_BLOCKS = 15

    def __init__(self) -> None:
        self._skips = 0

    def pack(self, op_index: int, segments: Sequence[Segment], place: int) -> bytes:
        """The block with these segments, for the offset ``place`` of the file."""
        assert len(segments) <= SEGMENTS_MAX
        parts: list[bytes] = []
        for segment in segments:
            data = segment.data if segment.kind in STREAMS else _COUNT.pack(segment.missing)
            parts += (_SEGMENT.pack(segment.kind, len(data)), data)
        raw = b"".join(parts)
        assert len(raw) <= _RAW_BYTES_MAX
        stored = self._compressed(raw)
        flags = 0 if stored is raw else _COMPRESSED
        header = _HEADER.pack(MAGIC, flags, op_index, place, len(stored), len(raw))
        return b"".join((header, _CHECKSUM.pack(zlib.crc32(stored, zlib.crc32(header))), stored))

    def _compressed(self, raw: bytes) -> bytes:
        if len(raw) < _WORTH_COMPRESSING:
            return raw
        if self._skips:
            self._skips -= 1
            return raw
        sample = raw[len(raw) // 2 :][:_SAMPLE_BYTES]
        if len(raw) <= 2 * _SAMPLE_BYTES or _is_shorter(_packed(sample), sample):
            # Of what does not get shorter, to try the whole block takes longer than all the rest.
            packed = _packed(raw)
            if _is_shorter(packed, raw):
                return packed
        self._skips = self.SKIPPED_BLOCKS
        return raw


def _packed(raw: bytes) -> bytes:
    return zlib.compress(raw, _COMPRESSION_LEVEL)


def _is_shorter(packed: bytes, raw: bytes) -> bool:
    return len(packed) < len(raw) - len(raw) // 16


class ScanResult(msgspec.Struct, frozen=True):
    """The blocks in a part of the file, and the damaged bytes between them.

    ``end``: where to read on. The bytes behind it are an unfinished block, or damaged.
    """

    blocks: list[Block]
    damaged: list[tuple[int, int]]
    """Offsets (start, end) of bytes without a block, before one."""
    end: int


def find_blocks(data: bytes | memoryview, place: int) -> ScanResult:
    """The whole blocks in ``data``, which begins at the offset ``place`` of the file."""
    view = memoryview(data)
    blocks: list[Block] = []
    damaged: list[tuple[int, int]] = []
    at = 0
    while at < len(view):
        block = _block_at(view, at, place)
        if block is None:
            after = _next_block(view, at, place)
            if after is None:
                break
            damaged.append((place + at, after.start))
            block = after
        blocks.append(block)
        at = block.end - place
    return ScanResult(blocks, damaged, place + at)


def _block_at(view: memoryview, at: int, place: int) -> Block | None:
    if len(view) - at < HEADER_BYTES:
        return None
    magic, flags, op_index, own_place, stored_bytes, raw_bytes = _HEADER.unpack_from(view, at)
    start = at + HEADER_BYTES
    if (
        magic != MAGIC
        or own_place != place + at
        or raw_bytes > _RAW_BYTES_MAX
        or stored_bytes > raw_bytes
        or start + stored_bytes > len(view)
    ):
        return None
    stored = view[start : start + stored_bytes]
    (checksum,) = _CHECKSUM.unpack_from(view, at + _HEADER.size)
    if zlib.crc32(stored, zlib.crc32(view[at : at + _HEADER.size])) != checksum:
        return None
    is_compressed = bool(flags & _COMPRESSED)
    end = place + start + stored_bytes
    return Block(op_index, own_place, end, stored, raw_bytes, is_compressed)


def _next_block(view: memoryview, at: int, place: int) -> Block | None:
    data = view.obj if isinstance(view.obj, bytes) and len(view.obj) == len(view) else bytes(view)
    while (at := data.find(MAGIC, at + 1)) >= 0:
        if block := _block_at(view, at, place):
            return block
    return None


def _segments(raw: bytes) -> Iterator[Segment]:
    at = 0
    while at + _SEGMENT.size <= len(raw):
        kind, size = _SEGMENT.unpack_from(raw, at)
        at += _SEGMENT.size
        data = raw[at : at + size]
        at += size
        if kind in STREAMS:
            yield Segment(kind, data)
        elif kind in (LIMIT_REACHED, NOT_STORED, LOGGED, REMOVED) and size == _COUNT.size:
            yield Segment(kind, missing=_COUNT.unpack(data)[0])
