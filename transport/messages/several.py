"""Messages that more than one component accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ...storage.jobs.jobs import JobStatus
from ...storage.jobs.outcomes import Outcome
from ...storage.prediction.lock_types import LockForecast
from .base import Message, Notice, Reply, Request
from .values import JobToJudge, JobVerdict, Remedy

if TYPE_CHECKING:
    from ...storage.filters.rules import FilterRule


class Boot(Notice, frozen=True):
    """First message of every component: build your state, then report that you are ready."""


class ComponentReplaced(Notice, frozen=True):
    """From the supervisor: this component has lost its memory; repeat your open requests to it."""

    component: str


class QueryAnswered(Reply, frozen=True):
    """One page of the answer to a query.

    ``fields``: the definition of each field (``name``, ``title``, ``kind``, ``doc``). ``rows``: the
    items as JSON, each an array with a pair [status, value] for each field, or with the bare values
    in a classic answer. ``next_after``: how to ask for the next page; None: this is the last. A
    page without rows need not be the last.
    """

    fields: list[dict[str, str]]
    rows: bytes
    next_after: str | None = None


class StartComponent(Notice, frozen=True):
    """From the supervisor: start a component that lives in another process, or its successor.

    The component that keeps the process passes this on to the listener in it.
    """

    component: str
    incarnation: int


class ReplaceProcess(Notice, frozen=True):
    """From the supervisor: end the process and fail, for this reason; a successor starts anew."""

    reason: str


class PulseDue(Notice, frozen=True):
    """From the keeper of a process to itself: ask it for a sign of life."""


class PeerGone(Notice, frozen=True):
    """From a listener: the peer with this key is unreachable, and its watches end."""

    peer: bytes


class ReplyDue(Notice, frozen=True):
    """To a listener: send ``message`` to a peer as the reply to its request ``number``."""

    peer: bytes
    number: int
    message: Message


class FramesWaiting(Notice, frozen=True):
    """Read the sockets: frames wait, and no descriptor reports them."""


class LocalSocketMissing(Notice, frozen=True):
    """Put back the file of the local socket, which is gone."""


class DiskRetried(Notice, frozen=True):
    """From the receiver's own timer: try whether the disk takes writes again."""


class RuleChainChanged(Notice, frozen=True):
    """From the filter evaluator: other rules are in force from now on.

    ``chain``: their number in verdicts. ``serial``: that of their `RulesChanged`. ``rules``: those
    that may apply now or later, in no order. ``tells_alike_apart``: they look at ids or reasons.
    """

    chain: int
    serial: int
    reads_opcodes: bool
    tells_alike_apart: bool = False
    rules: list[FilterRule] = []


class JobsFinished(Notice, frozen=True):
    """From the job queue: these jobs have ended, durably, each with its status.

    ``outcomes``: those that the status by itself does not say (`storage/jobs/outcomes`).
    """

    jobs: list[tuple[int, JobStatus]]
    outcomes: dict[int, Outcome] = {}


class JobReprioritised(Notice, frozen=True):
    """From the job queue: a pending job's new priority; the filter evaluator passes it on.

    ``number`` counts these changes. `JobsChosen` has the last one that the scheduler knew.
    """

    id: int
    priority: int
    number: int = 0


class HoldingBack(msgspec.Struct, frozen=True, kw_only=True):
    """A lock for which a job would have to wait, in the mode that it needs: so it does not start.

    ``jobs`` hold it, or other locks that conflict; ``others`` are owners that are no jobs;
    ``soon``: jobs that have just started and take it.
    """

    lock: str
    mode: str
    jobs: list[int] = []
    soon: list[int] = []
    others: list[str] = []


class FullLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A rate limit without a free place: its size, and the jobs ``inside``.

    ``ahead``: how many jobs wait for it before this job; ``first_ahead``: the first of them.
    """

    name: str
    size: int
    inside: list[int]
    ahead: int = 0
    first_ahead: list[int] = []


class QueuePosition(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps a pending job from starting.

    ``open``: dependencies that are not final. ``failing``: the text of a dependency that failed;
    the job ends when those of ``open`` have. ``full``: its rate limits without a free place.
    ``ahead``: how many jobs have their turn before it, of those that were looked at;
    ``has_more_ahead``: there may be more; ``first_ahead``: the first of them. ``held_back``: the
    locks for which it would wait. ``holding``: the rules that hold it, one after the other.
    ``refused``: as in `ExplainPending`.
    """

    open: list[int] = []
    failing: str = ""
    full: list[FullLimit] = []
    action: str = "ACCEPT"
    rule: str | None = None
    held_back: list[HoldingBack] = []
    ahead: int = 0
    has_more_ahead: bool = False
    first_ahead: list[int] = []
    running: list[int] = []
    slots: int = 0
    best_priority: int = 0
    holding: list[str] = []
    because: dict[str, str] = {}
    refused: list[int] = []
    remedy: Remedy = Remedy()


class PendingExplained(Reply, frozen=True):
    """From the scheduler: the position of a job; None: it is not pending any more."""

    position: QueuePosition | None


class ForecastsOutdated(Notice, frozen=True):
    """From the configuration store: resolved forecasts may be others now (`ResolveForecasts`).

    Sent when the store starts, and once after a change until it is asked again. ``serial_no``: of
    the configuration from which on this holds.
    """

    serial_no: int


class ExplainPending(Request[PendingExplained], frozen=True):
    """From the job queue: say what keeps a job from starting. The filter evaluator passes it on.

    The evaluator replaces ``job`` by ``holding``, the rules that hold it one after the other,
    ``because``, what it does with the locks at which these look, in words,
    ``then``, its verdict without them, and ``refused``, the priorities at which these two would be
    others.
    """

    id: int
    job: JobToJudge | None = None
    holding: list[str] = []
    because: dict[str, str] = {}
    then: JobVerdict | None = None
    refused: list[int] = []


class RuleHits(Reply, frozen=True):
    """For each filter rule, by UUID, to how many jobs it was applied since the daemon started.

    A rule that goes on to apply to a job counts once.
    """

    hits: dict[str, int]


class OrderReported(Reply, frozen=True):
    """The first pending jobs in order, each with the jobs that it waits for and whether it is held.

    ``count``: all pending jobs. ``running``: the jobs in the ``slots`` run slots. ``lock_sets``:
    the locks that jobs have, or with which they begin, as indexes of ``locks``; others need none,
    or it is not known. ``waiting``: how many pending jobs wait, by the kind of their first obstacle
    (if it was asked for). ``standing``: running jobs that still wait for theirs. ``holds_back``:
    whether pending jobs that would wait for locks get no run slot. ``causes``: of the jobs that
    were asked for and are pending, the kind of the first obstacle, and the lock, rule or jobs.
    """

    pending: list[tuple[int, list[int], bool]]
    count: int
    running: list[int]
    slots: int
    locks: list[LockForecast] = []
    lock_sets: dict[int, int] = {}
    standing: list[int] = []
    holds_back: bool = False
    waiting: dict[str, int] = {}
    causes: dict[int, tuple[str, str]] = {}


class ReportOrder(Request[OrderReported], frozen=True):
    """From the job queue: report the first ``limit`` pending jobs in order.

    ``has_causes``: also for what all of them wait, which costs more. ``causes_of``: for what each
    of these waits.
    """

    limit: int
    has_causes: bool = False
    causes_of: list[int] = []
