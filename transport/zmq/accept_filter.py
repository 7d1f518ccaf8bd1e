"""Stops a listening TCP socket from accepting for a while, also when libzmq owns it.

It is a packet filter that drops everything: a client that wants to connect gets no answer, and
tries again by itself. Connections made before go on.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct

_SO_ATTACH_FILTER = 26
_SO_DETACH_FILTER = 27
_RETURN = 0x06
_DROP = struct.pack("HBBI", _RETURN, 0, 0, 0)


class AcceptFilter:
    """A filter of the socket at ``descriptor``; keeps a descriptor of its own."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=os.dup(descriptor))

    def set(self, *, is_paused: bool) -> None:
        """Stop accepting, or go on. `OSError` if the system cannot."""
        if not is_paused:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
            return
        instruction = ctypes.create_string_buffer(_DROP, len(_DROP))
        program = struct.pack("HP", 1, ctypes.addressof(instruction))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)

    def close(self) -> None:
        """Free the descriptor."""
        self._socket.close()
