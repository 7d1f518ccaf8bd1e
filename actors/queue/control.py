"""What users ask the queue to change: cancel, priority, archive."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

from ...storage import errors, jobs, settings
from ...storage.jobs import JobStatus
from ...transport import messages
from ..runtime.addresses import EXECUTOR, FILTER_EVALUATOR
from . import submitting
from .job_store import QueueCore
from .job_table import Phase, Row

if TYPE_CHECKING:
    from ...transport.envelopes import Envelope


class QueueWishes(QueueCore):
    """Does what users ask for, or passes it on to the job's process."""

    def _cancel(self, envelope: Envelope, message: messages.CancelJob) -> None:
        job_id = message.id
        row = self._table.find(job_id)
        if row is None or row.phase is Phase.ENDED or row.status.is_final:
            text = f"Job {job_id} not found in queue"
            was_canceled = row is not None and row.status is JobStatus.CANCELED
            outcome = messages.CancelOutcome(accepted=False, text=text, was_canceled=was_canceled)
            envelope.reply(outcome)
        elif row.phase is Phase.HANDED_OVER:
            # What is killed while it runs needs no record: a loss of power kills it, too.
            if not (message.kill and row.status is JobStatus.RUNNING):
                self._refuse_if_read_only()
            token = self._remember(envelope)
            self._tell_job(row, messages.CancelRequested(token=token, kill=message.kill))
        else:
            job = self._read(job_id)
            jobs.cancel_pending(job, jobs.timestamp(time.time()))
            self._store_end(row, job, envelope)

    def _change_priority(self, envelope: Envelope, message: messages.ChangeJobPriority) -> None:
        jobs.check_priority(message.priority, "priority")
        row = self._table.find(message.id)
        if row is None or row.phase is Phase.ENDED or row.status.is_final:
            text = f"Job {message.id} not found in queue"
            envelope.reply(messages.PriorityOutcome(accepted=False, text=text))
        elif row.phase is Phase.HANDED_OVER:
            self._refuse_if_read_only()
            token = self._remember(envelope)
            asked = messages.PriorityRequested(token=token, priority=message.priority)
            self._tell_job(row, asked)
        else:
            self._reprioritise(envelope, row, message.priority)

    def _reprioritise(self, envelope: Envelope, row: Row, priority: int) -> None:
        job = self._read(row.id)
        row.is_reprioritised = True
        row.chosen = messages.ChosenUnder(0, row.chosen.limit)
        for op in job.ops:
            op.priority = priority
        row.serial = max(row.serial, job.serial) + 1
        job.extra[jobs.STATE_SERIAL_KEY] = row.serial
        text = _changed_text(row.id, priority)

        def stored() -> None:
            row.priority = priority
            if row.phase is Phase.STARTING:
                self._ledger.write_state(row.id)
            elif row.phase is not Phase.HANDED_OVER:
                self._ledger.write_file(row.id)
            envelope.reply(messages.PriorityOutcome(accepted=True, text=text))
            self._moves += 1
            changed = messages.JobReprioritised(id=row.id, priority=priority, number=self._moves)
            # The way the job itself goes, so that it does not get there first.
            self.runtime.tell(FILTER_EVALUATOR, changed)
            if row.phase is Phase.PENDING:
                self._moved[row.id] = self._moves
                self._make_way(row)
            self._reader.watches.changed(row)

        state = (row.id, row.serial, jobs.encode_job(job))
        self._ledger.store_state(state, stored, envelope.refuse)

    def _tell_job(
        self, row: Row, message: messages.CancelRequested | messages.PriorityRequested
    ) -> None:
        self.runtime.tell(EXECUTOR, messages.DeliverToJob(job_id=row.id, message=message))

    def _remember(self, envelope: Envelope) -> int:
        self._tokens += 1
        self._requests[self._tokens] = envelope
        while len(self._requests) > settings.QUESTIONS_MAX:
            # A process that died before it answered: its asker had a deadline.
            del self._requests[next(iter(self._requests))]
        return self._tokens

    def _repeat_wishes(self, job_id: int) -> None:
        asked = {
            token: envelope
            for token, envelope in self._requests.items()
            if getattr(envelope.message, "id", None) == job_id
        }
        for token, envelope in asked.items():
            del self._requests[token]
            match envelope.message:
                case messages.CancelJob():
                    self._cancel(envelope, envelope.message)
                case messages.ChangeJobPriority():
                    self._change_priority(envelope, envelope.message)

    def _pass_answer(self, message: messages.CancelAnswered | messages.PriorityAnswered) -> None:
        """The job's process has done what was asked; it is told when its state is stored.

        The state came before this answer. If the disk refused it, the wish may come true, but
        nothing vouches for it after a loss of power.
        """
        envelope = self._requests.pop(message.token, None)

        def answer() -> None:
            refused = self._unstored.get(message.job_id) if message.accepted else None
            if refused is None:
                self._wish_granted(envelope, message)
            elif envelope is not None:
                envelope.refuse(refused)

        failed = (lambda _: None) if envelope is None else envelope.refuse
        self._ledger.after_commit(answer, failed)

    def _wish_granted(
        self,
        envelope: Envelope | None,
        message: messages.CancelAnswered | messages.PriorityAnswered,
    ) -> None:
        answer: messages.Reply
        if isinstance(message, messages.CancelAnswered):
            answer = messages.CancelOutcome(accepted=message.accepted, text=message.text)
        else:
            answer = messages.PriorityOutcome(accepted=message.accepted, text=message.text)
            if message.accepted:
                self._end_overtaken(message)
            row = self._table.find(message.job_id)
            if message.accepted and row is not None and row.lock_file is not None:
                row.priority = message.priority
                row.chosen = messages.ChosenUnder(0, row.chosen.limit)
                # Rules that limit may count it differently now.
                told = messages.JobReprioritised(id=row.id, priority=row.priority)
                self.runtime.tell(FILTER_EVALUATOR, told)
        if envelope is not None:
            envelope.reply(answer)

    def _end_overtaken(self, granted: messages.PriorityAnswered) -> None:
        """Older wishes of this kind, that an executor took with it: they must not come true now."""
        for token, envelope in list(self._requests.items()):
            asked = envelope.message
            if not isinstance(asked, messages.ChangeJobPriority):
                continue
            if asked.id == granted.job_id and token < granted.token:
                del self._requests[token]
                # As if it had come true a moment before.
                text = _changed_text(asked.id, asked.priority)
                envelope.reply(messages.PriorityOutcome(accepted=True, text=text))

    def _refuse_if_read_only(self) -> None:
        if self._ledger.is_read_only:
            raise self._ledger.refusal()

    def _archive(self, envelope: Envelope, job_id: int) -> None:
        row = self._table.find(job_id)
        if row is None:
            text = f"there is no live job {job_id}"
            if self._ledger.directory.read_archived(job_id) is not None:
                raise errors.ArchivedJobError(text)
            raise errors.UnknownJobError(text)
        if not row.status.is_final:
            text = f"job {job_id} has status {row.status}: only a final job can be archived"
            raise errors.JobStateError(text)
        if row.phase is not Phase.ENDED:
            # Its process is about to leave; the file is moved when nobody writes it.
            self._archivals.setdefault(job_id, []).append(envelope)
            return
        self._store_archived([row], envelope, left=0)

    def _autoarchive(self, envelope: Envelope, message: messages.AutoArchiveJobs) -> None:
        limit = time.time() - message.age_seconds
        old = [
            row
            for row in self._table
            if row.phase is Phase.ENDED
            and row.status.is_final
            and (message.age_seconds < 0 or (row.ended or row.started or limit) < limit)
        ]
        taken = old[: settings.AUTOARCHIVE_JOBS_MAX]
        self._store_archived(taken, envelope, left=len(old) - len(taken))

    def _retry(self, message: messages.RetryJob) -> messages.SubmitJobs:
        """The submission that repeats an ended job."""
        row = self._table.find(message.id)
        if row is not None and not row.status.is_final:
            text = f"job {message.id} has status {row.status}: only an ended job can be retried"
            raise errors.JobStateError(text)
        job = self._ended(message.id)
        now_nanoseconds = time.time_ns()
        spec = submitting.retried(
            job, message.ops, is_whole=message.is_whole, now_nanoseconds=now_nanoseconds
        )
        return messages.SubmitJobs(jobs=[spec], key=message.key)

    def _ended(self, job_id: int) -> jobs.Job:
        if self._table.find(job_id) is not None:
            return self._read(job_id)
        data = self._ledger.directory.read_archived(job_id)
        if data is None:
            raise errors.UnknownJobError(f"there is no job {job_id}")
        return jobs.decode_job(data)

    def _link_retry(self, job_id: int, retried_by: int) -> None:
        """Let a final job name the one that repeats it. A courtesy: a crash may lose it."""
        row = self._table.find(job_id)
        if row is not None and row.phase is not Phase.ENDED:
            # Its process is about to leave; until then the file is the process's.
            self._links.setdefault(job_id, []).append(retried_by)
            return
        job = self._ended(job_id)
        known = job.extra.get(jobs.RETRIED_BY_KEY)
        repeats = [*(known if isinstance(known, list) else ()), retried_by]
        job.extra[jobs.RETRIED_BY_KEY] = repeats[-settings.RETRIES_NOTED_MAX :]
        if row is None:
            try:
                self._ledger.directory.write_archived(job_id, jobs.encode_job(job))
            except errors.StorageError as error:
                self.log.warning("retry is not noted", job=job_id, error=error.text)
        else:
            row.serial = max(row.serial, job.serial) + 1
            job.extra[jobs.STATE_SERIAL_KEY] = row.serial
            state = (job_id, row.serial, jobs.encode_job(job))
            write = functools.partial(self._ledger.write_file, job_id)
            self._ledger.store_state(state, write)

    def _dependency_rows(self) -> list[messages.LockRow]:
        """Who waits for which job, in the form of the chained-jobs document."""
        found: dict[int, list[tuple[str, list[str]]]] = {}
        for row in self._table.in_phase(Phase.PENDING):
            for target, wanted in row.depends:
                other = self._table.find(target)
                if other is not None and not other.status.is_final:
                    entry = (",".join(wanted) or "any", [f"job/{row.id}"])
                    found.setdefault(target, []).append(entry)
        return [
            messages.LockRow(name=f"job/{target}", mode=None, owners=[], pending=pending)
            for target, pending in sorted(found.items())
        ]

    def _store_archived(self, rows: list[Row], envelope: Envelope, *, left: int) -> None:
        if self._ledger.is_read_only:
            envelope.refuse(self._ledger.refusal())
            return
        archived = [row.id for row in rows]
        for job_id in archived:
            self._ledger.store_archived(job_id, functools.partial(self._table.remove, job_id))
        outcome = messages.ArchiveOutcome(archived=archived, left=left)
        self._ledger.after_commit(functools.partial(envelope.reply, outcome), envelope.refuse)


def _changed_text(job_id: int, priority: int) -> str:
    return f"Priorities of pending opcodes for job {job_id} have been changed to {priority}"
