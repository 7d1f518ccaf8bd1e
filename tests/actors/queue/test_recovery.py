"""What a successor finds: journal and job files together, and what became of each job."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganger.actors.queue import recovery
from ganger.actors.queue.job_table import Phase
from ganger.actors.queue.recovery import Loaded
from ganger.storage import jobs, lock_files, settings
from ganger.storage.jobs import JobStatus
from ganger.storage.queue_files.job_files import QueueDirectory
from ganger.storage.queue_files.journal import JobArchived, JobsStored, Journal, Record, StateStored

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus


class Leftovers:
    """A queue directory in the making, and what is found in it."""

    def __init__(self, root: Path) -> None:
        self.places = settings.Places(root, root / "run")
        self.places.queue.mkdir()
        self.places.lock_files.mkdir(parents=True)
        self.directory = QueueDirectory(self.places)
        self.directory.prepare()
        self.own = lock_files.create(self.places.lock_files, "daemon")
        self.living = lock_files.create(self.places.lock_files, "job_000001_1")
        self.dead = f"{self.places.lock_files}/job_000001_0"

    def body(
        self, job_id: int, serial: int, *statuses: JobStatus, livelock: str | None = None
    ) -> bytes:
        ops = [
            jobs.OpcodeEntry(input={"OP_ID": "OP_TEST_DELAY"}, status=status) for status in statuses
        ]
        extra = {jobs.STATE_SERIAL_KEY: serial}
        return jobs.encode_job(jobs.Job(id=job_id, ops=ops, livelock=livelock, extra=extra))

    def write(self, job_id: int, body: bytes) -> None:
        self.directory.write(job_id, body, flush=False)

    def journal(self, *records: Record) -> None:
        kept = Journal(self.places.journal)
        for record in records:
            kept.append(record)
        kept.commit(0)
        kept.close()

    def load(self) -> Loaded:
        kept = Journal(self.places.journal)
        return recovery.load(QueueDirectory(self.places), kept, self.own.path)

    def close(self) -> None:
        self.own.remove()
        self.living.remove()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Leftovers]:
    made = Leftovers(tmp_path)
    yield made
    made.close()


def phases(of: Loaded) -> dict[int, tuple[Phase, JobStatus]]:
    return {row.id: (row.phase, row.status) for row in of.table}


def test_an_empty_directory_holds_nothing(disk: Leftovers) -> None:
    loaded = disk.load()
    assert (len(loaded.table), loaded.last_id) == (0, 0)
    assert (loaded.quarantined, loaded.died, loaded.living) == ([], [], {})


def test_jobs_are_taken_up_where_they_stand(disk: Leftovers) -> None:
    for job_id, (statuses, livelock) in enumerate(
        [
            ([QUEUED], None),
            ([QUEUED], disk.dead),
            ([QUEUED], disk.own.path),
            ([SUCCESS, QUEUED], disk.living.path),
            ([SUCCESS, RUNNING], disk.dead),
            ([SUCCESS, ERROR], disk.dead),
            ([CANCELED], disk.living.path),
        ],
        start=1,
    ):
        disk.write(job_id, disk.body(job_id, 5, *statuses, livelock=livelock))
    loaded = disk.load()
    assert phases(loaded) == {
        1: (Phase.PENDING, QUEUED),
        2: (Phase.PENDING, QUEUED),
        # The queue was replaced while a process was being made: it is made again.
        3: (Phase.PENDING, QUEUED),
        4: (Phase.HANDED_OVER, QUEUED),
        5: (Phase.ENDED, RUNNING),
        6: (Phase.ENDED, ERROR),
        7: (Phase.HANDED_OVER, CANCELED),
    }
    assert [job.id for job in loaded.died] == [5]
    assert set(loaded.living) == {4, 7}
    assert loaded.last_id == 7
    row = loaded.table.find(4)
    assert row is not None
    assert row.lock_file == disk.living.path


# Journal and files.


def test_the_journal_makes_up_for_a_file_that_was_never_written(disk: Leftovers) -> None:
    body = disk.body(3, 1, QUEUED)
    disk.journal(JobsStored([(3, 1, body)]))
    loaded = disk.load()
    assert phases(loaded) == {3: (Phase.PENDING, QUEUED)}
    assert disk.directory.read(3) == body


@pytest.mark.parametrize("torn", [b"", b'{"id": 3', b"\0" * 100, b"{}", b'{"id": 4, "ops": []}'])
def test_the_journal_makes_up_for_a_torn_file(disk: Leftovers, torn: bytes) -> None:
    body = disk.body(3, 2, SUCCESS)
    disk.write(3, torn)
    disk.journal(StateStored(3, 2, body))
    loaded = disk.load()
    assert phases(loaded) == {3: (Phase.ENDED, SUCCESS)}
    assert disk.directory.read(3) == body
    assert loaded.quarantined == []


@pytest.mark.parametrize(
    ("in_file", "in_journal", "expected"), [(2, 3, 3), (3, 3, 3), (4, 3, 4), (0, 1, 1)]
)
def test_the_higher_serial_counts(
    disk: Leftovers, in_file: int, in_journal: int, expected: int
) -> None:
    disk.write(3, disk.body(3, in_file, QUEUED))
    disk.journal(StateStored(3, in_journal, disk.body(3, in_journal, QUEUED)))
    row = disk.load().table.find(3)
    assert row is not None
    assert row.serial == expected
    assert jobs.decode_job(disk.directory.read(3) or b"").serial == expected


def test_of_several_records_the_one_with_the_highest_serial_counts(disk: Leftovers) -> None:
    disk.journal(
        JobsStored([(3, 1, disk.body(3, 1, QUEUED))]),
        StateStored(3, 3, disk.body(3, 3, SUCCESS)),
        StateStored(3, 2, disk.body(3, 2, RUNNING)),
    )
    assert phases(disk.load()) == {3: (Phase.ENDED, SUCCESS)}


def test_loading_twice_finds_the_same(disk: Leftovers) -> None:
    disk.journal(
        JobsStored([(n, 1, disk.body(n, 1, QUEUED)) for n in (1, 2, 3)]),
        StateStored(2, 2, disk.body(2, 2, ERROR)),
        JobArchived(2),
    )
    first = disk.load()
    second = disk.load()
    assert phases(first) == phases(second)
    assert set(phases(first)) == {1, 3}
    assert disk.directory.archived_ids() == [2]


def test_the_file_of_a_living_process_is_left_alone(disk: Leftovers) -> None:
    older = disk.body(3, 1, QUEUED, livelock=disk.living.path)
    newer = disk.body(3, 2, RUNNING, livelock=disk.living.path)
    disk.write(3, older)
    disk.journal(StateStored(3, 2, newer))
    loaded = disk.load()
    assert phases(loaded) == {3: (Phase.HANDED_OVER, RUNNING)}
    assert loaded.living == {3: (2, newer)}
    assert disk.directory.read(3) == older


def test_a_torn_file_of_which_the_journal_knows_nothing_is_quarantined_and_left(
    disk: Leftovers,
) -> None:
    disk.write(3, b'{"id": 3')
    disk.write(4, b'{"id": 5, "ops": []}')
    disk.write(5, disk.body(5, 1, QUEUED))
    loaded = disk.load()
    assert set(phases(loaded)) == {5}
    assert loaded.quarantined == [
        "job-3: not a job: Input data was truncated",
        "job-4: holds job 5, not 4",
    ]
    assert disk.directory.read(3) == b'{"id": 3'
    assert disk.load().quarantined == loaded.quarantined


def test_odd_files_do_not_stop_the_queue(disk: Leftovers) -> None:
    for job_id, odd in enumerate(
        [
            b'{"id": 1, "ops": 5}',
            b'{"id": 2, "ops": [], "ganger_serial": "x"}',
            b'{"id": 3, "ops": [], "ganger_key": []}',
            b"[" * 10_000,
        ],
        start=1,
    ):
        disk.write(job_id, odd)
    os.mkdir(disk.places.queue / "job-7")
    loaded = disk.load()
    assert len(loaded.table) == 0
    assert len(loaded.quarantined) == 5
    assert loaded.last_id == 7


# Ids are never given twice.


def test_the_last_id_is_the_highest_that_anything_names(disk: Leftovers) -> None:
    assert disk.load().last_id == 0
    disk.write(7, disk.body(7, 1, QUEUED))
    assert disk.load().last_id == 7
    disk.directory.write_serial(8)
    assert disk.load().last_id == 8
    disk.journal(JobsStored([(9, 1, disk.body(9, 1, QUEUED))]))
    assert disk.load().last_id == 9
    disk.write(20_000, disk.body(20_000, 1, SUCCESS))
    disk.directory.archive(20_000)
    assert disk.load().last_id == 20_000
    kept = Journal(disk.places.journal)
    kept.begin(30_000)
    kept.append(StateStored(7, 1, disk.body(7, 1, QUEUED)))
    kept.commit(30_000)
    kept.close()
    assert disk.load().last_id == 30_000


def test_the_id_of_a_quarantined_job_is_not_given_again(disk: Leftovers) -> None:
    disk.write(9, b"torn")
    assert disk.load().last_id == 9


def test_the_id_of_a_job_that_was_put_aside_is_not_given_again(disk: Leftovers) -> None:
    disk.write(9, b"torn")
    disk.directory.quarantine(str(disk.places.queue / "job-9"))
    assert disk.load().last_id == 9


# The archive.


def test_an_archived_job_does_not_come_back(disk: Leftovers) -> None:
    body = disk.body(3, 2, SUCCESS)
    disk.write(3, body)
    disk.journal(StateStored(3, 2, body), JobArchived(3))
    loaded = disk.load()
    assert len(loaded.table) == 0
    assert disk.directory.read(3) is None
    assert disk.directory.read_archived(3) == body


@pytest.mark.parametrize("live", [None, b"", b'{"id": 3'])
@pytest.mark.parametrize("archived", [None, b"", b'{"id": 3'])
def test_an_archived_job_is_whole_also_after_the_loss_of_the_machine(
    disk: Leftovers, live: bytes | None, archived: bytes | None
) -> None:
    # Neither the file nor its new name was flushed: the journal has both.
    body = disk.body(3, 2, SUCCESS)
    if archived is not None:
        disk.write(3, archived)
        disk.directory.archive(3)
    if live is not None:
        disk.write(3, live)
    disk.journal(
        JobsStored([(3, 1, disk.body(3, 1, QUEUED))]), StateStored(3, 2, body), JobArchived(3)
    )
    for _ in range(2):
        loaded = disk.load()
        assert (len(loaded.table), loaded.quarantined) == (0, [])
        assert disk.directory.read_archived(3) == body
        assert disk.directory.read(3) is None


def test_an_older_version_does_not_get_into_the_archive(disk: Leftovers) -> None:
    body = disk.body(3, 2, SUCCESS)
    disk.write(3, disk.body(3, 1, RUNNING))
    disk.journal(StateStored(3, 2, body), JobArchived(3))
    disk.load()
    assert disk.directory.read_archived(3) == body


def test_what_is_in_the_archive_already_is_left_as_it_is(disk: Leftovers) -> None:
    in_archive = disk.body(3, 9, SUCCESS)
    disk.write(3, in_archive)
    disk.directory.archive(3)
    disk.journal(StateStored(3, 2, disk.body(3, 2, SUCCESS)), JobArchived(3), JobArchived(3))
    disk.load()
    assert disk.directory.read_archived(3) == in_archive


def test_a_journaled_state_of_a_job_in_the_archive_does_not_bring_it_back(
    disk: Leftovers,
) -> None:
    body = disk.body(3, 2, SUCCESS)
    disk.write(3, body)
    disk.directory.archive(3)
    disk.journal(StateStored(3, 2, body))
    assert len(disk.load().table) == 0


# A disk that refuses while loading.


def refuse(patch: pytest.MonkeyPatch, call: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr(os, call, fail)


def test_a_job_that_cannot_be_written_now_is_not_taken_for_unreadable(
    disk: Leftovers, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = disk.body(3, 1, QUEUED)
    disk.journal(JobsStored([(3, 1, body)]))
    with monkeypatch.context() as patch:
        refuse(patch, "write")
        loaded = disk.load()
    assert phases(loaded) == {3: (Phase.PENDING, QUEUED)}
    assert loaded.quarantined == []
    assert loaded.unwritten == {3: (1, body)}


def test_a_job_that_cannot_be_archived_now_is_archived_all_the_same(
    disk: Leftovers, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = disk.body(3, 2, SUCCESS)
    disk.write(3, body)
    disk.journal(StateStored(3, 2, body), JobArchived(3))
    with monkeypatch.context() as patch:
        refuse(patch, "makedirs")
        loaded = disk.load()
    assert len(loaded.table) == 0
    assert loaded.unarchived == [3]


def test_the_id_of_a_job_that_cannot_be_archived_now_is_not_given_again(
    disk: Leftovers, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.write(9, disk.body(9, 2, SUCCESS))
    disk.journal(JobArchived(9))
    with monkeypatch.context() as patch:
        refuse(patch, "makedirs")
        assert disk.load().last_id == 9


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(disk: Leftovers) -> None:
    disk.write(3, disk.body(3, 1, RUNNING, livelock=disk.living.path))
    for name in (".tmp-job-3.1.1", ".tmp-job-4.1.1"):
        (disk.places.queue / name).touch()
    disk.load()
    left = [name for name in os.listdir(disk.places.queue) if name.startswith(".tmp")]
    assert left == [".tmp-job-3.1.1"]
