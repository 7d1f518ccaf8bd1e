"""One live job as the queue keeps it in memory: a small row; its body stays on disk."""

from __future__ import annotations

import enum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from ...storage.jobs.origins import UNKNOWN, Origin
from ...storage.jobs.outcomes import OF_STATUS, SUCCEEDED, Ending, JobEnd, end_of, ending_of
from ...transport.messages import ChosenUnder, JobSummary, PendingJob

if TYPE_CHECKING:
    from ...storage.jobs.jobs import Job, JobStatus
    from ...storage.prediction.declared import Foreseen


class Phase(enum.Enum):
    """Where a job is, as seen by the queue. `JobTable.give_slot` sets those with a run slot."""

    PENDING = "pending"
    STARTING = "starting"
    """It has a run slot, and a process is being made for it."""

    HANDED_OVER = "handed over"
    """Its process writes the file, until that process has gone."""

    ENDED = "ended"


WITH_SLOT = frozenset({Phase.STARTING, Phase.HANDED_OVER})
"""The phases in which a job has a run slot."""


class JobClass(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What follows from the parameters of a job's opcodes; jobs with the same ones share it.

    It is made once, where a job is admitted or read (`job_classes`). Messages carry its number.
    """

    number: int = 0
    """Jobs with this number differ in nothing that filter rules see but their ids and reasons.

    0: the job may be like no other one.
    """

    inputs: list[dict[str, Any]] | None = None
    """What filter rules see of its opcodes but their reasons; None: its file alone has it."""

    summary: str = ""
    """This and the reason are cut for listings."""

    shown: tuple[tuple[str, Any], ...] = ()
    """The values of further fields of listings (`storage/jobs/listing`)."""

    depends: tuple[tuple[int, tuple[str, ...]], ...] = ()
    needed_later: tuple[int, ...] = ()
    """The jobs on which its later opcodes depend."""

    reason: str = ""
    limits: tuple[tuple[str, int], ...] = ()
    needs_user_opcodes: bool = False
    work: tuple[str, ...] = ()
    """What the run time of each opcode is estimated by; jobs of the same kinds share one object."""

    foreseen: Foreseen | None = None
    """The locks that its next opcodes will take; None: none, or it is not pending."""


class Unread(Protocol):
    """Stands for the classes of rows of which only a part was read (`lazy_rows`)."""

    def class_of(self, row: Row) -> JobClass:
        """Read the class of the row, and put it there; an empty one if that fails."""


class Execution(msgspec.Struct, kw_only=True, gc=False):
    """What a row has once the job was chosen to start, or has ended."""

    started: float | None = None
    ended: float | None = None
    process_id: int | None = None
    lock_file: str | None = None
    chosen: ChosenUnder = ChosenUnder()
    """The rules under which the scheduler chose it."""

    is_reprioritised: bool = False
    """Its priority has changed since it was last chosen."""

    handed_serial: int = -1
    """Serial of the state with which the job was handed over by this queue."""

    failed_starts: int = 0
    """How many of its processes ended, one after the other, before it began."""

    ending: Ending | None = None
    """How it ended, or will have once that is durable; None: it has not, or a success."""


NO_RUN = Execution()
"""Of all jobs that were not chosen yet. It never changes."""

_Value = TypeVar("_Value")


class _OfRun(property, Generic[_Value]):
    """A field of a row's `Execution`; setting it gives the row one of its own."""

    def __init__(self, name: str) -> None:
        def put(row: Row, value: _Value) -> None:
            if row.run is NO_RUN:
                row.run = Execution()
            setattr(row.run, name, value)

        super().__init__(attrgetter(f"run.{name}"), put)

    if TYPE_CHECKING:

        def __get__(self, row: Row, owner: type | None = None, /) -> _Value: ...  # type: ignore[override]
        def __set__(self, row: Row, value: _Value, /) -> None: ...


class _OfClass(property, Generic[_Value]):
    """A field of a row's `JobClass`; setting it gives the row a class of its own."""

    def __init__(self, name: str) -> None:
        find = attrgetter(name)

        def get(row: Row) -> _Value:
            known = row.job_class
            value: _Value = find(known if type(known) is JobClass else row.whole_class)
            return value

        def put(row: Row, value: _Value) -> None:
            known = row.whole_class
            if find(known) is not value:
                row.job_class = msgspec.structs.replace(known, number=0, **{name: value})

        super().__init__(get, put)

    if TYPE_CHECKING:

        def __get__(self, row: Row, owner: type | None = None, /) -> _Value: ...  # type: ignore[override]
        def __set__(self, row: Row, value: _Value, /) -> None: ...


class Row(msgspec.Struct, kw_only=True, gc=False):
    """A live job in memory. Times are seconds since the epoch."""

    id: int
    status: JobStatus
    priority: int
    received: float | None = None
    key: str | None = None
    digest: str | None = None
    origin: Origin = UNKNOWN
    phase: Phase = Phase.PENDING
    serial: int = 0
    job_class: JobClass | Unread = JobClass()
    run: Execution = msgspec.field(default_factory=lambda: NO_RUN)

    summary = _OfClass[str]("summary")
    reason = _OfClass[str]("reason")
    depends = _OfClass[tuple[tuple[int, tuple[str, ...]], ...]]("depends")
    needed_later = _OfClass[tuple[int, ...]]("needed_later")
    limits = _OfClass[tuple[tuple[str, int], ...]]("limits")
    needs_user_opcodes = _OfClass[bool]("needs_user_opcodes")
    work = _OfClass[tuple[str, ...]]("work")
    foreseen = _OfClass["Foreseen | None"]("foreseen")
    inputs = _OfClass["list[dict[str, Any]] | None"]("inputs")

    started = _OfRun["float | None"]("started")
    ended = _OfRun["float | None"]("ended")
    process_id = _OfRun["int | None"]("process_id")
    lock_file = _OfRun["str | None"]("lock_file")
    chosen = _OfRun[ChosenUnder]("chosen")
    is_reprioritised = _OfRun[bool]("is_reprioritised")
    handed_serial = _OfRun[int]("handed_serial")
    failed_starts = _OfRun[int]("failed_starts")
    ending = _OfRun["Ending | None"]("ending")

    @property
    def whole_class(self) -> JobClass:
        """Its class, which is read if it was not yet."""
        known = self.job_class
        return known if isinstance(known, JobClass) else known.class_of(self)

    @property
    def is_whole(self) -> bool:
        """Whether its class is known."""
        return isinstance(self.job_class, JobClass)

    def complete(self) -> None:
        """Read its class unless it is known; if that fails, it stays unknown."""
        if not isinstance(self.job_class, JobClass):
            self.job_class.class_of(self)

    def take_priority(self, priority: int) -> None:
        """Its opcodes have this priority from now on."""
        if self.priority != priority:
            self.priority = priority
            self.inputs = None

    def show_ending(self, job: Job) -> None:
        """Take from the job how it ended, unless it has not, or in success."""
        found = ending_of(job)
        if found is not None and found is not SUCCEEDED:
            self.ending = found
        elif self.run.ending is not None:
            self.run.ending = None

    @property
    def is_in_hand(self) -> bool:
        """Whether a process has the job, and has not ended it: what it tells of itself counts."""
        return self.phase is Phase.HANDED_OVER and not self.status.is_final

    @property
    def end(self) -> JobEnd:
        """What dependencies look at."""
        return end_of(self.status, self.run.ending)

    @property
    def shown_ending(self) -> Ending:
        """How it ended; without a reason if it has not, or in success."""
        known = self.run.ending
        return SUCCEEDED if known is None or not self.status.is_final else known

    def as_summary(self, *, archived: bool = False) -> JobSummary:
        """The row as users see it."""
        own, run, origin = self.whole_class, self.run, self.origin
        outcome, ending = None, SUCCEEDED
        if self.status.is_final:
            ending = run.ending or SUCCEEDED
            outcome = OF_STATUS[self.status][0] if run.ending is None else ending.outcome
        found = JobSummary(
            id=self.id,
            status=self.status,
            summary=own.summary,
            priority=self.priority,
            received=self.received,
            started=run.started,
            ended=run.ended,
            process_id=run.process_id,
            reason=own.reason,
            archived=archived,
            outcome=outcome,
            reason_ended=ending.reason,
            cause=ending.cause,
            name=origin.name,
            plan=origin.plan,
            user=origin.user,
            retry_of=origin.retry_of,
        )
        return msgspec.structs.replace(found, **dict(own.shown)) if own.shown else found

    def as_pending(self) -> PendingJob:
        """The row as the scheduler sees it."""
        own = self.whole_class
        known = own.foreseen
        if known is None:
            return PendingJob(
                id=self.id,
                priority=self.priority,
                depends=own.depends,
                limits=own.limits,
                job_class=own.number,
            )
        first, of_all = known.forecast
        return PendingJob(
            id=self.id,
            priority=self.priority,
            depends=own.depends,
            limits=own.limits,
            forecast=first,
            forecast_of_all=None if of_all is first else of_all,
            question=known.question,
            job_class=own.number,
        )
