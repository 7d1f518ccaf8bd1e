"""Disks in ``OP_CLUSTER_SET_PARAMS``: templates, volume group, directories and helpers."""

from __future__ import annotations

import pytest
from tests import clusters
from tests.storage.ganeti.operations.played import after, play, refusal, with_disks

from ganger.storage.cluster.configuration import Configuration

SET = "OP_CLUSTER_SET_PARAMS"
WRONG, STATE = "wrong_input", "wrong_state"


@pytest.fixture(name="snapshot", scope="module")
def snapshot_with_disks() -> Configuration:
    return with_disks()


def test_disk_templates_in_use_stay_enabled(snapshot: Configuration) -> None:
    name, text, kind = refusal(snapshot, SET, enabled_disk_templates=["drbd"])
    assert (name, kind) == ("OpPrereqError", STATE)
    assert text.startswith(
        "Cannot disable disk template 'plain', because there is at least one disk using it:\n * "
    )
    assert "(on instance" in text


def test_disk_templates_are_enabled_in_the_order_that_is_given(snapshot: Configuration) -> None:
    wanted = ["plain", "file", "drbd"]
    found = after(snapshot, SET, enabled_disk_templates=wanted, file_storage_dir="/srv/f")
    assert found.cluster["enabled_disk_templates"] == wanted


def test_diskless_instances_keep_their_template() -> None:
    made = clusters.made_configuration(nodes=2, instances=1)
    made["cluster"]["enabled_disk_templates"] = ["diskless", "file"]
    made["cluster"]["ipolicy"]["disk-templates"] = ["file"]
    [instance] = made["instances"].values()
    instance["disks"], made["disks"] = [], {}
    error = refusal(Configuration.load(made), SET, enabled_disk_templates=["file"])
    assert error[2] == STATE
    assert error[1].endswith("at least one instance using it:\n * instance0.example.com")


def test_a_template_of_which_disks_have_parts_stays_enabled() -> None:
    made = clusters.made_configuration()
    made["disks"] = {u: one for u, one in made["disks"].items() if one["dev_type"] == "drbd"}
    for instance in made["instances"].values():
        instance["disks"] = [uuid for uuid in instance["disks"] if uuid in made["disks"]]
    error = refusal(Configuration.load(made), SET, enabled_disk_templates=["drbd"])
    assert error[2] == STATE
    assert error[1].startswith("Cannot disable disk template 'plain', because")


def test_instances_without_disks_need_only_their_own_template() -> None:
    made = clusters.made_configuration(nodes=2, instances=1)
    made["cluster"]["enabled_disk_templates"] = ["diskless", "file", "plain"]
    made["cluster"]["ipolicy"]["disk-templates"] = ["file"]
    [instance] = made["instances"].values()
    instance["disks"], made["disks"] = [], {}
    wanted = ["diskless", "file"]
    found = after(Configuration.load(made), SET, enabled_disk_templates=wanted)
    assert found.cluster["enabled_disk_templates"] == wanted


def test_disks_are_accessed_as_their_hypervisors_can() -> None:
    made = clusters.made_configuration(nodes=2, instances=1)
    made["cluster"]["enabled_disk_templates"] += ["rbd"]
    [disk], [instance] = made["disks"].values(), made["instances"].values()
    disk |= {"dev_type": "rbd", "logical_id": ["rbd", "disk"], "children": []}
    access = {"rbd": {"access": "userspace"}}
    found = after(Configuration.load(made), SET, diskparams=access)
    assert found.cluster["diskparams"]["rbd"] == {"access": "userspace"}
    instance["hypervisor"] = "fake"
    assert refusal(Configuration.load(made), SET, diskparams=access) == [
        "OpPrereqError",
        (
            "Instance instance0.example.com: cannot use 'userspace' access setting with fake"
            " hypervisor and rbd disk type."
        ),
    ]


def test_a_template_that_the_policy_allows_cannot_be_disabled() -> None:
    made = clusters.made_configuration(nodes=2, instances=0)
    error = refusal(Configuration.load(made), SET, enabled_disk_templates=["plain"])
    assert error == [
        "OpPrereqError",
        (
            "The following disk templates are allowed by the ipolicy, but not enabled on the"
            " cluster: drbd"
        ),
        WRONG,
    ]


