"""The rows that the queue keeps of its jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ganger.actors.store.job_classes import row_of
from ganger.actors.store.job_rows import JobClass, Phase, Row
from ganger.actors.store.job_table import JobTable
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.jobs.outcomes import Ending, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator


def row(job_id: int, status: JobStatus = JobStatus.QUEUED, **fields: Any) -> Row:
    made = Row(id=job_id, status=status, priority=0, job_class=JobClass(summary="X"))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def table(*rows: Row) -> JobTable:
    made = JobTable()
    for one in rows:
        made.add(one)
    return made


def test_rows_are_found_by_id_and_stand_in_id_order() -> None:
    known = table(row(3), row(5), row(9))
    assert [one.id for one in known] == [3, 5, 9]
    assert len(known) == 3
    found = known.find(5)
    assert found is not None
    assert found.id == 5
    assert known.find(4) is None


def test_a_removed_row_is_gone_and_removing_it_again_is_harmless() -> None:
    known = table(row(3), row(5))
    known.remove(3)
    known.remove(3)
    assert [one.id for one in known] == [5]


def test_rows_are_paged_by_id() -> None:
    known = table(*map(row, range(1, 6)))
    page, has_more = known.page(after=0, limit=2, statuses=None)
    assert ([one.id for one in page], has_more) == ([1, 2], True)
    page, has_more = known.page(after=2, limit=2, statuses=None)
    assert ([one.id for one in page], has_more) == ([3, 4], True)
    page, has_more = known.page(after=4, limit=2, statuses=None)
    assert ([one.id for one in page], has_more) == ([5], False)
    assert known.page(after=5, limit=2, statuses=None) == ([], False)


def test_a_page_that_is_just_full_is_the_last_one() -> None:
    assert table(row(1), row(2)).page(after=0, limit=2, statuses=None)[1] is False


def test_pages_may_have_only_certain_statuses() -> None:
    known = table(row(1), row(2, JobStatus.ERROR), row(3), row(4, JobStatus.RUNNING), row(5))
    wanted = [JobStatus.ERROR, JobStatus.RUNNING]
    page, has_more = known.page(after=0, limit=1, statuses=wanted)
    assert ([one.id for one in page], has_more) == ([2], True)
    page, has_more = known.page(after=2, limit=1, statuses=wanted)
    assert ([one.id for one in page], has_more) == ([4], False)
    assert known.page(after=0, limit=9, statuses=[]) == ([], False)


def test_jobs_are_counted_by_status() -> None:
    known = table(row(1), row(2), row(3, JobStatus.ERROR))
    counts = known.counts()
    assert set(counts) == {str(status) for status in JobStatus}
    assert {status: count for status, count in counts.items() if count} == {
        "queued": 2,
        "error": 1,
    }


def test_counts_follow_what_happens_to_the_rows() -> None:
    rows = [row(number) for number in range(1, 5)]
    known = table(*rows)
    known.give_status(rows[0], JobStatus.RUNNING)
    known.give_status(rows[1], JobStatus.ERROR)
    known.remove(2)
    known.give_status(rows[1], JobStatus.SUCCESS)
    known.add(row(3, JobStatus.CANCELED))
    assert rows[1].status is JobStatus.SUCCESS
    found = {status: count for status, count in known.counts().items() if count}
    assert found == {"queued": 1, "running": 1, "canceled": 1}


def test_jobs_that_have_ended_are_counted_by_outcome() -> None:
    rows = [row(number) for number in range(1, 6)]
    known = table(*rows)
    assert set(known.outcomes()) == {str(outcome) for outcome in Outcome}
    for one, status, outcome in zip(
        rows,
        (
            JobStatus.SUCCESS,
            JobStatus.ERROR,
            JobStatus.ERROR,
            JobStatus.CANCELED,
            JobStatus.RUNNING,
        ),
        (None, None, Outcome.LOST, Outcome.REJECTED, Outcome.KILLED),
        strict=True,
    ):
        one.ending = None if outcome is None else Ending(outcome)
        known.give_status(one, status)
    expected = {"success": 1, "failed": 1, "lost": 1, "rejected": 1}
    assert _some(known.outcomes()) == expected
    # Its end is known better now; it is counted anew with the next change, and never twice.
    rows[2].ending = Ending(Outcome.TIMED_OUT)
    assert _some(known.outcomes()) == expected
    known.give_status(rows[2], JobStatus.ERROR)
    assert _some(known.outcomes()) == {"success": 1, "failed": 1, "timed-out": 1, "rejected": 1}
    for number in range(1, 6):
        known.remove(number)
    assert _some(known.outcomes()) == {}


def _some(counts: dict[str, int]) -> dict[str, int]:
    return {word: count for word, count in counts.items() if count}


def test_rows_are_found_by_phase() -> None:
    known = table(row(1), row(2, phase=Phase.ENDED), row(3, phase=Phase.STARTING))
    assert [one.id for one in known.in_phase(Phase.ENDED, Phase.STARTING)] == [2, 3]


def test_jobs_with_a_run_slot_are_found_without_a_look_at_the_others() -> None:
    class Watched(JobTable):
        def __iter__(self) -> Iterator[Row]:
            raise AssertionError("it looks at all rows")

    known = Watched()
    for job_id in range(1, 6):
        known.add(row(job_id))
    known.add(row(6, phase=Phase.HANDED_OVER))
    for job_id, phase in ((5, Phase.STARTING), (2, Phase.STARTING), (3, Phase.HANDED_OVER)):
        found = known.find(job_id)
        assert found is not None
        known.give_slot(found, phase)
    with_slot = (Phase.STARTING, Phase.HANDED_OVER)
    assert [one.id for one in known.in_phase(*with_slot)] == [2, 3, 5, 6]
    assert [one.id for one in known.in_phase(Phase.HANDED_OVER)] == [3, 6]
    (second, *_) = known.in_phase(Phase.STARTING)
    second.phase = Phase.PENDING
    known.remove(3)
    assert [one.id for one in known.in_phase(*with_slot)] == [5, 6]
    known.give_slot(second, Phase.STARTING)
    assert [one.id for one in known.in_phase(*with_slot)] == [2, 5, 6]


def test_the_jobs_of_a_key_are_known_as_long_as_they_are_live() -> None:
    known = table(row(1, key="a"), row(2, key="a"), row(3, key="b"), row(4))
    assert known.ids_of_key("a") == [1, 2]
    assert known.ids_of_key("b") == [3]
    assert known.ids_of_key("c") is None
    known.remove(1)
    assert known.ids_of_key("a") == [2]
    known.remove(2)
    assert known.ids_of_key("a") is None


def test_what_is_answered_for_a_key_is_a_copy() -> None:
    known = table(row(1, key="a"))
    ids = known.ids_of_key("a")
    assert ids is not None
    ids.append(99)
    assert known.ids_of_key("a") == [1]


def test_ids_after_one_follow_what_comes_and_goes() -> None:
    table = JobTable()
    for job_id in (3, 5, 8):
        table.add(row_of(jobs.Job(id=job_id, ops=[]), Phase.ENDED))
    assert list(table.ids_after(0)) == [3, 5, 8]
    assert list(table.ids_after(5)) == [8]
    table.add(row_of(jobs.Job(id=9, ops=[]), Phase.ENDED))
    assert list(table.ids_after(4)) == [5, 8, 9]
    table.remove(8)
    assert list(table.ids_after(5)) == [9]
    assert list(table.ids_after(9)) == []
