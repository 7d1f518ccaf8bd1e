"""Which nodes take commands."""

from __future__ import annotations

import pytest

from ganger import OpcodeError
from ganger.storage import errors
from ganger.storage.nodes import node_states


def test_states_follow_the_objects_and_damaged_ones_are_left_out() -> None:
    nodes = {
        "u1": {"name": "a"},
        "u2": {"name": "b", "drained": True},
        "u3": {"name": "c", "offline": True, "drained": True},
        "u4": {"name": 7},
        "u5": "damaged",
    }
    assert node_states.states_of(nodes.values()) == {"a": "", "b": "drained", "c": "offline"}


def test_a_refusal_names_some_of_many_nodes() -> None:
    states = {f"n{number:03}": "" for number in range(120)}
    with pytest.raises(OpcodeError, match=r"nodes: n000, .*, n019 and 100 more$"):
        node_states.check_new(states, "other")
    node_states.check_new(states, "n119")


def test_only_an_offline_node_fails_a_queued_job() -> None:
    node_states.check_start(None, "a")
    node_states.check_start({"drained": True}, "a")
    with pytest.raises(errors.NotAllowedError, match="node 'a' is offline; `ganger node online a`"):
        node_states.check_start({"offline": True}, "a")
