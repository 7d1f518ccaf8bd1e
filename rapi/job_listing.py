"""The listings of all jobs, kept as the bytes that clients get, as long as nothing has changed.

Each request asks the daemon which jobs there are, and for the versions of those. Jobs are read
again only if they have another version, or can change at any time because they run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from ..storage.access import rapi_settings
from ..storage.jobs import listing
from . import rows

if TYPE_CHECKING:
    from ..transport.client.async_client import AsyncClient

GANETIS_FIELDS: Final = (
    "id", "ops", "status", "summary", "opstatus", "received_ts", "start_ts", "end_ts",
)  # fmt: skip

BULK_FIELDS: Final = tuple(dict.fromkeys([*GANETIS_FIELDS, *listing.shown_in("rapi")]))

_ASKED: Final = (*BULK_FIELDS, "archived")
_T = TypeVar("_T")


class JobListing:
    """Answers listings of all jobs. Those that are asked for at the same time share the work."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._mark: int | None = None
        self._short = _array(())
        self._objects = Objects(rapi_settings.LISTED_BYTES_MAX)
        self.short = Shared(self._read_short).result
        """The ids and URIs of all live jobs, as JSON."""
        self.bulk = Shared(self._read_bulk).result
        """All live jobs whole, as JSON."""

    async def _read_short(self) -> bytes:
        self._mark, ids = await self._client.job_ids(self._mark)
        if ids is not None:
            self._short = _array(b'{"id":%d,"uri":"/2/jobs/%d"}' % (one, one) for one in ids)
        return self._short

    async def _read_bulk(self) -> bytes:
        ids, versions = await self._client.job_versions()
        objects = self._objects
        missing = objects.missing(ids, versions)
        found: dict[int, bytes] = {}
        if len(missing) > len(ids) // 2:
            found = await self._read(None)
        else:
            for start in range(0, len(missing), rapi_settings.LISTED_AT_ONCE):
                some = missing[start : start + rapi_settings.LISTED_AT_ONCE]
                found |= await self._read(["|", *(["==", "id", one] for one in some)])
        return objects.whole(ids, versions, found)

    async def _read(self, raw_filter: object) -> dict[int, bytes]:
        """The objects of these jobs, without those that were archived meanwhile."""
        found = await rows.raw_objects(self._client, "job", _ASKED, raw_filter)
        return {
            int(bytes(job["id"])): msgspec.json.encode(job)
            for job in found
            if bytes(job.pop("archived")) == b"false"
        }


class Objects:
    """The JSON of jobs, with the versions that these had; ``bytes_max`` in all. Pure."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: dict[int, tuple[int, bytes]] = {}
        self._size = 0
        self._last: tuple[list[int], list[int], bytes] | None = None

    def missing(self, ids: Sequence[int], versions: Sequence[int]) -> list[int]:
        """The jobs of which nothing is kept, or another version."""
        if self._is_last(ids, versions):
            return []
        kept = self._kept
        return [
            job_id
            for job_id, version in zip(ids, versions, strict=True)
            if (known := kept.get(job_id)) is None or known[0] != version
        ]

    def whole(self, ids: list[int], versions: list[int], found: dict[int, bytes]) -> bytes:
        """The array of these jobs; ``found`` has at least those that are `missing`, if they are."""
        if self._is_last(ids, versions):
            assert self._last is not None
            return self._last[2]
        self._forget(ids)
        shown: list[bytes] = []
        for job_id, version in zip(ids, versions, strict=True):
            new = found.get(job_id)
            known = self._kept.get(job_id)
            if known is not None and known[0] == version:
                shown.append(known[1])
            elif new is not None:
                shown.append(new)
                self._keep(job_id, version, new)
        body = _array(shown)
        is_lasting = 0 not in versions and len(shown) == len(ids)
        if is_lasting and len(body) <= self._bytes_max:
            self._last = ids, versions, body
        return body

    def _is_last(self, ids: Sequence[int], versions: Sequence[int]) -> bool:
        last = self._last
        return last is not None and last[1] == versions and last[0] == ids

    def _forget(self, ids: Iterable[int]) -> None:
        self._last = None
        for gone in self._kept.keys() - set(ids):
            self._size -= len(self._kept.pop(gone)[1])

    def _keep(self, job_id: int, version: int, data: bytes) -> None:
        known = self._kept.pop(job_id, None)
        if known is not None:
            self._size -= len(known[1])
        if version and self._size + len(data) <= self._bytes_max:
            self._kept[job_id] = version, data
            self._size += len(data)


class Shared(Generic[_T]):
    """One run of ``work`` for all who ask before it begins. Runs come one after the other."""

    def __init__(self, work: Callable[[], Awaitable[_T]]) -> None:
        self._work = work
        self._running: asyncio.Task[_T] | None = None
        self._next: asyncio.Task[_T] | None = None

    async def result(self) -> _T:
        """The result of a run that begins from now on."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._run(self._running))
            self._next.add_done_callback(_look_at)
        # A reader that goes away takes nothing from the others.
        return await asyncio.shield(self._next)

    async def _run(self, before: asyncio.Task[_T] | None) -> _T:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        return await self._work()


def _look_at(task: asyncio.Task[_T]) -> None:
    """Its error is not lost, even if everybody has gone who would have raised it."""
    if not task.cancelled():
        task.exception()


def _array(items: Iterable[bytes]) -> bytes:
    r"""A JSON array with a newline behind it.

    >>> _array([b"1", b"2"])
    b'[1,2]\n'
    """
    return b"[%b]\n" % b",".join(items)
