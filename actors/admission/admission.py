"""The admission of new jobs: checks, the rules that reject, keys, the drain, and the answer."""

from __future__ import annotations

import functools
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from ...storage import errors, settings, wording
from ...storage.cluster.lock_names import LockNames
from ...storage.jobs import jobs, origins
from ...storage.jobs.jobs import JobStatus
from ...storage.log.records import StoredRecord
from ...storage.queue_files import spool
from ...transport import messages
from ..store.job_classes import row_of
from ..store.job_rows import Phase
from . import retrying, submitting
from .submission_keys import SubmissionKeys, mark_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence

    from ...transport.envelopes import Envelope
    from ...transport.messages import Message
    from ..runtime.component import Runtime
    from ..runtime.works import Work
    from ..store.announcements import Arrival
    from ..store.job_rows import Row
    from ..store.job_store import JobStore
    from ..store.start_gate import StartGate


_ItemT = TypeVar("_ItemT")


class _Accepted(NamedTuple):
    """An accepted job: its row, and of its draft what no row has."""

    row: Row
    secrets: dict[int, dict[str, Any]]
    judged_inputs: list[dict[str, Any]] | None
    """What rules see of its opcodes; None: none looks at them, or the evaluator asks for them."""


class _New(msgspec.Struct, frozen=True):
    """The accepted jobs of one submission, on their way to the disk."""

    envelope: Envelope
    key: str | None
    jobs: list[_Accepted]
    rejected: dict[int, str]
    inputs: list[str]
    """Names of files beside the jobs."""
    retry_of: int | None

    @property
    def count(self) -> int:
        """How many jobs the submission has, those that a rule rejects included."""
        return len(self.jobs) + len(self.rejected)


