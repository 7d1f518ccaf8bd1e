"""Of which opcodes jobs consist: who may submit some opcodes only may change no other jobs.

The opcodes of a job never change, so this process asks for them once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import msgspec

from ..storage.access import rapi_settings
from . import rows

if TYPE_CHECKING:
    from ..transport.client.async_client import AsyncClient


class _Op(msgspec.Struct):
    name: str = msgspec.field(name="OP_ID")


_decode = msgspec.json.Decoder(list[_Op]).decode


class OpcodeNames:
    """Remembers the opcodes of jobs that limited users have seen."""

    def __init__(self) -> None:
        self._known: dict[int, frozenset[str]] = {}
        self._reading = asyncio.Lock()

    async def of(
        self, job_ids: Collection[int], client: AsyncClient
    ) -> Mapping[int, frozenset[str]]:
        """The opcodes of these jobs, without the jobs that are not there any more."""
        async with self._reading:
            if missing := [one for one in job_ids if one not in self._known]:
                wanted = ["|", *(["==", "id", one] for one in missing)]
                for job in await rows.raw_objects(client, "job", ("id", "ops"), wanted):
                    names = frozenset(op.name for op in _decode(job["ops"]))
                    self._known[int(bytes(job["id"]))] = names
        found = {one: self._known[one] for one in job_ids if one in self._known}
        for old in [*self._known][: max(0, len(self._known) - rapi_settings.OPCODES_KEPT)]:
            del self._known[old]
        return found
