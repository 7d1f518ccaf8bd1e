"""What a client's socket says of its connection. Without zmq, so that the session can import it."""

from __future__ import annotations

import enum


class ConnectionEvent(enum.Enum):
    """What became of the connection."""

    REACHED = "the daemon's socket accepts connections"
    MADE = "the handshake succeeded: from here on frames arrive"
    LOST = "the connection is gone, and the frames on their way with it"
    REFUSED = "the daemon does not admit this key; no further attempt is made"
    TURNED_AWAY = "the daemon has too many connections now; the client tries again"
    FAILED = "the handshake did not succeed"
