"""The resources that are objects of Ganeti's configuration, by their names."""

from __future__ import annotations

from typing import Final

from .answering import Resource
from .cluster import CLUSTER
from .cluster_view import ClusterView
from .exports import EXPORTS
from .groups import GROUPS
from .instances import INSTANCES
from .networks import NETWORKS
from .nodes import NODES

RESOURCES: Final[dict[str, Resource[ClusterView]]] = {
    resource.name: resource for resource in (NODES, INSTANCES, GROUPS, NETWORKS, EXPORTS, CLUSTER)
}
"""Their source is a `ClusterView`."""
