"""LUXI's door: Ganeti's own tools ask for everything about jobs at a Unix socket, in JSON.

The methods are in `luxi_methods`. The socket's mode and group say who gets in; of these, the
daemon's user, root and the members of the named group may change something, others only read.
"""

from __future__ import annotations

import functools
import math
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...storage import errors, settings
from ...storage.access.submitters import local_user
from ...transport import messages
from ...transport.ganeti import luxi
from ..runtime.addresses import JOB_QUEUE
from . import luxi_methods, luxi_talks
from .document_door import DocumentDoor
from .document_sockets import DocumentSocket, Rights, prepare_place
from .luxi_options import LuxiOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...transport.messages import Message
    from .luxi_talks import Ask, Talk
    from .peers import Peer


DOCUMENT_BYTES_MAX = 2 * settings.FRAME_BYTES_MAX
"""Largest request: as many jobs as one submission may have fit in."""

QUESTION_BYTES_MAX = 1024 * 1024
"""Largest request of those who may only read: a query for 100,000 jobs by their ids."""

BYTES_UNDER_WAY_MAX = {True: 64 * 1024 * 1024, False: 8 * 1024 * 1024}
"""Most bytes of large requests that are worked at: of those who may write (True), and of the
others."""

_LARGE_BYTES = 16 * 1024
"""Requests up to this size are not counted: the connections limit them."""

_LOG_SECONDS = 1.0
"""The time in which refusals share one line of the log."""


