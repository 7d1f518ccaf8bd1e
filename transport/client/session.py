"""The client's side of the conversation with a daemon, without sockets and without a clock.

A `Session` numbers requests (`in_flight`), matches replies to them, ends what takes too long, and
sends again what a lost connection (as soon as there is one) or a restarted component (after the
pause of `in_flight.InFlight.retry_later`) has swallowed. A request that its component did not
survive is never sent again (`RequestFatalError`); a request that may have been the cause is sent
again a few times.

`Watches` has the rules of requests with many replies: their parts, their repetitions, and probes of
silent ones. A watch that is silent for a while is probed with a small listing. The reply proves
that the daemon's queue lives. If it shows a status that the watch should have told before, the
watch is dead (the daemon gives up a peer that does not read), and is begun anew. A heartbeat of the
connection would not show that.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from ...storage import errors, settings
from .. import frames, messages
from ..messages import (
    JobChanged,
    JobLogged,
    JobRows,
    JobsChanged,
    Message,
    Request,
    WatchEnded,
)
from ..zmq.connection_event import ConnectionEvent
from . import in_flight
from .in_flight import InFlight, PendingCall, PendingRequest, PendingWatch, ReplyT, name_of
from .reachability import Outage, Reachability
from .watch_progress import PARTS_MAX, News, Part, WatchProgress

INTERRUPTIONS_MAX = 3
"""How often a request is repeated after a restart of its component, whatever the cause."""

LOSSES_MAX = 100
"""How often a request is repeated after a lost connection: it may be what ends the daemon.

