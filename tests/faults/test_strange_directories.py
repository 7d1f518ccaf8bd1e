"""Damaged and foreign files one by one: which are made up for, named, refused or kept."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from typing import TYPE_CHECKING

import pytest
from tests.actors.queue.queue_stage import Queue, spec
from tests.faults.harness import Daemon
from tests.torture.damage.damages import ID_UNBELIEVABLE
from tests.torture.damage.ordinary_user import modes_obeyed

from ganger.actors.admission.submitting import drafts
from ganger.actors.queue.job_queue import JobQueue
from ganger.storage import errors, settings
from ganger.storage.alive import lock_files
from ganger.storage.disk import documents
from ganger.storage.fsck import checking, survey
from ganger.storage.fsck.findings import FindingKind
from ganger.storage.locks import locks
from ganger.storage.log import records
from ganger.storage.log.journal import Journal
from ganger.storage.queue_files import job_files
from ganger.storage.queue_files.job_files import QueueDirectory
from ganger.transport import messages

if TYPE_CHECKING:
    from pathlib import Path

ID_MAX = job_files.ID_MAX


@pytest.fixture(autouse=True)
def written_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were replaced are written over at once."""
    monkeypatch.setattr(settings, "TEMPORARY_REST_SECONDS", 0.0)


def report(queue: Queue) -> messages.QueueReport:
    return queue.actor.ask(messages.ReadQueueState()).answer_as(messages.QueueReport)


def cut_journal(queue: Queue) -> None:
    """Stop in order; the next start finds no journal."""
    queue.actor.close()
    for segment in queue.stage.places.journal.iterdir():
        segment.unlink()


def start(queue: Queue) -> None:
    queue.actor = queue.stage.start(JobQueue)


# ---------------------------------------------------------------- ids


def test_the_name_of_an_unreadable_file_does_not_use_up_the_ids(queue: Queue) -> None:
    queue.submitted(spec())
    (queue.stage.places.queue / f"job-{ID_UNBELIEVABLE}").write_text("{torn")
    queue.restart()
    assert queue.submitted(spec()) == [2]
    queue.restart()
    assert queue.statuses() == {1: "queued", 2: "queued"}
    [name] = report(queue).quarantined
    assert name.startswith(f"job-{ID_UNBELIEVABLE}: ")


def test_a_serial_file_far_above_all_that_is_known_is_not_believed(queue: Queue) -> None:
    queue.submitted(spec())
    queue.actor.close()
    serial = queue.stage.places.queue / "serial"
    serial.write_text(str(ID_UNBELIEVABLE))
    start(queue)
    assert queue.submitted(spec()) == [2]
    queue.rest()
    assert serial.read_text() == "2\n"


@pytest.mark.parametrize("above", [0, 1])
def test_a_name_counts_up_to_a_jump_and_no_further(queue: Queue, above: int) -> None:
    queue.submitted(spec())
    name = 1 + settings.JOB_ID_JUMP_MAX + above
    (queue.stage.places.queue / f"job-{name}").write_text("{torn")
    queue.restart()
    assert queue.submitted(spec()) == [2 if above else name + 1]


