"""All resources of the remote API."""

from __future__ import annotations

import itertools

from ..storage import entry_points
from . import (
    events,
    explanations,
    filters,
    health,
    jobs,
    limits,
    lock_views,
    metrics,
    openapi,
    page,
    queue_views,
    rule_views,
    timeline,
)

INSTALLED = entry_points.load(entry_points.RESOURCES)
"""The resources of packages, and what is wrong with them."""

_DESCRIBED = (
    *jobs.RESOURCES,
    *filters.RESOURCES,
    *explanations.RESOURCES,
    *events.RESOURCES,
    *queue_views.RESOURCES,
    *rule_views.RESOURCES,
    *lock_views.RESOURCES,
    *limits.RESOURCES,
    *timeline.RESOURCES,
    *metrics.RESOURCES,
    *health.RESOURCES,
    *page.RESOURCES,
    *itertools.chain.from_iterable(INSTALLED.objects.values()),
)

RESOURCES = (*_DESCRIBED, openapi.resource(_DESCRIBED))
