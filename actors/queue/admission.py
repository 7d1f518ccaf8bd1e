"""The admission of new jobs: checks, the rules that reject, keys, the drain, and the answer."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

import msgspec

from ...storage import errors, jobs
from ...storage.jobs import JobStatus
from ...transport import messages
from . import submitting
from .job_table import Phase, row_of
from .submission_keys import SubmissionKeys, mark_batch

if TYPE_CHECKING:
    from ...transport.envelopes import Envelope
    from .announcements import Arrival
    from .control import Control
    from .job_store import JobStore
    from .job_table import Row
    from .start_gate import StartGate


class _New(msgspec.Struct, frozen=True):
    """The accepted jobs of one submission, on their way to the disk."""

    key: str | None
    jobs: list[tuple[Row, submitting.Draft]]
    rejected: dict[int, str]


class Admission:
    """Takes submissions."""

    def __init__(self, store: JobStore, gate: StartGate, control: Control) -> None:
        self.is_drained = store.ledger.directory.is_drained
        self._store = store
        self._table = store.table
        self._ledger = store.ledger
        self._gate = gate
        self._control = control
        self._keys = SubmissionKeys(store)
        self._arriving: list[Arrival] = []

    def set_drain(self, envelope: Envelope, *, is_drained: bool) -> None:
        """Refuse submissions from now on, or take them again."""
        self._ledger.directory.set_drained(is_drained=is_drained)
        self.is_drained = is_drained
        envelope.reply(messages.Done())

    def submit(
        self, envelope: Envelope, message: messages.SubmitJobs, retry_of: int | None = None
    ) -> None:
        """Check a submission as a whole, and store it; ``retry_of``: the job that it repeats."""
        key, specs = message.key, message.jobs
        if key is not None and not message.dry_run and self._keys.is_repeat(envelope, key, specs):
            return
        if self._ledger.is_read_only and not message.dry_run:
            raise self._ledger.refusal()
        if self.is_drained:
            raise errors.QueueDrainedError
        first_id = self._ledger.last_id + 1
        drafts = self._drafts(message, first_id, retry_of)
        assert self._gate.rules is not None
        rejected = self._gate.rules.rejections([draft.job for draft in drafts])
        places = [place for place in range(len(drafts)) if place not in rejected]
        accepted = [drafts[place] for place in places]
        if accepted and rejected and key is not None:
            # A repetition of this submission is answered with them, too.
            kept = {str(place): text for place, text in rejected.items()}
            accepted[0].job.extra[jobs.REJECTED_KEY] = kept
        for draft in accepted if retry_of is not None else ():
            draft.job.extra[jobs.RETRY_OF_KEY] = retry_of
        digests = [] if key is None else mark_batch(drafts, specs)
        stored = submitting.stored_forms(drafts, places)
        if message.dry_run or not accepted:
            envelope.reply(messages.JobsSubmitted(ids=[], rejected=rejected))
            return
        self._write_inputs(accepted)
        self._ledger.last_id += len(drafts)
        if key is not None:
            self._keys.take_off(key, first_id, digests)
        rows = [row_of(draft.job, Phase.PENDING) for draft in accepted]
        inputs = [draft.job.judged_inputs for draft in accepted]
        self._arriving.extend(zip(rows, inputs, strict=True))
        new = _New(key, list(zip(rows, accepted, strict=True)), rejected)
        self._ledger.store_new(
            stored,
            functools.partial(self._submitted, envelope, new),
            functools.partial(self._not_submitted, envelope, new),
        )

    def _drafts(
        self, message: messages.SubmitJobs, first_id: int, retry_of: int | None
    ) -> list[submitting.Draft]:
        read_input = self._ledger.directory.read_input
        drafts = submitting.drafts(
            message.jobs,
            first_id=first_id,
            now=time.time(),
            key=message.key,
            read_input=functools.partial(read_input, retry_of) if retry_of else None,
        )
        submitting.check_targets(drafts, first_id, self._is_job)
        return drafts

    def _is_job(self, job_id: int) -> bool:
        return self._table.find(job_id) is not None or self._store.is_archived(job_id)

    def _write_inputs(self, accepted: list[submitting.Draft]) -> None:
        """Make the files beside the jobs durable before the journal names these jobs."""
        inputs = [found for draft in accepted for found in draft.inputs]
        if not inputs:
            return
        try:
            self._ledger.directory.spool.write_inputs(inputs)
        except errors.StorageError as error:
            self._ledger.refuse_writes(error)
            raise self._ledger.refusal() from error

    def announce_new(self) -> None:
        """Announce new jobs before the flush, so that others decide while the disk works."""
        if self._arriving:
            arriving, self._arriving = self._arriving, []
            self._store.announcements.pending(arriving)

    def _submitted(self, envelope: Envelope, new: _New) -> None:
        for row, draft in new.jobs:
            self._store.add(row, draft.secrets)
        if new.rejected:
            # No other file has the ids of rejected jobs, which are never given again.
            self._ledger.write_serial()
        ids = [row.id for row, _ in new.jobs]
        reply = messages.JobsSubmitted(ids=ids, rejected=new.rejected)
        envelope.reply(reply)
        for repeated in self._keys.land(new.key):
            repeated.reply(msgspec.structs.replace(reply, is_repeat=True))
        for row, draft in new.jobs:
            if (retry_of := draft.job.extra.get(jobs.RETRY_OF_KEY)) is not None:
                self._control.link_retry(retry_of, row.id)
        for row, _ in new.jobs:
            self._store.reader.watches.changed(row)

    def _not_submitted(self, envelope: Envelope, new: _New, error: errors.GangerError) -> None:
        self.announce_new()
        gone = [(row.id, JobStatus.CANCELED) for row, _ in new.jobs]
        self._store.announcements.finished(gone)
        self._ledger.remove_inputs(name for _, draft in new.jobs for name, _ in draft.inputs)
        envelope.refuse(error)
        for repeated in self._keys.land(new.key):
            repeated.refuse(error)
