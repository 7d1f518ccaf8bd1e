"""What the queue remembers of files: a start that uses it has what one has that reads them all."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.actors.queue.queue_stage import DELAY, Queue, spec
from tests.actors.runtime.stage import Stage, StagedSteps
from tests.refusals import refusing

from ganger.actors.store import recovery, remembering
from ganger.actors.store.job_rows import Phase, Row
from ganger.actors.store.loaded import Loaded
from ganger.storage import errors, settings
from ganger.storage.alive import process_identity
from ganger.storage.disk import documents
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.log.journal import Journal
from ganger.storage.queue_files.job_files import QueueDirectory
from ganger.transport import messages
from ganger.transport.messages import JobSpec


@pytest.fixture
def queue(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """A queue that remembers also the files of few jobs."""
    monkeypatch.setattr(settings, "REMEMBERED_JOBS_MIN", 1)
    monkeypatch.setattr(settings, "MARK_REST_SECONDS", 0.01)
    return Queue(stage, monkeypatch)


Found = tuple[list[Row], list[str], dict[int, tuple[int, bytes]], set[int]]


def loaded(queue: Queue, *, remembers: bool) -> tuple[Loaded, Found]:
    """What a start finds now, with and without what is remembered, and what counts of it.

    Without, it decodes all texts; with it, it decodes those alone that tell no less.
    """
    places = queue.stage.places
    directory = QueueDirectory(places)
    files = remembering.files_of(places) if remembers else None
    with mock.patch.object(settings, "DECODED_AT_START_MAX", 0 if remembers else 10**6):
        found = recovery.load(directory, Journal(places.journal), "no lock file", files)
    died = {job.id for job in found.died}
    found.unread.read_from(lambda job_id: newest(directory, found, job_id), pytest.fail)
    # The first of many has its parameters for itself, unless a template was read before it.
    for row in found.table:
        row.shared_inputs = None
        assert row.is_whole
    return found, (list(found.table), sorted(found.quarantined), found.living, died)


def newest(directory: QueueDirectory, found: Loaded, job_id: int) -> bytes | None:
    """The text of a job, from the journal or its file."""
    late = found.unwritten.get(job_id)
    return directory.read(job_id) if late is None else late[1]


def agreed(queue: Queue) -> Loaded:
    """What a start finds now; it is the same without what is remembered."""
    found, with_it = loaded(queue, remembers=True)
    _, without = loaded(queue, remembers=False)
    assert with_it == without
    return found


def file(queue: Queue, job_id: int) -> Path:
    return queue.stage.places.queue / f"job-{job_id}"


def filled(queue: Queue, count: int = 6) -> None:
    """Jobs of one kind, with files. The very first of a kind shares nothing: its file is read."""
    queue.submitted(*[spec()] * count)
    queue.rest()


def test_a_start_tells_how_many_files_it_has_compared(queue: Queue) -> None:
    filled(queue)
    queue.submitted(*[JobSpec(ops=[DELAY | {"duration": 3.0}])] * 4, key="a-key")
    queue.rest()
    places, told = queue.stage.places, list[tuple[str, int, int]]()
    files = remembering.files_of(places)
    directory, kept = QueueDirectory(places), Journal(places.journal)
    recovery.load(directory, kept, "none", files, lambda *step: told.append(step))
    compared = [step for step in told if step[0] == "looking for changed files"]
    # Jobs of two kinds are in pages of their own.
    assert compared[0] == ("looking for changed files", 0, 10)
    assert len(compared) > 1
    assert 0 < compared[-1][1] < 10


def test_files_that_are_as_they_were_are_not_read(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(queue)
    queue.submitted(*[JobSpec(ops=[DELAY | {"duration": 3.0}])] * 4, key="a-key")
    queue.rest()
    assert sorted(agreed(queue).recalled.rows) == [*range(1, 11)]
    read: list[str] = []
    original = documents.read

    def noted(path: str | os.PathLike[str]) -> bytes | None:
        read.append(os.path.basename(path))
        return original(path)

    monkeypatch.setattr(documents, "read", noted)
    found, _ = loaded(queue, remembers=True)
    # The first of a kind has no template, and what it has is read later.
    assert [name for name in read if name.startswith("job-")] == ["job-1", "job-7"]
    assert "remembered.data" in read
    assert [row.key for row in found.table] == [None] * 6 + ["a-key"] * 4


def test_the_next_queue_goes_on_where_this_one_was(queue: Queue) -> None:
    filled(queue, 3)
    path = queue.stage.places.remembered
    size = path.stat().st_size
    queue.restart()
    queue.rest()
    assert path.stat().st_size == size
    filled(queue, 2)
    assert path.stat().st_size > size
    queue.restart()
    assert sorted(agreed(queue).recalled.rows) == [1, 2, 3, 4, 5]
    assert [row.id for row in queue.actor.component.store.table] == [1, 2, 3, 4, 5]


def _exchanged(path: Path, data: bytes) -> None:
    other = path.with_name("other")
    other.write_bytes(data)
    other.rename(path)


@pytest.mark.parametrize("how", ["replaced", "written", "torn", "removed", "linked", "a directory"])
def test_a_file_that_changed_is_read(queue: Queue, how: str) -> None:
    filled(queue)
    path = file(queue, 3)
    body = path.read_bytes()
    match how:
        case "replaced":
            _exchanged(path, body.replace(b'"comment":null', b'"comment":"new"'))
        case "written":
            path.write_bytes(body)
        case "torn":
            path.write_bytes(body[:100])
        case "removed":
            path.unlink()
        case "linked":
            path.rename(path.with_name("elsewhere"))
            path.symlink_to(path.with_name("elsewhere"))
        case "a directory":
            path.unlink()
            path.mkdir()
    assert sorted(agreed(queue).recalled.rows) == [1, 2, 4, 5, 6]


def test_after_another_boot_every_file_is_read(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(queue)
    assert len(agreed(queue).recalled.rows) == 6
    monkeypatch.setattr(process_identity, "boot", lambda: "another")
    assert agreed(queue).recalled.rows == {}


def test_a_system_that_does_not_name_its_boot_remembers_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(settings, "REMEMBERED_JOBS_MIN", 1)
    monkeypatch.setattr(process_identity, "boot", unknown)
    queue = Queue(stage, monkeypatch)
    filled(queue)
    assert not stage.places.remembered.exists()
    assert len(agreed(queue).table) == 6


def test_a_job_that_has_started_since_is_adopted(queue: Queue) -> None:
    filled(queue)
    queue.start(2)
    # With two versions more, its file may have the inode that was remembered.
    queue.recorded(2, 10, JobStatus.RUNNING)
    found = agreed(queue)
    assert sorted(found.living) == [2]
    assert sorted(found.recalled.rows) == [1, 3, 4, 5, 6]


def test_a_state_of_the_journal_counts_more_than_a_file(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(queue)

    def refuse(*_: object, **__: object) -> None:
        raise errors.StorageError("no space")

    monkeypatch.setattr(QueueDirectory, "write", refuse)
    queue.actor.ask(messages.ChangeJobPriority(id=4, priority=-5))
    found = agreed(queue)
    assert 4 in found.recalled.rows
    assert [row.priority for row in found.table] == [0, 0, 0, -5, 0, 0]


def test_a_file_that_has_just_changed_rests_before_it_counts(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "MARK_REST_SECONDS", 3_600.0)
    queue.submitted(spec(), spec())
    for _ in range(10):
        queue.actor.be_quiet()
        queue.let_threads_work()
    assert queue.actor.component.runtime.patience_seconds == settings.REMEMBER_PATIENCE_SECONDS
    assert agreed(queue).recalled.rows == {}
    monkeypatch.setattr(settings, "MARK_REST_SECONDS", 0.0)
    queue.rest()
    assert 1 in agreed(queue).recalled.rows


def test_a_file_from_the_future_is_left_out(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = QueueDirectory.mark

    def later(directory: QueueDirectory, job_id: int) -> Any:
        found = mark(directory, job_id)
        return found if found is None or job_id != 2 else (found[0], found[1] + 10**12)

    monkeypatch.setattr(QueueDirectory, "mark", later)
    filled(queue)
    assert sorted(agreed(queue).recalled.rows) == [1, 3, 4, 5, 6]


def test_a_short_queue_remembers_nothing(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "REMEMBERED_JOBS_MIN", 7)
    filled(queue)
    assert not queue.stage.places.remembered.exists()
    filled(queue, 1)
    assert len(agreed(queue).recalled.rows) == 7
    # A start with fewer does not look.
    queue.actor.ask(messages.CancelJob(id=1))
    queue.actor.ask(messages.ArchiveJob(id=1))
    assert agreed(queue).recalled.rows == {}


def test_what_is_of_no_use_is_forgotten(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembering, "_GARBAGE_MIN", 3)
    for _ in range(8):
        filled(queue, 2)
        for row in list(queue.actor.component.store.table):
            queue.actor.ask(messages.CancelJob(id=row.id))
            queue.actor.ask(messages.ArchiveJob(id=row.id))
    filled(queue, 2)
    found = agreed(queue).recalled
    assert len(found.rows) == 2
    assert found.count <= 2 * 2 + 3 + 2


def test_a_disk_that_refuses_only_costs_the_memory(queue: Queue) -> None:
    queue.stage.places.remembered.mkdir()
    filled(queue)
    queue.submitted(spec())
    queue.rest()
    assert queue.stage.log_stream.getvalue().count("not remembered") == 1
    assert len(agreed(queue).table) == 7


SPECS = (
    *(JobSpec(ops=[DELAY | {"duration": 0.5 + number}]) for number in range(4)),
    spec(),
    JobSpec(ops=[DELAY | {"duration": 3.0}]),
    JobSpec(ops=[DELAY, DELAY]),
    spec(reason=[("gnt:user", "rate-limit:3:moves", 1)]),
    spec((-1, ["success"])),
    JobSpec(ops=[DELAY | {"priority": -3}]),
)


class Life:
    """A queue to which anything may happen."""

    def __init__(self, queue: Queue, dice: random.Random) -> None:
        self.queue = queue
        self.dice = dice
        self.running: set[int] = set()
        queue.submitted(spec())

    def pending(self) -> list[int]:
        """A job that may start, if there is one."""
        table = self.queue.actor.component.store.table
        found = [row.id for row in table.in_phase(Phase.PENDING) if not row.depends]
        return self.dice.sample(found, min(1, len(found)))

    def submit(self) -> None:
        self.queue.submit(*[self.dice.choice(SPECS)] * self.dice.randint(1, 4))
        self.queue.actor.end_turn()

    def cancel(self) -> None:
        for job_id in self.pending():
            self.queue.actor.ask(messages.CancelJob(id=job_id))

    def reprioritise(self) -> None:
        for job_id in self.pending():
            priority = self.dice.choice([-5, 0, 5])
            self.queue.actor.ask(messages.ChangeJobPriority(id=job_id, priority=priority))

    def start(self) -> None:
        for job_id in self.pending():
            self.queue.choose(job_id)
            self.queue.hand_over(job_id)
            row = self.queue.actor.component.store.table.find(job_id)
            if row is not None and row.phase is Phase.HANDED_OVER:
                self.running.add(job_id)

    def record(self) -> None:
        for job_id in sorted(self.running)[:1]:
            statuses = [JobStatus.RUNNING] * len(self.queue.job(job_id).ops)
            self.queue.recorded(job_id, self.dice.randint(9, 99), *statuses)

    def lose(self) -> None:
        if self.running:
            self.queue.lose_process(self.running.pop(), has_left=self.dice.random() < 0.5)

    def archive(self) -> None:
        for row in list(self.queue.actor.component.store.table):
            self.queue.actor.ask(messages.ArchiveJob(id=row.id))

    def die(self) -> None:
        """The daemon dies; before the next one starts, somebody may change a file."""
        path = file(self.queue, self.dice.randint(1, 20))
        if path.exists() and path.name not in {f"job-{one}" for one in self.running}:
            body = path.read_bytes()
            _exchanged(path, self.dice.choice([body, body[:50]]))
        agreed(self.queue)
        self.queue.restart()
        self.queue.kill_all()
        self.running.clear()


@pytest.mark.parametrize("seed", range(12))
def test_a_start_has_what_reading_gives_whatever_happened(queue: Queue, seed: int) -> None:
    life = Life(queue, random.Random(seed))
    rest = queue.rest
    happens = [life.submit] * 3 + [rest] * 2 + [life.cancel, life.reprioritise, life.start]
    happens += [life.record, life.lose, life.archive, life.die]
    for _ in range(40):
        life.dice.choice(happens)()
    queue.rest()
    agreed(queue)


# While a thread looks.


def looking(queue: Queue, *, steps: int) -> StagedSteps:
    """All jobs have files; a thread has begun to look at them."""
    while not (queue.stage.beside and not queue.stage.beside[-1].is_over):
        queue.actor.be_quiet()
    [thread] = [work for work in queue.stage.beside if not work.is_over]
    thread.take(steps)
    return thread


@pytest.mark.parametrize("steps", [1, 2])
def test_a_job_that_changes_meanwhile_does_not_count(queue: Queue, steps: int) -> None:
    queue.submitted(*[spec()] * 6)
    thread = looking(queue, steps=steps)
    queue.choose(4)
    queue.hand_over(4)
    queue.actor.ask(messages.ChangeJobPriority(id=3, priority=-5))
    queue.actor.ask(messages.CancelJob(id=5))
    queue.actor.ask(messages.ArchiveJob(id=5))
    thread.run()
    queue.let_threads_work()
    queue.rest()
    found = agreed(queue)
    # What is noted of the third, if anything, is of its new file.
    assert not {4, 5} & found.recalled.rows.keys()
    assert 6 in found.recalled.rows
    assert next(row.priority for row in found.table if row.id == 3) == -5


def test_the_queue_sleeps_while_the_thread_looks(queue: Queue) -> None:
    queue.submitted(*[spec()] * 6)
    looking(queue, steps=1)
    assert queue.actor.component.runtime.patience_seconds is None
    queue.let_threads_work()
    assert queue.actor.component.runtime.patience_seconds is not None


def test_a_look_of_a_queue_that_was_replaced_writes_nothing_more(queue: Queue) -> None:
    filled(queue)
    queue.submitted(*[spec()] * 3)
    thread = looking(queue, steps=0)
    queue.actor.close()
    path = queue.stage.places.remembered
    before = path.read_bytes()
    queue.actor = queue.stage.start(type(queue.actor.component), 2)
    thread.run()
    assert path.read_bytes() == before
    # What the thread says is not taken for an answer to the new queue.
    queue.let_threads_work()
    queue.rest()
    assert sorted(agreed(queue).recalled.rows) == [*range(1, 10)]


@pytest.mark.parametrize("problem", ["the disk refuses", "no thread"])
def test_without_a_look_nothing_is_remembered_and_the_queue_goes_on(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    queue.submitted(*[spec()] * 6)
    if problem == "no thread":
        no_thread = mock.Mock(side_effect=RuntimeError("can't start new thread"))
        monkeypatch.setattr(queue.stage.dispatcher, "when_idle", no_thread)
        queue.rest()
    else:
        thread = looking(queue, steps=0)
        with refusing("utime"):
            thread.run()
        queue.let_threads_work()
    log = queue.stage.log_stream.getvalue()
    assert log.count("files are not remembered for the next start") == 1
    assert agreed(queue).recalled.rows == {}
    queue.submitted(spec())
    queue.rest()