class Admission:
    """Takes submissions."""

    def __init__(
        self,
        runtime: Runtime,
        store: JobStore,
        gate: StartGate,
        link_retry: Callable[[int, int], None],
        retries_of: Callable[[int], list[int]],
        *,
        purged_tasks: Container[str],
    ) -> None:
        """``link_retry``: note in an ended job (its id first) that another one repeats it.

        ``retries_of``: the jobs of which that was noted. ``purged_tasks``: the keys under which
        nothing starts again.
        """
        self._purged_tasks = purged_tasks
        self._runtime = runtime
        self.is_drained = store.ledger.directory.is_drained
        self._store = store
        self._table = store.table
        self._ledger = store.ledger
        self._gate = gate
        self._link_retry = link_retry
        self._retries_of = retries_of
        self._keys = SubmissionKeys(store)
        self.rejections: Counter[str] = Counter()
        """How many jobs each filter rule has rejected."""
        self._arriving: list[Arrival] = []
        self._nodes: dict[str, str] | None = None
        self._lock_names = LockNames({})
        """Of each node whether it takes commands; None: the configuration store tells it soon."""
        self._uploads: dict[str, list[tuple[Envelope, messages.InputStored]]] = {}
        """Those that wait until what they have sent is flushed, by its token."""

    def set_drain(self, envelope: Envelope, message: messages.SetDrain) -> None:
        """Refuse submissions from now on, or take them again."""
        directory = self._ledger.directory
        try:
            directory.set_drained(is_drained=message.is_drained)
        except errors.StorageError as error:
            if directory.is_drained is not message.is_drained:
                raise
            # The file is as it should be; what failed is the flush of its name.
            raise errors.OutcomeUnknownError.of(error) from error
        finally:
            self.is_drained = directory.is_drained
        envelope.reply(messages.Done())

    def submit(
        self, envelope: Envelope, message: messages.SubmitJobs, retry_of: int | None = None
    ) -> None:
        """Check a submission as a whole, and store it; ``retry_of``: the job that it repeats.

        A large one is worked at in slices, between which other requests are served.
        It has its ids from now on: smaller ones that are stored meanwhile get higher ids.
        """
        key, count = message.key, len(message.jobs)
        is_stored = not message.dry_run
        if key is not None and is_stored and self._keys.is_repeat(envelope, key, message.jobs):
            return
        if key is not None and key in self._purged_tasks:
            text = (
                "it has run, and was purged before its end was fetched: how it ended is not known"
            )
            raise errors.JobStateError(text)
        if is_stored:
            self._check_disk(key, count)
        self._keys.end_doubts()
        if self.is_drained and not message.ignores_drain:
            raise errors.QueueDrainedError
        first_id = self._ledger.last_id + 1
        submitting.check_whole(message.jobs, first_id=first_id, key=key)
        if message.plan is not None:
            origins.check_name(message.plan, "plan")
        work = self._taking_in(envelope, message, first_id, retry_of)
        if count <= settings.SUBMITTED_AT_ONCE:
            for _ in work:
                raise AssertionError("a small submission takes one slice")
            return
        if is_stored:
            self._ledger.last_id += count
            if key is not None:
                self._keys.take_off(key, first_id)
        whole = self._whole(envelope, key if is_stored else None, work)
        self._runtime.work(whole, envelope, outlives_asker=True)

    def _whole(self, envelope: Envelope, key: str | None, work: Work) -> Work:
        """A large submission; when it is refused, those that waited for it under ``key`` come."""
        yield
        try:
            yield from work
        except errors.GangerError as error:
            envelope.refuse(error)
            for repeated in self._keys.land(key):
                self._submit_again(repeated)
        return None

    def _submit_again(self, envelope: Envelope) -> None:
        """A submission waited for another one under its key, which was refused."""
        assert isinstance(envelope.message, messages.SubmitJobs)
        try:
            self.submit(envelope, envelope.message)
        except errors.GangerError as error:
            envelope.refuse(error)

    def _taking_in(
        self,
        envelope: Envelope,
        message: messages.SubmitJobs,
        first_id: int,
        retry_of: int | None,
    ) -> Work:
        """Check and store a submission, a large one in slices. Raises what the checks raise."""
        key, specs = message.key, message.jobs
        drafts = yield from self._drafting(message, first_id, retry_of)
        rejected = yield from self._rejecting(drafts, is_dry_run=message.dry_run)
        places = [place for place in range(len(drafts)) if place not in rejected]
        accepted = [drafts[place].job for place in places]
        _mark(accepted, rejected, key, retry_of)
        _sign(accepted, message)
        digests: list[str] = []
        record = StoredRecord(len(places))
        stored: list[tuple[int, int, bytes]] = []
        taken: list[_Accepted] = []
        inputs: list[tuple[str, bytes | spool.Stored]] = []
        for part in _slices(range(len(drafts))):
            if key is not None:
                digests += mark_batch(drafts, specs, part)
            kept = [place for place in part if place not in rejected]
            forms = submitting.stored_forms(drafts, kept)
            stored += forms
            if not message.dry_run:
                record.add(forms)
                taken += [self._accepted(drafts[place]) for place in kept]
                inputs += [found for place in kept for found in drafts[place].inputs]
            if len(drafts) > settings.SUBMITTED_AT_ONCE:
                # They are freed in slices, too: all at once takes milliseconds.
                drafts[part[0] : part[-1] + 1] = [submitting.DONE] * len(part)
                yield
        if message.dry_run or not places:
            self._store_nothing(envelope, None if message.dry_run else key, rejected)
            return None
        self._write_inputs(inputs)
        # A large submission has its ids already.
        self._ledger.last_id = max(self._ledger.last_id, first_id + len(drafts) - 1)
        if key is not None:
            self._keys.know_digests(key, first_id, digests)
        new = _New(envelope, key, taken, rejected, [name for name, _ in inputs], retry_of)
        self._store_new(new, stored, record)
        return None

    def _rejecting(
        self, drafts: list[submitting.Draft], *, is_dry_run: bool
    ) -> Generator[None, None, dict[int, str]]:
        """Why a rule rejects jobs of the submission, by their places."""
        rules = self._gate.rules
        assert rules is not None
        if not rules.may_reject:
            return {}
        hits = None if is_dry_run else self.rejections
        submitted = [draft.job for draft in drafts]
        return (yield from rules.rejecting(submitted, settings.SUBMITTED_AT_ONCE, hits))

    def _store_nothing(self, envelope: Envelope, key: str | None, rejected: dict[int, str]) -> None:
        """Answer a submission that leaves no job."""
        envelope.reply(messages.JobsSubmitted(ids=[], rejected=rejected))
        for repeated in self._keys.land(key):
            self._submit_again(repeated)

    def _store_new(
        self, new: _New, stored: list[tuple[int, int, bytes]], record: StoredRecord
    ) -> None:
        """Store the jobs; they become known, and the client is answered, when they are durable."""
        is_small = new.count <= settings.SUBMITTED_AT_ONCE
        if is_small:
            self._arriving += _arrivals(new.jobs)
        if is_small and new.jobs[0].row.origin.is_task and not self._ledger.is_read_only:
            self._store_task(new, stored, record)
            return
        self._ledger.store_new(
            stored,
            functools.partial(self._submitted if is_small else self._land, new),
            functools.partial(self._not_submitted, new),
            record,
        )

    def _store_task(
        self, new: _New, stored: list[tuple[int, int, bytes]], record: StoredRecord
    ) -> None:
        """Store a task with the flush of its start, before which nothing of it runs.

        Its process is made meanwhile. The master is answered when the task is durable.
        """

        def durable() -> None:
            self._tell_others(new, self._answer(new))

        def failed(error: errors.GangerError) -> None:
            # Its process may have it, and flush the job's file itself.
            if not isinstance(error, errors.OutcomeUnknownError):
                error = errors.OutcomeUnknownError.of(error)
            unknown = self._keys.doubt(new.key, error)
            for envelope in (new.envelope, *self._keys.land(new.key)):
                envelope.refuse(unknown)

        self._add(new.jobs)
        self._ledger.lazy.store_new(stored, record, durable, failed)

    def when_sure(
        self,
        names: list[str],
        done: Callable[[], None],
        failed: Callable[[errors.GangerError], None],
    ) -> None:
        """Do this when no task of these names waits for a flush: until then it may be lost."""
        if not self._keys.are_unsure(names):
            done()
        elif self._ledger.is_read_only:
            failed(self._ledger.refusal())
        else:
            self._ledger.lazy.hasten(done, failed)

    def _drafting(
        self, message: messages.SubmitJobs, first_id: int, retry_of: int | None
    ) -> Generator[None, None, list[submitting.Draft]]:
        specs, now = message.jobs, time.time()
        drafts: list[submitting.Draft] = []
        for part in _slices(range(len(specs))):
            drafts += submitting.drafted(
                specs,
                part,
                first_id=first_id,
                now=now,
                key=message.key,
                find_input=functools.partial(self._input, retry_of),
                nodes=self._nodes,
                lock_names=self._lock_names,
            )
            submitting.check_targets(drafts[part[0] :], first_id, len(specs), self._is_job)
            yield from _pause(specs)
        if retry_of is not None:
            [draft] = drafts
            find_end = self._store.endings.of
            retrying.renew_dependencies(draft.job, retry_of, find_end, self._retries_of)
        return drafts

    def _check_disk(self, key: str | None, count: int) -> None:
        """Raise a `StorageError` unless the disk takes so many new jobs."""
        self._ledger.look_for_space()
        if not self._ledger.takes_work:
            raise self._keys.doubt_of(key) or self._ledger.refusal()
        self._ledger.check_room(count)

    def _input(self, retry_of: int | None, name: object) -> spool.Stored:
        """Standard input that was sent before, or that the job has which is repeated."""
        directory = self._ledger.directory
        found = directory.spool.uploaded(name)
        if found is None and retry_of is not None:
            found = directory.input_of(retry_of, name)
            if found is None:
                raise errors.OpcodeError(f"there is no {wording.shown(str(name))} of this job")
        return found or submitting.no_input(name)

    def store_input(self, envelope: Envelope, message: messages.StoreInput) -> None:
        """Take a part of standard input, for a submission to come; the last one is flushed."""
        if self._ledger.is_read_only:
            raise self._ledger.refusal()
        end = message.offset + len(message.data)
        if end > settings.STDIN_BYTES_MAX:
            text = f"stdin: more than {settings.STDIN_BYTES_MAX} bytes (STDIN_BYTES_MAX)"
            raise errors.BadRequestError(text)
        spooled, name = self._ledger.directory.spool, spool.upload_name(message.token)
        if spool.upload_of(name) is None:
            raise errors.BadRequestError("token: expected 32 hexadecimal digits")
        stored = messages.InputStored(
            size=spooled.add_to_upload(name, message.data, message.offset)
        )
        if not message.is_last:
            envelope.reply(stored)
            return

        def finish() -> Message:
            try:
                spooled.finish_upload(name)
            except errors.StorageError as error:
                return messages.InputFlushed(token=message.token, error=error.text)
            return messages.InputFlushed(token=message.token)

        self._uploads.setdefault(message.token, []).append((envelope, stored))
        self._runtime.in_thread(finish)

    def note_flushed(self, message: messages.InputFlushed) -> None:
        """Standard input that has come is durable, or never will be."""
        for envelope, stored in self._uploads.pop(message.token, ()):
            if message.error is None:
                envelope.reply(stored)
            else:
                envelope.refuse(errors.StorageError(message.error))

    def note_nodes(self, message: messages.NodesChanged) -> None:
        """Refuse commands on other nodes than these from now on."""
        self._nodes = message.nodes
        self._lock_names = LockNames(message.lock_names)

    def in_names(self, text: str) -> str:
        """The text with the names that users know for the locks in it."""
        return self._lock_names.named(text)

    def _is_job(self, job_id: int) -> bool:
        return self._table.find(job_id) is not None or self._store.is_archived(job_id)

    def _accepted(self, draft: submitting.Draft) -> _Accepted:
        includes_inputs = self._store.announcements.includes_inputs
        judged_inputs = draft.job.judged_inputs if includes_inputs else None
        return _Accepted(row_of(draft.job, Phase.PENDING), draft.secrets, judged_inputs)

    def _write_inputs(self, inputs: list[tuple[str, bytes | spool.Stored]]) -> None:
        """Make the files beside the jobs durable before the journal names these jobs."""
        if not inputs:
            return
        try:
            self._ledger.directory.spool.write_inputs(inputs)
        except errors.StorageError as error:
            self._ledger.refuse_writes(error)
            raise self._ledger.refusal() from error

    @property
    def has_new(self) -> bool:
        """Whether there are jobs to `announce_new`."""
        return bool(self._arriving)

    def announce_new(self) -> None:
        """Announce new jobs before the flush, so that others decide while the disk works."""
        if self._arriving:
            arriving, self._arriving = self._arriving, []
            self._store.announcements.pending(arriving)

    def _submitted(self, new: _New) -> None:
        # The client goes on while the jobs become known: its next request comes after this turn.
        reply = self._answer(new)
        self._add(new.jobs)
        self._tell_others(new, reply)

    def _land(self, new: _New) -> None:
        """A large submission is durable: its jobs become known in slices, then it is answered."""
        self._runtime.work(self._landing(new), new.envelope, outlives_asker=True)

    def _landing(self, new: _New) -> Work:
        yield
        for part in _slices(new.jobs):
            self._add(part)
            self._store.announcements.pending(_arrivals(part))
            yield
        self._tell_others(new, self._answer(new))
        return None

    def _add(self, new: Sequence[_Accepted]) -> None:
        for one in new:
            self._store.add(one.row, one.secrets)
        self._store.announcements.ages.note(new[0].row.id, new[-1].row.id)

    def _answer(self, new: _New) -> messages.JobsSubmitted:
        if new.rejected:
            # No other file has the ids of rejected jobs, which are never given again.
            self._ledger.write_serial()
        ids = [one.row.id for one in new.jobs]
        reply = messages.JobsSubmitted(ids=ids, rejected=new.rejected)
        new.envelope.reply(reply)
        return reply

    def _tell_others(self, new: _New, reply: messages.JobsSubmitted) -> None:
        """Answer those who repeated the submission meanwhile, and notify those who follow jobs."""
        for repeated in self._keys.land(new.key):
            repeated.reply(msgspec.structs.replace(reply, is_repeat=True))
        if new.retry_of is not None:
            for job_id in reply.ids:
                self._link_retry(new.retry_of, job_id)
        if len(self._store.reader.watches):
            for one in new.jobs:
                self._store.reader.watches.changed(one.row)

    def _not_submitted(self, new: _New, error: errors.GangerError) -> None:
        if new.count <= settings.SUBMITTED_AT_ONCE:
            self.announce_new()
            gone = [(one.row.id, JobStatus.CANCELED) for one in new.jobs]
            self._store.announcements.finished(messages.JobsFinished(jobs=gone))
        self._ledger.segments.remove_inputs(new.inputs)
        if isinstance(error, errors.OutcomeUnknownError):
            error = self._keys.doubt(new.key, error)
        for envelope in (new.envelope, *self._keys.land(new.key)):
            envelope.refuse(error)


