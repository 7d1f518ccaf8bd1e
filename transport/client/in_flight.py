"""The requests under way of one client, by number, and what is to be sent. No decisions on replies.

A request is in flight from `begin` to `finish`. Its number may change meanwhile: then only a reply
to the new one counts.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable
from typing import Any

from ...storage import errors
from .. import frames, messages
from ..messages import Request
from . import resending
from .pending_requests import PendingCall, PendingRequest, PendingWatch, ReplyT
from .reachability import Reachability

RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.05, 1.0
"""How long to wait before a refused request is sent again: doubled each time."""


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
        if not resending.is_for_clients(type(message)):
            text = f"{resending.name_of(message)}: only the process of a job may ask for this"
            raise errors.BadRequestError(text)
        call = PendingCall(self.next_number(), message, deadline)
        call.began = now
        call.frame = resending.encode(message, call.number, deadline - now)
        self.begin(call, now)
        return call

    def begin(self, request: PendingRequest, now: float) -> None:
        """The request is to be sent, and waits for its reply."""
        if not self.pending:
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
        if isinstance(request, PendingCall) and isinstance(request.message, resending.LASTING):
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
            return resending.last_refusal(request.message, error)
        return error

    def send_again(self, call: PendingCall[Any], *, was_sent: bool) -> None:
        """Put a request into the outbox again."""
        if was_sent and isinstance(call.message, resending.KEYED):
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
        return resending.encode(request.message, request.number, request.deadline - now)
