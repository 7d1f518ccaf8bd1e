"""What a successor finds in odd directories; tests/transcripts/recovery has the stories."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.actors.queue.leftovers import Leftovers
from tests.refusals import refusing

from ganger.actors.durable.ledger import Ledger
from ganger.actors.store import recovery
from ganger.actors.store.job_rows import Phase
from ganger.actors.store.loaded import Loaded
from ganger.storage import settings
from ganger.storage.alive import process_identity
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.log import records
from ganger.storage.log.journal import Journal
from ganger.storage.log.records import JobArchived, JobsStored, StateStored
from ganger.storage.nodes import task_marks

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus


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


def test_damaged_files_that_the_journal_makes_up_for_are_told_and_others_are_not(
    disk: Leftovers,
) -> None:
    disk.journal(*(StateStored(one, 1, disk.body(one, 1, QUEUED)) for one in (2, 3, 4)))
    disk.write(2, bytes(500))
    disk.write(3, disk.body(3, 1, QUEUED))
    loaded = disk.load()
    assert (loaded.mended, loaded.quarantined) == ([2], [])
    # The ledger writes them.
    assert loaded.unwritten == {one: (1, disk.body(one, 1, QUEUED)) for one in (2, 4)}
    assert loaded.written == {3: (1, disk.body(3, 1, QUEUED))}


@pytest.mark.parametrize("text", [b"", bytes(500), b'{"id": 7}'])
def test_a_process_that_only_a_lost_file_has_named_is_found(disk: Leftovers, text: bytes) -> None:
    """The disk has refused what the queue wrote at the hand-over; the daemon died, and it lives."""
    disk.journal(StateStored(1, 2, disk.body(1, 2, QUEUED)))
    disk.write(1, text)
    loaded = disk.load()
    [row] = loaded.table
    assert (row.phase, row.status, row.lock_file) == (Phase.HANDED_OVER, QUEUED, disk.living.path)
    serial, body = loaded.living[1]
    assert (serial, jobs.decode_job(body).livelock) == (2, disk.living.path)


@pytest.mark.parametrize(
    ("node", "boot", "is_marked", "expected"),
    [
        ("web1", "", True, Phase.HANDED_OVER),
        ("web1", "", False, Phase.ENDED),
        (None, "", False, Phase.ENDED),
        # After a loss of power the mark may be gone, and the task runs on.
        ("web1", "1a2b3c4d", False, Phase.HANDED_OVER),
        (None, "1a2b3c4d", False, Phase.ENDED),
    ],
)
def test_a_job_whose_task_on_a_node_may_run_has_not_ended(
    disk: Leftovers, node: str | None, boot: str, *, is_marked: bool, expected: Phase
) -> None:
    identity = f"2147483647.1.{boot or process_identity.boot()}"
    lock_file = str(disk.places.lock_files / f"job_000001_1_{identity}")
    job = jobs.decode_job(disk.body(1, 2, RUNNING, livelock=lock_file))
    job.ops[0].input["node"] = node
    disk.write(1, jobs.encode_job(job))
    if is_marked:
        task_marks.write(lock_file, [task_marks.MarkedTask("web1", "key", 1.0)])
    assert phases(disk.load())[1][0] is expected
    assert task_marks.is_marked(lock_file) is (expected is Phase.HANDED_OVER)


def test_a_job_that_has_ended_has_no_process(disk: Leftovers) -> None:
    disk.journal(StateStored(1, 2, disk.body(1, 2, SUCCESS)))
    disk.write(1, b"torn")
    assert phases(disk.load()) == {1: (Phase.ENDED, SUCCESS)}


def test_a_process_that_waits_for_its_hand_over_does_not_count(disk: Leftovers) -> None:
    disk.journal(StateStored(1, 2, disk.body(1, 2, QUEUED)))
    disk.write(1, disk.body(1, 1, QUEUED))
    assert phases(disk.load()) == {1: (Phase.PENDING, QUEUED)}


def test_a_state_that_only_the_file_had_is_told_when_it_is_lost(disk: Leftovers) -> None:
    large = [records.StateFiled(one, 3, records.digest_of(b"large")) for one in (1, 2, 3)]
    disk.journal(*(StateStored(one, 2, disk.body(one, 2, QUEUED)) for one in (1, 2, 3)), *large)
    for job_id, serial in ((1, 2), (2, 3), (3, 4)):
        disk.write(job_id, disk.body(job_id, serial, QUEUED))
    loaded = disk.load()
    text = "job-1: its state 3, which only its file had, is lost; it goes on from 2"
    assert loaded.quarantined == [text]
    assert sorted(row.id for row in loaded.table) == [1, 2, 3]


# Ids are never given twice.


def test_the_last_id_may_be_one_that_only_the_journal_began_with(disk: Leftovers) -> None:
    kept = Journal(disk.places.journal)
    kept.begin(30_000)
    kept.append(StateStored(7, 1, disk.body(7, 1, QUEUED)))
    kept.write(30_000)
    kept.close()
    assert disk.load().last_id == 30_000


def test_the_id_of_a_job_that_was_put_aside_is_not_given_again(disk: Leftovers) -> None:
    disk.write(9, b"torn")
    disk.directory.quarantine(str(disk.places.queue / "job-9"))
    assert disk.load().last_id == 9


# The archive.


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
    # Two requests at the same time have archived it.
    new = JobsStored([(3, 1, disk.body(3, 1, QUEUED))])
    disk.journal(new, StateStored(3, 2, body), JobArchived(3), JobArchived(3))
    for _ in range(2):
        loaded = disk.load()
        assert (len(loaded.table), loaded.quarantined) == (0, [])
        assert disk.directory.read_archived(3) == body
        assert disk.directory.read(3) is None


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("moved", [[], [JobArchived(3)]])
def test_an_older_file_in_the_archive_gives_way_to_the_journal(
    disk: Leftovers, moved: list[JobArchived]
) -> None:
    """A copy of the archive was put back: the queue must not wait for good for the newer state."""
    disk.archived(3).write_bytes(older := disk.body(3, 2, SUCCESS))
    body = disk.body(3, 4, SUCCESS)
    disk.journal(StateStored(3, 4, body), *moved)
    loaded = disk.load()
    ledger = Ledger(disk.directory, Journal(disk.places.journal))
    ledger.begin(loaded)
    assert not ledger.is_read_only
    ledger.close()
    assert disk.directory.read_archived(3) == body
    assert (disk.places.quarantine / "job-3").read_bytes() == older


UNREADABLE: list[Callable[[Path], object]] = [
    Path.touch,
    lambda path: path.write_bytes(b'{"id": 3'),
    Path.mkdir,
    _loop,
]


@pytest.mark.parametrize("damage", UNREADABLE)
def test_how_a_job_ended_is_put_back_into_the_archive_though_the_journal_lost_its_move(
    disk: Leftovers, damage: Callable[[Path], object]
) -> None:
    body = disk.body(3, 2, SUCCESS)
    disk.journal(JobsStored([(3, 1, disk.body(3, 1, QUEUED))]), StateStored(3, 2, body))
    damage(disk.archived(3))
    loaded = disk.load()
    assert (len(loaded.table), loaded.quarantined) == (0, [])
    assert disk.directory.read_archived(3) == body
    assert disk.directory.read(3) is None


@pytest.mark.parametrize("damage", UNREADABLE)
def test_a_job_that_was_archived_is_not_started_again_by_an_older_state(
    disk: Leftovers, damage: Callable[[Path], object]
) -> None:
    older = disk.body(3, 1, QUEUED)
    disk.journal(JobsStored([(3, 1, older)]))
    damage(archived := disk.archived(3))
    before = archived.lstat()
    loaded = disk.load()
    assert (len(loaded.table), loaded.last_id) == (0, 3)
    [said] = loaded.quarantined
    kept = disk.places.quarantine / "job-3"
    assert said == (
        "archive/0/job-3: cannot be read, and the journal has only a state from before its end, "
        f"now {kept}"
    )
    assert kept.read_bytes() == older
    assert archived.lstat().st_ino == before.st_ino
    # The ledger takes changes, and the segments of its predecessor go.
    journal = Journal(disk.places.journal)
    ledger = Ledger(disk.directory, journal)
    ledger.begin(loaded)
    assert not ledger.is_read_only
    assert len(journal.segments()) == 1
    ledger.close()
    assert disk.load().quarantined == []


def test_an_archived_job_counts_though_the_journal_has_a_newer_state_and_not_its_move(
    disk: Leftovers,
) -> None:
    """A copy of the archive was put back, and the journal is damaged."""
    disk.archived(3).write_bytes(older := disk.body(3, 2, SUCCESS))
    disk.journal(StateStored(3, 4, disk.body(3, 4, RUNNING)))
    loaded = disk.load()
    ledger = Ledger(disk.directory, Journal(disk.places.journal))
    ledger.begin(loaded)
    assert not ledger.is_read_only
    ledger.close()
    assert (len(loaded.table), disk.directory.read_archived(3)) == (0, older)


# A disk that refuses while loading.


def test_a_job_that_cannot_be_written_now_is_not_taken_for_unreadable(disk: Leftovers) -> None:
    body = disk.body(3, 1, QUEUED)
    disk.journal(JobsStored([(3, 1, body)]))
    with refusing("write"):
        loaded = disk.load()
    assert phases(loaded) == {3: (Phase.PENDING, QUEUED)}
    assert loaded.quarantined == []
    assert loaded.unwritten == {3: (1, body)}


def test_a_job_that_cannot_be_archived_now_is_archived_all_the_same(disk: Leftovers) -> None:
    body = disk.body(3, 2, SUCCESS)
    disk.write(3, body)
    disk.journal(StateStored(3, 2, body), JobArchived(3))
    with refusing("mkdir"):
        loaded = disk.load()
    assert len(loaded.table) == 0
    assert loaded.unarchived == [3]


def test_the_id_of_a_job_that_cannot_be_archived_now_is_not_given_again(disk: Leftovers) -> None:
    disk.write(9, disk.body(9, 2, SUCCESS))
    disk.journal(JobArchived(9))
    with refusing("mkdir"):
        assert disk.load().last_id == 9


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(disk: Leftovers) -> None:
    disk.write(3, disk.body(3, 1, RUNNING, livelock=disk.living.path))
    for name in (".tmp-job-3.1.1", ".tmp-job-4.1.1"):
        (disk.places.queue / name).touch()
    disk.load()
    left = [name for name in os.listdir(disk.places.queue) if name.startswith(".tmp")]
    assert left == [".tmp-job-3.1.1"]


@pytest.mark.parametrize(
    ("status", "serial", "more", "is_unflushed"),
    [
        (SUCCESS, 5, 0, True),
        (RUNNING, 5, 0, False),
        # The journal has this state.
        (SUCCESS, 4, 0, False),
        # A process flushes a large state itself.
        (SUCCESS, 5, 1, False),
    ],
)
def test_a_final_state_ahead_of_the_journal_may_not_be_flushed(
    status: JobStatus, serial: int, more: int, *, is_unflushed: bool
) -> None:
    op = jobs.OpcodeEntry(input={}, status=status)
    job = jobs.Job(id=7, ops=[op], extra={jobs.STATE_SERIAL_KEY: serial})
    body = bytes(settings.JOURNALED_STATE_BYTES_MAX + more)
    assert recovery._is_unflushed_final(job, body, 4) == is_unflushed


def test_a_start_tells_how_far_it_is(disk: Leftovers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "PROGRESS_JOBS", 2)
    for job_id in (1, 2, 3, 5, 8):
        disk.write(job_id, disk.body(job_id, 1, QUEUED))
    told: list[tuple[str, int, int]] = []
    kept = Journal(disk.places.journal)
    recovery.load(disk.directory, kept, disk.own.path, lambda *step: told.append(step))
    counted = [step for step in told if step[2]]
    assert counted == [("reading the queue", done, 5) for done in (0, 2, 4)]
    assert [doing for doing, done, total in told if not total and not done] == [
        "reading the journal",
        "listing the queue",
        "looking through the archive",
    ]
