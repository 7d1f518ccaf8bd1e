"""What can be found wrong with a data directory: the kinds of findings, as a table.

``checking`` finds them, ``repairing`` does what can be done; the documentation's table is made
from `KINDS`.
"""

from __future__ import annotations

import enum

import msgspec


class FindingRemedy(enum.StrEnum):
    """Who does something about a finding."""

    REPAIR = "repair"
    """``ganger fsck --repair`` does."""

    OPERATOR = "operator"
    """A person must: whatever was done by rule might be wrong."""

    NONE = "none"
    """Nobody need: it is no error, or the daemon's next start settles it. Only told."""


class Kind(enum.StrEnum):
    """What can be found, in the order in which it is told and repaired."""

    VERSION_MISSING = "version-missing"
    VERSION_TORN = "version-torn"
    MODE = "mode"
    OTHER_USER = "other-user"
    OWNER = "owner"
    OPEN_TO_ALL = "open-to-all"
    JOURNAL_UNREADABLE = "journal-unreadable"
    SERIAL = "serial"
    MISPLACED = "misplaced"
    JOURNAL_AHEAD = "journal-ahead"
    NOT_ARCHIVED = "not-archived"
    JOURNAL_DAMAGED = "journal-damaged"
    JOURNAL_TORN = "journal-torn"
    STATE_UNREADABLE = "state-unreadable"
    JOB_UNREADABLE = "job-unreadable"
    JOB_UNREADABLE_ALIVE = "job-unreadable-alive"
    PROCESS_GONE = "process-gone"
    DEPENDENCY_MISSING = "dependency-missing"
    DOUBLE = "double"
    DOUBLE_DIFFERS = "double-differs"
    ARCHIVED_UNREADABLE = "archived-unreadable"
    ARCHIVED_UNFINISHED = "archived-unfinished"
    SPOOL_MISPLACED = "spool-misplaced"
    SPOOL_ORPHAN = "spool-orphan"
    OUTPUT_DAMAGED = "output-damaged"
    LOCK_DEAD = "lock-dead"
    LOCK_UNKNOWN = "lock-unknown"
    LOCKS_UNREADABLE = "locks-unreadable"
    LOCKS_UNREADABLE_ALIVE = "locks-unreadable-alive"
    CONFIG_UNREADABLE = "config-unreadable"
    RULE_UNREADABLE = "rule-unreadable"
    KEY_UNREADABLE = "key-unreadable"
    TEMPORARY = "temporary"
    QUARANTINED = "quarantined"
    FOREIGN = "foreign"


class KindInfo(msgspec.Struct, frozen=True):
    """What a kind of finding means, who does something about it, and what is done."""

    meaning: str
    remedy: FindingRemedy
    how: str


_R, _O, _N = FindingRemedy.REPAIR, FindingRemedy.OPERATOR, FindingRemedy.NONE

