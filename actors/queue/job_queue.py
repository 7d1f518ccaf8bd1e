"""The job queue: single writer of ids, pending jobs, the journal and the queue directory.

The actor passes each message to the part that its row in `routes` names. The parts collect what a
turn brings in the `Ledger`; at the end of the turn one flush makes all of it durable, and then the
queue replies and announces.

A new message is a row in the table of its sender: `from_clients`, `from_jobs`, `from_components`.
`tests/actors/queue/test_message_routes.py` compares them with the unions of `transport/messages`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ...storage import errors
from ...storage.log.journal import Journal
from ...storage.queue_files.job_files import QueueDirectory
from ...storage.queue_files.purged_tasks import PurgedTasks
from ...transport import messages
from ...transport.envelopes import Envelope
from ..admission.admission import Admission
from ..answers.diagnosis import Diagnosis
from ..answers.estimating import Estimating
from ..runtime.addresses import CONFIG_STORE, FILTER_EVALUATOR, LOCK_MANAGER
from ..runtime.component import Component
from ..runtime.installed_answers import InstalledAnswers
from ..store import recovery
from ..store.job_rows import Phase
from ..store.job_store import JobStore
from ..store.start_gate import StartGate
from .choices import Choices
from .control import Control
from .hand_over import HandOver
from .lifecycle import Lifecycle
from .purging import Purging

MessageT = TypeVar("MessageT", bound=messages.Message)
Route = Callable[[Envelope[Any], Any], None]
Row = tuple[type[messages.Message], Route]
Routes = dict[type[messages.Message], Route]


class JobQueue(Component[messages.QueueMessage]):
    """Owns the queue."""

    name = "job_queue"

    def boot(self) -> None:
        """Load the directory, end the jobs that died, and announce the others."""
        directory = QueueDirectory(self.places)
        directory.prepare()
        journal = Journal(self.places.journal)
        host = self.runtime.host
        loaded = recovery.load(directory, journal, host.daemon_lock.path, host.note_start)
        self.store = JobStore(self.runtime, loaded.table, directory, journal)
        self.gate = StartGate(self.runtime, self.store)
        self.hand_over = HandOver(self.runtime, self.store, self.gate)
        self.choices = Choices(self.runtime, self.store, self.gate, self.hand_over)
        self.estimating = Estimating(self.runtime, self.store)
        self.lifecycle = Lifecycle(self.runtime, self.store, self.gate, self.estimating)
        self.control = Control(self.runtime, self.store, self.choices, self.lifecycle)
        purged = PurgedTasks(self.places.purged_tasks)
        self.purging = Purging(self.runtime, self.store, purged)
        self.admission = Admission(
            self.runtime,
            self.store,
            self.gate,
            self.control.link_retry,
            self.control.retries_of,
            purged_tasks=purged,
        )
        self.diagnosis = Diagnosis(
            self.runtime,
            self.store,
            self.gate,
            self.lifecycle.held_up,
            self.lifecycle.awaited_node,
            in_names=self.admission.in_names,
        )
        self.answers = InstalledAnswers(self)
        self._routes = routes(self)
        self._before_rules: list[Envelope[messages.QueueMessage]] = []
        self._before_rows: list[Envelope[messages.QueueMessage]] = []
        self._before_locks: list[Envelope[messages.QueueMessage]] = []
        self._awaits_locks = False
        self.store.begin(loaded)
        self.lifecycle.fail_dead(loaded.died)
        self.store.ledger.commit()
        self.runtime.tell(CONFIG_STORE, messages.ReportNodes())
        self.runtime.tell(FILTER_EVALUATOR, messages.ReportChain())
        self.store.announcements.whole_queue()
        if loaded.has_marked:
            self._await_locks()

    def _await_locks(self) -> None:
        """Let no job begin before the locks of tasks that a loss of power has freed are taken."""
        self._awaits_locks = True

        def failed(error: errors.GangerError) -> None:
            self.runtime.log.error("no job can begin", error=error.text)
            self._await_locks()

        def taken(_: messages.Done) -> None:
            self._awaits_locks = False
            delayed, self._before_locks = self._before_locks, []
            self._handle(delayed)

        self.runtime.ask(LOCK_MANAGER, messages.TakeLocksOfTasks(), taken, failed)

    def receive(self, envelope: Envelope[messages.QueueMessage]) -> None:
        """Pass one message to the part that handles it, when all is there that this needs."""
        message = envelope.message
        if self.gate.rules is None and _needs_rules(message):
            self._before_rules.append(envelope)
        elif self._awaits_locks and isinstance(message, messages.HandOverRequested):
            self._before_locks.append(envelope)
        elif _needs_all_rows(message) and self.store.has_unread_rows:
            self._before_rows.append(envelope)
        else:
            self._routes[type(message)](envelope, message)

    def turn_ended(self) -> None:
        """Make the whole turn durable with one flush; then the queue replies and announces.

        The filter evaluator gets new jobs before the flush, and judges them while the disk works.
        """
        self.store.ledger.lazy.hurry(self.runtime.clock())
        has_new = self.admission.has_new
        self.store.end_turn(self.admission.announce_new if has_new else None)
        self.answers.turn_ended()

    def quiet(self) -> None:
        """Write files of new jobs: the journal has them, so clients need not wait for that."""
        self.store.ledger.write_lazy()
        self.store.write_files()
        self.store.make_spares()

    def close(self) -> None:
        """Write what has no file yet, and close what is open."""
        if hasattr(self, "store"):
            self.store.close()
        if hasattr(self, "estimating"):
            self.estimating.store()

    # What concerns more than one part.

    def catch_up(self, job_id: int) -> None:
        """Take in a newer state of the job's file."""
        self.lifecycle.catch_up(job_id)

    def read_job(self, message: messages.ReadJob) -> messages.JobDocument:
        """The whole job, as new as its file."""
        row = self.store.table.find(message.id)
        if row is not None and row.phase is Phase.HANDED_OVER:
            self.lifecycle.catch_up(row.id)
        return self.store.reader.document(message.id)

    def stop_watch(self, envelope: Envelope, message: messages.StopWatch) -> None:
        """End what the client reads bit by bit."""
        self._drop_delayed(envelope.peer, message.request_id)
        self.store.reader.stop(envelope.peer, message.request_id)

    def forget_peer(self, message: messages.PeerGone) -> None:
        """End all that waits for a client that is gone."""
        self._drop_delayed(message.peer)
        self.runtime.forget_peer(message.peer)
        self.store.reader.stop_all_of(message.peer)
        self.diagnosis.forget_peer(message.peer)

    def change_chain(self, message: messages.RuleChainChanged) -> None:
        """Go by these rules, and handle the messages that came before the first ones."""
        self.gate.change_chain(message)
        delayed, self._before_rules = self._before_rules, []
        self._handle(delayed)

    def report_rest(self, message: messages.ReportRest) -> None:
        """Announce the next page, and handle what has waited for the last row to be read."""
        self.store.announcements.rest(message)
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

    def last_id(self, _: messages.ReadLastId) -> messages.LastId:
        """The newest id that was given to a job."""
        return messages.LastId(last_id=self.store.ledger.last_id)

    def report(self, _: messages.ReadQueueState) -> messages.QueueReport:
        """How the queue is, for `ganger status`."""
        store, ledger = self.store, self.store.ledger
        if ledger.takes_work:
            # As a submission does: the report says what that would find.
            ledger.look_for_space()
        return messages.QueueReport(
            counts={**store.table.counts(), "last_id": ledger.last_id},
            quarantined=[
                *store.quarantined,
                *store.unread.problems.values(),
                *store.reader.unreadable.values(),
            ],
            flushes=ledger.flushes,
            is_read_only=ledger.is_read_only,
            is_disk_full=ledger.is_short,
            lacks_room=ledger.lacks_room(),
            reserve_bytes=ledger.reserve_bytes,
            output_dropped=dict(store.output_dropped),
            archive_indexed=store.reader.search.archive.progress,
            is_drained=self.admission.is_drained,
            outcomes=store.table.outcomes(),
        )


