"""``OP_CLUSTER_VERIFY_CONFIG``: what it locks, finds, logs and answers."""

from __future__ import annotations

import pytest
from tests import clusters
from tests.clusters import uuid_of
from tests.storage.ganeti.operations.played import locks, play, with_disks

from ganger.storage.cluster.configuration import Configuration

VERIFY = "OP_CLUSTER_VERIFY_CONFIG"
SECTIONS = (
    "* Verifying cluster config",
    "* Verifying hypervisor parameters",
    "* Verifying all nodes belong to an existing group",
)


@pytest.fixture(name="snapshot", scope="module")
def snapshot_with_disks() -> Configuration:
    return with_disks()


def test_verification_shares_everything(snapshot: Configuration) -> None:
    assert locks(snapshot, VERIFY) == [
        (f"{level}/[lockset]", "shared")
        for level in ("instance", "nodegroup", "node", "node-res", "network")
    ]


def test_a_whole_configuration_is_verified(snapshot: Configuration) -> None:
    outcome = play(snapshot, VERIFY)
    assert (outcome.result, outcome.log) == (True, SECTIONS)


def damaged() -> Configuration:
    made = clusters.made_configuration(nodes=2, instances=2)
    made["nodes"][uuid_of("nodes", 1)]["group"] = "gone"
    made["instances"][uuid_of("instances", 0)]["primary_node"] = "lost"
    made["instances"][uuid_of("instances", 1)]["hvparams"] = {"boot_order": "moon"}
    return Configuration.load(made)


def test_problems_are_in_the_log_and_the_result_says_that_there_are_some() -> None:
    outcome = play(damaged(), VERIFY)
    assert outcome.result is False
    assert (
        "  - ERROR: cluster : the following nodes (and their instances) belong to a non existing"
        " group: node1.example.com (instance1.example.com)"
    ) in outcome.log
    assert (
        "  - ERROR: cluster : the following instances have a non-existing primary-node:"
        " instance0.example.com"
    ) in outcome.log
    [wrong] = [line for line in outcome.log if "syntax check (source" in line]
    assert wrong.startswith(
        "  - ERROR: cluster : hypervisor instance instance1.example.com parameters syntax check"
        " (source kvm): Parameter 'boot_order' fails syntax check"
    )
    assert any("there is no node group gone" in line for line in outcome.log)


def test_error_codes_are_shown_and_ignored_on_request() -> None:
    codes = ["ECLUSTERCFG", "ECLUSTERDANGLINGNODES", "ECLUSTERDANGLINGINST"]
    outcome = play(damaged(), VERIFY, error_codes=True, ignore_errors=codes)
    assert outcome.result is True
    assert (
        "  - WARNING:ECLUSTERDANGLINGINST:cluster:None:the following instances have a non-existing"
        " primary-node: instance0.example.com"
    ) in outcome.log
    assert play(damaged(), VERIFY, ignore_errors=codes[:1]).result is False


def test_errors_are_simulated_on_request(snapshot: Configuration) -> None:
    outcome = play(snapshot, VERIFY, debug_simulate_errors=True)
    assert outcome.result is False
    assert len(outcome.log) == len(SECTIONS) + 2


@pytest.mark.parametrize("container", ["nodes", "instances", "nodegroups", "networks", "disks"])
@pytest.mark.parametrize("wrong", [[], {}, {"name": 7, "hvparams": [1], "primary_node": []}])
def test_objects_of_a_wrong_type_are_problems_like_others(container: str, wrong: object) -> None:
    made = clusters.made_configuration(nodes=2, instances=2)
    made[container]["wrong"] = wrong
    outcome = play(Configuration.load(made), VERIFY)
    assert outcome.result is False
    assert any(line.startswith(f"  - ERROR: cluster : {container}/wrong") for line in outcome.log)


def test_a_cluster_of_a_wrong_type_is_verified_too() -> None:
    made = clusters.made_configuration(nodes=2, instances=2)
    made["cluster"] |= {"hvparams": [1], "os_hvp": {"debian": 7}, "enabled_hypervisors": ["kvm"]}
    assert play(Configuration.load(made), VERIFY).result is False


@pytest.mark.parametrize(
    ("fields", "is_lost"),
    [
        ({"forthcoming": True}, False),
        ({}, True),
        ({"forthcoming": True, "primary_node": "lost"}, True),
    ],
)
def test_only_a_forthcoming_instance_may_have_no_node_yet(
    fields: dict[str, object], *, is_lost: bool
) -> None:
    made = clusters.made_configuration(nodes=2, instances=1)
    [instance] = made["instances"].values()
    del instance["primary_node"]
    instance |= fields
    log = play(Configuration.load(made), VERIFY).log
    assert any("have a non-existing primary-node" in line for line in log) == is_lost


def test_an_unknown_hypervisor_is_a_problem() -> None:
    made = clusters.made_configuration(nodes=2, instances=1)
    made["cluster"]["enabled_hypervisors"] = ["kvm", "vmware"]
    text = (
        "  - ERROR: cluster : hypervisor cluster parameters syntax check (source vmware): Unknown"
        " hypervisor 'vmware'"
    )
    assert text in play(Configuration.load(made), VERIFY).log
