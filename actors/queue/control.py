"""What users ask of jobs: cancel, kill, priority, retry, archive."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...storage.jobs import job_ends, job_views, jobs, origins
from ...storage.jobs.jobs import JobStatus
from ...transport import messages
from ..admission import submitting
from ..runtime.addresses import EXECUTOR, FILTER_EVALUATOR
from ..store.job_rows import Phase

if TYPE_CHECKING:
    from ...transport.envelopes import Envelope
    from ..runtime.component import Runtime
    from ..runtime.works import Work
    from ..store.job_rows import Row
    from ..store.job_store import JobStore
    from .choices import Choices
    from .lifecycle import Lifecycle


class Control:
    """Carries out what users ask for, or passes it on to the job's process."""

    def __init__(
        self, runtime: Runtime, store: JobStore, choices: Choices, lifecycle: Lifecycle
    ) -> None:
        self._runtime = runtime
        self._log = runtime.log
        self._store = store
        self._table = store.table
        self._ledger = store.ledger
        self._choices = choices
        self._lifecycle = lifecycle
        # Numbers of requests to jobs' processes (docs/decisions/requests-to-jobs-carry-numbers.md).
        # They start at the clock, so late replies to our predecessor match none.
        self._tokens = time.monotonic_ns()
        self._requests: dict[int, Envelope] = {}
        self._archivals: dict[int, list[Envelope]] = {}
        self._retries: dict[int, list[int]] = {}
        store.when_ended(self._ended)
        store.when_returned(self._repeat_requests)

    def _ended(self, row: Row) -> None:
        self._repeat_requests(row, was_killed=self._lifecycle.take_killed(row.id))
        for retried_by in self._retries.pop(row.id, ()):
            self.link_retry(row.id, retried_by)
        for envelope in self._archivals.pop(row.id, ()):
            self.archive(envelope, row.id)

    # ------------------------------------------------------------ cancel and priority

    def cancel(self, envelope: Envelope, message: messages.CancelJob) -> None:
        """Cancel a pending job, or ask its process to end."""
        job_id = message.id
        row = self._table.find(job_id)
        if row is None or row.phase is Phase.ENDED or row.status.is_final:
            self._answer_ended(envelope, job_id, row)
        elif row.phase is Phase.HANDED_OVER:
            # To kill a running job needs no record: a loss of power kills it, too.
            is_killed = message.kill and row.status is JobStatus.RUNNING
            if not (is_killed or self._ledger.takes_cancelation_of(job_id)):
                raise self._ledger.refusal()
            token = self._remember(envelope)
            self._tell_job(row, messages.CancelRequested(token=token, kill=message.kill))
        else:
            job = self._store.read(job_id)
            job_ends.cancel_pending(job, jobs.timestamp(time.time()))
            self._store.store_end(row, job, envelope)

    def change_priority(self, envelope: Envelope, message: messages.ChangeJobPriority) -> None:
        """Change the priority of a job, or ask its process to do so."""
        jobs.check_priority(message.priority, "priority")
        row = self._table.find(message.id)
        if row is None or row.phase is Phase.ENDED or row.status.is_final:
            self._answer_ended(envelope, message.id, row)
        elif row.phase is Phase.HANDED_OVER:
            self._refuse_if_read_only()
            token = self._remember(envelope)
            asked = messages.PriorityRequested(token=token, priority=message.priority)
            self._tell_job(row, asked)
        else:
            self._reprioritise(envelope, row, message.priority)

    def _answer_ended(self, envelope: Envelope, job_id: int, row: Row | None) -> None:
        """Say that the job is not in the queue, once its end is durable."""
        text = f"Job {job_id} not found in queue"

        def answer() -> None:
            if isinstance(envelope.message, messages.ChangeJobPriority):
                envelope.reply(messages.PriorityOutcome(accepted=False, text=text))
                return
            if row is None or row.status is not JobStatus.CANCELED:
                envelope.reply(messages.CancelOutcome(accepted=False, text=text))
                return
            # A client that has lost the answer tells its own cancelation from another by its age.
            now = time.time()
            ago = max(0.0, now - (row.ended or now))
            outcome = messages.CancelOutcome(
                accepted=False, text=text, was_canceled=True, seconds_ago=ago
            )
            envelope.reply(outcome)

        self._ledger.after_commit(answer, envelope.refuse)

    def _reprioritise(self, envelope: Envelope, row: Row, priority: int) -> None:
        job = self._store.read(row.id)
        row.is_reprioritised = True
        row.chosen = messages.ChosenUnder(0, row.chosen.limit)
        # The process to which the request went first may have carried it out before it left.
        is_done = all(op.priority == priority for op in job.ops if not op.status.is_final)

        def stored() -> None:
            row.priority = priority
            row.inputs = None
            if row.phase is Phase.STARTING:
                # Where nothing has changed, the file may be all there is.
                if not is_done:
                    self._ledger.files.write_state(row.id)
            elif row.phase is not Phase.HANDED_OVER:
                self._ledger.files.write_file(row.id)
            text = _changed_text(row.id, priority)
            envelope.reply(messages.PriorityOutcome(accepted=True, text=text))
            self._store.announcements.reprioritised(row)
            if row.phase is Phase.PENDING:
                self._choices.make_way(row)
            self._store.reader.changed(row)

        if is_done:
            unknown = errors.OutcomeUnknownError.of
            self._ledger.after_commit(stored, lambda error: envelope.refuse(unknown(error)))
            return
        for op in job.ops:
            op.priority = priority
        self._ledger.store_state(self._store.next_state(row, job), stored, envelope.refuse)

    # ------------------------------------------------------------ requests to processes

    def _tell_job(
        self, row: Row, message: messages.CancelRequested | messages.PriorityRequested
    ) -> None:
        self._runtime.tell(EXECUTOR, messages.DeliverToJob(job_id=row.id, message=message))

    def _remember(self, envelope: Envelope) -> int:
        self._tokens += 1
        self._requests[self._tokens] = envelope
        while len(self._requests) > settings.QUESTIONS_MAX:
            # The process died before it replied, and the client's deadline has passed.
            del self._requests[next(iter(self._requests))]
        return self._tokens

    def _repeat_requests(self, row: Row, *, was_killed: bool = False) -> None:
        """Handle requests anew that the job's process did not answer before it left.

        ``was_killed``: it did not react at all, and a request to kill it was carried out.
        """
        asked = {
            token: envelope
            for token, envelope in self._requests.items()
            if getattr(envelope.message, "id", None) == row.id
        }
        for token, envelope in asked.items():
            del self._requests[token]
            match envelope.message:
                case messages.CancelJob(kill=True) if was_killed:
                    text = f"Job {row.id} did not react, and was killed"
                    envelope.reply(messages.CancelOutcome(accepted=True, text=text))
                case messages.CancelJob():
                    self.cancel(envelope, envelope.message)
                case messages.ChangeJobPriority():
                    self.change_priority(envelope, envelope.message)

    def pass_answer(self, message: messages.CancelAnswered | messages.PriorityAnswered) -> None:
        """Send the client the answer of the job's process when the process's state is stored.

        The state came before this answer. If the disk refused it, the request may be carried out
        all the same, but a loss of power may undo it.
        """
        envelope = self._requests.pop(message.token, None)

        def answer() -> None:
            refused = self._lifecycle.refusal_of(message.job_id) if message.accepted else None
            if refused is None:
                self._answered(envelope, message)
            else:
                failed(refused)

        def failed(error: errors.GangerError) -> None:
            if envelope is not None:
                is_known = isinstance(error, errors.OutcomeUnknownError) or not message.accepted
                envelope.refuse(error if is_known else errors.OutcomeUnknownError.of(error))

        self._ledger.after_commit(answer, failed)

    def _answered(
        self,
        envelope: Envelope | None,
        message: messages.CancelAnswered | messages.PriorityAnswered,
    ) -> None:
        answer: messages.Reply
        if isinstance(message, messages.CancelAnswered):
            answer = messages.CancelOutcome(accepted=message.accepted, text=message.text)
        else:
            answer = messages.PriorityOutcome(
                accepted=message.accepted, text=message.text, signaled=message.signaled
            )
            if message.accepted:
                self._end_overtaken(message)
            row = self._table.find(message.job_id)
            if message.accepted and row is not None and row.lock_file is not None:
                row.take_priority(message.priority)
                self._store.reader.waits.changed(row.id)
                row.chosen = messages.ChosenUnder(0, row.chosen.limit)
                # Rules that limit may count it differently now.
                changed = messages.JobReprioritised(id=row.id, priority=row.priority)
                self._runtime.tell(FILTER_EVALUATOR, changed)
        if envelope is not None:
            envelope.reply(answer)

    def _end_overtaken(self, granted: messages.PriorityAnswered) -> None:
        """End older requests for a priority: an executor that died has lost them.

        Repeated now, they would undo the newer one.
        """
        for token, envelope in list(self._requests.items()):
            asked = envelope.message
            if not isinstance(asked, messages.ChangeJobPriority):
                continue
            if asked.id == granted.job_id and token < granted.token:
                del self._requests[token]
                # As if it had been carried out a moment before.
                text = _changed_text(asked.id, asked.priority)
                envelope.reply(messages.PriorityOutcome(accepted=True, text=text))

    def _refuse_if_read_only(self) -> None:
        if self._ledger.is_read_only:
            raise self._ledger.refusal()

    # ------------------------------------------------------------ archive

    def archive(self, envelope: Envelope, job_id: int) -> None:
        """Archive a final job, now or when its process has gone."""
        row = self._table.find(job_id)
        if row is None:
            text = f"there is no live job {job_id}"
            if self._store.is_archived(job_id):
                raise errors.ArchivedJobError(text)
            raise errors.UnknownJobError(text)
        if not row.status.is_final:
            text = f"job {job_id} has status {row.status}: only a final job can be archived"
            raise errors.JobStateError(text)
        if row.phase is not Phase.ENDED:
            # Its process is about to leave, and may still write the file.
            self._archivals.setdefault(job_id, []).append(envelope)
            return
        self._store_archived(row, envelope)

    def autoarchiving(self, envelope: Envelope, message: messages.AutoArchiveJobs) -> Work:
        """Archive the final jobs of some age, so many at a time; yields between slices of them."""
        limit = time.time() - message.age_seconds
        old = [
            row.id
            for row in self._table
            if row.phase is Phase.ENDED
            and row.status.is_final
            and (message.age_seconds < 0 or (row.ended or row.started or limit) < limit)
        ]
        archived: list[int] = []
        for place, job_id in enumerate(old[: settings.AUTOARCHIVE_JOBS_MAX]):
            if place and place % settings.ARCHIVED_AT_ONCE == 0:
                yield
            if self._ledger.is_read_only:
                raise self._ledger.refusal()
            # Another request may have archived it meanwhile.
            if self._table.find(job_id) is not None:
                self._ledger.store_archived(job_id, functools.partial(self._store.took_out, job_id))
                archived.append(job_id)
        left = max(0, len(old) - settings.AUTOARCHIVE_JOBS_MAX)
        outcome = messages.ArchiveOutcome(archived=archived, left=left)
        self._ledger.after_commit(functools.partial(envelope.reply, outcome), envelope.refuse)
        return None

    def _store_archived(self, row: Row, envelope: Envelope) -> None:
        if self._ledger.is_read_only:
            envelope.refuse(self._ledger.refusal())
            return
        self._ledger.store_archived(row.id, functools.partial(self._store.took_out, row.id))
        outcome = messages.ArchiveOutcome(archived=[row.id])
        self._ledger.after_commit(functools.partial(envelope.reply, outcome), envelope.refuse)

    # ------------------------------------------------------------ retry

    def retry(self, message: messages.RetryJob) -> messages.SubmitJobs:
        """The submission that repeats an ended job."""
        row = self._table.find(message.id)
        if row is not None and not row.status.is_final:
            text = f"job {message.id} has status {row.status}: only an ended job can be retried"
            raise errors.JobStateError(text)
        job = self._read_ended(message.id)
        now_nanoseconds = time.time_ns()
        spec = submitting.retried(
            job, message.ops, is_whole=message.is_whole, now_nanoseconds=now_nanoseconds
        )
        plan = origins.origin_of(job.extra).plan or None
        return messages.SubmitJobs(
            jobs=[spec], key=message.key, submitter=message.submitter, plan=plan
        )

    def _read_ended(self, job_id: int) -> jobs.Job:
        if self._table.find(job_id) is not None:
            return self._store.read(job_id)
        job = self._store.read_archived(job_id)
        if job is None:
            raise errors.UnknownJobError(f"there is no job {job_id}")
        return job

    def retries_of(self, job_id: int) -> list[int]:
        """The jobs that repeat an ended one."""
        try:
            noted = job_views.retried_by(self._read_ended(job_id))
        except errors.UnknownJobError:
            noted = []
        return [*noted, *self._retries.get(job_id, ())]

    def link_retry(self, job_id: int, retried_by: int) -> None:
        """Let a final job name the one that repeats it. A crash may lose that."""
        row = self._table.find(job_id)
        if row is not None and row.phase is not Phase.ENDED:
            # Its process is about to leave; until then the process writes the file.
            self._retries.setdefault(job_id, []).append(retried_by)
            return
        try:
            job = self._read_ended(job_id)
        except errors.UnknownJobError:
            # It was purged meanwhile.
            return
        known = job.extra.get(jobs.RETRIED_BY_KEY)
        repeats = [*(known if isinstance(known, list) else ()), retried_by]
        job.extra[jobs.RETRIED_BY_KEY] = repeats[-settings.RETRIES_NOTED_MAX :]
        if row is None:
            try:
                self._ledger.directory.write_archived(job_id, jobs.encode_job(job))
            except errors.StorageError as error:
                self._log.warning("retry is not noted", job=job_id, error=error.text)
        else:
            state = self._store.next_state(row, job)
            write_file = functools.partial(self._ledger.files.write_file, job_id)
            self._ledger.store_state(state, write_file)


def _changed_text(job_id: int, priority: int) -> str:
    return f"Priorities of pending opcodes for job {job_id} have been changed to {priority}"
