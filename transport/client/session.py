"""The client's side of the conversation with a daemon, without sockets and without a clock.

A `Session` numbers requests, matches replies to them, ends what takes too long, and sends again
what a lost connection or a restarted component has swallowed (`resending` says what may be sent
again). A request that its component did not survive is never sent again (`RequestFatalError`); a
request that may have been the cause is sent again a few times.

A watch that is silent for a while is probed with a small listing. The reply proves that the
daemon's queue lives. If it shows a status that the watch should have told before, the watch is
dead (the daemon gives up a peer that does not read), and the session begins it anew. A heartbeat of
the connection would not show that.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ...storage import errors, settings
from .. import frames, messages
from ..messages import JobChanged, JobLogged, JobRows, Message, Request, WatchEnded
from ..zmq.connection_event import ConnectionEvent
from . import resending
from .pending_requests import PendingCall, PendingRequest, PendingWatch, ReplyT
from .reachability import Reachability
from .resending import name_of
from .watch_progress import PARTS_MAX, Part, WatchProgress

RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.05, 1.0
"""How long to wait before a refused request is sent again: doubled each time."""

LAST_WORD_SECONDS = 1.0
"""How long the daemon may take, after a wait that timed out, to say how its jobs stand."""

INTERRUPTIONS_MAX = 3
"""How often a request is repeated after a restart of its component, whatever the cause."""

LOSSES_MAX = 100
"""How often a request is repeated after a lost connection: it may be what ends the daemon.

