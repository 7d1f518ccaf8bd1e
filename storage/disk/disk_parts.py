"""What takes how much of the disk, as a value. Measures nothing."""

from __future__ import annotations

import msgspec


class DiskUse(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes on the disk: those that are free, all, and what parts of the queue take.

    ``output``: of live jobs, with large input. ``archive``: archived jobs, with theirs.
    ``reserve``: kept for when the disk is full; 0: it is given up.
    """

    free: int
    total: int
    output: int
    archive: int
    journal: int
    reserve: int = 0
