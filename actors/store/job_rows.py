"""One live job as the queue keeps it in memory: a small row; its body stays on disk."""

from __future__ import annotations

import enum
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from ...storage.jobs import job_views
from ...transport.messages import ChosenUnder, JobSummary, PendingJob, SharedInputs

if TYPE_CHECKING:
    from ...storage.jobs.jobs import JobStatus
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


class Derived(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a row has from its opcodes' parameters; jobs with the same parameters share it."""

    summary: str = ""
    depends: tuple[tuple[int, tuple[str, ...]], ...] = ()
    reason: str = ""
    limits: tuple[tuple[str, int], ...] = ()
    needs_user_opcodes: bool = False
    work: tuple[str, ...] = ()
    """What the run time of each opcode is estimated by; jobs of the same kinds share one object."""

    foreseen: Foreseen | None = None
    """The locks that its next opcodes will take; None: none, or it is not pending."""

    shared_inputs: SharedInputs | None = None
    """What filter rules see of its opcodes but their reasons; None: its file alone has it."""


class Unread(Protocol):
    """Stands for the traits of rows of which only a part was read (`lazy_rows`)."""

    def traits_of(self, row: Row) -> Derived:
        """Read the traits of the row, and put them there; without any if that fails."""


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


class _OfTraits(property, Generic[_Value]):
    """A field of a row's `Derived`; setting it gives the row traits of its own."""

    def __init__(self, name: str) -> None:
        find = attrgetter(name)

        def get(row: Row) -> _Value:
            traits = row.traits
            value: _Value = find(traits if type(traits) is Derived else row.whole_traits)
            return value

        def put(row: Row, value: _Value) -> None:
            traits = row.whole_traits
            if find(traits) is not value:
                row.traits = msgspec.structs.replace(traits, **{name: value})

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
    phase: Phase = Phase.PENDING
    serial: int = 0
    traits: Derived | Unread = Derived()
    run: Execution = msgspec.field(default_factory=lambda: NO_RUN)

    summary = _OfTraits[str]("summary")
    reason = _OfTraits[str]("reason")
    depends = _OfTraits[tuple[tuple[int, tuple[str, ...]], ...]]("depends")
    limits = _OfTraits[tuple[tuple[str, int], ...]]("limits")
    needs_user_opcodes = _OfTraits[bool]("needs_user_opcodes")
    work = _OfTraits[tuple[str, ...]]("work")
    foreseen = _OfTraits["Foreseen | None"]("foreseen")
    shared_inputs = _OfTraits["SharedInputs | None"]("shared_inputs")

    started = _OfRun["float | None"]("started")
    ended = _OfRun["float | None"]("ended")
    process_id = _OfRun["int | None"]("process_id")
    lock_file = _OfRun["str | None"]("lock_file")
    chosen = _OfRun[ChosenUnder]("chosen")
    is_reprioritised = _OfRun[bool]("is_reprioritised")
    handed_serial = _OfRun[int]("handed_serial")
    failed_starts = _OfRun[int]("failed_starts")

    @property
    def whole_traits(self) -> Derived:
        """Its traits, which are read if they were not yet."""
        traits = self.traits
        return traits if isinstance(traits, Derived) else traits.traits_of(self)

    @property
    def is_whole(self) -> bool:
        """Whether its traits are known."""
        return isinstance(self.traits, Derived)

    def complete(self) -> None:
        """Read its traits unless they are known; if that fails, they stay unknown."""
        if not isinstance(self.traits, Derived):
            self.traits.traits_of(self)

    def take_priority(self, priority: int) -> None:
        """Its opcodes have this priority from now on."""
        if self.priority != priority:
            self.priority = priority
            self.shared_inputs = None

    def as_summary(self, *, archived: bool = False) -> JobSummary:
        """The row as users see it."""
        return JobSummary(
            id=self.id,
            status=self.status,
            summary=job_views.in_listing(self.summary),
            priority=self.priority,
            received=self.received,
            started=self.started,
            ended=self.ended,
            process_id=self.process_id,
            reason=job_views.in_listing(self.reason),
            archived=archived,
        )

    def as_pending(self) -> PendingJob:
        """The row as the scheduler sees it."""
        traits = self.whole_traits
        known = traits.foreseen
        template = 0 if traits.shared_inputs is None else traits.shared_inputs.number
        if known is None:
            return PendingJob(
                id=self.id,
                priority=self.priority,
                depends=traits.depends,
                limits=traits.limits,
                template=template,
            )
        first, of_all = known.forecast
        return PendingJob(
            id=self.id,
            priority=self.priority,
            depends=traits.depends,
            limits=traits.limits,
            forecast=first,
            forecast_of_all=None if of_all is first else of_all,
            question=known.question,
            template=template,
        )
