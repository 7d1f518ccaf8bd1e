"""Messages to a listener, from its own process only."""

from __future__ import annotations

from .base import Message, Notice


class ReplyDue(Notice, frozen=True):
    """Send ``message`` to a peer as the reply to its request ``number``."""

    peer: bytes
    number: int
    message: Message


class FramesWaiting(Notice, frozen=True):
    """Read the sockets: frames wait, and no descriptor reports them."""
