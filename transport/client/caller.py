"""How the client for ordinary Python waits for replies; `async_caller` is its twin for asyncio.

The thread that waits lets frames come and go, for all requests of the client.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from ...storage import errors
from ..messages import Request
from ..zmq.dealer import Dealer
from . import forks, spans
from .connection import Connection
from .following import Following, PartT_co
from .in_flight import PendingCall, PendingRequest, ReplyT

Lock = threading.Lock

_CLOSED = "the client was closed"


class _Waker:
    """Wakes the thread that waits at a socket, from any other one. It stays awake."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._close = weakref.finalize(self, os.close, self.descriptor)
        self._close.atexit = False

    def give_up(self) -> None:
        """The process has closed the descriptor: its number may be another one's now."""
        self._close.detach()

    def wake(self) -> None:
        os.eventfd_write(self.descriptor, 1)


class _Turn:
    """The block in which a thread has the client: less than a `contextlib.contextmanager` costs."""

    __slots__ = ("_caller", "_connection", "_deadline", "_lock")

    def __init__(
        self, caller: Caller, deadline: float | None, connection: Connection[Dealer] | None
    ) -> None:
        self._caller, self._deadline, self._connection = caller, deadline, connection

    def __enter__(self) -> None:
        self._lock = self._caller.take_turn(self._deadline, self._connection)

    def __exit__(self, *_: object) -> None:
        self._caller.end_turn(self._lock)


class Caller:
    """Makes requests over a connection, for threads that take turns.

    ``timeout_seconds`` is the deadline of a call that gives none of its own.
    """

    def __init__(self, connect: Callable[[], Connection[Dealer]], timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._connect = connect
        self._connection = connect()
        self._lock = threading.Lock()
        self._thread: int | None = None
        """The thread that has the lock."""
        self._waker = _Waker()
        self._abandoned: deque[PendingRequest] = deque()
        self._is_closed = False
        forks.call_in_child(self._forked)

    def _forked(self) -> None:
        """In a forked child: make a connection of its own. What is under way is the parent's."""
        forks.keep_untouched(self._connection)
        self._connection = self._connect()
        # Another thread of the parent may hold the old lock.
        self._lock = threading.Lock()
        self._thread = None
        self._waker = _Waker()
        self._abandoned = deque()

    def close(self) -> None:
        """End what is under way, also in another thread, and the connection. Twice is harmless."""
        self._is_closed = True
        self._waker.wake()
        if self._thread == threading.get_ident():
            # A signal has interrupted this thread's own call: that ends, and then the connection.
            return
        with self._lock:
            self._end()

    def _end(self) -> None:
        self._connection.close(RuntimeError(_CLOSED), time.monotonic())

    def call(
        self,
        message: Request[ReplyT],
        timeout: float | None,
        *,
        is_lasting: bool = False,  # noqa: ARG002 - of the twin: here calls take turns anyway
    ) -> ReplyT:
        """Make a request and wait for its reply."""
        return self.call_all([message], timeout)[0]

    def call_all(self, messages: Sequence[Request[ReplyT]], timeout: float | None) -> list[ReplyT]:
        """Make several requests at once and wait for their replies; one deadline is for all."""
        seconds = self._timeout_seconds if timeout is None else spans.checked(timeout, "timeout")
        deadline = time.monotonic() + seconds
        calls: list[PendingCall[ReplyT]] = []
        with self._turn(deadline):
            session = self._connection.session
            try:
                for message in messages:
                    call = session.request(message, now=time.monotonic(), deadline=deadline)
                    calls.append(call)
                for call in calls:
                    self._pump_for(call)
            finally:
                for call in calls:
                    self._connection.session.forget(call)
        return [call.result() for call in calls]

    def follow(
        self,
        begin: Callable[..., Following[PartT_co]],
        *,
        timeout: float | None,
        pause: float | None,
    ) -> Iterator[PartT_co | None]:
        """The parts of what ``begin(session, now=..., deadline=...)`` makes, until it is over.

        None comes after each ``pause`` in which the daemon was there and no part came.
        """
        pause = spans.checked(pause, "pause")
        seconds = spans.checked(timeout, "timeout")
        connection = self._connection
        session = connection.session
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._turn(deadline):
            following = begin(session, now=time.monotonic(), deadline=deadline)
        try:
            while True:
                with self._turn(deadline, connection):
                    part = following.take(time.monotonic())
                    if part is None and not following.is_over:
                        self._pump_for(following, pause)
                        if following.has_news() or not session.is_connected:
                            continue
                if part is None and following.is_over:
                    return
                yield part
        finally:
            for request in following.pending:
                self._abandon(request, connection)

    def _abandon(self, request: PendingRequest, connection: Connection[Dealer]) -> None:
        if connection is not self._connection:
            # It is the parent's, and ends there.
            return
        # A generator may be thrown away at any moment, even while this very thread holds the
        # lock: then the next thread that takes the lock cleans up.
        self._abandoned.append(request)
        lock = self._lock
        if lock.acquire(blocking=False):
            try:
                self._forget_abandoned()
                self._connection.flush(time.monotonic())
            finally:
                lock.release()

    def _forget_abandoned(self) -> None:
        while self._abandoned:
            self._connection.session.forget(self._abandoned.popleft())

    def _turn(self, deadline: float | None, connection: Connection[Dealer] | None = None) -> _Turn:
        """Have the client for this thread; ``connection`` says which one its request began on."""
        return _Turn(self, deadline, connection)

    def take_turn(self, deadline: float | None, connection: Connection[Dealer] | None) -> Lock:
        """Begin a turn of this thread; the lock that `end_turn` gets."""
        lock = self._lock
        patience = -1 if deadline is None else max(0.0, deadline - time.monotonic())
        if not lock.acquire(timeout=patience):
            raise errors.DeadlineError("another thread used this client for too long")
        self._thread = threading.get_ident()
        try:
            self._check_usable(connection)
            if self._abandoned:
                self._forget_abandoned()
        except BaseException:
            self.end_turn(lock)
            raise
        return lock

    def _check_usable(self, connection: Connection[Dealer] | None) -> None:
        if self._is_closed:
            raise RuntimeError(_CLOSED)
        if connection is not None and connection is not self._connection:
            raise RuntimeError(forks.INHERITED)

    def end_turn(self, lock: Lock) -> None:
        """End a turn; if the client was closed meanwhile, end what is under way."""
        try:
            if lock is self._lock:
                self._thread = None
                if self._is_closed:
                    self._end()
        finally:
            lock.release()

    def _pump_for(
        self, wanted: PendingRequest | Following[object], patience: float | None = None
    ) -> None:
        """Let frames come and go until ``wanted`` has news, or ``patience`` seconds are over."""
        end = math.inf if patience is None else time.monotonic() + patience
        connection = self._connection
        # A socket that was refused is replaced only when the next request comes.
        while not wanted.has_news() and (now := time.monotonic()) < end:
            if connection is not self._connection:
                raise RuntimeError(forks.INHERITED)
            if not connection.is_intact:
                connection.give_up(now)
                self._waker.give_up()
                self._waker = _Waker()
            socket = connection.socket(now)
            if self._is_closed:
                raise RuntimeError(_CLOSED)
            connection.work(socket, now)
            if wanted.has_news():
                break
            wait = connection.wait_seconds(now)
            if end < math.inf:
                left = min(end - now, spans.SLEEP_SECONDS_MAX)
                wait = left if wait is None else min(wait, left)
            item = socket.receive(wait, self._waker.descriptor)
            if item is not None:
                connection.take(item, time.monotonic())
