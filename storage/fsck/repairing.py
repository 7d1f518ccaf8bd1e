"""Repairs that ``ganger fsck --repair`` may do: those of a daemon's start, and those without loss.

Deletes only lock files of dead processes and temporary files; moves unreadable files into
quarantine, beside the queue. The caller holds an `OfflineLock` to write.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .. import config_files, errors
from ..alive import lock_files
from ..disk import documents, quarantine, reserve
from ..log import cut, journal, segments
from ..queue_files import job_files, replay, spool
from .checking import check, highest_id, serial
from .findings import Finding, FindingKind, FindingRemedy
from .survey import survey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..disk.paths import Places
    from .checking import Facts
    from .survey import Progress

ROUNDS_MAX = 5
"""Most surveys of the directory: a repair may reveal another finding."""


class RepairStep(msgspec.Struct, frozen=True):
    """One repair: the action taken, or why it failed."""

    finding: Finding
    action: str = ""
    error: str | None = None
    is_disk_full: bool = False
    """Whether it failed because the disk is full: then nothing that needs space is tried."""


_WHEN_FULL = (
    "; what needs space is not tried any more: free some on this disk, or start the daemon "
    "and purge jobs that have ended (`ganger up`, `ganger job purge`)"
)


class Result(msgspec.Struct):
    """The facts and findings after the last repair."""

    facts: Facts
    findings: list[Finding]


def repair(places: Places, report: Callable[[RepairStep], None], progress: Progress) -> Result:
    """Repair until nothing more can be repaired; calls ``report`` with each step.

    ``progress`` is that of `survey`.
    """
    failed: set[tuple[FindingKind, str]] = set()
    result = _look(places, progress)
    for _ in range(ROUNDS_MAX):
        todo = [
            one
            for one in result.findings
            if one.remedy is FindingRemedy.REPAIR and (one.kind, one.path) not in failed
        ]
        if not todo:
            break
        is_full = False
        for step in _repair(places, result.facts, todo):
            report(step)
            is_full |= step.is_disk_full
            if step.error is not None:
                failed.add((step.finding.kind, step.finding.path))
        result = _look(places, progress)
        if is_full:
            break
    return result


def _look(places: Places, progress: Progress) -> Result:
    facts = survey(places, progress)
    return Result(facts, check(facts))


def _repair(places: Places, facts: Facts, findings: list[Finding]) -> Iterator[RepairStep]:
    repairer = _Repairer(places, facts)
    is_full = False
    for finding in findings:
        act = ACTIONS[finding.kind]
        if is_full and act is not _Repairer.remove:
            continue
        try:
            action = act(repairer, finding)
        except errors.StorageError as error:
            is_full |= (is_first := reserve.is_full(error))
            text = error.text + _WHEN_FULL if is_first else error.text
            yield RepairStep(finding, error=text, is_disk_full=is_first)
        else:
            yield RepairStep(finding, action)
    # The repairs move and write files without flushing each.
    try:
        cut.flush_file_system(places.queue)
    except errors.StorageError:
        # The files may not be on the disk, though they can be read: the next daemon writes them.
        with contextlib.suppress(errors.StorageError):
            _leave_doubt(places)
        raise


def _leave_doubt(places: Places) -> None:
    """Begin a segment of the journal: the next daemon then writes what the older ones cover."""
    journal.Journal(places.journal).leave_doubt()


class _Repairer:
    """What the repairs of one round need."""

    def __init__(self, places: Places, facts: Facts) -> None:
        self.places = places
        self.facts = facts
        self.directory = job_files.QueueDirectory(places)

    @functools.cached_property
    def journaled(self) -> replay.JournalContent:
        """What the journal says."""
        return replay.read_journal(journal.Journal(self.places.journal))

    def write_version(self, _: Finding) -> str:
        self.directory.write_version()
        return f"written: {job_files.VERSION}"

    def renew_version(self, finding: Finding) -> str:
        kept = self.directory.quarantine(finding.path)
        return f"{self.write_version(finding)}; the old one is {kept}"

    def open_to_owner(self, finding: Finding) -> str:
        with documents.storage_errors(finding.path):
            mode = stat.S_IMODE(os.stat(finding.path).st_mode) | 0o600
            os.chmod(finding.path, mode)
        return f"its mode is {mode:o}"

    def write_serial(self, finding: Finding) -> str:
        highest = highest_id(self.facts)
        action = f"written: {highest}"
        if self.facts.serial is not None and serial(self.facts.serial) is None:
            action += f"; the old one is {self.directory.quarantine(finding.path)}"
        documents.replace(finding.path, b"%d\n" % highest, flush=True)
        return action

    def bring_up(self, finding: Finding) -> str:
        assert finding.job_id is not None
        state = self.journaled.states[finding.job_id]
        _, body = replay.newest(self.directory, finding.job_id, state)
        assert body is state[1], "the journal was ahead"
        old = self._quarantine_torn(finding)
        self.directory.write(finding.job_id, body, flush=False)
        return f"written: state {state[0]}{old}"

    def archive(self, finding: Finding) -> str:
        assert finding.job_id is not None
        old = self._quarantine_torn(finding)
        replay.archive_again(
            self.directory, finding.job_id, self.journaled.archived[finding.job_id]
        )
        return f"moved into the archive{old}"

    def _quarantine_torn(self, finding: Finding) -> str:
        """Quarantine an unreadable job file that the journal replaces; returns a note about it."""
        if all(job.problem is None for job in self.facts.jobs if job.path == finding.path):
            return ""
        return f"; the old one is {self.directory.quarantine(finding.path)}"

    def copy_segment(self, finding: Finding) -> str:
        segment = Path(finding.path)
        name = segments.kept_name(segment)
        return f"copied to {quarantine.keep_copy(self.places.quarantine, segment, name=name)}"

    def renew_configuration(self, finding: Finding) -> str:
        copy = documents.read(config_files.copy_path(self.places.config))
        assert copy is not None, "the copy is whole"
        old = ""
        if os.path.lexists(finding.path):
            old = f"; the old one is {self.directory.quarantine(finding.path)}"
        documents.replace(finding.path, copy, flush=True)
        return f"written from its copy{old}"

    def move_to_place(self, finding: Finding) -> str:
        folder = os.path.dirname(finding.path)
        number = int(os.path.basename(finding.path).removeprefix("job-"))
        if folder != os.fspath(self.places.queue):
            folder = job_files.archive_folder(self.places.archive, number)
        return self._move(finding, job_files.path(folder, number))

    def move_beside_job(self, finding: Finding) -> str:
        name = os.path.basename(finding.path)
        spooled = spool.parse_name(name)
        assert spooled is not None
        folder = os.fspath(self.places.queue)
        if finding.path == f"{spool.folder(folder)}/{name}":
            folder = job_files.archive_folder(self.places.archive, spooled.job_id)
        return self._move(finding, f"{spool.folder(folder)}/{name}")

    def _move(self, finding: Finding, target: str) -> str:
        if os.path.lexists(target):
            return self.quarantined(finding)
        with documents.storage_errors(target):
            documents.make_directory(os.path.dirname(target))
            os.rename(finding.path, target)
        return f"moved to {target}"

    def quarantined(self, finding: Finding) -> str:
        return f"moved to {self.directory.quarantine(finding.path)}"

    def remove_lock_file(self, finding: Finding) -> str:
        lock_files.remove_dead(finding.path)
        return "removed"

    def remove(self, finding: Finding) -> str:
        with documents.storage_errors(finding.path):
            os.unlink(finding.path)
        return "removed"


ACTIONS: dict[FindingKind, Callable[[_Repairer, Finding], str]] = {
    FindingKind.VERSION_MISSING: _Repairer.write_version,
    FindingKind.VERSION_TORN: _Repairer.renew_version,
    FindingKind.MODE: _Repairer.open_to_owner,
    FindingKind.SERIAL: _Repairer.write_serial,
    FindingKind.JOURNAL_AHEAD: _Repairer.bring_up,
    FindingKind.NOT_ARCHIVED: _Repairer.archive,
    FindingKind.PURGED_LEFT: _Repairer.remove,
    FindingKind.JOURNAL_DAMAGED: _Repairer.copy_segment,
    FindingKind.MISPLACED: _Repairer.move_to_place,
    FindingKind.JOB_UNREADABLE: _Repairer.quarantined,
    FindingKind.DOUBLE: _Repairer.quarantined,
    FindingKind.DOUBLE_OLDER: _Repairer.quarantined,
    FindingKind.ARCHIVED_UNREADABLE: _Repairer.quarantined,
    FindingKind.SPOOL_MISPLACED: _Repairer.move_beside_job,
    FindingKind.SPOOL_ORPHAN: _Repairer.quarantined,
    FindingKind.LOCK_DEAD: _Repairer.remove_lock_file,
    FindingKind.LOCKS_UNREADABLE: _Repairer.quarantined,
    FindingKind.CONFIG_TORN: _Repairer.renew_configuration,
    FindingKind.TEMPORARY: _Repairer.remove,
}
"""The repair of each kind that can be repaired; a test compares it with `findings.KINDS`."""
