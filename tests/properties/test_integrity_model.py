"""The check of a batch of changes against the check of the whole configuration before and after.

The index must accept exactly those batches after which the whole check finds no problem that it did
not find before, and must then hold what an index made anew would hold.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.clusters import made_configuration, uuid_of

from ganger.storage import errors
from ganger.storage.cluster.configuration import Change, Configuration
from ganger.storage.cluster.integrity import Index
from ganger.storage.cluster.objects import CONTAINERS, ObjectKind

SMALL = made_configuration(nodes=3, instances=3, groups=2, networks=2)
CLUSTER = uuid_of("cluster", 0)
UUIDS = {kind: [*SMALL[kind], "new"] for kind in CONTAINERS}
NAMES = ["node0.example.com", "instance1.example.com", "group1", "network0", "free", "*"]
NODES = [*SMALL["nodes"], "gone"]
PORTS = [10_999, 11_000, 11_001, 11_003, 11_100]
ADDRESSES = ["10.0.0.1", "10.64.0.2", "10.128.0.10", "192.0.2.1", "192.0.2.9"]

FIELDS: dict[ObjectKind, dict[str, list[Any]]] = {
    ObjectKind.CLUSTER: {
        "master_node": [*NODES, ""],
        "master_ip": ADDRESSES,
        "tcpudp_port_pool": [[], [10_999], [11_001, 11_100], [10_999, 10_999]],
        "highest_used_port": [11_000, 11_004, 11_050, 12_000],
        "candidate_pool_size": [1, 2, 10, "3"],
        "enabled_hypervisors": [[], ["kvm"], ["fake"], ["kvm", "lxc"]],
        "enabled_disk_templates": [["drbd"], ["drbd", "plain"], []],
        "tags": [[], ["a b"]],
    },
    ObjectKind.NODE: {
        "name": NAMES,
        "uuid": NODES,
        "primary_ip": ADDRESSES,
        "secondary_ip": ADDRESSES,
        "group": [*SMALL["nodegroups"], "gone", 3],
        "master_candidate": [True, False],
        "offline": [True, False],
        "master_capable": [True, False],
    },
    ObjectKind.NODE_GROUP: {
        "name": NAMES,
        "networks": [{}, {uuid_of("networks", 1): {}}, {"gone": {}}],
    },
    ObjectKind.INSTANCE: {
        "name": NAMES,
        "primary_node": NODES,
        "hypervisor": ["kvm", "fake", "lxc"],
        "network_port": PORTS,
        "disks": [[], [uuid_of("disks", 0)], [uuid_of("disks", 0), uuid_of("disks", 1)], ["gone"]],
        "nics": [
            [],
            *(instance["nics"] for instance in SMALL["instances"].values()),
            [{"uuid": "n", "mac": "aa:00:00:00:00:01", "nicparams": {}, "network": "gone"}],
            [{"uuid": "n", "mac": "aa:00:00:00:00:09", "nicparams": {}, "ip": "10.128.0.10"}] * 2,
        ],
    },
    ObjectKind.NETWORK: {"name": NAMES, "network": ["10.128.0.0/24", None]},
    ObjectKind.DISK: {
        "dev_type": ["plain", "drbd", "file"],
        "nodes": [NODES[:1], NODES[1:3], ["gone"]],
        "logical_id": [
            ["xenvg", "lv"],
            [*NODES[:2], 11_001, 0, 0, "s"],
            [*NODES[1:3], 11_100, 0, 2, "s"],
            [NODES[0], NODES[0], 11_003, 2, 2, "s"],
            [NODES[2], "gone", 10_999, 1, 1, "s"],
        ],
        "children": [[], SMALL["disks"][uuid_of("disks", 2)]["children"]],
    },
    ObjectKind.FILTER: {"watermark": [1, 2]},
}


def template(kind: ObjectKind) -> dict[str, Any]:
    """An object of this kind."""
    if kind is ObjectKind.FILTER:
        return {"uuid": "new", "watermark": 0}
    found: dict[str, Any] = (
        SMALL["cluster"] if kind is ObjectKind.CLUSTER else {**min(SMALL[kind].items())[1]}
    )
    return found


@st.composite
def edits(draw: Any) -> tuple[ObjectKind, str, dict[str, Any] | None]:
    """An object that comes or changes, with the fields that it gets; None: it goes."""
    kind = draw(st.sampled_from(list(ObjectKind)))
    uuid = CLUSTER if kind is ObjectKind.CLUSTER else draw(st.sampled_from(UUIDS[kind]))
    if kind is not ObjectKind.CLUSTER and draw(st.integers(0, 3)) == 0:
        return kind, uuid, None
    names = draw(st.lists(st.sampled_from(list(FIELDS[kind])), max_size=2, unique=True))
    return kind, uuid, {name: draw(st.sampled_from(FIELDS[kind][name])) for name in names}


class IntegrityModel(RuleBasedStateMachine):
    """A store that reads everything before and after each batch, beside one that does not."""

    @initialize(damage=st.lists(edits(), max_size=2))
    def load(self, damage: list[tuple[ObjectKind, str, dict[str, Any] | None]]) -> None:
        """Begin with a configuration that may have problems already."""
        good = Configuration.load(copy.deepcopy(SMALL))
        self.configuration = good.changed(self.changes(good, damage), 1.0)
        self.index = Index(self.configuration)

    def changes(
        self, before: Configuration, batch: list[tuple[ObjectKind, str, dict[str, Any] | None]]
    ) -> list[Change]:
        found: dict[tuple[ObjectKind, str], Change] = {}
        for kind, uuid, fields in batch:
            old = before.get(kind, uuid)
            if fields is not None:
                made = {**(old or template(kind) | {"uuid": uuid}), **fields}
                found[kind, uuid] = Change(kind, uuid, made)
            elif old is not None:
                found[kind, uuid] = Change(kind, uuid, None)
        return list(found.values())

    def whole(self, configuration: Configuration) -> set[tuple[str, str]]:
        problems = Index(configuration).problems(configuration)
        return {(problem.place, problem.rule) for problem in problems}

    @rule(batch=st.lists(edits(), max_size=4), is_stored=st.integers(0, 4))
    def change(
        self, batch: list[tuple[ObjectKind, str, dict[str, Any] | None]], is_stored: int
    ) -> None:
        before = self.configuration
        changes = self.changes(before, batch)
        after = before.changed(changes, 2.0)
        added = self.whole(after) - self.whole(before)
        if added:
            with pytest.raises(errors.IntegrityError):
                self.index.accept(before, after, changes)
            return
        self.index.accept(before, after, changes)
        if is_stored:
            self.configuration = after
        else:
            self.index.take_back(before, after, changes)

    @rule()
    def start_again(self) -> None:
        """Most changes are refused at last: begin with what fits."""
        self.configuration = Configuration.load(copy.deepcopy(SMALL))
        self.index = Index(self.configuration)

    @invariant()
    def the_index_is_what_a_new_one_would_be(self) -> None:
        if not hasattr(self, "index"):
            return
        assert contents(self.index) == contents(Index(self.configuration))


def contents(index: Index) -> dict[str, Any]:
    """All that the index holds; the order of places tells in which order the objects came."""
    found = vars(index)
    unordered = {
        name: {key: sorted(places) for key, places in found[name].items()}
        for name in ("_holders", "_ports")
    }
    return found | unordered


TestIntegrity = IntegrityModel.TestCase
TestIntegrity.settings = settings(max_examples=60, stateful_step_count=12)
