"""Messages to the listeners that packages bring (entry points `ganger.listeners`)."""

from __future__ import annotations

from .base import Notice


class StalledDue(Notice, frozen=True):
    """From the listener to itself: look for connections that make no progress."""
