"""The files of jobs: when they are written, and what stays in memory beside them."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from unittest import mock

import pytest
from tests.actors.queue.books import Books, body

from ganger.storage import settings
from ganger.storage.queue_files import replay


def test_a_new_job_takes_no_memory_beside_its_text(books: Books) -> None:
    books.commit_new(7)
    text = books.ledger.in_memory(7)
    assert text == body(7, 1)
    assert books.ledger.files.serial(7) == 1
    assert [one for one in gc.get_referrers(text) if isinstance(one, tuple)] == []
    books.commit_state(7, 2, "canceled")
    assert (books.ledger.files.serial(7), books.ledger.in_memory(7)) == (2, body(7, 2, "canceled"))


def test_new_jobs_and_the_last_id_get_their_files_when_asked(books: Books) -> None:
    books.commit_new(1, 2, 3)
    assert books.ledger.has_unwritten
    books.ledger.write_newest(2)
    assert books.directory.live_ids() == [2, 3]
    assert (books.places.queue / "serial").read_bytes() == b"3\n"
    assert books.ledger.has_unwritten
    books.ledger.write_newest(2)
    assert books.directory.live_ids() == [1, 2, 3]
    assert books.ledger.files.serial(1) is None
    assert not books.ledger.has_unwritten


def test_closing_writes_what_has_no_file_yet(tmp_path: Path) -> None:
    books = Books(tmp_path).begin()
    books.commit_new(1, 2)
    books.close()
    assert books.directory.read(2) == body(2, 1)
    assert (books.places.queue / "serial").read_bytes() == b"2\n"


def test_the_state_of_a_job_that_a_process_has_stays_known(books: Books) -> None:
    books.commit_new(1)
    assert books.ledger.files.write_state(1)
    assert books.directory.read(1) == body(1, 1)
    assert books.ledger.files.serial(1) == 1
    books.ledger.files.forget(1)
    assert books.ledger.files.serial(1) is None


def test_spares_are_lent_once_and_come_back(books: Books) -> None:
    lent = books.ledger.files.lend_spares(1)
    assert len(lent) == settings.SPARES_PER_JOB
    assert books.ledger.files.lend_spares(1) == lent
    assert not set(books.ledger.files.lend_spares(2)).intersection(lent)
    books.ledger.files.take_back_spares(1)
    books.ledger.files.take_back_spares(1)
    assert not set(books.ledger.files.lend_spares(1)).intersection(lent)


ZEROS = bytes(len(body(1, 2)))


@pytest.mark.parametrize("found", [ZEROS, b"", body(1, 2)[:-1]])
def test_a_damaged_file_is_mended_from_the_journal(books: Books, found: bytes) -> None:
    mended: list[int] = []
    books.ledger.files.when_mended = mended.append
    books.commit_new(1, 2)
    books.ledger.files.write_pending()
    books.commit_state(1, 2, "success")
    books.ledger.files.write_file(1)
    books.commit_archived(2)
    paths = [books.places.queue / "job-1", books.places.archive / "0" / "job-2"]
    for path in paths:
        path.write_bytes(found)
    assert books.ledger.newest(1) == body(1, 2, "success") == paths[0].read_bytes()
    assert books.ledger.files.read_archived(2) == body(2, 1) == paths[1].read_bytes()
    assert mended == [1, 2]


def test_a_damaged_file_without_a_record_is_left_alone_and_looked_up_once(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = books.places.queue / "job-1"
    path.write_bytes(ZEROS)
    assert books.ledger.newest(1) == ZEROS == path.read_bytes()
    monkeypatch.setattr(replay, "read_journal", mock.Mock(side_effect=AssertionError))
    assert books.ledger.newest(1) == ZEROS


def test_the_damaged_file_of_a_living_process_is_left_to_that(books: Books) -> None:
    books.commit_new(1)
    books.ledger.files.write_pending()
    books.ledger.files.lend_spares(1)
    path = books.places.queue / "job-1"
    path.write_bytes(ZEROS)
    assert books.ledger.newest(1) == body(1, 1)
    assert path.read_bytes() == ZEROS


def test_after_damage_no_file_is_written_into_that_was_there_before(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second write into a page that the disk has refused does not bring it there on ext4."""
    monkeypatch.setattr(settings, "TEMPORARY_REST_SECONDS", 0.0)
    books.commit_new(1, 2)
    books.ledger.files.write_pending()
    lent = [Path(path) for path in books.ledger.files.lend_spares(3)]
    for spare in lent:
        spare.write_bytes(b"by the process of job 3")
    for serial in range(2, 5):
        books.commit_state(1, serial)
        books.ledger.files.write_file(1)
    before = list(books.places.queue.glob(".spare-*"))
    assert len(before) > len(lent)
    path = books.places.queue / "job-1"
    # The inodes stay in use, so that no new file can get one of them.
    kept = [one.open() for one in [path, *before]]
    path.write_bytes(ZEROS)
    assert books.ledger.newest(1) == body(1, 4)
    assert path.stat().st_ino not in {os.fstat(one.fileno()).st_ino for one in kept}
    assert not any(spare.exists() for spare in lent)
    for one in kept:
        one.close()
