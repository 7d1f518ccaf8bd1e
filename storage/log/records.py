"""The records of the log: what queue and configuration have promised to remember.

A record has a position: its number since the log began. The queue appends all of them
(`actors/durable/ledger`). Format 2 has the changes of the configuration, which had a journal of
their own before; format 3 has the jobs that were purged.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import msgspec

from .checked_records import HEAD, RecordFormat

if TYPE_CHECKING:
    from collections.abc import Sequence


class SegmentBegun(msgspec.Struct, frozen=True, tag="begun", array_like=True):
    """First record of each segment: the format's version, and the last job id given so far.

    ``position``: of the record behind it; it has none itself. Format 1 does not say it.
    """

    version: int
    last_id: int
    position: int = 0


class JobsStored(msgspec.Struct, frozen=True, tag="stored", array_like=True):
    """A submission: (id, serial of the state, text of the job file) of each job, all or none."""

    jobs: list[tuple[int, int, bytes]]


class StateStored(msgspec.Struct, frozen=True, tag="state", array_like=True):
    """A job's new state as a whole, with its serial."""

    job_id: int
    serial: int
    body: bytes


class StateFiled(msgspec.Struct, frozen=True, tag="filed", array_like=True):
    """A job's new state that is too large for the log: its file has it, and was flushed before.

    ``digest``: of the text (`digest_of`).
    """

    job_id: int
    serial: int
    digest: bytes


class JobArchived(msgspec.Struct, frozen=True, tag="archived", array_like=True):
    """The job was archived: no older record may restore its file."""

    job_id: int


class JobsPurged(msgspec.Struct, frozen=True, tag="purged", array_like=True):
    """These jobs, which had ended, are gone for good: no older record restores anything of them."""

    ids: list[int]


class OpcodeAnswer(msgspec.Struct, frozen=True):
    """What an opcode of a job resulted in, and the lines that it logs."""

    job_id: int
    op_index: int
    result: Any = None
    log: list[str] = []


class ConfigChanged(msgspec.Struct, frozen=True, tag="config", array_like=True):
    """A batch of changes: the objects as they are now stored, None for one that went.

    ``serial`` and ``time`` are those of the configuration afterwards; ``who`` and ``why`` are for
    the history. ``answer``: of the opcode that made the changes. ``request``: the key of the
    request that asked for them, empty if it had none; ``digest`` and ``reply``: its own.
    """

    serial: int
    time: float
    who: str
    why: str
    objects: list[tuple[str, str, Any]]
    """Container (``nodes``, ...), UUID, object."""

    answer: OpcodeAnswer | None = None
    request: str = ""
    digest: str = ""
    reply: Any = None


class ConfigWritten(msgspec.Struct, frozen=True, tag="written", array_like=True):
    """``config.data`` has all changes up to this serial number: earlier records of them are done.

    ``is_anew``: the configuration goes on from this serial number, and no change that stands before
    this record in the log counts any more.
    """

    serial: int
    is_anew: bool = False


JobRecord = JobsStored | StateStored | StateFiled | JobArchived | JobsPurged

Record = SegmentBegun | JobRecord | ConfigChanged | ConfigWritten

FORMAT_VERSION = 3

RECORDS: RecordFormat[Record] = RecordFormat(Record, "journal", FORMAT_VERSION)
"""The records of the log."""

_DIGEST_BYTES = 16


def digest_of(body: bytes) -> bytes:
    """The digest of the text of a state."""
    import hashlib  # noqa: PLC0415 - few jobs have so large a state

    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()


encoded = msgspec.msgpack.Encoder().encode
"""The payload of a record."""

_STORED_START = b"\x92\xa6stored"
_MANY = 0xDC


class EncodedChange:
    """A `ConfigChanged`, as the configuration store has encoded it: the queue reads none."""

    def __init__(self, serial: int, payload: bytes) -> None:
        self.serial = serial
        self.payload = payload

    def packed(self) -> list[bytes]:
        """The whole record, as the journal holds it."""
        return [HEAD.pack(len(self.payload), zlib.crc32(self.payload)), self.payload]

    def is_same(self, stored: ConfigChanged | EncodedChange | None) -> bool:
        """Whether the other one says the same."""
        if isinstance(stored, ConfigChanged):
            return encoded(stored) == self.payload
        return stored is not None and stored.payload == self.payload


class StoredRecord:
    """The record of a submission, made in slices; the same bytes as those of `JobsStored`.

    The bytes of a large one are neither copied nor read again when it is complete.
    """

    def __init__(self, count: int) -> None:
        """``count``: how many jobs it will have, 65,535 at most."""
        few = 16
        head = bytes((0x90 | count,)) if count < few else bytes((_MANY,)) + count.to_bytes(2)
        start = _STORED_START + head
        self._missing = count
        self._slices = [start]
        self._size, self._checksum = len(start), zlib.crc32(start)

    def add(self, new: Sequence[tuple[int, int, bytes]]) -> None:
        """Add jobs: id, serial, text of the file."""
        added = b"".join(map(encoded, new))
        self._missing -= len(new)
        self._slices.append(added)
        self._size += len(added)
        self._checksum = zlib.crc32(added, self._checksum)

    def packed(self) -> list[bytes]:
        """The whole record, as the journal holds it."""
        assert self._missing == 0, "the record says how many jobs it has"
        return [HEAD.pack(self._size, self._checksum), *self._slices]