def _needs_all_rows(message: messages.QueueMessage) -> bool:
    """Whether the answer looks at what a start has not read of each job yet."""
    match message:
        case messages.WatchJobs():
            return message.ids is None
        case messages.ListDependencies() | messages.PurgeJobs():
            return True
    return False


def _needs_rules(message: messages.QueueMessage) -> bool:
    """Whether the message has to wait until the filter rules are known."""
    match message:
        case messages.RecordState():
            return message.begins is not None
        case (
            messages.SubmitJobs()
            | messages.SubmitFromJob()
            | messages.AskGate()
            | messages.HandOverRequested()
            | messages.RetryJob()
            | messages.TestFilters()
            | messages.Simulate()
        ):
            return True
    return False


def routes(queue: JobQueue) -> Routes:
    """The method for each message that the queue accepts."""
    return {**from_clients(queue), **from_jobs(queue), **from_components(queue)}


def from_clients(queue: JobQueue) -> Routes:
    """What clients ask."""
    admission, control, diagnosis = queue.admission, queue.control, queue.diagnosis
    reader = queue.store.reader

    def retry(envelope: Envelope, message: messages.RetryJob) -> None:
        admission.submit(envelope, control.retry(message), retry_of=message.id)

    def watch(envelope: Envelope, message: messages.WatchJobs) -> None:
        queue.runtime.work(reader.watch(envelope, message), envelope)

    def find(envelope: Envelope, message: messages.FindJobs) -> None:
        do = functools.partial(queue.runtime.work, reader.search.find(envelope, message), envelope)
        admission.when_sure(message.names, do, envelope.refuse)

    def autoarchive(envelope: Envelope, message: messages.AutoArchiveJobs) -> None:
        queue.runtime.work(control.autoarchiving(envelope, message), envelope)

    def rule_hits(envelope: Envelope, _: messages.ReadRuleHits) -> None:
        diagnosis.read_rule_hits(envelope, admission.rejections)

    return dict(
        (
            _handled(messages.SubmitJobs, admission.submit),
            _handled(messages.StoreInput, admission.store_input),
            _handled(messages.RetryJob, retry),
            _handled(messages.SetDrain, admission.set_drain),
            _answered(messages.ListJobs, reader.rows),
            _handled(messages.FindJobs, find),
            _answered(messages.ListJobVersions, reader.versions),
            _answered(messages.ReadJob, queue.read_job),
            _handled(messages.QueryJobs, queue.answers.take),
            _answered(messages.ListDependencies, lambda _: reader.dependencies()),
            _handled(messages.WatchJobs, watch),
            _handled(messages.AwaitJobChange, queue.answers.take),
            _handled(messages.StopWatch, queue.stop_watch),
            _handled(messages.CancelJob, control.cancel),
            _handled(messages.ChangeJobPriority, control.change_priority),
            _handled(messages.ArchiveJob, lambda envelope, one: control.archive(envelope, one.id)),
            _handled(messages.AutoArchiveJobs, autoarchive),
            _handled(messages.PurgeJobs, queue.purging.purge),
            _handled(
                messages.ExplainJob, lambda envelope, one: diagnosis.explain(envelope, one.id)
            ),
            _handled(messages.ReadRuleHits, rule_hits),
            _handled(messages.ReadPlan, queue.estimating.read_plan),
            _handled(messages.TestFilters, diagnosis.test_filters),
            _handled(messages.Simulate, diagnosis.simulate),
        )
    )