def test_an_unbelievable_name_hides_no_other_one(queue: Queue) -> None:
    places = queue.stage.places
    cut_journal(queue)
    (places.queue / "serial").unlink(missing_ok=True)
    for job_id in (40, ID_UNBELIEVABLE):
        folder = places.archive / str(job_id // job_files.ARCHIVE_FOLDER_JOBS)
        folder.mkdir(parents=True)
        (folder / f"job-{job_id}").write_text("{torn")
    start(queue)
    assert queue.submitted(spec()) == [41]
    cut_journal(queue)
    (places.queue / "serial").unlink()
    (places.queue / "job-41").unlink()
    places.quarantine.mkdir()
    for job_id in (60, ID_UNBELIEVABLE):
        (places.quarantine / f"job-{job_id}").write_text("{torn")
    start(queue)
    assert queue.submitted(spec()) == [61]


def test_a_job_in_the_folder_of_others_hides_no_archived_ids(queue: Queue) -> None:
    for folder, name in (("0", "job-40"), ("99", "job-3")):
        (queue.stage.places.archive / folder).mkdir(parents=True)
        (queue.stage.places.archive / folder / name).write_text("{}")
    assert QueueDirectory(queue.stage.places).highest_archived_id() == 40


def test_a_submission_that_would_pass_the_last_id_stores_nothing(queue: Queue) -> None:
    queue.actor.component.store.ledger.last_id = ID_MAX - 2
    name, text = queue.submit(spec(), spec(), spec()).refusal
    assert (name, "2 ids left" in text) == (errors.DataDirectoryError.__name__, True)
    assert queue.statuses() == {}
    assert queue.submitted(spec(), spec()) == [ID_MAX - 1, ID_MAX]
    name, text = queue.submit(spec()).refusal
    assert (name, "0 ids left" in text) == (errors.DataDirectoryError.__name__, True)
    queue.restart()
    # The highest id of all is one that the next start knows.
    assert set(queue.statuses()) == {ID_MAX - 1, ID_MAX}
    assert queue.submit(spec()).refusal[0] == errors.DataDirectoryError.__name__


def test_ids_are_checked_before_anything_else_is_made() -> None:
    with pytest.raises(errors.DataDirectoryError, match="0 ids left"):
        drafts([spec()], first_id=ID_MAX + 2, now=0.0, key=None)


def test_fsck_finds_the_last_id_as_a_start_does(queue: Queue) -> None:
    queue.submitted(spec())
    queue.actor.close()
    places = queue.stage.places
    (places.queue / f"job-{ID_UNBELIEVABLE}").write_text("{torn")
    (places.queue / "serial").write_text(str(ID_UNBELIEVABLE))
    queue.stage.daemon_lock.remove()
    facts = survey.survey(places)
    assert checking.highest_id(facts) == 1
    assert FindingKind.SERIAL in {finding.kind for finding in checking.check(facts)}


# ---------------------------------------------------------------- what lies in a file's place


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ["fifo", "link", "hard link", "directory", "closed"])
def test_what_lay_in_a_files_place_is_never_written_into(queue: Queue, kind: str) -> None:
    queue.submitted(spec(), spec())
    path = queue.stage.places.queue / "job-1"
    other = queue.stage.places.data / "of-somebody-else"
    other.write_text("not ours")
    queue.actor.close()
    path.unlink()
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "link":
            path.symlink_to(other)
        case "hard link":
            os.link(other, path)
        case "directory":
            path.mkdir()
            (path / "kept").touch()
        case _:
            path.write_text("{torn")
            path.chmod(0)
    # The start brings this one up too, and with it what it has just replaced.
    (queue.stage.places.queue / "job-2").write_text("{torn")
    with modes_obeyed():
        start(queue)
        assert queue.statuses() == {1: "queued", 2: "queued"}
        # Each writes the file of its job, and with it what the one before has replaced.
        for job_id in (1, 2):
            queue.actor.ask(messages.CancelJob(id=job_id))
    assert report(queue).is_read_only is False
    assert other.read_text() == "not ours"
    aside = queue.stage.places.quarantine
    kept = [found.name for found in aside.iterdir()] if aside.is_dir() else []
    assert kept == (["job-1"] if kind in {"fifo", "link", "directory"} else [])


@pytest.mark.parametrize(
    ("mode", "names", "is_kept"), [(0o640, 1, True), (0, 1, False), (0o640, 2, False)]
)
def test_a_replaced_file_is_used_again_only_if_it_is_ours_alone(
    tmp_path: Path, mode: int, names: int, *, is_kept: bool
) -> None:
    path, spare = tmp_path / "job-1", tmp_path / ".spare-1"
    path.write_text("old")
    path.chmod(mode)
    for number in range(1, names):
        os.link(path, tmp_path / f"name-{number}")
    assert documents.exchange(str(path), b"new", str(spare)) is is_kept
    assert path.read_bytes() == b"new"
    # Otherwise the next one to take it could not open it, or would write into another's file.
    assert spare.exists() is is_kept


