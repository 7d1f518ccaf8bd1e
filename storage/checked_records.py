"""Records of a file, each behind its length and checksum, so that a torn one shows.

The queue's journal and the lock journal consist of such records.
"""

from __future__ import annotations

import struct
import zlib

HEAD = struct.Struct("<II")
"""Before each payload: its length and its checksum."""


def packed(payload: bytes) -> bytes:
    """The record that holds ``payload``."""
    return HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def payload_at(data: bytes, offset: int) -> bytes | None:
    """The payload of the record at ``offset``; None if there is no whole one."""
    if offset + HEAD.size > len(data):
        return None
    length, checksum = HEAD.unpack_from(data, offset)
    start = offset + HEAD.size
    payload = data[start : start + length]
    # In zeros, length and checksum are right for an empty record: there are no such records.
    return payload if 0 < len(payload) == length and zlib.crc32(payload) == checksum else None
