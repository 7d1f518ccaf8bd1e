"""What a start finds in a queue directory, as a value. Reads nothing itself (`recovery`)."""

from __future__ import annotations

import msgspec

from ...storage import jobs
from ...storage.queue_files import replay
from . import recalling
from .job_table import JobTable
from .lazy_rows import LazyRows


class Loaded(msgspec.Struct):
    """What a queue directory holds. ``living`` have a process; ``died`` lost theirs.

    ``unflushed_finals`` have ended, as their files say, but the journal knows only the earlier
    states that are here: until the file system has been flushed, the end may not be durable.
    ``mended`` had damaged files, for which the journal makes up.
    ``unwritten`` and ``unarchived`` come from the journal, and the disk refused to take them.

    If they are many, ``is_late``: no file was written, and ``unwritten`` are the jobs whose files
    lack their states, or may lose them. ``ahead`` are the states that files have and the journal
    has not, and that may be lost. ``archived`` are all archived jobs of the journal,
    and ``journaled`` is how many jobs it has, with them. ``unread`` reads later what rows of the
    table lack.
    """

    table: JobTable
    living: dict[int, tuple[int, bytes]]
    died: list[jobs.Job]
    quarantined: list[str]
    unwritten: dict[int, tuple[int, bytes]]
    unarchived: list[int]
    last_id: int
    unflushed_finals: dict[int, tuple[int, bytes]] = {}
    refused_inputs: list[str] = []
    mended: list[int] = []
    is_late: bool = False
    ahead: dict[int, tuple[int, bytes]] = {}
    archived: dict[int, replay.State | None] = {}
    journaled: int = 0
    unread: LazyRows = msgspec.field(default_factory=LazyRows)
    recalled: recalling.Recalled = msgspec.field(default_factory=recalling.Recalled)
