"""The live jobs as the queue keeps them in memory: a small row for each; bodies stay on disk."""

from __future__ import annotations

import bisect
import contextlib
import enum
import functools
import itertools
import time
from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from ...storage import errors, job_views, jobs, opcodes
from ...storage.jobs import JobStatus
from ...storage.opcodes import catalogue
from ...storage.prediction import estimates
from ...storage.prediction.declared import Foreseen, foreseen_of_job
from ...transport.messages import ChosenUnder, JobSummary, PendingJob, SharedInputs
from ..scheduling.id_maps import IdMap
from . import submitting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


_GONE_IDS_MIN = 1_000
_SHARED_CHARACTERS_MAX = 200


class Phase(enum.Enum):
    """Where a job is, as seen by the queue. `JobTable.give_slot` sets those with a run slot."""

    PENDING = "pending"
    STARTING = "starting"
    """It has a run slot, and a process is being made for it."""

    HANDED_OVER = "handed over"
    """Its process writes the file, until that process has gone."""

    ENDED = "ended"


_WITH_SLOT = frozenset({Phase.STARTING, Phase.HANDED_OVER})


class Traits(msgspec.Struct, frozen=True, kw_only=True):
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


class Run(msgspec.Struct, kw_only=True, gc=False):
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


NO_RUN = Run()
"""Of all jobs that were not chosen yet. It never changes."""

_Value = TypeVar("_Value")


class _OfRun(property, Generic[_Value]):
    """A field of a row's `Run`; setting it gives the row one of its own."""

    def __init__(self, name: str) -> None:
        def put(row: Row, value: _Value) -> None:
            if row.run is NO_RUN:
                row.run = Run()
            setattr(row.run, name, value)

        super().__init__(attrgetter(f"run.{name}"), put)

    if TYPE_CHECKING:

        def __get__(self, row: Row, owner: type | None = None, /) -> _Value: ...  # type: ignore[override]
        def __set__(self, row: Row, value: _Value, /) -> None: ...


class _OfTraits(property, Generic[_Value]):
    """A field of a row's `Traits`; setting it gives the row traits of its own."""

    def __init__(self, name: str) -> None:
        def put(row: Row, value: _Value) -> None:
            if getattr(row.traits, name) is not value:
                row.traits = msgspec.structs.replace(row.traits, **{name: value})

        super().__init__(attrgetter(f"traits.{name}"), put)

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
    traits: Traits = Traits()
    run: Run = msgspec.field(default_factory=lambda: NO_RUN)

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
        traits = self.traits
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


def row_of(job: jobs.Job, phase: Phase) -> Row:
    """The row of a job as its file has it."""
    is_pending = phase is Phase.PENDING
    template = _template_of(job)
    traits = template.ended
    if is_pending:
        traits = template.pending if _has_one_priority(job) else template.alone
    status = job.status
    if is_pending and traits.depends:
        # Until the scheduler says that they are satisfied, it waits for its dependencies.
        status = JobStatus.WAITING
    if not _has_only_our_reasons(job):
        traits = _with_reasons(job, template, traits)
    extra = job.extra
    return Row(
        id=job.id,
        status=status,
        priority=job.priority,
        received=received_of(job.received_timestamp),
        key=_text(extra.get(jobs.SUBMISSION_KEY)),
        digest=_text(extra.get(jobs.DIGEST_KEY)),
        phase=phase,
        serial=job.serial,
        traits=traits,
        run=_run_of(job),
    )


def _with_reasons(job: jobs.Job, template: _Template, traits: Traits) -> Traits:
    """The traits with what users gave as reasons; jobs with the same ones share it."""
    reason = shared_text(job_views.job_reason(job))
    limits = job_views.rate_limits(op.input for op in job.ops)
    last = template.with_reasons
    if (
        last is not None
        and last[0] is traits
        and (last[1].reason, last[1].limits) == (reason, limits)
    ):
        return last[1]
    found = msgspec.structs.replace(traits, reason=reason, limits=limits)
    template.with_reasons = (traits, found)
    return found


def _run_of(job: jobs.Job) -> Run:
    times = (job.start_timestamp, job.end_timestamp)
    if job.livelock is None and job.process_id is None and times == (None, None):
        return NO_RUN
    return Run(
        started=jobs.seconds(job.start_timestamp),
        ended=jobs.seconds(job.end_timestamp),
        process_id=job.process_id,
        lock_file=job.livelock,
    )


class _Template(msgspec.Struct):
    """The traits of jobs with the same parameters."""

    pending: Traits
    """Of a job that is pending, and has no priority of its own."""

    alone: Traits
    """Of a pending job whose parameters are in its file alone."""

    ended: Traits
    """Of a job that is not pending."""

    with_reasons: tuple[Traits, Traits] | None = None
    """The last ones that were made of one of these, and of which."""


