"""The client's side of the conversation with a daemon, without sockets and without a clock.

It numbers requests, matches replies to them, sends again what a lost connection or a
restarted component has swallowed, and ends what takes too long. Sending twice is safe:
every request leaves the same behind when it is carried out twice (a submission has a key);
the two that do not are named in `SENT_ONCE`. What its component did not survive is never sent
again (`RequestFatalError`), and what may have been the cause only a few times.

A watch that is silent for a while is probed with a small listing. The answer proves that
the daemon's queue lives; and if it shows a status that the watch should have told before,
the watch is dead (the daemon gives up a peer that does not read) and is asked for anew. A
mere sign of life of the connection would not show that.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, get_args, get_origin

from ...storage import errors, settings
from .. import frames, messages
from ..messages import JobChanged, JobLogged, JobRows, Message, Request, WatchEnded
from ..zmq.connection_event import ConnectionEvent
from .exchanges import Call, Exchange, ReplyT, Stream
from .outages import Outage
from .watches import PARTS_MAX, Part, Watch

RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.05, 1.0
"""How long to wait before a refused request is sent again: doubled each time."""

GRACE_SECONDS = 2.0
"""How long nobody may accept a first connection before the daemon counts as not running."""

LAST_WORD_SECONDS = 1.0
"""How long the daemon may take to say how the jobs stand for which somebody waited in vain."""

HANDSHAKES_FAILED_MAX = 3
"""Handshakes that may fail before a first connection is given up."""

INTERRUPTIONS_MAX = 3
"""How often a request is repeated whose component was restarted over it, or over others."""

LOSSES_MAX = 100
"""How often a request is repeated whose connection was lost: it may be what ends the daemon.