def from_jobs(queue: JobQueue) -> Routes:
    """What the processes of jobs say."""
    control, lifecycle = queue.control, queue.lifecycle

    def submit(envelope: Envelope, message: messages.SubmitFromJob) -> None:
        row = queue.store.table.find(message.job_id)
        submitter = None if row is None else row.origin.submitter
        jobs = messages.SubmitJobs(jobs=message.jobs, key=message.key, submitter=submitter)
        queue.admission.submit(msgspec.structs.replace(envelope, message=jobs), jobs)

    return dict(
        (
            _handled(messages.RecordState, lifecycle.take_state),
            _noted(messages.JobWaits, lifecycle.note_waiting),
            _noted(messages.JobLogAppended, queue.store.reader.log_appended),
            _answered(messages.AskDependencies, lifecycle.dependencies_of),
            _handled(messages.AskGate, queue.gate.answer),
            _handled(messages.JobReturns, lifecycle.note_return),
            _noted(messages.CancelAnswered, control.pass_answer),
            _noted(messages.PriorityAnswered, control.pass_answer),
            _noted(messages.OutputDropped, queue.store.note_dropped),
            _noted(messages.StateHeldUp, lifecycle.note_held_up),
            _noted(messages.NodeAwaited, lifecycle.note_node),
            _handled(messages.SubmitFromJob, submit),
        )
    )


