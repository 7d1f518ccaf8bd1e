"""Each command that works does so on a fresh data directory too, and after `ganger cluster init`.

Such a directory has neither nodes, groups nor instances, and a cluster with a name and hardly more.
For commands about a node or an instance the test makes one that has only what it must have.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.compatibility import ganeti_tools
from tests.compatibility.ganeti_tools import MASTER, Tools, good
from tests.compatibility.test_ganeti_tools_commands import WORKS, named
from tests.faults.harness import Daemon, until

from ganger import JobStatus
from ganger.storage.cluster.objects import ObjectKind
from ganger.transport.messages import ObjectChange

LOOKS: list[tuple[str, str]] = [
    ("gnt-cluster info", r"Cluster name: {cluster}\n(.*\n)*Master node: None\n(.*\n)*  std: \n"),
    ("gnt-cluster version", r"Software version: 3\.0\.2\n"),
    ("gnt-cluster getmaster", r"NO MASTER\n\Z"),
    ("gnt-cluster master-ping", r"\Z"),
    ("gnt-cluster show-ispecs-cmd", r"gnt-cluster init .*--ipolicy-bounds-specs min:.* {cluster}"),
    ("gnt-cluster list-tags", r"\Z"),
    ("gnt-cluster queue info", r"The drain flag is unset\n"),
    ("gnt-cluster watcher info", r"The watcher is not paused\.\n"),
    ("gnt-debug wconfd echo hello", r"Answer: hello\n"),
    ("gnt-debug locks", r"Name +Mode +Owner +Pending"),
    ("gnt-job list", r"ID Status Summary\n\Z"),
    ("gnt-job list-fields", r"Name "),
    ("gnt-filter list", r"UUID .*\n\Z"),
    ("gnt-filter list-fields", r"Name "),
    ("gnt-group list", r"Group +Nodes .*\n\Z"),
    ("gnt-group list-fields", r"Name "),
    ("gnt-network list", r"Network +Subnet .*\n\Z"),
    ("gnt-network list-fields", r"Name "),
    ("gnt-node list", r"Node +DTotal .*\n\Z"),
    ("gnt-node list-fields", r"Name "),
    ("gnt-node info", r"\n\Z"),
    ("gnt-instance list", r"Instance +Hypervisor .*\n\Z"),
    ("gnt-instance list-fields", r"Name "),
    ("gnt-backup list", r"Node +Export\n\Z"),
    ("gnt-backup list-fields", r"Name "),
]
"""Of a directory in which nobody has done anything."""

CHANGES: list[tuple[str, str]] = [
    ("gnt-cluster add-tags blue", r"\Z"),
    ("gnt-cluster list-tags", r"blue\n\Z"),
    ("gnt-cluster search-tags ^blue$", r"/cluster blue\n\Z"),
    ("gnt-cluster remove-tags blue", r"\Z"),
    ("gnt-cluster modify --candidate-pool-size=7 -B vcpus=2", r"\Z"),
    ("gnt-cluster modify -N link=br0", r"\Z"),
    ("gnt-cluster modify --ipolicy-vcpu-ratio=5 -N mode=bridged,link=br1", r"\Z"),
    ("gnt-cluster modify --enabled-disk-templates=diskless", r"\Z"),
    ("gnt-cluster modify --enabled-hypervisors=fake", r".* - WARNING: No node was asked "),
    ("gnt-cluster info", r"(.*\n)*    vcpus: 2\n(.*\n)*  vcpu-ratio: 5\.0\n"),
    ("gnt-cluster show-ispecs-cmd", r"gnt-cluster init .*--ipolicy-bounds-specs min:"),
    ("gnt-cluster redist-conf", r"\Z"),
    ("gnt-cluster verify", r"Submitted jobs \d+\n(.*\n)*.*\* Verifying cluster config\n"),
    ("gnt-cluster queue drain", r"\Z"),
    ("gnt-cluster queue undrain", r"\Z"),
    ("gnt-cluster watcher pause 1h", r"The watcher is paused until "),
    ("gnt-cluster watcher continue", r"The watcher is no longer paused\.\n"),
    ("gnt-os modify --hidden=yes noop", r"\Z"),
    ("gnt-group add rack9", r"\Z"),
    ("gnt-group info", r"- Node group: rack9\n(.*\n)*    bounds specs: \n      - m(ax|in)/0: \n"),
    ("gnt-group show-ispecs-cmd rack9", r"gnt-group add rack9\n"),
    ("gnt-group modify --alloc-policy=last_resort rack9", r"\Z"),
    ("gnt-group rename rack9 rack1", r"\Z"),
    ("gnt-group add-tags rack1 cold", r"\Z"),
    ("gnt-group list-tags rack1", r"cold\n\Z"),
    ("gnt-group remove-tags rack1 cold", r"\Z"),
    ("gnt-group list", r"Group .*\nrack1 +0 +0 last_resort "),
    ("gnt-group add rack2", r"\Z"),
    ("gnt-group remove rack2", r"\Z"),
    ("gnt-network add --network=10.9.0.0/28 net9", r"\Z"),
    ("gnt-network modify --gateway=10.9.0.1 net9", r"\Z"),
    ("gnt-network connect -N mode=bridged,link=br9 net9 rack1", r"\Z"),
    ("gnt-network list", r"Network .*\nnet9 +10\.9\.0\.0/28 10\.9\.0\.1 "),
    ("gnt-network info", r"Network name: net9\n"),
    ("gnt-network disconnect net9 rack1", r"\Z"),
    ("gnt-network add-tags net9 wide", r"\Z"),
    ("gnt-network list-tags net9", r"wide\n\Z"),
    ("gnt-network remove-tags net9 wide", r"\Z"),
    ("gnt-network remove -f net9", r"\Z"),
]
"""In an order in which each finds what it needs."""

OBJECTS: list[tuple[str, str]] = [
    (f"gnt-group assign-nodes rack1 {MASTER}", r"\Z"),
    ("gnt-node list", rf"Node +DTotal .*\n{re.escape(MASTER)}( +\?){{{{5}}}} +1 +0\n\Z"),
    ("gnt-node info", rf"- Node name: {re.escape(MASTER)}\n"),
    (f"gnt-node add-tags {MASTER} quiet", r"\Z"),
    (f"gnt-node list-tags {MASTER}", r"quiet\n\Z"),
    (f"gnt-node remove-tags {MASTER} quiet", r"\Z"),
    (f"gnt-node modify --node-parameters=ssh_port=23 {MASTER}", r""),
    (
        "gnt-instance list",
        r"Instance .*\ninst1\.example\.com fake +noop +node1\.example\.com ERROR",
    ),
    ("gnt-instance add-tags inst1.example.com new", r"\Z"),
    ("gnt-instance list-tags inst1.example.com", r"new\n\Z"),
    ("gnt-instance remove-tags inst1.example.com new", r"\Z"),
    ("gnt-backup list", r"Node +Export\nnode1\.example\.com \?\n\Z"),
    ("gnt-cluster info", r"Cluster name: "),
]
"""With a node and an instance."""

JOBS: list[tuple[str, str]] = [
    ("gnt-filter add --action=PAUSE --reason=later", r"(?P<uuid>\S+)\n"),
    ("gnt-filter list", r"UUID .*\n{uuid} "),
    ("gnt-filter info {uuid}", r"UUID: {uuid}\n"),
    ("gnt-debug delay --submit --no-master 0.01", r"JobID: (?P<job>\d+)\n"),
    ("gnt-debug delay --submit --no-master 60", r"JobID: (?P<other>\d+)\n"),
    ("gnt-job change-priority --priority=low {job}", r"Priorities of pending opcodes for job "),
    ("gnt-job cancel {other}", r"Dequeued job {other}\n\Z"),
    ("gnt-job list", r"ID Status .*\n(.*\n)*{job} +queued +TEST_DELAY"),
    ("gnt-filter replace --action=ACCEPT {uuid}", r"{uuid}\n|\Z"),
    ("gnt-job wait {job}", r"\Z"),
    ("gnt-job watch {job}", r"Output from job {job} follows\n"),
    ("gnt-job info {job}", r"- Job ID: {job}\n"),
    ("gnt-filter delete {uuid}", r"\Z"),
    ("gnt-job archive {job}", r"\Z"),
    ("gnt-job autoarchive all", r"Archived \d+ jobs, 0 unchecked left\n"),
    ("gnt-debug submit-job {file}", r"Waiting for job \d+ for file {file}/0 \.\.\.\n(?!.*failed)"),
]
"""What the commands name is what those before them printed."""


def test_every_command_that_works_is_tried_on_a_fresh_directory() -> None:
    tried = {named(command) for command, _ in LOOKS + CHANGES + OBJECTS + JOBS}
    # The only node is the master, which is never removed and has no host.
    assert tried == WORKS - {"gnt-node remove", "gnt-node restricted-command"}


class Fresh:
    """The tools with a daemon that made its directory itself."""

    def __init__(self, tools: Tools, daemon: Daemon, cluster: str) -> None:
        self._tools = tools
        self.daemon = daemon
        self.known = {"cluster": cluster}

    def play(self, story: list[tuple[str, str]]) -> None:
        """Run the commands, each of which must print what is expected."""
        for command, expected in story:
            done = self._tools.run(*command.format(**self.known).split())
            # Ids of jobs go there.
            shown = done.stderr if " --submit " in command else good(done)
            found = re.match(expected.format(**self.known), shown)
            assert found is not None, (command, shown)
            self.known |= found.groupdict()


@pytest.fixture(params=["fresh", "initialised"])
def fresh(request: pytest.FixtureRequest) -> Iterator[Fresh]:
    if reason := ganeti_tools.problem():
        pytest.skip(reason)
    # A short path, for the socket.
    with tempfile.TemporaryDirectory(prefix="gnt-") as folder, Tools(Path(folder)) as tools:
        daemon = Daemon(tools.root, "--luxi-socket", str(tools.socket), holds_back=True)
        with daemon:
            if request.param == "initialised":
                daemon.run("cluster", "init", "cluster.example.com")
            ours = tools.root / "lib" / "ganeti"
            ours.rmdir()
            ours.symlink_to(daemon.places.ssconf)
            tools.socket.with_name("ganeti-wconfd").symlink_to(daemon.places.wconfd_socket)
            name = "ganger" if request.param == "fresh" else "cluster.example.com"
            yield Fresh(tools, daemon, name)


def test_a_job_that_is_held_back_is_queued_and_no_waiter(fresh: Fresh) -> None:
    """The page says so, and how to have it as in Ganeti."""
    delay = f"gnt-debug delay --submit --no-master -n {MASTER} 600"
    fresh.play([(delay, r"JobID: (?P<holder>\d+)\n")])
    with fresh.daemon.client() as client:
        # Its locks are known from now on, also to the scheduler.
        until(client, int(fresh.known["holder"]), JobStatus.RUNNING)
        fresh.play([(delay, r"JobID: (?P<other>\d+)\n")])
        assert client.job(int(fresh.known["other"])).status is JobStatus.QUEUED
        fresh.play(
            [
                ("gnt-job list --no-headers {other}", r"{other} queued "),
                ("gnt-debug locks", r"(.*\n)*node/\S+ +exclusive +{holder} +-\n"),
            ]
        )
        fresh.daemon.run("cluster", "modify", "--no-hold-back")
        until(client, int(fresh.known["other"]), JobStatus.WAITING)
        fresh.play(
            [("gnt-debug locks", r"(.*\n)*node/\S+ +exclusive +{holder} +exclusive:{other}\n")]
        )
        for job in ("other", "holder"):
            client.cancel(int(fresh.known[job]), kill=True)


def made(group: str) -> list[ObjectChange]:
    """A node and an instance with what they must have, and nothing more."""
    stamps = {"ctime": 0.0, "mtime": 0.0, "serial_no": 1}
    address = {"primary_ip": "10.77.0.1", "secondary_ip": "10.77.0.1"}
    flags: dict[str, Any] = dict.fromkeys(("offline", "drained"), False)
    flags |= dict.fromkeys(("master_candidate", "master_capable", "vm_capable", "powered"), True)
    node = {
        "uuid": "n1",
        "name": MASTER,
        "group": group,
        "tags": [],
        "ndparams": {},
        **address,
        **flags,
        **stamps,
    }
    instance = {
        "uuid": "i1",
        "name": "inst1.example.com",
        "primary_node": "n1",
        "admin_state": "up",
        "admin_state_source": "admin",
        "disk_template": "diskless",
        "disks": [],
        "disks_active": False,
        "hypervisor": "fake",
        "os": "noop",
        "nics": [],
        "tags": [],
        "beparams": {},
        "hvparams": {},
        "osparams": {},
        "osparams_private": {},
        **stamps,
    }
    return [
        ObjectChange(kind=ObjectKind.NODE, uuid="n1", object=node),
        ObjectChange(kind=ObjectKind.INSTANCE, uuid="i1", object=instance),
    ]


def test_each_command_works_there(fresh: Fresh, tmp_path: Path) -> None:
    fresh.play(LOOKS)
    fresh.play(CHANGES)
    with fresh.daemon.client() as client:
        [group] = client.objects("nodegroups")
        client.change_objects(*made(group["uuid"]))
    fresh.play(OBJECTS)
    file = tmp_path / "ops.json"
    file.write_text(json.dumps([{"OP_ID": "OP_TEST_DELAY", "duration": 0.01, "on_master": False}]))
    fresh.known["file"] = str(file)
    fresh.play(JOBS)
