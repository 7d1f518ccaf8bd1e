"""A host is held under the name and the UUID that the configuration has for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clusters import made_configuration, uuid_of
from tests.faults.harness import Daemon
from tests.system.gates import Gate, end, run_by, shell, statuses, until_running

from ganger import Client, JobStatus
from ganger.storage import config_files
from ganger.storage.cluster.objects import ObjectKind
from ganger.transport.messages import ObjectChange

SUCCESS = JobStatus.SUCCESS
NAMES = [f"node{number}.example.com" for number in range(2)]
NODES = [uuid_of("nodes", number) for number in range(2)]


@pytest.fixture(name="daemon")
def daemon_of_a_cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    (tmp_path / "data").mkdir()
    config_files.write(
        tmp_path / "data/config.data", made_configuration(nodes=2, instances=2, groups=2)
    )
    with Daemon(tmp_path, placement=getattr(request, "param", None)) as daemon:
        yield daemon


def tagging(node: str) -> dict[str, Any]:
    return {"OP_ID": "OP_TAGS_SET", "kind": "node", "name": node, "tags": ["seen"]}


def delay(node: str) -> dict[str, Any]:
    return {"OP_ID": "OP_TEST_DELAY", "duration": 0.01, "on_master": False, "on_nodes": [node]}


def command(node: str) -> dict[str, Any]:
    return shell("true") | {"locks": {"node": {"shared": [node]}}}


@pytest.mark.parametrize("daemon", ["together", "apart"], indirect=True)
@pytest.mark.parametrize("written", [NAMES[0], NODES[0]])
def test_a_host_is_held_whatever_jobs_call_it(daemon: Daemon, client: Client, written: str) -> None:
    daemon.run("hold", f"node/{written}")
    ops = (tagging, delay, command)
    held = [client.submit(op(NAMES[0])) for op in ops] + [client.submit(command(NODES[0]))]
    others = [client.submit(op(NAMES[1])) for op in ops] + [client.submit(command(NODES[1]))]
    assert set(end(client, *others).values()) == {SUCCESS}
    assert statuses(client, *held) == ["queued"] * 4
    # Of two names, people know this one.
    assert f"it takes node/{NAMES[0]} (" in client.explain(held[0]).text
    daemon.replace_killed()
    run_by(client)
    assert statuses(client, *held) == ["queued"] * 4
    daemon.run("release", f"node/{written}")
    assert set(end(client, *held).values()) == {SUCCESS}


@pytest.mark.parametrize("daemon", ["together", "apart"], indirect=True)
def test_when_the_configuration_changes_jobs_are_judged_again(client: Client, gate: Gate) -> None:
    first = client.submit(gate.job())
    until_running(client, first)
    client.add_filter(predicates=[["lock", ["=", "touches", f"node/{NODES[0]}"]]], action="PAUSE")
    zero, one = (client.submit(delay(name)) for name in NAMES)
    assert end(client, one) == {one: SUCCESS}
    late = client.submit(delay(NAMES[1]), depends=[first])
    assert statuses(client, zero, late) == ["queued", "waiting"]
    # The nodes get each other's names.
    [*found] = client.objects(ObjectKind.NODE, *NODES)
    names = {NODES[0]: NAMES[1], NODES[1]: NAMES[0]}
    client.change_objects(
        *(
            ObjectChange(
                kind=ObjectKind.NODE,
                uuid=node["uuid"],
                object=node | {"name": names[node["uuid"]]},
                serial_no=node["serial_no"],
            )
            for node in found
        )
    )
    assert end(client, zero) == {zero: SUCCESS}
    gate.let_through()
    end(client, first)
    run_by(client)
    assert statuses(client, late) == ["queued"]


def test_a_job_that_touches_a_host_perhaps_is_rejected_when_that_is_known(client: Client) -> None:
    client.add_filter(
        predicates=[["lock", ["=", "touches", f"node/{NODES[0]}"]]], action="REJECT", reason="gone"
    )
    rejected, done = (client.submit(tagging(name)) for name in NAMES)
    assert end(client, rejected, done) == {rejected: JobStatus.CANCELED, done: SUCCESS}
