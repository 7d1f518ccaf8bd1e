"""The requests under way of one client, by number, what is to be sent, and what may be sent twice.

A request is in flight from `InFlight.begin` to `finish`. Its number may change meanwhile: then only
a reply to the new one counts. Nearly every request may be sent twice: carried out twice, it leaves
the same behind as once (a submission has a key). The tables name the exceptions. No I/O, and no
decisions on replies.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar, get_args, get_origin

from ...storage import errors
from .. import frames, messages
from ..messages import JobRows, Message, Request
from .reachability import Reachability
from .watch_progress import WatchProgress

ReplyT = TypeVar("ReplyT", bound=Message)

RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.05, 1.0
"""How long to wait before a refused request is sent again: doubled each time."""

SENT_ONCE: tuple[type[Message], ...] = (messages.StopDaemon, messages.CrashComponent)
"""Requests that must not reach a second daemon."""

KEYED: tuple[type[Message], ...] = (messages.SubmitJobs, messages.RetryJob)
"""Requests with a key: carried out twice, they give the same reply twice."""

LASTING: tuple[type[Message], ...] = (messages.AwaitJobChange,)
"""Requests whose reply the daemon keeps back until something happens."""

_GONE: dict[type[Message], type[errors.GangerError]] = {
    messages.ArchiveJob: errors.ArchivedJobError,
    messages.DeleteFilter: errors.UnknownFilterError,
}
"""Requests that are refused when they are carried out again, and with which error."""

RETRIED = (errors.ComponentRestartedError, errors.BusyError)
"""After these errors a call is sent again."""

WATCH_RETRIED = (*RETRIED, errors.StoppingError)
"""After these errors a watch is sent again: the daemon's successor will take it up."""


def _nothing() -> None:
    """The callback of a request that nothing follows."""


class PendingRequest:
    """A request under way. The session calls ``changed`` when `has_news` may have become true."""

    def __init__(self, number: int, deadline: float | None) -> None:
        self.number = number
        self.deadline = deadline
        self.is_done = False
        self.error: Exception | None = None
        self.changed: Callable[[], None] = _nothing
        self.is_sent = False
        self.may_be_done = False
        """Whether the daemon may have carried out an earlier sending whose reply is lost."""
        self.failure: errors.GangerError | None = None
        self.retries = 0
        self.interruptions = 0
        """How often its component was restarted before it replied."""
        self.losses = 0
        """How often the connection was lost before the reply came."""
        self.retry_at: float | None = None

    def has_news(self) -> bool:
        """Whether the caller can take something now: the reply, a part of a watch, or the end."""
        return self.is_done


class PendingCall(PendingRequest, Generic[ReplyT]):
    """A request with one reply."""

    def __init__(self, number: int, message: Request[ReplyT], deadline: float) -> None:
        super().__init__(number, deadline)
        self.began = -math.inf
        self.message = message
        self.frame: bytes | None = None
        self.reply: ReplyT | None = None
        self.probes: PendingWatch | None = None

    def result(self) -> ReplyT:
        """The reply; raises the error if there is one."""
        assert self.is_done
        if self.error is not None:
            raise self.error
        assert self.reply is not None
        return self.reply


class PendingWatch(PendingRequest):
    """A watch under way."""

    def __init__(
        self, number: int, progress: WatchProgress, deadline: float | None, now: float
    ) -> None:
        super().__init__(number, deadline)
        self.progress = progress
        self.began = self.heard_at = now
        self.failing_since: float | None = None
        self.probe: PendingCall[JobRows] | None = None
        self.is_paused = False
        self.is_expired = False
        """The deadline is over: only a last probe is under way."""
        # On a connection that lives, parts may still come under a number that was given up.
        self.earlier_numbers: list[int] = []

    def has_news(self) -> bool:
        return self.is_done or self.progress.waiting_count > 0


