"""Jobs that Ganeti 3.0 ran: our operations result in the same, in order.

The parameters and results are those of the recorded job files; the objects to compare with are in
the configuration that Ganeti wrote afterwards.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganger.storage import opcodes
from ganger.storage.cluster.configuration import Change, Configuration
from ganger.storage.cluster.integrity import problems
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.ganeti.operations import deciding
from ganger.storage.ganeti.operations.base import Circumstances, Outcome
from ganger.storage.opcodes import OperationError

DATA = Path(__file__).parent / "data"
RECORDED: dict[str, Any] = json.loads((DATA / "config.data").read_text())
RACK2 = "9356c736-496e-4140-bdbc-034ba6c6c2d3"
NET1 = "a2afc70c-965c-43d0-ba66-2bf9a40b3915"


def recorded_opcode(job_id: int) -> dict[str, Any]:
    """The first opcode in a job file: ``input``, ``result`` and ``log``."""
    [opcode] = json.loads((DATA / "queue" / f"job-{job_id}").read_text())["ops"]
    found: dict[str, Any] = opcode
    return found


class Replay:
    """The cluster before the first of these jobs: one node in one group, without instances."""

    def __init__(self) -> None:
        document = copy.deepcopy(RECORDED)
        groups = document["nodegroups"].items()
        document["nodegroups"] = {u: g for u, g in groups if g["name"] == "default"}
        for group in document["nodegroups"].values():
            group["networks"] = {}
        document.update(networks={}, instances={}, disks={})
        self.configuration = Configuration.load(document)

    def run(self, job_id: int, new_uuid: str, now: float) -> Outcome:
        """Run the opcode of this job, which logs and results in what Ganeti recorded."""
        recorded = recorded_opcode(job_id)
        opcode = opcodes.parse(recorded["input"])
        given = Circumstances(new_uuid, now)
        held = deciding.locks_of(opcode, self.configuration, given)
        outcome = deciding.decided(opcode, self.configuration, given._replace(held=held))
        assert outcome.result == recorded["result"]
        assert list(outcome.log) == recorded["log"]
        self.configuration = self.configuration.changed(outcome.changes, now)
        assert problems(self.configuration) == []
        return outcome

    def written(self, kind: str, uuid: str) -> bytes:
        """The object as it stands in the file."""
        return msgspec.json.encode(self.configuration.to_document()[kind][uuid])


def test_a_group_is_added_as_ganeti_adds_it() -> None:
    replay, recorded = Replay(), RECORDED["nodegroups"][RACK2]
    replay.run(4, RACK2, recorded["mtime"])
    assert replay.written("nodegroups", RACK2) == msgspec.json.encode(recorded)


def test_a_network_is_added_as_ganeti_adds_it() -> None:
    replay, recorded = Replay(), RECORDED["networks"][NET1]
    replay.run(5, NET1, recorded["mtime"])
    # Instances have got addresses since.
    unused = {**recorded, "reservations": "0" * len(recorded["reservations"])}
    assert replay.written("networks", NET1) == msgspec.json.encode(unused)


def test_a_network_is_connected_and_disconnected_as_by_ganeti() -> None:
    replay = Replay()
    replay.run(5, NET1, 1.0)
    [(default, before)] = replay.configuration.to_document()["nodegroups"].items()
    replay.run(6, NET1, 2.0)
    connected = replay.configuration.to_document()["nodegroups"][default]
    assert connected["networks"] == {NET1: {"mode": "bridged", "link": "xen-br0", "vlan": ""}}
    replay.run(18, NET1, 3.0)
    after = replay.configuration.to_document()["nodegroups"][default]
    assert after == {**before, "serial_no": before["serial_no"] + 2, "mtime": 3.0}


def test_a_connection_to_no_group_fails_as_in_ganeti() -> None:
    replay = Replay()
    replay.run(5, NET1, 1.0)
    with pytest.raises(OperationError) as raised:
        replay.run(7, NET1, 2.0)
    assert [raised.value.name, raised.value.details] == recorded_opcode(7)["result"]


def test_tags_are_set_as_by_ganeti() -> None:
    replay = Replay()
    tags = replay.configuration.cluster["tags"]
    assert "bench" in tags
    cluster = {**replay.configuration.cluster, "tags": [tag for tag in tags if tag != "bench"]}
    uuid = replay.configuration.cluster_uuid
    before = replay.configuration.changed([Change(ObjectKind.CLUSTER, uuid, cluster)], 1.0)
    replay.configuration = before
    replay.run(17, "", 2.0)
    assert replay.configuration.cluster == {
        **before.cluster,
        "tags": tags,
        "serial_no": before.cluster["serial_no"] + 1,
        "mtime": 2.0,
    }


def test_tags_of_an_unknown_instance_fail_as_in_ganeti() -> None:
    with pytest.raises(OperationError) as raised:
        Replay().run(16, "", 1.0)
    assert [raised.value.name, raised.value.details] == recorded_opcode(16)["result"]
