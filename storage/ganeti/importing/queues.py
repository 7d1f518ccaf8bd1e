"""Reads the queue of Ganeti and finds out what becomes of each job. Changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from ... import errors, opcodes, settings, wording
from ...jobs import jobs
from ...queue_files import job_files
from . import import_decision, read_only_source
from .import_decision import Fate, Outcome
from .parts import Damage

Progress = Callable[[int, int], None]

_JOB_NAME = re.compile(r"job-([0-9]+)")
_KNOWN_NAMES = {"serial", "version", "lock", "drain", "archive"}
_SERIAL_DIGITS_MAX = 18
_BLOCK_BYTES = 4096
_LUXID = "LuxiD"


class FoundJob(NamedTuple):
    """A job that is taken over: where its file is, and what becomes of it."""

    id: int
    folder: str
    is_archived: bool
    fate: Fate
    is_rewritten: bool


class Ended(msgspec.Struct, frozen=True):
    """A job that has not ended in Ganeti, and ends when it is taken over."""

    id: int
    summary: str
    status: str
    """In Ganeti."""

    outcome: Outcome
    why: str


class Living(msgspec.Struct, frozen=True):
    """A process of Ganeti that lives. ``pid`` is 0 if the kernel does not tell it."""

    what: str
    pid: int


class FoundQueue(msgspec.Struct):
    """What a queue directory of Ganeti holds."""

    last_id: int = 0
    is_drained: bool = False
    is_lock_left: bool = False
    """Whether the file that LuxiD removes when it ends is there."""

    jobs: list[FoundJob] = []
    ended: list[Ended] = []
    damage: list[Damage] = []
    notes: list[str] = []
    living: list[Living] = []
    stamps: dict[str, read_only_source.Stamp | None] = {}
    bytes_needed: int = 0

    def count(self, outcome: Outcome, *, is_archived: bool = False) -> int:
        """How many jobs become that."""
        return sum(
            job.fate.outcome is outcome and job.is_archived is is_archived for job in self.jobs
        )


def read_queue(path: str, progress: Progress) -> FoundQueue:
    """Read the queue directory; calls ``progress`` with the job files read, and their total.

    `DataDirectoryError` for a queue of another version, `StorageError` if a directory is
    unreadable. A single unreadable file is ``damage``.
    """
    return _Reader(path, progress).found


def luxid(path: str) -> Living | None:
    """The LuxiD that works in this queue directory, if one does. `StorageError`."""
    pid = read_only_source.holder(f"{path}/lock")
    return None if pid is None else Living(_LUXID, pid)


class _Reader:
    """Collects what there is."""

    def __init__(self, path: str, progress: Progress) -> None:
        self._path = path
        self._progress = progress
        self._done = self._total = 0
        self._depends: dict[int, list[int]] = {}
        self._named: list[int] = []
        self._foreign: list[str] = []
        self._clamped = 0
        self.found = FoundQueue()
        with read_only_source.Folder(path) as queue:
            self.found.stamps[path] = queue.stamp
            names = queue.names()
            self._require_version(queue, names)
            self.found.is_drained = "drain" in names
            self._look_for_luxid(names)
            archive = self._list_archive() if queue.is_directory("archive") else {}
            if "archive" in names and not queue.is_directory("archive"):
                self.found.damage.append(Damage(f"{path}/archive", "not a directory"))
            self._total = sum(map(len, [names, *archive.values()]))
            for folder, inside in archive.items():
                with read_only_source.Folder(folder) as opened:
                    self._read_jobs(opened, inside, is_archived=True)
            self._read_jobs(queue, names, is_archived=False)
            self._progress(self._total, self._total)
            self._read_serial(queue, names)
        self._note()

    def _require_version(self, queue: read_only_source.Folder, names: list[str]) -> None:
        if "version" not in names:
            return
        text = queue.read("version").strip().decode("utf-8", "replace")
        if text != str(job_files.VERSION):
            shown = wording.shown(text)
            message = f"{self._path}/version: queue version {shown}, expected {job_files.VERSION}"
            raise errors.DataDirectoryError(message)

    def _look_for_luxid(self, names: list[str]) -> None:
        self.found.is_lock_left = "lock" in names
        if (living := luxid(self._path)) is not None:
            self.found.living.append(living)

    def _list_archive(self) -> dict[str, list[str]]:
        """The names in each folder of the archive, in the order of the folders' numbers."""
        path = f"{self._path}/archive"
        with read_only_source.Folder(path) as archive:
            self.found.stamps[path] = archive.stamp
            names = archive.names()
            numbers = [name for name in names if name.isdecimal() and archive.is_directory(name)]
            self._foreign += [f"{path}/{name}" for name in names if name not in set(numbers)]
        found = {}
        for name in sorted(numbers, key=int):
            with read_only_source.Folder(f"{path}/{name}") as folder:
                self.found.stamps[folder.path] = folder.stamp
                found[folder.path] = folder.names()
        return found

    # ------------------------------------------------------------ jobs

    def _read_jobs(
        self, folder: read_only_source.Folder, names: list[str], *, is_archived: bool
    ) -> None:
        known = {job.id: job.folder for job in self.found.jobs}
        for name in names:
            self._progress(self._done, self._total)
            self._done += 1
            match = _JOB_NAME.fullmatch(name)
            if match is None:
                if is_archived or name not in _KNOWN_NAMES:
                    self._foreign.append(f"{folder.path}/{name}")
                continue
            job_id = int(match[1][: _SERIAL_DIGITS_MAX + 1])
            try:
                _require_number(job_id, match[1])
                self._read_job(folder, job_id, known, is_archived=is_archived)
            except errors.StorageError as error:
                path = f"{folder.path}/{name}"
                text = error.text.removeprefix(f"{path}: ")
                self.found.damage.append(Damage(path, text))
                self._named.append(job_id)

    def _read_job(
        self,
        folder: read_only_source.Folder,
        job_id: int,
        known: dict[int, str],
        *,
        is_archived: bool,
    ) -> None:
        data = folder.read(f"job-{job_id}")
        job = job_files.read_job(data, job_id)
        if job_id in known:
            self._require_same(data, known[job_id], job_id)
            self.found.notes.append(f"job {job_id} lies twice there, with the same content")
            return
        fate = import_decision.fate(job, is_archived=is_archived)
        is_rewritten = import_decision.is_rewritten(job, fate, is_archived=is_archived)
        self.found.jobs.append(FoundJob(job_id, folder.path, is_archived, fate, is_rewritten))
        self.found.bytes_needed += -(-len(data) // _BLOCK_BYTES) * _BLOCK_BYTES
        if fate.outcome is Outcome.FINAL:
            return
        if not is_archived:
            self._look_for_process(job)
        if fate.outcome is Outcome.PENDING:
            self._note_pending(job, is_clamped=is_rewritten and job.livelock is None)
        else:
            self._note_ended(job, fate)

    def _require_same(self, data: bytes, folder: str, job_id: int) -> None:
        with read_only_source.Folder(folder) as other:
            if other.read(f"job-{job_id}") != data:
                raise errors.StorageError(f"another file of this job lies in {folder}")

    def _look_for_process(self, job: jobs.Job) -> None:
        if job.livelock is None or not job.livelock.startswith("/"):
            return
        pid = read_only_source.holder(job.livelock)
        if pid is not None:
            what = _LUXID if import_decision.is_luxids(job.livelock) else f"job {job.id}"
            self.found.living.append(Living(what, pid))

    def _note_pending(self, job: jobs.Job, *, is_clamped: bool) -> None:
        self._clamped += is_clamped
        targets = [target for op in job.ops for target, _ in opcodes.dependencies(op.input)]
        if targets:
            self._depends[job.id] = targets

    def _note_ended(self, job: jobs.Job, fate: Fate) -> None:
        summary = ", ".join(opcodes.summary(op.input) for op in job.ops)
        self.found.ended.append(
            Ended(job.id, wording.shortened(summary), job.status, fate.outcome, fate.why)
        )

    # ------------------------------------------------------------ ids, notes

    def _read_serial(self, queue: read_only_source.Folder, names: list[str]) -> None:
        recorded = max((job.id for job in self.found.jobs), default=0)
        serial, problem = 0, "there is none"
        if "serial" in names:
            try:
                serial, problem = _number(queue.read("serial"), recorded)
            except errors.StorageError as error:
                problem = error.text.removeprefix(f"{self._path}/serial: ")
        if problem:
            instead = "ids go on behind the highest one of a job file"
            self.found.damage.append(Damage(f"{self._path}/serial", f"{problem}; {instead}"))
        self.found.last_id = job_files.last_id(recorded, [serial, *self._named])
        if 0 < serial < recorded:
            self.found.notes.append(
                f"{self._path}/serial: says {serial}, but there is a job {recorded}; "
                "ids go on behind that"
            )

    def _note(self) -> None:
        self.found.notes += self._missing_targets()
        if self._clamped:
            self.found.notes.append(
                f"the priority of {wording.counted(self._clamped, 'pending job')} is outside "
                f"{settings.PRIORITY_MIN} to {settings.PRIORITY_MAX}, and becomes the nearest one"
            )
        if self._foreign:
            others = wording.counted(len(self._foreign), "other file")
            self.found.notes.append(
                f"{others} in the queue, such as {self._foreign[0]}: left there"
            )

    def _missing_targets(self) -> Iterator[str]:
        if not self._depends:
            return
        known = {job.id for job in self.found.jobs}
        for job_id, targets in self._depends.items():
            for target in targets:
                if target not in known:
                    yield f"job {job_id} depends on job {target}, which is not there: it will fail"


def _require_number(job_id: int, written: str) -> None:
    if job_id > job_files.ID_MAX or str(job_id) != written:
        raise errors.StorageError("no job has such a number")


def _number(content: bytes, recorded: int) -> tuple[int, str]:
    """The last id in a serial file, and what is wrong with it; ``recorded`` is that of a job."""
    text = content.strip()
    if not text.isdigit() or len(text) > _SERIAL_DIGITS_MAX:
        return 0, "not a number"
    serial = int(text)
    if job_files.last_id(recorded, [serial]) < serial:
        return 0, f"{serial} is no number that a queue has come to"
    return serial, ""
