"""What a start finds in a queue directory, as a value. Reads nothing itself (`recovery`)."""

from __future__ import annotations

import msgspec

from ...storage.jobs import jobs
from ..durable.recovered import Recovered
from .job_table import JobTable
from .lazy_rows import LazyRows


class Loaded(Recovered, kw_only=True):
    """What a queue directory holds, beside what the ledger begins with. ``died`` lost processes.

    ``unflushed_finals`` have ended, as their files say, but the journal knows only the earlier
    states that are here: until the file system has been flushed, the end may not be durable.
    ``mended`` had damaged files, for which the journal makes up. ``unread`` reads later what
    rows of the table lack. ``has_marked``: a loss of power may have freed locks of tasks on nodes,
    which have marks again.
    """

    table: JobTable = msgspec.field(default_factory=JobTable)
    died: list[jobs.Job] = []
    quarantined: list[str] = []
    unflushed_finals: dict[int, tuple[int, bytes]] = {}
    mended: list[int] = []
    unread: LazyRows = msgspec.field(default_factory=LazyRows)
    has_marked: bool = False
