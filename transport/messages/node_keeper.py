"""Messages to the component that keeps the process of the nodes' connections."""

from __future__ import annotations

from .base import Notice


class HubWanted(Notice, frozen=True):
    """Requests wait for the hub, which does not live yet."""