_templates: dict[bytes, _Template] = {}
_TEMPLATES_MAX = 4_096
_numbers = itertools.count(1)
_TEMPLATE_BYTES_MAX = 1_024
_encode = msgspec.msgpack.Encoder().encode


def _template_of(job: jobs.Job) -> _Template:
    """Found once for jobs whose opcodes differ in nothing but reasons."""
    place = job.next_index
    try:
        # The reasons have the job's id and the time.
        inputs = [_without_reasons(op) for op in job.ops]
        key = _encode((catalogue.generation(), place, inputs))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _found_template(job, place)
    found = _templates.get(key)
    if found is None:
        found = _found_template(job, place)
        if len(key) <= _TEMPLATE_BYTES_MAX:
            if len(_templates) >= _TEMPLATES_MAX:
                _templates.clear()
            _templates[key] = found
    elif found.pending is found.alone:
        # The parameters are kept once a second job has had the same: for no single one.
        shared = SharedInputs(inputs=inputs, number=next(_numbers))
        found.pending = msgspec.structs.replace(found.alone, shared_inputs=shared)
    return found


def _has_one_priority(job: jobs.Job) -> bool:
    """Whether filter rules see the parameters as they are in the file.

    They see the present priority of each opcode. When the job gets another one, all get it.
    """
    priority = job.priority
    for op in job.ops:
        if op.priority != priority or (op.input.get("priority") or 0) != priority:
            return False
    return True


def _without_reasons(op: jobs.OpcodeEntry) -> dict[str, Any]:
    return {name: value for name, value in op.input.items() if name != "reason"}


def _found_template(job: jobs.Job, place: int) -> _Template:
    depends: tuple[tuple[int, tuple[str, ...]], ...] = ()
    if place < len(job.ops):
        # If they are malformed, no daemon wrote them: the job's process will refuse the opcode.
        with contextlib.suppress(errors.DependencyError):
            depends = tuple(opcodes.dependencies(job.ops[place].input))
    ended = Traits(
        summary=shared_text(job_views.job_summary(job)),
        depends=depends,
        needs_user_opcodes=submitting.needs_user_opcodes(job),
        work=_shared(tuple([estimates.key_of(op.input) for op in job.ops])),
    )
    foreseen = foreseen_of_job([op.input for op in job.ops[place:]])
    pending = ended if foreseen is None else msgspec.structs.replace(ended, foreseen=foreseen)
    return _Template(pending, pending, ended)


def _has_only_our_reasons(job: jobs.Job) -> bool:
    """Whether each opcode's trail is the one entry that the queue adds at submission."""
    for op in job.ops:
        trail = op.input.get("reason")
        if not isinstance(trail, list) or len(trail) != 1:
            return False
        entry = trail[0]
        if not isinstance(entry, list) or len(entry) <= 1:
            return False
        source, text = entry[0], entry[1]
        if not isinstance(source, str) or not isinstance(text, str):
            return False
        if not source.startswith(job_views.ADDED_SOURCE) or not text.startswith("job="):
            return False
    return True


@functools.lru_cache(maxsize=16)
def received_of(stamp: jobs.Timestamp | None) -> float | None:
    """As `jobs.seconds`; the jobs of one submission share the object."""
    return jobs.seconds(stamp)


@functools.lru_cache(maxsize=estimates.KEYS_MAX)
def _shared(work: tuple[str, ...]) -> tuple[str, ...]:
    return work


def _text(value: object) -> str | None:
    """A value of the job's file that should be a text, if it is one."""
    return shared_text(value) if isinstance(value, str) else None


def shared_text(text: str) -> str:
    """The same text: of many jobs that have it, lately, all have the same object."""
    return _known_text(text) if len(text) <= _SHARED_CHARACTERS_MAX else text


@functools.lru_cache(maxsize=4_096)
def _known_text(text: str) -> str:
    return text