KINDS: dict[Kind, KindInfo] = {
    Kind.VERSION_MISSING: KindInfo(
        "the queue directory does not say its version", _R, "writes it, as a daemon's start does"
    ),
    Kind.VERSION_TORN: KindInfo(
        "the version file is empty, so that no daemon starts", _R, "puts it aside, writes it anew"
    ),
    Kind.MODE: KindInfo("its owner may not read and write it", _R, "gives its owner the right to"),
    Kind.OTHER_USER: KindInfo(
        "the queue belongs to another user than the one that checks it",
        _N,
        "only its owner can start a daemon on it, or repair it",
    ),
    Kind.OWNER: KindInfo(
        "a file belongs to another user than the queue: the daemon cannot use it, or does not "
        "start, because it would run that user's commands",
        _O,
        "see where it comes from, then give it to the queue's owner (chown) or move it away",
    ),
    Kind.OPEN_TO_ALL: KindInfo(
        "every user may write into it, and so run commands as the daemon's user: no daemon starts",
        _O,
        "look what is in it, then take the right away (chmod o-w)",
    ),
    Kind.JOURNAL_UNREADABLE: KindInfo(
        "a segment of the journal cannot be read: no daemon starts, and no job file can be "
        "judged, because the segment may hold it",
        _O,
        "find out what the disk has",
    ),
    Kind.SERIAL: KindInfo(
        "the last id is missing, is no number, or is lower than an id that was given",
        _R,
        "writes the highest id found anywhere",
    ),
    Kind.MISPLACED: KindInfo(
        "the file lies where nobody looks for this job",
        _R,
        "moves it to its place, or into quarantine if that is taken",
    ),
    Kind.JOURNAL_AHEAD: KindInfo(
        "the journal holds a newer state of the job than its file, if it has one",
        _R,
        "writes the file, as a daemon's start does; a torn one goes into quarantine",
    ),
    Kind.NOT_ARCHIVED: KindInfo(
        "the job was archived, but its file is not (whole) in the archive",
        _R,
        "moves it, as a daemon's start does",
    ),
    Kind.JOURNAL_DAMAGED: KindInfo(
        "behind a damaged record of the journal lie whole ones: the disk is at fault, or they "
        "were never acknowledged; a replay leaves them out",
        _R,
        "copies the segment into quarantine, before a daemon's start deletes it",
    ),
    Kind.JOURNAL_TORN: KindInfo(
        "the journal ends in a torn record, which was never acknowledged",
        _N,
        "the next start cuts it",
    ),
    Kind.STATE_UNREADABLE: KindInfo(
        "the newest state of the job in the journal is no job", _O, "look at the job's file"
    ),
    Kind.JOB_UNREADABLE: KindInfo(
        "the file cannot be read as this job, and the journal does not hold it",
        _R,
        "moves it into quarantine",
    ),
    Kind.JOB_UNREADABLE_ALIVE: KindInfo(
        "the file cannot be read as this job, but its process lives",
        _N,
        "its process, the only one that may, writes it anew",
    ),
    Kind.PROCESS_GONE: KindInfo(
        "the job is not final, and its process is gone",
        _N,
        "the next start ends it in an error, or starts it again if it had not begun",
    ),
    Kind.DEPENDENCY_MISSING: KindInfo(
        "the job depends on one that is nowhere", _N, "the next start ends it in an error"
    ),
    Kind.DOUBLE: KindInfo(
        "the job lies in the queue and, the same, in the archive",
        _R,
        "moves the one in the queue into quarantine",
    ),
    Kind.DOUBLE_DIFFERS: KindInfo(
        "the job lies in the queue and, different, in the archive",
        _O,
        "move away the one that is wrong",
    ),
    Kind.ARCHIVED_UNREADABLE: KindInfo(
        "the archived file cannot be read as this job", _R, "moves it into quarantine"
    ),
    Kind.ARCHIVED_UNFINISHED: KindInfo(
        "the archived job is not final, and never will be",
        _O,
        "move it into the queue directory, or away",
    ),
    Kind.SPOOL_MISPLACED: KindInfo(
        "input or output of a job does not lie beside it",
        _R,
        "moves it there, or into quarantine if that place is taken",
    ),
    Kind.SPOOL_ORPHAN: KindInfo(
        "input or output of a job that is nowhere: its submission was never answered, or its "
        "file was deleted",
        _R,
        "moves it into quarantine",
    ),
    Kind.OUTPUT_DAMAGED: KindInfo(
        "a part of a job's output cannot be read: torn off by a crash, or the disk is at fault",
        _N,
        "`ganger job logs` shows the rest, and says how much is missing",
    ),
    Kind.LOCK_DEAD: KindInfo(
        "the lock file of a process that is gone", _R, "removes it, as a daemon's start does"
    ),
    Kind.LOCK_UNKNOWN: KindInfo(
        "a process holds the lock file, but no job names it", _O, "see what the process does"
    ),
    Kind.LOCKS_UNREADABLE: KindInfo(
        "the table of locks is unreadable, and no job's process lives",
        _R,
        "moves it into quarantine: nobody holds a lock",
    ),
    Kind.LOCKS_UNREADABLE_ALIVE: KindInfo(
        "the table of locks is unreadable while jobs' processes live, so that no daemon starts",
        _O,
        "let the jobs end, or end them; then repair",
    ),
    Kind.CONFIG_UNREADABLE: KindInfo(
        "the configuration is unreadable, so that no daemon starts", _O, "mend it by hand"
    ),
    Kind.RULE_UNREADABLE: KindInfo(
        "a filter rule is left out, and not obeyed", _O, "mend it by hand"
    ),
    Kind.KEY_UNREADABLE: KindInfo("the key is of no use", _O, "make the key anew"),
    Kind.TEMPORARY: KindInfo(
        "left over by a write that was not finished", _R, "removes it, as a daemon's start does"
    ),
    Kind.QUARANTINED: KindInfo(
        "put aside by an earlier repair", _N, "it is in nobody's way; delete it when you are done"
    ),
    Kind.FOREIGN: KindInfo("nothing of Ganger's", _N, "it is left alone"),
}
"""Everything that can be found; the documentation's table is made from it."""


class Finding(msgspec.Struct, frozen=True):
    """Something to be told. ``job_id`` where it is about one job."""

    kind: Kind
    path: str
    what: str
    job_id: int | None = None

    @property
    def remedy(self) -> FindingRemedy:
        """Who does something about it."""
        return KINDS[self.kind].remedy

    @property
    def how(self) -> str:
        """What is done about it."""
        return KINDS[self.kind].how