def test_the_volume_group_is_named_as_long_as_there_is_lvm(snapshot: Configuration) -> None:
    outcome = play(snapshot, SET, vg_name="big")
    assert outcome.log == (" - WARNING: No node was asked whether it can use these: vg_name",)
    assert after(snapshot, SET, vg_name="big").cluster["volume_group_name"] == "big"
    assert play(snapshot, SET, vg_name="xenvg").log == (
        "Cluster LVM configuration already in desired state, not changing",
    )


def test_without_lvm_there_needs_to_be_no_volume_group() -> None:
    made = clusters.made_configuration(nodes=2, instances=0)
    made["cluster"] |= {"enabled_disk_templates": ["file"], "file_storage_dir": "/f"}
    made["cluster"]["ipolicy"]["disk-templates"] = ["file"]
    snapshot = Configuration.load(made)
    found = after(snapshot, SET, vg_name="")
    assert "volume_group_name" not in found.cluster
    error = refusal(found, SET, enabled_disk_templates=["file", "plain"])
    assert error[1] == "Please specify a volume group when enabling lvm-based disk-templates."
    error = refusal(found, SET, file_storage_dir="")
    assert error == [
        "OpPrereqError",
        (
            "Unsetting the 'file' storage directory while having 'file' storage enabled is not"
            " permitted."
        ),
        WRONG,
    ]
    assert play(found, SET, file_storage_dir="/f").log == (
        "Global file storage dir already set to value '/f'",
    )
    assert play(found, SET, gluster_storage_dir="/g").log == (
        (
            " - WARNING: Specified a gluster storage directory, although gluster storage is not"
            " enabled."
        ),
    )


def test_drbd_needs_its_helper() -> None:
    made = clusters.made_configuration(nodes=2, instances=0)
    made["cluster"]["enabled_disk_templates"] = ["plain"]
    made["cluster"]["ipolicy"]["disk-templates"] = ["plain"]
    snapshot = Configuration.load(made)
    both = {"enabled_disk_templates": ["plain", "drbd"]}
    error = ["OpPrereqError", "Cannot enable DRBD without a DRBD usermode helper set.", STATE]
    assert refusal(snapshot, SET, **both) == error
    found = after(snapshot, SET, **both, drbd_helper="/bin/true")
    assert found.cluster["drbd_usermode_helper"] == "/bin/true"
    error = ["OpPrereqError", "Cannot disable drbd helper while DRBD is enabled.", STATE]
    assert refusal(found, SET, drbd_helper="") == error
    already = "Cluster DRBD helper already in desired state, not changing"
    assert play(found, SET, drbd_helper="/bin/true").log == (already,)
    unchecked = " - WARNING: No node was asked whether it can use these: drbd_helper"
    assert play(found, SET, drbd_helper="/bin/false").log == (unchecked,)
    found = after(found, SET, enabled_disk_templates=["plain"])
    assert play(found, SET, drbd_helper="/bin/false").log == (
        "Note that you specified a drbd user helper, but did not enable the drbd disk template.",
    )
    assert "drbd_usermode_helper" not in after(found, SET, drbd_helper="").cluster


def test_what_disks_use_stays_although_their_template_is_not_enabled() -> None:
    made = clusters.made_configuration()
    made["cluster"]["enabled_disk_templates"] = ["file"]
    damaged = Configuration.load(made)
    text = "Cannot disable lvm storage while lvm-based instances exist"
    assert refusal(damaged, SET, vg_name="") == ["OpPrereqError", text, WRONG]
    text = "Cannot disable drbd helper while drbd-based instances exist"
    assert refusal(damaged, SET, drbd_helper="") == ["OpPrereqError", text, WRONG]


def test_parameters_of_disk_templates_are_merged(snapshot: Configuration) -> None:
    found = after(snapshot, SET, diskparams={"plain": {"stripes": "2"}, "drbd": {"protocol": "B"}})
    assert found.cluster["diskparams"] == {
        "drbd": {"resync-rate": 61_440, "protocol": "B"},
        "plain": {"stripes": 2},
    }
    error = refusal(snapshot, SET, diskparams={"plain": {"stripe": 2}})
    assert error == ["TypeEnforcementError", "Unknown parameter 'stripe'"]
    error = refusal(snapshot, SET, diskparams={"rbd": {"access": "magic"}})
    assert error[0] == "OpPrereqError"
    assert "Invalid value of 'rbd:access'" in error[1]
