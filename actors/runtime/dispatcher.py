"""A dispatcher: a thread that runs the turns of one or several actors.

How it works. An actor with something to do stands in ``_ready`` once; the thread takes the
first, runs one turn of it, and goes on with the next. In between it looks at the descriptors that
its actors watch, and at alarms. It sleeps in one ``epoll``; another thread that schedules an actor
wakes it up.

If an actor hangs, the thread hangs in it. The actor is abandoned, and a new thread serves the
others, whose state is whole: none of them was in the middle of a turn. Should the old thread come
back, it finds that its time is over, and ends.
"""

from __future__ import annotations

import _thread
import contextlib
import heapq
import os
import select
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from ...transport.envelopes import silence, unsilence
from .idle_work import IdleWait, IdleWork
from .mailbox import InboxItem, Mailbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .served_actor import ServedActor

THREAD = "thread"
"""The name of threads that do what would hold up a dispatcher."""

_CLOSED = -1


class Alarm:
    """An item that an actor's mailbox gets at ``due``, in seconds of the monotonic clock."""

    __slots__ = ("actor", "due", "is_canceled", "item")

    def __init__(self, due: float, actor: ServedActor, item: object) -> None:
        self.due = due
        self.actor = actor
        self.item = item
        self.is_canceled = False

    def __lt__(self, other: Alarm) -> bool:
        return self.due < other.due

    def cancel(self) -> None:
        """Do not ring."""
        self.is_canceled = True


_SLEEP_SECONDS_MAX = 3_600.0
"""Longest sleep at a time: a poll counts milliseconds in 32 bits, and a client's deadline may be
later than that."""


REST_SECONDS = 0.001
"""Seconds of sleep after which threads go on that wait for it."""


LOOK_SECONDS = 0.001
"""While actors wait for their turn, descriptors are looked at no more often than that."""


ALARMS_KEPT_MIN = 1_024
"""So many alarms are kept before canceled ones are looked for."""


