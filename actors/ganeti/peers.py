"""Who is at the other end of a Unix socket, as the kernel vouches for it."""

from __future__ import annotations

import array
import errno
import socket
import struct
from typing import NamedTuple

from ...storage.access.submitters import user_text

_CREDENTIALS = struct.Struct("iII")
"""The kernel's ``struct ucred``: pid, uid, gid."""

_SO_PEERGROUPS = 59
"""The option of a Unix socket that tells the peer's other groups; Python has no name for it."""

_GROUPS_MAX = 65_536
"""Most groups of a process (Linux, NGROUPS_MAX)."""

_OWN_BUFFER_BYTES_MAX = 1_024
"""As much as Python asks the kernel for at a time."""


class Peer(NamedTuple):
    """The process at the other end when it connected, as the kernel vouches for it."""

    pid: int
    uid: int
    groups: frozenset[int]

    def __str__(self) -> str:
        """The peer as logs and the history of the configuration name it."""
        return f"{user_text(self.uid)}, pid {self.pid}"


def peer_of(end: socket.socket) -> Peer:
    """The process that has connected ``end``."""
    packed = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(packed)
    return Peer(pid, uid, frozenset((gid, *_other_groups(end))))


def _other_groups(end: socket.socket) -> array.array[int]:
    found = array.array("I")
    try:
        found.frombytes(end.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _OWN_BUFFER_BYTES_MAX))
    except OSError as error:
        if error.errno == errno.ERANGE:
            return _many_groups(end)
    return found


def _many_groups(end: socket.socket) -> array.array[int]:
    """The groups of a peer that has more than fit into a buffer of Python's."""
    # Rare, and slow to import.
    import ctypes  # noqa: PLC0415

    found = array.array("I", bytes(4 * _GROUPS_MAX))
    size = ctypes.c_uint(4 * _GROUPS_MAX)
    address, _ = found.buffer_info()
    option = socket.SOL_SOCKET, _SO_PEERGROUPS
    is_wrong = ctypes.CDLL(None).getsockopt(
        end.fileno(), *option, ctypes.c_void_p(address), ctypes.byref(size)
    )
    return found[: 0 if is_wrong else size.value // found.itemsize]
