"""Which of two states of a job counts, and which file is written again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ganger.storage import errors
from ganger.storage.disk import paths
from ganger.storage.jobs import jobs
from ganger.storage.log.journal import Journal
from ganger.storage.log.records import JobArchived, JobsStored, StateStored
from ganger.storage.queue_files import job_files, replay
from ganger.storage.queue_files.job_files import QueueDirectory


def body(serial: int, status: str = "running", by: str = "") -> bytes:
    """The text of job 7, with who wrote it."""
    op = {"input": {"OP_ID": "OP_EXEC"}, "status": status, "result": by, "log": []}
    return json.dumps({"id": 7, "ops": [op], "ganger_serial": serial}).encode()


def test_the_newest_state_in_the_journal_counts_and_the_first_of_equal_ones(
    places: paths.Places,
) -> None:
    kept = Journal(places.journal)
    kept.append(JobsStored([(7, 1, b"1"), (8, 1, b"8")]))
    for serial, text in ((3, b"3"), (3, b"again"), (2, b"2")):
        kept.append(StateStored(7, serial, text))
    kept.append(JobArchived(8))
    kept.append(JobArchived(8))
    kept.write(5)
    kept.close()
    found = replay.read_journal(Journal(places.journal))
    assert found == replay.JournalContent({7: (3, b"3")}, {8: (1, b"8")}, 8, position=6)


def test_ids_behind_a_damaged_record_are_not_given_again(places: paths.Places) -> None:
    kept = Journal(places.journal)
    for job_id in (6, 7, 8):
        kept.append(JobsStored([(job_id, 1, b"stored as %d" % job_id)]))
    kept.write(5)
    kept.close()
    [path] = kept.segments()
    data = path.read_bytes()
    path.write_bytes(data.replace(b"stored as 7", b"stored as ?"))
    found = replay.read_journal(Journal(places.journal))
    states = {6: (1, b"stored as 6")}
    assert found == replay.JournalContent(states, {}, 8, position=1, damaged=[path])


@pytest.mark.parametrize(
    ("journaled", "in_file", "is_ahead"),
    [(None, None, False), (None, 1, False), (1, None, True), (1, 1, False), (2, 1, True)],
)
def test_the_journal_counts_where_it_is_newer(
    journaled: int | None, in_file: int | None, *, is_ahead: bool
) -> None:
    assert replay.is_ahead(journaled, in_file) == is_ahead


@pytest.mark.parametrize(("in_file", "counts"), [(1, "journal"), (2, "file"), (3, "file")])
def test_the_file_counts_unless_the_journal_is_newer_for_its_log_may_be_longer(
    queue: QueueDirectory, monkeypatch: pytest.MonkeyPatch, in_file: int, counts: str
) -> None:
    state = 2, body(2, by="journal")
    queue.write(7, body(in_file, by="file"), flush=False)
    job, text = replay.newest(queue, 7, state)
    assert job.ops[0].result == counts
    assert (text is state[1]) == (counts == "journal")
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", flushed.append)
    replay.write_file_anew(queue, 7, state)
    assert queue.read(7) == text
    # A state that the journal lacks has no other copy.
    assert bool(flushed) == (in_file > state[0])


def test_without_a_readable_state_there_is_no_newest(queue: QueueDirectory) -> None:
    for state in (None, (1, b"{torn")):
        with pytest.raises(errors.StorageError):
            replay.newest(queue, 7, state)


@pytest.mark.parametrize(
    ("archived", "counts"),
    [
        (body(2, "success", by="file"), "file"),
        (body(3, "success", by="file"), "file"),
        (body(1, "success", by="file"), "journal"),
        (body(3, "running", by="file"), "journal"),
        (b"{torn", "journal"),
    ],
)
def test_an_archived_file_is_written_anew_whole(
    queue: QueueDirectory, monkeypatch: pytest.MonkeyPatch, archived: bytes, counts: str
) -> None:
    queue.write(7, archived, flush=False)
    queue.archive(7)
    said = replay.JournalContent({}, {7: (2, body(2, "success", by="journal")), 8: None}, 8)
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", flushed.append)
    replay.write_anew(queue, said, left_out=())
    text = queue.read_archived(7)
    assert text is not None
    assert jobs.decode_job(text).ops[0].result == counts
    assert bool(flushed) == (text == archived == body(3, "success", by="file"))


def test_an_archived_file_is_written_in_the_place_of_a_directory(queue: QueueDirectory) -> None:
    queue.write(7, b"{torn", flush=False)
    queue.archive(7)
    place = Path(job_files.path(job_files.archive_folder(f"{queue.path}/archive", 7), 7))
    place.unlink()
    place.mkdir()
    (place / "kept").touch()
    ended = body(2, "success", by="journal")
    replay.write_archived_anew(queue, {7: (2, ended)})
    assert queue.read_archived(7) == ended
    assert (Path(queue.path) / "quarantine/job-7/kept").exists()


def test_files_that_others_write_are_left_out(queue: QueueDirectory) -> None:
    said = replay.JournalContent({7: (2, body(2)), 8: (2, body(2))}, {}, 8)
    queue.write(7, body(1), flush=False)
    replay.write_anew(queue, said, left_out={7})
    assert queue.read(7) == body(1)


@pytest.mark.parametrize(
    ("is_live", "is_journaled", "is_archived", "needs_archiving"),
    [
        (True, False, True, True),
        (False, True, False, True),
        (False, True, True, False),
        (False, False, False, False),
    ],
)
def test_a_job_is_archived_again_where_it_is_not_yet(
    *, is_live: bool, is_journaled: bool, is_archived: bool, needs_archiving: bool
) -> None:
    assert needs_archiving == replay.needs_archiving(
        is_live=is_live, is_journaled=is_journaled, is_archived=is_archived
    )


def test_a_newer_final_file_is_archived_as_it_is(queue: QueueDirectory) -> None:
    """A power loss undid the move: the file that lies there says more than the journal."""
    ended = body(9, "success", by="file")
    queue.write(7, ended, flush=False)
    replay.archive_again(queue, 7, (5, body(5, "success", by="journal")))
    assert (queue.read(7), queue.read_archived(7)) == (None, ended)


@pytest.mark.parametrize("live", [b"{torn", body(9, "running", by="file")])
def test_a_file_that_is_not_final_is_archived_as_the_journal_says(
    queue: QueueDirectory, live: bytes
) -> None:
    ended = body(5, "success", by="journal")
    queue.write(7, live, flush=False)
    replay.archive_again(queue, 7, (5, ended))
    assert (queue.read(7), queue.read_archived(7)) == (None, ended)
