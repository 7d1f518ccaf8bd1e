"""WConfD's door: Ganeti's programs ask for locks and configuration at a Unix socket, in JSON.

The methods are in `wconfd_methods`. The socket is for the daemon's user alone: secrets are shown.

An owner whose waiting request is granted gets SIGHUP, as from Ganeti's WConfD, after the new state
was written.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from typing import TYPE_CHECKING

import msgspec

from ...storage import errors
from ...storage.alive import lock_files
from ...transport import messages
from ...transport.ganeti import luxi
from . import wconfd_methods
from .document_door import DocumentDoor
from .document_sockets import DocumentSocket

if TYPE_CHECKING:
    from ...storage.locks.locks import Owner
    from ...transport.messages import Message
    from .wconfd_methods import Prepared

_SOCKET_MODE = 0o600

WAIT_SECONDS = 1_000_000.0
"""How long a waiting request is followed before it is sent again."""


class WconfdListener(DocumentDoor):
    """Owns the socket of WConfD."""

    name = "wconfd_listener"
    protocol = "WConfD"
    connections_max = 256

    def boot(self) -> None:
        """Open the socket."""
        self._following: dict[Owner, int] = {}
        self._socket = DocumentSocket(
            self.runtime,
            self.places.wconfd_socket,
            self._serve,
            connections_max=self._connections(),
        )
        self._open()

    def _open_socket(self) -> None:
        problem = ""
        try:
            self._socket.open(_SOCKET_MODE)
        except errors.StorageError as error:
            # Its path may be too long for a socket: every other door works without this one.
            problem = error.text
        self._note(self.places.wconfd_socket, problem)

    # ------------------------------------------------------------ requests

    def _serve(self, number: int, document: bytes) -> None:
        try:
            call = luxi.decode_call(document)
            if call.method == "echo":
                self._socket.reply(number, luxi.encode_result(wconfd_methods.echoed(call)))
                return
            prepared = wconfd_methods.prepare(call)
        except luxi.UnreadableCallError as error:
            self.log.warning("request refused", error=error.text)
            self._socket.reply(number, luxi.encode_unreadable(error.text), is_last=True)
            return
        except errors.GangerError as error:
            self._refuse(number, error)
            return
        if isinstance(prepared.request, messages.RequestLocks):
            self._request_locks(number, prepared)
            return
        if isinstance(prepared.request, messages.SIGNED):
            sender = str(self._socket.peer(number) or "")
            prepared = prepared._replace(
                request=msgspec.structs.replace(prepared.request, sender=sender)
            )
        answered = functools.partial(self._answer, number, prepared)
        refused = functools.partial(self._refuse, number)
        self.runtime.ask(prepared.to, prepared.request, answered, refused)

    def _answer(self, number: int, prepared: Prepared, reply: Message) -> None:
        if isinstance(prepared.request, _WITHDRAWING):
            self._stop_following(prepared.request.owner)
        self._socket.reply(number, luxi.encode_result(prepared.result(reply)))

    def _refuse(self, number: int, error: errors.GangerError) -> None:
        more = [error.details] if isinstance(error, errors.ConfigVerifyError) else []
        self._socket.reply(number, luxi.encode_error(error.luxi_name, error.text, *more))

    # ------------------------------------------------------------ waiting requests

    def _request_locks(self, number: int, prepared: Prepared) -> None:
        """Answer at once, and send SIGHUP when a waiting request was granted."""
        waiting = _WaitingLocks(number)
        waiting.handle = self.runtime.ask(
            prepared.to,
            prepared.request,
            functools.partial(self._hear, waiting, prepared),
            functools.partial(self._give_up, waiting, prepared),
            self.runtime.clock() + WAIT_SECONDS,
        )
        if waiting.is_answered:
            self._following[prepared.request.owner] = waiting.handle

    def _hear(self, waiting: _WaitingLocks, prepared: Prepared, reply: Message) -> None:
        owner = prepared.request.owner
        is_granted = isinstance(reply, messages.LocksGranted)
        if not waiting.is_answered:
            # A request that was refused leaves the one before it waiting; this one replaces it.
            self._stop_following(owner)
            self._following[owner] = waiting.handle
            self._answer(waiting.number, prepared, reply)
            waiting.is_answered = True
        elif is_granted:
            _send_hang_up(owner)
        if is_granted:
            self._following.pop(owner, None)

    def _give_up(
        self, waiting: _WaitingLocks, prepared: Prepared, error: errors.GangerError
    ) -> None:
        owner = prepared.request.owner
        if not waiting.is_answered:
            self._refuse(waiting.number, error)
            return
        self._following.pop(owner, None)
        if isinstance(error, errors.DeadlineError) and not lock_files.is_dead(owner.lock_file):
            self._request_locks(0, prepared)

    def _stop_following(self, owner: Owner) -> None:
        handle = self._following.pop(owner, None)
        if handle is not None:
            self.runtime.stop_asking(handle)


_WITHDRAWING = (messages.ReleaseLocks, messages.DowngradeLocks, messages.KeepLocks)
"""These drop the owner's waiting request."""


class _WaitingLocks:
    """A request for locks on its way. Without a ``number``, no connection waits for its reply."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.handle = 0
        self.is_answered = number == 0


def _send_hang_up(owner: Owner) -> None:
    # The kernel says that this process is the owner, and not a later one of its number. It may end
    # at this moment, or be another user's.
    if lock_files.holder(owner.lock_file) == owner.pid:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(owner.pid, signal.SIGHUP)
