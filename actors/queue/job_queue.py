"""The job queue: single writer of ids, pending jobs, the journal and the queue directory.

The actor is a table from messages to the parts of the queue. The parts collect what a turn brings
in the `Ledger`; at the end of the turn one flush makes all of it durable, and then the queue
replies and announces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from ...storage import errors
from ...storage.log.journal import Journal
from ...storage.queue_files.job_files import QueueDirectory
from ...transport import messages
from ..admission.admission import Admission
from ..answers.change_waits import ChangeWaits
from ..answers.diagnosis import Diagnosis
from ..answers.estimating import Estimating
from ..answers.job_queries import JobQueries
from ..runtime.addresses import FILTER_EVALUATOR, JOB_QUEUE
from ..runtime.component import Component
from ..store import recovery, remembering
from ..store.job_store import JobStore
from ..store.start_gate import StartGate
from .control import Control
from .hand_over import HandOver
from .lifecycle import Lifecycle

if TYPE_CHECKING:
    from ...transport.envelopes import Envelope


class JobQueue(Component[messages.QueueMessage]):
    """Owns the queue."""

    name = "job_queue"

    def boot(self) -> None:
        """Load the directory, end the jobs that died, and announce the others."""
        directory = QueueDirectory(self.places)
        directory.prepare()
        journal = Journal(self.places.journal)
        files = remembering.files_of(self.places)
        host = self.runtime.host
        loaded = recovery.load(directory, journal, host.daemon_lock.path, files, host.note_start)
        self.store = JobStore(self.runtime, loaded.table, directory, journal, files)
        self.gate = StartGate(self.runtime, self.store)
        self.hand_over = HandOver(self.runtime, self.store, self.gate)
        self.estimating = Estimating(self.runtime, self.store)
        self.lifecycle = Lifecycle(self.runtime, self.store, self.gate, self.estimating)
        self.control = Control(self.runtime, self.store, self.hand_over, self.lifecycle)
        self.admission = Admission(self.store, self.gate, self.control.link_retry)
        self.diagnosis = Diagnosis(self.runtime, self.store, self.gate)
        self.queries = JobQueries(self.runtime, self.store, self.lifecycle.catch_up)
        self.waits = ChangeWaits(self.runtime, self.store, self.queries)
        self._before_rules: list[Envelope[messages.QueueMessage]] = []
        self._before_rows: list[Envelope[messages.QueueMessage]] = []
        self.store.begin(loaded)
        self.lifecycle.fail_dead(loaded.died)
        self.store.ledger.commit()
        self.runtime.tell(FILTER_EVALUATOR, messages.ReportChain())
        self.store.announcements.whole_queue()

    def receive(self, envelope: Envelope[messages.QueueMessage]) -> None:  # noqa: C901, PLR0912, PLR0915 - a table
        """Pass one message to the part that handles it."""
        message = envelope.message
        match message:
            case _ if self.gate.rules is None and _needs_rules(message):
                self._before_rules.append(envelope)
            case _ if self.store.has_unread_rows and _needs_all_rows(message):
                self._before_rows.append(envelope)
            case messages.SubmitJobs():
                self.admission.submit(envelope, message)
            case messages.RetryJob():
                repeated = self.control.retry(message)
                self.admission.submit(envelope, repeated, retry_of=message.id)
            case messages.SetDrain():
                self.admission.set_drain(envelope, is_drained=message.is_drained)
            case messages.ListJobs():
                envelope.reply(self.store.reader.rows(message))
            case messages.ListJobVersions():
                envelope.reply(self.store.reader.versions(message))
            case messages.ReadJob():
                self.lifecycle.catch_up(message.id)
                envelope.reply(self.store.reader.document(message.id))
            case messages.QueryJobs():
                envelope.reply(self.queries.page(message))
            case messages.ListDependencies():
                envelope.reply(self.store.reader.dependencies())
            case messages.WatchJobs():
                self.admission.take_turns(envelope, self.store.reader.watch(envelope, message))
            case messages.AwaitJobChange():
                self.waits.open(envelope, message)
            case messages.JobWaitsDue():
                self.waits.ring()
            case messages.GatheredDue():
                self.store.reader.watches.send_gathered()
            case messages.StopWatch():
                self._drop_delayed(envelope.peer, message.request_id)
                self.store.reader.stop(envelope.peer, message.request_id)
            case messages.PeerGone():
                self._drop_delayed(message.peer)
                self.store.reader.stop_all_of(message.peer)
                self.diagnosis.forget_peer(message.peer)
            case messages.CancelJob():
                self.control.cancel(envelope, message)
            case messages.ChangeJobPriority():
                self.control.change_priority(envelope, message)
            case messages.CancelAnswered() | messages.PriorityAnswered():
                self.control.pass_answer(message)
            case messages.ArchiveJob():
                self.control.archive(envelope, message.id)
            case messages.AutoArchiveJobs():
                self.admission.take_turns(envelope, self.control.autoarchiving(envelope, message))
            case messages.JobsChosen():
                self.hand_over.take_choice(message)
            case messages.HandOverRequested():
                self.hand_over.hand_over(envelope, message)
            case messages.LimitAcknowledged():
                self.hand_over.obey_limit(message)
            case messages.StartFailed():
                self.lifecycle.fail_start(message)
            case messages.RecordState():
                self.lifecycle.take_state(envelope, message)
            case messages.JobWaits():
                self.lifecycle.note_waiting(message)
            case messages.JobLogAppended():
                self.store.reader.log_appended(message)
            case messages.AskDependencies():
                envelope.reply(self.lifecycle.dependencies_of(message))
            case messages.JobReturns():
                self.lifecycle.note_return(envelope, message)
            case messages.JobExited():
                self.lifecycle.note_exit(message)
            case messages.ReportRunning():
                self.lifecycle.report_running()
            case messages.AskGate():
                self.gate.answer(envelope, message)
            case messages.RuleChainChanged():
                self.gate.change_chain(message)
                self._handle_delayed()
            case messages.RuleChainAcknowledged():
                self.gate.acknowledge(message.serial)
            case messages.JobsRejected():
                for job_id, text in message.jobs:
                    self.store.end_pending(job_id, "rejected", text)
            case messages.ReportStatuses():
                self.store.report_statuses(message.ids)
            case messages.ReportAllJobs():
                self.store.announcements.whole_queue()
            case messages.ReportRest():
                self.store.announcements.rest(message)
                self._handle_those_of_all_rows()
            case messages.ReportJobs():
                self.store.announcements.again(message.ids)
            case messages.SweepJobs():
                self.store.announcements.page(message)
            case messages.ExplainJob():
                self.diagnosis.explain(envelope, message.id)
            case messages.ReadRuleHits():
                self.diagnosis.read_rule_hits(envelope, self.admission.rejections)
            case messages.ReadPlan():
                self.estimating.read_plan(envelope)
            case messages.StoreEstimates():
                self.estimating.store()
            case messages.StoreAges():
                self.store.announcements.ages.store()
            case messages.TestFilters():
                self.diagnosis.test_filters(envelope, message)
            case messages.Simulate():
                self.diagnosis.simulate(envelope, message)
            case messages.ReadLastId():
                envelope.reply(messages.LastId(last_id=self.store.ledger.last_id))
            case messages.ReadQueueState():
                envelope.reply(self._report())
            case messages.DiskRetried():
                self.store.retry_disk()
            case messages.SubmissionsDue():
                self.admission.work_on()
            case messages.JournalCut():
                self.store.note_cut(message)
            case messages.FilesWritten():
                self.store.note_files(message)
            case messages.FilesLookedAt():
                self.store.note_look(message)
            case messages.SegmentMade():
                self.store.note_segment(message)
            case _:
                assert_never(message)

    def turn_ended(self) -> None:
        """Make the whole turn durable with one flush; then the queue replies and announces.

        The filter evaluator gets new jobs before the flush, and judges them while the disk works.
        """
        has_new = self.admission.has_new
        self.store.end_turn(self.admission.announce_new if has_new else None)
        self.waits.turn_ended()
        if self.admission.has_work():
            # In the next turn: the components beside this one come first.
            self.runtime.tell(JOB_QUEUE, messages.SubmissionsDue())

    def quiet(self) -> None:
        """Write files of new jobs: the journal has them, so clients need not wait for that."""
        self.store.write_files()
        self.store.make_spares()
        self.store.remember()

    def close(self) -> None:
        """Write what has no file yet, and close what is open."""
        if hasattr(self, "store"):
            self.store.close()
        if hasattr(self, "estimating"):
            self.estimating.store()

    def _handle_delayed(self) -> None:
        """Handle the messages that came before the rules."""
        delayed, self._before_rules = self._before_rules, []
        self._handle(delayed)

    def _handle_those_of_all_rows(self) -> None:
        """Handle the messages that came before all rows had been read, if they are now."""
        if self._before_rows and not self.store.has_unread_rows:
            delayed, self._before_rows = self._before_rows, []
            self._handle(delayed)

    def _drop_delayed(self, peer: bytes, number: int | None = None) -> None:
        """Forget what the peer has asked of all rows, or this request alone."""
        self._before_rows = [
            one for one in self._before_rows if one.peer != peer or number not in {None, one.number}
        ]

    def _handle(self, delayed: list[Envelope[messages.QueueMessage]]) -> None:
        for envelope in delayed:
            try:
                self.receive(envelope)
            except errors.GangerError as error:
                envelope.refuse(error)

    def _report(self) -> messages.QueueReport:
        store, ledger = self.store, self.store.ledger
        return messages.QueueReport(
            counts={**store.table.counts(), "last_id": ledger.last_id},
            quarantined=[
                *store.quarantined,
                *store.unread.problems.values(),
                *store.reader.unreadable.values(),
            ],
            flushes=ledger.flushes,
            is_read_only=ledger.is_read_only,
            is_drained=self.admission.is_drained,
        )


def _needs_all_rows(message: messages.QueueMessage) -> bool:
    """Whether the answer looks at what a start has not read of each job yet."""
    match message:
        case messages.WatchJobs():
            return message.ids is None
        case messages.ListDependencies():
            return True
    return False


def _needs_rules(message: messages.QueueMessage) -> bool:
    """Whether the message has to wait until the filter rules are known."""
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
