"""What the queue has promised up to some moment, and whether it is kept after a loss of power.

A script notes what it asks for and what it is answered; `Promises` adds that up. Nothing here
knows how the queue keeps its word.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from ganger.storage.jobs.jobs import Job, JobStatus, OpcodeEntry, job_status


class ArchiveAsked(msgspec.Struct, frozen=True):
    """These jobs (none: every one) may be archived from now on."""

    ids: tuple[int, ...] = ()


class PurgeAsked(msgspec.Struct, frozen=True):
    """These jobs may be gone from now on."""

    ids: tuple[int, ...]


class Purged(msgspec.Struct, frozen=True):
    """Jobs were purged."""

    ids: tuple[int, ...]


class Offered(msgspec.Struct, frozen=True):
    """A submission was sent: its number, its key, and the work of each opcode of each job."""

    number: int
    key: str | None
    work: tuple[tuple[str, ...], ...]


class Submitted(msgspec.Struct, frozen=True):
    """A submission was acknowledged."""

    number: int
    ids: tuple[int, ...]


class Withdrawn(msgspec.Struct, frozen=True):
    """A submission was refused, or was never answered and is not there after a restart.

    It never will be there.
    """

    number: int


class Canceled(msgspec.Struct, frozen=True):
    """The request to cancel was granted. ``is_final``: it had no process, so it is canceled now."""

    job_id: int
    is_final: bool


class CancelAsked(msgspec.Struct, frozen=True):
    """The job may be canceled from now on; ``is_refused``: it was not, and will not be."""

    job_id: int
    is_refused: bool = False


class Prioritised(msgspec.Struct, frozen=True):
    """A priority was asked for, or (``is_sure``) granted."""

    job_id: int
    priority: int
    is_sure: bool


class PriorityRefused(msgspec.Struct, frozen=True):
    """The last request for this priority was not carried out, and never will be."""

    job_id: int
    priority: int


class Archived(msgspec.Struct, frozen=True):
    """Jobs were archived."""

    ids: tuple[int, ...]


class Ended(msgspec.Struct, frozen=True):
    """A client got the job's final status."""

    job_id: int
    status: JobStatus


class Recorded(msgspec.Struct, frozen=True):
    """A job process got the confirmation that this state is durable."""

    job_id: int
    statuses: tuple[JobStatus, ...]


class Began(msgspec.Struct, frozen=True):
    """An operation began: the witness."""

    job_id: int
    op_index: int


class Configured(msgspec.Struct, frozen=True):
    """A configuration was written, or (not ``is_sure``) is about to be."""

    serial: int
    is_sure: bool


class Authorised(msgspec.Struct, frozen=True):
    """A client's key was made known."""

    key: str


class Shown(msgspec.Struct, frozen=True):
    """A client has seen these jobs in a listing."""

    ids: tuple[int, ...]


OfOneJob = (
    Canceled | CancelAsked | Prioritised | PriorityRefused
    | Ended | Recorded | Began
)  # fmt: skip
Event = (
    OfOneJob | ArchiveAsked | Archived | PurgeAsked | Purged | Offered | Submitted | Withdrawn
    | Configured | Authorised | Shown
)  # fmt: skip


class PromisedJob(msgspec.Struct, kw_only=True):
    """What is promised of one job."""

    work: tuple[str, ...]
    key: str | None
    is_archived: bool = False
    may_be_archived: bool = False
    is_purged: bool = False
    may_be_purged: bool = False
    final: JobStatus | None = None
    is_cancel_granted: bool = False
    cancels: int = 0
    """Requests to cancel it that were not refused."""
    began: set[int] = set()
    done: set[int] = set()
    """Opcodes whose success is durable: so is all of their output."""
    priorities: list[int] = msgspec.field(default_factory=lambda: [0])
    """Any of these is right: the last one that was granted, and what was asked for since."""


class BrokenPromises(msgspec.Struct):
    """What was found to be broken, by kind; one sentence each."""

    lost: list[str] = []
    doubled: list[str] = []
    conflicting: list[str] = []
    other: list[str] = []

    @property
    def sentences(self) -> list[str]:
        """All of them."""
        return [*self.lost, *self.doubled, *self.conflicting, *self.other]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What there is after a restart: each job with whether it is archived, and the rest."""

    jobs: dict[int, tuple[Job, bool]]
    pending: set[int]
    """Jobs that the scheduler is offered."""
    quarantined: list[str]
    ids_by_key: dict[str, list[int]]
    next_id: int
    outputs: dict[int, dict[int, bytes]]
    """What is kept of each job's output, by opcode."""
    lost_inputs: list[str]
    """Standard input that is missing beside its job, or is another."""
    files: set[int]
    """Ids of the files that lie in the queue directory."""
    left: set[int]
    """The jobs of which any file lies anywhere."""
    configuration: int
    unanswered: list[int]
    """The changes of which a repetition would not get the first reply."""

    marked: int
    """Which change the newest one in the configuration says it is."""
    clients: set[str]


