"""The listening socket of the local listener, which hands connections to libzmq by the batch.

libzmq accepts every connection on a socket that it listens on, and ends the process when there is
no descriptor for one. So it never listens where clients can connect. The socket at the path is
ours, and the kernel queues the connections to it, up to the backlog. To accept them, a new socket
takes the place at the path, and the old one, to which no client can connect any more, goes to
libzmq. While the listener has no room it hands over nothing, and clients wait.

libzmq ends the connections of a listening socket with that socket. So a batch stays as long as
one of its connections does.
"""

from __future__ import annotations

import itertools
import os
import select
import socket
import string
from pathlib import Path

from ...storage import documents, errors

PATH_BYTES_MAX = 107
"""Longest path of a Unix socket."""

_NAMES = ["." + "".join(pair) for pair in itertools.product(string.ascii_lowercase, repeat=2)]
_NAMES += [name + digit for name in _NAMES for digit in string.digits]


class Batch:
    """Connections handed over together. ``endpoint`` is where libzmq listens for them."""

    def __init__(self, listening: socket.socket) -> None:
        self.endpoint = f"ipc://{listening.getsockname()}"
        self.count = 0
        """How many of them are open."""
        self._has_begun = False
        self._listening: socket.socket | None = listening

    def came(self) -> None:
        """Libzmq has accepted one of them."""
        self.count += 1
        self._has_begun = True

    def went(self) -> None:
        """One of them has ended."""
        self.count -= 1

    @property
    def is_over(self) -> bool:
        """Whether all of them were accepted, and have ended."""
        return self._listening is None and self._has_begun and self.count == 0

    def look(self) -> None:
        """See whether libzmq has accepted all; then free the descriptor."""
        if self._listening is not None and not _has_waiting(self._listening):
            self.close()

    @property
    def is_in(self) -> bool:
        """Whether all of them were accepted, as far as `look` has seen."""
        return self._listening is None

    def close(self) -> None:
        """Free the descriptor. Twice is harmless."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()


class AcceptQueue:
    """The listening socket at ``path``; at most ``backlog`` + 1 connections wait there."""

    def __init__(self, path: Path, backlog: int) -> None:
        longest = max(path, path.with_name(_NAMES[-1]), key=lambda each: len(os.fsencode(each)))
        if len(os.fsencode(longest)) > PATH_BYTES_MAX:
            text = f"{path}: longer than {PATH_BYTES_MAX} bytes, too long for a socket"
            raise errors.DataDirectoryError(text)
        self._path = path
        self._backlog = backlog
        # A name for each batch that there may be; the oldest is used again first.
        self._names = itertools.cycle(_NAMES)
        # A poll of its own, so that its owner need not follow which socket listens now.
        self._poll = select.epoll()
        self._is_watched = False
        try:
            with documents.storage_errors(path):
                self._listening = self._listen(())
        except BaseException:
            self._poll.close()
            raise
        self.watch(is_wanted=True)

    def fileno(self) -> int:
        """Readable while connections wait and `watch` wants to know."""
        return self._poll.fileno()

    def watch(self, *, is_wanted: bool) -> None:
        """Whether to report connections that wait."""
        if is_wanted and not self._is_watched:
            self._poll.register(self._listening, select.EPOLLIN)
        elif self._is_watched and not is_wanted:
            self._poll.unregister(self._listening)
        self._is_watched = is_wanted

    @property
    def has_waiting(self) -> bool:
        """Whether a connection waits."""
        return bool(self._poll.poll(0)) if self._is_watched else _has_waiting(self._listening)

    def take(self, endpoints_in_use: dict[str, Batch]) -> tuple[Batch, int]:
        """The connections that wait now, and a listening descriptor with them for libzmq.

        Raises `OSError` if no other socket can take its place, or if there are no descriptors for
        all that may wait: the limit may have been lowered meanwhile.
        """
        _require_descriptors(self._listening, self._backlog + 4)
        theirs = os.dup(self._listening.fileno())
        try:
            fresh = self._listen(endpoints_in_use)
        except BaseException:
            os.close(theirs)
            raise
        self.watch(is_wanted=False)
        batch, self._listening = Batch(self._listening), fresh
        return batch, theirs

    def replace(self, endpoints_in_use: dict[str, Batch]) -> None:
        """Make the file at the path again; clients that waited connect again."""
        fresh = self._listen(endpoints_in_use)
        is_wanted = self._is_watched
        self.watch(is_wanted=False)
        self._listening.close()
        self._listening = fresh
        self.watch(is_wanted=is_wanted)

    def has_accepted(self, name: object) -> bool:
        """Whether a socket with this name of its own end may have been accepted here."""
        return isinstance(name, str) and Path(name).parent == self._path.parent

    def close(self) -> None:
        """Free the descriptors. The socket file stays: it may be a successor's by now."""
        self._listening.close()
        self._poll.close()

    def _listen(self, endpoints_in_use: dict[str, Batch] | tuple[()]) -> socket.socket:
        beside = next(
            beside
            for name in self._names
            if f"ipc://{(beside := self._path.with_name(name))}" not in endpoints_in_use
        )
        beside.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listening.bind(os.fspath(beside))
            beside.chmod(documents.SECRET_MODE)
            listening.listen(self._backlog)
            beside.replace(self._path)
        except BaseException:
            listening.close()
            raise
        return listening


def _require_descriptors(some: socket.socket, count: int) -> None:
    taken: list[int] = []
    try:
        taken.extend(os.dup(some.fileno()) for _ in range(count))
    finally:
        for descriptor in taken:
            os.close(descriptor)


def _has_waiting(listening: socket.socket) -> bool:
    poll = select.poll()
    poll.register(listening, select.POLLIN)
    return bool(poll.poll(0))
