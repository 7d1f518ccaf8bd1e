"""Opcodes of node groups and networks, run by a real daemon, through client and command line."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clusters import made_configuration, uuid_of
from tests.faults.harness import Daemon, until
from tests.seeds import seed
from tests.storage.ganeti.operations.held_configuration import HeldConfiguration
from tests.system.gates import IN_BOTH_PLACEMENTS, Gate, end, until_running

from ganger import Client, JobStatus
from ganger.storage import config_files
from ganger.storage.jobs.job_views import OpInfo

GROUP0, GROUP1 = uuid_of("nodegroups", 0), uuid_of("nodegroups", 1)
NETWORK0 = uuid_of("networks", 0)


@pytest.fixture(name="daemon")
def daemon_of_a_cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """Two nodes in a group each, two instances; a network that both groups are connected to."""
    made = Daemon(tmp_path, placement=getattr(request, "param", None))
    made.data.mkdir(mode=0o750)
    document = made_configuration(nodes=2, instances=2)
    # A job that waits for a lock is to be seen with a process.
    document["cluster"]["predictive_queue"] = {"holds_back": False}
    config_files.write(made.places.config, document)
    with made as daemon:
        yield daemon


def op(name: str, **parameters: Any) -> dict[str, Any]:
    return {"OP_ID": f"OP_{name}", **parameters}


def connect(group: str, network: str, link: str) -> dict[str, Any]:
    return op(
        "NETWORK_CONNECT",
        group_name=group,
        network_name=network,
        network_mode="bridged",
        network_link=link,
    )


def disconnect(group: str, network: str) -> dict[str, Any]:
    return op("NETWORK_DISCONNECT", group_name=group, network_name=network)


def opcodes_of(client: Client, job_id: int) -> list[OpInfo]:
    found = client.job(job_id).ops
    assert found is not None
    return found


def run(client: Client, *ops: dict[str, Any]) -> list[Any]:
    """Run a job of these opcodes; their results."""
    job_id = client.submit(list(ops))
    client.wait(job_id, timeout=60)
    return [opcode.result for opcode in opcodes_of(client, job_id)]


def logged(client: Client, job_id: int) -> list[str]:
    """The log of the first opcode of a job."""
    return [line.text for line in opcodes_of(client, job_id)[0].log]


def containers(client: Client) -> dict[str, list[dict[str, Any]]]:
    """Nodes, groups and networks, without their serial numbers and times."""
    return {
        kind: [
            {name: value for name, value in found.items() if name not in ("serial_no", "mtime")}
            for found in client.objects(kind)
        ]
        for kind in ("nodes", "nodegroups", "networks")
    }


@IN_BOTH_PLACEMENTS
def test_a_whole_life_of_a_group_and_a_network(client: Client) -> None:
    before = containers(client)
    found = run(
        client,
        op("GROUP_ADD", group_name="rack", ndparams={"ssh_port": "2222"}),
        op("GROUP_RENAME", group_name="rack", new_name="rack2"),
        op("GROUP_SET_PARAMS", group_name="rack2", alloc_policy="last_resort"),
        op("GROUP_SET_PARAMS", group_name="rack2", ndparams={"ssh_port": "default"}),
        op("GROUP_ASSIGN_NODES", group_name="rack2", nodes=["node1"], force=True),
        op("NETWORK_ADD", network_name="lan", network="10.0.0.0/24", gateway="10.0.0.254"),
        op("NETWORK_RENAME", network_name="lan", new_name="lan2"),
        op("NETWORK_SET_PARAMS", network_name="lan2", add_reserved_ips=["10.0.0.9"]),
        connect("rack2", "lan2", "br9"),
    )
    assert found == [
        None, "rack2", [], [["ndparams", "{}"]], None, None, "lan2", None, None,
    ]  # fmt: skip
    [group], [network] = client.objects("nodegroups", "rack2"), client.objects("networks", "lan2")
    assert group["networks"] == {network["uuid"]: {"mode": "bridged", "link": "br9", "vlan": ""}}
    assert (group["alloc_policy"], group["ndparams"]) == ("last_resort", {})
    places = [place for place, digit in enumerate(network["ext_reservations"]) if digit == "1"]
    # Network, both nodes, the address that was named, gateway, broadcast.
    assert places == [0, 1, 2, 9, 254, 255]
    [node] = client.objects("nodes", "node1.example.com")
    assert node["group"] == group["uuid"]
    found = run(
        client,
        op("GROUP_ASSIGN_NODES", group_name="group1", nodes=["node1"], force=True),
        disconnect("rack2", "lan2"),
        op("NETWORK_REMOVE", network_name="lan2"),
        op("GROUP_REMOVE", group_name="rack2"),
    )
    assert found == [None] * 4
    assert containers(client) == before
    newest = client.config_history(count=1)[0]
    assert (newest.who, newest.why) == ("job 2", "GROUP_REMOVE(rack2)")


def test_what_stands_in_the_way_is_in_the_error_and_the_log(client: Client) -> None:
    assert run(client, op("NETWORK_REMOVE", network_name="network0")) == [
        ["OpPrereqError", ["Network still connected", "wrong_state"]]
    ]
    [text] = logged(client, 1)
    assert text == (
        " - WARNING: Network 'network0' is connected to the following node groups: group0, group1"
    )
    assert run(client, disconnect("group0", "network0")) == [
        [
            "OpPrereqError",
            [
                (
                    "Conflicting IP addresses found;  remove/modify the corresponding network"
                    " interfaces"
                ),
                "wrong_state",
            ],
        ]
    ]
    assert "instance0.example.com: nic0/10.128.0.10" in logged(client, 2)[0]
    assert run(client, op("GROUP_ADD", group_name="group1")) == [
        [
            "OpPrereqError",
            [
                f"Desired group name 'group1' already exists as a node group (UUID: {GROUP1})",
                "already_exists",
            ],
        ]
    ]
    assert run(client, op("GROUP_SET_PARAMS", group_name="group0")) == [
        ["OpPrereqError", ["Please pass at least one modification", "wrong_input"]]
    ]
    assert run(client, op("GROUP_SET_PARAMS", group_name="group0", ndparams={"ssh_port": "x"})) == [
        ["TypeEnforcementError", ["'ssh_port' (value x) is not a valid integer"]]
    ]
    assert client.config_history(count=9) == []


def test_the_command_line_runs_them_and_shows_their_errors(daemon: Daemon) -> None:
    def submit(opcode: dict[str, Any]) -> Any:
        return daemon.run("job", "submit", "--op", json.dumps(opcode), "--wait", check=False)

    split = op("GROUP_ASSIGN_NODES", group_name="group1", nodes=["node0"])
    assert submit(split).returncode == 0
    assert submit(op("GROUP_ADD", group_name="rack")).returncode == 0
    split["group_name"] = "rack"
    failed = submit(split)
    assert failed.returncode != 0
    told = daemon.run("job", "info", failed.stdout.strip(), text="").stdout
    assert "The following instances get split by this change" in told
    assert submit(split | {"force": True}).returncode == 0
    shown = daemon.run("config", "get", "nodegroups/rack/name", text="").stdout
    assert json.loads(shown) == "rack"
    missing = submit(op("NETWORK_ADD", network_name="lan"))
    assert missing.returncode != 0
    assert "OP_NETWORK_ADD: missing parameter 'network'" in missing.stderr


@IN_BOTH_PLACEMENTS
def test_two_jobs_that_need_one_group_run_one_after_the_other(client: Client, gate: Gate) -> None:
    run(client, op("NETWORK_ADD", network_name="lan", network="10.9.0.0/24"))
    holder = client.submit(gate.job(locks={"nodegroup": {"exclusive": [GROUP0]}}))
    until_running(client, holder)
    first = client.submit(connect("group0", "lan", "br1"))
    until(client, first, JobStatus.WAITING)
    second = client.submit([disconnect("group0", "lan"), connect("group0", "lan", "br2")])
    until(client, second, JobStatus.WAITING)
    elsewhere = client.submit(connect("group1", "lan", "br3"))
    assert end(client, elsewhere) == {elsewhere: JobStatus.SUCCESS}
    assert client.job(first).status is client.job(second).status is JobStatus.WAITING
    gate.let_through()
    assert end(client, holder, first, second) == dict.fromkeys(
        [holder, first, second], JobStatus.SUCCESS
    )
    links = {
        group["name"]: connection["link"]
        for group in client.objects("nodegroups")
        for network, connection in group["networks"].items()
        if network != NETWORK0
    }
    assert links == {"group0": "br2", "group1": "br3"}


def test_a_job_whose_group_changed_while_it_waited_is_refused(client: Client, gate: Gate) -> None:
    run(client, op("GROUP_ADD", group_name="rack"))
    [rack] = client.objects("nodegroups", "rack")
    holder = client.submit(gate.job(locks={"nodegroup": {"exclusive": [GROUP1]}}))
    until_running(client, holder)
    waiting = client.submit(
        op("GROUP_ASSIGN_NODES", group_name="group0", nodes=["node1"], force=True)
    )
    until(client, waiting, JobStatus.WAITING)
    # The tool of an administrator, which asks no job.
    client.set_values("nodes", "node1.example.com", {"group": rack["uuid"]}, why="a test")
    gate.let_through()
    client.wait(waiting, timeout=60)
    [opcode] = opcodes_of(client, waiting)
    name, [text] = opcode.result
    assert name == "OpExecError"
    assert text.startswith("Nodes changed groups since locks were acquired, current groups are '")
    assert text.endswith(f"', used to be '{GROUP0}, {GROUP1}'")


# ---------------------------------------------------------------- contention

JOBS = 100
GROUPS = ["group0", "group1", "rack0", "rack1"]
NETWORKS = ["network0", "lan0", "lan1"]


def any_opcode(chance: random.Random) -> dict[str, Any]:
    """One that may succeed or fail, whatever others do at the same time."""
    group, network = chance.choice(GROUPS), chance.choice(NETWORKS)
    number = chance.randrange(2, 250)
    node = f"node{chance.randrange(2)}"
    return chance.choice(
        [
            op("GROUP_ADD", group_name=group),
            op("GROUP_REMOVE", group_name=group),
            op("GROUP_RENAME", group_name=group, new_name=chance.choice(GROUPS)),
            op("GROUP_SET_PARAMS", group_name=group, ndparams={"ssh_port": number}),
            op("GROUP_ASSIGN_NODES", group_name=group, nodes=[node], force=True),
            op("NETWORK_ADD", network_name=network, network="10.9.0.0/24"),
            op("NETWORK_REMOVE", network_name=network),
            op("NETWORK_SET_PARAMS", network_name=network, add_reserved_ips=[f"10.9.0.{number}"]),
            connect(group, network, f"br{number}"),
            disconnect(group, network),
        ]
    )


class Replay:
    """The changes that the history has, made again in its order; and what they must result in."""

    def __init__(self, client: Client) -> None:
        self.store = HeldConfiguration(made_configuration(nodes=2, instances=2))
        self.jobs: set[int] = set()
        for entry in reversed(client.config_history(count=1_000)):
            job_id = int(entry.who.removeprefix("job "))
            assert job_id not in self.jobs, "an opcode ran twice"
            self.jobs.add(job_id)
            [opcode] = opcodes_of(client, job_id)
            # A new object is made anew with the UUID that it got.
            made = [path.partition("/")[2] for path, before, _ in entry.changes if before is None]
            parameters = {name: opcode.input[name] for name in opcode.input if name != "OP_ID"}
            outcome = self.store.run(opcode.op_id, made[0] if made else "none", **parameters)
            assert outcome.changes
            assert opcode.result == outcome.result


def unstamped(found: dict[str, Any]) -> dict[str, Any]:
    stamps = ("serial_no", "mtime", "ctime")
    return {name: value for name, value in found.items() if name not in stamps}


@IN_BOTH_PLACEMENTS
def test_contending_jobs_change_the_configuration_one_after_the_other(
    daemon: Daemon, client: Client
) -> None:
    chance = random.Random(f"{seed()} {daemon.placement}")
    ids = client.submit_many([[any_opcode(chance)] for _ in range(JOBS)])
    client.wait(*ids[: JOBS // 3], timeout=60)
    daemon.replace_killed()
    with daemon.client() as successor:
        ended = {job.id: job.status for job in successor.wait(*ids, timeout=60)}
        assert set(ended.values()) == {JobStatus.SUCCESS, JobStatus.ERROR}
        replay = Replay(successor)
        assert replay.store.problems() == []
        assert {ended[job_id] for job_id in replay.jobs} == {JobStatus.SUCCESS}
        document = replay.store.configuration.to_document()
        for kind in ("nodes", "nodegroups", "networks"):
            found = {one["uuid"]: unstamped(one) for one in successor.objects(kind)}
            assert found == {uuid: unstamped(one) for uuid, one in document[kind].items()}
