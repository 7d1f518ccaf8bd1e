"""Messages to the listener of the process that has components of its own."""

from __future__ import annotations

from .base import Done, Request


class ReadPulse(Request[Done], frozen=True):
    """From the keeper of the process: give a sign of life."""
