"""The kinds of findings about a data directory, as a table.

``checking`` finds them, ``repairing`` repairs; ``docs/make_tables.py`` makes the table of
``docs/fsck.md`` from `KINDS`.
"""

from __future__ import annotations

import enum

import msgspec


class FindingRemedy(enum.StrEnum):
    """What solves a finding."""

    REPAIR = "repair"
    """``ganger fsck --repair``."""

    OPERATOR = "operator"
    """An administrator must decide: an automatic repair might be wrong."""

    NONE = "none"
    """Nothing is needed: it is no error, or the daemon's next start solves it."""


class FindingKind(enum.StrEnum):
    """The kinds of findings, in the order in which they are shown and repaired."""

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
    PURGED_LEFT = "purged-left"
    JOURNAL_DAMAGED = "journal-damaged"
    JOURNAL_TORN = "journal-torn"
    STATE_UNREADABLE = "state-unreadable"
    JOB_UNREADABLE = "job-unreadable"
    JOB_UNREADABLE_ALIVE = "job-unreadable-alive"
    PROCESS_GONE = "process-gone"
    DEPENDENCY_MISSING = "dependency-missing"
    DOUBLE = "double"
    DOUBLE_OLDER = "double-older"
    DOUBLE_DIFFERS = "double-differs"
    ARCHIVED_LOST = "archived-lost"
    ARCHIVED_UNREADABLE = "archived-unreadable"
    ARCHIVED_UNFINISHED = "archived-unfinished"
    SPOOL_MISPLACED = "spool-misplaced"
    SPOOL_ORPHAN = "spool-orphan"
    OUTPUT_DAMAGED = "output-damaged"
    LOCK_DEAD = "lock-dead"
    LOCK_UNKNOWN = "lock-unknown"
    LOCKS_UNREADABLE = "locks-unreadable"
    LOCKS_UNREADABLE_ALIVE = "locks-unreadable-alive"
    CONFIG_TORN = "config-torn"
    CONFIG_UNREADABLE = "config-unreadable"
    CONFIG_BEHIND = "config-behind"
    CONFIG_DAMAGED = "config-damaged"
    RULE_UNREADABLE = "rule-unreadable"
    SSCONF_STALE = "ssconf-stale"
    KEY_UNREADABLE = "key-unreadable"
    TEMPORARY = "temporary"
    QUARANTINED = "quarantined"
    FOREIGN = "foreign"


class KindInfo(msgspec.Struct, frozen=True):
    """What a kind of finding means, and how it is solved."""

    meaning: str
    remedy: FindingRemedy
    how: str


_R, _O, _N = FindingRemedy.REPAIR, FindingRemedy.OPERATOR, FindingRemedy.NONE

