"""What a listener accepts from its own process."""

from __future__ import annotations

from .base import Message, Notice


class ReplyDue(Notice, frozen=True):
    """To a listener, within its process: send ``message`` to a peer under ``number``."""

    peer: bytes
    number: int
    message: Message


class FramesWaiting(Notice, frozen=True):
    """To a listener, within its process: read the sockets, though no descriptor says so."""


class LocalSocketMissing(Notice, frozen=True):
    """To a listener, within its process: the file of the local door is gone; put it back."""
