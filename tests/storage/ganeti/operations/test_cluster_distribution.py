"""``OP_CLUSTER_REDIST_CONF``: what it locks."""

from __future__ import annotations

import pytest
from tests import clusters
from tests.clusters import uuid_of
from tests.storage.ganeti.operations.played import locks, play

from ganger.storage.cluster.configuration import Configuration

DISTRIBUTE = "OP_CLUSTER_REDIST_CONF"


def configured(*, offline: int) -> Configuration:
    """A cluster of nine nodes, of which so many are offline."""
    made = clusters.made_configuration(nodes=9, instances=1)
    for number in range(1, 1 + offline):
        made["nodes"][uuid_of("nodes", number)]["offline"] = True
    return Configuration.load(made)


def test_it_shares_all_nodes() -> None:
    assert ("node/[lockset]", "shared") in locks(configured(offline=8), DISTRIBUTE)


@pytest.mark.parametrize("offline", [8, 1])
def test_the_configuration_stays_as_it_is(offline: int) -> None:
    outcome = play(configured(offline=offline), DISTRIBUTE)
    assert (outcome.changes, outcome.result, outcome.log) == ((), None, ())