class Dispatcher:
    """Runs the turns of its actors in one thread, which lives as long as there are any."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._actors: list[ServedActor] = []
        self._ready: deque[ServedActor] = deque()
        self._watched: dict[int, ServedActor] = {}
        self._alarms: list[Alarm] = []
        self._alarms_max = ALARMS_KEPT_MIN
        self._generation = 0
        self._running: ServedActor | None = None
        self._is_asleep = False
        self._looked_at = 0.0
        self._idle = IdleWait()
        self._poll: select.epoll | None = None
        self._wake = _CLOSED
        # Held to change threads, and to wake one: the descriptor may be another file's afterwards.
        self._lock = threading.Lock()

    # ------------------------------------------------------------ from any thread

    def make_mailbox(self, actor: ServedActor) -> Mailbox:
        """A mailbox that asks for a turn of ``actor``."""
        return Mailbox(lambda: self.schedule(actor))

    def schedule(self, actor: ServedActor) -> None:
        """Run a turn of ``actor`` soon."""
        self._ready.append(actor)
        if self._is_asleep:
            # Lowered by the thread that wakes it up, so that a burst does it once.
            self._is_asleep = False
            with self._lock:
                if self._wake != _CLOSED:
                    os.eventfd_write(self._wake, 1)

    def add(self, actor: ServedActor) -> None:
        """Serve ``actor`` from now on. Raises `OSError` or `RuntimeError` for want of resources."""
        with self._lock:
            if not self._actors:
                self._open()
                try:
                    self._start_thread()
                except RuntimeError:
                    self._close()
                    raise
            self._actors.append(actor)

    def remove(self, actor: ServedActor) -> None:
        """Serve ``actor`` no longer; the thread ends with its last actor."""
        with self._lock:
            self._remove(actor)

    def leave_behind(self, actor: ServedActor) -> None:
        """Serve the others in a new thread if the present one hangs in a turn of ``actor``."""
        with self._lock:
            is_stuck = self._running is actor
            if is_stuck:
                silence(actor.heartbeat.thread)
            self._remove(actor)
            if is_stuck and self._actors:
                self._start_thread()

    # ------------------------------------------------------------ from its own thread

    def watch(self, descriptor: int, actor: ServedActor) -> None:
        """Run a turn of ``actor`` whenever ``descriptor`` is readable or at its end."""
        assert self._poll is not None
        self._poll.register(descriptor, select.EPOLLIN)
        self._watched[descriptor] = actor

    def watch_for(self, descriptor: int, *, reading: bool, writing: bool) -> None:
        """As `watch`, of a watched descriptor: also, or only, when it is writable."""
        assert self._poll is not None
        events = select.EPOLLIN * reading | select.EPOLLOUT * writing
        self._poll.modify(descriptor, events)

    def forget(self, descriptor: int) -> None:
        """No longer watch ``descriptor``."""
        assert self._poll is not None
        actor = self._watched.pop(descriptor)
        if descriptor in actor.readable:
            actor.readable.remove(descriptor)
        self._poll.unregister(descriptor)

    def later(self, seconds: float, actor: ServedActor, item: object) -> Alarm:
        """Put ``item`` into the mailbox of ``actor`` after this many seconds."""
        alarm = Alarm(time.monotonic() + seconds, actor, item)
        heapq.heappush(self._alarms, alarm)
        return alarm

    def in_thread(self, _name: str, work: Callable[[], None]) -> None:
        """Do ``work`` in a thread of its own, for the component of that name."""

        def run() -> None:
            _name_thread(THREAD)
            work()

        # `threading.Thread.start` waits until the thread runs: on a busy machine, 30 ms of a turn.
        _thread.start_new_thread(run, ())

    def when_idle(self, name: str, steps: Iterator[object], finish: Callable[[], None]) -> IdleWork:
        """As `in_thread`: take ``steps`` while this dispatcher sleeps, then call ``finish``."""
        work = IdleWork(self._idle, steps)

        def run() -> None:
            work.run()
            finish()

        self.in_thread(name, run)
        return work

    def have_others_work(self) -> bool:
        """Whether an actor waits for its turn."""
        return bool(self._ready)

    def has_news(self, actor: ServedActor) -> bool:
        """Whether ``actor`` or one beside it has something to do."""
        if self._ready or not actor.mailbox.empty():
            return True
        if self._alarms and self._alarms[0].due <= time.monotonic():
            return True
        return bool(self._watched and self._poll is not None and self._poll.poll(0, 1))

    def _run(self, generation: int) -> None:
        _name_thread(self.name)
        # A thread that hung may have had the same number.
        unsilence(threading.get_ident())
        # After an error of its own the thread goes on if it has actors: the supervisor may have
        # restarted the first before the last had ended.
        while generation == self._generation:
            try:
                self._serve(generation)
            except BaseException:  # noqa: BLE001 - an error of ours, not of an actor
                if generation == self._generation:
                    self._running = None
                    for actor in self._actors.copy():
                        actor.crash(None)

    def _serve(self, generation: int) -> None:
        while generation == self._generation:
            self._look()
            if generation != self._generation:
                return
            actor = self._next()
            if actor is None:
                continue
            self._running = actor
            if actor.quiet_at is None:
                actor.run_turn()
            else:
                actor.quiet_at = None
                actor.run_quiet_turn()
            if generation == self._generation:
                self._running = None
                self._after_turn(actor)

    def _next(self) -> ServedActor | None:
        """The actor whose turn it is; its ``quiet_at`` is set if it has to be a quiet one."""
        if self._ready:
            actor = self._ready.popleft()
            actor.quiet_at = None
            return actor if not actor.is_over else None
        now = time.monotonic()
        for actor in self._actors:
            if actor.quiet_at is not None and actor.quiet_at <= now:
                return actor
        return None

    def _after_turn(self, actor: ServedActor) -> None:
        if actor.is_over:
            return
        patience = actor.patience_seconds
        actor.quiet_at = None if patience is None else time.monotonic() + patience
        if not actor.mailbox.empty():
            actor.mailbox.request_turn()

    def _look(self) -> None:
        """Look at alarms and descriptors; sleep if there is nothing to do."""
        now = time.monotonic()
        if self._alarms:
            self._ring(now)
        if self._ready and (not self._watched or now < self._looked_at + LOOK_SECONDS):
            # A look costs as much as a short turn.
            return
        # The flag goes up before the line is looked at, so that an actor that is scheduled in
        # between either is seen here or wakes the poll.
        self._is_asleep = True
        seconds = 0.0 if self._ready else self._seconds_to_sleep()
        found = self._sleep(seconds)
        self._is_asleep = self._idle.is_open = False
        self._looked_at = now if seconds == 0 else time.monotonic()
        for descriptor, _ in found:
            if descriptor == self._wake:
                os.eventfd_read(self._wake)
            elif (actor := self._watched.get(descriptor)) is not None:
                if descriptor not in actor.readable:
                    actor.readable.append(descriptor)
                actor.mailbox.request_turn()

    def _sleep(self, seconds: float | None) -> list[tuple[int, int]]:
        """What the poll finds within this time; work in threads goes on meanwhile."""
        assert self._poll is not None
        poll = self._poll.poll
        if seconds == 0.0:
            return poll(0.0)
        if self._idle.waiting and (seconds is None or seconds > REST_SECONDS):
            # Between two requests of a client that waits for each reply it would be in the way.
            if found := poll(REST_SECONDS):
                return found
            seconds = None if seconds is None else seconds - REST_SECONDS
        self._idle.is_open = True
        if self._idle.waiting:
            self._idle.wake()
        return poll(seconds)

    def _ring(self, now: float) -> None:
        # Most requests are answered at once: their canceled alarms must not pile up.
        while self._alarms and (self._alarms[0].is_canceled or self._alarms[0].due <= now):
            alarm = heapq.heappop(self._alarms)
            if not alarm.is_canceled and not alarm.actor.is_over:
                alarm.actor.mailbox.put(InboxItem(alarm.item))
        if len(self._alarms) > self._alarms_max:
            # Behind one that stays, canceled ones would remain until they are due.
            self._alarms = [alarm for alarm in self._alarms if not alarm.is_canceled]
            heapq.heapify(self._alarms)
            self._alarms_max = max(ALARMS_KEPT_MIN, 2 * len(self._alarms))

    def _seconds_to_sleep(self) -> float | None:
        due = [actor.quiet_at for actor in self._actors if actor.quiet_at is not None]
        if self._alarms:
            due.append(self._alarms[0].due)
        return min(max(0.0, min(due) - time.monotonic()), _SLEEP_SECONDS_MAX) if due else None

    # ------------------------------------------------------------ with the lock

    def _open(self) -> None:
        self._poll = select.epoll()
        # If there is no descriptor left for this one, the other goes with the object.
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._wake, select.EPOLLIN)

    def _start_thread(self) -> None:
        self._generation += 1
        self._running = None
        self._is_asleep = False
        thread = threading.Thread(
            target=self._run, args=(self._generation,), name=f"dispatcher-{self.name}", daemon=True
        )
        thread.start()

    def _remove(self, actor: ServedActor) -> None:
        if actor not in self._actors:
            return
        self._actors.remove(actor)
        # Its alarms find that it is over. Its descriptors may still be open, and readable for ever.
        for descriptor, owner in list(self._watched.items()):
            if owner is actor:
                del self._watched[descriptor]
                with contextlib.suppress(OSError):
                    assert self._poll is not None
                    self._poll.unregister(descriptor)
        if not self._actors:
            self._alarms.clear()
            self._generation += 1
            if self._wake != _CLOSED:
                os.eventfd_write(self._wake, 1)
            self._close()

    def _close(self) -> None:
        self._is_asleep = False
        wake, self._wake = self._wake, _CLOSED
        if self._poll is not None:
            self._poll.close()
            self._poll = None
        if wake != _CLOSED:
            os.close(wake)


def _name_thread(name: str) -> None:
    """Let the system show the name of the present thread, as far as it has room for it."""
    with contextlib.suppress(OSError):
        Path("/proc/thread-self/comm").write_text(name, encoding="ascii")