A daemon that is flooded ends connections too, some dozens in the time of one request.
"""

SENT_ONCE: tuple[type[Message], ...] = (messages.StopDaemon, messages.CrashComponent)
"""Requests that must not reach a second daemon."""

KEYED: tuple[type[Message], ...] = (messages.SubmitJobs, messages.RetryJob)
"""Requests that have a key, so that carrying them out twice gives the same answer twice."""

_GONE: dict[type[Message], type[errors.GangerError]] = {
    messages.ArchiveJob: errors.ArchivedJobError,
    messages.DeleteFilter: errors.UnknownFilterError,
}
"""Requests that, carried out twice, are refused the second time, and how: it is done then."""

_RETRIED = (errors.ComponentRestartedError, errors.BusyError)
# A watch outlives the daemon: another one will take it up.
_WATCH_RETRIED = (*_RETRIED, errors.StoppingError)


class ConnectionLostError(errors.DaemonUnreachableError):
    """The connection was lost before the answer came."""


class Session:
    """All requests under way of one client. Times are monotonic seconds.

    ``unreachable`` is the sentence to say when no daemon answers; ``on_outage`` is told in
    words that a daemon has gone away while something is under way, and that one is back.
    """

    def __init__(
        self,
        unreachable: str,
        timeout_seconds: float,
        on_outage: Callable[[str], None] | None = None,
    ) -> None:
        self.unreachable = unreachable
        self.is_connected = False
        self.was_connected = False
        self.wants_new_line = False
        """The connection in use leads nowhere: make another one before the next request."""
        self._timeout_seconds = timeout_seconds
        self._outage = Outage(on_outage)
        self._is_reached = False
        self._opened_at = 0.0
        self._handshakes_failed = 0
        self._numbers = itertools.count(1)
        self._open: dict[int, Exchange] = {}
        self._outbox: dict[Exchange, None] = {}
        self._notices: deque[bytes] = deque()
        self._wake_at = math.inf

    # What is asked.

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way or waits to be sent."""
        return not self._open and not self._notices

    def request(self, message: Request[ReplyT], *, now: float, deadline: float) -> Call[ReplyT]:
        """Begin a request; `BadRequestError` if it cannot be put into a frame."""
        call = Call(next(self._numbers), message, deadline)
        call.frame = _encode(message, call.number, deadline - now)
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
    ) -> Stream:
        """Begin a watch; ``is_final_only``: only of the ends of jobs."""
        watch = Watch(ids, log=log, is_final_only=is_final_only)
        stream = Stream(next(self._numbers), watch, deadline, now)
        self._begin(stream, now)
        if stream.watch.is_complete:
            self._finish(stream)
        return stream

    def next_part(self, stream: Stream, now: float) -> Part | None:
        """The next part of a watch; None if there is none now."""
        part = stream.watch.take()
        if part is None and stream.is_paused and not stream.is_done:
            stream.is_paused = False
            self._resume(stream, now)
        return part

    def forget(self, exchange: Exchange) -> None:
        """Nobody waits for this any more. Harmless when it is done."""
        if not exchange.is_done:
            self._finish(exchange)

    def fail_all(self, error: Exception) -> None:
        """End everything under way with ``error``."""
        for exchange in list(self._open.values()):
            if not exchange.is_done:
                self._finish(exchange, error)

    # What happens.

    def opened(self, now: float) -> None:
        """A new connection is being tried, to a daemon that may be another one."""
        self._opened_at = now
        self._handshakes_failed = 0
        self._is_reached = self.is_connected = self.wants_new_line = False
        self._outage.put_off(now)
        self._wake_by(now + GRACE_SECONDS)

    def connection_changed(self, event: ConnectionEvent, now: float) -> None:
        """There is news of the connection."""
        match event:
            case ConnectionEvent.REACHED:
                self._is_reached = True
            case ConnectionEvent.MADE:
                self.is_connected = self.was_connected = self._is_reached = True
                self._send_all_again(now)
                self._outage.end()
            case ConnectionEvent.LOST:
                if self.is_connected:
                    self._outage.begin(now)
                self._lose_connection()
            case ConnectionEvent.REFUSED:
                self._outage.deny()
                self.wants_new_line = True
                self.fail_all(errors.NotAllowedError("the daemon does not know this key"))
            case ConnectionEvent.TURNED_AWAY:
                # There is a daemon, so it is worth waiting for.
                self._outage.deny()
                self.was_connected = True
                for exchange in self._open.values():
                    exchange.failure = errors.BusyError("the daemon has too many connections")
            case ConnectionEvent.FAILED:
                self._handshakes_failed += 1
        self._wake_by(now)

    def received(self, data: bytes, now: float) -> None:
        """A frame has come in."""
        try:
            frame = frames.decode(data, messages.ClientReply)
        except frames.UnreadableMessageError as error:
            if (exchange := self._open.get(error.number)) is not None:
                self._finish(exchange, error)
            return
        except errors.FrameError:
            # Not even a number: nobody can be told. The deadline of the request will tell.
            return
        match self._open.get(frame.number):
            case Call() as call:
                self._take_reply(call, frame.message, now)
            case Stream() as stream:
                self._take_part(stream, frame.number, frame.message, now)

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
            exchange = next(iter(self._outbox))
            if not send(self._frame(exchange, now)):
                break
            del self._outbox[exchange]
            exchange.is_sent = True

    def tick(self, now: float) -> None:
        """Do what is due: deadlines, repeated requests, probes."""
        if now < self._wake_at:
            return
        self._wake_at = math.inf
        self._check_reachable(now)
        for number, exchange in list(self._open.items()):
            if number == exchange.number and not exchange.is_done:
                self._check(exchange, now)
        if self._open:
            self._wake_by(self._outage.look(now))

    def wait_seconds(self, now: float) -> float | None:
        """How long until `tick` has something to do; None if that depends on events alone."""
        return None if math.isinf(self._wake_at) else max(0.0, self._wake_at - now)

    # Requests with one reply.

    def _take_reply(self, call: Call[Any], message: Message, now: float) -> None:
        if isinstance(message, messages.Failure):
            error = errors.from_wire(message.error, message.text)
            call.interruptions += isinstance(error, errors.RequestInterruptedError)
            if call.interruptions > INTERRUPTIONS_MAX:
                error = errors.RequestFatalError(
                    f"{_name(call.message)}: {error.text}, {call.interruptions} times over this "
                    "request; it is not repeated, and whether it took effect is unknown"
                )
            retried = _RETRIED if call.probes is None else _WATCH_RETRIED
            if call.may_be_done and isinstance(error, _GONE.get(type(call.message), ())):
                # The earlier sending has done it.
                call.reply = _done(call.message)
                self._finish(call)
            elif isinstance(error, retried):
                self._retry_later(call, error, now)
            else:
                self._finish(call, error)
        elif isinstance(message, _reply_types(type(call.message))):
            if call.may_be_done and isinstance(message, messages.CancelOutcome):
                message = _canceled(call.message, message)
            call.reply = message
            self._finish(call)
        else:
            asked, told = _name(call.message), _name(message)
            self._finish(call, errors.FrameError(f"{asked}: the daemon answered with {told}"))
        if call.is_done and call.probes is not None:
            self._take_probe(call.probes, call, now)

    def _retry_later(self, exchange: Exchange, error: errors.GangerError, now: float) -> None:
        exchange.failure = error
        exchange.may_be_done |= isinstance(error, errors.ComponentRestartedError)
        pause = min(RETRY_SECONDS_MAX, RETRY_SECONDS_MIN * 2**exchange.retries)
        exchange.retries += 1
        exchange.retry_at = now + pause
        if exchange.deadline is not None and exchange.retry_at >= exchange.deadline:
            self._finish(exchange, error)
        else:
            self._wake_by(exchange.retry_at)

    # Watches.

    def _take_part(self, stream: Stream, number: int, message: Message, now: float) -> None:
        is_current = number == stream.number
        match message:
            case JobChanged() | JobLogged():
                if is_current:
                    self._drop_earlier_numbers(stream)
                self._take_news(stream, message, now)
            case _ if not is_current:
                # The end of what was given up already.
                stream.earlier_numbers.remove(number)
                del self._open[number]
            case WatchEnded() if stream.watch.is_complete:
                self._finish(stream, is_ended=True)
            case WatchEnded():
                lost = errors.ComponentRestartedError("the daemon has ended the watch")
                self._watch_failed(stream, lost, now)
            case messages.Failure():
                error = errors.from_wire(message.error, message.text)
                if isinstance(error, _WATCH_RETRIED):
                    self._watch_failed(stream, error, now)
                else:
                    self._finish(stream, error, is_ended=True)
            case _:
                error = errors.FrameError(f"watch_jobs: the daemon answered with {_name(message)}")
                self._finish(stream, error)

    def _take_news(self, stream: Stream, message: JobChanged | JobLogged, now: float) -> None:
        stream.heard_at = now
        if not stream.watch.add(message):
            return
        stream.failing_since, stream.retries = None, 0
        if stream.watch.is_final_only and stream.watch.is_complete:
            # Nothing can follow but that the watch has ended, which nobody need wait for.
            self._finish(stream, is_ended=True)
            return
        if stream.watch.waiting_count > PARTS_MAX:
            # It goes on from here when it was read; what lies between is not lost, but told
            # as it then is.
            stream.is_paused = True
            self._stop(stream)
            self._drop_numbers(stream)
            stream.is_sent = False
        stream.changed()

    def _watch_failed(self, stream: Stream, error: errors.GangerError, now: float) -> None:
        if stream.failing_since is None:
            stream.failing_since = now
        if now - stream.failing_since >= self._timeout_seconds:
            self._finish(stream, error, is_ended=True)
        else:
            stream.is_sent = False
            self._retry_later(stream, error, now)

    def _resume(self, stream: Stream, now: float) -> None:
        """Ask for the watch anew, under a new number."""
        if stream.watch.is_complete:
            self._finish(stream)
            return
        stream.number = next(self._numbers)
        stream.is_sent = False
        stream.retry_at = None
        stream.heard_at = now
        self._begin(stream, now)

    def _start_probe(self, stream: Stream, now: float, seconds: float) -> None:
        call = self.request(stream.watch.probe(), now=now, deadline=now + seconds)
        call.probes, stream.probe = stream, call

    def _take_probe(self, stream: Stream, call: Call[JobRows], now: float) -> None:
        stream.probe = None
        if stream.is_expired:
            if call.error is None:
                stream.watch.note(call.result().rows)
            self._expire(stream, now)
            return
        if call.error is not None:
            self._finish(stream, call.error)
            return
        stream.heard_at = now
        self._wake_by(now + settings.CLIENT_HEARTBEAT_SECONDS)
        if stream.watch.differs(call.result().rows) and stream.is_sent:
            self._stop(stream)
            stream.earlier_numbers.append(stream.number)
            self._resume(stream, now)

    def _stop(self, stream: Stream) -> None:
        if stream.is_sent and self.is_connected:
            self._notices.append(frames.encode(messages.StopWatch(request_id=stream.number)))

    def _drop_earlier_numbers(self, stream: Stream) -> None:
        for number in stream.earlier_numbers:
            self._open.pop(number, None)
        stream.earlier_numbers.clear()

    def _drop_numbers(self, stream: Stream) -> None:
        self._drop_earlier_numbers(stream)
        self._open.pop(stream.number, None)
        self._outbox.pop(stream, None)
        if stream.probe is not None:
            self._finish(stream.probe)
            stream.probe = None

    # Time and connections.

    def _check(self, exchange: Exchange, now: float) -> None:
        if exchange.deadline is not None:
            if now >= exchange.deadline:
                self._expire(exchange, now)
                return
            self._wake_by(exchange.deadline)
        if exchange.retry_at is not None:
            if now >= exchange.retry_at:
                self._repeat(exchange, now)
            else:
                self._wake_by(exchange.retry_at)
        if isinstance(exchange, Stream) and exchange.probe is None and not exchange.is_done:
            probe_at = exchange.heard_at + settings.CLIENT_HEARTBEAT_SECONDS
            if now >= probe_at:
                self._start_probe(exchange, now, self._timeout_seconds)
            else:
                self._wake_by(probe_at)

    def _repeat(self, exchange: Exchange, now: float) -> None:
        exchange.retry_at = None
        if isinstance(exchange, Stream):
            del self._open[exchange.number]
            self._resume(exchange, now)
        elif isinstance(exchange, Call):
            if isinstance(exchange.message, KEYED):
                self._renumber(exchange)
            self._outbox[exchange] = None

    def _expire(self, exchange: Exchange, now: float) -> None:
        error: errors.GangerError
        if isinstance(exchange, Stream):
            if self._asks_how_they_stand(exchange, now):
                return
            if exchange.watch.is_complete:
                self._finish(exchange)
                return
            seconds, missing = now - exchange.began, exchange.watch.missing()
            text = f"not final in {seconds:.3g} s: {missing}" if missing else "the time is over"
            error = errors.DeadlineError(text)
        elif exchange.failure is not None:
            error = exchange.failure
        elif self.is_connected:
            what = _name(exchange.message) if isinstance(exchange, Call) else ""
            error = errors.DeadlineError(f"{what}: no answer came before the deadline")
        else:
            error = errors.DaemonUnreachableError(self.unreachable)
        self._finish(exchange, error)
        if isinstance(exchange, Call) and exchange.probes is not None:
            self._take_probe(exchange.probes, exchange, now)

    def _asks_how_they_stand(self, stream: Stream, now: float) -> bool:
        """At the end of a wait: who was told of ends alone asks once what became of the others."""
        if stream.is_expired or not stream.watch.is_final_only or not self.is_connected:
            return False
        stream.is_expired = True
        stream.deadline = now + LAST_WORD_SECONDS
        self._wake_by(stream.deadline)
        if stream.probe is not None:
            self._finish(stream.probe)
        self._start_probe(stream, now, LAST_WORD_SECONDS)
        return True

    def _check_reachable(self, now: float) -> None:
        if self.was_connected or not self._open:
            return
        patience_ends = self._opened_at + GRACE_SECONDS
        if now < patience_ends:
            self._wake_by(patience_ends)
        elif self._handshakes_failed >= HANDSHAKES_FAILED_MAX:
            text = f"{self.unreachable} (connections end at once: is the server key right?)"
            self._give_up(text)
        elif not self._is_reached and not self._handshakes_failed:
            self._give_up(self.unreachable)

    def _give_up(self, text: str) -> None:
        self.wants_new_line = True
        self.fail_all(errors.DaemonUnreachableError(text))

    def _send_all_again(self, now: float) -> None:
        self._outbox.clear()
        everything = [each for number, each in self._open.items() if number == each.number]
        for exchange in everything:
            was_sent, exchange.is_sent = exchange.is_sent, False
            exchange.retry_at = None
            exchange.may_be_done |= was_sent
            if isinstance(exchange, Stream):
                self._drop_numbers(exchange)
                self._resume(exchange, now)
            elif isinstance(exchange, Call) and not exchange.is_done:
                if was_sent and isinstance(exchange.message, KEYED):
                    self._renumber(exchange)
                self._outbox[exchange] = None

    def _renumber(self, call: Call[Any]) -> None:
        """Let only the answer to what is sent now count.

        The first sending may have reached this daemon too. Were it refused, and the second not,
        there would be a job that nobody knows of; if both are carried out, the key makes one of
        them, and the second answer is as good.
        """
        del self._open[call.number]
        call.number = next(self._numbers)
        self._open[call.number] = call

    def _lose_connection(self) -> None:
        self._notices.clear()
        for exchange in list(self._open.values()):
            if self.is_connected:
                # What a daemon said before it went does not matter any more.
                exchange.failure = None
            if not isinstance(exchange, Call) or not exchange.is_sent:
                continue
            if isinstance(exchange.message, SENT_ONCE):
                self._finish(exchange, ConnectionLostError())
                continue
            exchange.losses += self.is_connected
            if exchange.losses > LOSSES_MAX:
                text = f"{_name(exchange.message)}: the connection was lost {exchange.losses} times"
                lost = f"{text} before the answer came; it is not repeated any more"
                self._finish(exchange, ConnectionLostError(lost))
        self.is_connected = self._is_reached = False

    def _begin(self, exchange: Exchange, now: float) -> None:
        if not self._open:
            # That the daemon was gone while nobody wanted anything is no news.
            self._outage.put_off(now)
        self._open[exchange.number] = exchange
        self._outbox[exchange] = None
        # The first look at it sets the time of the next one.
        self._wake_by(now)

    def _finish(
        self, exchange: Exchange, error: Exception | None = None, *, is_ended: bool = False
    ) -> None:
        if isinstance(exchange, Stream):
            if not is_ended:
                self._stop(exchange)
            self._drop_numbers(exchange)
        else:
            self._open.pop(exchange.number, None)
            self._outbox.pop(exchange, None)
        exchange.is_done = True
        exchange.error = error
        exchange.changed()

    def _frame(self, exchange: Exchange, now: float) -> bytes:
        if isinstance(exchange, Stream):
            return frames.encode(exchange.watch.message(), exchange.number)
        assert isinstance(exchange, Call)
        frame, exchange.frame = exchange.frame, None
        if frame is not None:
            return frame
        assert exchange.deadline is not None
        return _encode(exchange.message, exchange.number, exchange.deadline - now)

    def _wake_by(self, time: float) -> None:
        self._wake_at = min(self._wake_at, time)


