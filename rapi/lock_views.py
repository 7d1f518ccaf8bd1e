"""Locks, and who waits for whom. Ganger's own."""

from __future__ import annotations

from typing import Any

import msgspec

from ..transport.messages import LockRow, LockWait
from .declarations import Call, Method, Resource, Right


class Locks(msgspec.Struct):
    """``locks``: every lock that is held or wanted, and ``job/ID`` rows; ``waits``: the graph."""

    locks: list[LockRow]
    waits: list[LockWait]


async def list_locks(call: Call) -> Any:  # noqa: ANN401 - JSON
    """Every lock that is held or wanted, and which owner waits for which."""
    return Locks(await call.client.locks(), await call.client.lock_waits())


RESOURCES = (
    Resource(
        path="/2/locks",
        is_own=True,
        methods={
            "GET": Method(
                handler=list_locks,
                right=Right.READ,
                summary="Held and wanted locks, and who waits for whom.",
                reply=Locks,
            )
        },
    ),
)
