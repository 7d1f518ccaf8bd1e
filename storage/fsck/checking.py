"""Decides what is wrong with a data directory: facts in, findings out. No files, no clock.

``survey`` collects the facts, ``findings`` lists the kinds of findings, ``repairing`` repairs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from .. import settings, wording
from ..jobs.jobs import JobStatus
from ..log.checked_records import Tail
from ..queue_files import job_files, replay
from .findings import Finding, FindingKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_JOB_LOCK = re.compile(r"job_0*([0-9]+)_[0-9-]+")


class FoundJob(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a job file, or of a state in the journal; or the ``problem`` with it."""

    job_id: int
    path: str
    is_in_place: bool = True
    problem: str | None = None
    serial: int = 0
    status: JobStatus | None = None
    lock_file: str | None = None
    depends: tuple[int, ...] = ()


class JournalSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment of the journal. ``is_kept``: a copy of it is in quarantine."""

    path: str
    problem: str | None = None
    tail: Tail | None = None
    is_kept: bool = False


class Archival(msgspec.Struct, frozen=True):
    """A job that is archived according to the journal: where its file is."""

    is_journaled: bool
    is_archived: bool


class SpoolFile(msgspec.Struct, frozen=True):
    """A file in the spool: the standard input of a job, or its output."""

    path: str
    job_id: int
    is_archived: bool = False
    damage: list[tuple[int, int]] = []
    """The unreadable places (start, end) of an output."""
    problem: str | None = None
    """Why the whole file is unreadable."""


class Facts(msgspec.Struct, kw_only=True):
    """What `survey` found in a data directory. Problems are (path, text)."""

    queue: str
    version: bytes | None = None
    serial: bytes | None = None
    jobs: list[FoundJob] = []
    archived: list[FoundJob] = []
    states: dict[int, FoundJob] = {}
    archivals: dict[int, Archival] = {}
    purged_files: list[tuple[str, int]] = []
    """The files that are left of jobs that were purged, each with its job."""
    journaled_id: int = 0
    quarantined_id: int = 0
    segments: list[JournalSegment] = []
    config_segments: list[JournalSegment] = []
    duplicates: dict[int, bool] = {}
    """For each job with a file in the queue and in the archive, whether both are the same."""
    locks: dict[str, int | None] = {}
    """Each lock file, with the pid of its living owner; None: it is dead."""
    alive: set[str] = set()
    """The lock files, in any directory, whose owners live."""
    closed: list[str] = []
    """Paths that their owner may not read and write."""
    other_user: str | None = None
    """The owner of the queue, if another user runs the check."""
    misowned: list[tuple[str, str]] = []
    """Each path that the queue's owner does not own, and its owner."""
    world_writable: list[str] = []
    """Paths into which every user may write."""
    locks_problem: tuple[str, str] | None = None
    config_problem: tuple[str, str] | None = None
    config_torn: tuple[str, str] | None = None
    rule_problems: list[tuple[str, str]] = []
    config_behind: tuple[str, str] | None = None
    config_damage: tuple[str, str] | None = None
    ssconf_problem: tuple[str, str] | None = None
    key_problems: list[tuple[str, str]] = []
    spool_files: list[SpoolFile] = []
    temporaries: list[tuple[str, int | None]] = []
    quarantined: list[str] = []
    foreign: list[str] = []

    @property
    def living(self) -> set[int]:
        """The jobs whose processes live: only these may change the jobs' files."""
        found = {
            job.job_id for job in (*self.jobs, *self.states.values()) if job.lock_file in self.alive
        }
        # The job of an unreadable file may have a process: the lock file's name has the job's id.
        named = map(job_of_lock, self.alive)
        return found.union(job_id for job_id in named if job_id is not None)

    @property
    def misplaced(self) -> set[int]:
        """The jobs with a file in a wrong place, which must be moved before they are judged.

        To restore an older state from the journal would restart a job that has ended.
        """
        return {job.job_id for job in (*self.jobs, *self.archived) if not job.is_in_place}


def check(facts: Facts) -> list[Finding]:
    """All findings, in the order of `FindingKind`."""
    found = [*_version(facts), *_modes(facts), *_owners(facts), *_unreadable_segments(facts)]
    if not any(finding.kind is FindingKind.JOURNAL_UNREADABLE for finding in found):
        found += _serial(facts)
        found += _tails(facts.segments)
        found += _misplaced(facts)
        found += _queue(facts)
        for path, job_id in facts.purged_files:
            what = f"job {job_id} was purged"
            found.append(Finding(FindingKind.PURGED_LEFT, path, what, job_id))
        found += _archive(facts)
        found += _beside(facts)
        found += _lock_files(facts)
        found += _leftovers(facts)
    found += _other_files(facts)
    places = {kind: place for place, kind in enumerate(FindingKind)}
    closed = {*facts.closed, *(path for path, _ in facts.misowned)}
    # A file that its owner may not read is judged after its mode or owner is repaired.
    whole = {FindingKind.MODE, FindingKind.OWNER, FindingKind.OPEN_TO_ALL}
    known = (one for one in found if one.kind in whole or one.path not in closed)
    return sorted(known, key=lambda one: places[one.kind])


