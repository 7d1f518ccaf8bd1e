"""The durable side of the queue: no answer before the flush, nothing answered is lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.actors.queue.books import Books, body
from tests.refusals import refusing

from ganger.storage import settings
from ganger.storage.disk import reserve
from ganger.storage.queue_files import inodes


def test_nothing_is_answered_before_the_flush(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda _: order.append("flush"))
    books.said = order
    books.store_new(1, 2)
    books.store_state(2, 2)
    assert order == []
    books.ledger.commit()
    assert order == ["flush", "new 1", "state 2.2"]


def test_a_turn_without_anything_makes_no_flush(books: Books) -> None:
    before = books.ledger.flushes
    books.ledger.commit()
    books.ledger.after_commit(lambda: books.done("later"))
    books.ledger.commit()
    assert books.ledger.flushes == before
    assert books.take_effects() == ["later"]


def test_an_end_that_nobody_must_find_again_takes_no_flush_and_goes_with_the_next_one(
    books: Books,
) -> None:
    books.commit_new(1, 2)
    books.take_effects()
    before = books.ledger.flushes
    books.store_lazily(1, 2)
    books.ledger.after_commit(lambda: books.done("exit"))
    books.ledger.commit()
    assert books.take_effects() == ["end 1.2", "exit"]
    assert books.ledger.newest(1) == body(1, 2, "success")
    assert books.ledger.patience_seconds == settings.FILES_REST_SECONDS
    assert books.ledger.flushes == before
    assert books.after_crash()[1] == body(1, 1)
    books.store_state(2, 2)
    books.ledger.commit()
    assert books.ledger.flushes == before + 1
    assert books.after_crash() == {1: body(1, 2, "success"), 2: body(2, 2)}
    books.ledger.write_lazy()
    assert books.ledger.flushes == before + 1


def test_such_an_end_is_flushed_at_rest_and_at_the_latest_when_the_queue_stops(
    books: Books,
) -> None:
    books.commit_new(1, 2)
    books.store_lazily(1, 2)
    books.ledger.write_lazy()
    assert books.after_crash()[1] == body(1, 1)
    books.ledger.write_newest(2)
    books.ledger.files.make_spares(lambda: False)
    assert books.ledger.patience_seconds == settings.LAZY_SECONDS
    books.ledger.write_lazy()
    assert books.after_crash()[1] == body(1, 2, "success")
    books.store_lazily(2, 2)
    books.ledger.close()
    assert books.after_crash()[2] == body(2, 2, "success")


def test_a_disk_that_refuses_takes_no_such_end_and_may_have_lost_those_before(
    books: Books,
) -> None:
    books.commit_new(1, 2, 3)
    books.store_lazily(1, 2)
    with refusing("fdatasync", number=errno.EIO):
        books.store_state(2, 2)
        books.ledger.commit()
    books.take_effects()
    assert not books.ledger.lazy.are_there
    # It is not forgotten: the next segment has it.
    assert books.ledger.newest(1) == body(1, 2, "success")
    books.store_lazily(3, 2)
    assert books.take_effects() == ["end 3.2: ReadOnlyError"]
    books.ledger.write_lazy()
    assert books.ledger.retry()
    assert books.after_crash()[1] == body(1, 2, "success")


def test_what_is_not_durable_everywhere_yet_waits_for_another_turn(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is acknowledged elsewhere, too, moves ``durable`` later than the flush."""
    books.commit_new(1)
    books.take_effects()
    monkeypatch.setattr(books.journal, "write", lambda *_: None)
    books.store_state(1, 2)
    books.ledger.commit()
    assert (books.take_effects(), books.ledger.newest(1)) == ([], body(1, 2))
    books.journal.durable = books.journal.position
    books.ledger.commit()
    assert (books.take_effects(), books.ledger.newest(1)) == (["state 1.2"], body(1, 2))
    assert not books.ledger.is_staged(1)


def test_what_was_promised_is_found_after_a_crash_though_no_file_was_written(
    books: Books,
) -> None:
    books.commit_new(1, 2)
    assert books.directory.live_ids() == []
    assert books.ledger.files.body(1) == body(1, 1)
    assert books.after_crash() == {1: body(1, 1), 2: body(2, 1)}


def test_what_was_not_committed_is_not_found_after_a_crash(books: Books) -> None:
    books.commit_new(1)
    books.store_new(2)
    books.store_state(1, 2)
    assert books.after_crash() == {1: body(1, 1)}


def test_what_follows_from_an_entry_is_committed_with_it(books: Books) -> None:
    books.commit_new(1)
    books.ledger.after_commit(lambda: books.store_state(1, 2))
    books.ledger.commit()
    assert books.take_effects() == ["new 1", "state 1.2"]
    assert books.after_crash() == {1: body(1, 2)}


def test_the_next_state_starts_from_the_one_that_waits_for_its_flush(books: Books) -> None:
    books.commit_new(1)
    books.store_state(1, 2)
    assert books.ledger.newest(1) == body(1, 2)
    assert books.ledger.files.body(1) == body(1, 1)
    books.ledger.commit()
    assert books.ledger.newest(1) == books.ledger.files.body(1) == body(1, 2)


def test_a_flush_does_not_go_back_behind_what_was_noted_meanwhile(books: Books) -> None:
    books.commit_new(1)
    books.store_state(1, 2)
    books.ledger.note(1, 3, body(1, 3))
    books.ledger.commit()
    assert books.ledger.files.body(1) == body(1, 3)


