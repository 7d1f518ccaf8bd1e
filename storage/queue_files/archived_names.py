"""Which names the jobs of each folder of the archive have: a search reads no folder in vain.

Beside the lines of the index lies a small file for each folder, with checksums of the names, plans
and users of its jobs, in order. It has the time of the folder, as the index has: with another time,
or damaged, it says nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import zlib
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING

from .. import errors
from ..disk import documents

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..jobs.listing import JobSummary


class ArchivedNames:
    """The names of one archive. Keeps four bytes of each in memory, as far as they were needed."""

    def __init__(self, index_path: str) -> None:
        self._path = index_path
        self._known: dict[int, tuple[int, array[int]]] = {}

    def may_have(self, folder: int, changed: int, name: str) -> bool | None:
        """Whether a job of the folder, which was changed then, may have it; None: unknown."""
        known = self._known.get(folder)
        if known is None or known[0] != changed:
            if (sums := self._read(folder, changed)) is None:
                return None
            self._known[folder] = known = changed, sums
        wanted, sums = _sum(name), known[1]
        place = bisect_left(sums, wanted)
        return place < len(sums) and sums[place] == wanted

    def note(self, folder: int, changed: int, jobs: Iterable[JobSummary]) -> None:
        """These are all jobs of the folder. `StorageError` if the disk refuses."""
        found = array("I", sorted({_sum(name) for job in jobs for name in _names_of(job)}))
        self._known[folder] = changed, found
        data = found.tobytes()
        documents.replace(self._file(folder), _head(changed, data) + data, flush=False)

    def _read(self, folder: int, changed: int) -> array[int] | None:
        found = array("I")
        with contextlib.suppress(errors.StorageError):
            head, _, data = (documents.read(self._file(folder)) or b"").partition(b"\n")
            if head + b"\n" == _head(changed, data):
                found.frombytes(data)
                return found
        return None

    def _file(self, folder: int) -> str:
        return os.path.join(self._path, f"{folder}.names")


def _head(changed: int, data: bytes) -> bytes:
    order = sys.byteorder.encode("ascii")
    return b'{"changed":%d,"order":"%b","crc":%d}\n' % (changed, order, zlib.crc32(data))


def _names_of(job: JobSummary) -> Iterator[str]:
    yield from filter(None, (job.name, job.plan, job.user))
    # `JobFilter.user` knows the name of a key without what stands before it.
    if ":" in job.user:
        yield job.user.rpartition(":")[2]


def _sum(name: str) -> int:
    return zlib.crc32(name.encode("utf-8", "surrogatepass"))
