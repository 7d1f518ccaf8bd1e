"""The ZeroMQ listener: frames in, typed messages on to the components, replies out as frames.

It checks the sender and the kind of each message, passes requests on, and remembers the open
ones: when a component is replaced, the listener refuses the requests that it had. It decides
nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
import weakref
from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple, assert_never

import msgspec

from ...storage import errors, settings
from ...storage.access.submitters import user_text
from ...storage.disk import documents
from ...transport import frames, messages
from ...transport.envelopes import Address, Envelope, WatchedEnvelope
from ...transport.messages import (
    JOB_MESSAGES,
    RECEIVERS,
    REVEALING,
    SIGNED,
    SUBMITTED,
    ClientRequest,
    JobMessage,
    Message,
    Request,
)
from ...transport.zmq.router import Router, Sent
from ..runtime.addresses import EXECUTOR, JOB_QUEUE
from ..runtime.component import Component
from .job_credentials import JobCredentials
from .submitters import Submitters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...transport.envelopes import Directory
    from ...transport.zmq.peers import Credentials, Incoming

_LASTING = (
    messages.WatchJobs,
    messages.AttachJob,
    messages.RequestLocks,
    messages.AwaitLocks,
    messages.RunOpcode,
    messages.CallNode,
)
"""Requests that may stay open without a limit."""

_PARTS = (
    messages.JobChanged,
    messages.JobsChanged,
    messages.JobLogged,
    messages.LocksPending,
    messages.NodeSilent,
)
"""Replies after which more follow under the same number."""


_FROM_PEERS = ClientRequest | JobMessage


class _Kind(NamedTuple):
    """What the listener needs to know of a type of messages."""

    is_of_job: bool
    is_signed: bool
    is_revealing: bool
    is_submitted: bool
    is_request: bool
    is_lasting: bool


@functools.cache
def _kind_of(message: type[Message]) -> _Kind:
    """Looked up for each frame: to search the unions takes microseconds."""
    sets = (JOB_MESSAGES, SIGNED, REVEALING, SUBMITTED, Request, _LASTING)
    return _Kind(*(issubclass(message, one) for one in sets))


class Outlet:
    """What the addresses of one listener's peers share. Any thread may use it."""

    def __init__(
        self,
        listener: str,
        directory: Directory,
        router: Router,
        unanswered: dict[tuple[bytes, int], str],
    ) -> None:
        self._listener = listener
        self._directory = directory
        self._router = router
        self._unanswered = unanswered
        """The requests that wait for an answer: peer and number, and the component that has it."""
        self._lock = threading.Lock()
        self._in_line: Counter[bytes] = Counter()
        """How many replies to each peer are on their way to the listener."""

    def tell(self, peer: bytes, envelope: Envelope) -> None:
        """Send a reply, or hand it to the listener.

        A component sends its replies itself, so that they do not wait for the listener's turn,
        unless another thread uses the sockets, or an earlier reply to the same peer has not left
        yet.
        """
        if peer not in self._in_line and self._is_sent(peer, envelope):
            return
        with self._lock:
            self._in_line[peer] += 1
        due = messages.ReplyDue(peer=peer, number=envelope.number, message=envelope.message)
        self._directory.tell(self._listener, Envelope(due))

    def has_left(self, peer: bytes) -> None:
        """The listener has sent the oldest reply that was handed to it."""
        with self._lock:
            self._in_line[peer] -= 1
            if self._in_line[peer] <= 0:
                # Zero, or less after a reply that was handed to the listener before this one.
                del self._in_line[peer]

    def _is_sent(self, peer: bytes, envelope: Envelope) -> bool:
        key = (peer, envelope.number)
        if key not in self._unanswered:
            # A notice, or the listener has refused the request already.
            return False
        try:
            data = frames.encode_reply(envelope.message, envelope.number)
        except errors.FrameError:
            # The listener reports this error to the peer.
            return False
        sent = self._router.try_send(peer, data)
        if sent is Sent.NO:
            return False
        if not isinstance(envelope.message, _PARTS):
            self._unanswered.pop(key, None)
        if sent is Sent.YES_AND_READ_ON:
            self._directory.tell(self._listener, Envelope(messages.FramesWaiting()))
        return True


