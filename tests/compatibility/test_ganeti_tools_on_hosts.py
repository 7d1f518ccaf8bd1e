"""Ganeti's own tools on a cluster whose nodes are hosts that have joined."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.compatibility import ganeti_tools
from tests.compatibility.ganeti_tools import Tools, good
from tests.faults.harness import Daemon, wait_until_true
from tests.system.gates import until_running
from tests.system.hosts import Host, joined_host, until_there

from ganger import Client
from ganger.actors.nodes.node_figures import ANSWER_SECONDS
from ganger.actors.operations.restricted_commands import REFUSED_SECONDS


class Cluster:
    """The master's daemon, its hosts, and Ganeti's tools on the master."""

    def __init__(self, tools: Tools, daemon: Daemon, client: Client, hosts: list[Host]) -> None:
        self.tools = tools
        self.daemon = daemon
        self.client = client
        self.web1, self.web2 = hosts

    def good(self, command: str) -> str:
        """What the command prints, which must succeed."""
        return good(self.tools.run(*command.split()))


@pytest.fixture(name="cluster", scope="module")
def cluster_of_two_hosts() -> Iterator[Cluster]:
    if reason := ganeti_tools.problem():
        pytest.skip(reason)
    # A short path, for the socket.
    with tempfile.TemporaryDirectory(prefix="gnt-") as folder, Tools(Path(folder)) as tools:
        daemon = Daemon(tools.root, "--luxi-socket", str(tools.socket))
        root = tools.root
        with daemon, daemon.client() as client:
            ours = root / "lib" / "ganeti"
            ours.rmdir()
            ours.symlink_to(daemon.places.ssconf)
            with (
                joined_host(daemon, root / "web1", "web1") as web1,
                joined_host(daemon, root / "web2", "web2", is_first=False) as web2,
            ):
                until_there(client, "web1")
                until_there(client, "web2")
                yield Cluster(tools, daemon, client, [web1, web2])


@pytest.fixture(autouse=True)
def _as_before(cluster: Cluster) -> Iterator[None]:
    """Whatever a test does, both hosts are there and in use for the next one."""
    yield
    there = {one.name for one in cluster.client.nodes().nodes if one.is_there}
    for host in (cluster.web1, cluster.web2):
        if host.name not in there:
            host.up()
        until_there(cluster.client, host.name)
        cluster.client.set_values("nodes", host.name, {"offline": False, "drained": False})


LIVE = "name,mtotal,mnode,mfree,dtotal,dfree,ctotal,cnos,cnodes,csockets,bootid"


def shown(cluster: Cluster) -> dict[str, list[str]]:
    """The live fields that gnt-node list shows, by node."""
    listing = cluster.good(f"gnt-node list --no-headers --separator=| -o {LIVE}")
    rows = [line.split("|") for line in listing.splitlines()]
    return {name: values for name, *values in rows}


def test_the_list_has_the_figures_of_each_host(cluster: Cluster) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for values in shown(cluster).values():
        *numbers, found = values
        assert found == boot
        assert all(float(one.rstrip("MGT")) >= 0 for one in numbers), numbers
    assert list(shown(cluster)) == ["web1", "web2"]


def test_a_silent_host_is_one_that_does_not_answer_and_an_offline_one_is_offline(
    cluster: Cluster,
) -> None:
    cluster.web1.run("node", "down")
    until_there(cluster.client, "web1", is_there=False)
    found = shown(cluster)
    assert set(found["web1"]) == {"?"}
    assert "?" not in found["web2"]
    cluster.client.set_values("nodes", "web1", {"offline": True})
    assert set(shown(cluster)["web1"]) == {"*"}


def test_a_host_that_hangs_holds_up_no_list_for_long(cluster: Cluster) -> None:
    process = psutil.Process(cluster.web1.pid())
    process.suspend()
    try:
        begin = time.monotonic()
        assert set(shown(cluster)["web1"]) == {"?"}
        # It has had its time: the next list does not wait.
        middle = time.monotonic()
        assert set(shown(cluster)["web1"]) == {"?"}
        waited = time.monotonic() - middle
        assert ANSWER_SECONDS <= middle - begin < ANSWER_SECONDS + 10
        assert waited < ANSWER_SECONDS
    finally:
        process.resume()
    wait_until_true(lambda: "?" not in shown(cluster)["web1"], "the host answers again")


# ---------------------------------------------------------------- verify


def verified(cluster: Cluster, *options: str) -> tuple[int, list[str]]:
    """Exit code and lines of gnt-cluster verify, without those about ids of jobs."""
    done = cluster.tools.run("gnt-cluster", "verify", *options)
    assert done.stderr == "", done
    told = re.sub(r"\A\w{3} .*?(?=\* |Submitted)", "", done.stdout, flags=re.DOTALL)
    lines = [
        re.sub(r"^\w{3} \w{3} .\d \d\d:\d\d:\d\d \d{4} ", "", one) for one in told.splitlines()
    ]
    return done.code, [one for one in lines if not re.match("Submitted jobs|Waiting for job", one)]


GROUP = [
    "* Verifying group 'default'",
    "* Gathering data (2 nodes)",
    "* Gathering information about nodes (2 nodes)",
    "* Verifying configuration file consistency",
    "* Verifying node status",
    "* Verifying instance status",
    "* Other Notes",
]
CONFIGURATION = [
    "* Verifying cluster config",
    "* Verifying hypervisor parameters",
    "* Verifying all nodes belong to an existing group",
]


def test_verify_finds_nothing_on_hosts_that_are_well(cluster: Cluster) -> None:
    assert verified(cluster) == (0, [*CONFIGURATION, *GROUP])
    code, lines = verified(cluster, "-v", "--node-group=default")
    assert code == 0
    assert "* Verifying node web1 (regular)" in lines


def test_verify_tells_of_a_silent_host_and_of_nodes_out_of_use(cluster: Cluster) -> None:
    cluster.web1.run("node", "down")
    until_there(cluster.client, "web1", is_there=False)
    cluster.client.set_values("nodes", "web2", {"drained": True})
    code, lines = verified(cluster)
    silent = "its host is silent, or does not answer in time"
    error = f"  - ERROR: node web1: while contacting node: {silent}"
    assert code == 1
    assert [one for one in lines if one not in CONFIGURATION + GROUP] == [
        error,
        "  - NOTICE: 1 drained node(s) found.",
    ]
    code, lines = verified(cluster, "--error-codes", "--ignore-errors=ENODERPC")
    assert code == 0
    assert f"  - WARNING:ENODERPC:node:web1:while contacting node: {silent}" in lines
    cluster.client.set_values("nodes", "web1", {"offline": True})
    code, lines = verified(cluster)
    assert code == 0
    assert "  - NOTICE: 1 offline node(s) found." in lines


def test_files_are_copied_to_hosts_and_verified_there(cluster: Cluster) -> None:
    assert cluster.good("gnt-cluster redist-conf") == ""
    there, here = cluster.web1.places.cluster_files, cluster.daemon.places.ssconf
    names = {path.name for path in here.glob("ssconf_*")}
    assert {path.name for path in there.iterdir()} == names
    assert (there / "ssconf_node_list").read_text() == "web1\nweb2\n"
    assert verified(cluster)[0] == 0
    altered = there / "ssconf_cluster_tags"
    altered.chmod(0o644)
    altered.write_text("other\n")
    code, lines = verified(cluster)
    assert code == 1
    [error] = [one for one in lines if "ERROR" in one]
    found = "File ssconf_cluster_tags found with 2 different checksums (variant 1 on "
    assert error.startswith(f"  - ERROR: cluster : {found}")
    cluster.good("gnt-cluster redist-conf")
    assert verified(cluster)[0] == 0


def test_a_host_that_is_silent_gets_no_files_and_a_warning_says_so(cluster: Cluster) -> None:
    cluster.web2.run("node", "down")
    until_there(cluster.client, "web2", is_there=False)
    shown = cluster.good("gnt-cluster redist-conf")
    assert " - WARNING: Copy of the ssconf files to node web2 failed: its host is silent" in shown


# ---------------------------------------------------------------- restricted commands


def test_restricted_commands_run_on_hosts_that_allow_them(cluster: Cluster) -> None:
    done = cluster.tools.run("gnt-node", "restricted-command", "hello", "web1", "web2")
    line = "-" * 48
    disabled = "Restricted commands disabled at configure time"
    assert done.stdout.splitlines() == [
        line,
        f"Command 'hello' on node 'web1' failed: {disabled}",
        line,
        f"Command 'hello' on node 'web2' failed: {disabled}",
    ]
    assert done.code == 1
    folder = cluster.web1.folder / "restricted"
    folder.mkdir(mode=0o755)
    settings = cluster.web1.places.node_settings
    settings.write_text(f'[tasks]\nrestricted_commands = "{folder}"\n')
    program = folder / "hello"
    program.write_text("#!/bin/sh\necho hello $#; /usr/bin/env\n")
    program.chmod(0o755)
    shown = cluster.good("gnt-node restricted-command hello web1")
    assert shown.splitlines()[:3] == [line, "Node: web1", "hello 0"]
    assert "GANGER" not in shown
    shown = cluster.good("gnt-node restricted-command --show-machine-names hello web1")
    assert shown.splitlines()[:2] == [line, "web1: hello 0"]
    program.write_text("#!/bin/sh\necho sorry; exit 3\n")
    done = cluster.tools.run("gnt-node", "restricted-command", "hello", "web1")
    failed = "Restricted command 'hello' failed: exited with exit code 3; output: sorry"
    assert f"Command 'hello' on node 'web1' failed: {failed}\n" in done.stdout
    assert done.code == 1
    # Who may change it may run anything.
    program.chmod(0o775)
    begin = time.monotonic()
    done = cluster.tools.run("gnt-node", "restricted-command", "hello", "web1")
    assert "failed: Executing command 'hello' failed\n" in done.stdout
    assert time.monotonic() - begin >= REFUSED_SECONDS
    reason = f"Permissions on '{program}' are too permissive"
    assert reason in cluster.web1.places.log.read_text()
    assert "permissive" not in done.stdout
    settings.unlink()


def test_a_restricted_command_waits_for_no_host_that_is_away(cluster: Cluster) -> None:
    cluster.web1.run("node", "down")
    until_there(cluster.client, "web1", is_there=False)
    done = cluster.tools.run("gnt-node", "restricted-command", "hello", "web1")
    text = "its host is silent, or does not answer in time"
    assert f"Command 'hello' on node 'web1' failed: {text}\n" in done.stdout
    job = {"OP_ID": "OP_RESTRICTED_COMMAND", "nodes": ["web2", "web1"], "command": "hello"}
    cluster.client.set_values("nodes", "web2", {"offline": True})
    [ended] = cluster.client.wait(cluster.client.submit(job), timeout=60)
    assert ended.ops is not None
    assert ended.ops[0].result == [
        [False, "Command 'hello' on node 'web2' failed: Node is marked offline"],
        [False, f"Command 'hello' on node 'web1' failed: {text}"],
    ]
    assert [row.name for row in cluster.client.locks() if row.owners] == []


# ---------------------------------------------------------------- gnt-node modify, remove


def test_roles_are_changed_by_ganetis_tool(cluster: Cluster) -> None:
    cluster.good("gnt-node modify --drained=yes web1")
    done = cluster.daemon.run("exec", "--on", "web1", "--", "true", check=False)
    assert "node 'web1' is drained" in done.stderr
    cluster.good("gnt-node modify --drained=no web1")
    cluster.good("gnt-node modify --offline=yes web1")
    assert cluster.good("gnt-node list --no-headers -o role,offline web1").split() == ["O", "Y"]
    cluster.good("gnt-node modify --force --offline=no web1")
    cluster.daemon.run("exec", "--on", "web1", "--", "true")


def test_a_node_that_ganetis_tool_removes_is_refused_until_it_is_invited(cluster: Cluster) -> None:
    cluster.good("gnt-node remove web2")
    try:
        until_there(cluster.client, "web2", is_there=False)
        assert cluster.good("gnt-node list --no-headers -o name").split() == ["web1"]
    finally:
        cluster.web2.join(cluster.daemon, None)
    until_there(cluster.client, "web2")
    assert cluster.good("gnt-node list --no-headers -o name").split() == ["web1", "web2"]


def test_the_locks_of_a_command_on_a_host_are_shown_as_ganetis(cluster: Cluster) -> None:
    [node] = cluster.client.objects("nodes", "web1")
    command = {"OP_ID": "OP_EXEC", "argv": ["sleep", "600"], "node": "web1"}
    job_id = cluster.client.submit(command)
    until_running(cluster.client, job_id)
    shown = cluster.good("gnt-debug locks")
    assert re.search(rf"^node/{node['uuid']} +shared +{job_id} +-$", shown, re.MULTILINE), shown
    cluster.client.cancel(job_id, kill=True)
    cluster.client.wait(job_id)


def test_gnt_debug_delay_waits_on_the_nodes_that_it_names(cluster: Cluster) -> None:
    with cluster.web1.client() as there:
        before = len(list(there.jobs()))
        began = time.monotonic()
        cluster.good("gnt-debug delay --no-master -n web1 1")
        assert time.monotonic() - began >= 1
        tasks = list(there.jobs())
    assert len(tasks) == before + 1
    assert tasks[-1].summary == "NODE_CALL(test_delay)"
