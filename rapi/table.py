"""All resources of the remote API."""

from __future__ import annotations

from . import events, explanations, health, jobs, lock_views, metrics, openapi, timeline

RESOURCES = (
    *jobs.RESOURCES,
    *explanations.RESOURCES,
    *events.RESOURCES,
    *lock_views.RESOURCES,
    *timeline.RESOURCES,
    *metrics.RESOURCES,
    *health.RESOURCES,
    *openapi.RESOURCES,
)
