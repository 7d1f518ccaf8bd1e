"""Pages of answers, whatever their bounds, and whatever comes and goes between two of them."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ganger.storage import natural_order
from ganger.storage.cluster.configuration import Configuration
from ganger.storage.ganeti.queries.answering import Resource, query
from ganger.storage.ganeti.queries.cluster_view import ClusterView
from ganger.storage.ganeti.queries.jobs import JOBS, JobRow, Rows
from ganger.storage.ganeti.queries.nodes import NODES
from ganger.storage.ganeti.queries.paging import Bounds, page
from ganger.storage.jobs.jobs import Job, JobStatus, OpcodeEntry

STATUSES = st.sampled_from(list(JobStatus))
NAMES = st.text(alphabet="ab0129.-", min_size=1, max_size=5)
FILTERS = st.recursive(
    st.one_of(
        st.none(),
        st.tuples(st.just("=="), st.just("status"), STATUSES.map(str)).map(list),
        st.tuples(st.sampled_from(["<", ">="]), st.just("id"), st.integers(0, 30)).map(list),
        st.just(["?", "archived"]),
    ),
    lambda part: st.one_of(
        part.map(lambda one: ["!", one]),
        st.tuples(st.sampled_from(["&", "|"]), part, part).map(list),
    ),
    max_leaves=4,
)


def rows_of(jobs: dict[int, tuple[JobStatus, bool]]) -> Rows:
    """A queue of these jobs: the status of each, and whether it is archived."""
    return {
        number: JobRow(
            number,
            Job(id=number, ops=[OpcodeEntry(input={"OP_ID": "OP_X"}, status=jobs[number][0])]),
            is_archived=jobs[number][1],
        )
        for number in sorted(jobs)
    }


def view_of(names: dict[str, str]) -> ClusterView:
    """A configuration of nodes: the name of each, by its UUID."""
    nodes = {uuid: {"uuid": uuid, "name": name} for uuid, name in names.items()}
    return ClusterView(Configuration.load({"cluster": {}, "nodes": nodes}))


def joined(
    resource: Resource[Any], sources: list[Any], fields: list[str], raw: Any, bounds: list[Bounds]
) -> list[Any]:
    """The rows of all pages: each page of the next source and bounds, the last ones for ever."""
    found: list[Any] = []
    after: str | None = None
    for number in range(1_000):
        source = sources[min(number, len(sources) - 1)]
        one = bounds[min(number, len(bounds) - 1)]
        answer = page(resource, source, fields, raw, after, bounds=one)
        found += json.loads(answer.rows)
        after = answer.next_after
        if after is None:
            return found
    raise AssertionError("the answer has no end")


def bounded() -> st.SearchStrategy[list[Bounds]]:
    """Bounds of pages: so many bytes, and so many items that are looked at."""

    def made(page_bytes: int, count: int) -> Bounds:
        left = [count]

        def is_enough() -> bool:
            left[0] -= 1
            return left[0] < 0

        return Bounds(page_bytes, 10**9, is_enough)

    one = st.builds(made, st.integers(1, 200), st.integers(0, 5))
    return st.lists(one, min_size=1, max_size=4)


@given(
    st.dictionaries(st.integers(1, 30), st.tuples(STATUSES, st.booleans()), max_size=12),
    FILTERS,
    bounded(),
)
def test_pages_of_jobs_are_the_whole_answer(
    jobs: dict[int, tuple[JobStatus, bool]], raw: Any, bounds: list[Bounds]
) -> None:
    source, fields = rows_of(jobs), ["id", "status", "archived"]
    expected = json.loads(json.dumps(query(JOBS, source, fields, raw)["data"]))
    assert joined(JOBS, [source], fields, raw, bounds) == expected


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), bounded())
def test_pages_of_named_jobs_are_the_whole_answer(names: list[int], bounds: list[Bounds]) -> None:
    source = rows_of(dict.fromkeys(range(1, 16), (JobStatus.SUCCESS, False)))
    raw = ["|", *(["=", "id", str(name) if name % 2 else name] for name in names)]
    found = joined(JOBS, [source], ["id"], raw, bounds)
    assert found == [[[0, number]] for number in dict.fromkeys(names)]


@given(
    st.lists(st.dictionaries(st.sampled_from("abcdefgh"), NAMES), min_size=1, max_size=4), bounded()
)
def test_who_stays_comes_once_and_in_order(
    states: list[dict[str, str]], bounds: list[Bounds]
) -> None:
    views = [view_of(names) for names in states]
    found = joined(NODES, views, ["uuid", "name"], None, bounds)
    places = [(natural_order.natural_key(name), uuid) for (_, uuid), (_, name) in found]
    assert all(one < other for one, other in itertools.pairwise(places))
    staying = {
        uuid for uuid in states[0] if all(one.get(uuid) == states[0][uuid] for one in states)
    }
    uuids = [uuid for (_, uuid), _ in found]
    assert all(uuids.count(uuid) == 1 for uuid in staying)