def test_archived_jobs_are_moved_once_that_is_durable(books: Books) -> None:
    books.store_new(1)
    books.commit_state(1, 2, "success")
    books.store_archived(1)
    assert books.directory.read_archived(1) is None
    books.ledger.commit()
    assert books.directory.read_archived(1) == body(1, 2, "success")
    assert books.directory.read(1) is None
    assert books.take_effects() == ["new 1", "state 1.2", "archived 1"]
    assert books.after_crash() == {}


# A disk that refuses.


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize(
    ("call", "refusal"), [("pwrite", "ReadOnlyError"), ("fdatasync", "OutcomeUnknownError")]
)
def test_a_refused_flush_is_a_refused_promise(
    books: Books, call: str, refusal: str, number: int
) -> None:
    books.commit_new(1)
    books.take_effects()
    books.store_new(2)
    books.store_state(1, 2)
    with refusing(call, number=number):
        books.ledger.commit()
        assert books.take_effects() == [f"new 2: {refusal}", f"state 1.2: {refusal}"]
        assert books.is_read_only()
        books.store_new(3)
        assert books.take_effects() == ["new 3: ReadOnlyError"]
        assert not books.ledger.retry()
    assert books.ledger.newest(1) == books.ledger.files.body(1) == body(1, 1)
    assert books.ledger.retry()
    assert not books.is_read_only()
    books.commit_new(4)
    assert books.take_effects() == ["new 4"]
    assert books.after_crash() == {1: body(1, 1), 4: body(4, 1)}


def test_the_refusal_names_the_cause(books: Books) -> None:
    texts: list[str] = []
    books.ledger.store_state((1, 1, b"{}"), lambda: None, lambda error: texts.append(error.text))
    with refusing("fdatasync"):
        books.ledger.commit()
    segment = books.places.journal / "00000001.journal"
    books.ledger.store_state((1, 1, b"{}"), lambda: None, lambda error: texts.append(error.text))
    cause = f"{segment}: No space left on device"
    assert texts == [
        f"{cause}; whether this change took effect is unknown",
        f"the queue takes no changes now: {cause}; {reserve.REMEDY}",
    ]


def test_what_does_not_need_the_disk_goes_on_while_it_refuses(books: Books) -> None:
    with refusing("fdatasync"):
        books.commit_new(1)
        books.ledger.after_commit(lambda: books.done("later"))
        books.ledger.commit()
    assert books.take_effects() == ["new 1: OutcomeUnknownError", "later"]


def test_a_retry_does_not_make_promises_of_what_it_drops(books: Books) -> None:
    books.store_new(1)
    with refusing("fdatasync"):
        assert not books.ledger.retry()
        books.ledger.commit()
    assert books.take_effects() == ["new 1: OutcomeUnknownError"]
    assert books.after_crash() == {}


def test_a_job_file_that_cannot_be_written_is_in_the_journal(books: Books) -> None:
    books.commit_new(1)
    with refusing("ftruncate"):
        books.ledger.files.write_file(1)
        assert books.is_read_only()
        assert books.ledger.files.body(1) == body(1, 1)
        # The journal works, but the queue is not asked for more while job files cannot follow.
        assert not books.ledger.retry()
    assert books.after_crash() == {1: body(1, 1)}
    assert books.ledger.retry()
    assert books.directory.read(1) == body(1, 1)


def test_a_job_that_cannot_be_moved_into_the_archive_is_moved_later(books: Books) -> None:
    books.store_new(1)
    books.store_state(1, 2, "success")
    books.commit_new(2)
    books.ledger.files.write_pending()
    books.take_effects()
    books.store_archived(1)
    books.store_state(2, 2)
    with refusing("mkdir"):
        books.ledger.commit()
        assert books.take_effects() == ["state 2.2"]
        assert books.is_read_only()
        assert not books.ledger.retry()
    # It was durable before it was tried.
    assert sorted(books.after_crash()) == [2]
    assert books.ledger.retry()
    assert books.take_effects() == ["archived 1"]
    assert books.directory.read_archived(1) == body(1, 2, "success")


def test_a_serial_file_that_cannot_be_written_holds_nothing_up(books: Books) -> None:
    books.commit_new(1)
    with refusing("pwrite"):
        books.ledger.write_newest(1)
    assert books.take_effects() == ["new 1"]
    assert not books.is_read_only()
    assert books.directory.live_ids() == [1]
    # It is not tried again and again, but whenever there is another reason to write.
    assert not books.ledger.has_unwritten
    assert books.directory.read_serial() == 0
    books.ledger.write_newest(1)
    assert books.directory.read_serial() == 1


def test_a_ledger_may_begin_read_only(tmp_path: Path) -> None:
    books = Books(tmp_path)
    with refusing("fsync"):
        books.begin()
    assert books.is_read_only()
    assert books.ledger.retry()
    books.commit_new(1)
    assert books.take_effects() == ["new 1"]
    books.close()


def test_a_disk_that_refuses_all_day_keeps_no_more_files_than_before(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "TEMPORARY_REST_SECONDS", 0.0)
    books.commit_new(1)
    with refusing("ftruncate"):
        for _ in range(5):
            books.ledger.retry()
    names = [name for name in os.listdir(books.places.queue) if name.startswith(inodes.PREFIX)]
    assert len(names) <= 1
    assert len(list(books.places.journal.iterdir())) == 1
