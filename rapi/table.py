"""All resources of the remote API."""

from __future__ import annotations

from . import jobs

RESOURCES = (*jobs.RESOURCES,)
