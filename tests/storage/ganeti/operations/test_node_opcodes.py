"""The operations on nodes: locks, roles, errors, results, and what they change."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clusters import made_configuration, uuid_of
from tests.storage.ganeti.operations.held_configuration import HeldConfiguration

from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.opcodes import LevelNeeds, LockNeeds, OperationError

NODES = [uuid_of("nodes", number) for number in range(4)]
ROLES = ("master_candidate", "drained", "offline")


def document(*, pool: int = 10, instances: bool = False, **nodes: dict[str, Any]) -> dict[str, Any]:
    """Four nodes, all candidates but as ``node2={...}`` says; the first one is the master."""
    made = made_configuration() if instances else made_configuration(instances=0)
    made = copy.deepcopy(made)
    made["cluster"] |= {"master_node": NODES[0], "candidate_pool_size": pool}
    for number, uuid in enumerate(NODES):
        own = nodes.get(f"node{number}", {})
        made["nodes"][uuid] |= {
            "name": f"node{number}.example.com", "master_candidate": True, "drained": False,
            "offline": False, "master_capable": True, "vm_capable": True, "powered": True,
            "ndparams": {}, **own,
        }  # fmt: skip
    return made


REGULAR = {"master_candidate": False}


def setting(store: HeldConfiguration, number: int, **fields: Any) -> Any:
    name = f"node{number}.example.com"
    return store.run("OP_NODE_SET_PARAMS", node_name=name, **fields)


def roles(store: HeldConfiguration, number: int) -> list[str]:
    node = store.configuration.get(ObjectKind.NODE, NODES[number])
    assert node is not None
    return [role for role in ROLES if node[role]]


def test_it_locks_the_node_and_all_nodes_if_others_may_be_promoted() -> None:
    store = HeldConfiguration(document())
    alone = LevelNeeds(exclusive=(NODES[1],))
    name = "node1.example.com"
    found = store.locks("OP_NODE_SET_PARAMS", node_name=name, drained=True)
    assert found == LockNeeds(node=alone, node_res=alone)
    found = store.locks("OP_NODE_SET_PARAMS", node_name=name, drained=True, auto_promote=True)
    everything = LevelNeeds(exclusive=("*",))
    assert found == LockNeeds(node=everything, node_res=everything)


@pytest.mark.parametrize(
    ("before", "asked", "after"),
    [
        ({}, {"drained": True}, ["drained"]),
        ({}, {"offline": True}, ["offline"]),
        ({}, {"master_candidate": False}, []),
        (REGULAR, {"master_candidate": True}, ["master_candidate"]),
        ({**REGULAR, "drained": True}, {"offline": True}, ["offline"]),
        ({**REGULAR, "offline": True}, {"drained": True}, ["drained"]),
        # The pool has room: the node becomes a candidate by itself.
        ({**REGULAR, "drained": True}, {"drained": False}, ["master_candidate"]),
        ({**REGULAR, "offline": True}, {"offline": False}, ["master_candidate"]),
        # A host can be no master.
        *(
            ({**REGULAR, "master_capable": False, role: True}, {role: False}, [])
            for role in ("drained", "offline")
        ),
        ({}, {"master_capable": False}, []),
        ({**REGULAR, "master_capable": False}, {"master_capable": True}, ["master_candidate"]),
    ],
)
def test_a_node_has_at_most_one_role(
    before: dict[str, bool], asked: dict[str, bool], after: list[str]
) -> None:
    made = document(pool=4, node2=before)
    if "master_candidate" not in before:
        # It may leave the pool without a successor.
        made["cluster"]["candidate_pool_size"] = 3
    store = HeldConfiguration(made)
    setting(store, 2, **asked)
    assert roles(store, 2) == after


def test_a_new_secondary_address_shares_the_mirrored_instances_of_the_node() -> None:
    store = HeldConfiguration(document(instances=True))
    asked = {"node_name": "node0.example.com", "secondary_ip": "10.9.9.9"}
    found = store.locks("OP_NODE_SET_PARAMS", **asked).instance
    assert found.shared
    assert not found.exclusive
    error, _ = store.refused("OP_NODE_SET_PARAMS", **asked, force=True)
    assert error[2] in ("wrong_state", "wrong_input")


def test_the_result_says_what_has_changed() -> None:
    store = HeldConfiguration(document(pool=3))
    outcome = setting(store, 1, drained=True)
    assert outcome.result == [["master_candidate", "False"], ["drained", "True"]]
    outcome = setting(store, 1, vm_capable=False, ndparams={"ssh_port": 23})
    assert outcome.result == [["vm_capable", "False"]]
    assert store.node("node1.example.com")["ndparams"] == {"ssh_port": 23}
    outcome = setting(store, 1, offline=False, force=True)
    assert outcome.log == (" - INFO: Ignoring request to unset flag offline, already unset",)
    setting(store, 1, offline=True)
    assert "online state without using re-add" in setting(store, 1, offline=False).log[-1]


def test_others_are_promoted_in_place_of_a_candidate() -> None:
    store = HeldConfiguration(document(pool=3, node3=REGULAR))
    error, _ = store.refused("OP_NODE_SET_PARAMS", node_name="node1.example.com", offline=True)
    assert error[1].startswith("Not enough master candidates, please pass auto promote option")
    outcome = setting(store, 1, offline=True, auto_promote=True)
    line = " - INFO: Promoted nodes to master candidate role: node3.example.com"
    assert outcome.log == (line,)
    assert roles(store, 3) == ["master_candidate"]


@pytest.mark.parametrize(
    ("number", "asked", "text", "code"),
    [
        (1, {}, "Please pass at least one modification", "wrong_input"),
        (1, {"drained": True, "offline": True}, "Can't set the node into more", "wrong_input"),
        (0, {"drained": True}, "The master role can be changed only via", "wrong_input"),
        (0, {"master_capable": False}, "Master must remain master capable", "wrong_state"),
        (1, {"powered": False, "vm_capable": True}, "Unable to change powered", "wrong_state"),
        (1, {"secondary_ip": "x"}, "Secondary IP (x) needs to be a valid", "wrong_input"),
        (1, {"ndparams": {"exclusive_storage": True}}, "The following node param", "wrong_input"),
        (1, {"ndparams": {"nope": 1}}, "", ""),
        (9, {"drained": True}, "Node 'node9.example.com' not known", "unknown_entity"),
    ],
)
def test_what_cannot_be_is_refused_in_ganetis_words(
    number: int, asked: dict[str, Any], text: str, code: str
) -> None:
    store = HeldConfiguration(document(pool=3))
    before = store.configuration
    name = f"node{number}.example.com"
    error, _ = store.refused("OP_NODE_SET_PARAMS", node_name=name, **asked)
    assert error[1].startswith(text)
    assert not code or error[2] == code
    assert store.configuration is before


def test_a_node_with_instances_stays_capable_and_is_not_removed() -> None:
    store = HeldConfiguration(document(instances=True, pool=3))
    error, _ = store.refused("OP_NODE_SET_PARAMS", node_name="node1.example.com", vm_capable=False)
    assert error[1:] == [
        "Node node1.example.com hosts instances, cannot unset the vm_capable flag", "wrong_state",
    ]  # fmt: skip
    error, _ = store.refused("OP_NODE_REMOVE", node_name="node1.example.com")
    assert error[1].endswith("is still running on the node, please remove first")
    error, _ = store.refused("OP_NODE_REMOVE", node_name="node0.example.com")
    assert error[1] == "Node is the master node, failover to another node is required"


def test_a_removed_node_leaves_its_place_in_the_pool_to_another() -> None:
    store = HeldConfiguration(document(pool=3, node3=REGULAR))
    locks = store.locks("OP_NODE_REMOVE", node_name="node1.example.com")
    assert locks == LockNeeds(cluster=LevelNeeds(exclusive=("BGL",)))
    store.run("OP_NODE_REMOVE", node_name="node1.example.com")
    assert store.configuration.get(ObjectKind.NODE, NODES[1]) is None
    assert roles(store, 3) == ["master_candidate"]


@given(data=st.data(), pool=st.integers(1, 5))
def test_whatever_is_asked_no_node_has_two_roles_and_the_master_stays(
    data: st.DataObject, pool: int
) -> None:
    store = HeldConfiguration(document(pool=pool))
    for _ in range(4):
        fields = data.draw(st.dictionaries(st.sampled_from(ROLES), st.booleans(), min_size=1))
        fields["auto_promote"] = data.draw(st.booleans())
        # A refusal changes nothing.
        with contextlib.suppress(OperationError):
            setting(store, data.draw(st.integers(0, 3)), **fields)
        assert all(len(roles(store, number)) <= 1 for number in range(4))
        assert roles(store, 0) == ["master_candidate"]