def highest_id(facts: Facts) -> int:
    """The highest job id given, by the same rule as a daemon's start (`job_files.last_id`)."""
    ids = (job.job_id for job in (*facts.jobs, *facts.archived))
    named = (job_id for job_id in ids if job_id <= job_files.ID_MAX)
    return job_files.last_id(recorded_id(facts), (*named, facts.quarantined_id))


def recorded_id(facts: Facts) -> int:
    """The highest job id in the journal, or of a readable job in the queue."""
    readable = (job.job_id for job in facts.jobs if job.problem is None)
    return max([facts.journaled_id, *facts.archivals, *readable])


def _version(facts: Facts) -> Iterator[Finding]:
    path = f"{facts.queue}/version"
    if facts.version is None:
        yield Finding(FindingKind.VERSION_MISSING, path, "missing")
    elif is_torn_version(facts.version):
        yield Finding(FindingKind.VERSION_TORN, path, "empty")


def is_torn_version(text: bytes) -> bool:
    """Whether a version file is blank. Any text in it may come from a later version."""
    return not text.strip(b"\0 \t\r\n")


def _modes(facts: Facts) -> Iterator[Finding]:
    for path in facts.closed:
        yield Finding(FindingKind.MODE, path, "its owner may not read and write it")


def _owners(facts: Facts) -> Iterator[Finding]:
    if facts.other_user is not None:
        yield Finding(FindingKind.OTHER_USER, facts.queue, f"belongs to {facts.other_user}")
    # After a copy by another user every file is listed: one line per directory is enough.
    groups: dict[tuple[str, str], list[str]] = {}
    for path, owner in facts.misowned:
        groups.setdefault((path.rpartition("/")[0], owner), []).append(path)
    for (_, owner), paths in groups.items():
        more = wording.counted(len(paths) - 1, "other")
        beside = f", with {more} in its directory" if len(paths) > 1 else ""
        yield Finding(FindingKind.OWNER, paths[0], f"belongs to {owner}{beside}")
    for path in facts.world_writable:
        yield Finding(FindingKind.OPEN_TO_ALL, path, "every user may write into it")


def _unreadable_segments(facts: Facts) -> Iterator[Finding]:
    for segment in facts.segments:
        if segment.problem is not None:
            yield Finding(FindingKind.JOURNAL_UNREADABLE, segment.path, segment.problem)


def _tails(segments: Iterable[JournalSegment]) -> Iterator[Finding]:
    for segment in segments:
        if segment.tail is None:
            continue
        where = f"not whole from byte {segment.tail.offset} on"
        if not segment.tail.has_records:
            yield Finding(FindingKind.JOURNAL_TORN, segment.path, where)
        elif segment.is_kept:
            yield Finding(
                FindingKind.JOURNAL_TORN, segment.path, f"{where}; a copy is in quarantine"
            )
        else:
            what = f"{where}, with whole records behind it"
            yield Finding(FindingKind.JOURNAL_DAMAGED, segment.path, what)


def _serial(facts: Facts) -> Iterator[Finding]:
    path, highest = f"{facts.queue}/serial", highest_id(facts)
    given = f"ids up to {highest} were given"
    if facts.serial is None:
        if highest:
            yield Finding(FindingKind.SERIAL, path, f"missing, but {given}")
        return
    said = serial(facts.serial)
    if said is None:
        yield Finding(FindingKind.SERIAL, path, f"not a number; {given}")
    elif said < highest:
        yield Finding(FindingKind.SERIAL, path, f"says {said}, but {given}")
    elif said > highest + settings.JOB_ID_JUMP_MAX:
        yield Finding(FindingKind.SERIAL, path, f"says {said}, which is far too high; {given}")


def serial(text: bytes) -> int | None:
    """The last id in the text of a serial file; None if it is no id."""
    digits = text.strip()
    is_id = digits.isdigit() and len(digits) <= len(str(job_files.ID_MAX))
    return int(digits) if is_id else None


def _misplaced(facts: Facts) -> Iterator[Finding]:
    living = facts.living
    for job in (*facts.jobs, *facts.archived):
        if not job.is_in_place and job.job_id not in living:
            yield Finding(FindingKind.MISPLACED, job.path, f"not where job {job.job_id} belongs")