class LuxiListener(DocumentDoor):
    """Owns the socket of LUXI."""

    name = "luxi_listener"
    protocol = "LUXI"
    connections_max = 8_192
    """Each client that waits for a job has one."""

    def boot(self) -> None:
        """Open the socket."""
        host = self.runtime.host
        self._under_way: dict[int, _Served] = {}
        self._bytes_under_way = {False: 0, True: 0}
        """Of large requests, by whether the peer may write."""
        self._refused = 0
        self._quiet_until = -math.inf
        given = host.listener_options.get(self.name, {})
        if given is None:
            return
        self._options = msgspec.convert(given, LuxiOptions)
        self._path = Path(self._options.path or self.places.luxi_socket)
        self._socket = DocumentSocket(
            self.runtime,
            self._path,
            self._serve,
            connections_max=self._connections(),
            rights=self._rights,
            ended=self._gone,
        )
        self._open()

    def _open_socket(self) -> None:
        problem = ""
        try:
            if self._path != self.places.luxi_socket and not self._socket.is_open:
                prepare_place(self._path)
            self._socket.open(self._options.mode, self._options.group)
        except errors.StorageError as error:
            # Every other door works without this one.
            problem = error.text
        self._note(self._path, problem)

    # ------------------------------------------------------------ requests

    def _serve(self, number: int, document: bytes) -> None:
        given = self._surroundings(number)
        size = len(document) if len(document) > _LARGE_BYTES else 0
        try:
            self._require_room(size, may_write=given.may_write)
            call = luxi.decode_call(document)
            method, talk = luxi_methods.begin(call, given)
            peer = self._socket.peer(number)
            if method.is_writing and not given.may_write:
                raise errors.NotAllowedError(f"{call.method}: {peer} may only read here")
        except errors.GangerError as error:
            self._refuse(number, error)
            return
        self._under_way[number] = _Served(talk, peer, size, given.may_write)
        self._bytes_under_way[given.may_write] += size
        self._go_on(number, functools.partial(next, talk))

    def _require_room(self, size: int, *, may_write: bool) -> None:
        """Raise `BusyError` for one large request too many: decoded, it takes far more memory."""
        limit = BYTES_UNDER_WAY_MAX[may_write]
        if size and self._bytes_under_way[may_write] + size > limit:
            raise errors.BusyError("too many large requests are under way; try again later")

    def _leave(self, number: int) -> _Served | None:
        """The request is not under way any more."""
        served = self._under_way.pop(number, None)
        if served is not None:
            self._bytes_under_way[served.may_write] -= served.size
        return served

    def _surroundings(self, number: int) -> luxi_talks.MethodContext:
        return luxi_talks.MethodContext(
            number,
            str(uuid.uuid4()),
            self.runtime.clock,
            may_write=self._may_write(self._socket.peer(number)),
        )

    def _rights(self, peer: Peer) -> Rights:
        if self._may_write(peer):
            return Rights(DOCUMENT_BYTES_MAX)
        return Rights(QUESTION_BYTES_MAX, is_trusted=False)

    def _may_write(self, peer: Peer | None) -> bool:
        if peer is None:
            return False
        is_own = peer.uid in (0, os.geteuid())
        return is_own or self._options.group in peer.groups

    def _go_on(self, number: int, step: Callable[[], Ask]) -> None:
        """Let the method say what it asks next, or what the result is."""
        served = self._under_way[number]
        try:
            ask = step()
        except StopIteration as end:
            self._leave(number)
            self._socket.reply(number, luxi.encode_result(end.value))
            return
        except errors.GangerError as error:
            self._leave(number)
            self._refuse(number, error)
            return
        request = ask.request
        if isinstance(request, messages.SIGNED):
            request = msgspec.structs.replace(request, sender=str(served.peer))
        if isinstance(request, messages.SUBMITTED) and served.peer is not None:
            fields: dict[str, Any] = {"submitter": local_user(served.peer.uid, "luxi")}
            request = msgspec.structs.replace(request, **fields)
        handle = self.runtime.ask(
            ask.to,
            request,
            functools.partial(self._hear, number, served.talk),
            functools.partial(self._fail, number, served.talk),
            self.runtime.clock() + ask.seconds,
        )
        if number in self._under_way:
            self._under_way[number] = served._replace(handle=handle)

    def _hear(self, number: int, talk: Talk, reply: Message) -> None:
        if number in self._under_way:
            self._go_on(number, functools.partial(talk.send, reply))

    def _fail(self, number: int, talk: Talk, error: errors.GangerError) -> None:
        if number in self._under_way:
            self._go_on(number, functools.partial(talk.throw, error))

    def _refuse(self, number: int, error: errors.GangerError) -> None:
        if isinstance(error, luxi.UnreadableCallError):
            self._note_refusal(number)
            self._socket.reply(number, luxi.encode_unreadable(error.text), is_last=True)
            return
        self._socket.reply(number, luxi.encode_error(error.luxi_name, *_arguments(error)))

    def _note_refusal(self, number: int) -> None:
        """Log the sender of an unreadable request; the client has got the reason.

        The reason quotes the request, which may hold secrets. A flood must not fill the disk.
        """
        self._refused += 1
        now = self.runtime.clock()
        if now < self._quiet_until:
            return
        peer = str(self._socket.peer(number))
        self.log.warning("unreadable requests refused", count=self._refused, last=peer)
        self._refused = 0
        self._quiet_until = now + _LOG_SECONDS

    def _gone(self, number: int) -> None:
        """The client does not wait for the answer any more."""
        served = self._leave(number)
        if served is not None:
            self.runtime.stop_asking(served.handle)
            # If it waited for a change of a job, that wait is over.
            self.runtime.tell(JOB_QUEUE, messages.StopWatch(request_id=number))


class _Served(NamedTuple):
    """A request under way: its method, who sent it, and what the method waits for."""

    talk: Talk
    peer: Peer | None
    size: int
    """Bytes of its document, if it is large."""
    may_write: bool
    handle: int = 0


def _arguments(error: errors.GangerError) -> list[str]:
    """The arguments of Ganeti's exception."""
    if error.luxi_name == errors.BadRequestError.luxi_name:
        code = getattr(error, "error_code", errors.BadRequestError.error_code)
        return [error.text, code]
    return [error.text]
