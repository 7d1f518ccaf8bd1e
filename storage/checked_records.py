"""Records of a file, each behind its length and checksum, so that a torn one shows.

The queue's journal and the lock journal consist of such records.
"""

from __future__ import annotations

import struct
import zlib

HEAD = struct.Struct("<II")
"""Before each payload: its length and its checksum."""


def checksum(data: bytes, before: int = 0) -> int:
    """The checksum of ``data``, or of data whose beginning has the checksum ``before``."""
    return zlib.crc32(data, before)


def packed(payload: bytes) -> bytes:
    """The record that holds ``payload``."""
    return HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def payload_at(data: bytes, offset: int) -> bytes | None:
    """The payload of the record at ``offset``; None if there is no whole one."""
    if offset + HEAD.size > len(data):
        return None
    length, expected = HEAD.unpack_from(data, offset)
    start = offset + HEAD.size
    payload = data[start : start + length]
    # In zeros, length and checksum are right for an empty record: there are no such records.
    return payload if 0 < len(payload) == length and zlib.crc32(payload) == expected else None