class Promises:
    """What was promised, event by event."""

    def __init__(self) -> None:
        self.jobs: dict[int, PromisedJob] = {}
        self.offers: dict[int, Offered] = {}
        self.highest_id = 0
        self._configuration = 0
        self._configuration_max = 1
        self._clients: set[str] = set()

    def take(self, event: Event) -> None:
        """One more event."""
        match event:
            case Offered():
                self.offers[event.number] = event
            case Submitted():
                self._take_ids(self.offers.pop(event.number), event.ids)
            case Withdrawn():
                del self.offers[event.number]
            case Shown():
                self.highest_id = max([self.highest_id, *event.ids])
            case Configured():
                self._configuration_max = max(self._configuration_max, event.serial)
                if event.is_sure:
                    self._configuration = event.serial
            case Authorised():
                self._clients.add(event.key)
            case Archived() | ArchiveAsked() | Purged() | PurgeAsked():
                for job_id in event.ids or self.jobs:
                    _take_removal(self.jobs[job_id], event)
            case Ended() if event.job_id not in self.jobs:
                # The replies of the others name the jobs that the disk refused.
                assert event.status is JobStatus.CANCELED
            case _:
                _take_of_one(self.jobs[event.job_id], event)

    def _take_ids(self, offer: Offered, ids: tuple[int, ...]) -> None:
        for job_id, work in zip(ids, offer.work, strict=True):
            self.jobs[job_id] = PromisedJob(work=work, key=offer.key)
            self.highest_id = max(self.highest_id, job_id)

    # ------------------------------------------------------------ after the restart

    def broken_by(self, found: Found) -> BrokenPromises:
        """Which promises ``found`` does not keep."""
        broken = BrokenPromises()
        quarantined = {name.partition(":")[0] for name in found.quarantined}
        for job_id, known in self.jobs.items():
            if job_id not in found.jobs and known.may_be_purged:
                continue
            if job_id not in found.jobs:
                how = "quarantined" if f"job-{job_id}" in quarantined else "gone without a word"
                broken.lost.append(f"job {job_id} is {how}")
                continue
            job, is_archived = found.jobs[job_id]
            self._check_job(known, job, broken, is_pending=job_id in found.pending)
            _check_output(known, job, found.outputs.get(job_id, {}), broken)
            if known.is_archived and not is_archived:
                broken.other.append(f"job {job_id} is in the archive no more")
            if is_archived and not known.may_be_archived:
                broken.other.append(f"job {job_id} was archived without a request")
        self._check_offers(found, broken)
        self._check_keys(found, broken)
        self._check_purged(found, broken)
        for job_id in sorted(found.files - found.jobs.keys()):
            if f"job-{job_id}" not in quarantined:
                broken.other.append(f"the file of job {job_id} is dropped without a word")
        if found.next_id <= max([self.highest_id, *found.jobs]):
            broken.other.append(f"id {found.next_id} is given out again")
        broken.lost += [f"{name} has lost (part of) it" for name in found.lost_inputs]
        if not self._configuration <= found.configuration <= self._configuration_max:
            broken.other.append(f"configuration {found.configuration} of {self._configuration}")
        if found.unanswered:
            broken.other.append(f"replies to changes {found.unanswered} of the configuration")
        if found.marked != found.configuration:
            broken.other.append(f"configuration {found.configuration} has change {found.marked}")
        if not self._clients <= found.clients:
            broken.other.append("the key of a client is gone")
        return broken

    @staticmethod
    def _check_job(
        known: PromisedJob, job: Job, broken: BrokenPromises, *, is_pending: bool
    ) -> None:
        where = f"job {job.id}"
        statuses = [op.status for op in job.ops]
        if work_of(job) != known.work:
            broken.lost.append(f"{where} has lost (part of) its work")
            return
        if known.began and (is_pending or not job.status.is_final):
            began = sorted(known.began)
            broken.doubled.append(f"{where} began opcodes {began} and is {job.status} {statuses}")
        if known.final is not None and job.status is not known.final:
            broken.other.append(f"{where} was reported as {known.final}, is {job.status}")
        if job.status is JobStatus.CANCELED and not known.cancels:
            broken.other.append(f"{where} is canceled without a request, or after a refused one")
        if known.is_cancel_granted and not job.status.is_final:
            broken.other.append(f"{where} was reported as canceled, is {job.status}")
        if job.status.is_final == is_pending:
            broken.other.append(f"{where} is {job.status}, pending: {is_pending}")
        waiting = {op.priority for op in job.ops if not op.status.is_final}
        if not waiting.issubset(known.priorities):
            broken.other.append(f"{where}: priority {waiting}, promised {known.priorities}")

    def _check_offers(self, found: Found, broken: BrokenPromises) -> None:
        """A submission without an answer is there as a whole, or not at all."""
        strangers = [job for job_id, (job, _) in found.jobs.items() if job_id not in self.jobs]
        offered = {offer.work: offer for offer in self.offers.values()}
        left = {offer.number: set(offer.work) for offer in offered.values()}
        whole = {offer.number: len(offer.work) for offer in offered.values()}
        by_work = {work: offer.number for offer in offered.values() for work in offer.work}
        for job in strangers:
            number = by_work.get(work_of(job))
            if number is None or work_of(job) not in left[number]:
                broken.other.append(f"job {job.id} was never submitted like this")
                continue
            left[number].discard(work_of(job))
        for number, works in left.items():
            if works and len(works) != whole[number]:
                broken.other.append(f"submission {number} is there in part")

    def _check_purged(self, found: Found, broken: BrokenPromises) -> None:
        purged = {job_id for job_id, known in self.jobs.items() if known.is_purged}
        for job_id in sorted(purged & (found.left | found.jobs.keys())):
            broken.other.append(f"job {job_id} was purged, and something of it is there again")

    def _check_keys(self, found: Found, broken: BrokenPromises) -> None:
        for key, ids in found.ids_by_key.items():
            promised = [job_id for job_id, known in self.jobs.items() if known.key == key]
            if ids != promised:
                broken.other.append(f"key {key!r} stands for {ids}, promised {promised}")

    @property
    def keys(self) -> dict[str, list[int]]:
        """The keys that must be known still: none of their jobs may have been archived."""
        kept: dict[str, list[int]] = {}
        gone = {
            known.key
            for known in self.jobs.values()
            if known.may_be_archived or known.may_be_purged
        }
        for job_id, known in self.jobs.items():
            if known.key is not None and known.key not in gone:
                kept.setdefault(known.key, []).append(job_id)
        return kept


