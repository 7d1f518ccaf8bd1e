"""What the jobs of each folder of the archive may be: a search reads no folder in vain.

Beside the lines of the index lies a small file for each folder. It has checksums of the names,
plans and users of its jobs, in order; the outcomes that they have; when the first and the last one
was received; and a bit for each three bytes in a row (`job_filters.grams`) of their texts. It has
the time of the folder, as the index has: with another time, or damaged, it says nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import zlib
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING

import msgspec

from .. import errors
from ..disk import documents
from ..jobs.job_filters import grams

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ..jobs.job_filters import Needles
    from ..jobs.listing import JobSummary

_GRAM_BITS = 1 << 16
"""How many bits there are for all texts of a folder: 8 KiB. Most are 0, as texts are alike."""

_TEXT_CHARACTERS_MAX = 500_000
"""Of more text, without what is there twice, all bits are 1: to look at it would take too long."""


class Hint(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the jobs of one folder. Times in seconds since the epoch; None: no job."""

    changed: int
    """The time of the folder, in nanoseconds."""
    first_received: float | None
    last_received: float | None
    outcomes: frozenset[str]
    order: str = sys.byteorder
    names: bytes = b""
    """Checksums of names, plans and users, four bytes each, in the byte order of ``order``."""
    grams: bytes = b""

    @classmethod
    def of(cls, changed: int, jobs: Collection[JobSummary]) -> Hint:
        """The hint of a folder, which was changed then and has these jobs."""
        times = [job.received for job in jobs if job.received is not None]
        names = {_sum(name) for job in jobs for name in _names_of(job)}
        return cls(
            changed=changed,
            first_received=min(times, default=None),
            last_received=max(times, default=None),
            outcomes=frozenset(str(job.outcome) for job in jobs if job.outcome is not None),
            names=array("I", sorted(names)).tobytes(),
            grams=_bits(" ".join(_words_of(jobs))),
        )

    def may_have(self, needles: Needles) -> bool:
        """Whether a job of the folder may have all that is looked for."""
        if needles.since is not None and not self._is_received_after(needles.since):
            return False
        if needles.until is not None and not self._is_received_before(needles.until):
            return False
        if needles.outcomes is not None and not needles.outcomes & self.outcomes:
            return False
        if needles.name and not self._has_name(needles.name):
            return False
        return all(self.grams[place >> 3] >> (place & 7) & 1 for place in _places(needles.grams))

    def _is_received_after(self, since: float) -> bool:
        return self.last_received is not None and self.last_received >= since

    def _is_received_before(self, until: float) -> bool:
        return self.first_received is not None and self.first_received < until

    def _has_name(self, name: str) -> bool:
        sums, wanted = memoryview(self.names).cast("I"), _sum(name)
        place = bisect_left(sums, wanted)
        return place < len(sums) and sums[place] == wanted


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Hint).decode


class ArchivedHints:
    """The hints of one archive. Keeps those in memory that were needed, some 8 KiB of a folder."""

    def __init__(self, index_path: str) -> None:
        self._path = index_path
        self._known: dict[int, Hint] = {}

    def of(self, folder: int, changed: int) -> Hint | None:
        """The hint of the folder, which was changed then; None: nothing is known of it."""
        known = self._known.get(folder)
        if known is None or known.changed != changed:
            if (known := self._read(folder)) is None or known.changed != changed:
                return None
            self._known[folder] = known
        return known

    def note(self, folder: int, changed: int, jobs: Collection[JobSummary]) -> None:
        """These are all jobs of the folder. `StorageError` if the disk refuses."""
        self._known[folder] = found = Hint.of(changed, jobs)
        data = _encode(found)
        documents.replace(self._file(folder), _mark(data) + data, flush=False)

    def _read(self, folder: int) -> Hint | None:
        with contextlib.suppress(errors.StorageError, msgspec.DecodeError):
            data = documents.read(self._file(folder)) or b""
            head, _, body = data.partition(b"\n")
            if head + b"\n" == _mark(body):
                found = _decode(body)
                return found if found.order == sys.byteorder else None
        return None

    def _file(self, folder: int) -> str:
        return os.path.join(self._path, f"{folder}.hints")


def _mark(data: bytes) -> bytes:
    return b"%d\n" % zlib.crc32(data)


def _names_of(job: JobSummary) -> Iterator[str]:
    yield from filter(None, (job.name, job.plan, job.user))
    # `JobFilter.user` knows the name of a key without what stands before it.
    if ":" in job.user:
        yield job.user.rpartition(":")[2]


def _sum(name: str) -> int:
    return zlib.crc32(name.encode("utf-8", "surrogatepass"))


def _words_of(jobs: Iterable[JobSummary]) -> set[str]:
    """The words of what conditions look at; many jobs have the same."""
    texts = {
        text for job in jobs for text in (job.summary, job.reason, job.name, job.plan, job.user)
    }
    return set(" ".join(texts).split(" "))


def _places(found: Iterable[bytes]) -> Iterator[int]:
    return (zlib.crc32(gram) % _GRAM_BITS for gram in found)


def _bits(text: str) -> bytes:
    if len(text) > _TEXT_CHARACTERS_MAX:
        return b"\xff" * (_GRAM_BITS >> 3)
    bits = bytearray(_GRAM_BITS >> 3)
    for place in _places(grams(text)):
        bits[place >> 3] |= 1 << (place & 7)
    return bytes(bits)
