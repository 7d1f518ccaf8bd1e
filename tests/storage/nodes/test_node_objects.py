"""The objects of the configuration that stand for hosts."""

from __future__ import annotations

from ganger.storage.nodes import node_objects


def test_an_object_has_the_same_uuid_each_time_and_another_one_in_another_cluster() -> None:
    first = node_objects.new_node("c1", "web1", "10.0.0.7", "g")
    assert first == node_objects.new_node("c1", "web1", "10.0.0.7", "g")
    assert first["uuid"] != node_objects.new_node("c2", "web1", "10.0.0.7", "g")["uuid"]
    assert first["uuid"] != node_objects.uuid_of("c1", "nodegroups", "web1")


def test_a_node_goes_to_the_default_group_or_the_first_by_name() -> None:
    groups = [{"name": "a"}, {"name": "default"}, {"name": "b"}]
    assert node_objects.group_for(groups) == {"name": "default"}
    assert node_objects.group_for([{"name": "b"}, {"name": "a"}]) == {"name": "a"}
    assert node_objects.group_for([]) is None
