"""Answers about objects on pages: whatever changes between two pages, others are told apart."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from tests.storage.ganeti.queries.pages import ONE_BY_ONE, UNBOUNDED, check_whole, pages, rows
from tests.storage.ganeti.queries.views import view_of
from tests.storage.queries.recorded_answers import larger

from ganger.storage import errors
from ganger.storage.ganeti.queries.answering import Resource
from ganger.storage.ganeti.queries.cluster import CLUSTER
from ganger.storage.ganeti.queries.groups import GROUPS
from ganger.storage.ganeti.queries.instances import INSTANCES
from ganger.storage.ganeti.queries.networks import NETWORKS
from ganger.storage.ganeti.queries.nodes import NODES
from ganger.storage.ganeti.queries.paging import page

LARGER = view_of(larger())


@pytest.mark.parametrize("resource", [NODES, GROUPS, INSTANCES, NETWORKS, CLUSTER])
def test_pages_together_are_the_whole_answer(resource: Resource[Any]) -> None:
    check_whole(resource, LARGER)


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


def test_an_unknown_name_is_refused_when_its_turn_has_come() -> None:
    wanted = ["|", *(["==", "name", name] for name in ("node10", "node2", "nobody"))]
    first = page(NODES, LARGER, ["uuid"], wanted, None, bounds=ONE_BY_ONE)
    assert (rows([first]), first.next_after) == ([[[0, "n10"]]], "0")
    with pytest.raises(errors.UnknownObjectError, match=r"^Node name nobody not found\Z"):
        page(NODES, LARGER, ["name"], wanted, "0", bounds=UNBOUNDED)


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


@pytest.mark.parametrize("after", ["", "x", "[1, 2]", '["a"]', "[" * 100_000])
def test_what_no_page_ended_with_is_refused(after: str) -> None:
    with pytest.raises(errors.BadRequestError, match=r"^after: expected what an earlier page"):
        page(NODES, LARGER, ["uuid"], None, after, bounds=UNBOUNDED)


def test_text_that_is_no_unicode_is_answered() -> None:
    document = larger()
    document["cluster"]["tags"] = ["\ud800"]
    [answer] = pages(CLUSTER, view_of(document), ["tags"])
    assert rows([answer]) == [[[0, ["\\ud800"]]]]
