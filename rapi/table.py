"""All resources of the remote API."""

from __future__ import annotations

from . import (
    events,
    explanations,
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

RESOURCES = (
    *jobs.RESOURCES,
    *explanations.RESOURCES,
    *events.RESOURCES,
    *queue_views.RESOURCES,
    *rule_views.RESOURCES,
    *lock_views.RESOURCES,
    *timeline.RESOURCES,
    *metrics.RESOURCES,
    *health.RESOURCES,
    *openapi.RESOURCES,
    *page.RESOURCES,
)
