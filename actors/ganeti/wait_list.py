"""Which clients wait for changes of which jobs, and at whom to look next. No clock, no job.

How it works. The waits of one job stand in a line. A change of the job puts the job among those to
be looked at, and every wait of its line is looked at once more: the first goes to the end of the
line, and so on. So the queue may stop in between and go on in a later turn, also if the job has
changed again meanwhile: no wait is passed over. What happens to a job without waits costs one look
into a dictionary, and waits of other jobs cost nothing.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from ...storage import errors
from ..store.queue_reader import JobWaits

if TYPE_CHECKING:
    from ...transport.envelopes import Envelope
    from ...transport.messages import AwaitJobChange

Key = tuple[bytes, int]
"""The client, and its number for the wait."""

JOB_WAITS_MAX = 20_000
"""Most requests that wait for changes of jobs at one time."""

_STALE_MIN = 64
"""So many alarms of waits that are over stay, even if none is open."""


class Wait:
    """One client that waits for other values of ``fields``. It keeps nothing that may be large.

    ``known``: what tells the values that it has from others (`JobState.mark`). ``due``: when it
    gets its reply in any case.
    """

    __slots__ = ("due", "envelope", "fields", "job_id", "key", "known", "log_serial")

    def __init__(
        self,
        envelope: Envelope,
        request: AwaitJobChange,
        fields: tuple[str, ...],
        *,
        known: bytes,
        due: float,
    ) -> None:
        self.envelope = envelope
        self.key = key_of(envelope, request)
        self.job_id = request.id
        self.fields = fields
        self.log_serial = request.log_serial
        self.known = known
        self.due = due


class _JobWaits:
    """The waits of one job."""

    __slots__ = ("left", "version", "waits")

    def __init__(self) -> None:
        self.waits: OrderedDict[Key, Wait] = OrderedDict()
        self.left = 0
        """How many of them, from the first on, were not looked at since the last change."""
        self.version = 0
        """Counts the changes."""


class WaitList(JobWaits):
    """All open waits, found by job."""

    def __init__(self) -> None:
        self._waits: dict[Key, Wait] = {}
        self._by_job: dict[int, _JobWaits] = {}
        self._by_peer: dict[bytes, set[Key]] = {}
        self._changed: dict[int, None] = {}
        self._overdue: deque[Wait] = deque()
        self._alarms: list[tuple[float, int, Wait]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        """How many waits are open."""
        return len(self._waits)

    # ------------------------------------------------------------ waits come and go

    def open(self, wait: Wait) -> None:
        """Begin a wait; it replaces one with the same key. `BusyError` if there are too many."""
        self.stop(wait.key)
        if len(self._waits) >= JOB_WAITS_MAX:
            text = f"{JOB_WAITS_MAX} requests wait for changes of jobs already"
            raise errors.BusyError(text)
        line = self._by_job.setdefault(wait.job_id, _JobWaits())
        line.waits[wait.key] = wait
        self._waits[wait.key] = wait
        self._by_peer.setdefault(wait.key[0], set()).add(wait.key)
        if len(self._alarms) > 2 * len(self._waits) + _STALE_MIN:
            self._alarms = [alarm for alarm in self._alarms if self._is_open(alarm[2])]
            heapq.heapify(self._alarms)
        heapq.heappush(self._alarms, (wait.due, next(self._numbers), wait))

    def stop(self, key: Key) -> None:
        wait = self._waits.pop(key, None)
        if wait is None:
            return
        line = self._by_job[wait.job_id]
        del line.waits[key]
        if not line.waits:
            del self._by_job[wait.job_id]
            self._changed.pop(wait.job_id, None)
        of_peer = self._by_peer[key[0]]
        of_peer.discard(key)
        if not of_peer:
            del self._by_peer[key[0]]

    def stop_all_of(self, peer: bytes) -> None:
        for key in list(self._by_peer.get(peer, ())):
            self.stop(key)

    def _is_open(self, wait: Wait) -> bool:
        return self._waits.get(wait.key) is wait

    # ------------------------------------------------------------ changes and times

    def changed(self, job_id: int) -> None:
        line = self._by_job.get(job_id)
        if line is not None:
            line.left = len(line.waits)
            line.version += 1
            self._changed[job_id] = None

    def expire(self, now: float) -> None:
        """The waits that are due by now are to be answered, whatever there is."""
        while self._alarms and (self._alarms[0][0] <= now or not self._is_open(self._alarms[0][2])):
            wait = heapq.heappop(self._alarms)[2]
            if self._is_open(wait):
                self._overdue.append(wait)

    @property
    def next_due(self) -> float | None:
        """When `expire` has something to do at the latest; None: no client waits."""
        return self._alarms[0][0] if self._alarms else None

    @property
    def has_work(self) -> bool:
        """Whether there are waits to be looked at."""
        return bool(self._changed or self._overdue)

    def next_overdue(self) -> Wait | None:
        """A wait that is to be answered whatever there is; None: there is none."""
        while self._overdue:
            wait = self._overdue.popleft()
            if self._is_open(wait):
                return wait
        return None

    def next_changed(self) -> Wait | None:
        """A wait whose job has changed since it was looked at; None: there is none."""
        while self._changed:
            job_id = next(iter(self._changed))
            line = self._by_job[job_id]
            if line.left > 0:
                line.left -= 1
                key, wait = next(iter(line.waits.items()))
                line.waits.move_to_end(key)
                return wait
            del self._changed[job_id]
        return None

    def version(self, job_id: int) -> int:
        """Another number after each change of a job for which a client waits."""
        return self._by_job[job_id].version


def key_of(envelope: Envelope, request: AwaitJobChange) -> Key:
    """What tells the wait from others: a copy of the request has the same."""
    return envelope.peer, request.ticket or envelope.number