def _check_output(
    known: PromisedJob, job: Job, outputs: dict[int, bytes], broken: BrokenPromises
) -> None:
    """Output is whole where its opcode's success is durable, and never anything but a beginning."""
    for index, op in enumerate(job.ops):
        written, kept = output_of(op), outputs.get(index, b"")
        if not written.startswith(kept):
            broken.other.append(f"job {job.id}: opcode {index} has output {kept[:50]!r}")
        elif index in known.done and kept != written and not _was_notified_of_a_flush(op):
            sizes = f"{len(kept)} of {len(written)} bytes"
            broken.lost.append(f"job {job.id}: {sizes} of the output of opcode {index}")


def _was_notified_of_a_flush(op: OpcodeEntry) -> bool:
    return any("may not survive" in str(entry[3]) for entry in op.log)


def word(number: int) -> bytes:
    """What an operation of a script writes, piece by piece."""
    return b"word %d\n" % number


def output_of(op: OpcodeEntry) -> bytes:
    """All that the operation writes."""
    match op.input.get("argv"):
        case [_, str(count), *_] if count.isdecimal():
            return b"".join(word(number) for number in range(int(count)))
    return b""


def work_of(job: Job) -> tuple[str, ...]:
    """What tells one job of a script from another: the text that each opcode works on."""
    return tuple(str(op.input.get("comment")) for op in job.ops)


def _take_removal(known: PromisedJob, event: Event) -> None:
    is_purge = isinstance(event, Purged | PurgeAsked)
    known.may_be_purged |= is_purge
    known.is_purged |= isinstance(event, Purged)
    known.may_be_archived |= not is_purge
    known.is_archived |= isinstance(event, Archived)


def _take_of_one(known: PromisedJob, event: OfOneJob) -> None:
    match event:
        case CancelAsked():
            known.cancels += -1 if event.is_refused else 1
        case PriorityRefused():
            first, *others = known.priorities
            known.priorities = [first, *(each for each in others if each != event.priority)]
        case Canceled():
            known.is_cancel_granted = True
            if event.is_final:
                known.final = JobStatus.CANCELED
        case Prioritised(is_sure=False):
            known.priorities.append(event.priority)
        case Prioritised():
            del known.priorities[: known.priorities.index(event.priority)]
        case Ended():
            known.final = event.status
            if event.status is JobStatus.SUCCESS:
                known.done.update(range(len(known.work)))
        case Recorded():
            known.done.update(
                index for index, status in enumerate(event.statuses) if status is JobStatus.SUCCESS
            )
            if (final := job_status([*event.statuses])).is_final:
                known.final = final
        case Began():
            known.began.add(event.op_index)
        case _:
            assert_never(event)