class InFlight:
    """All requests under way. Times are monotonic seconds."""

    def __init__(self, reach: Reachability) -> None:
        self.pending: dict[int, PendingRequest] = {}
        """By number: also watches under numbers that were given up."""
        self.wake_at = math.inf
        """When something is due; infinite if only events bring work."""
        self._reach = reach
        self._numbers = itertools.count(1)
        self._outbox: dict[PendingRequest, None] = {}
        self._notices: deque[bytes] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way and nothing waits to be sent."""
        return not self.pending and not self._notices

    def next_number(self) -> int:
        """A number that no request has had."""
        return next(self._numbers)

    def all(self) -> list[PendingRequest]:
        """Every request once, under the number that it has now."""
        return [each for number, each in self.pending.items() if number == each.number]

    def wake_by(self, time: float) -> None:
        """Something is due at this time."""
        self.wake_at = min(self.wake_at, time)

    # From the beginning to the end.

    def call(self, message: Request[ReplyT], *, now: float, deadline: float) -> PendingCall[ReplyT]:
        """Begin a request; `BadRequestError` if it is not for clients, or fits into no frame."""
        if not is_for_clients(type(message)):
            text = f"{name_of(message)}: only the process of a job may ask for this"
            raise errors.BadRequestError(text)
        call = PendingCall(self.next_number(), message, deadline)
        call.began = now
        call.frame = encode(message, call.number, deadline - now)
        self.begin(call, now)
        return call

    def begin(self, request: PendingRequest, now: float) -> None:
        """The request is to be sent, and waits for its reply."""
        if not (self.pending or self._reach.is_connected):
            # An outage while the client had no request is not reported.
            self._reach.outage.put_off(now)
        self.pending[request.number] = request
        self._outbox[request] = None
        deadline = request.deadline
        if isinstance(request, PendingWatch) or deadline is None or not self._reach.is_connected:
            # The next `tick` works out when this request needs another one.
            self.wake_by(now)
        else:
            # Only its deadline does: a call must not cost a look at all that is under way.
            self.wake_by(deadline)

    def finish(
        self, request: PendingRequest, error: Exception | None = None, *, is_ended: bool = False
    ) -> None:
        """The request is done; ``is_ended``: the daemon has ended the watch."""
        if isinstance(request, PendingWatch):
            if not is_ended:
                self.stop(request)
            self.drop_numbers(request)
        else:
            self.pending.pop(request.number, None)
            self._outbox.pop(request, None)
        request.is_done = True
        request.error = error
        request.changed()

    def fail_all(self, error: Exception) -> None:
        """End everything under way with ``error``."""
        for request in list(self.pending.values()):
            if not request.is_done:
                self.finish(request, error)

    def stop(self, request: PendingRequest) -> None:
        """Have the daemon end the request, if it may have come there."""
        if request.is_sent and self._reach.is_connected:
            self._notices.append(frames.encode(messages.StopWatch(request_id=request.number)))

    def stop_lasting(self, request: PendingRequest) -> None:
        """Let the daemon know that no caller waits for this reply, which may take long."""
        if isinstance(request, PendingCall) and isinstance(request.message, LASTING):
            self.stop(request)

    # Repeating, and numbers.

    def retry_later(self, request: PendingRequest, error: errors.GangerError, now: float) -> None:
        """Repeat a request that was refused, after a pause, or end it if that is too late."""
        request.failure = error
        request.may_be_done |= isinstance(error, errors.ComponentRestartedError)
        pause = min(RETRY_SECONDS_MAX, RETRY_SECONDS_MIN * 2**request.retries)
        request.retries += 1
        request.retry_at = now + pause
        if request.deadline is not None and request.retry_at >= request.deadline:
            self.finish(request, self.last_refusal(request, error))
        else:
            self.wake_by(request.retry_at)

    def last_refusal(self, request: PendingRequest, error: errors.GangerError) -> Exception:
        """The error of a request that was refused, and for which no time is left.

        That it was refused says little if an earlier sending, or a later one, had no reply.
        """
        is_open = request.is_sent and request.retry_at is None
        if isinstance(request, PendingCall) and (request.may_be_done or is_open):
            return last_refusal(request.message, error)
        return error

    def send_again(self, call: PendingCall[Any], *, was_sent: bool) -> None:
        """Put a request into the outbox again."""
        if was_sent and isinstance(call.message, KEYED):
            self._renumber(call)
        self._outbox[call] = None

    def _renumber(self, call: PendingCall[Any]) -> None:
        """Accept only the reply to the sending that follows.

        The first sending may have reached this daemon too. If the daemon refused the first and
        carried out the second, the caller would get an error for a job that exists. If it carries
        out both, the key makes one job of them, and the second reply is as good.
        """
        del self.pending[call.number]
        call.number = self.next_number()
        self.pending[call.number] = call

    def drop_earlier_numbers(self, watch: PendingWatch) -> None:
        """Nothing comes under the numbers that the watch has given up."""
        for number in watch.earlier_numbers:
            self.pending.pop(number, None)
        watch.earlier_numbers.clear()

    def drop_numbers(self, watch: PendingWatch) -> None:
        """The watch is not under way, and its probe is not needed."""
        self.drop_earlier_numbers(watch)
        self.pending.pop(watch.number, None)
        self._outbox.pop(watch, None)
        if watch.probe is not None:
            self.finish(watch.probe)
            watch.probe = None

    # Sending.

    def clear_outbox(self) -> None:
        """Send none of the requests that wait: they are begun or sent again."""
        self._outbox.clear()

    def clear_notices(self) -> None:
        """The connection is lost, and with it what the notices would end."""
        self._notices.clear()

    def flush(self, send: Callable[[bytes], bool], now: float) -> None:
        """Send what is to be sent, until ``send`` says that it cannot."""
        while self._notices and send(self._notices[0]):
            self._notices.popleft()
        while self._outbox and not self._notices:
            request = next(iter(self._outbox))
            if not send(self._frame(request, now)):
                break
            del self._outbox[request]
            request.is_sent = True

    def _frame(self, request: PendingRequest, now: float) -> bytes:
        if isinstance(request, PendingWatch):
            return frames.encode(request.progress.message(), request.number)
        assert isinstance(request, PendingCall)
        frame, request.frame = request.frame, None
        if frame is not None:
            return frame
        assert request.deadline is not None
        return encode(request.message, request.number, request.deadline - now)


def settled(message: Message, error: errors.GangerError) -> Message | None:
    """The lost reply to a request that an earlier sending may have carried out.

    ``error`` is what the repeated request got. None if it does not mean that the work is done.
    """
    if not isinstance(error, _GONE.get(type(message), ())):
        return None
    if isinstance(message, messages.ArchiveJob):
        return messages.ArchiveOutcome(archived=[message.id])
    return messages.Done()


def canceled(
    message: Message, outcome: messages.CancelOutcome, seconds: float
) -> messages.CancelOutcome:
    """The outcome for the user, if an earlier sending of ``message`` may have canceled the job.

    ``seconds``: how long the request is under way. What was canceled before was canceled by others.
    """
    is_ours = outcome.was_canceled and outcome.seconds_ago <= seconds
    if not (is_ours and isinstance(message, messages.CancelJob)):
        return outcome
    text = f"Job {message.id} was canceled"
    return messages.CancelOutcome(accepted=True, text=text, has_ended=True)


def unknown_outcome(message: Message, text: str) -> str:
    """What is said of a request that may have been carried out; ``text``: what came between."""
    if getattr(message, "dry_run", False):
        # It leaves nothing behind.
        return text
    has_key = getattr(message, "key", None) or getattr(message, "request", "")
    safe = f"; {errors.SAFE_UNDER_KEY}" if has_key else ""
    return f"the outcome of {name_of(message)} is unknown: {text}{safe}"


def last_refusal(message: Message, error: errors.GangerError) -> errors.GangerError:
    """The error of a request that may have been carried out, and was refused until its deadline."""
    text = unknown_outcome(message, error.text)
    is_lost = isinstance(error, errors.ComponentRestartedError)
    return type(error)(text) if is_lost else errors.DeadlineError(text)


def encode(message: Message, number: int, seconds: float) -> bytes:
    """The frame of a request; `BadRequestError` if it holds a value that no frame can."""
    try:
        return frames.encode(message, number, max(seconds, 0.0))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        text = f"{name_of(message)}: holds a value that cannot be sent: {error}"
        raise errors.BadRequestError(text) from error


@functools.cache
def is_for_clients(request: type[Message]) -> bool:
    """Whether a client can read each reply to ``request``: others are for processes of jobs."""
    return set(reply_types(request)) <= _READABLE


_READABLE = frozenset(get_args(messages.ClientReply))


@functools.cache
def reply_types(request: type[Message]) -> tuple[type[Message], ...]:
    """The types that answer ``request``, as its class says: ``Request[JobRows]``."""
    for base in getattr(request, "__orig_bases__", ()):
        if get_origin(base) is Request:
            (reply,) = get_args(base)
            return get_args(reply) or (reply,)
    raise TypeError(request)


def name_of(message: Message) -> str:
    """What messages for people call this message."""
    return str(type(message).__struct_config__.tag)
