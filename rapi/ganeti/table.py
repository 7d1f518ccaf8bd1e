"""The resources that only Ganeti's clients need, for the entry point group `ganger.resources`."""

from __future__ import annotations

from . import general, groups, instances, networks, nodes, query, tags

RESOURCES = (
    *general.RESOURCES,
    *query.RESOURCES,
    *tags.RESOURCES,
    *groups.RESOURCES,
    *networks.RESOURCES,
    *nodes.RESOURCES,
    *instances.RESOURCES,
)