KINDS: dict[FindingKind, KindInfo] = {
    FindingKind.VERSION_MISSING: KindInfo(
        "the queue directory does not say its version", _R, "writes it, as a daemon's start does"
    ),
    FindingKind.VERSION_TORN: KindInfo(
        "the version file is empty, so that no daemon starts",
        _R,
        "moves it into quarantine, writes a new one",
    ),
    FindingKind.MODE: KindInfo(
        "its owner may not read and write it", _R, "gives its owner the right to"
    ),
    FindingKind.OTHER_USER: KindInfo(
        "the queue belongs to another user than the one who checks it",
        _N,
        "only its owner can start a daemon on it, or repair it",
    ),
    FindingKind.OWNER: KindInfo(
        "a file belongs to another user than the queue: the daemon cannot use it, or does not "
        "start, because it would run that user's commands",
        _O,
        "find out where it comes from, then give it to the queue's owner (chown) or move it away",
    ),
    FindingKind.OPEN_TO_ALL: KindInfo(
        "every user may write into it, and so run commands as the daemon's user: no daemon starts",
        _O,
        "look at its content, then take the right away (chmod o-w)",
    ),
    FindingKind.JOURNAL_UNREADABLE: KindInfo(
        "a segment of the journal cannot be read: no daemon starts, and no job file can be "
        "judged, because the segment may hold it",
        _O,
        "check the disk",
    ),
    FindingKind.SERIAL: KindInfo(
        "the last id is missing, is no number, or is lower than an id that was given",
        _R,
        "writes the highest id found anywhere",
    ),
    FindingKind.MISPLACED: KindInfo(
        "the file does not lie where this job belongs",
        _R,
        "moves it to its place, or into quarantine if that is taken",
    ),
    FindingKind.JOURNAL_AHEAD: KindInfo(
        "the journal holds a newer state of the job than its file, if it has one",
        _R,
        "writes the file, as a daemon's start does; a torn one goes into quarantine",
    ),
    FindingKind.NOT_ARCHIVED: KindInfo(
        "the job was archived, but its file is not (whole) in the archive",
        _R,
        "moves it, as a daemon's start does",
    ),
    FindingKind.PURGED_LEFT: KindInfo(
        "a file of a job that was purged is left: the daemon was killed before it removed all",
        _R,
        "removes it, as a daemon's start does",
    ),
    FindingKind.JOURNAL_DAMAGED: KindInfo(
        "behind a damaged record of the journal lie whole ones: the disk is damaged, or they "
        "were never acknowledged; a replay leaves them out",
        _R,
        "copies the segment into quarantine, before a daemon's start deletes it",
    ),
    FindingKind.JOURNAL_TORN: KindInfo(
        "the journal ends in a torn record, which was never acknowledged",
        _N,
        "the next start cuts it",
    ),
    FindingKind.STATE_UNREADABLE: KindInfo(
        "the newest state of the job in the journal is malformed", _O, "look at the job's file"
    ),
    FindingKind.JOB_UNREADABLE: KindInfo(
        "the file cannot be read as this job, and the journal does not hold it",
        _R,
        "moves it into quarantine",
    ),
    FindingKind.JOB_UNREADABLE_ALIVE: KindInfo(
        "the file cannot be read as this job, but its process lives",
        _N,
        "its process writes it again, and no other process may",
    ),
    FindingKind.PROCESS_GONE: KindInfo(
        "the job is not final, and its process is gone",
        _N,
        "the next start ends it in an error, or starts it again if it had not begun",
    ),
    FindingKind.DEPENDENCY_MISSING: KindInfo(
        "the job depends on one that does not exist", _N, "the next start ends it in an error"
    ),
    FindingKind.DOUBLE: KindInfo(
        "the same file of the job lies in the queue and in the archive",
        _R,
        "moves the one in the queue into quarantine",
    ),
    FindingKind.DOUBLE_OLDER: KindInfo(
        "the job has ended and lies in the archive, and an older state of it in the queue",
        _R,
        "moves the one in the queue into quarantine",
    ),
    FindingKind.DOUBLE_DIFFERS: KindInfo(
        "different files of the job lie in the queue and in the archive",
        _O,
        "move away the one that is wrong",
    ),
    FindingKind.ARCHIVED_LOST: KindInfo(
        "the archived file cannot be read as this job, and the damaged journal has only a state "
        "from before the job's end",
        _N,
        "the next start does not run the job again, and puts that state into quarantine",
    ),
    FindingKind.ARCHIVED_UNREADABLE: KindInfo(
        "the archived file cannot be read as this job", _R, "moves it into quarantine"
    ),
    FindingKind.ARCHIVED_UNFINISHED: KindInfo(
        "the archived job is not final, and never will be",
        _O,
        "move it into the queue directory, or away",
    ),
    FindingKind.SPOOL_MISPLACED: KindInfo(
        "input or output of a job does not lie beside it",
        _R,
        "moves it there, or into quarantine if that place is taken",
    ),
    FindingKind.SPOOL_ORPHAN: KindInfo(
        "input or output of a job that does not exist: its submission was never answered, or its "
        "file was deleted",
        _R,
        "moves it into quarantine",
    ),
    FindingKind.OUTPUT_DAMAGED: KindInfo(
        "a part of a job's output cannot be read: a crash has torn it off, or the disk is damaged",
        _N,
        "`ganger job logs` shows the rest, and says how much is missing",
    ),
    FindingKind.LOCK_DEAD: KindInfo(
        "the lock file of a process that is gone", _R, "removes it, as a daemon's start does"
    ),
    FindingKind.LOCK_UNKNOWN: KindInfo(
        "a process holds the lock file, but no job names it",
        _O,
        "find out what the process does",
    ),
    FindingKind.LOCKS_UNREADABLE: KindInfo(
        "the table of locks is unreadable, and no job's process lives",
        _R,
        "moves it into quarantine: no process holds a lock",
    ),
    FindingKind.LOCKS_UNREADABLE_ALIVE: KindInfo(
        "the table of locks is unreadable while jobs' processes live, so that no daemon starts",
        _O,
        "let the jobs end, or end them; then repair",
    ),
    FindingKind.CONFIG_TORN: KindInfo(
        "the configuration is unreadable or missing, and its copy is whole",
        _R,
        "writes it from the copy, as a daemon's start does; an unreadable file goes into "
        "quarantine",
    ),
    FindingKind.CONFIG_UNREADABLE: KindInfo(
        "the configuration and its copy are unreadable, so that no daemon starts",
        _O,
        "repair one of them by hand",
    ),
    FindingKind.CONFIG_BEHIND: KindInfo(
        "the configuration lacks changes that its history has: it is an older copy",
        _O,
        "put a newer copy of config.data back; or start with this one, and the history says so",
    ),
    FindingKind.CONFIG_DAMAGED: KindInfo(
        "a value of the configuration has a wrong shape, so that what needs it fails",
        _O,
        "repair it by hand",
    ),
    FindingKind.RULE_UNREADABLE: KindInfo(
        "a filter rule is malformed, and not obeyed", _O, "repair it by hand"
    ),
    FindingKind.SSCONF_STALE: KindInfo(
        "ssconf files say something else than the configuration", _N, "the next start writes them"
    ),
    FindingKind.KEY_UNREADABLE: KindInfo("the key cannot be used", _O, "make a new key"),
    FindingKind.TEMPORARY: KindInfo(
        "left over by a write that was not finished", _R, "removes it, as a daemon's start does"
    ),
    FindingKind.QUARANTINED: KindInfo(
        "put aside by an earlier repair", _N, "Ganger does not use it; delete it when you are done"
    ),
    FindingKind.FOREIGN: KindInfo("not a file of Ganger's", _N, "Ganger leaves it alone"),
}
"""Every kind, in the order of `FindingKind`."""


class Finding(msgspec.Struct, frozen=True):
    """Something wrong with a data directory. ``job_id`` if it is about one job."""

    kind: FindingKind
    path: str
    what: str
    job_id: int | None = None

    @property
    def remedy(self) -> FindingRemedy:
        """What solves it."""
        return KINDS[self.kind].remedy

    @property
    def how(self) -> str:
        """How it is solved."""
        return KINDS[self.kind].how
