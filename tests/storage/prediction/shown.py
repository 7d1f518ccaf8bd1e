"""A made configuration, and forecasts in it as short lines."""

from __future__ import annotations

from tests.clusters import made_configuration, uuid_of

from ganger.storage.cluster.configuration import Configuration
from ganger.storage.prediction.declared_needs import LookupSnapshot
from ganger.storage.prediction.lock_types import LEVELS, LevelForecast, LockForecast

# Six nodes in two groups: even ones in group0, odd ones in group1. Instance 0 has its primary node
# on node 0; every other instance has a DRBD disk, with the second node behind the first.
DOCUMENT = made_configuration(nodes=6, instances=12, networks=2)
SNAPSHOT = Configuration.load(DOCUMENT)
NAMES = LookupSnapshot(SNAPSHOT)
NODES = {uuid_of("nodes", number): f"n{number}" for number in range(6)}
GROUPS = {uuid_of("nodegroups", number): f"g{number}" for number in range(2)}
NETWORKS = {uuid_of("networks", number): f"w{number}" for number in range(2)}
SHORT = NODES | GROUPS | NETWORKS | {
    f"instance{number}.example.com": f"i{number}" for number in range(12)
}  # fmt: skip
MARKS = {
    "shared": "s",
    "unknown_shared": "s?",
    "all_shared": "s*",
    "exclusive": "X",
    "unknown_exclusive": "X?",
    "all_exclusive": "X*",
}


def shown(found: LockForecast) -> str:
    """A forecast in one line: `instance X i1, node s* `."""
    if found.big_lock == "exclusive":
        return "everything"
    levels = [(level, getattr(found, level)) for level in LEVELS]
    return ", ".join(f"{level} {_level(own)}" for level, own in levels if own != LevelForecast())


def _level(own: LevelForecast) -> str:
    return " ".join([MARKS[own.type.value], *sorted(SHORT.get(name, name) for name in own.names)])
