"""Which of the jobs that have ended depend on another one.

The daemon knows the dependencies of jobs that wait. Those of an ended job stand in its file alone,
and never change: this process reads each once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec

from ..storage.access import rapi_settings
from . import rows

if TYPE_CHECKING:
    from ..transport.client.async_client import AsyncClient


class _Op(msgspec.Struct):
    depends: list[tuple[int, Any]] | None = None


_decode = msgspec.json.Decoder(list[_Op]).decode


class Chains:
    """Remembers on which jobs the ended ones depend."""

    def __init__(self) -> None:
        self._depends: dict[int, frozenset[int]] = {}
        self._reading = asyncio.Lock()

    async def dependents(
        self, job_id: int, ended: Collection[int], client: AsyncClient
    ) -> list[int]:
        """The jobs among the ``ended`` ones that depend on this one, by id.

        Of very many that were submitted later, the next ones are looked at.
        """
        later = sorted(one for one in ended if one > job_id)[: rapi_settings.CHAINED_MAX]
        async with self._reading:
            if missing := [one for one in later if one not in self._depends]:
                await self._read(missing, client)
            depends = self._depends
            found = [one for one in later if job_id in depends.get(one, ())]
            if len(depends) > 2 * rapi_settings.ENDED_KEPT:
                self._depends = {one: depends[one] for one in ended if one in depends}
        return found

    async def _read(self, ids: list[int], client: AsyncClient) -> None:
        wanted = ["|", *(["==", "id", one] for one in ids)]
        for job in await rows.raw_objects(client, "job", ("id", "ops"), wanted):
            ops = _decode(job["ops"]) if bytes(job["ops"]) != b"null" else []
            self._depends[int(bytes(job["id"]))] = frozenset(
                one for op in ops for one, _ in op.depends or ()
            )