def from_components(queue: JobQueue) -> Routes:
    """What other components say, and what the queue and its threads say to the queue."""
    store, lifecycle, choices = queue.store, queue.lifecycle, queue.choices
    announcements = store.announcements

    def reject(message: messages.JobsRejected) -> None:
        for job_id, text in message.jobs:
            store.end_pending(job_id, "rejected", text)

    return dict(
        (
            # The scheduler and the filter evaluator.
            _noted(messages.JobsChosen, choices.take_choice),
            _noted(messages.JobsRejected, reject),
            _noted(messages.RuleChainChanged, queue.change_chain),
            _noted(messages.RuleChainAcknowledged, lambda one: queue.gate.acknowledge(one.serial)),
            _noted(messages.LimitAcknowledged, choices.obey_limit),
            _noted(messages.ReportStatuses, lambda one: store.endings.report(one.ids)),
            _noted(messages.ReportAllJobs, lambda _: announcements.whole_queue()),
            _noted(messages.ReportRest, queue.report_rest),
            _noted(messages.ReportJobs, announcements.again),
            _noted(messages.SweepJobs, announcements.page),
            # The executor.
            _handled(messages.HandOverRequested, queue.hand_over.hand_over),
            _noted(messages.StartFailed, lifecycle.fail_start),
            _noted(messages.JobExited, lifecycle.note_exit),
            _noted(messages.ReportRunning, lambda _: lifecycle.report_running()),
            # The configuration store.
            _handled(messages.StoreChanges, store.change_log.store),
            _noted(messages.NodesChanged, queue.admission.note_nodes),
            _noted(messages.ConfigFilesWritten, store.change_log.note_written),
            _handled(messages.AwaitSettled, store.change_log.await_settled),
            # The output reader.
            _noted(messages.DiskSeenFull, lambda _: store.ledger.look_for_space()),
            # Listeners and the supervisor.
            _noted(messages.PeerGone, queue.forget_peer),
            _answered(messages.ReadLastId, queue.last_id),
            _answered(messages.ReadQueueState, queue.report),
            # Alarms, and threads that have done their work.
            _handled(messages.JobWaitsDue, queue.answers.take),
            _noted(messages.GatheredDue, lambda _: store.reader.watches.send_gathered()),
            _noted(messages.StoreEstimates, lambda _: queue.estimating.store()),
            _noted(messages.LargeFilesGone, lambda _: store.note_space()),
            _noted(messages.StoreAges, lambda _: announcements.ages.store()),
            _noted(messages.DiskRetried, lambda _: store.retry_disk()),
            _noted(messages.Compacted, store.note_compacted),
            _noted(messages.SegmentMade, store.note_segment),
            _noted(messages.InputFlushed, queue.admission.note_flushed),
        )
    )


def _handled(kind: type[MessageT], method: Callable[[Envelope[Any], MessageT], None]) -> Row:
    """The method answers by itself, now or later."""
    return kind, method


def _answered(kind: type[MessageT], method: Callable[[MessageT], messages.Message]) -> Row:
    """What the method returns is the reply."""
    return kind, lambda envelope, message: envelope.reply(method(message))


def _noted(kind: type[MessageT], method: Callable[[MessageT], None]) -> Row:
    """Nobody waits for a reply."""
    return kind, lambda _, message: method(message)
