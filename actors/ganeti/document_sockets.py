"""A Unix socket whose peers send documents (`luxi`): accepts, reads, writes, closes. Never blocks.

Each connection is served one document at a time, in order; none is served or read while many of
its replies are not read. A connection that reads nothing of its reply, or does not come to the end
of a document, is ended after a time; a silent one may stay.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import stat
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...storage import errors
from ...storage.disk import documents
from ...transport.ganeti import luxi
from .peers import peer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..runtime.component import Runtime
    from ..runtime.host import FileId
    from .peers import Peer

PIPELINED_MAX = 64
"""Most documents of one connection that wait; it is not read meanwhile."""

UNSENT_BYTES_MAX = 1024 * 1024
"""Bytes of replies that a peer has not read above which it is neither served nor read."""

HELD_BYTES_MAX = 128 * 1024 * 1024
"""Most bytes of all connections' documents together; more end the connection that holds most."""

REPLIES_BYTES_MAX = 128 * 1024 * 1024
"""Most bytes of all connections' replies together, but for a single large one; more end the
connection that has read nothing for the longest time."""

STALLED_SECONDS = 60.0
"""How long a document may take on its way, and a reply without any progress."""

DOCUMENTS_PER_LOOK = 32
"""Most documents of one connection that are served before other connections have their turn."""

_READ_BYTES = 65_536

_READS_PER_LOOK = 16

_BACKLOG = 65_535


class Rights(NamedTuple):
    """How much a peer may ask of us.

    The others together never keep trusted ones from connecting and sending. A large document
    holds up the whole daemon while it is decoded.
    """

    document_bytes_max: int = luxi.DOCUMENT_BYTES_MAX
    is_trusted: bool = True


class Connection:
    """One peer."""

    def __init__(
        self, number: int, end: socket.socket, now: float, rights: Rights, peer: Peer
    ) -> None:
        self.number = number
        self.end = end
        self.peer = peer
        self.is_trusted = rights.is_trusted
        self.reader = luxi.DocumentReader(rights.document_bytes_max)
        self.waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        self.unsent = bytearray()
        self.is_busy = False
        """A document is being served."""
        self.is_closing = False
        """It ends when everything is sent."""
        self.is_in_turn = False
        """Its documents are being gone through."""
        self.has_ended = False
        """The peer sends nothing more, but reads."""
        self.watched = (True, False)
        """Whether it is watched for reading, and for writing."""
        self.begun_at = now
        """When the document began that has not ended."""
        self.sent_at = now
        """When something of the replies was sent, or the first of them was there."""

    @property
    def held(self) -> int:
        """Bytes of its documents that are not served yet."""
        return self.reader.size + self.waiting_bytes


