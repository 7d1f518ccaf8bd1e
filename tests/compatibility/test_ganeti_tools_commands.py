"""Every command of Ganeti's tools does with the daemon what ``docs/ganeti.md`` says of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.compatibility.ganeti_tools import MASTER, Tools, good, unmet
from tests.faults.harness import Daemon
from tests.system.ganeti.ganeti_stub import GANETI

from ganger import Client

PAGE = Path(__file__).parents[2] / "docs" / "ganeti.md"
TOOLS = [path.name for path in sorted(GANETI.glob("gnt-*"))]
NODE, INSTANCE, GROUP, NETWORK = MASTER, "inst1.example.com", "default", "net1"


class Refused(NamedTuple):
    """A command that submits an opcode which nothing here can run."""

    command: str
    op_id: str


REFUSED = [
    Refused(f"gnt-instance activate-disks {INSTANCE}", "OP_INSTANCE_ACTIVATE_DISKS"),
    Refused(
        f"gnt-instance add -t diskless -n {NODE} -o noop --no-ip-check --no-name-check new.example",
        "OP_INSTANCE_CREATE",
    ),
    Refused("gnt-instance batch-create INSTANCES", "OP_INSTANCE_MULTI_ALLOC"),
    Refused(f"gnt-instance change-group {INSTANCE}", "OP_INSTANCE_CHANGE_GROUP"),
    Refused(f"gnt-instance deactivate-disks {INSTANCE}", "OP_INSTANCE_DEACTIVATE_DISKS"),
    Refused(f"gnt-instance failover -f {INSTANCE}", "OP_INSTANCE_FAILOVER"),
    Refused(f"gnt-instance grow-disk {INSTANCE} 0 1g", "OP_INSTANCE_GROW_DISK"),
    Refused(f"gnt-instance info --static {INSTANCE}", "OP_INSTANCE_QUERY_DATA"),
    Refused(f"gnt-instance migrate -f {INSTANCE}", "OP_INSTANCE_MIGRATE"),
    Refused(f"gnt-instance modify -B vcpus=2 {INSTANCE}", "OP_INSTANCE_SET_PARAMS"),
    Refused(f"gnt-instance move -f -n {NODE} {INSTANCE}", "OP_INSTANCE_MOVE"),
    Refused(f"gnt-instance reboot {INSTANCE}", "OP_INSTANCE_REBOOT"),
    Refused(f"gnt-instance recreate-disks {INSTANCE}", "OP_INSTANCE_RECREATE_DISKS"),
    Refused(f"gnt-instance reinstall -f {INSTANCE}", "OP_INSTANCE_REINSTALL"),
    Refused(f"gnt-instance remove -f {INSTANCE}", "OP_INSTANCE_REMOVE"),
    Refused(f"gnt-instance rename -f {INSTANCE} new.example.com", "OP_INSTANCE_RENAME"),
    Refused(f"gnt-instance replace-disks -p {INSTANCE}", "OP_INSTANCE_REPLACE_DISKS"),
    Refused(f"gnt-instance shutdown {INSTANCE}", "OP_INSTANCE_SHUTDOWN"),
    Refused("gnt-instance startup inst2.example.com", "OP_INSTANCE_STARTUP"),
    Refused(f"gnt-node evacuate -p -I hail -f {NODE}", "OP_NODE_EVACUATE"),
    Refused(f"gnt-node failover -f {NODE}", "OP_INSTANCE_FAILOVER"),
    Refused(f"gnt-node health {NODE}", "OP_OOB_COMMAND"),
    Refused("gnt-node list-storage", "OP_NODE_QUERY_STORAGE"),
    Refused(f"gnt-node migrate -f {NODE}", "OP_NODE_MIGRATE"),
    Refused(
        f"gnt-node modify-storage --allocatable=no {NODE} lvm-pv sda", "OP_NODE_MODIFY_STORAGE"
    ),
    Refused(f"gnt-node power status {NODE}", "OP_OOB_COMMAND"),
    Refused(f"gnt-node powercycle --yes -f {NODE}", "OP_NODE_POWERCYCLE"),
    Refused(f"gnt-node repair-storage {NODE} lvm-vg xenvg", "OP_REPAIR_NODE_STORAGE"),
    Refused("gnt-node volumes", "OP_NODE_QUERYVOLS"),
    Refused(f"gnt-group evacuate {GROUP}", "OP_GROUP_EVACUATE"),
    Refused(f"gnt-backup export -n {NODE} {INSTANCE}", "OP_BACKUP_EXPORT"),
    Refused(f"gnt-backup import -t diskless -n {NODE} new.example.com", "OP_INSTANCE_CREATE"),
    Refused(f"gnt-backup remove {INSTANCE}", "OP_BACKUP_REMOVE"),
    Refused("gnt-os diagnose", "OP_OS_DIAGNOSE"),
    Refused("gnt-os info", "OP_OS_DIAGNOSE"),
    Refused("gnt-os list", "OP_OS_DIAGNOSE"),
    Refused("gnt-storage diagnose", "OP_EXT_STORAGE_DIAGNOSE"),
    Refused("gnt-storage info", "OP_EXT_STORAGE_DIAGNOSE"),
    Refused(
        f"gnt-debug iallocator -I hail --mode=allocate --disks=1g --nics=auto {INSTANCE}",
        "OP_TEST_ALLOCATOR",
    ),
    Refused("gnt-debug test-osparams", "OP_TEST_OS_PARAMS"),
    Refused("gnt-cluster activate-master-ip", "OP_CLUSTER_ACTIVATE_MASTER_IP"),
    Refused("gnt-cluster deactivate-master-ip --yes", "OP_CLUSTER_DEACTIVATE_MASTER_IP"),
    Refused("gnt-cluster destroy --yes-do-it", "OP_CLUSTER_DESTROY"),
    Refused("gnt-cluster rename -f new.example.com", "OP_CLUSTER_RENAME"),
    Refused("gnt-cluster repair-disk-sizes", "OP_CLUSTER_REPAIR_DISK_SIZES"),
    Refused("gnt-cluster verify-disks", "OP_CLUSTER_VERIFY_DISKS"),
]

REFUSED_OTHERWISE = {
    "gnt-cluster epo",
    "gnt-debug test-jobqueue",
    "gnt-instance console",
}
"""Commands that find another reason; tests below make them."""

NOT_HERE = {
    "gnt-cluster command",
    "gnt-cluster copyfile",
    "gnt-cluster init",
    "gnt-cluster master-failover",
    "gnt-cluster renew-crypto",
    "gnt-cluster upgrade",
    "gnt-debug metad",
    "gnt-node add",
    "gnt-node list-drbd",
}
"""Commands that do something to this machine or to others without LUXI. No test makes them."""

IN_OTHER_TESTS = {
    *(f"gnt-job {command}" for command in ("list", "list-fields", "info", "watch", "wait")),
    *(f"gnt-job {command}" for command in ("cancel", "change-priority", "archive", "autoarchive")),
    *(f"gnt-filter {command}" for command in ("add", "replace", "delete")),
    *(f"gnt-filter {command}" for command in ("list", "list-fields", "info")),
    *(f"gnt-debug {command}" for command in ("delay", "submit-job", "locks")),
    *(f"gnt-cluster {command}" for command in ("queue", "watcher")),
}
"""Commands that `test_ganeti_tools` makes."""

SHOWN: list[tuple[str, str]] = [
    (
        "gnt-cluster info",
        r"Cluster name: cluster\.example\.com\n(.*\n)*Master node: node1\.example",
    ),
    ("gnt-cluster version", r"Software version: 3\.0\.2\nInternode protocol: 3000000\n"),
    ("gnt-cluster getmaster", r"node1\.example\.com\n\Z"),
    ("gnt-cluster master-ping", r"\Z"),
    ("gnt-cluster show-ispecs-cmd", r"gnt-cluster init .*--ipolicy-bounds-specs min:"),
    ("gnt-debug wconfd echo hello", r"Answer: hello\n\Z"),
    ("gnt-group list", r"Group +Nodes Instances AllocPolicy NDParams\ndefault +1 +4 preferred "),
    ("gnt-group list-fields name", r"Name Type Title Description\nname Text Group Group name\n"),
    ("gnt-group info rack2", r"- Node group: rack2\n  Node parameters: \n"),
    ("gnt-group show-ispecs-cmd rack2", r"gnt-group add rack2\n\Z"),
    ("gnt-network list", r"Network Subnet +Gateway .*\nnet1 +10\.77\.1\.0/24 10\.77\.1\.254 "),
    (
        "gnt-network list-fields map",
        r"Name Type Title Description\nmap  Text Map   Actual mapping\n",
    ),
    ("gnt-network info net1", r"Network name: net1\nUUID: a2afc70c-"),
    ("gnt-node list", r"Node +DTotal .*\nnode1\.example\.com( +\?){5} +4 +0\n\Z"),
    ("gnt-node list-fields mfree", r"Name .*\nmfree Storage size MFree "),
    ("gnt-node info", r"- Node name: node1\.example\.com\n  primary ip: 10\.77\.0\.1\n"),
    (
        "gnt-instance list",
        r"Instance +Hypervisor .*\ninst1\.example\.com fake +noop\+default node1",
    ),
    ("gnt-instance list -o name,nic.ips", r"Instance +NIC_IPs\ninst1\.example\.com 10\.77\.1\.1\n"),
    ("gnt-instance list-fields be/vcpus", r"Name .*\nbe/vcpus Number +ConfigVCPUs"),
    ("gnt-backup list", r"Node +Export\nnode1\.example\.com \?\n\Z"),
    ("gnt-backup list-fields", r"Name +Type Title +Description\nexport Text Export "),
]
"""Commands that only look, and the beginning of what they print."""

CHANGING: list[tuple[str, str]] = [
    ("gnt-cluster add-tags blue", ""),
    ("gnt-cluster list-tags", "alpha\nbench\nbeta\nblue\ndelta\nzeta\n"),
    ("gnt-cluster search-tags ^blue$", "/cluster blue\n"),
    ("gnt-cluster remove-tags blue", ""),
    ("gnt-cluster list-tags", "alpha\nbench\nbeta\ndelta\nzeta\n"),
    ("gnt-cluster modify --candidate-pool-size=7", ""),
    ("gnt-cluster modify --dry-run -B vcpus=2,maxmem=256 -N mode=bridged,link=br1", ""),
    ("gnt-cluster modify --dry-run -H kvm:acpi=False -D drbd:resync-rate=100", ""),
    ("gnt-cluster modify --dry-run --uid-pool=1000-1010 --reserved-lvs=a,b -I hail", ""),
    ("gnt-cluster modify --dry-run --ipolicy-vcpu-ratio=5 --ipolicy-disk-templates=file", ""),
    ("gnt-cluster modify --dry-run --enabled-disk-templates=diskless,file", ""),
    ("gnt-cluster redist-conf", ""),
    ("gnt-os modify --hidden=yes noop", ""),
    ("gnt-group add --alloc-policy=last_resort rack9", ""),
    ("gnt-group modify --alloc-policy=unallocable rack9", ""),
    ("gnt-group rename rack9 rack10", ""),
    ("gnt-group add-tags rack10 cold", ""),
    ("gnt-group list-tags rack10", "cold\n"),
    ("gnt-group list --no-headers -o name,alloc_policy rack10", "rack10 unallocable\n"),
    ("gnt-group remove-tags rack10 cold", ""),
    (f"gnt-group assign-nodes {GROUP} {NODE}", ""),
    ("gnt-group remove rack10", ""),
    ("gnt-network add --network=10.9.0.0/28 --gateway=10.9.0.1 net9", ""),
    ("gnt-network modify --add-reserved-ips=10.9.0.7 net9", ""),
    ("gnt-network connect -N mode=bridged,link=br9 net9 rack2", ""),
    ("gnt-network list --no-headers -o name,free_count,group_list net9", "net9 12 rack2 "),
    ("gnt-network add-tags net9 wide", ""),
    ("gnt-network list-tags net9", "wide\n"),
    ("gnt-network remove-tags net9 wide", ""),
    ("gnt-network disconnect net9 rack2", ""),
    ("gnt-network remove -f net9", ""),
    (f"gnt-node add-tags {NODE} quiet", ""),
    (f"gnt-node list-tags {NODE}", "quiet\n"),
    (f"gnt-node remove-tags {NODE} quiet", ""),
    (f"gnt-node modify --node-parameters=ssh_port=23 {NODE}", ""),
    (f"gnt-node list --no-headers -o ndp/ssh_port {NODE}", "23\n"),
    (f"gnt-node modify --node-parameters=ssh_port=default {NODE}", ""),
    (f"gnt-instance add-tags {INSTANCE} new", ""),
    (f"gnt-instance list-tags {INSTANCE}", "new\nprod\nweb\n"),
    (f"gnt-instance remove-tags {INSTANCE} new", ""),
]
"""Commands in an order in which each finds what it needs, and the beginning of what they print."""


def named(command: str) -> str:
    """The tool and its command, without arguments."""
    return " ".join(command.split()[:2])


ON_HOSTS = {"gnt-cluster verify", "gnt-node remove", "gnt-node restricted-command"}
"""In `test_ganeti_tools_on_hosts`."""

WORKS = IN_OTHER_TESTS | ON_HOSTS | {named(command) for command, _ in SHOWN + CHANGING}


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Iterator[Client]:
    with daemon.client() as client:
        yield client


@pytest.mark.parametrize(("command", "op_id"), REFUSED)
def test_a_command_that_needs_a_node_is_refused(
    tools: Tools, client: Client, tmp_path: Path, command: str, op_id: str
) -> None:
    new = {"mode": "create", "instance_name": "new.example.com", "disk_template": "diskless"}
    file = tmp_path / "instances.json"
    file.write_text(json.dumps([{**new, "disks": [], "nics": [], "os_type": "noop"}]))
    before = client.info().counts["last_id"]
    done = tools.run(*command.replace("INSTANCES", str(file)).split())
    text = f"{op_id}: this opcode is known, but nothing on this system can run it"
    assert done == unmet("wrong_input", text)
    assert client.info().counts["last_id"] == before


def test_ganetis_own_tests_of_submissions_and_dependencies_succeed(tools: Tools) -> None:
    done = tools.run("gnt-debug", "test-jobqueue")
    assert "Job submission tests were successful\n" in done.stdout
    assert "Job dependency tests were successful\n" in done.stdout
    text = "OP_TEST_JQUEUE: this opcode is known, but nothing on this system can run it"
    assert (done.code, done.stderr) == (1, unmet("wrong_input", text).stderr)


def test_the_console_of_an_instance_is_not_known(tools: Tools) -> None:
    done = tools.run("gnt-instance", "console", INSTANCE)
    text = f"Instance {INSTANCE} is not running, can't get console"
    assert done == (1, "", f"Failure: command execution error:\n{text}\n")


def test_the_master_is_not_switched_off(tools: Tools) -> None:
    done = tools.run("gnt-cluster", "epo", NODE)
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{NODE} is the master node, ")


def test_the_master_is_neither_removed_nor_drained(tools: Tools) -> None:
    done = tools.run("gnt-node", "remove", NODE)
    text = "Node is the master node, failover to another node is required"
    assert done == unmet("wrong_input", text)
    done = tools.run("gnt-node", "modify", "--drained=yes", NODE)
    text = "The master role can be changed only via master-failover"
    assert done == unmet("wrong_input", text)


@pytest.mark.parametrize(("command", "expected"), SHOWN)
def test_a_command_shows_what_the_daemon_knows(tools: Tools, command: str, expected: str) -> None:
    shown = good(tools.run(*command.split()))
    assert re.match(expected, shown), shown


def test_commands_change_the_configuration(tools: Tools) -> None:
    for command, expected in CHANGING:
        done = tools.run(*command.split())
        assert (done.code, done.stdout.startswith(expected)) == (0, True), (command, done)


# ---------------------------------------------------------------- the page


def on_page() -> dict[str, str]:
    """What the page says of each command: ``works``, ``refused``, ``not here``."""
    found: dict[str, str] = {}
    tool = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("### "):
            tool = line.removeprefix("### ")
        row = re.match(r"\| (`.+?`) \| (works|refused|not here) \|", line)
        for name in re.findall(r"`(.+?)`", row[1]) if row else []:
            full = name if name.startswith("gnt-") else f"{tool} {name}"
            assert full not in found, f"{full} stands twice on the page"
            found[full] = row[2] if row else ""
    return found


def test_the_page_says_of_each_command_what_it_does() -> None:
    observed = {
        **dict.fromkeys({named(command) for command, _ in REFUSED}, "refused"),
        **dict.fromkeys(REFUSED_OTHERWISE, "refused"),
        **dict.fromkeys(NOT_HERE, "not here"),
        **dict.fromkeys(WORKS, "works"),
    }
    assert on_page() == observed


def test_the_page_has_every_command(tools: Tools) -> None:
    offered = set()
    for tool in TOOLS:
        usage = good(tools.run(tool, "--help"))
        commands = re.findall(r"^ ([a-z-]+) +- ", usage, re.MULTILINE)
        assert commands, usage
        offered |= {f"{tool} {command}" for command in commands}
    assert set(on_page()) == offered