def _encode(message: Message, number: int, seconds: float) -> bytes:
    try:
        return frames.encode(message, number, max(seconds, 0.0))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        text = f"{_name(message)}: holds a value that cannot be sent: {error}"
        raise errors.BadRequestError(text) from error


@functools.cache
def _reply_types(request: type[Message]) -> tuple[type[Message], ...]:
    """The types that answer ``request``, as its class says: ``Request[JobRows]``."""
    for base in getattr(request, "__orig_bases__", ()):
        if get_origin(base) is Request:
            (reply,) = get_args(base)
            return get_args(reply) or (reply,)
    raise TypeError(request)


def _name(message: Message) -> str:
    return str(type(message).__struct_config__.tag)


def _done(message: Message) -> Message:
    """The answer that was lost, to a request that was carried out before it was repeated."""
    if isinstance(message, messages.ArchiveJob):
        return messages.ArchiveOutcome(archived=[message.id])
    return messages.Done()


def _canceled(message: Message, outcome: messages.CancelOutcome) -> messages.CancelOutcome:
    """What became of the wish, if an earlier sending of it may have canceled the job."""
    if outcome.was_canceled and isinstance(message, messages.CancelJob):
        return messages.CancelOutcome(accepted=True, text=f"Job {message.id} was canceled")
    return outcome
