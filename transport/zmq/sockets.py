"""What the daemon's and the clients' sockets share: contexts, monitors, heartbeats, keys."""

from __future__ import annotations

import struct

import zmq

from ...storage.access import keys as key_files

SEND_QUEUE_MAX = 50_000
"""Frames waiting for one peer, above which it counts as gone: it does not read."""

HANDSHAKE_SECONDS = 10
"""How long the handshake of a connection may take."""

REMOTE_HEARTBEAT_SECONDS = 5
"""Silence after which each end of a remote connection asks for a sign of life."""

EVENTS, POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)
"""As numbers: those of pyzmq cost a look-up each time."""

_MONITOR_ENDPOINT = "inproc://monitor-"

_EVENT = struct.Struct("=hi")
"""The first frame of what a monitor tells: kind and value. pyzmq's reader of it loads asyncio."""


# Statuses of ZAP. 300, for temporary reasons, is not used: libzmq leaves some of those
# connections open until the time for the handshake is over.
ADMITTED = b"200", b"OK"
REFUSED = b"400"
TURNED_AWAY = b"500"


def new_key_pair() -> key_files.KeyPair:
    """A fresh CURVE key pair."""
    public, secret = zmq.curve_keypair()
    return key_files.KeyPair(public=public.decode(), secret=secret.decode())


def is_readable(socket: zmq.Socket[bytes]) -> bool:
    """Whether ``socket`` has a message. It reads its news first. Cheaper than to try and fail."""
    return bool(int(socket.getsockopt(EVENTS)) & POLLIN)


def new_context(linger_seconds: float) -> zmq.Context[zmq.Socket[bytes]]:
    """A context whose sockets, when it ends, take so long to get their last frames out.

    The sockets have this limit from the start. A connection that is lost with unsent frames just
    before the end keeps the limit that holds then, which is "for ever" by default.
    """
    context = zmq.Context()
    context.linger = round(linger_seconds * 1_000)
    return context


def set_heartbeat(socket: zmq.Socket[bytes]) -> None:
    """Have ``socket`` ask a silent other end for a sign of life, and end a dead connection."""
    socket.heartbeat_ivl = REMOTE_HEARTBEAT_SECONDS * 1_000
    socket.heartbeat_timeout = 3 * REMOTE_HEARTBEAT_SECONDS * 1_000


def new_monitor(
    socket: zmq.Socket[bytes], name: str, events: int, unread_max: int = 0
) -> zmq.Socket[bytes]:
    """A socket that tells of these events of ``socket``: read it with `next_event`."""
    endpoint = _MONITOR_ENDPOINT + name
    socket.monitor(endpoint, events)
    monitor: zmq.Socket[bytes] = socket.context.socket(zmq.PAIR)
    # With a limit, a monitor that is not read for long stops all traffic.
    monitor.rcvhwm = unread_max
    monitor.connect(endpoint)
    return monitor


def next_event(monitor: zmq.Socket[bytes]) -> tuple[int, int, str] | None:
    """The next event that ``monitor`` tells: its kind, value and endpoint; None if none came."""
    if not is_readable(monitor):
        return None
    head, endpoint = monitor.recv_multipart(zmq.NOBLOCK)
    kind, value = _EVENT.unpack(head)
    return kind, value, endpoint.decode()
