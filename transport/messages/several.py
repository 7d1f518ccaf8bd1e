"""Messages that more than one component accepts."""

from __future__ import annotations

from typing import Any

from ...storage.jobs import JobStatus
from .base import Notice
from .values import JobToJudge, JobVerdict


class Boot(Notice, frozen=True):
    """First message of every component: build your state, then say that you are ready."""


class ComponentReplaced(Notice, frozen=True):
    """From the supervisor: this component lost its memory; repeat what it has not answered."""

    component: str


class ReportCounts(Notice, frozen=True):
    """From the supervisor: answer with a `QueueReport`."""

    token: int


class DiskRetried(Notice, frozen=True):
    """From the receiver's own timer: find out whether the disk takes writes again."""


class RuleChainChanged(Notice, frozen=True):
    """From the filter evaluator, to queue and scheduler: other rules are in force from now on.

    ``chain`` names them in verdicts; ``serial`` is that of the configuration (see
    `RulesChanged`). ``rules`` are those that may apply now or later, in no order.
    """

    chain: int
    serial: int
    reads_opcodes: bool
    rules: list[dict[str, Any]] = []


class JobsFinished(Notice, frozen=True):
    """From the job queue: these jobs are final (durably), each with its status."""

    jobs: list[tuple[int, JobStatus]]


class JobReprioritised(Notice, frozen=True):
    """From the job queue, through the filter evaluator: a pending job's new priority.

    ``number`` counts these; it comes back in a `JobsChosen`.
    """

    id: int
    priority: int
    number: int = 0


class ExplainPending(Notice, frozen=True):
    """From the job queue, through the filter evaluator: answer with a `PendingExplained`.

    It comes behind the job itself, judged under the rules in force. The evaluator replaces ``job``
    by the rules that hold it, one behind the other, and the verdict once they are gone.
    """

    token: int
    id: int
    job: JobToJudge | None = None
    holding: list[str] = []
    then: JobVerdict | None = None
