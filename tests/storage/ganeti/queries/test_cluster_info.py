"""The description of the cluster."""

from __future__ import annotations

import copy

import pytest
from tests.storage.ganeti.queries.views import view_of
from tests.storage.queries.recorded_answers import RECORDED, recorded

from ganger.storage.ganeti.queries.cluster_info import cluster_info

KNOWN = {
    "software_version": "3.0.2",
    "vcs_version": "(ganeti) version 3.0.2-3",
    "architecture": ["64bits", "x86_64"],
    "drain_flag": False,
    "watcher_pause": None,
}

CHANGED_SINCE = {"max_running_jobs": 20, "mtime": pytest.approx(1795225840.2716)}


def test_the_cluster_is_described_as_recorded() -> None:
    answer = cluster_info(view_of(RECORDED, KNOWN))
    expected = recorded("010-QueryClusterInfo")
    assert list(answer) == list(expected)
    # Tags were added after the recording.
    assert set(expected.pop("tags")) <= set(answer.pop("tags"))
    assert expected.pop("ctime") == pytest.approx(answer.pop("ctime"))
    assert {**answer, **CHANGED_SINCE} == expected


def test_what_nobody_knows_is_null() -> None:
    answer = cluster_info(view_of({}))
    assert (answer["name"], answer["master"], answer["software_version"]) == (None, None, None)
    assert answer["default_hypervisor"] is None


def test_only_enabled_hypervisors_have_parameters_for_systems() -> None:
    document = copy.deepcopy(RECORDED)
    document["cluster"]["os_hvp"] = {"debian": {"fake": {"a": 1}, "kvm": {"b": 2}}}
    assert cluster_info(view_of(document))["os_hvp"] == {"debian": {"fake": {"a": 1}}}


@pytest.mark.parametrize(("family", "version"), [(2, 4), (10, 6)])
def test_the_family_of_addresses_is_shown_as_a_version(family: int, version: int) -> None:
    document = copy.deepcopy(RECORDED)
    document["cluster"]["primary_ip_family"] = family
    assert cluster_info(view_of(document))["primary_ip_version"] == version
