"""Which method of which part handles a message: one table for each side that speaks to the queue.

A new message is a row in the table of its sender: `from_clients`, `from_jobs`, `from_components`.
`tests/actors/queue/test_message_routes.py` compares them with the unions of `transport/messages`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ...transport import messages
from ...transport.envelopes import Envelope

if TYPE_CHECKING:
    from .job_queue import JobQueue

Route = Callable[[Envelope[Any], Any], None]
Row = tuple[type[messages.Message], Route]
Routes = dict[type[messages.Message], Route]

MessageT = TypeVar("MessageT", bound=messages.Message)


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

    def autoarchive(envelope: Envelope, message: messages.AutoArchiveJobs) -> None:
        queue.runtime.work(control.autoarchiving(envelope, message), envelope)

    def rule_hits(envelope: Envelope, _: messages.ReadRuleHits) -> None:
        diagnosis.read_rule_hits(envelope, admission.rejections)

    return dict(
        (
            _handled(messages.SubmitJobs, admission.submit),
            _handled(messages.RetryJob, retry),
            _handled(messages.SetDrain, admission.set_drain),
            _answered(messages.ListJobs, reader.rows),
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
            _handled(
                messages.ExplainJob, lambda envelope, one: diagnosis.explain(envelope, one.id)
            ),
            _handled(messages.ReadRuleHits, rule_hits),
            _handled(messages.ReadPlan, lambda envelope, _: queue.estimating.read_plan(envelope)),
            _handled(messages.TestFilters, diagnosis.test_filters),
            _handled(messages.Simulate, diagnosis.simulate),
        )
    )


def from_jobs(queue: JobQueue) -> Routes:
    """What the processes of jobs say."""
    control, lifecycle = queue.control, queue.lifecycle
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
            _noted(messages.ReportStatuses, lambda one: store.report_statuses(one.ids)),
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
            _noted(messages.ConfigFilesWritten, store.change_log.note_written),
            _handled(messages.AwaitSettled, store.change_log.await_settled),
            # Listeners and the supervisor.
            _noted(messages.PeerGone, queue.forget_peer),
            _answered(messages.ReadLastId, queue.last_id),
            _answered(messages.ReadQueueState, queue.report),
            # Alarms, and threads that have done their work.
            _handled(messages.JobWaitsDue, queue.answers.take),
            _noted(messages.GatheredDue, lambda _: store.reader.watches.send_gathered()),
            _noted(messages.StoreEstimates, lambda _: queue.estimating.store()),
            _noted(messages.StoreAges, lambda _: announcements.ages.store()),
            _noted(messages.DiskRetried, lambda _: store.retry_disk()),
            _noted(messages.Compacted, store.note_compacted),
            _noted(messages.SegmentMade, store.note_segment),
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