class DocumentSocket:
    """A listening socket and its connections.

    ``serve`` gets each document with the number of its connection, and later calls `reply`.
    ``ended`` gets the number of a connection that ended while its document was being served.
    ``connections_max``: how many there may be at a time; more wait in the backlog. Three quarters
    of them may be peers that are not trusted; more of these are turned away.
    """

    def __init__(
        self,
        runtime: Runtime,
        path: Path,
        serve: Callable[[int, bytes], None],
        *,
        connections_max: int = 256,
        rights: Callable[[Peer], Rights] = lambda _peer: Rights(),
        ended: Callable[[int], None] = lambda _number: None,
    ) -> None:
        self._runtime = runtime
        self._path = path
        self._serve = serve
        self._ended = ended
        self._connections_max = connections_max
        self._rights = rights
        self._untrusted = 0
        self._held = 0
        self._unsent = 0
        self._connections: dict[int, Connection] = {}
        self._by_descriptor: dict[int, Connection] = {}
        self._number = 0
        self._is_accepting = False
        self._listener: socket.socket | None = None
        self.file: FileId | None = None
        """The file at which it was opened last."""

    @property
    def is_open(self) -> bool:
        """Whether clients find it: it listens, and its file is there."""
        return self._listener is not None and _file_id(self._path) == self.file

    def open(self, mode: int, group: int | None = None) -> None:
        """Listen, again if the file was deleted or replaced; connections stay.

        The file gets this mode and, if one is given, the group of this id. Raises `StorageError`.
        """
        if self.is_open:
            return
        self._stop_listening()
        self._listener = _listen(self._path, mode, group)
        self.file = _file_id(self._path)
        self._accept(is_open=True)

    def close(self) -> None:
        """Close everything, and remove the socket; a file that is not ours stays."""
        for connection in list(self._connections.values()):
            self._end(connection)
        if self.is_open:
            with contextlib.suppress(OSError):
                self._path.unlink()
        self._stop_listening()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._accept(is_open=False)
            self._listener.close()
            self._listener = None

    def readable(self, descriptors: Iterable[int]) -> None:
        """Something can be accepted, read or written."""
        for descriptor in descriptors:
            connection = self._by_descriptor.get(descriptor)
            if connection is None:
                self._accept_all()
            else:
                self._serve_next(connection)
                self._read(connection)
                # The kernel reports the end of a peer also while the connection is not read.
                if not self._may_read(connection) and _is_gone(connection.end):
                    self._end(connection)
                self._settle(connection)

    def reply(self, number: int, document: bytes, *, is_last: bool = False) -> None:
        """Answer the document being served; ``is_last``: then close the connection."""
        connection = self._connections.get(number)
        if connection is None:
            return
        connection.is_busy = False
        connection.is_closing |= is_last
        if not connection.unsent:
            connection.sent_at = self._runtime.clock()
        connection.unsent += document
        self._unsent += len(document)
        if not connection.is_in_turn:
            self._serve_next(connection)
            self._settle(connection)
        if self._unsent > REPLIES_BYTES_MAX:
            self._end_readers()

    def _end_readers(self) -> None:
        """End those that do not read, the longest first, but for the last one."""
        unread = [one for one in self._connections.values() if one.unsent]
        unread.sort(key=lambda one: one.sent_at)
        while self._unsent > REPLIES_BYTES_MAX and len(unread) > 1:
            self._end(unread.pop(0))

    def peer(self, number: int) -> Peer | None:
        """Who is at the other end; None: the connection has ended."""
        connection = self._connections.get(number)
        return None if connection is None else connection.peer

    def end_stalled(self) -> list[int]:
        """End the connections that make no progress; their numbers. Accept again, if we stopped."""
        self._accept(is_open=True)
        limit = self._runtime.clock() - STALLED_SECONDS
        found = [one for one in self._connections.values() if self._is_stalled(one, limit)]
        for connection in found:
            self._end(connection)
        return [connection.number for connection in found]

    def _is_stalled(self, connection: Connection, limit: float) -> bool:
        if connection.unsent:
            return connection.sent_at < limit
        is_within = connection.reader.size > 0 and self._may_read(connection)
        return is_within and connection.begun_at < limit

    @property
    def has_connections(self) -> bool:
        """Whether there is a connection."""
        return bool(self._connections)

    @property
    def needs_looks(self) -> bool:
        """Whether `end_stalled` may have something to do later."""
        is_full = self._listener is not None and not self._is_accepting
        return is_full or self.has_connections

    def _accept_all(self) -> None:
        for end in self._accepted():
            peer = peer_of(end)
            rights = self._rights(peer)
            if not rights.is_trusted and self._untrusted >= self._connections_max * 3 // 4:
                end.close()
                continue
            self._untrusted += not rights.is_trusted
            self._number += 1
            connection = Connection(self._number, end, self._runtime.clock(), rights, peer)
            self._connections[self._number] = connection
            self._by_descriptor[end.fileno()] = connection
            self._runtime.watch(end.fileno())

    def _accepted(self) -> Iterator[socket.socket]:
        while self._listener is not None and len(self._connections) < self._connections_max:
            try:
                end, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # No descriptor left: the peer waits in the backlog until one is closed.
                break
            end.settimeout(0)
            yield end
        self._accept(is_open=False)

    def _accept(self, *, is_open: bool) -> None:
        if self._listener is not None and is_open is not self._is_accepting:
            change = self._runtime.watch if is_open else self._runtime.forget
            change(self._listener.fileno())
            self._is_accepting = is_open

    def _read(self, connection: Connection) -> None:
        """Read what is there, unless others should have their turn."""
        for _ in range(_READS_PER_LOOK):
            if self._may_serve(connection) or not self._may_read(connection):
                return
            try:
                data = connection.end.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                connection.has_ended = True
                if _is_gone(connection.end):
                    self._end(connection)
                else:
                    self._send(connection)
                return
            try:
                self._take(connection, data)
            except luxi.UnreadableCallError as error:
                self.reply(connection.number, luxi.encode_unreadable(error.text), is_last=True)
                return
            self._serve_next(connection)

    def _take(self, connection: Connection, data: bytes) -> None:
        """Cut what was read into documents. Raises `UnreadableCallError` for a large one."""
        before = connection.held
        was_within = connection.reader.size > 0
        try:
            documents = connection.reader.feed(data)
            connection.waiting += documents
            connection.waiting_bytes += sum(map(len, documents))
        finally:
            self._held += connection.held - before
        if documents or not was_within:
            connection.begun_at = self._runtime.clock()
        if self._held > HELD_BYTES_MAX:
            self._end(max(self._connections.values(), key=_burden))

    def _may_read(self, connection: Connection) -> bool:
        is_open = connection.number in self._connections and not connection.is_closing
        has_room = len(connection.waiting) < PIPELINED_MAX and _reads_replies(connection)
        return is_open and has_room and not connection.has_ended

    def _serve_next(self, connection: Connection) -> None:
        """Send what there is, and serve some of what waits as long as the peer reads the replies.

        Documents that are answered at once, one after the other, must not keep others waiting.
        """
        if connection.is_in_turn:
            return
        connection.is_in_turn = True
        self._send(connection)
        left = DOCUMENTS_PER_LOOK
        while left > 0 and self._may_serve(connection):
            while left > 0 and self._may_serve(connection):
                left -= 1
                document = connection.waiting.popleft()
                connection.waiting_bytes -= len(document)
                self._held -= len(document)
                connection.is_busy = True
                self._serve(connection.number, document)
            self._send(connection)
        connection.is_in_turn = False

    def _may_serve(self, connection: Connection) -> bool:
        is_free = not connection.is_busy and not connection.is_closing
        is_open = connection.number in self._connections
        return bool(connection.waiting) and is_open and is_free and _reads_replies(connection)

    def _send(self, connection: Connection) -> None:
        if connection.number not in self._connections:
            return
        while connection.unsent:
            try:
                sent = connection.end.send(connection.unsent)
            except BlockingIOError:
                return
            except OSError:
                self._end(connection)
                return
            del connection.unsent[:sent]
            self._unsent -= sent
            connection.sent_at = self._runtime.clock()
        is_served = not connection.is_busy and not connection.waiting
        if connection.is_closing or (connection.has_ended and is_served):
            self._end(connection)

    def _settle(self, connection: Connection) -> None:
        """Watch the connection for what it waits for."""
        if connection.number not in self._connections:
            return
        # What is left to be served goes on when the peer can be written to, which is at once.
        is_writing = bool(connection.unsent) or self._may_serve(connection)
        wanted = (self._may_read(connection), is_writing)
        if wanted != connection.watched:
            reading, writing = wanted
            if reading and not connection.watched[0]:
                # It could not go on before.
                connection.begun_at = self._runtime.clock()
            connection.watched = wanted
            self._runtime.watch_for(connection.end.fileno(), reading=reading, writing=writing)

    def _end(self, connection: Connection) -> None:
        if self._connections.pop(connection.number, None) is None:
            return
        self._held -= connection.held
        self._unsent -= len(connection.unsent)
        self._untrusted -= not connection.is_trusted
        descriptor = connection.end.fileno()
        del self._by_descriptor[descriptor]
        self._runtime.forget(descriptor)
        connection.end.close()
        self._accept(is_open=True)
        if connection.is_busy:
            self._ended(connection.number)


