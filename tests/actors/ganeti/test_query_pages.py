"""Pages of answers within their turn; how queries are checked, once for all pages."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from ganger.actors.ganeti import query_pages
from ganger.actors.runtime.turn_limit import turn_limit
from ganger.storage import errors, settings
from ganger.storage.filters import filters
from ganger.storage.ganeti.queries import answering
from ganger.storage.ganeti.queries.filters import FILTERS
from ganger.storage.ganeti.queries.jobs import JOBS
from ganger.storage.ganeti.queries.locks import LOCKS
from ganger.transport.messages import QueryConfiguration, QueryJobs, QueryLocks

SLICE = settings.QUERY_SLICE_SECONDS


@pytest.fixture(autouse=True)
def no_queries_are_kept() -> None:
    query_pages._checked.cache_clear()


def test_the_filter_of_an_answer_is_read_once_for_all_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parse = mock.Mock(wraps=filters.parse_filter)
    monkeypatch.setattr(answering, "parse_filter", parse)
    raw = ["&", ["==", "status", "error"], [">", "id", 3]]
    first = query_pages.checked(JOBS, QueryJobs(["id"], raw))
    for after in ("4", "9"):
        assert query_pages.checked(JOBS, QueryJobs(["id"], list(raw), after)) is first
    assert parse.call_count == 1


@pytest.mark.parametrize(
    "other",
    [
        (JOBS, QueryJobs(["id", "status"], ["?", "archived"])),
        (JOBS, QueryJobs(["id"], ["!", ["?", "archived"]])),
        (JOBS, QueryJobs(["id"], ["?", "archived"], is_classic=True)),
    ],
)
def test_another_query_is_another_one(other: tuple[Any, Any]) -> None:
    one = query_pages.checked(JOBS, QueryJobs(["id"], ["?", "archived"]))
    assert query_pages.checked(*other) is not one


def test_queries_of_two_resources_differ() -> None:
    of_filters = query_pages.checked(FILTERS, QueryConfiguration("filter", ["uuid"]))
    of_locks = query_pages.checked(LOCKS, QueryLocks(["name"]))
    assert (of_filters.resource.name, of_locks.resource.name) == ("filter", "lock")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (2**70, "filter[2]: the integer has more than 63 bits"),
        (b"7", "filter[2]: expected a string or an integer, not b'7'"),
        (float("nan"), "filter[2]: expected a string or an integer, not nan"),
        ({"x": 1}, "filter[2]: expected a string or an integer, not {'x': 1}"),
        (object, "filter[2]: expected a string or an integer, not <class 'object'>"),
    ],
)
def test_what_no_filter_may_have_is_named_as_it_was_sent(value: object, problem: str) -> None:
    for _ in range(2):
        with pytest.raises(errors.FilterRuleError) as caught:
            query_pages.checked(JOBS, QueryJobs(["id"], ["==", "id", value]))
        assert caught.value.text == problem


def test_text_that_utf_8_cannot_hold_is_compared_all_the_same() -> None:
    query_pages.checked(FILTERS, QueryConfiguration("filter", ["uuid"], ["==", "action", "\udcff"]))


class Clock:
    """Seconds that a test passes."""

    now = 0.0

    def clock(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("until_first", "lasts"),
    [(0.0, SLICE), (SLICE / 2, SLICE), (SLICE, SLICE * 5 / 4), (SLICE * 9, SLICE * 37 / 4)],
)
def test_a_page_ends_with_its_turn_but_has_time_for_items(until_first: float, lasts: float) -> None:
    runtime = Clock()
    is_enough = turn_limit(runtime)  # type: ignore[arg-type]
    runtime.now = until_first
    assert not is_enough()
    runtime.now = lasts - 1e-6
    assert not is_enough()
    runtime.now = lasts + 1e-6
    assert is_enough()