class WireAddress(msgspec.Struct, frozen=True):
    """The address of a peer of the listener; any thread may use it."""

    peer: bytes
    outlet: Outlet

    def tell(self, envelope: Envelope) -> None:
        """Send a reply."""
        self.outlet.tell(self.peer, envelope)


class OpenFrames:
    """How many bytes of frames the components work at: above a limit the listener reads no more.

    A frame counts until its envelope is garbage-collected. That happens in any thread and at any
    moment, so the finalizer takes no lock. It makes ``descriptor`` readable.
    """

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Not in `close`: envelopes may outlive the listener, and another file could get the number.
        weakref.finalize(self, os.close, self.descriptor).atexit = False
        self._wake = functools.partial(os.eventfd_write, self.descriptor, 1)
        self._closed: deque[tuple[int, bool]] = deque()
        self._passing = self._lasting = 0

    def count(self, envelope: WatchedEnvelope, size: int, *, is_lasting: bool) -> None:
        """A frame of ``size`` bytes is on its way in ``envelope``."""
        if is_lasting:
            self._lasting += size
        else:
            self._passing += size
        # At the end of the process there is no reader.
        weakref.finalize(envelope, self._note, size, is_lasting).atexit = False

    def is_full(self) -> bool:
        """Whether to stop reading for now. Lasting requests do not count here."""
        while self._closed:
            size, was_lasting = self._closed.popleft()
            if was_lasting:
                self._lasting -= size
            else:
                self._passing -= size
        return self._passing >= settings.FRAMES_BYTES_OPEN_MAX

    def reset_descriptor(self) -> None:
        """Make the descriptor unreadable again; `is_full` takes in what it reported."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def has_room(self, size: int) -> bool:
        """Whether there is room for a lasting request of this size."""
        return self._lasting + size <= 2 * settings.FRAME_BYTES_MAX

    def _note(self, size: int, was_lasting: bool) -> None:  # noqa: FBT001 - from a finalizer
        self._closed.append((size, was_lasting))
        self._wake()


class WireListener(Component[messages.ListenerMessage]):
    """Owns the daemon's ZeroMQ sockets."""

    name = "wire_listener"

    def boot(self) -> None:
        """Open the sockets."""
        documents.make_private_directory(self.places.run)
        self._unanswered: dict[tuple[bytes, int], str] = {}
        self._shares: Counter[bytes] = Counter()
        self._counted_at = -math.inf
        self._attached: dict[bytes, Envelope] = {}
        self._job_credentials = JobCredentials(
            self.places.lock_files, self.places.former_lock_files
        )
        self._submitters = Submitters(self.places.keys, self.runtime.host.processes)
        self._open = OpenFrames()
        self._look_at = 0.0
        self._admitted = (0, os.geteuid())
        self.runtime.watch(self._open.descriptor)
        self._router = self._open_sockets()
        for descriptor in self._router.filenos():
            self.runtime.watch(descriptor)
        directory = self.runtime.host.directory
        self._outlet = Outlet(self.name, directory, self._router, self._unanswered)
        self.runtime.host.endpoints[:] = self._router.endpoints

    def _open_sockets(self) -> Router:
        host = self.runtime.host
        return Router(
            self.places.socket,
            remote=host.remote_endpoint,
            keys=self.places.keys,
            descriptors_max=None if host.budget is None else host.budget.listener,
        )

    def close(self) -> None:
        """Close the sockets."""
        if hasattr(self, "_router"):
            self._router.close()

    def receive(self, envelope: Envelope[messages.ListenerMessage]) -> None:
        """Send replies, and refusals of requests that a replaced component has forgotten."""
        message = envelope.message
        match message:
            case messages.ReplyDue():
                self._send(message.peer, message.number, message.message)
                self._outlet.has_left(message.peer)
            case messages.FramesWaiting():
                pass  # The end of this turn reads them.
            case messages.LocalSocketMissing():
                self._restore_local_socket()
            case messages.ComponentReplaced():
                self._refuse_forgotten(message.component)
                if message.component == "executor":
                    self._attach_again()
            case _:
                assert_never(message)

    def readable(self, descriptors: Iterable[int]) -> None:
        """A socket has news, or a component has finished a frame."""
        descriptors = list(descriptors)
        if self._open.descriptor in descriptors:
            self._open.reset_descriptor()
        if self._look_at == math.inf:
            # A new connection may be the reason.
            self._look_at = 0.0
        self._read_once(descriptors)

    def turn_ended(self) -> None:
        """Read the rest. From time to time, end silent connections that cost too much."""
        now = self.runtime.clock()
        is_due = now >= self._look_at
        if is_due:
            kept = sum(self.runtime.host.memory_kept.copy().values())
            if ended := self._router.guard_memory(kept):
                self.log.warning("silent connections are ended: memory grows", count=ended)
            if ended := self._router.end_unheard():
                self.log.warning("silent connections are ended: a listener is full", count=ended)
        self._read_dry()
        if is_due:
            has_connections = self._router.has_connections
            self._look_at = now + self._router.look_seconds if has_connections else math.inf
        is_watchful = self._look_at < math.inf
        self.runtime.patience_seconds = self._look_at - now if is_watchful else None

    def _restore_local_socket(self) -> None:
        """The file of the local socket was deleted, and perhaps its folder."""
        try:
            if self._router.restore_local_socket():
                self.log.warning("the local socket was deleted; it is back")
        except errors.GangerError as error:
            # The watchdog notices it again, and the listener tries again.
            self.log.error("the local socket was deleted", error=error.text)

    def _read_dry(self) -> None:
        """Read until nothing is left: the descriptors are edge-triggered, also after a send."""
        # If replies are due, the rest is read at the end of the next turn.
        while self._router.has_more and self._read_once() and not self.runtime.has_mail:
            if self.runtime.have_others_work:
                # A flood must not starve the components that share this thread.
                self.runtime.tell(Address(self.name), messages.FramesWaiting())

    def _read_once(self, reported: list[int] | None = None) -> bool:
        """Read some frames, as the router's `receive`; False while there are too many bytes.

        Those are the bytes at which the components work.
        """
        if self._open.is_full():
            # Take only the events: else the descriptors report the waiting frames again and again.
            self._router.receive(limit=0)
            return False
        for one in self._router.receive(reported=reported):
            self._take_in(one)
        for key, address in self._router.take_refused():
            self.log.warning("a remote client is refused: unknown key", key=key, address=address)
        for peer in self._router.take_left():
            self._forget_peer(peer)
            self._job_credentials.forget(peer)
        return True

    def _take_in(self, incoming: Incoming) -> None:
        address = WireAddress(incoming.peer, self._outlet)
        number = 0
        try:
            self._check_peer(incoming.identity)
            frame = frames.decode(incoming.data, _FROM_PEERS)
            number = frame.number
            kind = _kind_of(type(frame.message))
            if kind.is_of_job:
                self._job_credentials.check(incoming.peer, incoming.identity, frame.message)
            elif kind.is_signed:
                sender = _named(incoming.identity)
                signed = msgspec.structs.replace(frame.message, sender=sender)
                frame = msgspec.structs.replace(frame, message=signed)
            if kind.is_revealing:
                masked = msgspec.structs.replace(frame.message, reveals=False)
                frame = msgspec.structs.replace(frame, message=masked)
            if kind.is_submitted:
                named = self._submitters.named(frame.message, incoming.identity)
                frame = msgspec.structs.replace(frame, message=named)
            self._pass_on(frame, incoming.peer, address, len(incoming.data))
        except errors.GangerError as error:
            if isinstance(error, frames.UnreadableMessageError):
                number = error.number
            self.log.warning("request refused", error=error.text)
            self._send(incoming.peer, number, messages.Failure(error.name, error.text))

    def _pass_on(self, frame: frames.Frame, peer: bytes, address: WireAddress, size: int) -> None:
        kind = _kind_of(type(frame.message))
        receiver: Address[Message] = Address(RECEIVERS[type(frame.message)])
        if self.runtime.depth(receiver) > settings.MAILBOX_DEPTH_MAX:
            raise errors.BusyError(f"{receiver.name} has too much work waiting; try again")
        if kind.is_request:
            if len(self._unanswered) >= settings.REQUESTS_OPEN_PER_PEER_MAX:
                self._check_share(peer)
            if kind.is_lasting and not self._open.has_room(size):
                raise errors.BusyError("the open requests are too large together; try again")
            self._unanswered[peer, frame.number] = receiver.name
        seconds = frame.deadline_seconds
        deadline = None if seconds is None else self.runtime.clock() + seconds
        made = Envelope if size <= settings.SMALL_FRAME_BYTES else WatchedEnvelope
        envelope = made(frame.message, address, frame.number, deadline, peer)
        if isinstance(envelope, WatchedEnvelope):
            self._open.count(envelope, size, is_lasting=kind.is_lasting)
        if isinstance(frame.message, messages.AttachJob):
            self._attached[peer] = envelope
        self.runtime.forward(receiver, envelope)

    def _check_share(self, peer: bytes) -> None:
        """Many requests are open: refuse one more if this peer, or all together, have too many."""
        if len(self._unanswered) >= settings.REQUESTS_OPEN_MAX:
            raise errors.BusyError("too many requests are open; try again")
        now = self.runtime.clock()
        if now >= self._counted_at + settings.REQUESTS_COUNTED_SECONDS:
            # Counted all at once, and seldom: a count that is always right costs at every reply.
            self._counted_at = now
            self._shares = Counter(one for one, _ in self._unanswered.copy())
        if self._shares[peer] >= settings.REQUESTS_OPEN_PER_PEER_MAX:
            raise errors.BusyError("too many requests of this connection are open; try again")
        self._shares[peer] += 1

    def _check_peer(self, identity: Credentials) -> None:
        if identity.kind == "local" and identity.uid not in self._admitted:
            raise errors.NotAllowedError(f"user {identity.uid} may not use this daemon")
        if identity.key is not None:
            self._submitters.check_key(identity)

    def _send(self, peer: bytes, number: int, message: Message) -> None:
        if not isinstance(message, _PARTS):
            self._unanswered.pop((peer, number), None)
        try:
            data = frames.encode_reply(message, number)
        except errors.FrameError as error:
            data = frames.encode(messages.Failure(error.name, error.text), number)
        if not self._router.send(peer, data):
            self._forget_peer(peer)

    def _forget_peer(self, peer: bytes) -> None:
        """The peer has gone, or does not read: its watches and open requests end."""
        self.runtime.tell(JOB_QUEUE, messages.PeerGone(peer=peer))
        self._attached.pop(peer, None)
        for key in [key for key in self._unanswered.copy() if key[0] == peer]:
            self._unanswered.pop(key, None)

    def _attach_again(self) -> None:
        """Give a new executor the job processes that its predecessor reached here."""
        for envelope in self._attached.values():
            self.runtime.forward(EXECUTOR, envelope)

    def _refuse_forgotten(self, component: str) -> None:
        error = errors.RequestInterruptedError(f"component {component} was restarted")
        failure = messages.Failure(error.name, error.text)
        # A copy, here and above: other threads send replies too.
        forgotten = [key for key, name in self._unanswered.copy().items() if name == component]
        for peer, number in forgotten:
            self._send(peer, number, failure)


def _named(identity: Credentials) -> str:
    """The sender as the history of the configuration names it."""
    if identity.uid is not None:
        return f"{user_text(identity.uid)}, pid {identity.pid}"
    return f"key {identity.key} at {identity.address}"
