"""All resources by their names, and who serves them: the daemon itself, or a job."""

from __future__ import annotations

from typing import Any, Final

from .answering import Resource
from .cluster import CLUSTER
from .exports import EXPORTS
from .filters import FILTERS
from .groups import GROUPS
from .instances import INSTANCES
from .jobs import JOBS
from .locks import LOCKS
from .networks import NETWORKS
from .nodes import NODES

OF_CONFIGURATION: Final = {
    resource.name: resource
    for resource in (NODES, INSTANCES, GROUPS, NETWORKS, FILTERS, EXPORTS, CLUSTER)
}
"""The resources whose source is a `ClusterView`."""

RESOURCES: Final[dict[str, Resource[Any]]] = {
    **OF_CONFIGURATION,
    JOBS.name: JOBS,
    LOCKS.name: LOCKS,
}
"""Every resource. The sources of jobs and locks are their rows."""

IN_JOBS_ONLY: Final = frozenset({CLUSTER.name})
"""Resources that opcodes ask for, but no other client, as in Ganeti."""