class JobTable:
    """The rows, by id, in the order of ids.

    Ids nearly always come in order; a large submission comes after smaller ones that began later.
    Ids of removed rows stay in the list until they are half of it.
    """

    def __init__(self) -> None:
        # What jobs share does not depend on another table that was in this process before.
        _templates.clear()
        self._rows: IdMap[Row] = IdMap()
        self._keys: dict[str, list[int]] = {}
        # The jobs with a run slot, and some that have had one.
        self._chosen: set[int] = set()
        self._statuses: Counter[JobStatus] = Counter()
        self._ids: list[int] = []
        self.mark = time.time_ns()
        """Another number whenever a row has come or gone, also than that of an earlier table."""

    def __len__(self) -> int:
        """How many jobs are live."""
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        """All rows in id order."""
        return self._rows_from(0)

    def add(self, row: Row) -> None:
        """Add a row with a new id."""
        job_id = row.id
        if not self._ids or job_id > self._ids[-1]:
            self._ids.append(job_id)
        else:
            place = bisect.bisect_left(self._ids, job_id)
            if self._ids[place] != job_id:
                self._ids.insert(place, job_id)
        if (before := self._rows.get(job_id)) is not None:
            self._statuses[before.status] -= 1
        self._rows[job_id] = row
        self._statuses[row.status] += 1
        if row.phase in _WITH_SLOT:
            self._chosen.add(job_id)
        self.mark += 1
        if row.key is not None:
            self._keys.setdefault(row.key, []).append(job_id)

    @property
    def last_id(self) -> int:
        """No live job has a higher id; 0 if none was ever added."""
        return self._ids[-1] if self._ids else 0

    def find(self, job_id: int) -> Row | None:
        """The live job's row."""
        return self._rows.get(job_id)

    def remove(self, job_id: int) -> None:
        """Remove the row of a job that is no longer live."""
        row = self._rows.take(job_id)
        if row is None:
            return
        self._chosen.discard(job_id)
        self._statuses[row.status] -= 1
        self.mark += 1
        if len(self._ids) > 2 * len(self._rows) + _GONE_IDS_MIN:
            self._ids = [one for one in self._ids if one in self._rows]
        if row.key is not None:
            ids = self._keys.get(row.key, [])
            ids.remove(job_id)
            if not ids:
                del self._keys[row.key]

    def ids_of_key(self, key: str) -> list[int] | None:
        """The live jobs submitted under this key."""
        found = self._keys.get(key)
        return None if found is None else list(found)

    def give_status(self, row: Row, status: JobStatus) -> None:
        """The job has this status now."""
        if self._rows.get(row.id) is row:
            self._statuses[row.status] -= 1
            self._statuses[status] += 1
        row.status = status

    def give_slot(self, row: Row, phase: Phase) -> None:
        """The job has a run slot now: it is in this phase."""
        row.phase = phase
        self._chosen.add(row.id)

    def in_phase(self, *phases: Phase) -> list[Row]:
        """The rows in one of these phases, by id.

        Those with a run slot are found without a look at the others.
        """
        if not _WITH_SLOT.issuperset(phases):
            return [row for row in self if row.phase in phases]
        rows = [row for row in map(self._rows.get, sorted(self._chosen)) if row is not None]
        with_slot = [row for row in rows if row.phase in _WITH_SLOT]
        self._chosen = {row.id for row in with_slot}
        return [row for row in with_slot if row.phase in phases]

    def page(
        self, *, after: int, limit: int, statuses: Iterable[JobStatus] | None
    ) -> tuple[list[Row], bool]:
        """Up to ``limit`` rows with ids above ``after``, and whether there are more."""
        if statuses is None:
            return self._page_of(after, limit, lambda _: True)
        wanted = frozenset(statuses)
        return self._page_of(after, limit, lambda row: row.status in wanted)

    def pending_after(self, job_id: int, limit: int) -> tuple[list[Row], bool]:
        """Up to ``limit`` pending rows with ids above ``job_id``, and whether there are more."""
        return self._page_of(job_id, limit, lambda row: row.phase is Phase.PENDING)

    def unfinished_after(self, job_id: int, limit: int) -> tuple[list[Row], bool]:
        """As `pending_after`, of all rows that are not final."""
        return self._page_of(job_id, limit, lambda row: not row.status.is_final)

    def ids_after(self, job_id: int) -> Iterator[int]:
        """The ids above ``job_id``, in order, as long as none is added or removed."""
        return (row.id for row in self._rows_from(bisect.bisect_right(self._ids, job_id)))

    def counts(self) -> dict[str, int]:
        """How many jobs there are in each status."""
        return {str(status): self._statuses[status] for status in JobStatus}

    def _page_of(
        self, job_id: int, limit: int, is_wanted: Callable[[Row], bool]
    ) -> tuple[list[Row], bool]:
        found: list[Row] = []
        for row in self._rows_from(bisect.bisect_right(self._ids, job_id)):
            if is_wanted(row):
                if len(found) == limit:
                    return found, True
                found.append(row)
        return found, False

    def _rows_from(self, place: int) -> Iterator[Row]:
        ids, find = self._ids, self._rows.get
        for index in range(place, len(ids)):
            if (row := find(ids[index])) is not None:
                yield row
