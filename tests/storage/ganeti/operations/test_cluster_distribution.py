"""``OP_CLUSTER_REDIST_CONF``: what it locks, and that it leaves out no node."""

from __future__ import annotations

import pytest
from tests import clusters
from tests.clusters import uuid_of
from tests.storage.ganeti.operations.played import locks, play

from ganger.storage.cluster.configuration import Configuration
from ganger.storage.opcodes import OperationError

DISTRIBUTE = "OP_CLUSTER_REDIST_CONF"


def configured(*, offline: int) -> Configuration:
    """A cluster of nine nodes, of which so many are offline."""
    made = clusters.made_configuration(nodes=9, instances=1)
    for number in range(1, 1 + offline):
        made["nodes"][uuid_of("nodes", number)]["offline"] = True
    return Configuration.load(made)


def test_it_shares_all_nodes() -> None:
    assert ("node/[lockset]", "shared") in locks(configured(offline=8), DISTRIBUTE)


def test_nothing_changes_where_no_other_node_is_online() -> None:
    outcome = play(configured(offline=8), DISTRIBUTE)
    assert (outcome.changes, outcome.result, outcome.log) == ((), None, ())


@pytest.mark.parametrize(
    ("offline", "named"),
    [
        (7, "node8.example.com"),
        (6, "node7.example.com, node8.example.com"),
        (1, ", ".join(f"node{number}.example.com" for number in range(2, 7)) + " and 2 more"),
    ],
)
def test_other_nodes_are_named_in_the_error(offline: int, named: str) -> None:
    with pytest.raises(OperationError) as caught:
        play(configured(offline=offline), DISTRIBUTE)
    text = f"cannot copy the configuration to {named}: nothing on this system reaches other nodes"
    assert (caught.value.name, list(caught.value.details)) == ("OpExecError", [text])