def _queue(facts: Facts) -> Iterator[Finding]:
    """Findings about the jobs that are in the queue, or should be."""
    jobs = {job.job_id: job for job in facts.jobs if job.is_in_place}
    archived = {job.job_id: job for job in facts.archived if job.is_in_place}
    misplaced = facts.misplaced
    known = {*jobs, *facts.states, *facts.archivals, *archived, *misplaced}
    living, unarchived = facts.living, _unarchived(facts)
    for job_id in sorted({*jobs, *facts.states, *unarchived} - misplaced):
        path = job_files.path(facts.queue, job_id)
        found, state = jobs.get(job_id), facts.states.get(job_id)
        if job_id in living:
            if found is not None and found.problem is not None:
                yield Finding(FindingKind.JOB_UNREADABLE_ALIVE, path, found.problem, job_id)
        elif job_id in unarchived:
            what = "not in the archive" if found is None else "still in the queue"
            yield Finding(FindingKind.NOT_ARCHIVED, path, f"archived, but {what}", job_id)
        elif found is not None:
            wrong = list(_job(found, state, archived.get(job_id), facts.duplicates))
            yield from wrong or _prospects(found, known)
        elif state is not None and job_id not in archived:
            yield _ahead(path, state, "no file yet")


def _job(
    job: FoundJob, state: FoundJob | None, archived: FoundJob | None, duplicates: dict[int, bool]
) -> Iterator[Finding]:
    """Findings about a job file that no process writes."""
    in_file = None if job.problem is not None else job.serial
    if archived is not None and archived.problem is None:
        if job.problem is not None:
            yield Finding(FindingKind.JOB_UNREADABLE, job.path, job.problem, job.job_id)
        elif duplicates.get(job.job_id, False):
            yield Finding(FindingKind.DOUBLE, job.path, "lies in the archive too", job.job_id)
        elif _has_ended_since(archived, job):
            what = f"has state {job.serial}; the archive has state {archived.serial}"
            yield Finding(FindingKind.DOUBLE_OLDER, job.path, what, job.job_id)
        else:
            what = "lies in the archive too, and is different there"
            yield Finding(FindingKind.DOUBLE_DIFFERS, job.path, what, job.job_id)
    elif state is not None and replay.is_ahead(state.serial, in_file):
        yield _ahead(job.path, state, job.problem or f"has state {job.serial}")
    elif job.problem is not None:
        yield Finding(FindingKind.JOB_UNREADABLE, job.path, job.problem, job.job_id)


def _has_ended_since(archived: FoundJob, job: FoundJob) -> bool:
    """Whether the file in the queue is an older one, which a loss of power has brought back."""
    is_final = archived.status is not None and archived.status.is_final
    return is_final and archived.serial > job.serial


def _ahead(path: str, state: FoundJob, what: str) -> Finding:
    if state.problem is not None:
        text = f"the journal's state {state.serial}: {state.problem}"
        return Finding(FindingKind.STATE_UNREADABLE, path, text, state.job_id)
    text = f"{what}; the journal has state {state.serial}"
    return Finding(FindingKind.JOURNAL_AHEAD, path, text, state.job_id)


def _prospects(job: FoundJob, known: set[int]) -> Iterator[Finding]:
    """What the next start of a daemon will do with a job without a process."""
    if job.status is None or job.status.is_final:
        return
    if job.lock_file is not None or job.status in {JobStatus.RUNNING, JobStatus.CANCELING}:
        what = f"{job.status}, but its process is gone"
        yield Finding(FindingKind.PROCESS_GONE, job.path, what, job.job_id)
    for target in sorted(set(job.depends).difference(known)):
        what = f"depends on job {target}, which does not exist"
        yield Finding(FindingKind.DEPENDENCY_MISSING, job.path, what, job.job_id)


def _unarchived(facts: Facts) -> set[int]:
    """The jobs that the journal has archived, and whose files must still be moved."""
    live = {job.job_id for job in facts.jobs if job.is_in_place}
    # A file in the archive is judged first: nothing may overwrite it.
    judged = {
        job.job_id
        for job in facts.archived
        if job.problem is not None or job.job_id in live or not job.is_in_place
    }
    return {
        job_id
        for job_id, archival in facts.archivals.items()
        if job_id not in judged
        and replay.needs_archiving(
            is_live=job_id in live,
            is_journaled=archival.is_journaled,
            is_archived=archival.is_archived,
        )
    }


