"""The files of jobs: when they are written, and what stays in memory beside them."""

from __future__ import annotations

import gc
from pathlib import Path

from tests.actors.queue.books import Books, body

from ganger.storage import settings


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
