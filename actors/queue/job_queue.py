"""The job queue: single writer of ids, pending jobs, the journal and the queue directory.

What a turn brings is collected in the `Ledger`; at the end of the turn one flush makes all
of it durable, and only then is anybody told. The actor is here, with submission and what the
other components ask for; the rest of it is in `queue_lives`, `queue_wishes` and `queue_core`.
"""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, assert_never

import msgspec

from ...storage import errors, jobs, settings
from ...storage.jobs import JobStatus
from ...transport import messages
from ..rules.rules_in_force import RulesInForce
from ..runtime.addresses import CONFIG_STORE, EXECUTOR, FILTER_EVALUATOR
from . import submitting
from .control import QueueWishes
from .diagnosis import QueueAnswers
from .job_table import Phase, Row, row_of
from .lifecycle import QueueLives
from .submission_keys import InFlight, QueueKeys

if TYPE_CHECKING:
    from ...transport.envelopes import Envelope


class _New(msgspec.Struct, frozen=True):
    """The accepted jobs of one submission, on their way to the disk."""

    key: str | None
    jobs: list[tuple[Row, submitting.Draft]]
    rejected: dict[int, str]


class JobQueue(QueueLives, QueueWishes, QueueAnswers, QueueKeys):
    """Owns the queue."""

    name = "job_queue"

    def boot(self) -> None:
        """Load the directory, end the jobs that died, tell the others what there is."""
        super().boot()
        self.runtime.tell(FILTER_EVALUATOR, messages.ReportChain())
        self._report_queue()

    def receive(self, envelope: Envelope) -> None:  # noqa: C901, PLR0912, PLR0915
        """Handle one message."""
        message: messages.QueueMessage = envelope.message  # type: ignore[assignment]
        match message:
            case _ if self._door is None and _needs_rules(message):
                self._before_rules.append(envelope)
            case messages.SubmitJobs():
                self._submit(envelope, message)
            case messages.ListJobs():
                envelope.reply(self._reader.rows(message))
            case messages.ReadJob():
                self._catch_up(message.id)
                envelope.reply(self._reader.document(message.id))
            case messages.WatchJobs():
                self._reader.watch(envelope, message)
            case messages.StopWatch():
                self._reader.watches.stop(envelope.peer, message.request_id)
            case messages.PeerGone():
                self._reader.watches.stop_all_of(message.peer)
            case messages.CancelJob():
                self._cancel(envelope, message)
            case messages.ArchiveJob():
                self._archive(envelope, message.id)
            case messages.AutoArchiveJobs():
                self._autoarchive(envelope, message)
            case messages.ChangeJobPriority():
                self._change_priority(envelope, message)
            case messages.RecordState():
                self._take_state(envelope, message)
            case messages.JobWaits():
                self._note_waiting(message)
            case messages.JobLogAppended():
                self._reader.told(message)
            case messages.AskDependencies():
                envelope.reply(self._dependencies_of(message))
            case messages.AskGate():
                self._ask_gate(envelope, message)
            case messages.JobReturns():
                self._note_return(envelope, message)
            case messages.CancelAnswered() | messages.PriorityAnswered():
                self._pass_answer(message)
            case messages.JobsChosen():
                self._take_choice(message)
            case messages.ReportStatuses():
                self._report_statuses(message.ids)
            case messages.ReportAllJobs():
                self._report_queue()
            case messages.ReportRunning():
                self._report_running()
            case messages.HandOverRequested():
                self._hand_over(envelope, message)
            case messages.JobExited():
                # Judged when all that the process said is durable, or is known not to be.
                exit_taken = functools.partial(self._take_exit, message)
                self._ledger.after_commit(exit_taken, lambda _: exit_taken())
            case messages.StartFailed():
                self._fail_start(message)
            case messages.RuleChainChanged():
                self._change_chain(message)
            case messages.RuleChainAcknowledged():
                self._noted_serial = message.serial
                self._tell_in_force()
            case messages.LimitAcknowledged():
                self._obey_limit(message)
            case messages.ReportJobs():
                self._report_jobs(message.ids)
            case messages.SweepJobs():
                self._report_page(message)
            case messages.JobsRejected():
                for job_id, text in message.jobs:
                    self._end_doomed(job_id, "rejected", text)
            case messages.SetDrain():
                self._ledger.directory.set_drained(is_drained=message.is_drained)
                self._is_drained = message.is_drained
                envelope.reply(messages.Done())
            case messages.RetryJob():
                self._submit(envelope, self._retry(message), retry_of=message.id)
            case messages.ListDependencies():
                envelope.reply(messages.DependenciesListed(rows=self._dependency_rows()))
            case messages.TestFilters():
                self._test_filters(envelope, message)
            case messages.Simulate():
                self._simulate(envelope, message)
            case messages.SimulationPage():
                self._simulate_page(message.token, message.after)
            case messages.LocksSimulated():
                self._answer_simulation(message)
            case messages.SimulationFailed():
                self._refuse_simulation(message)
            case messages.SimulationDone():
                self._end_simulation(message)
            case messages.ExplainJob():
                self._explain(envelope, message.id)
            case messages.PendingExplained() | messages.OwnerExplained():
                self._take_explanation(message)
            case messages.ReadLastId():
                envelope.reply(messages.LastId(last_id=self._ledger.last_id))
            case messages.ReadQueueState():
                envelope.reply(self._report())
            case messages.DiskRetried():
                self._retry_disk()
            case messages.JournalCut():
                self._note_cut(message)
            case messages.ComponentReplaced():
                self._ask_anew(message.component)
            case _:
                assert_never(message)

    def turn_ended(self) -> None:
        """One flush for everything the turn brought; then everybody is told.

        The filter evaluator and the scheduler hear of new jobs before the flush, and think while
        the disk works: what they decide is read here after it.
        """
        self._announce_new()
        self._ledger.commit()
        if self._ledger.is_far_behind:
            self._write_slice(is_urgent=True)
        elif self._ledger.is_behind:
            self._ledger.write_newest(settings.FILES_PER_TURN)
        if self._ledger.is_read_only and not self._is_disk_awaited:
            self.log.error("the disk refuses writes: the queue takes no changes")
            self._retry_disk_later()
        self.runtime.patience_seconds = self._patience_seconds()

    def quiet(self) -> None:
        """Write files of new jobs: the journal has them, and whoever submits need not wait."""
        self._write_slice()

    def _write_slice(self, *, is_urgent: bool = False) -> None:
        """Write files until the time is up, or (unless it is urgent) something has come."""
        is_behind = self._ledger.is_behind
        end = time.monotonic() + settings.FILES_SLICE_SECONDS

        def is_enough() -> bool:
            has_news = not is_urgent and self.runtime.has_news
            return has_news or time.monotonic() >= end

        count = settings.FILES_SLICE_MAX if is_behind else settings.FILES_AT_ONCE
        self._ledger.write_newest(count, is_enough)

    def _patience_seconds(self) -> float | None:
        """How long to wait for something more urgent before files are written."""
        if not self._ledger.has_unwritten or self._ledger.is_read_only:
            return None
        return 0 if self._ledger.is_behind else settings.FILES_REST_SECONDS

    # ------------------------------------------------------------ submission

    def _submit(
        self, envelope: Envelope, message: messages.SubmitJobs, retry_of: int | None = None
    ) -> None:
        key = message.key
        if key is not None and not message.dry_run and self._is_repeat(envelope, key, message.jobs):
            return
        if self._ledger.is_read_only and not message.dry_run:
            raise self._ledger.refusal()
        if self._is_drained:
            raise errors.QueueDrainedError
        first_id = self._ledger.last_id + 1
        directory = self._ledger.directory
        drafts = submitting.drafts(
            message.jobs,
            first_id=first_id,
            now=time.time(),
            key=key,
            read_input=functools.partial(directory.read_input, retry_of) if retry_of else None,
        )
        submitting.check_targets(drafts, first_id, self._is_job)
        assert self._door is not None
        rejected = self._door.rejections([draft.job for draft in drafts])
        places = [place for place in range(len(drafts)) if place not in rejected]
        accepted = [drafts[place] for place in places]
        if accepted and rejected and key is not None:
            # Whoever repeats this submission must hear of them too.
            told = {str(place): text for place, text in rejected.items()}
            accepted[0].job.extra[jobs.REJECTED_KEY] = told
        for draft in accepted if retry_of is not None else ():
            draft.job.extra[jobs.RETRY_OF_KEY] = retry_of
        digests = [] if key is None else self._mark_batch(drafts, message.jobs)
        stored = submitting.stored_forms(drafts, places)
        if message.dry_run or not accepted:
            envelope.reply(messages.JobsSubmitted(ids=[], rejected=rejected))
            return
        self._write_inputs(accepted)
        self._ledger.last_id += len(drafts)
        if key is not None:
            self._keys_in_flight[key] = InFlight(first_id, digests, [])
        rows = [row_of(draft.job, Phase.PENDING) for draft in accepted]
        inputs = [draft.job.judged_inputs for draft in accepted]
        self._arriving.extend(zip(rows, inputs, strict=True))
        new = _New(key, list(zip(rows, accepted, strict=True)), rejected)
        self._ledger.store_new(
            stored,
            functools.partial(self._submitted, envelope, new),
            functools.partial(self._not_submitted, envelope, new),
        )

    def _write_inputs(self, accepted: list[submitting.Draft]) -> None:
        """What lies beside the jobs is durable before the journal says that there are such jobs."""
        inputs = [found for draft in accepted for found in draft.inputs]
        if not inputs:
            return
        try:
            self._ledger.directory.spool.write_inputs(inputs)
        except errors.StorageError as error:
            self._ledger.refuse_writes(error)
            raise self._ledger.refusal() from error

    def _is_job(self, job_id: int) -> bool:
        if self._table.find(job_id) is not None:
            return True
        return self._ledger.directory.read_archived(job_id) is not None

    def _submitted(self, envelope: Envelope, new: _New) -> None:
        for row, draft in new.jobs:
            self._table.add(row)
            if draft.secrets:
                self._secrets[row.id] = draft.secrets
        if new.rejected:
            # The ids of rejected jobs are nowhere else, and are never given again.
            self._ledger.write_serial()
        ids = [row.id for row, _ in new.jobs]
        reply = messages.JobsSubmitted(ids=ids, rejected=new.rejected)
        envelope.reply(reply)
        for repeated in self._waiting_for(new.key):
            repeated.reply(msgspec.structs.replace(reply, is_repeat=True))
        for row, draft in new.jobs:
            if (retry_of := draft.job.extra.get(jobs.RETRY_OF_KEY)) is not None:
                self._link_retry(retry_of, row.id)
        for row, _ in new.jobs:
            self._reader.watches.changed(row)

    def _not_submitted(self, envelope: Envelope, new: _New, error: errors.GangerError) -> None:
        self._announce_new()
        gone = [(row.id, JobStatus.CANCELED) for row, _ in new.jobs]
        self.runtime.tell(FILTER_EVALUATOR, messages.JobsFinished(jobs=gone))
        for _, draft in new.jobs if any(draft.inputs for _, draft in new.jobs) else ():
            with contextlib.suppress(errors.StorageError):
                # What cannot be removed is when a daemon starts.
                self._ledger.directory.spool.remove(draft.job.id)
        envelope.refuse(error)
        for repeated in self._waiting_for(new.key):
            repeated.refuse(error)

    def _announce_new(self) -> None:
        """Tell of new jobs in the belief that the flush will go well."""
        if self._arriving:
            arriving, self._arriving = self._arriving, []
            self._announce(arriving)

    # ------------------------------------------------------------ what the others ask for

    def _report_queue(self) -> None:
        self._reports += 1
        self._moved.clear()
        pending = self._table.in_phase(Phase.PENDING)
        # Their opcodes are read when a rule must look at them, not all at once.
        arrivals = ((row, None) for row in pending)
        running = self._table.in_phase(Phase.STARTING, Phase.HANDED_OVER)
        unfinished = [row for row in running if not row.status.is_final]
        self._announce(arrivals, is_all=True, running=unfinished)

    def _report_jobs(self, ids: list[int]) -> None:
        """Send these jobs to be judged anew: pending ones, and those that hold a run slot."""
        rows = [row for job_id in ids if (row := self._table.find(job_id)) is not None]
        live = [row for row in rows if not row.status.is_final]
        pending = [self._arrived(row) for row in live if row.phase is Phase.PENDING]
        running = [self._arrived(row) for row in live if row.phase is not Phase.PENDING]
        notice = messages.JobsArrived(jobs=pending, running=running, is_repeat=True)
        self.runtime.tell(FILTER_EVALUATOR, notice)

    def _report_page(self, message: messages.SweepJobs) -> None:
        rows, has_more = self._table.pending_after(message.after, settings.SWEEP_JOBS)
        notice = messages.JobsArrived(
            jobs=[self._arrived(row) for row in rows],
            is_repeat=True,
            sweep=message.chain,
            next_after=rows[-1].id if has_more else None,
        )
        self.runtime.tell(FILTER_EVALUATOR, notice)

    def _arrived(self, row: Row) -> messages.JobToJudge:
        return self._whole(row) if self._reads_opcodes else _bare(row)

    def _change_chain(self, message: messages.RuleChainChanged) -> None:
        self._reads_opcodes = message.reads_opcodes
        self._door = RulesInForce(message.rules, message.chain)
        self._chain_serial = message.serial
        self._tell_gate_changed()
        self._tell_in_force()
        waiting, self._before_rules = self._before_rules, []
        for envelope in waiting:
            try:
                self.receive(envelope)
            except errors.GangerError as error:
                envelope.refuse(error)

    def _tell_in_force(self) -> None:
        """When the scheduler decides by these rules too, nothing goes by older ones any more.

        Told after the flush of this turn: opcodes that the older rules let start have been told so
        before, or are not recorded and have to ask again.
        """
        if self._noted_serial == self._chain_serial:
            in_force = messages.RulesInForce(serial=self._chain_serial)
            tell = functools.partial(self.runtime.tell, CONFIG_STORE, in_force)
            self._ledger.after_commit(tell, lambda _: tell())

    def _report_running(self) -> None:
        running = [
            (row.id, row.lock_file, row.process_id)
            for row in self._table.in_phase(Phase.HANDED_OVER)
            if row.lock_file is not None and row.id not in self._unended
        ]
        self.runtime.tell(EXECUTOR, messages.AdoptJobs(jobs=running))
        starting = [
            (row.id, row.needs_user_opcodes) for row in self._table.in_phase(Phase.STARTING)
        ]
        if starting:
            self.runtime.tell(EXECUTOR, messages.StartJobs(jobs=starting))

    def _report(self) -> messages.QueueReport:
        return messages.QueueReport(
            counts={**self._table.counts(), "last_id": self._ledger.last_id},
            quarantined=[*self._quarantined, *self._reader.unreadable.values()],
            flushes=self._ledger.flushes,
            is_read_only=self._ledger.is_read_only,
            is_drained=self._is_drained,
        )

    # ------------------------------------------------------------ a disk that refuses

    def _retry_disk_later(self) -> None:
        self._is_disk_awaited = True
        # What is written anew on each try must not wear out a disk that keeps failing.
        self._doubts = self._doubts + 1 if self._ledger.is_doubtful else 0
        factor = min(2 ** max(0, self._doubts - 1), settings.DISK_RETRY_FACTOR_MAX)
        self.runtime.later(settings.DISK_RETRY_SECONDS * factor, messages.DiskRetried())

    def _hear_again_later(self, message: messages.JobExited) -> None:
        self.runtime.later(settings.DISK_RETRY_SECONDS, message)

    def _retry_disk(self) -> None:
        if not self._ledger.retry():
            self._retry_disk_later()
            return
        self.log.info("the disk takes writes again")
        self._is_disk_awaited = False
        self._doubts = 0
        unended, self._unended = self._unended, []
        for job_id in unended:
            row = self._table.find(job_id)
            # One whose end was told, but not written into its file, is not done with either.
            if row is not None and not (row.phase is Phase.ENDED and row.status.is_final):
                self._take_death(row)
        self._report_queue()


def _needs_rules(message: messages.QueueMessage) -> bool:
    """Whether nothing can be said to this before the filter rules are known."""
    match message:
        case messages.RecordState():
            return message.begins is not None
        case (
            messages.SubmitJobs()
            | messages.AskGate()
            | messages.HandOverRequested()
            | messages.RetryJob()
            | messages.TestFilters()
            | messages.Simulate()
        ):
            return True
    return False


def _bare(row: Row) -> messages.JobToJudge:
    return messages.JobToJudge(job=row.as_pending(), inputs=None)