def _archive(facts: Facts) -> Iterator[Finding]:
    unarchived = _unarchived(facts)
    # Without a file in the archive, these states would start jobs that have ended.
    unfinished = {
        state.job_id
        for state in facts.states.values()
        if state.status is None or not state.status.is_final
    }.difference(job.job_id for job in facts.jobs)
    for job in facts.archived:
        if not job.is_in_place or job.job_id in unarchived:
            continue
        if job.problem is not None:
            is_lost = job.job_id in unfinished
            kind = FindingKind.ARCHIVED_LOST if is_lost else FindingKind.ARCHIVED_UNREADABLE
            yield Finding(kind, job.path, job.problem, job.job_id)
        elif job.status is not None and not job.status.is_final:
            yield Finding(FindingKind.ARCHIVED_UNFINISHED, job.path, f"{job.status}", job.job_id)


def _beside(facts: Facts) -> Iterator[Finding]:
    """Findings about files in the spool whose job lies elsewhere, or does not exist."""
    misplaced, unarchived = facts.misplaced, _unarchived(facts)
    archived = {job.job_id for job in facts.archived if job.is_in_place}
    live = {job.job_id for job in facts.jobs if job.is_in_place}.union(facts.states) - archived
    # First it must be settled where the job itself belongs.
    unsettled = facts.living | misplaced | unarchived
    for file in facts.spool_files:
        yield from _damage_beside(file, facts)
        if file.job_id in unsettled:
            continue
        if file.job_id not in archived and file.job_id not in live:
            yield Finding(FindingKind.SPOOL_ORPHAN, file.path, f"job {file.job_id} does not exist")
        elif file.is_archived and file.job_id not in archived:
            yield Finding(
                FindingKind.SPOOL_MISPLACED, file.path, f"job {file.job_id} is not archived"
            )
        elif not file.is_archived and file.job_id not in live:
            yield Finding(FindingKind.SPOOL_MISPLACED, file.path, f"job {file.job_id} is archived")


def _damage_beside(file: SpoolFile, facts: Facts) -> Iterator[Finding]:
    if file.problem is not None:
        yield Finding(FindingKind.OUTPUT_DAMAGED, file.path, file.problem)
    elif file.damage and file.job_id not in facts.living:
        # A living process may be writing the last block.
        count = sum(end - start for start, end in file.damage)
        first = file.damage[0][0]
        text = f"{count} bytes of it cannot be read, the first at byte {first}"
        yield Finding(FindingKind.OUTPUT_DAMAGED, file.path, text)


def _lock_files(facts: Facts) -> Iterator[Finding]:
    named = {job.lock_file for job in (*facts.jobs, *facts.states.values())}
    unreadable = {job.job_id for job in facts.jobs if job.problem is not None}
    for path, pid in facts.locks.items():
        if path not in facts.alive:
            yield Finding(FindingKind.LOCK_DEAD, path, "its owner is dead")
        elif path not in named and job_of_lock(path) not in unreadable:
            what = f"held by process {pid}, but no job names it"
            yield Finding(FindingKind.LOCK_UNKNOWN, path, what)


def job_of_lock(path: str) -> int | None:
    """The job in a lock file's name; None if there is none."""
    match = _JOB_LOCK.fullmatch(path.rpartition("/")[2])
    return None if match is None else int(match[1])


def _leftovers(facts: Facts) -> Iterator[Finding]:
    living = facts.living
    for path, job_id in facts.temporaries:
        if job_id not in living:
            yield Finding(FindingKind.TEMPORARY, path, "the write was not finished")
    for path in facts.quarantined:
        yield Finding(FindingKind.QUARANTINED, path, "put aside by an earlier repair")
    for path in facts.foreign:
        yield Finding(FindingKind.FOREIGN, path, "not a file of Ganger's")


def _other_files(facts: Facts) -> Iterator[Finding]:
    if facts.locks_problem is not None:
        is_held = any(job_of_lock(path) is not None for path in facts.alive)
        kind = FindingKind.LOCKS_UNREADABLE_ALIVE if is_held else FindingKind.LOCKS_UNREADABLE
        yield Finding(kind, *facts.locks_problem)
    yield from _tails(facts.config_segments)
    if facts.config_torn is not None:
        yield Finding(FindingKind.CONFIG_TORN, *facts.config_torn)
    if facts.config_problem is not None:
        yield Finding(FindingKind.CONFIG_UNREADABLE, *facts.config_problem)
    if facts.config_behind is not None:
        yield Finding(FindingKind.CONFIG_BEHIND, *facts.config_behind)
    if facts.config_damage is not None:
        yield Finding(FindingKind.CONFIG_DAMAGED, *facts.config_damage)
    for path, text in facts.rule_problems:
        yield Finding(FindingKind.RULE_UNREADABLE, path, text)
    if facts.ssconf_problem is not None:
        yield Finding(FindingKind.SSCONF_STALE, *facts.ssconf_problem)
    for path, text in facts.key_problems:
        yield Finding(FindingKind.KEY_UNREADABLE, path, text)
