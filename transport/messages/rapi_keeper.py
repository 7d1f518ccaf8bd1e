"""Messages to the component that keeps the process of the remote API."""

from __future__ import annotations

from .base import Notice


class RapiStartDue(Notice, frozen=True):
    """From the component to itself: start the process (again)."""


class RapiPulseDue(Notice, frozen=True):
    """From the component to itself: look whether the process has given a sign of life."""
