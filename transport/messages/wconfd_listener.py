"""Messages to WConfD's door."""

from __future__ import annotations

from .base import Notice


class StalledDue(Notice, frozen=True):
    """From the door to itself: look for connections that make no progress."""
