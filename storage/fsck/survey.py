"""Reads a data directory into `checking.Facts`. Changes nothing, decides nothing.

The caller holds an `OfflineLock`. The survey opens only plain files: to open a pipe is to wait for
a writer.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from .. import config_files, config_log, entry_points, errors, settings
from ..access import keys
from ..alive import lock_files
from ..cluster import shapes
from ..disk import documents, ownership, quarantine
from ..filters import rules
from ..jobs import jobs
from ..locks import lock_journal
from ..log import journal, records, segments
from ..queue_files import inodes, job_files, output_files, output_limits, replay, spool
from .checking import (
    Archival,
    Facts,
    FoundJob,
    JournalSegment,
    SpoolFile,
    is_torn_version,
    recorded_id,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from ..disk.paths import Places
    from ..log.checked_records import RecordFormat

    Progress = Callable[[int, int], None]

_JOB_NAME = re.compile(r"job-([0-9]+)")
_TEMPORARY_NAME = re.compile(re.escape(documents.TEMPORARY_PREFIX) + r"(?:job-([0-9]+)\.)?.*")
_KNOWN_NAMES = {
    "version",
    "serial",
    "lock",
    "drain",
    "archive",
    "journal",
    "quarantine",
    "reserve",
    "reserve.start",
    output_limits.NAME,
    spool.FOLDER,
}


class ConfigFiles(Protocol):
    """What packages say of files of theirs that follow the configuration."""

    PREFIX: str
    """How the names of the files begin."""

    def folder(self, places: Places, /) -> Path:
        """The folder of the files, which holds nothing else."""

    def stale(self, folder: Path, configuration: Mapping[str, Any], /) -> Iterator[str]:
        """The names of the files that say something else than the configuration."""


_CONFIG_FILES: list[ConfigFiles] = [*entry_points.load(entry_points.CONFIG_FILES).objects.values()]


def _silent(_done: int, _total: int) -> None:
    pass


def survey(places: Places, progress: Progress = _silent) -> Facts:
    """The facts of the directory; calls ``progress`` with the job files read, and with their total.

    `DataDirectoryError` if there is no queue, or one of an unknown version;
    `DirectoryLockedError` if a daemon lives whose lock on the directory was lost.
    """
    require_queue(places)
    return _Survey(places, progress).facts


def require_queue(places: Places) -> None:
    """Raise `DataDirectoryError` if there is no queue directory."""
    ownership.require_readable(places.queue)
    if not places.queue.is_dir():
        raise errors.DataDirectoryError(f"{places.queue}: there is no queue directory")


class _Survey:
    """Collects the facts, one kind after the other."""

    def __init__(self, places: Places, progress: Progress) -> None:
        self._places = places
        self._queue = os.fspath(places.queue)
        self._directory = job_files.QueueDirectory(places)
        self._purged: set[int] = set()
        self.facts = Facts(queue=self._queue)
        self._read_lock_files()
        self._read_version()
        self._list_queue()
        self._read_journal()
        self._read_jobs(progress)
        self._leave_out_purged()
        limit = recorded_id(self.facts) + settings.JOB_ID_JUMP_MAX
        self.facts.quarantined_id = self._directory.highest_quarantined_id(limit)
        self._read_other_files()
        self._find_closed()
        self._find_owners()

    def _read_lock_files(self) -> None:
        for folder in (self._places.lock_files, self._places.former_lock_files):
            self._read_lock_files_in(folder)

    def _read_lock_files_in(self, folder: Path) -> None:
        for name in documents.names_in(folder):
            path = f"{folder}/{name}"
            if not os.path.isfile(path) or lock_files.is_spare(path):
                continue
            is_alive = self._is_alive(path)
            if is_alive and lock_files.is_daemons(path):
                # The queue's lock file may have been deleted under a living daemon.
                text = f"{path}: a daemon lives (pid {lock_files.holder(path)}); stop it first"
                raise errors.DirectoryLockedError(text)
            self.facts.locks[path] = lock_files.holder(path) if is_alive else None

    def _is_alive(self, path: str) -> bool:
        # A missing file proves nothing; something other than a file is no lock file.
        may_be = os.path.isfile(path) or not os.path.lexists(path)
        if path not in self.facts.alive and may_be and not lock_files.is_dead(path):
            self.facts.alive.add(path)
        return path in self.facts.alive

    def _read_version(self) -> None:
        self.facts.version = _read_small(f"{self._queue}/version")
        if self.facts.version is not None and not is_torn_version(self.facts.version):
            self._directory.has_version()
        self.facts.serial = _read_small(f"{self._queue}/serial")

    def _list_queue(self) -> None:
        for name in documents.names_in(self._places.queue):
            path = f"{self._queue}/{name}"
            if match := _TEMPORARY_NAME.fullmatch(name):
                self.facts.temporaries.append((path, int(match[1]) if match[1] else None))
            elif not (
                name in _KNOWN_NAMES or name.startswith(inodes.PREFIX) or _JOB_NAME.fullmatch(name)
            ):
                self.facts.foreign.append(path)
        for name in documents.names_in(self._places.data):
            if name.startswith(documents.TEMPORARY_PREFIX):
                self.facts.temporaries.append((f"{self._places.data}/{name}", None))
        for files in _CONFIG_FILES:
            self._list_config_files(files)
        for name in documents.names_in(self._places.quarantine):
            self.facts.quarantined.append(f"{self._places.quarantine}/{name}")
        self._list_spool(self._queue)

    def _list_config_files(self, files: ConfigFiles) -> None:
        folder = files.folder(self._places)
        try:
            names = documents.names_in(folder)
        except errors.StorageError:
            # Something else lies in its place: nothing that matters, but no file is written.
            self.facts.foreign.append(os.fspath(folder))
            return
        for name in names:
            path = f"{folder}/{name}"
            if name.startswith(documents.TEMPORARY_PREFIX):
                self.facts.temporaries.append((path, None))
            elif not name.startswith(files.PREFIX):
                self.facts.foreign.append(path)

    def _list_spool(self, folder: str) -> None:
        """The files beside the jobs of one folder."""
        for path, name in spool.files_in(folder):
            spooled = spool.parse_name(name)
            if spooled is not None:
                is_archived = folder != self._queue
                file = SpoolFile(path, spooled.job_id, is_archived=is_archived)
                is_output = spooled.op_index is None
                self.facts.spool_files.append(_with_damage(file) if is_output else file)
            elif name.startswith(documents.TEMPORARY_PREFIX):
                self.facts.temporaries.append((path, spool.owner_of_temporary(name)))
            else:
                self.facts.foreign.append(path)

    # ------------------------------------------------------------ the journal

    def _read_journal(self) -> None:
        if not self._places.journal.is_dir():
            return
        kept = journal.Journal(self._places.journal)
        paths = kept.segments()
        self.facts.segments = [self._segment(path, records.RECORDS) for path in paths]
        known = {path.name for path in paths}
        self.facts.foreign += [
            f"{self._places.journal}/{name}"
            for name in documents.names_in(self._places.journal)
            if name not in known
        ]
        if any(segment.problem is not None for segment in self.facts.segments):
            return
        journaled = replay.read_journal(kept)
        self.facts.journaled_id = journaled.last_id
        self._purged = journaled.purged
        for job_id, (serial, body) in journaled.states.items():
            found = self._job(job_id, os.fspath(self._places.journal), body)
            # The serial of the record counts, as in a replay.
            self.facts.states[job_id] = msgspec.structs.replace(found, serial=serial)
        for job_id, state in journaled.archived.items():
            serial = 0 if state is None else state[0]
            is_archived = replay.is_whole(self._read_archived(job_id), job_id, serial)
            self.facts.archivals[job_id] = Archival(state is not None, is_archived)

    def _segment(self, path: Path, kind: RecordFormat[Any]) -> JournalSegment:
        try:
            data = _read_plain(os.fspath(path))
        except errors.StorageError as error:
            return JournalSegment(path=os.fspath(path), problem=_without_path(error, path))
        tail = kind.content(data, path).tail
        copy = None
        if tail is not None and tail.has_records:
            name = segments.kept_name(path)
            copy = quarantine.copy_of(self._places.quarantine, name, data)
        return JournalSegment(path=os.fspath(path), tail=tail, is_kept=copy is not None)

    def _read_archived(self, job_id: int) -> bytes | None:
        try:
            return self._directory.read_archived(job_id)
        except errors.StorageError:
            return None

    # ------------------------------------------------------------ job files

    def _read_jobs(self, progress: Progress) -> None:
        live = _jobs_in(self._queue)
        archived = list(self._list_archive())
        total = len(live) + len(archived)
        for done, (job_id, path) in enumerate(live):
            progress(done, total)
            self.facts.jobs.append(self._job_file(job_id, path, self._queue))
        for done, (job_id, path) in enumerate(archived, start=len(live)):
            progress(done, total)
            folder = job_files.archive_folder(self._places.archive, job_id)
            self.facts.archived.append(self._job_file(job_id, path, folder))
        progress(total, total)
        paths = dict(archived)
        for job_id, path in live:
            if job_id in paths:
                self.facts.duplicates[job_id] = _is_same(path, paths[job_id])

    def _leave_out_purged(self) -> None:
        """Of a job that was purged no file counts: what is left of it only has to go."""
        facts, purged = self.facts, self._purged
        if not purged:
            return
        jobs, files = (*facts.jobs, *facts.archived), facts.spool_files
        facts.purged_files = [
            *((job.path, job.job_id) for job in jobs if job.job_id in purged),
            *((file.path, file.job_id) for file in files if file.job_id in purged),
        ]
        facts.jobs = [job for job in facts.jobs if job.job_id not in purged]
        facts.archived = [job for job in facts.archived if job.job_id not in purged]
        facts.spool_files = [file for file in files if file.job_id not in purged]

    def _list_archive(self) -> Iterator[tuple[int, str]]:
        for name in documents.names_in(self._places.archive):
            folder = f"{self._places.archive}/{name}"
            if not name.isdecimal() or not os.path.isdir(folder):
                self.facts.foreign.append(folder)
                continue
            yield from _jobs_in(folder)
            for other in documents.names_in(folder):
                if _TEMPORARY_NAME.fullmatch(other) is not None:
                    self.facts.temporaries.append((f"{folder}/{other}", None))
                elif _JOB_NAME.fullmatch(other) is None and other != spool.FOLDER:
                    self.facts.foreign.append(f"{folder}/{other}")
            self._list_spool(folder)

    def _job_file(self, job_id: int, path: str, folder: str) -> FoundJob:
        is_in_place = path == job_files.path(folder, job_id)
        if job_id > job_files.ID_MAX:
            problem = "no job can have this id"
            return FoundJob(job_id=job_id, path=path, is_in_place=is_in_place, problem=problem)
        try:
            body = _read_plain(path)
        except errors.StorageError as error:
            problem = _without_path(error, path)
            return FoundJob(job_id=job_id, path=path, is_in_place=is_in_place, problem=problem)
        return msgspec.structs.replace(self._job(job_id, path, body), is_in_place=is_in_place)

    def _job(self, job_id: int, path: str, body: bytes) -> FoundJob:
        try:
            job = job_files.read_job(body, job_id)
        except errors.StorageError as error:
            return FoundJob(job_id=job_id, path=path, problem=error.text)
        status = job.status
        if job.livelock is not None and not status.is_final:
            self._is_alive(job.livelock)
        return FoundJob(
            job_id=job_id,
            path=path,
            serial=job.serial,
            status=status,
            lock_file=job.livelock,
            depends=() if status.is_final else tuple(_depends(job)),
        )

    # ------------------------------------------------------------ everything else

    def _read_other_files(self) -> None:
        places = self._places
        try:
            lock_journal.read(places)
        except errors.StorageError as error:
            self.facts.locks_problem = (os.fspath(places.locks), error.text)
        self._read_configuration()
        self._read_keys()

    def _read_configuration(self) -> None:
        places = self._places
        if any(segment.problem is not None for segment in self.facts.segments):
            # The segment may have newer changes.
            return
        try:
            stored = config_files.read_stored(places.config)
            self._read_config_journal()
            configuration = config_files.brought_up(stored)
            entered = config_files.last_entered(places.config_history) or 0
        except (errors.OperatorError, errors.StorageError) as error:
            path = os.fspath(places.config)
            self.facts.config_problem = (path, _without_path(error, path))
            return
        if stored.problem:
            path = os.fspath(places.config)
            self.facts.config_torn = (path, stored.problem.removeprefix(f"{path}: "))
        configuration = configuration or {}
        serial = config_files.serial_of(configuration)
        if entered > serial:
            text = f"it ends at serial number {serial}, and config.history at {entered}"
            self.facts.config_behind = (os.fspath(places.config), text)
        if (damage := shapes.problem(configuration)) is not None:
            self.facts.config_damage = (os.fspath(places.config), damage)
            return
        for problem in rules.parse_rules(configuration.get("filters", {})).problems:
            self.facts.rule_problems.append((os.fspath(places.config), problem.text))
        for files in _CONFIG_FILES:
            folder = files.folder(places)
            if stale := ", ".join(files.stale(folder, configuration)):
                self.facts.ssconf_problem = (os.fspath(folder), stale)

    def _read_config_journal(self) -> None:
        found = segments.paths(config_log.former_directory(self._places.config))
        self.facts.config_segments = [self._segment(path, config_log.RECORDS) for path in found]

    def _read_keys(self) -> None:
        server = self._places.keys / "server.key"
        clients = sorted(self._places.keys.glob("clients/*.pub"))
        readers = [(server, keys.read_key)] if server.exists() else []
        for path, read in [*readers, *((path, keys.read_public_key) for path in clients)]:
            try:
                read(path)
            except errors.StorageError as error:
                self.facts.key_problems.append((os.fspath(path), _without_path(error, path)))

    def _find_closed(self) -> None:
        """Find the files whose owner may not use them, whichever user runs the check."""
        found = [job.path for job in (*self.facts.jobs, *self.facts.archived)]
        found += [segment.path for segment in self.facts.segments]
        found += [f"{self._queue}/version", f"{self._queue}/serial"]
        places = self._places
        found += map(
            os.fspath, (places.config, places.config_copy, places.locks, places.lock_journal)
        )
        self.facts.closed = [path for path in found if _is_closed(path)]

    def _find_owners(self) -> None:
        owner = ownership.queue_owner(self._places)
        if owner is None:
            return
        if owner != os.geteuid():
            self.facts.other_user = ownership.user(owner)
        found = ownership.misowned_paths(self._places, owner)
        names = {uid: ownership.user(uid) for uid in {uid for _, uid in found}}
        self.facts.misowned = [(path, names[uid]) for path, uid in found]
        self.facts.world_writable = ownership.world_writable_paths(self._places)


def _is_closed(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and mode & 0o600 != 0o600  # noqa: PLR2004 - read and write


def _read_small(path: str) -> bytes | None:
    """The content of a file; None if it is missing, or its owner may not read it."""
    try:
        return documents.read(path)
    except errors.StorageError:
        if _is_closed(path):
            return None
        raise


def _jobs_in(folder: str) -> list[tuple[int, str]]:
    matches = map(_JOB_NAME.fullmatch, documents.names_in(folder))
    return [(int(match[1]), f"{folder}/{match[0]}") for match in matches if match]


def _read_plain(path: str) -> bytes:
    """The content of a plain file; `StorageError` if the path is anything else."""
    with documents.storage_errors(path):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise errors.StorageError(f"{path}: not a plain file")
    data = documents.read(path)
    if data is None:
        raise errors.StorageError(f"{path}: the file has gone")
    return data


def _is_same(one: str, other: str) -> bool:
    try:
        return _read_plain(one) == _read_plain(other)
    except errors.StorageError:
        return False


def _depends(job: jobs.Job) -> Iterator[int]:
    for op in job.ops:
        found = op.input.get("depends")
        for entry in found if isinstance(found, list) else ():
            match entry:
                case [int(job_id), *_] if job_id > 0:
                    yield job_id


def _without_path(error: errors.GangerError, path: str | os.PathLike[str]) -> str:
    return error.text.removeprefix(f"{os.fspath(path)}: ")


def _with_damage(output: SpoolFile) -> SpoolFile:
    try:
        return msgspec.structs.replace(output, damage=output_files.damage(output.path))
    except errors.StorageError as error:
        return msgspec.structs.replace(output, problem=error.text)
