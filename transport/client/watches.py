"""The watches of one client: their parts, their repetitions, and probes of silent ones.

A watch that is silent for a while is probed with a small listing. The reply proves that the
daemon's queue lives. If it shows a status that the watch should have told before, the watch is
dead (the daemon gives up a peer that does not read), and is begun anew. A heartbeat of the
connection would not show that.
"""

from __future__ import annotations

from ...storage import errors, settings
from .. import messages
from ..messages import JobChanged, JobLogged, JobRows, JobsChanged, Message, WatchEnded
from . import resending
from .in_flight import InFlight
from .outages import Outage
from .pending_requests import PendingCall, PendingWatch
from .resending import name_of
from .watch_progress import PARTS_MAX, News, Part, WatchProgress

LAST_WORD_SECONDS = 1.0
"""How long the daemon may take, after a wait that timed out, to say how its jobs stand."""


class Watches:
    """What becomes of the watches in flight. ``timeout_seconds``: for a probe, and for failures.

    ``outage`` is told when probes find the daemon silent, and when it answers again.
    """

    def __init__(self, in_flight: InFlight, outage: Outage, timeout_seconds: float) -> None:
        self._in_flight = in_flight
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
                if isinstance(error, resending.WATCH_RETRIED):
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
        text = f"not final in {seconds:.3g} s: {missing}" if missing else "the time is over"
        self._in_flight.finish(watch, errors.DeadlineError(text))
