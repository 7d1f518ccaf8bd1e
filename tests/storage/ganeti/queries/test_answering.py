"""The rules that all queries share, and the answers that Ganeti gave."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tests.storage.ganeti.queries.views import view_of
from tests.storage.queries.recorded_answers import (
    GROUP,
    NETWORK,
    RECORDED,
    larger,
    recorded,
    recorded_web,
)

from ganger.storage import errors
from ganger.storage.filters.filters import parse_filter
from ganger.storage.ganeti.queries import answering
from ganger.storage.ganeti.queries.answering import (
    ParsedQuery,
    Resource,
    query,
    query_fields,
    requested_names,
    values,
)
from ganger.storage.ganeti.queries.cluster import CLUSTER
from ganger.storage.ganeti.queries.cluster_view import ClusterView
from ganger.storage.ganeti.queries.groups import GROUPS
from ganger.storage.ganeti.queries.instances import INSTANCES
from ganger.storage.ganeti.queries.locks import LOCKS
from ganger.storage.ganeti.queries.networks import NETWORKS
from ganger.storage.ganeti.queries.nodes import NODES
from ganger.storage.ganeti.queries.queue_resources import RESOURCES
from ganger.storage.ganeti.queries.resources import RESOURCES as OBJECTS

VIEW = view_of(RECORDED)
LARGER = view_of(larger())
NAMES = st.sampled_from(["node1", "node2", "web", ""])


def names(resource: Resource[ClusterView], raw_filter: object) -> list[str]:
    """The names in the answer to a query of the larger cluster."""
    return [row[0][1] for row in query(resource, LARGER, ["name"], raw_filter)["data"]]


def named(*wanted: str) -> list[Any]:
    """The filter for these names."""
    return ["|", *(["==", "name", name] for name in wanted)]


# ---------------------------------------------------------------- recorded answers


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        (NODES, "025-QueryFields-node"),
        (INSTANCES, "026-QueryFields-instance"),
        (NETWORKS, "028-QueryFields-network"),
    ],
    ids=["node", "instance", "network"],
)
def test_all_fields_are_defined_as_recorded(resource: Resource[ClusterView], name: str) -> None:
    assert query_fields(resource, None) == recorded(name)
    assert query_fields(resource, []) == recorded(name)


def test_groups_are_answered_as_recorded() -> None:
    answer = query(GROUPS, VIEW, ["name", "node_list"])
    expected = recorded("038-Query-group")
    # The third group was added after the recording.
    expected["data"].append([[0, "rack3"], [0, []]])
    assert answer == expected


def test_the_classic_answer_is_as_recorded() -> None:
    fields = ["name", "uuid", "node_cnt", "node_list"]
    wanted = named("default", "rack2")
    assert values(GROUPS, VIEW, fields, wanted) == recorded("017-QueryGroups")


def test_instances_are_answered_as_recorded() -> None:
    expected = recorded("037-Query-instance")
    answer = query(INSTANCES, VIEW, ["name", "status", "nic.ips"])
    assert answer["fields"] == expected["fields"]
    for row, recorded_row in zip(answer["data"], expected["data"], strict=True):
        # What runs is not known here.
        assert row == [recorded_row[0], [0, "ERROR_nodedown"], recorded_row[2]]


CHANGED_SINCE = {"mtime", "serial_no"}


def then() -> ClusterView:
    """The configuration as it was when the web interface was recorded."""
    document = copy.deepcopy(RECORDED)
    for instance in document["instances"].values():
        if instance["beparams"].get("vcpus") == 2:
            instance["beparams"]["vcpus"] = 1
    return view_of(document)


@pytest.mark.parametrize(
    ("resource", "name", "live"),
    [
        (INSTANCES, "020-instances-bulk", {"oper_ram", "oper_state", "oper_vcpus", "status"}),
        (GROUPS, "022-groups-bulk", set()),
    ],
    ids=["instances", "groups"],
)
def test_all_recorded_values_are_found(
    resource: Resource[ClusterView], name: str, live: set[str]
) -> None:
    for item in recorded_web(name):
        fields = sorted(item.keys() - live - CHANGED_SINCE)
        answer = query(resource, then(), fields, ["==", "name", item["name"]])
        found = {field: cell[1] for field, cell in zip(fields, answer["data"][0], strict=True)}
        assert found == {
            field: pytest.approx(item[field]) if field == "ctime" else item[field]
            for field in fields
        }


def test_the_recorded_node_is_found() -> None:
    item = recorded_web("025-node")
    known = {name for name in item if name in NODES.fields}
    answer = query(NODES, VIEW, sorted(known))
    statuses = {}
    for name, (status, value) in zip(sorted(known), answer["data"][0], strict=True):
        statuses[name] = status
        if status == 0:
            assert value == pytest.approx(item[name]) if "time" in name else value == item[name]
    assert {name for name, status in statuses.items() if status == 2} == {
        *("cnodes", "cnos", "csockets", "ctotal", "dfree", "dtotal"),
        *("mfree", "mnode", "mtotal", "spfree", "sptotal"),
    }


# ---------------------------------------------------------------- fields


def test_an_unknown_field_has_no_value() -> None:
    answer = query(NODES, VIEW, ["name", "no/such"])
    assert answer["fields"][1] == {
        "name": "no/such",
        "title": "no/such",
        "kind": "unknown",
        "doc": "Unknown field 'no/such'",
    }
    assert answer["data"] == [[[0, "node1.example.com"], [1, None]]]
    assert query_fields(NODES, ["no/such", "pip"])["fields"][0]["kind"] == "unknown"
    assert query_fields(NODES, ["no/such", "pip"])["fields"][1]["title"] == "PrimaryIP"


def test_a_classic_query_refuses_unknown_fields_and_leaves_out_unknown_names() -> None:
    with pytest.raises(errors.BadRequestError) as refused:
        values(NODES, VIEW, ["name", "a", "b"])
    assert refused.value.text == "Unknown output fields selected: a, b"
    assert (refused.value.luxi_name, refused.value.error_code) == ("OpPrereqError", "wrong_input")
    assert values(NODES, VIEW, ["name"], named("nope")) == []
    twice = named("node10", "nope", "node2", "node10.example.com", "n10")
    assert values(NODES, LARGER, ["uuid"], twice) == [["n2"], ["n10"]]
    assert values(NODES, LARGER, ["name"])[0] == ["node1.example.com"]


def test_a_classic_query_has_no_value_for_what_is_not_normal() -> None:
    assert query(NODES, VIEW, ["name", "mfree"])["data"] == [[[0, "node1.example.com"], [2, None]]]
    assert values(NODES, VIEW, ["name", "mfree"]) == [["node1.example.com", None]]


def test_a_classic_query_takes_filters_as_others_do() -> None:
    assert values(NODES, LARGER, ["uuid"], ["?", "offline"]) == [["n10"]]


# ---------------------------------------------------------------- which items


def test_items_come_in_natural_order() -> None:
    assert names(NODES, None) == [f"node{number}.example.com" for number in (1, 2, 3, 10)]
    assert names(GROUPS, None) == ["default", "rack2", "rack3", "rack10"]


def test_named_items_come_in_the_order_of_their_names() -> None:
    wanted = ["|", ["==", "name", "node10.example.com"], ["=", "name", "node2.example.com"]]
    assert names(NODES, wanted) == ["node10.example.com", "node2.example.com"]
    assert names(NODES, ["|", wanted, wanted]) == names(NODES, wanted)
    nested = ["|", wanted, ["|", ["==", "name", "node3"]]]
    assert names(NODES, nested)[2] == "node3.example.com"


@pytest.mark.parametrize(
    ("resource", "wanted", "found"),
    [
        (NODES, "node2", "node2.example.com"),
        (NODES, "node2.example", "node2.example.com"),
        (NODES, "n2", "node2.example.com"),
        (GROUPS, GROUP, "default"),
        (NETWORKS, NETWORK, "net1"),
        (INSTANCES, "inst10", "inst10.example.com"),
    ],
)
def test_an_item_is_named_by_name_by_its_beginning_or_by_uuid(
    resource: Resource[ClusterView], wanted: str, found: str
) -> None:
    assert names(resource, ["==", "name", wanted]) == [found]


@pytest.mark.parametrize(
    ("resource", "noun"),
    [(NODES, "Node"), (INSTANCES, "Instance"), (GROUPS, "NodeGroup"), (NETWORKS, "Network")],
    ids=["node", "instance", "group", "network"],
)
@pytest.mark.parametrize("wanted", ["nope", "node", "NODE2", "", 7])
def test_an_unknown_name_is_an_error(
    resource: Resource[ClusterView], noun: str, wanted: object
) -> None:
    with pytest.raises(errors.UnknownObjectError) as refused:
        names(resource, ["|", ["==", "name", wanted]])
    assert refused.value.text == f"{noun} name {wanted} not found"
    assert (refused.value.luxi_name, refused.value.error_code) == (
        "OpPrereqError",
        "unknown_entity",
    )


def test_the_recorded_refusal_of_an_unknown_instance() -> None:
    with pytest.raises(errors.UnknownObjectError) as refused:
        names(INSTANCES, ["==", "name", "nope"])
    error = refused.value
    assert [error.luxi_name, [error.text, error.error_code]] == recorded("014-QueryTags-bad")


def test_a_beginning_that_several_names_have_names_none() -> None:
    document: dict[str, Any] = {"nodes": {"a": {"name": "n.x"}, "b": {"name": "n.y"}}}
    with pytest.raises(errors.UnknownObjectError, match="Node name n not found"):
        query(NODES, view_of(document), ["name"], ["==", "name", "n"])


@pytest.mark.parametrize(
    ("raw_filter", "found"),
    [
        (["&", ["==", "name", "node2"]], [2]),
        (["!=", "name", "node2"], [1, 3, 10]),
        (["?", "offline"], [10]),
        (["!", ["?", "offline"]], [1, 2, 3]),
        (["==", "role", "C"], [2]),
        (["=~", "name", "e[12]"], [1, 2, 10]),
        ([">", "pinst_cnt", 1], [1]),
        (["=[]", "sinst_list", "inst10.example.com"], [3]),
        (["<", "ndp/cpu_speed", 2], [1, 2, 10]),
        (["|", ["==", "name", "node2"], ["?", "drained"]], [2, 3]),
        (["|"], []),
        (["&"], [1, 2, 3, 10]),
        # A field without a normal value passes.
        (["==", "mfree", 7], [1, 2, 3, 10]),
        (["!=", "mfree", 7], []),
        (["&", ["==", "mfree", 7], ["?", "offline"]], [10]),
    ],
)
def test_a_filter_chooses_items(raw_filter: object, found: list[int]) -> None:
    assert names(NODES, raw_filter) == [f"node{number}.example.com" for number in found]


@pytest.mark.parametrize(
    ("raw_filter", "said"),
    [
        (["==", "nope", 1], "Can't find field named 'nope'"),
        (["|", None, ["?", "nope"]], "Can't find field named 'nope'"),
        (["<", "name", 7], "Invalid types in comparison, field 'name': 'node1.example.com' and 7"),
        (["?", "name"], "Unexpected value 'node1.example.com' of field 'name' in boolean context"),
        (["==", "offline", 0], "Invalid types in comparison, field 'offline': False and 0"),
        (["=~", "pinst_cnt", "4"], "Invalid types in comparison, field 'pinst_cnt': 4 and '4'"),
    ],
)
def test_a_filter_that_fits_no_field_is_refused(raw_filter: object, said: str) -> None:
    with pytest.raises(errors.ParameterError) as refused:
        names(NODES, raw_filter)
    assert refused.value.text == said


def test_a_malformed_filter_is_refused() -> None:
    with pytest.raises(errors.FilterRuleError, match=r"Unknown filter operand '\?\?'"):
        names(NODES, ["??", "name", "x"])


def test_only_host_names_may_be_shortened() -> None:
    assert names(INSTANCES, ["&", ["==", "pnode", "node2"]]) == ["inst10.example.com", "later"]
    assert names(GROUPS, ["&", ["==", "name", "rack"]]) == []


def test_an_empty_configuration_has_no_items() -> None:
    nothing = view_of({})
    for resource in (NODES, INSTANCES, GROUPS, NETWORKS, CLUSTER):
        assert query(resource, nothing, list(resource.fields))["data"] == []


def test_every_resource_has_the_name_under_which_it_is_asked_for() -> None:
    assert [*RESOURCES] == ["filter", "job", "lock"]
    assert [*OBJECTS] == ["node", "instance", "group", "network", "export", "cluster"]
    for name, resource in {**RESOURCES, **OBJECTS}.items():
        assert resource.name == name
        assert resource.find is None or resource.name_field in resource.fields


# ---------------------------------------------------------------- bounds of filters


LISTED: st.SearchStrategy[Any] = st.one_of(
    st.tuples(st.sampled_from(["==", "="]), st.just("name"), NAMES | st.integers(0, 9)),
    st.tuples(st.sampled_from(["==", "="]), st.just("name"), NAMES | st.integers(0, 9)),
    st.tuples(
        st.sampled_from(["==", "!=", "<"]),
        st.sampled_from(["name", "role"]),
        st.sampled_from(["node1", 7.0, 7.5, True, None, 2**70, []]),
    ),
    st.tuples(st.just("?"), st.just("master")),
)


@given(
    st.sampled_from(["|", "|", "&"]),
    st.lists(LISTED.map(list), max_size=4),
    st.sampled_from([NODES, LOCKS]),
)
def test_a_plain_list_of_names_asks_for_what_its_tree_asks_for(
    sign: str, parts: list[Any], resource: Resource[Any]
) -> None:
    raw = [sign, *parts]
    listed = answering._listed_names(resource, raw)
    if listed is not None:
        assert listed == requested_names(resource, parse_filter(raw))
        event("listed")


def test_ten_thousand_names_are_read_without_a_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "parse_filter", None)
    monkeypatch.setattr(answering, "compile_filter", None)
    wanted = [f"node{number}" for number in range(9_999)]
    asked = ParsedQuery(NODES, ["name"], named(*wanted))
    assert asked.names == wanted
    assert asked.filter_fields == {"name"}


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (["|", *[["==", "role", "M"]] * 1_000], "filter: has more than 1000 operators"),
        (["&", *[["==", "name", "node1"]] * 1_000], "filter: has more than 1000 operators"),
        (named(*["node1"] * 10_000), "filter: has more than 1000 operators"),
        (
            ["|", *[["=~", "name", "x" * 500]] * 5],
            "filter: its regular expressions have more than 2000 characters",
        ),
    ],
)
def test_a_filter_that_would_hold_up_others_is_refused(raw: object, problem: str) -> None:
    with pytest.raises(errors.FilterRuleError) as caught:
        ParsedQuery(NODES, ["name"], raw)
    assert caught.value.text == problem


def test_a_filter_of_nearly_that_size_is_answered() -> None:
    assert names(NODES, ["|", ["=~", "name", "x" * 1_000], ["=~", "name", "y" * 1_000]]) == []
    many = ["|", *[["==", "role", "?"]] * 998, ["?", "offline"]]
    assert names(NODES, many) == names(NODES, ["?", "offline"])
