"""The locks of OP_QUERY: what Ganeti's queries of live fields lock."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.storage.queries.recorded_answers import GROUP, NETWORK, larger

from ganger.storage import errors, opcodes
from ganger.storage.cluster.configuration import Configuration
from ganger.storage.ganeti.operations.base import Circumstances
from ganger.storage.ganeti.queries.query_locks import QUERY
from ganger.storage.opcodes import OperationError

SNAPSHOT = Configuration.load(larger())
GIVEN = Circumstances("new", 5.0)
ALL = {"shared": ("*",)}
NAMED = ["==", "name", "inst10"]


def locks(what: str, *fields: str, **more: Any) -> dict[str, Any]:
    given = {"OP_ID": "OP_QUERY", "what": what, "fields": list(fields), "use_locking": True}
    needs = QUERY.locks(opcodes.parse(given | more), SNAPSHOT, GIVEN)
    found: dict[str, Any] = msgspec.to_builtins(needs)
    return found


@pytest.mark.parametrize(
    ("what", "fields", "more"),
    [
        ("node", ["mfree"], {"use_locking": False}),
        ("instance", ["status"], {"use_locking": False}),
        ("node", ["name", "role"], {}),
        ("instance", ["name", "pnode.group"], {}),
        ("group", ["name"], {}),
        ("network", ["name"], {}),
        ("job", ["status"], {}),
        ("lock", ["name"], {}),
        ("cluster", ["name"], {}),
    ],
)
def test_no_locks_without_locking_or_live_fields(
    what: str, fields: list[str], more: dict[str, Any]
) -> None:
    assert locks(what, *fields, **more) == {}


@pytest.mark.parametrize("more", [{}, {"qfilter": ["=~", "name", "1"]}])
def test_live_fields_of_unnamed_items_lock_whole_levels(more: dict[str, Any]) -> None:
    assert locks("node", "mfree", **more) == {"node": ALL}
    whole = {"instance": ALL, "node": ALL, "network": ALL}
    assert locks("instance", "status", **more) == whole
    assert locks("instance", "oper_ram", "pnode.group", **more) == {**whole, "nodegroup": ALL}


def test_a_live_field_of_the_filter_counts() -> None:
    assert locks("node", "name", qfilter=[">", "mfree", 5]) == {"node": ALL}


def test_named_nodes_alone_are_locked() -> None:
    named = ["|", ["==", "name", "node10"], ["==", "name", "n2"]]
    assert locks("node", "dfree", qfilter=named) == {"node": {"shared": ("n10", "n2")}}


def test_named_instances_are_locked_with_their_nodes_and_networks() -> None:
    expected: dict[str, Any] = {
        "instance": {"shared": ("inst10.example.com",)},
        "node": {"shared": ("n2", "n3")},
        "network": {"shared": (NETWORK,)},
    }
    assert locks("instance", "status", qfilter=NAMED) == expected
    groups = {"nodegroup": {"shared": (GROUP, "rack")}}
    assert locks("instance", "status", "snodes.group", qfilter=NAMED) == expected | groups


def test_a_forthcoming_instance_has_little_to_lock() -> None:
    later = ["==", "name", "later"]
    assert locks("instance", "status", qfilter=later) == {"instance": {"shared": ("later",)}}


def test_an_unknown_name_is_refused_before_any_lock() -> None:
    with pytest.raises(errors.UnknownObjectError, match=r"^Node name nobody not found\Z"):
        locks("node", "mfree", qfilter=["==", "name", "nobody"])
    with pytest.raises(errors.FilterRuleError):
        locks("node", "name", qfilter=["??"])


def test_the_store_does_not_answer_it_at_once() -> None:
    opcode = opcodes.parse({"OP_ID": "OP_QUERY", "what": "node", "fields": ["name"]})
    with pytest.raises(OperationError, match="page by page"):
        QUERY.decide(opcode, SNAPSHOT, GIVEN)
