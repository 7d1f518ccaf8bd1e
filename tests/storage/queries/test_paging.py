"""Answers on pages: together they are the whole, whatever changes between two pages."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.queries.recorded_clusters import larger, view_of

from ganger.storage import errors
from ganger.storage.jobs.jobs import Job, OpcodeEntry
from ganger.storage.locks.lock_rows import LockView
from ganger.storage.locks.locks import LockMode, Owner
from ganger.storage.queries.answering import Resource, query
from ganger.storage.queries.cluster import CLUSTER
from ganger.storage.queries.filters import FILTERS
from ganger.storage.queries.groups import GROUPS
from ganger.storage.queries.instances import INSTANCES
from ganger.storage.queries.jobs import JOBS, JobRow, Rows
from ganger.storage.queries.locks import LOCKS, AwaitedJob, ordered
from ganger.storage.queries.networks import NETWORKS
from ganger.storage.queries.nodes import NODES
from ganger.storage.queries.paging import FIELD_NAME_MAX, FIELDS_MAX, Bounds, Page, page

LARGER = view_of(larger())
UNBOUNDED = Bounds(10**9, 10**9, lambda: False)
ONE_BY_ONE = Bounds(10**9, 10**9, lambda: True)


def pages(
    resource: Resource[Any],
    source: object,
    fields: list[str],
    raw_filter: object = None,
    bounds: Bounds = ONE_BY_ONE,
    *,
    is_classic: bool = False,
) -> list[Page]:
    """All pages of an answer."""

    def one(after: str | None) -> Page:
        return page(
            resource, source, fields, raw_filter, after, bounds=bounds, is_classic=is_classic
        )

    found = [one(None)]
    while (after := found[-1].next_after) is not None:
        found.append(one(after))
        assert len(found) < 1_000
    return found


def rows(found: list[Page]) -> list[Any]:
    return [row for one in found for row in json.loads(one.rows)]


def locks() -> Any:
    views = [
        LockView(f"node/n{number}", LockMode.SHARED, (Owner(1, "/l", 1),), ())
        for number in range(12)
    ]
    return ordered(views, [AwaitedJob("job/9", []), AwaitedJob("job/10", [])])


def jobs() -> Rows:
    ops = [OpcodeEntry(input={"OP_ID": "OP_TEST_DELAY"})]
    return {number: JobRow(number, Job(id=number, ops=ops)) for number in (9, 10, 100)}


@pytest.mark.parametrize(
    ("resource", "source"),
    [
        (NODES, LARGER),
        (GROUPS, LARGER),
        (INSTANCES, LARGER),
        (NETWORKS, LARGER),
        (FILTERS, LARGER),
        (CLUSTER, LARGER),
        (LOCKS, locks()),
        (JOBS, jobs()),
    ],
    ids=lambda value: value.name if isinstance(value, Resource) else "",
)
def test_pages_together_are_the_whole_answer(resource: Resource[Any], source: object) -> None:
    field = resource.name_field
    whole = json.loads(json.dumps(query(resource, source, [field])))
    found = pages(resource, source, [field])
    assert rows(found) == whole["data"]
    assert len(found) == max(1, len(whole["data"]))
    assert all(one.fields == whole["fields"] for one in found)


def test_items_that_do_not_pass_take_time_as_well() -> None:
    found = pages(NODES, LARGER, ["name"], ["==", "uuid", "n10"])
    assert [json.loads(one.rows) for one in found if one.rows != b"[]"] == [
        [[[0, "node10.example.com"]]]
    ]
    assert len(found) == len(LARGER.ordered("nodes"))


def test_named_items_go_on_in_the_order_of_their_names() -> None:
    names = ["node10", "node2.example.com", "node10.example.com", "n3"]
    wanted = ["|", *(["==", "name", name] for name in names)]
    found = pages(NODES, LARGER, ["uuid"], wanted)
    assert rows(found) == [[[0, "n10"]], [[0, "n2"]], [[0, "n3"]]]
    assert len(found) == 3


def test_pages_of_a_classic_answer_have_named_items_in_the_order_of_a_listing() -> None:
    names = ["node10", "nope", "node2.example.com", "node10.example.com", "n3"]
    wanted = ["|", *(["==", "name", name] for name in names)]
    found = pages(NODES, LARGER, ["uuid", "mfree"], wanted, is_classic=True)
    assert rows(found) == [["n2", None], ["n3", None], ["n10", None]]
    assert len(found) == 3
    assert rows(pages(NODES, LARGER, ["name"], is_classic=True))[0] == ["node1.example.com"]
    with pytest.raises(errors.BadRequestError, match="Unknown output fields selected: a, b"):
        pages(NODES, LARGER, ["uuid", "a", "b"], is_classic=True)


def test_pages_of_classic_jobs_come_as_named_and_unknown_ones_have_a_row() -> None:
    wanted = ["|", *(["==", "id", job_id] for job_id in (100, 7, "9", 100))]
    found = pages(JOBS, jobs(), ["id", "status"], wanted, is_classic=True)
    assert rows(found) == [[100, "queued"], [7, None], [9, "queued"]]
    assert rows(pages(JOBS, jobs(), ["id"], is_classic=True)) == [[9], [10], [100]]


def test_an_unknown_name_is_refused_when_its_turn_has_come() -> None:
    wanted = ["|", *(["==", "name", name] for name in ("node10", "node2", "nobody"))]
    first = page(NODES, LARGER, ["uuid"], wanted, None, bounds=ONE_BY_ONE)
    assert (rows([first]), first.next_after) == ([[[0, "n10"]]], "0")
    with pytest.raises(errors.UnknownObjectError, match=r"^Node name nobody not found\Z"):
        page(NODES, LARGER, ["name"], wanted, "0", bounds=UNBOUNDED)


@given(st.integers(1, 400))
def test_no_page_is_larger_than_asked_unless_it_has_one_item(page_bytes: int) -> None:
    bounds = Bounds(page_bytes, 10**9, lambda: False)
    found = pages(JOBS, jobs(), ["id", "ops"], bounds=bounds)
    assert [row[0][1] for row in rows(found)] == [9, 10, 100]
    for one in found:
        assert len(one.rows) <= page_bytes or len(json.loads(one.rows)) == 1


def test_what_comes_and_goes_between_pages_disturbs_no_other_item() -> None:
    document = larger()
    first = page(NODES, view_of(document), ["uuid"], None, None, bounds=ONE_BY_ONE)
    gone = rows([first])[0][0][1]
    later = copy.deepcopy(larger())
    del later["nodes"][gone]
    later["nodes"]["n0"] = {**later["nodes"]["n2"], "uuid": "n0", "name": "a-new-one"}
    rest = page(NODES, view_of(later), ["uuid"], None, first.next_after, bounds=UNBOUNDED)
    expected = [one["uuid"] for one in LARGER.ordered("nodes") if one["uuid"] != gone]
    assert [row[0][1] for row in rows([rest])] == expected


def test_objects_without_names_are_told_apart() -> None:
    document = larger()
    document["instances"] |= {
        uuid: {"uuid": uuid, "forthcoming": True} for uuid in ("f1", "f2", "f3")
    }
    found = pages(INSTANCES, view_of(document), ["uuid"])
    assert sorted(row[0][1] for row in rows(found)) == sorted(document["instances"])


def is_no_mark(resource: Resource[Any], source: object, after: str) -> bool:
    with pytest.raises(errors.BadRequestError, match=r"^after: expected what an earlier page"):
        page(resource, source, ["uuid"], None, after, bounds=UNBOUNDED)
    return True


@pytest.mark.parametrize("after", ["", "x", "[1, 2]", '["a"]', "[" * 100_000])
def test_what_no_page_ended_with_is_refused(after: str) -> None:
    assert is_no_mark(NODES, LARGER, after)
    if after:
        assert is_no_mark(JOBS, jobs(), after)


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
    assert len(page(NODES, LARGER, names, None, None, bounds=UNBOUNDED).fields) == FIELDS_MAX
    for wrong, text in (([*names, "y"], "at most 1000, got 1001"), (["x" * 101], "more than 100")):
        with pytest.raises(errors.BadRequestError, match=text):
            page(NODES, LARGER, wrong, None, None, bounds=UNBOUNDED)


def test_text_that_is_no_unicode_is_answered() -> None:
    document = larger()
    document["cluster"]["tags"] = ["\ud800"]
    [answer] = pages(CLUSTER, view_of(document), ["tags"])
    assert rows([answer]) == [[[0, ["\\ud800"]]]]
