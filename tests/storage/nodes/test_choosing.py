"""Which nodes words mean."""

from __future__ import annotations

from typing import Any

import pytest

from ganger import BadRequestError
from ganger.storage.nodes.choosing import chosen, words_of

NODES: list[dict[str, Any]] = [
    {"name": "web2", "tags": ["web"]},
    {"name": "web1", "tags": ["web", "prod"]},
    {"name": "web3", "tags": ["web"], "drained": True},
    {"name": "db1", "tags": ["db"], "offline": True},
    {"name": "damaged"},
]


def test_names_stand_as_they_are_and_tags_for_nodes_in_use_each_once() -> None:
    found = chosen(NODES, ["other", "tag:web", "web1"])
    assert found.names == ["other", "web1", "web2"]
    assert found.left_out == [("web3", "drained")]


def test_commas_stand_between_words() -> None:
    assert words_of(["web1,tag:db,", "web1", "db2"]) == ["web1", "tag:db", "db2"]
    assert words_of(["", ","]) == []


def test_a_node_that_is_named_is_not_left_out() -> None:
    assert chosen(NODES, ["tag:web", "web3"]).left_out == []


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("tag:new", "no node has the tag 'new'; tags of nodes: db, prod, web"),
        ("tag:", "no node has the tag ''; tags of nodes: db, prod, web"),
        ("tag:db", "no node with the tag 'db' is in use: db1 is offline"),
    ],
)
def test_a_tag_that_gives_no_node_is_refused(word: str, text: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        chosen(NODES, [word])
    assert refused.value.text == text
