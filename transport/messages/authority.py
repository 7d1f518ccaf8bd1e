"""Messages to the component that keeps a process with components of its own."""

from __future__ import annotations

from .base import Notice


class ReplaceProcess(Notice, frozen=True):
    """From the supervisor: end the process and fail, for this reason; a successor starts anew."""

    reason: str


class PulseDue(Notice, frozen=True):
    """From the keeper of the process to itself: ask it for a sign of life."""
