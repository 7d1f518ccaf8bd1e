"""Answers on pages: together they are the whole, whatever changes between two pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.ganeti.queries.pages import UNBOUNDED, check_whole, pages, rows
from tests.storage.queries.recorded_answers import larger

from ganger.storage import errors
from ganger.storage.cluster.configuration import Configuration
from ganger.storage.ganeti.queries.answering import Resource
from ganger.storage.ganeti.queries.filters import FILTERS
from ganger.storage.ganeti.queries.jobs import JOBS, JobRow, Rows
from ganger.storage.ganeti.queries.locks import LOCKS, AwaitedJob, ordered
from ganger.storage.ganeti.queries.paging import FIELD_NAME_MAX, FIELDS_MAX, Bounds, Page, page
from ganger.storage.jobs.jobs import Job, OpcodeEntry
from ganger.storage.locks.lock_rows import LockView
from ganger.storage.locks.locks import LockMode, Owner


def locks() -> Any:
    views = [
        LockView(f"node/n{number}", LockMode.SHARED, (Owner(1, "/l", 1),), ())
        for number in range(12)
    ]
    return ordered(views, [AwaitedJob("job/9", []), AwaitedJob("job/10", [])])


def jobs() -> Rows:
    ops = [OpcodeEntry(input={"OP_ID": "OP_TEST_DELAY"})]
    return {number: JobRow(number, Job(id=number, ops=ops)) for number in (9, 10, 100)}


def test_pages_of_classic_jobs_come_as_named_and_unknown_ones_have_a_row() -> None:
    wanted = ["|", *(["==", "id", job_id] for job_id in (100, 7, "9", 100))]
    found = pages(JOBS, jobs(), ["id", "status"], wanted, is_classic=True)
    assert rows(found) == [[100, "queued"], [7, None], [9, "queued"]]
    assert rows(pages(JOBS, jobs(), ["id"], is_classic=True)) == [[9], [10], [100]]


@given(st.integers(1, 400))
def test_no_page_is_larger_than_asked_unless_it_has_one_item(page_bytes: int) -> None:
    bounds = Bounds(page_bytes, 10**9, lambda: False)
    found = pages(JOBS, jobs(), ["id", "ops"], bounds=bounds)
    assert [row[0][1] for row in rows(found)] == [9, 10, 100]
    for one in found:
        assert len(one.rows) <= page_bytes or len(json.loads(one.rows)) == 1


@pytest.mark.parametrize(
    ("resource", "source"),
    [(FILTERS, Configuration.load(larger())), (LOCKS, locks()), (JOBS, jobs())],
    ids=lambda value: value.name if isinstance(value, Resource) else "",
)
def test_pages_together_are_the_whole_answer(resource: Resource[Any], source: object) -> None:
    check_whole(resource, source)


@pytest.mark.parametrize("after", ["x", "[1, 2]", '["a"]', "[" * 100_000])
def test_what_no_page_ended_with_is_refused(after: str) -> None:
    with pytest.raises(errors.BadRequestError, match=r"^after: expected what an earlier page"):
        page(JOBS, jobs(), ["id"], None, after, bounds=UNBOUNDED)


def test_a_row_that_fits_into_no_reply_is_named() -> None:
    ask: Callable[[list[str]], Page] = lambda fields: page(  # noqa: E731 - three calls
        JOBS, jobs(), fields, ["==", "id", 10], None, bounds=UNBOUNDED._replace(reply_bytes=200)
    )
    assert rows([ask(["id"])]) == [[[0, 10]]]
    with pytest.raises(errors.BadRequestError) as refused:
        ask(["id", "ops", "summary"])
    assert refused.value.text.startswith("job '10': these fields of it have ")
    assert refused.value.text.endswith("; ask for fewer fields")


def test_the_number_and_the_length_of_fields_are_bounded() -> None:
    names = ["x" * FIELD_NAME_MAX] * FIELDS_MAX
    assert len(page(JOBS, jobs(), names, None, None, bounds=UNBOUNDED).fields) == FIELDS_MAX
    for wrong, text in (([*names, "y"], "at most 1000, got 1001"), (["x" * 101], "more than 100")):
        with pytest.raises(errors.BadRequestError, match=text):
            page(JOBS, jobs(), wrong, None, None, bounds=UNBOUNDED)
