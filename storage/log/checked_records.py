"""Records of a file, each behind its length and checksum, so that a torn one shows.

The journals of the queue, of the configuration and of the locks consist of such records. Each has
a `RecordFormat`, and all of them are read by one rule: a file counts up to its first record that is
not whole. After a loss of power, whole records may lie behind a torn one: the disk has written them
first, and none of the group was acknowledged. Damage to a disk looks the same, so whoever deletes
such a file keeps a copy of it (`segments.keep_copies`).
"""

from __future__ import annotations

import contextlib
import re
import struct
import typing
import zlib
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from .. import errors

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

HEAD = struct.Struct("<II")
"""Before each payload: its length and its checksum (CRC-32)."""

AnyRecord = TypeVar("AnyRecord", bound=msgspec.Struct)


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


class Tail(msgspec.Struct, frozen=True):
    """The bytes, other than zeros, behind the last record of a file that counts."""

    offset: int
    has_records: bool
    """Whether they contain whole records, behind one that is not whole."""


class Content(NamedTuple, Generic[AnyRecord]):
    """What a file holds: the records that count, and what lies behind them."""

    records: list[AnyRecord]
    tail: Tail | None
    """None if all of the file counts."""

    left_out: list[AnyRecord]
    """The whole records that do not count, as far as this version knows their kinds."""


class RecordFormat(Generic[AnyRecord]):
    """The records of one kind of file: how they are written, read and judged."""

    def __init__(
        self,
        records: Any,  # noqa: ANN401 - a union
        name: str,
        version: int,
        unknown: type[errors.OperatorError] = errors.DataDirectoryError,
        *,
        passed_over: Any = None,  # noqa: ANN401 - a union
    ) -> None:
        """``records``: a union of tagged structures. ``unknown``: the error for any other.

        ``passed_over``: those that a reader does not look at, which saves decoding them.
        """
        self.version = version
        self._name = name
        self._unknown = unknown
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(records).decode
        self._starts = self._starts_of(records)
        self._passed_over = None if passed_over is None else self._starts_of(passed_over)

    def _starts_of(self, records: Any) -> re.Pattern[bytes]:  # noqa: ANN401 - a union
        """The first bytes of payloads: an array, of any length since versions differ, and a tag."""
        tags = (kind.__struct_config__.tag for kind in typing.get_args(records))
        names = b"|".join(re.escape(self._encode(tag)) for tag in tags)
        return re.compile(rb"[\x90-\x9f](?:%b)" % names)

    def packed(self, record: AnyRecord) -> bytes:
        """The record as the file holds it."""
        return packed(self._encode(record))

    def records_in(
        self, data: bytes, path: str | os.PathLike[str]
    ) -> Iterator[tuple[AnyRecord, int]]:
        """Each record with the offset of its end, up to the first that is not whole.

        Raises an error for a whole record of a later version.
        """
        offset = 0
        while payload := payload_at(data, offset):
            offset += HEAD.size + len(payload)
            if self._passed_over is not None and self._passed_over.match(payload):
                continue
            try:
                record: AnyRecord = self._decode(payload)
            except msgspec.DecodeError as error:
                # The checksum is right, so the record is not torn: another version wrote it.
                supported = f"supported is format {self.version}"
                message = f"{path}: a record of an unknown kind; {supported}"
                raise self._unknown(message) from error
            if (version := getattr(record, "version", self.version)) > self.version:
                message = f"{path}: {self._name} format {version}, supported is {self.version}"
                raise errors.DataDirectoryError(message)
            yield record, offset

    def content(self, data: bytes, path: str | os.PathLike[str]) -> Content[AnyRecord]:
        """All that a file says, from one look at it. Raises as `records_in`."""
        counting: list[AnyRecord] = []
        end = 0
        for record, after in self.records_in(data, path):
            counting.append(record)
            end = after
        # Those that were passed over behind the last one count, too.
        while payload := payload_at(data, end):
            end += HEAD.size + len(payload)
        if not data[end:].strip(b"\0"):
            return Content(counting, None, [])
        payloads = list(self._payloads_behind(data, end))
        left_out: list[AnyRecord] = []
        for payload in payloads:
            with contextlib.suppress(msgspec.DecodeError):
                left_out.append(self._decode(payload))
        return Content(counting, Tail(end, bool(payloads)), left_out)

    def _payloads_behind(self, data: bytes, end: int) -> Iterator[bytes]:
        for match in self._starts.finditer(data, end):
            head = match.start() - HEAD.size
            if head >= end and (payload := payload_at(data, head)) is not None:
                yield payload
