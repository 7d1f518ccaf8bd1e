"""What a start finds in the journal and the job files, for the ledger. Reads nothing itself."""

from __future__ import annotations

import msgspec

from ...storage.queue_files import replay


class Recovered(msgspec.Struct, kw_only=True):
    """What the ledger begins with. ``living`` have a process.

    ``unwritten`` and ``unarchived`` come from the journal, and the disk refused to take them.

    If they are many, ``is_late``: no file was written, and ``unwritten`` are the jobs whose files
    lack their states, or may lose them. ``ahead`` are the states that files have and the journal
    has not, and that may be lost. ``archived`` are all archived jobs of the journal,
    and ``journaled`` is how many jobs it has, with them.
    """

    last_id: int = 0
    living: dict[int, tuple[int, bytes]] = {}
    unwritten: dict[int, tuple[int, bytes]] = {}
    unarchived: list[int] = []
    refused_inputs: list[str] = []
    is_late: bool = False
    ahead: dict[int, tuple[int, bytes]] = {}
    archived: dict[int, replay.State | None] = {}
    journaled: int = 0
