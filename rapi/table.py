"""All resources of the remote API."""

from __future__ import annotations

from . import (
    events,
    explanations,
    filters,
    health,
    jobs,
    lock_views,
    metrics,
    openapi,
    page,
    queue_views,
    rule_views,
    timeline,
)
from .ganeti import general, groups, instances, networks, nodes, query, tags

_DESCRIBED = (
    *general.RESOURCES,
    *jobs.RESOURCES,
    *filters.RESOURCES,
    *query.RESOURCES,
    *tags.RESOURCES,
    *groups.RESOURCES,
    *networks.RESOURCES,
    *nodes.RESOURCES,
    *instances.RESOURCES,
    *explanations.RESOURCES,
    *events.RESOURCES,
    *queue_views.RESOURCES,
    *rule_views.RESOURCES,
    *lock_views.RESOURCES,
    *timeline.RESOURCES,
    *metrics.RESOURCES,
    *health.RESOURCES,
    *page.RESOURCES,
)

RESOURCES = (*_DESCRIBED, openapi.resource(_DESCRIBED))
