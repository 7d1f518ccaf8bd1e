"""What locks are called: by users, and by Ganeti's opcodes."""

from __future__ import annotations

import pytest

from ganger.storage.cluster.lock_names import LockNames
from ganger.storage.filters.lock_claims import claims_of
from ganger.storage.opcodes import LockNeeds, parse
from ganger.storage.prediction.declared import forecast

NAMES = LockNames(
    {
        "node": {"web1": "u-1", "web2.example.com": "u-2", "db.one": "u-3", "db.two": "u-4"},
        "nodegroup": {"default": "g-1"},
        "network": {},
    }
)


@pytest.mark.parametrize(
    ("level", "name", "uuid"),
    [
        ("node", "web1", "u-1"),
        ("node-res", "web1", "u-1"),
        ("node", "WEB2", "u-2"),
        ("node", "db", None),
        ("nodegroup", "default", "g-1"),
        ("nodegroup", "def", None),
        ("network", "default", None),
        ("instance", "web1", None),
    ],
)
def test_a_lock_is_that_of_the_object_with_the_name(level: str, name: str, uuid: str) -> None:
    assert NAMES.uuid(level, name) == uuid


def test_a_lock_that_is_given_twice_is_taken_once_and_the_stronger() -> None:
    needs = LockNeeds.of({"node": {"shared": ["web1", "other"], "exclusive": ["u-1"]}})
    uuids = NAMES.uuids(needs.named())
    assert uuids == {"node/web1": "u-1"}
    assert needs.renamed(uuids).node.exclusive == ("u-1",)
    assert needs.renamed(uuids).node.shared == ("other",)
    assert needs.renamed({}) is needs


def test_the_whole_level_has_no_name() -> None:
    needs = LockNeeds.of({"cluster": {"shared": ["BGL"]}, "node": {"shared": ["*"]}})
    assert list(needs.named()) == []


COMMAND = {
    "OP_ID": "OP_EXEC",
    "argv": ["true"],
    "node": "web1",
    "locks": {"node-res": {"exclusive": ["web1"]}},
    "lock_uuids": {"node/web1": "u-1", "node-res/web1": "u-1"},
}


def test_a_command_takes_the_lock_that_was_looked_up_and_is_expected_to() -> None:
    needs = parse(COMMAND).lock_needs()
    assert needs.to_changes() == [
        ("cluster/BGL", "shared"),
        ("node/u-1", "shared"),
        ("node-res/u-1", "exclusive"),
    ]
    found = forecast(COMMAND)
    assert (found.node.names, found.node_res.names) == (("u-1",), ("u-1",))


def test_rules_see_a_command_under_both_names() -> None:
    claims = {f"{one.level}/{one.name}" for one in claims_of([COMMAND])}
    assert claims == {"cluster/BGL", "node/web1", "node/u-1", "node-res/web1", "node-res/u-1"}


def test_texts_for_people_have_names() -> None:
    text = "it waits for node/u-1 (shared), nodegroup/g-1, node/u-9 and node-res/u-1"
    named = "it waits for node/web1 (shared), nodegroup/default, node/u-9 and node-res/web1"
    assert NAMES.named(text) == named