A flooded daemon ends connections too, some dozens in the time of one request.
"""

LAST_WORD_SECONDS = 1.0
"""How long the daemon may take, after a wait that timed out, to say how its jobs stand."""


class Session:
    """All requests under way of one client. Times are monotonic seconds.

    ``unreachable`` is the text of the error when no daemon answers. ``on_outage`` gets a sentence
    when the daemon goes away, or does not answer, while a request is under way, and one when a
    daemon is back.
    """

    def __init__(
        self,
        unreachable: str,
        timeout_seconds: float,
        on_outage: Callable[[str], None] | None = None,
    ) -> None:
        self.wants_new_socket = False
        """The socket in use leads nowhere: make another one before the next request."""
        self._reach = Reachability(unreachable, on_outage)
        self._in_flight = InFlight(self._reach)
        self._watches = Watches(self._in_flight, self._reach.outage, timeout_seconds)

    # Requests of the caller.

    @property
    def is_connected(self) -> bool:
        """Whether the connection stands."""
        return self._reach.is_connected

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way and nothing waits to be sent."""
        return self._in_flight.is_idle

    def request(
        self, message: Request[ReplyT], *, now: float, deadline: float
    ) -> PendingCall[ReplyT]:
        """Begin a request; `BadRequestError` if it cannot be put into a frame."""
        return self._in_flight.call(message, now=now, deadline=deadline)

    def watch(
        self,
        ids: Sequence[int] | None,
        *,
        log: bool,
        now: float,
        deadline: float | None,
        is_final_only: bool = False,
        is_gathered: bool = False,
    ) -> PendingWatch:
        """Begin a watch; ``is_final_only``: only of final statuses.

        ``is_gathered``: the daemon sends changes together, some milliseconds later.
        """
        progress = WatchProgress(ids, log=log, is_final_only=is_final_only, is_gathered=is_gathered)
        return self._watches.begin(progress, now=now, deadline=deadline)

    def next_part(self, watch: PendingWatch, now: float) -> Part | None:
        """The next part of a watch; None if there is none now."""
        return self._watches.next_part(watch, now)

    def forget(self, request: PendingRequest) -> None:
        """Drop a request that no caller waits for. Harmless when it is done."""
        if not request.is_done:
            self._in_flight.stop_lasting(request)
            self._in_flight.finish(request)

    def fail_all(self, error: Exception) -> None:
        """End everything under way with ``error``."""
        self._in_flight.fail_all(error)

    # Events of the connection, and time.

    def opened(self, now: float) -> None:
        """The client tries a new connection, maybe to another daemon."""
        self._reach.opened(now)
        self.wants_new_socket = False
        self._in_flight.wake_by(self._reach.despair_at(now))

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
                for request in self._in_flight.pending.values():
                    request.failure = errors.BusyError("the daemon has too many connections")
        self._in_flight.wake_by(now)

    def received(self, data: bytes, now: float) -> None:
        """A frame has come in."""
        try:
            frame = frames.decode(data, messages.ClientReply)
        except frames.UnreadableMessageError as error:
            if (request := self._in_flight.pending.get(error.number)) is not None:
                self._in_flight.finish(request, error)
            return
        except errors.FrameError:
            # Without a number no request can fail over it; its deadline will end it.
            return
        match self._in_flight.pending.get(frame.number):
            case PendingCall() as call:
                self._take_reply(call, frame.message, now)
            case PendingWatch() as watch:
                self._watches.take_part(watch, frame.number, frame.message, now)

    def flush(self, send: Callable[[bytes], bool], now: float) -> None:
        """Send what is to be sent, until ``send`` says that it cannot.

        A connection may take frames a moment before `ConnectionEvent.MADE` is read. A frame that
        is sent then would be sent again on that event.
        """
        if self.is_connected:
            self._in_flight.flush(send, now)

    def tick(self, now: float) -> None:
        """Do what is due: deadlines, repeated requests, probes."""
        if now < self._in_flight.wake_at:
            return
        self._in_flight.wake_at = math.inf
        if self._in_flight.pending and (text := self._reach.despair(now)) is not None:
            self.wants_new_socket = True
            self.fail_all(errors.DaemonUnreachableError(text))
        for number, request in list(self._in_flight.pending.items()):
            if number == request.number and not request.is_done:
                self._check(request, now)
        if self._in_flight.pending:
            self._in_flight.wake_by(self._reach.outage.look(now))
            self._in_flight.wake_by(self._reach.despair_at(now))

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do; infinite if only events bring work."""
        return self._in_flight.wake_at

    def wait_seconds(self, now: float) -> float | None:
        """How long until `tick` has something to do; None if only events bring work."""
        wake_at = self._in_flight.wake_at
        return None if math.isinf(wake_at) else max(0.0, wake_at - now)

    # Requests with one reply.

    def _take_reply(self, call: PendingCall[Any], message: Message, now: float) -> None:
        if isinstance(message, messages.Failure):
            error = errors.from_wire(message.error, message.text)
            call.interruptions += isinstance(error, errors.RequestInterruptedError)
            if call.interruptions > INTERRUPTIONS_MAX:
                text = f"{error.text}, {call.interruptions} times over this request"
                unknown = in_flight.unknown_outcome(call.message, f"{text}; it is not repeated")
                error = errors.RequestFatalError(unknown)
            retried = in_flight.RETRIED if call.probes is None else in_flight.WATCH_RETRIED
            lost = in_flight.settled(call.message, error) if call.may_be_done else None
            if lost is not None:
                call.reply = lost
                self._in_flight.finish(call)
            elif isinstance(error, retried):
                self._in_flight.retry_later(call, error, now)
            else:
                self._in_flight.finish(call, error)
        elif isinstance(message, in_flight.reply_types(type(call.message))):
            if call.may_be_done and isinstance(message, messages.CancelOutcome):
                message = in_flight.canceled(call.message, message, now - call.began)
            call.reply = message
            self._in_flight.finish(call)
        else:
            asked, told = name_of(call.message), name_of(message)
            error = errors.FrameError(f"{asked}: the daemon answered with {told}")
            self._in_flight.finish(call, error)
        if call.is_done and call.probes is not None:
            self._watches.take_probe(call.probes, call, now)

    # Time and connections.

    def _check(self, request: PendingRequest, now: float) -> None:
        if request.deadline is not None:
            if now >= request.deadline:
                self._expire(request, now)
                return
            self._in_flight.wake_by(request.deadline)
        if request.retry_at is not None:
            if now >= request.retry_at:
                self._repeat(request, now)
            else:
                self._in_flight.wake_by(request.retry_at)
        if isinstance(request, PendingWatch):
            self._watches.probe_if_silent(request, now)

    def _repeat(self, request: PendingRequest, now: float) -> None:
        request.retry_at = None
        if isinstance(request, PendingWatch):
            self._watches.repeat(request, now)
        elif isinstance(request, PendingCall):
            self._in_flight.send_again(request, was_sent=True)

    def _expire(self, request: PendingRequest, now: float) -> None:
        if isinstance(request, PendingWatch):
            self._watches.expire(request, now, is_connected=self.is_connected)
            return
        assert isinstance(request, PendingCall)
        self._in_flight.stop_lasting(request)
        self._in_flight.finish(request, self._late(request))
        if request.probes is not None:
            self._watches.take_probe(request.probes, request, now)

    def _late(self, call: PendingCall[Any]) -> Exception:
        """The error of a call that has no reply at its deadline."""
        if call.failure is not None:
            return self._in_flight.last_refusal(call, call.failure)
        unknown = functools.partial(in_flight.unknown_outcome, call.message)
        if self.is_connected:
            return errors.DeadlineError(unknown("no answer came before the deadline"))
        # A watch asks only how its jobs stand.
        if (call.is_sent or call.may_be_done) and call.probes is None:
            return errors.ConnectionLostError(unknown(self._reach.unreachable))
        return errors.DaemonUnreachableError(self._reach.unreachable)

    def _send_all_again(self, now: float) -> None:
        self._in_flight.clear_outbox()
        for request in self._in_flight.all():
            was_sent, request.is_sent = request.is_sent, False
            request.retry_at = None
            request.may_be_done |= was_sent
            if isinstance(request, PendingWatch):
                self._watches.send_again(request, now)
            elif isinstance(request, PendingCall) and not request.is_done:
                self._in_flight.send_again(request, was_sent=was_sent)

    def _lose_connection(self) -> None:
        self._in_flight.clear_notices()
        for request in list(self._in_flight.pending.values()):
            if self.is_connected:
                # What a daemon said before it went counts no more.
                request.failure = None
            if not isinstance(request, PendingCall) or not request.is_sent:
                continue
            if isinstance(request.message, in_flight.SENT_ONCE):
                self._in_flight.finish(request, errors.ConnectionLostError())
                continue
            request.losses += self.is_connected
            if request.losses > LOSSES_MAX:
                text = f"the connection was lost {request.losses} times before the answer came"
                unknown = in_flight.unknown_outcome(request.message, f"{text}; it is not repeated")
                self._in_flight.finish(request, errors.ConnectionLostError(unknown))


class Watches:
    """What becomes of the watches in flight. ``timeout_seconds``: for a probe, and for failures.

    ``outage`` is told when probes find the daemon silent, and when it answers again.
    """

    def __init__(self, requests: InFlight, outage: Outage, timeout_seconds: float) -> None:
        self._in_flight = requests
        self._outage = outage
        self._timeout_seconds = timeout_seconds

    def begin(self, progress: WatchProgress, *, now: float, deadline: float | None) -> PendingWatch:
        """Begin a watch that has seen nothing yet."""
        watch = PendingWatch(self._in_flight.next_number(), progress, deadline, now)
        self._in_flight.begin(watch, now)
        if watch.progress.is_complete:
            self._in_flight.finish(watch)
        return watch

    def next_part(self, watch: PendingWatch, now: float) -> Part | None:
        """The next part of a watch; None if there is none now."""
        part = watch.progress.take()
        if part is None and watch.is_paused and not watch.is_done:
            watch.is_paused = False
            self._resume(watch, now)
        return part

    # Parts.

    def take_part(self, watch: PendingWatch, number: int, message: Message, now: float) -> None:
        """The daemon has sent this for the watch, under this number."""
        is_current = number == watch.number
        match message:
            case JobChanged() | JobsChanged() | JobLogged():
                if is_current:
                    self._in_flight.drop_earlier_numbers(watch)
                self._take_news(watch, message, now)
            case _ if not is_current:
                # The end of a watch that was given up already.
                watch.earlier_numbers.remove(number)
                del self._in_flight.pending[number]
            case WatchEnded() if watch.progress.is_complete:
                self._in_flight.finish(watch, is_ended=True)
            case WatchEnded():
                lost = errors.ComponentRestartedError("the daemon has ended the watch")
                self._fail(watch, lost, now)
            case messages.Failure():
                error = errors.from_wire(message.error, message.text)
                if isinstance(error, in_flight.WATCH_RETRIED):
                    self._fail(watch, error, now)
                else:
                    self._in_flight.finish(watch, error, is_ended=True)
            case _:
                error = errors.FrameError(
                    f"watch_jobs: the daemon answered with {name_of(message)}"
                )
                self._in_flight.finish(watch, error)

    def _take_news(self, watch: PendingWatch, message: News, now: float) -> None:
        watch.heard_at = now
        if not watch.progress.add(message):
            return
        watch.failing_since, watch.retries = None, 0
        if watch.progress.is_final_only and watch.progress.is_complete:
            # Only the end of the watch can follow: do not wait for it.
            self._in_flight.finish(watch, is_ended=True)
            return
        if watch.progress.waiting_count > PARTS_MAX:
            # The watch goes on from here when these parts were read; the daemon then tells each
            # job as it stands.
            watch.is_paused = True
            self._in_flight.stop(watch)
            self._in_flight.drop_numbers(watch)
            watch.is_sent = False
        watch.changed()

    # Repetitions.

    def _fail(self, watch: PendingWatch, error: errors.GangerError, now: float) -> None:
        if watch.failing_since is None:
            watch.failing_since = now
        if now - watch.failing_since >= self._timeout_seconds:
            self._in_flight.finish(watch, error, is_ended=True)
        else:
            watch.is_sent = False
            self._in_flight.retry_later(watch, error, now)

    def repeat(self, watch: PendingWatch, now: float) -> None:
        """Request the watch anew, after a pause."""
        del self._in_flight.pending[watch.number]
        self._resume(watch, now)

    def send_again(self, watch: PendingWatch, now: float) -> None:
        """Request the watch anew, over another connection."""
        self._in_flight.drop_numbers(watch)
        self._resume(watch, now)

    def _resume(self, watch: PendingWatch, now: float) -> None:
        """Request the watch anew, under a new number."""
        if watch.progress.is_complete:
            self._in_flight.finish(watch)
            return
        watch.number = self._in_flight.next_number()
        watch.is_sent = False
        watch.retry_at = None
        watch.heard_at = now
        self._in_flight.begin(watch, now)

    # Probes.

    def probe_if_silent(self, watch: PendingWatch, now: float) -> None:
        """Probe a watch that has been silent for a while, unless a probe is under way."""
        if watch.probe is not None or watch.is_done:
            return
        probe_at = watch.heard_at + settings.CLIENT_HEARTBEAT_SECONDS
        if now >= probe_at:
            self._probe(watch, now, self._timeout_seconds)
        else:
            self._in_flight.wake_by(probe_at)

    def _probe(self, watch: PendingWatch, now: float, seconds: float) -> None:
        call = self._in_flight.call(watch.progress.probe(), now=now, deadline=now + seconds)
        call.probes, watch.probe = watch, call

    def take_probe(self, watch: PendingWatch, call: PendingCall[JobRows], now: float) -> None:
        """A probe has its reply, or has failed."""
        watch.probe = None
        if watch.is_expired:
            if call.error is None:
                watch.progress.note(call.result().rows)
            self._end_expired(watch, now)
            return
        if isinstance(call.error, errors.DeadlineError):
            # The daemon is there: it was stopped, or its disk is frozen. A watch outlasts that.
            self._probe(watch, now, self._timeout_seconds)
            self._outage.be_silent()
            return
        if call.error is not None:
            self._in_flight.finish(watch, call.error)
            return
        watch.heard_at = now
        self._in_flight.wake_by(now + settings.CLIENT_HEARTBEAT_SECONDS)
        self._outage.speak()
        if watch.progress.differs(call.result().rows) and watch.is_sent:
            self._in_flight.stop(watch)
            watch.earlier_numbers.append(watch.number)
            self._resume(watch, now)

    def expire(self, watch: PendingWatch, now: float, *, is_connected: bool) -> None:
        """The deadline of the watch is over."""
        if watch.is_expired or not watch.progress.is_final_only or not is_connected:
            self._end_expired(watch, now)
            return
        # It was told of final statuses only: the error is to say how the jobs stand.
        watch.is_expired = True
        watch.deadline = now + LAST_WORD_SECONDS
        self._in_flight.wake_by(watch.deadline)
        if watch.probe is not None:
            self._in_flight.finish(watch.probe)
        self._probe(watch, now, LAST_WORD_SECONDS)

    def _end_expired(self, watch: PendingWatch, now: float) -> None:
        if watch.progress.is_complete:
            self._in_flight.finish(watch)
            return
        seconds, missing = now - watch.began, watch.progress.missing()
        text = (
            f"not final in {round(seconds, 3):.3g} s: {missing}" if missing else "the time is over"
        )
        self._in_flight.finish(watch, errors.DeadlineError(text))
