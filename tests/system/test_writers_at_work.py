"""Programs at WConfD's socket, clients and jobs change one object at a time: nothing is lost."""

# ruff: noqa: FBT003 - arguments of Ganeti's methods have no names

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import clusters
from tests.actors.ganeti.wconfd_calls import call
from tests.clusters import uuid_of
from tests.faults.harness import Daemon, until
from tests.system.ganeti.wconfd import Owners, connected

from ganger import Client
from ganger.storage import config_files, errors
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.locks.locks import Owner
from ganger.transport import messages
from ganger.transport.messages import ObjectChange

NODE, COUNT = uuid_of("nodes", 0), 10
PAUSE = threading.Event()
"""Never set: whoever waits for it comes back after a moment."""


@pytest.fixture(name="daemon", params=["together", "apart"])
def daemon_with_nodes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    (tmp_path / "data").mkdir()
    config_files.write(tmp_path / "data/config.data", clusters.made_configuration(instances=4))
    with Daemon(tmp_path, placement=request.param) as daemon:
        yield daemon


def with_lock(daemon: Daemon, tags: list[str]) -> None:
    """Lock, read, write and unlock the whole."""
    with Owners(daemon) as owners, connected(daemon) as wconfd:
        owner = owners.own(tags[0])
        for tag in tags:
            while (whole := wconfd.call("lockConfig", owner, False)) is None:
                PAUSE.wait(0.003)
            whole["nodes"][NODE]["tags"].append(tag)
            wconfd.call("writeConfig", owner, whole)
            wconfd.call("unlockConfig", owner)


def updating(daemon: Daemon, tags: list[str]) -> None:
    """Replace the node while nobody has the lock, if nobody has changed it."""
    with connected(daemon) as wconfd:
        for tag in tags:
            # WConfD's methods have no keys. If the store fails when it has stored an update, and
            # others change the node then, the update that is sent again is refused as overtaken.
            while tag not in (node := wconfd.call("readConfig")["nodes"][NODE])["tags"]:
                node["tags"].append(tag)
                try:
                    if wconfd.call("updateNode", node) is not None:
                        break
                except AssertionError as error:
                    assert "updated since it has been read" in str(error)  # noqa: PT017
                PAUSE.wait(0.003)


def comparing(daemon: Daemon, tags: list[str]) -> None:
    """Compare and set over ZeroMQ."""
    with daemon.client() as client:
        for tag in tags:
            while True:
                [node] = client.objects(ObjectKind.NODE, NODE)
                node["tags"].append(tag)
                serial_no = node["serial_no"]
                change = ObjectChange(
                    kind=ObjectKind.NODE, uuid=NODE, object=node, serial_no=serial_no
                )
                try:
                    client.change_objects(change)
                    break
                except errors.StaleSerialError:
                    pass


def by_jobs(daemon: Daemon, tags: list[str]) -> None:
    """An opcode for each tag."""
    opcode = {"OP_ID": "OP_TAGS_SET", "kind": "node", "name": "node0.example.com"}
    with daemon.client() as client:
        ids = client.submit_many([[opcode | {"tags": [tag]}] for tag in tags])
        found = client.wait(*ids, timeout=100)
        assert {str(job.status) for job in found} == {"success"}


def test_no_update_is_lost_although_components_fail(daemon: Daemon) -> None:
    problems: list[BaseException] = []

    def run(work: Callable[[Daemon, list[str]], None], tags: list[str]) -> None:
        try:
            work(daemon, tags)
        except BaseException as error:  # noqa: BLE001 - reported below
            problems.append(error)

    works = [with_lock, with_lock, updating, comparing, comparing, by_jobs]
    expected: set[str] = set()
    threads = []
    for number, work in enumerate(works):
        tags = [f"{work.__name__}-{number}-{count}" for count in range(COUNT)]
        expected.update(tags)
        threads.append(threading.Thread(target=run, args=(work, tags)))
    for thread in threads:
        thread.start()
    for component in ("config_store", "lock_manager", "config_store"):
        PAUSE.wait(0.2)
        daemon.crash(component)
    for thread in threads:
        thread.join(120)
    assert problems == []
    with daemon.client() as client:
        [node] = client.objects(ObjectKind.NODE, NODE)
        assert sorted(node["tags"]) == sorted(expected)
        assert client.locks() == []