def _burden(connection: Connection) -> tuple[bool, int]:
    return connection.held > 0 and not connection.is_trusted, connection.held


def _reads_replies(connection: Connection) -> bool:
    return len(connection.unsent) < UNSENT_BYTES_MAX


def _is_gone(end: socket.socket) -> bool:
    """Whether either side has closed it; the peer may only have ended its own sending."""
    if end.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(end, 0)
    return bool(poll.poll(0))


def prepare_place(path: Path) -> None:
    """Make the folder of a socket that an operator has named; `StorageError` if that is in use.

    Only a socket at which no process listens is replaced.
    """
    with documents.storage_errors(path):
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not path.exists():
            return
        if not path.is_socket():
            raise errors.StorageError(f"{path}: this file is no socket, and is left as it is")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        # A full backlog (EAGAIN) means a listener, too.
        found = probe.connect_ex(os.fspath(path))
    if found != errno.ECONNREFUSED:
        raise errors.StorageError(f"{path}: another program listens at this socket")


def _file_id(path: Path) -> FileId | None:
    """The file at ``path``; None: there is none that could be ours."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _give_rights(path: Path, mode: int, group: int | None) -> None:
    """Give the socket its mode and its group; never follow a link that was put there."""
    folder = path.parent.stat()
    if folder.st_uid == os.geteuid() and not folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        if group is not None:
            os.chown(path, -1, group)
        path.chmod(mode)
        return
    # Others write into this folder: the file may not be the one that we have just made.
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
            raise errors.StorageError(f"{path}: another program has replaced this socket")
        # The system changes a descriptor of this kind by this name only.
        same = f"/proc/self/fd/{descriptor}"
        if group is not None:
            os.chown(same, -1, group)
        Path(same).chmod(mode)
    finally:
        os.close(descriptor)


def _listen(path: Path, mode: int, group: int | None) -> socket.socket:
    """A listening socket at ``path``, in place of one that an ended daemon has left."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.settimeout(0)
        with documents.storage_errors(path):
            path.unlink(missing_ok=True)
            listener.bind(os.fspath(path))
            _give_rights(path, mode, group)
            # As long a line as the system permits: a client that finds it full fails at once.
            listener.listen(_BACKLOG)
    except errors.StorageError:
        listener.close()
        raise
    return listener