def test_a_link_that_leads_nowhere_is_not_taken_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("gone")
    with pytest.raises(errors.StorageError, match="link: No such file"):
        documents.read(tmp_path / "link")
    assert documents.read(tmp_path / "gone") is None


def test_an_archived_job_that_leads_nowhere_is_named_and_the_others_are_listed(
    queue: Queue,
) -> None:
    queue.submitted(spec(), spec())
    for job_id in (1, 2):
        queue.actor.ask(messages.CancelJob(id=job_id))
        queue.actor.ask(messages.ArchiveJob(id=job_id))
    cut_journal(queue)
    path = queue.stage.places.archive / "0" / "job-1"
    path.unlink()
    path.symlink_to("gone")
    shutil.rmtree(queue.stage.places.archive_index)
    start(queue)
    assert queue.statuses(archived=True) == {2: "canceled"}
    assert "job-1" in report(queue).quarantined[0]


def test_an_unreadable_archived_file_keeps_no_queue_from_starting(queue: Queue) -> None:
    queue.submitted(spec())
    queue.actor.ask(messages.CancelJob(id=1))
    queue.actor.close()
    places = queue.stage.places
    # As if the journal had lost that the job was archived.
    (places.archive / "0" / "job-1").mkdir(parents=True)
    (places.queue / "job-1").unlink()
    start(queue)
    assert queue.statuses() == {}
    assert queue.statuses(archived=True) == {1: "canceled"}


# ---------------------------------------------------------------- the journal, and other files


@pytest.mark.parametrize("name", ["7.journal", "\u0663.journal", "9" * 30 + ".journal", "x"])
def test_a_foreign_file_in_the_journal_is_left_alone(queue: Queue, name: str) -> None:
    queue.submitted(spec())
    foreign = queue.stage.places.journal / name
    foreign.write_text("not ours")
    queue.restart()
    assert report(queue).is_read_only is False
    assert queue.submitted(spec()) == [2]
    assert foreign.read_text() == "not ours"
    # Nor is a segment numbered after it.
    segments = [path.name for path in Journal(queue.stage.places.journal).segments()]
    assert segments == ["00000002.journal"]


@pytest.mark.parametrize("data", [b'{"x": "\xff"}', b'{"x":' + b"[" * 100_000, b"", b"7"])
def test_a_lock_table_that_makes_no_sense_is_an_error_of_storage(data: bytes) -> None:
    with pytest.raises(errors.StorageError):
        locks.decode_locks(data)


# ---------------------------------------------------------------- the real daemon


LATER = records.FORMAT_VERSION + 1


def record(payload: bytes) -> bytes:
    head = len(payload).to_bytes(4, "little") + zlib.crc32(payload).to_bytes(4, "little")
    return head + payload


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("queue/version", b"2\n"),
        ("queue/version", b""),
        ("queue/journal/00000099.journal", record(b"\x93\xa5begun%c\x00" % LATER)),
        ("config.data", b"{torn"),
    ],
)
def test_a_daemon_names_the_file_that_keeps_it_from_starting(
    tmp_path: Path, name: str, data: bytes
) -> None:
    daemon = Daemon(tmp_path)
    try:
        path = daemon.data / name
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        ended = daemon.run("up", "--no-rapi", check=False)
        assert ended.returncode == errors.DataDirectoryError.exit_code
        assert str(path) in ended.stderr
        assert "Traceback" not in ended.stderr
        assert path.read_bytes() == data
        path.unlink()
        daemon.up()
        assert json.loads(daemon.run("status", "-o", "json").stdout)["quarantined"] == []
        daemon.run("down")
    finally:
        daemon.__exit__()


