"""The job queue: single writer of ids, pending jobs, the journal and the queue directory.

The actor passes each message to the part that `routes` names. The parts collect what a turn brings
in the `Ledger`; at the end of the turn one flush makes all of it durable, and then the queue
replies and announces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import errors
from ...storage.log.journal import Journal
from ...storage.queue_files.job_files import QueueDirectory
from ...transport import messages
from ..admission.admission import Admission
from ..answers.diagnosis import Diagnosis
from ..answers.estimating import Estimating
from ..runtime.addresses import FILTER_EVALUATOR
from ..runtime.component import Component
from ..runtime.installed_answers import InstalledAnswers
from ..store import recovery
from ..store.job_store import JobStore
from ..store.start_gate import StartGate
from . import routes
from .choices import Choices
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
        host = self.runtime.host
        loaded = recovery.load(directory, journal, host.daemon_lock.path, host.note_start)
        self.store = JobStore(self.runtime, loaded.table, directory, journal)
        self.gate = StartGate(self.runtime, self.store)
        self.hand_over = HandOver(self.runtime, self.store, self.gate)
        self.choices = Choices(self.runtime, self.store, self.hand_over)
        self.estimating = Estimating(self.runtime, self.store)
        self.lifecycle = Lifecycle(self.runtime, self.store, self.gate, self.estimating)
        self.control = Control(self.runtime, self.store, self.choices, self.lifecycle)
        self.admission = Admission(self.runtime, self.store, self.gate, self.control.link_retry)
        self.diagnosis = Diagnosis(self.runtime, self.store, self.gate)
        self.answers = InstalledAnswers(self)
        self._routes = routes.routes(self)
        self._before_rules: list[Envelope[messages.QueueMessage]] = []
        self._before_rows: list[Envelope[messages.QueueMessage]] = []
        self.store.begin(loaded)
        self.lifecycle.fail_dead(loaded.died)
        self.store.ledger.commit()
        self.runtime.tell(FILTER_EVALUATOR, messages.ReportChain())
        self.store.announcements.whole_queue()

    def receive(self, envelope: Envelope[messages.QueueMessage]) -> None:
        """Pass one message to the part that handles it, when all is there that this needs."""
        message = envelope.message
        if self.gate.rules is None and _needs_rules(message):
            self._before_rules.append(envelope)
        elif self.store.has_unread_rows and _needs_all_rows(message):
            self._before_rows.append(envelope)
        else:
            self._routes[type(message)](envelope, message)

    def turn_ended(self) -> None:
        """Make the whole turn durable with one flush; then the queue replies and announces.

        The filter evaluator gets new jobs before the flush, and judges them while the disk works.
        """
        has_new = self.admission.has_new
        self.store.end_turn(self.admission.announce_new if has_new else None)
        self.answers.turn_ended()

    def quiet(self) -> None:
        """Write files of new jobs: the journal has them, so clients need not wait for that."""
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
        self.lifecycle.catch_up(message.id)
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
