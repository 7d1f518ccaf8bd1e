"""Messages that more than one component accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage.jobs import JobStatus
from .base import Notice
from .values import JobToJudge, JobVerdict

if TYPE_CHECKING:
    from ...storage.rules import FilterRule


class Boot(Notice, frozen=True):
    """First message of every component: build your state, then report that you are ready."""


class ComponentReplaced(Notice, frozen=True):
    """From the supervisor: this component has lost its memory; repeat your open requests to it."""

    component: str


class DiskRetried(Notice, frozen=True):
    """From the receiver's own timer: try whether the disk takes writes again."""


class RuleChainChanged(Notice, frozen=True):
    """From the filter evaluator: other rules are in force from now on.

    ``chain``: their number in verdicts. ``serial``: that of their `RulesChanged`. ``rules``: those
    that may apply now or later, in no order.
    """

    chain: int
    serial: int
    reads_opcodes: bool
    rules: list[FilterRule] = []


class JobsFinished(Notice, frozen=True):
    """From the job queue: these jobs have ended, durably, each with its status."""

    jobs: list[tuple[int, JobStatus]]


class JobReprioritised(Notice, frozen=True):
    """From the job queue: a pending job's new priority; the filter evaluator passes it on.

    ``number`` counts these changes. `JobsChosen` has the last one that the scheduler knew.
    """

    id: int
    priority: int
    number: int = 0


class ExplainPending(Notice, frozen=True):
    """From the job queue: reply with a `PendingExplained`. The filter evaluator passes it on.

    It follows the job itself, judged under the rules in force. The evaluator replaces ``job`` by
    ``holding``, the rules that hold it one after the other, and ``then``, its verdict without them.
    """

    token: int
    id: int
    job: JobToJudge | None = None
    holding: list[str] = []
    then: JobVerdict | None = None
