"""The queue directory: Ganeti's layout, the archive, and the spares beside the job files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.refusals import refusing

from ganger.storage import errors, settings
from ganger.storage.disk import documents, paths
from ganger.storage.queue_files import inodes, job_files
from ganger.storage.queue_files.job_files import QueueDirectory

JOB = b'{"id": 7, "ops": []}'


def names(places: paths.Places) -> set[str]:
    """What lies in the queue directory, spares aside."""
    return {name for name in os.listdir(places.queue) if not name.startswith(inodes.PREFIX)}


def spares(places: paths.Places) -> list[str]:
    return [name for name in os.listdir(places.queue) if name.startswith(inodes.PREFIX)]


def test_a_new_directory_gets_its_version_archive_and_spool(places: paths.Places) -> None:
    QueueDirectory(places).prepare()
    assert (places.queue / "version").read_bytes() == b"1\n"
    assert names(places) == {"version", "archive", "spool"}


def test_the_version_of_ganeti_is_left_as_it_is(places: paths.Places) -> None:
    (places.queue / "version").write_bytes(b"1")
    QueueDirectory(places).prepare()
    assert (places.queue / "version").read_bytes() == b"1"


@pytest.mark.parametrize(("found", "shown"), [(b"2\n", "'2'"), (b"", "''"), (b"\xff", "'\ufffd'")])
def test_a_directory_of_another_version_is_refused(
    places: paths.Places, found: bytes, shown: str
) -> None:
    (places.queue / "version").write_bytes(found)
    with pytest.raises(errors.DataDirectoryError) as caught:
        QueueDirectory(places).prepare()
    assert caught.value.text == f"{places.queue}/version: queue version {shown}, expected 1"
    assert (places.queue / "version").read_bytes() == found


def test_job_files_are_named_by_their_ids(places: paths.Places, queue: QueueDirectory) -> None:
    for job_id in (10, 9, 7):
        queue.write(job_id, JOB, flush=False)
    assert queue.live_ids() == [7, 9, 10]
    assert queue.read(7) == JOB == (places.queue / "job-7").read_bytes()
    assert queue.read(8) is None


def test_other_names_are_no_jobs(places: paths.Places, queue: QueueDirectory) -> None:
    for name in ("job-", "job-x", "job-1.new", "ajob-1", "job--1", "serial", "job-1\n"):
        (places.queue / name).touch()
    assert queue.live_ids() == []


def test_archived_ids_are_listed_from_one_on_folder_by_folder(
    places: paths.Places, queue: QueueDirectory
) -> None:
    ids = [7, 9_999, 10_000, 10_005, 123_456]
    for job_id in ids:
        queue.write(job_id, JOB, flush=False)
        queue.archive(job_id)
    for after in (0, 7, 9_998, 9_999, 10_000, 123_455, 123_456, 10**17):
        assert list(queue.archived_ids_after(after)) == [one for one in ids if one > after]
    # Nobody would find a job in the folder of others.
    (places.archive / "12" / "job-8").touch()
    listing = queue.archived_ids_after(0)
    assert [next(listing), next(listing)] == [7, 9_999]
    # The folders behind are listed when it is their turn.
    (places.archive / "1" / "job-10005").unlink()
    assert list(listing) == [10_000, 123_456]


def test_the_archive_has_a_folder_for_each_ten_thousand(
    places: paths.Places, queue: QueueDirectory
) -> None:
    for job_id in (9_999, 10_000, 123_456):
        queue.write(job_id, JOB, flush=False)
        queue.archive(job_id)
    assert (places.queue / "archive/0/job-9999").read_bytes() == JOB
    assert (places.queue / "archive/1/job-10000").read_bytes() == JOB
    assert (places.queue / "archive/12/job-123456").read_bytes() == JOB
    assert queue.live_ids() == []
    assert queue.archived_ids() == [9_999, 10_000, 123_456]
    # A file in the folder of higher ids hides no higher id.
    (places.archive / "99").mkdir()
    (places.archive / "99" / "job-7").touch()
    assert queue.highest_archived_id() == 123_456
    limits = (123_456, 123_455, 10_000, 9_999, 9_998, 6)
    found = [queue.highest_archived_id(limit) for limit in limits]
    assert found == [123_456, 10_000, 10_000, 9_999, 7, 0]
    assert queue.read_archived(10_000) == JOB
    assert queue.read_archived(5) is None


def test_an_empty_archive_has_no_highest_id(queue: QueueDirectory) -> None:
    assert queue.highest_archived_id() == 0


def test_archiving_once_more_does_no_harm(queue: QueueDirectory) -> None:
    queue.write(7, JOB, flush=False)
    queue.archive(7)
    queue.archive(7)
    assert queue.read_archived(7) == JOB


def test_the_serial_is_a_decimal_with_a_newline(
    places: paths.Places, queue: QueueDirectory
) -> None:
    assert queue.read_serial() == 0
    queue.write_serial(99)
    queue.write_serial(100)
    queue.close()
    assert (places.queue / "serial").read_bytes() == b"100\n"
    assert queue.read_serial() == 100


@pytest.mark.parametrize("text", [b"", b"abc", b"-5\n", b"1 2", b"\xff", b"9" * 19])
def test_an_unusable_serial_counts_as_none(
    places: paths.Places, queue: QueueDirectory, text: bytes
) -> None:
    (places.queue / "serial").write_bytes(text)
    assert queue.read_serial() == 0


def test_the_highest_id_of_all_is_read_from_the_serial(
    places: paths.Places, queue: QueueDirectory
) -> None:
    (places.queue / "serial").write_bytes(b"%d\n" % job_files.ID_MAX)
    assert queue.read_serial() == job_files.ID_MAX


def test_a_name_counts_up_to_the_longest_jump_of_ids() -> None:
    highest = 7 + settings.JOB_ID_JUMP_MAX
    assert job_files.last_id(7, [3, highest, highest + 1]) == highest
    assert job_files.last_id(7, [highest + 1, 3]) == 7


def test_a_file_must_hold_the_job_of_its_name() -> None:
    assert job_files.read_job(JOB, 7).id == 7
    with pytest.raises(errors.StorageError, match="holds job 7, not 8"):
        job_files.read_job(JOB, 8)


# The quarantine.


def test_a_quarantined_file_keeps_its_name_unless_that_is_taken(
    places: paths.Places, queue: QueueDirectory
) -> None:
    assert queue.highest_quarantined_id() == 0
    for text in (b"one", b"two"):
        (places.queue / "job-7").write_bytes(text)
        queue.quarantine(str(places.queue / "job-7"))
    assert queue.live_ids() == []
    kept = {path.name: path.read_bytes() for path in places.quarantine.iterdir()}
    assert kept == {"job-7": b"one", "job-7.2": b"two"}


def test_the_ids_in_quarantine_are_known(places: paths.Places, queue: QueueDirectory) -> None:
    places.quarantine.mkdir()
    for name in ("job-9", "job-12.3", "version", "00000099.journal", "job-x", "ajob-100"):
        (places.quarantine / name).touch()
    assert [queue.highest_quarantined_id(limit) for limit in (100, 12, 11, 8)] == [12, 12, 9, 0]


# Spares.


def test_a_replaced_version_becomes_a_spare_and_rests(
    places: paths.Places, queue: QueueDirectory
) -> None:
    for body in (b"1", b"2", b"3"):
        queue.write(7, body, flush=False)
    assert queue.read(7) == b"3"
    assert len(spares(places)) == 2


def test_a_spare_that_has_rested_is_written_again(
    places: paths.Places, queue: QueueDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "TEMPORARY_REST_SECONDS", 0.0)
    for number in range(20):
        queue.write(7, b"%d" % number * (20 - number), flush=False)
        assert queue.read(7) == b"%d" % number * (20 - number)
    assert len(spares(places)) == 1


def test_spares_are_bounded(
    places: paths.Places, queue: QueueDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "SPARE_INODES_MAX", 3)
    for number in range(10):
        queue.write(7, b"%d" % number, flush=False)
    assert len(spares(places)) == 3


def test_a_disk_that_refuses_is_not_filled_with_spares(
    places: paths.Places, queue: QueueDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "TEMPORARY_REST_SECONDS", 0.0)
    queue.write(7, JOB, flush=False)
    with refusing("write"):
        for _ in range(10):
            with pytest.raises(errors.StorageError, match="job-7: No space left"):
                queue.write(7, b"new", flush=False)
    # What was refused once is not written again: ext4 would say that it went well.
    assert spares(places) == []
    assert queue.read(7) == JOB


def test_leftovers_go_but_not_those_of_living_jobs(
    places: paths.Places, queue: QueueDirectory
) -> None:
    queue.write(7, JOB, flush=False)
    for name in (".tmp-job-7.1.1", ".tmp-job-8.1.1", ".tmp-notes", ".spare-9-1-1"):
        (places.queue / name).touch()
    queue.remove_leftovers({7})
    assert names(places) == {"version", "archive", "spool", "job-7", ".tmp-job-7.1.1"}
    assert spares(places) == []


def test_an_archived_file_is_written_where_leftovers_are_looked_for(
    places: paths.Places, queue: QueueDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.write(7, JOB, flush=False)
    queue.archive(7)

    class KilledError(BaseException):
        pass

    def die(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", die)
        patch.setattr(os, "unlink", die)
        with pytest.raises(KilledError):
            queue.write_archived(7, JOB)
    assert os.listdir(places.archive / "0") == ["job-7"]
    queue.remove_leftovers(set())
    assert names(places) == {"version", "archive", "spool"}


@pytest.mark.parametrize(
    ("found", "is_kept"),
    [
        (b"", False),
        (JOB[:9], False),
        (bytes(len(JOB)), False),
        (b'{"id": 7, "ops": [], "a": 1}', True),
    ],
)
def test_a_torn_copy_in_the_archive_is_replaced_and_another_document_put_aside(
    places: paths.Places, queue: QueueDirectory, found: bytes, *, is_kept: bool
) -> None:
    (places.archive / "0").mkdir(parents=True)
    (places.archive / "0" / "job-7").write_bytes(found)
    queue.write(7, JOB, flush=False)
    queue.archive(7)
    assert queue.read_archived(7) == JOB
    aside = list(places.quarantine.iterdir()) if places.quarantine.exists() else []
    assert [path.read_bytes() for path in aside] == [found] * is_kept


def test_a_torn_file_replaces_nothing_that_is_put_aside(
    places: paths.Places, queue: QueueDirectory
) -> None:
    (places.archive / "0").mkdir(parents=True)
    (places.archive / "0" / "job-7").write_bytes(b"{torn")
    queue.write(7, JOB[:5], flush=False)
    queue.archive(7)
    assert [path.read_bytes() for path in places.quarantine.iterdir()] == [b"{torn"]


def test_spares_that_were_not_needed_for_long_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000.0]
    monkeypatch.setattr("ganger.storage.queue_files.inodes.time.monotonic", lambda: now[0])
    pool = inodes.InodePool(str(tmp_path))

    def use(count: int) -> None:
        taken = [pool.take() for _ in range(count)]
        for path in taken:
            Path(path).touch()
            pool.give_back(path)

    use(20)
    now[0] += settings.TEMPORARY_REST_SECONDS + settings.SPARE_KEEP_SECONDS - 1
    use(1)
    assert len(list(tmp_path.iterdir())) == 20
    now[0] += 1
    use(1)
    assert len(list(tmp_path.iterdir())) == 18
    for _ in range(20):
        now[0] += settings.SPARE_KEEP_SECONDS / 4
        use(1)
    # One that is used now and then is enough for one job now and then.
    assert 1 <= len(list(tmp_path.iterdir())) < 10
    pool.close()
    assert list(tmp_path.iterdir()) == []


def test_a_borrowed_spare_rests_before_it_is_lent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    borrowed = inodes.BorrowedInodes(["a", "b"])
    assert [borrowed.take(), borrowed.take(), borrowed.take()] == ["a", "b", None]
    now = 1_000.0
    monkeypatch.setattr("ganger.storage.queue_files.inodes.time.monotonic", lambda: now)
    pool = inodes.InodePool(str(tmp_path))
    for place in (borrowed, pool):
        place.give_back("c")
        now += settings.TEMPORARY_REST_SECONDS - 1
        assert place.take() != "c"
        now += 1
        assert place.take() == "c"


def test_no_two_pools_name_the_same_file(tmp_path: Path) -> None:
    taken = [inodes.InodePool(str(tmp_path)).take() for _ in range(3)]
    assert len(set(taken)) == 3
    assert all(documents.read(path) is None for path in taken)