A flooded daemon ends connections too, some dozens in the time of one request.
"""


class ConnectionLostError(errors.DaemonUnreachableError):
    """The connection was lost before the answer came."""


class Session:
    """All requests under way of one client. Times are monotonic seconds.

    ``unreachable`` is the text of the error when no daemon answers. ``on_outage`` gets a sentence
    when the daemon goes away while a request is under way, and one when a daemon is back.
    """

    def __init__(
        self,
        unreachable: str,
        timeout_seconds: float,
        on_outage: Callable[[str], None] | None = None,
    ) -> None:
        self.wants_new_socket = False
        """The socket in use leads nowhere: make another one before the next request."""
        self._timeout_seconds = timeout_seconds
        self._reach = Reachability(unreachable, on_outage)
        self._numbers = itertools.count(1)
        self._pending: dict[int, PendingRequest] = {}
        self._outbox: dict[PendingRequest, None] = {}
        self._notices: deque[bytes] = deque()
        self._wake_at = math.inf

    # Requests of the caller.

    @property
    def is_connected(self) -> bool:
        """Whether the connection stands."""
        return self._reach.is_connected

    @property
    def can_send(self) -> bool:
        """Whether something is to be sent, and the connection stands."""
        return bool(self._outbox or self._notices) and self.is_connected

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way and nothing waits to be sent."""
        return not self._pending and not self._notices

    def request(
        self, message: Request[ReplyT], *, now: float, deadline: float
    ) -> PendingCall[ReplyT]:
        """Begin a request; `BadRequestError` if it cannot be put into a frame."""
        call = PendingCall(next(self._numbers), message, deadline)
        call.frame = resending.encode(message, call.number, deadline - now)
        self._begin(call, now)
        return call

    def watch(
        self,
        ids: Sequence[int] | None,
        *,
        log: bool,
        now: float,
        deadline: float | None,
        is_final_only: bool = False,
    ) -> PendingWatch:
        """Begin a watch; ``is_final_only``: only of final statuses."""
        progress = WatchProgress(ids, log=log, is_final_only=is_final_only)
        watch = PendingWatch(next(self._numbers), progress, deadline, now)
        self._begin(watch, now)
        if watch.progress.is_complete:
            self._finish(watch)
        return watch

    def next_part(self, watch: PendingWatch, now: float) -> Part | None:
        """The next part of a watch; None if there is none now."""
        part = watch.progress.take()
        if part is None and watch.is_paused and not watch.is_done:
            watch.is_paused = False
            self._resume(watch, now)
        return part

    def forget(self, request: PendingRequest) -> None:
        """Drop a request that no caller waits for. Harmless when it is done."""
        if not request.is_done:
            self._stop_lasting(request)
            self._finish(request)

    def fail_all(self, error: Exception) -> None:
        """End everything under way with ``error``."""
        for request in list(self._pending.values()):
            if not request.is_done:
                self._finish(request, error)

    # Events of the connection, and time.

    def opened(self, now: float) -> None:
        """The client tries a new connection, maybe to another daemon."""
        self._reach.opened(now)
        self.wants_new_socket = False
        self._wake_by(self._reach.despair_at(now))

    def connection_changed(self, event: ConnectionEvent, now: float) -> None:
        """The socket tells an event of the connection."""
        if event is ConnectionEvent.LOST:
            self._lose_connection()
        self._reach.changed(event, now)
        match event:
            case ConnectionEvent.MADE:
                self._send_all_again(now)
                self._reach.outage.end()
            case ConnectionEvent.REFUSED:
                self.wants_new_socket = True
                self.fail_all(errors.NotAllowedError("the daemon does not know this key"))
            case ConnectionEvent.TURNED_AWAY:
                for request in self._pending.values():
                    request.failure = errors.BusyError("the daemon has too many connections")
        self._wake_by(now)

    def received(self, data: bytes, now: float) -> None:
        """A frame has come in."""
        try:
            frame = frames.decode(data, messages.ClientReply)
        except frames.UnreadableMessageError as error:
            if (request := self._pending.get(error.number)) is not None:
                self._finish(request, error)
            return
        except errors.FrameError:
            # Without a number no request can fail over it; its deadline will end it.
            return
        match self._pending.get(frame.number):
            case PendingCall() as call:
                self._take_reply(call, frame.message, now)
            case PendingWatch() as watch:
                self._take_part(watch, frame.number, frame.message, now)

    def flush(self, send: Callable[[bytes], bool], now: float) -> None:
        """Send what is to be sent, until ``send`` says that it cannot.

        A connection may take frames a moment before `ConnectionEvent.MADE` is read. A frame that
        is sent then would be sent again on that event.
        """
        if not self.is_connected:
            return
        while self._notices and send(self._notices[0]):
            self._notices.popleft()
        while self._outbox and not self._notices:
            request = next(iter(self._outbox))
            if not send(self._frame(request, now)):
                break
            del self._outbox[request]
            request.is_sent = True

    def tick(self, now: float) -> None:
        """Do what is due: deadlines, repeated requests, probes."""
        if now < self._wake_at:
            return
        self._wake_at = math.inf
        if self._pending and (text := self._reach.despair(now)) is not None:
            self.wants_new_socket = True
            self.fail_all(errors.DaemonUnreachableError(text))
        for number, request in list(self._pending.items()):
            if number == request.number and not request.is_done:
                self._check(request, now)
        if self._pending:
            self._wake_by(self._reach.outage.look(now))
            self._wake_by(self._reach.despair_at(now))

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do; infinite if only events bring work."""
        return self._wake_at

    def wait_seconds(self, now: float) -> float | None:
        """How long until `tick` has something to do; None if only events bring work."""
        return None if math.isinf(self._wake_at) else max(0.0, self._wake_at - now)

    # Requests with one reply.

    def _take_reply(self, call: PendingCall[Any], message: Message, now: float) -> None:
        if isinstance(message, messages.Failure):
            error = errors.from_wire(message.error, message.text)
            call.interruptions += isinstance(error, errors.RequestInterruptedError)
            if call.interruptions > INTERRUPTIONS_MAX:
                error = errors.RequestFatalError(
                    f"{name_of(call.message)}: {error.text}, {call.interruptions} times over this "
                    "request; it is not repeated, and whether it took effect is unknown"
                )
            retried = resending.RETRIED if call.probes is None else resending.WATCH_RETRIED
            lost = resending.settled(call.message, error) if call.may_be_done else None
            if lost is not None:
                call.reply = lost
                self._finish(call)
            elif isinstance(error, retried):
                self._retry_later(call, error, now)
            else:
                self._finish(call, error)
        elif isinstance(message, resending.reply_types(type(call.message))):
            if call.may_be_done and isinstance(message, messages.CancelOutcome):
                message = resending.canceled(call.message, message)
            call.reply = message
            self._finish(call)
        else:
            asked, told = name_of(call.message), name_of(message)
            self._finish(call, errors.FrameError(f"{asked}: the daemon answered with {told}"))
        if call.is_done and call.probes is not None:
            self._take_probe(call.probes, call, now)

    def _retry_later(self, request: PendingRequest, error: errors.GangerError, now: float) -> None:
        request.failure = error
        request.may_be_done |= isinstance(error, errors.ComponentRestartedError)
        pause = min(RETRY_SECONDS_MAX, RETRY_SECONDS_MIN * 2**request.retries)
        request.retries += 1
        request.retry_at = now + pause
        if request.deadline is not None and request.retry_at >= request.deadline:
            self._finish(request, error)
        else:
            self._wake_by(request.retry_at)

    # Watches.

    def _take_part(self, watch: PendingWatch, number: int, message: Message, now: float) -> None:
        is_current = number == watch.number
        match message:
            case JobChanged() | JobLogged():
                if is_current:
                    self._drop_earlier_numbers(watch)
                self._take_news(watch, message, now)
            case _ if not is_current:
                # The end of a watch that was given up already.
                watch.earlier_numbers.remove(number)
                del self._pending[number]
            case WatchEnded() if watch.progress.is_complete:
                self._finish(watch, is_ended=True)
            case WatchEnded():
                lost = errors.ComponentRestartedError("the daemon has ended the watch")
                self._watch_failed(watch, lost, now)
            case messages.Failure():
                error = errors.from_wire(message.error, message.text)
                if isinstance(error, resending.WATCH_RETRIED):
                    self._watch_failed(watch, error, now)
                else:
                    self._finish(watch, error, is_ended=True)
            case _:
                error = errors.FrameError(
                    f"watch_jobs: the daemon answered with {name_of(message)}"
                )
                self._finish(watch, error)

    def _take_news(self, watch: PendingWatch, message: JobChanged | JobLogged, now: float) -> None:
        watch.heard_at = now
        if not watch.progress.add(message):
            return
        watch.failing_since, watch.retries = None, 0
        if watch.progress.is_final_only and watch.progress.is_complete:
            # Only the end of the watch can follow: do not wait for it.
            self._finish(watch, is_ended=True)
            return
        if watch.progress.waiting_count > PARTS_MAX:
            # The watch goes on from here when these parts were read; the daemon then tells each
            # job as it stands.
            watch.is_paused = True
            self._stop(watch)
            self._drop_numbers(watch)
            watch.is_sent = False
        watch.changed()

    def _watch_failed(self, watch: PendingWatch, error: errors.GangerError, now: float) -> None:
        if watch.failing_since is None:
            watch.failing_since = now
        if now - watch.failing_since >= self._timeout_seconds:
            self._finish(watch, error, is_ended=True)
        else:
            watch.is_sent = False
            self._retry_later(watch, error, now)

    def _resume(self, watch: PendingWatch, now: float) -> None:
        """Request the watch anew, under a new number."""
        if watch.progress.is_complete:
            self._finish(watch)
            return
        watch.number = next(self._numbers)
        watch.is_sent = False
        watch.retry_at = None
        watch.heard_at = now
        self._begin(watch, now)

    def _start_probe(self, watch: PendingWatch, now: float, seconds: float) -> None:
        call = self.request(watch.progress.probe(), now=now, deadline=now + seconds)
        call.probes, watch.probe = watch, call

    def _take_probe(self, watch: PendingWatch, call: PendingCall[JobRows], now: float) -> None:
        watch.probe = None
        if watch.is_expired:
            if call.error is None:
                watch.progress.note(call.result().rows)
            self._expire(watch, now)
            return
        if call.error is not None:
            self._finish(watch, call.error)
            return
        watch.heard_at = now
        self._wake_by(now + settings.CLIENT_HEARTBEAT_SECONDS)
        if watch.progress.differs(call.result().rows) and watch.is_sent:
            self._stop(watch)
            watch.earlier_numbers.append(watch.number)
            self._resume(watch, now)

    def _stop(self, request: PendingRequest) -> None:
        if request.is_sent and self.is_connected:
            self._notices.append(frames.encode(messages.StopWatch(request_id=request.number)))

    def _stop_lasting(self, request: PendingRequest) -> None:
        """Let the daemon know that no caller waits for this reply, which may take long."""
        if isinstance(request, PendingCall) and isinstance(request.message, resending.LASTING):
            self._stop(request)

    def _drop_earlier_numbers(self, watch: PendingWatch) -> None:
        for number in watch.earlier_numbers:
            self._pending.pop(number, None)
        watch.earlier_numbers.clear()

    def _drop_numbers(self, watch: PendingWatch) -> None:
        self._drop_earlier_numbers(watch)
        self._pending.pop(watch.number, None)
        self._outbox.pop(watch, None)
        if watch.probe is not None:
            self._finish(watch.probe)
            watch.probe = None

    # Time and connections.

    def _check(self, request: PendingRequest, now: float) -> None:
        if request.deadline is not None:
            if now >= request.deadline:
                self._expire(request, now)
                return
            self._wake_by(request.deadline)
        if request.retry_at is not None:
            if now >= request.retry_at:
                self._repeat(request, now)
            else:
                self._wake_by(request.retry_at)
        if isinstance(request, PendingWatch) and request.probe is None and not request.is_done:
            probe_at = request.heard_at + settings.CLIENT_HEARTBEAT_SECONDS
            if now >= probe_at:
                self._start_probe(request, now, self._timeout_seconds)
            else:
                self._wake_by(probe_at)

    def _repeat(self, request: PendingRequest, now: float) -> None:
        request.retry_at = None
        if isinstance(request, PendingWatch):
            del self._pending[request.number]
            self._resume(request, now)
        elif isinstance(request, PendingCall):
            if isinstance(request.message, resending.KEYED):
                self._renumber(request)
            self._outbox[request] = None

    def _expire(self, request: PendingRequest, now: float) -> None:
        error: errors.GangerError
        if isinstance(request, PendingWatch):
            if self._starts_last_probe(request, now):
                return
            if request.progress.is_complete:
                self._finish(request)
                return
            seconds, missing = now - request.began, request.progress.missing()
            text = f"not final in {seconds:.3g} s: {missing}" if missing else "the time is over"
            error = errors.DeadlineError(text)
        elif request.failure is not None:
            error = request.failure
        elif self.is_connected:
            what = name_of(request.message) if isinstance(request, PendingCall) else ""
            error = errors.DeadlineError(f"{what}: no answer came before the deadline")
        else:
            error = errors.DaemonUnreachableError(self._reach.unreachable)
        self._stop_lasting(request)
        self._finish(request, error)
        if isinstance(request, PendingCall) and request.probes is not None:
            self._take_probe(request.probes, request, now)

    def _starts_last_probe(self, watch: PendingWatch, now: float) -> bool:
        """Whether a wait that timed out begins a last probe: it was told of final statuses only."""
        if watch.is_expired or not watch.progress.is_final_only or not self.is_connected:
            return False
        watch.is_expired = True
        watch.deadline = now + LAST_WORD_SECONDS
        self._wake_by(watch.deadline)
        if watch.probe is not None:
            self._finish(watch.probe)
        self._start_probe(watch, now, LAST_WORD_SECONDS)
        return True

    def _send_all_again(self, now: float) -> None:
        self._outbox.clear()
        everything = [each for number, each in self._pending.items() if number == each.number]
        for request in everything:
            was_sent, request.is_sent = request.is_sent, False
            request.retry_at = None
            request.may_be_done |= was_sent
            if isinstance(request, PendingWatch):
                self._drop_numbers(request)
                self._resume(request, now)
            elif isinstance(request, PendingCall) and not request.is_done:
                if was_sent and isinstance(request.message, resending.KEYED):
                    self._renumber(request)
                self._outbox[request] = None

    def _renumber(self, call: PendingCall[Any]) -> None:
        """Accept only the reply to the sending that follows.

        The first sending may have reached this daemon too. If the daemon refused the first and
        carried out the second, the caller would get an error for a job that exists. If it carries
        out both, the key makes one job of them, and the second reply is as good.
        """
        del self._pending[call.number]
        call.number = next(self._numbers)
        self._pending[call.number] = call

    def _lose_connection(self) -> None:
        self._notices.clear()
        for request in list(self._pending.values()):
            if self.is_connected:
                # What a daemon said before it went counts no more.
                request.failure = None
            if not isinstance(request, PendingCall) or not request.is_sent:
                continue
            if isinstance(request.message, resending.SENT_ONCE):
                self._finish(request, ConnectionLostError())
                continue
            request.losses += self.is_connected
            if request.losses > LOSSES_MAX:
                text = f"{name_of(request.message)}: the connection was lost {request.losses} times"
                lost = f"{text} before the answer came; it is not repeated any more"
                self._finish(request, ConnectionLostError(lost))

    def _begin(self, request: PendingRequest, now: float) -> None:
        if not self._pending:
            # An outage while the client had no request is not reported.
            self._reach.outage.put_off(now)
        self._pending[request.number] = request
        self._outbox[request] = None
        deadline = request.deadline
        if isinstance(request, PendingWatch) or deadline is None or not self.is_connected:
            # The next `tick` works out when this request needs another one.
            self._wake_by(now)
        else:
            # Only its deadline does: a call must not cost a look at all that is under way.
            self._wake_by(deadline)

    def _finish(
        self, request: PendingRequest, error: Exception | None = None, *, is_ended: bool = False
    ) -> None:
        if isinstance(request, PendingWatch):
            if not is_ended:
                self._stop(request)
            self._drop_numbers(request)
        else:
            self._pending.pop(request.number, None)
            self._outbox.pop(request, None)
        request.is_done = True
        request.error = error
        request.changed()

    def _frame(self, request: PendingRequest, now: float) -> bytes:
        if isinstance(request, PendingWatch):
            return frames.encode(request.progress.message(), request.number)
        assert isinstance(request, PendingCall)
        frame, request.frame = request.frame, None
        if frame is not None:
            return frame
        assert request.deadline is not None
        return resending.encode(request.message, request.number, request.deadline - now)

    def _wake_by(self, time: float) -> None:
        self._wake_at = min(self._wake_at, time)