@pytest.mark.parametrize("placement", ["together", "apart"])
def test_a_daemon_starts_from_the_copy_of_a_torn_configuration(
    tmp_path: Path, placement: str
) -> None:
    with Daemon(tmp_path, placement=placement) as daemon:
        with daemon.client() as client:
            rule = client.add_filter(action="PAUSE", reason="kept")
        daemon.run("down")
        path = daemon.data / "config.data"
        torn = path.read_bytes()[:100]
        path.write_bytes(torn)
        daemon.up()
        with daemon.client() as client:
            assert [row.uuid for row in client.filters()] == [rule]
            [said] = client.info().quarantined
        assert said.startswith(f"{path}: not a configuration: ")
        assert f"the file is now {daemon.data}/queue/quarantine/config.data" in said
        assert (daemon.data / "queue/quarantine/config.data").read_bytes() == torn
        assert f"Quarantined: {said}" in daemon.run("status").stdout.splitlines()
        json.loads(path.read_bytes())


def test_a_daemon_that_clients_could_not_find_does_not_start(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    try:
        path = daemon.data / "daemon.json"
        path.mkdir(parents=True)
        ended = daemon.run("up", "--no-rapi", check=False)
        assert ended.returncode == errors.StorageError.exit_code
        assert f"{path}: Is a directory" in ended.stderr
    finally:
        daemon.__exit__()


def test_a_start_and_an_end_leave_no_file_of_an_unfinished_write(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    try:
        left = [".tmp-locks.data.1.1", "queue/.tmp-serial.1.1", "queue/.spare-1-1"]
        for name in left:
            path = daemon.data / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        daemon.up()
        assert not any((daemon.data / name).exists() for name in left)
        delay = json.dumps({"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": False})
        daemon.run("job", "submit", "--wait", "--op", delay)
        daemon.run("down")
        assert list(daemon.data.rglob(".spare-*")) == list(daemon.data.rglob(".tmp-*")) == []
    finally:
        daemon.__exit__()


# ---------------------------------------------------------------- what others have left


def test_a_fifo_in_the_place_of_a_job_file_does_not_hang_the_start(queue: Queue) -> None:
    queue.submitted(spec())
    os.mkfifo(queue.stage.places.queue / "job-7")
    queue.restart()
    [name] = report(queue).quarantined
    assert name.startswith("job-7: ")
    assert queue.submitted(spec()) == [8]


def test_a_fifo_in_the_place_of_a_lock_file_does_not_hang_the_daemon(queue: Queue) -> None:
    path = queue.stage.places.lock_files / "job_000001_1"
    os.mkfifo(path)
    # Its owner, if any, does not hold the lock that a living owner would hold.
    assert lock_files.holder(path) is None


def test_a_number_that_no_job_can_have_is_named(queue: Queue) -> None:
    (queue.stage.places.queue / ("job-" + "9" * 30)).write_text("{}")
    queue.restart()
    assert report(queue).quarantined == ["job-" + "9" * 30 + ": no job has that number"]
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
    assert queue.submitted(spec()) == [2]
    assert queue.statuses(archived=True) == {2: "queued"}
    assert "job-1 in the archive" in report(queue).quarantined[0]


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
    queue.actor.component.store.ledger._journal._close()
    [segment] = sorted(queue.stage.places.journal.iterdir())
    data = bytearray(segment.read_bytes())
    # In the middle of the second submission, of which the files are there too.
    place = data.index(b"stored", data.index(b"stored") + 10) + 40
    data[place] ^= 1
    segment.write_bytes(bytes(data))
    queue.actor = queue.stage.start(type(queue.actor.component))
    [name] = report(queue).quarantined
    assert "records behind a damaged one" in name
    [copy] = (queue.stage.places.queue / "quarantine").iterdir()
    assert copy.read_bytes() == bytes(data)
    assert job_files.VERSION == 1


def test_no_leftover_file_keeps_the_queue_from_starting(queue: Queue) -> None:
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
    assert report(queue).quarantined == ["job-0100: no job has that number"]
    assert queue.submitted(spec()) == [3]
