"""Submissions that repeat an earlier one under its key: they get its ids, and no other job's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ...storage import errors
from ...storage.jobs import jobs
from ...storage.queue_files import job_files
from ...transport import messages
from . import repeating, submitting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...transport.envelopes import Envelope
    from ...transport.messages import JobSpec
    from ..store.job_store import JobStore
    from .submitting import Draft


class _InFlight(msgspec.Struct):
    """A submission on its way to the disk: digests of its jobs, and repetitions of it.

    ``digests``: None while a large submission is being checked.
    """

    first_id: int
    digests: list[str] | None
    repeats: list[Envelope]


class SubmissionKeys:
    """Answers repeated submissions. The table knows the keys of live jobs."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._table = store.table
        self._in_flight: dict[str, _InFlight] = {}
        self._doubtful: dict[str, errors.OutcomeUnknownError] = {}

    def is_repeat(self, envelope: Envelope, key: str, specs: Sequence[JobSpec]) -> bool:
        """Answer a submission whose key is known. `BadRequestError` if it is another one."""
        if (flying := self._in_flight.get(key)) is not None:
            if flying.digests is not None:
                _check_in_flight(flying.first_id, flying.digests, specs)
            flying.repeats.append(envelope)
            return True
        # Not before: of a large submission that is on its way, the table knows a part.
        if (live := self._table.ids_of_key(key)) is not None:
            envelope.reply(self._repeated(key, live, specs))
            return True
        return False

    def take_off(self, key: str, first_id: int) -> None:
        """A large submission under this key is being checked."""
        self._in_flight[key] = _InFlight(first_id, None, [])

    def know_digests(self, key: str, first_id: int, digests: list[str]) -> None:
        """The submission under this key is on its way to the disk. Refuse false repetitions."""
        flying = self._in_flight.setdefault(key, _InFlight(first_id, None, []))
        flying.digests = digests
        repeats, flying.repeats = flying.repeats, []
        for envelope in repeats:
            assert isinstance(envelope.message, messages.SubmitJobs)
            try:
                _check_in_flight(first_id, digests, envelope.message.jobs)
            except errors.BadRequestError as error:
                envelope.refuse(error)
            else:
                flying.repeats.append(envelope)

    def land(self, key: str | None) -> list[Envelope]:
        """The submission is stored, or refused. Returns those that repeated it meanwhile."""
        flying = None if key is None else self._in_flight.pop(key, None)
        return [] if flying is None else flying.repeats

    def doubt(
        self, key: str | None, error: errors.OutcomeUnknownError
    ) -> errors.OutcomeUnknownError:
        """What to answer to a submission that a loss of power may bring back, and to its repeats.

        When the disk works again, the submission is gone: `end_doubts`.
        """
        if key is None:
            return error
        self._doubtful[key] = error.under_key()
        return self._doubtful[key]

    def doubt_of(self, key: str | None) -> errors.OutcomeUnknownError | None:
        """What an earlier submission under this key was answered, if nobody knows its outcome."""
        return None if key is None else self._doubtful.get(key)

    def are_unsure(self, keys: Iterable[str]) -> bool:
        """Whether the submission under one of these is not known to be durable."""
        return any(key in self._in_flight or key in self._doubtful for key in keys)

    def end_doubts(self) -> None:
        """The disk has taken the records of doubtful submissions out of the journal."""
        self._doubtful.clear()

    def _repeated(
        self, key: str, live: list[int], specs: Sequence[JobSpec]
    ) -> messages.JobsSubmitted:
        stored = dict(self._stored_under(key, live, len(specs)))
        first = next(iter(stored))
        kept = (stored[first] or self._store.read(first)).extra.get(jobs.REJECTED_KEY)
        rejected = {int(place): text for place, text in (kept or {}).items()}
        ids = list(stored)
        if len(ids) + len(rejected) != len(specs):
            raise repeating.count_refusal(len(specs), len(ids) + len(rejected), ids)
        places = (place for place in range(len(specs)) if place not in rejected)
        for place, (job_id, job) in zip(places, stored.items(), strict=False):
            if not self._is_same(job_id, job, specs[place], place):
                raise repeating.refusal(place, len(specs), job_id)
        return messages.JobsSubmitted(ids=ids, is_repeat=True, rejected=rejected)

    def _is_same(self, job_id: int, job: jobs.Job | None, spec: JobSpec, place: int) -> bool:
        row = self._table.find(job_id)
        if row is not None and row.digest is not None:
            return row.digest == submitting.digest(spec)
        return repeating.is_same(job or self._store.read(job_id), spec, place)

    def _stored_under(
        self, key: str, live: list[int], count: int
    ) -> Iterator[tuple[int, jobs.Job | None]]:
        """The jobs of a submission in the order of their ids; archived ones are read."""
        are_live = set(live)
        for job_id in _ids_of_batch(self._store.read(live[0]), live, count):
            if job_id in are_live:
                yield job_id, None
            elif self._table.find(job_id) is not None:
                continue
            elif (job := self._archived_under(key, job_id)) is not None:
                yield job_id, job

    def _archived_under(self, key: str, job_id: int) -> jobs.Job | None:
        data = self._store.ledger.files.read_archived(job_id)
        job = None if data is None else job_files.read_job(data, job_id)
        return job if job is not None and job.extra.get(jobs.SUBMISSION_KEY) == key else None


def mark_batch(
    drafts: Sequence[Draft], specs: Sequence[JobSpec], places: Iterable[int]
) -> list[str]:
    """Let these jobs of a submission with a key name their digests and places; the digests."""
    digests = []
    for place in places:
        extra, digest = drafts[place].job.extra, submitting.digest(specs[place])
        digests.append(digest)
        if digest:
            extra[jobs.DIGEST_KEY] = digest
        if len(drafts) > 1:
            extra[jobs.BATCH_KEY] = [place, len(drafts)]
    return digests


def _check_in_flight(first_id: int, digests: list[str], specs: Sequence[JobSpec]) -> None:
    if len(specs) != len(digests):
        ids = range(first_id, first_id + len(digests))
        raise repeating.count_refusal(len(specs), len(ids), ids)
    for place, (known, spec) in enumerate(zip(digests, specs, strict=True)):
        if known != submitting.digest(spec):
            raise repeating.refusal(place, len(specs), first_id + place)


def _ids_of_batch(known: jobs.Job, live: list[int], count: int) -> Iterable[int]:
    """The ids that a submission may have, given one of its jobs and those that are live."""
    match known.extra.get(jobs.BATCH_KEY):
        case [int(place), int(size)] if 0 <= place < size:
            first = known.id - place
            return range(first, first + size)
    if jobs.DIGEST_KEY in known.extra:
        return live
    # Of an older version: some may be archived, right before and behind the others.
    missing = max(0, count - len(live))
    return range(max(1, live[0] - missing), live[-1] + missing + 1)
