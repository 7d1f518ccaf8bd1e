"""A repair brings a directory to where the daemon's own start brings it, whatever lies in it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from ganger.actors.durable.ledger import Ledger
from ganger.actors.store import recovery
from ganger.storage.disk import paths
from ganger.storage.fsck import checking, repairing, survey
from ganger.storage.fsck.findings import FindingRemedy
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.log.journal import Journal
from ganger.storage.log.records import JobArchived, JobsStored, StateStored
from ganger.storage.queue_files import job_files
from ganger.storage.queue_files.job_files import QueueDirectory

STATUSES = [
    JobStatus.QUEUED,
    JobStatus.WAITING,
    JobStatus.RUNNING,
    JobStatus.SUCCESS,
]
"""The status of a job by the serial of its state, from 1."""

TORN = 0
Version = int | None
"""The serial of a state, TORN, or None: there is no file."""


class History(NamedTuple):
    """What is there of one job."""

    journaled: list[int]
    in_queue: Version
    in_archive: Version
    is_archived: bool


def is_possible(history: History) -> bool:
    """Whether a daemon, a loss of power and a bad disk can leave this behind."""
    if history.in_queue is not None and history.in_archive is not None:
        # Files were copied; no check can find out which is right.
        return False
    if history.is_archived:
        files = (history.in_queue, history.in_archive)
        whole = [serial for serial in (*history.journaled, *files) if serial]
        return not whole or max(whole) == len(STATUSES)
    # Only a job at its end gets there, and the journal says so, or has been deleted since.
    return history.in_archive is None or (
        history.in_archive == len(STATUSES) and not history.journaled
    )


versions = st.sampled_from([None, TORN, 1, 2, 3, 4])
histories = st.builds(
    History, st.lists(st.integers(1, 4), max_size=3), versions, versions, st.booleans()
).filter(is_possible)


def body(job_id: int, serial: int) -> bytes:
    if serial == TORN:
        return b'{"id":'
    status = STATUSES[serial - 1]
    op = jobs.OpcodeEntry(input={"OP_ID": "OP_TEST_DELAY"}, status=status)
    lock_file = None if status in {JobStatus.QUEUED, JobStatus.SUCCESS} else "/run/dead"
    extra = {jobs.STATE_SERIAL_KEY: serial}
    return jobs.encode_job(jobs.Job(id=job_id, ops=[op], livelock=lock_file, extra=extra))


def write(places: paths.Places, found: list[History]) -> None:
    """The directory that this history has left."""
    for folder in (places.archive / "0", places.lock_files):
        folder.mkdir(parents=True)
    QueueDirectory(places).write_version()
    kept = Journal(places.journal)
    for job_id, history in enumerate(found, start=1):
        for place, serial in enumerate(history.journaled):
            text = body(job_id, serial)
            stored = JobsStored([(job_id, serial, text)])
            kept.append(StateStored(job_id, serial, text) if place else stored)
        if history.is_archived:
            kept.append(JobArchived(job_id))
        for folder, version in (
            (places.queue, history.in_queue),
            (places.archive / "0", history.in_archive),
        ):
            if version is not None:
                (folder / f"job-{job_id}").write_bytes(body(job_id, version))
    kept.write(0)
    kept.close()


class RepairStep(NamedTuple):
    """What a daemon makes of a directory."""

    jobs: dict[int, tuple[str, str, int]]
    died: list[int]
    last_id: int
    files: dict[int, bytes]
    archive: dict[int, bytes]


def start(places: paths.Places) -> RepairStep:
    """Load the directory as a daemon does; unreadable files are not part of the outcome."""
    directory = QueueDirectory(places)
    kept = Journal(places.journal)
    loaded = recovery.load(directory, kept, "/run/daemon")
    # Loading writes no files: the ledger does, as it begins.
    Ledger(directory, kept).begin(loaded)
    kept.close()
    table = {row.id: (row.phase.name, str(row.status), row.serial) for row in loaded.table}
    return RepairStep(
        table,
        [job.id for job in loaded.died],
        loaded.last_id,
        {job_id: directory.read(job_id) or b"" for job_id in table},
        {
            job_id: data
            for job_id in directory.archived_ids()
            if (data := directory.read_archived(job_id)) and data != body(job_id, TORN)
        },
    )


@given(st.lists(histories, min_size=1, max_size=6))
def test_a_daemon_finds_the_same_with_and_without_a_repair(found: list[History]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain, repaired = (
            paths.Places(Path(folder, name), Path(folder, "run", name)) for name in "ab"
        )
        write(plain, found)
        shutil.copytree(plain.data, repaired.data)
        before = {path: path.read_bytes() for path in plain.queue.rglob("*") if path.is_file()}
        checking.check(survey.survey(plain))
        after = {path: path.read_bytes() for path in plain.queue.rglob("*") if path.is_file()}
        assert before == after
        result = repairing.repair(repaired, lambda _: None, lambda _done, _total: None)
        assert {one.remedy for one in result.findings} <= {FindingRemedy.NONE}
        assert start(repaired) == start(plain)
        for job_id, history in enumerate(found, start=1):
            check_that_nothing_is_lost(repaired, job_id, history)


def check_that_nothing_is_lost(places: paths.Places, job_id: int, history: History) -> None:
    """The newest whole state that there was of a job is where it belongs."""
    files = (history.in_queue, history.in_archive)
    whole = [serial for serial in (*history.journaled, *files) if serial]
    if not whole:
        return
    is_archived = history.is_archived or history.in_archive is not None
    folder = f"{places.archive}/0" if is_archived else places.queue
    data = Path(job_files.path(folder, job_id)).read_bytes()
    assert job_files.read_job(data, job_id).serial == max(whole)