# The same methods over ZeroMQ.


def ask(client: Client, message: Any) -> Any:
    return client._caller.call(message, 30)


def test_clients_read_the_whole_without_its_secrets(daemon: Daemon) -> None:
    with daemon.client() as client:
        whole = ask(client, call("readConfig", reveals=True)).value
        secrets = {str(one["osparams_private"]) for one in whole["instances"].values()}
        assert secrets == {"{'password': '<redacted>'}"}
        state = call("setInstanceStatus", uuid_of("instances", 0), "down", None, None, reveals=True)
        found = ask(client, state).value
        assert found["osparams_private"] == {"password": "<redacted>"}
        assert found["admin_state"] == "down"
        [entry, *_] = ask(client, messages.ReadHistory()).entries
        assert (entry.why, "pid" in entry.who) == ("setInstanceStatus", True)


def test_an_owner_is_the_process_at_the_other_end(daemon: Daemon) -> None:
    with Owners(daemon) as owners, daemon.client() as client:
        identifier, path, pid = owners.own("me")
        own = Owner(identifier, path, pid)
        whole = ask(client, call("lockConfig", own, False, reveals=True)).value
        assert "secret-0" not in str(whole)
        whole["nodes"][NODE]["tags"] = ["x"]
        assert ask(client, call("writeConfigAndUnlock", own, whole)).value is True
        assert client.objects(ObjectKind.NODE, NODE)[0]["tags"] == ["x"]
        assert ask(client, call("generateMAC", own, None)).value.startswith("aa:00:00:")
        for other in (Owner("me", path, 1), Owner(7, path, pid)):
            for message in (
                call("lockConfig", other, True),
                call("generateMAC", other, None),
            ):
                with pytest.raises(errors.NotAllowedError):
                    ask(client, message)


def test_a_job_whose_change_waits_for_the_configuration_lock_says_who_holds_it(
    daemon: Daemon,
) -> None:
    with Owners(daemon) as owners, connected(daemon) as wconfd, daemon.client() as client:
        somebody = owners.own("somebody")
        assert wconfd.call("lockConfig", somebody, True) is not None
        opcode = {"OP_ID": "OP_TAGS_SET", "kind": "node", "name": "node0.example.com"}
        job_id = client.submit([opcode | {"tags": ["asked"]}])
        until(client, job_id, JobStatus.RUNNING)
        end = time.monotonic() + 20.0
        while not (explained := client.explain(job_id)).obstacles:
            # The process has recorded its start, and its request is on its way to the store.
            assert time.monotonic() < end
            PAUSE.wait(0.02)
        assert explained.status is JobStatus.RUNNING
        assert explained.obstacles[0].lock == "cluster/config"
        assert "its opcode waits for cluster/config (exclusive)" in explained.text
        assert "'somebody'" in explained.text
        wconfd.call("unlockConfig", somebody)
        assert client.wait(job_id, timeout=20.0)[0].status is JobStatus.SUCCESS
        assert client.explain(job_id).obstacles == []


def test_a_change_that_waits_for_the_lock_hears_in_time_who_has_it(daemon: Daemon) -> None:
    with Owners(daemon) as owners, connected(daemon) as wconfd, daemon.client() as client:
        assert wconfd.call("lockConfig", owners.own("somebody"), True) is not None
        change = ObjectChange(
            kind=ObjectKind.NODE, uuid=NODE, object=client.objects(ObjectKind.NODE, NODE)[0]
        )
        for timeout in (0.4, 2.0):
            with pytest.raises(errors.DeadlineError) as caught:
                client.change_objects(change, timeout=timeout)
            assert "'somebody'" in caught.value.text
            assert "holds cluster/config (shared, since 2" in caught.value.text
