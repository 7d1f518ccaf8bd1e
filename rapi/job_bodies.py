"""The bytes of single jobs that are asked for again and again, as long as they do not change.

Only a job that was asked for before costs a question for its version: it is likely to be asked for
once more. No answer is older than its request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..storage.access import rapi_settings

if TYPE_CHECKING:
    from ..transport.client.async_client import AsyncClient

Read = Callable[[int], Awaitable[bytes]]
"""Reads the JSON of one job."""


class JobBodies:
    """Keeps the newest bodies, up to a number of jobs and of bytes for each."""

    def __init__(self, client: AsyncClient, read: Read) -> None:
        self._client = client
        self._read = read
        self._known: OrderedDict[int, tuple[int, bytes] | None] = OrderedDict()
        """What is kept of the jobs that were asked for lately: version and body, if anything."""

    async def body(self, job_id: int) -> bytes:
        """The JSON of a job as it is now."""
        if job_id not in self._known:
            self._remember(job_id, None)
            return await self._read(job_id)
        version = await self._client.job_version(job_id)
        kept = self._known.get(job_id)
        if kept is not None and kept[0] == version:
            self._known.move_to_end(job_id)
            return kept[1]
        # Of this version, or of a newer one: then the next question finds another version.
        found = await self._read(job_id)
        if version and len(found) <= rapi_settings.KEPT_BODY_BYTES_MAX:
            self._remember(job_id, (version, found))
        else:
            # It changes all the time, is archived, or large.
            self._known.pop(job_id, None)
        return found

    def _remember(self, job_id: int, kept: tuple[int, bytes] | None) -> None:
        self._known[job_id] = kept
        self._known.move_to_end(job_id)
        if len(self._known) > rapi_settings.KEPT_BODIES_MAX:
            self._known.popitem(last=False)
