"""What a start finds in the journal and the job files, for the ledger. Reads nothing itself."""

from __future__ import annotations

import msgspec

from ...storage.log.logged_changes import LoggedChanges
from ...storage.queue_files import replay


class Recovered(msgspec.Struct, kw_only=True):
    """What the ledger begins with. ``living`` have a process.

    The states of the journal: the files of ``unwritten`` lack them, those of ``written`` have them,
    and those of ``ahead`` have newer ones, which are here. ``archived`` are all archived jobs of
    the journal, and ``unarchived`` those whose files could not be moved. ``journaled`` is how many
    jobs the journal has, ``position`` that of its last record. ``changes``: of the configuration.
    ``purged`` are gone for good, as the journal says, and ``unremoved`` has their files that could
    not be removed. ``given_up`` have ended and lie in the archive, damaged or older: the states
    that a damaged journal has of them do not count, and no file will ever have them.
    """

    last_id: int = 0
    position: int = 0
    changes: LoggedChanges = msgspec.field(default_factory=LoggedChanges)
    living: dict[int, tuple[int, bytes]] = {}
    unwritten: dict[int, tuple[int, bytes]] = {}
    written: dict[int, tuple[int, bytes]] = {}
    ahead: dict[int, tuple[int, bytes]] = {}
    unarchived: list[int] = []
    refused_inputs: list[str] = []
    archived: dict[int, replay.State | None] = {}
    journaled: int = 0
    given_up: set[int] = set()
    purged: set[int] = set()
    unremoved: dict[int, list[str]] = {}