def _mark(
    accepted: list[jobs.Job], rejected: dict[int, str], key: str | None, retry_of: int | None
) -> None:
    """Let the jobs of a submission name the one that they repeat, and those that are rejected."""
    if accepted and rejected and key is not None:
        # A repetition of this submission is answered with them, too.
        texts = {str(place): text for place, text in rejected.items()}
        accepted[0].extra[jobs.REJECTED_KEY] = texts
    for job in accepted if retry_of is not None else ():
        job.extra[origins.RETRY_OF_KEY] = retry_of


def _sign(accepted: list[jobs.Job], message: messages.SubmitJobs) -> None:
    """Let the jobs say who has submitted them, and of which plan they are."""
    for job in accepted if message.submitter is not None else ():
        job.extra[origins.SUBMITTER_KEY] = message.submitter
    for job in accepted if message.plan else ():
        job.extra[origins.PLAN_KEY] = message.plan


def _arrivals(new: Iterable[_Accepted]) -> list[Arrival]:
    return [(one.row, one.judged_inputs) for one in new]


def _slices(items: Sequence[_ItemT]) -> Iterator[Sequence[_ItemT]]:
    """The items, as many at a time as are worked at in a slice."""
    for start in range(0, len(items), settings.SUBMITTED_AT_ONCE):
        yield items[start : start + settings.SUBMITTED_AT_ONCE]


def _pause(whole: Sequence[object]) -> Iterator[None]:
    """The end of a slice, unless the submission is small."""
    if len(whole) > settings.SUBMITTED_AT_ONCE:
        yield
