"""What takes how much of the disk, and how much may, as values. Measures nothing."""

from __future__ import annotations

from typing import Annotated

import msgspec

from .. import settings

_Bytes = Annotated[int, msgspec.Meta(ge=0)]


class DiskUse(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes on the disk: those that are free, all, and what parts of the queue take.

    ``jobs``: the files of live jobs, without their output. ``output``: of live jobs, with large
    input. ``archive``: archived jobs, with theirs. ``log``: the daemon's. ``other``: index of the
    archive, configuration, locks. ``reserve``: kept for when the disk is full; 0: it is given up.
    An older daemon does not say ``jobs``, ``log`` and ``other``.
    """

    free: int
    total: int
    output: int
    archive: int
    journal: int
    reserve: int = 0
    jobs: int = 0
    log: int = 0
    other: int = 0

    def parts(self) -> dict[str, int]:
        """What takes how much, by the name of the part, in the order in which they are shown."""
        names = "jobs", "output", "archive", "journal", "log", "other", "reserve"
        return {name: getattr(self, name) for name in names}


class DiskLimits(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What jobs may take of the disk, and what is kept of them; 0: there is no limit.

    ``output_job_bytes``: output of one job, before compression. ``output_bytes``: output and
    archive of all jobs, above which output is dropped. Ended jobs are purged when they ended more
    than ``keep_seconds`` ago, and, the oldest first, while all together take more than
    ``keep_bytes``.
    """

    output_job_bytes: Annotated[int, msgspec.Meta(ge=1)] = settings.OUTPUT_JOB_BYTES_MAX
    output_bytes: _Bytes = 0
    keep_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    keep_bytes: _Bytes = 0


DISK_FIELD = "disk_limits"
"""The cluster's field with the limits."""
