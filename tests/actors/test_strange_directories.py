"""A queue directory in which somebody else has left things: the daemon starts and names them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.actors.queue_stage import spec

from ganger.storage import job_files, lock_files
from ganger.storage.job_files import QueueDirectory
from ganger.transport import messages

if TYPE_CHECKING:
    from tests.actors.queue_stage import Queue


def quarantined(queue: Queue) -> list[str]:
    queue.actor.ask(messages.ReportCounts(token=1))
    return queue.stage.take_one(messages.QueueReport, to="supervisor").quarantined


def test_a_fifo_in_the_place_of_a_job_file_does_not_hang_the_start(queue: Queue) -> None:
    queue.submitted(spec())
    os.mkfifo(queue.stage.places.queue / "job-7")
    queue.restart()
    [name] = quarantined(queue)
    assert name.startswith("job-7: ")
    assert queue.submitted(spec()) == [8]


def test_a_fifo_in_the_place_of_a_lock_file_does_not_hang_anybody(queue: Queue) -> None:
    path = queue.stage.places.lock_files / "job_000001_1"
    os.mkfifo(path)
    # Whoever it is, he does not hold the lock that a living owner would hold.
    assert lock_files.holder(path) is None


def test_a_number_that_no_job_can_have_is_named(queue: Queue) -> None:
    (queue.stage.places.queue / ("job-" + "9" * 30)).write_text("{}")
    queue.restart()
    assert quarantined(queue) == ["job-" + "9" * 30 + ": no job has that number"]
    assert queue.submitted(spec()) == [1]


def test_a_serial_file_with_thousands_of_digits_is_not_believed(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.rest()
    (queue.stage.places.queue / "serial").write_text("7" * 5_000)
    queue.restart()
    assert queue.submitted(spec()) == [3]
    queue.rest()
    # And what was longer than the new number is gone from it.
    assert (queue.stage.places.queue / "serial").read_text() == "3\n"


def test_a_damaged_archived_job_is_named_and_the_others_are_listed(queue: Queue) -> None:
    archive = queue.stage.places.archive / "0"
    archive.mkdir(parents=True)
    (archive / "job-1").write_text("{torn")
    queue.restart()
    ids = queue.submitted(spec())
    assert ids == [2]
    rows = queue.actor.ask(messages.ListJobs(archived=True)).answer_as(messages.JobRows).rows
    assert [row.id for row in rows] == [2]
    assert "job-1 in the archive" in quarantined(queue)[0]


def test_an_empty_folder_hides_no_archived_ids(queue: Queue) -> None:
    directory = QueueDirectory(queue.stage.places)
    for folder, name in (("0", "job-17"), ("9", "")):
        (queue.stage.places.archive / folder).mkdir(parents=True)
        if name:
            (queue.stage.places.archive / folder / name).write_text("{}")
    assert directory.highest_archived_id() == 17


def test_what_lies_in_the_archive_under_the_name_of_a_job_is_put_aside(queue: Queue) -> None:
    directory = QueueDirectory(queue.stage.places)
    archived = queue.stage.places.archive / "0" / "job-3"
    archived.parent.mkdir(parents=True)
    archived.write_text("somebody else's")
    live = queue.stage.places.queue / "job-3"
    live.write_text("ours")
    directory.archive(3)
    assert archived.read_text() == "ours"
    [kept] = (queue.stage.places.queue / "quarantine").iterdir()
    assert kept.read_text() == "somebody else's"
    assert not live.exists()


def test_records_behind_a_damaged_one_are_kept_aside_and_named(queue: Queue) -> None:
    queue.submitted(spec())
    queue.submitted(spec())
    queue.submitted(spec())
    queue.actor.component._ledger._journal._close()
    [segment] = sorted(queue.stage.places.journal.iterdir())
    data = bytearray(segment.read_bytes())
    # In the middle of the second submission, of which the files are there too.
    place = data.index(b"stored", data.index(b"stored") + 10) + 40
    data[place] ^= 1
    segment.write_bytes(bytes(data))
    queue.actor = queue.stage.start(type(queue.actor.component))
    [name] = quarantined(queue)
    assert "records behind a damaged one" in name
    [copy] = (queue.stage.places.queue / "quarantine").iterdir()
    assert copy.read_bytes() == bytes(data)
    assert job_files.VERSION == 1


def test_nothing_that_somebody_left_keeps_the_queue_from_starting(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.rest()
    places = queue.stage.places
    (places.queue / "serial").unlink()
    (places.queue / "serial").mkdir()
    (places.archive / "7").write_text("a file, and no folder")
    (places.queue / ".tmp-job-4.1.2").mkdir()
    (places.queue / "job-0100").write_text("{torn")
    queue.restart()
    # By its own name, and not by that of a job which was never there.
    assert quarantined(queue) == ["job-0100: no job has that number"]
    assert queue.submitted(spec()) == [3]
