"""How opcodes are made of requests: names of parameters, and of resources in reason trails."""

from __future__ import annotations

import pytest
from tests.rapi.test_bodies import refused

from ganger.rapi.ganeti import submitting


def test_parameters_are_renamed_once() -> None:
    renames = {"os": "os_type"}
    assert submitting.renamed({"os": "x", "a": 1}, renames) == {"os_type": "x", "a": 1}
    assert submitting.renamed({"os_type": "x"}, renames) == {"os_type": "x"}
    text = "Parameter 'os' was renamed to 'os_type', but both are specified"
    refused(400, text, submitting.renamed, {"os": "x", "os_type": "y"}, renames)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/2/networks", "networks"),
        ("/2/instances/{instance_name}/startup", "instances_name_startup"),
        ("/2/instances/{instance_name}/disk/{disk:int}/grow", "instances_name_disk_grow"),
        ("/2/instances-multi-alloc", "instances_multi_alloc"),
        ("/2/redistribute-config", "redist_config"),
        ("/2/modify", "cluster_modify"),
        ("/2/groups/{group_name}/assign-nodes", "groups_name_assign_nodes"),
        ("/2/nodes/{node_name}/storage/modify", "nodes_name_storage_modify"),
    ],
)
def test_a_resource_has_ganetis_name_in_reason_trails(path: str, name: str) -> None:
    assert submitting.resource_name(path) == name
