"""Which messages may come twice, as the docstring of `actors.supervision` says.

Restarted components, jobs and clients repeat what they said. In a world with
`Character.repeat_chance`, components get such messages a second time, in the same turn or a later
one.
"""

from __future__ import annotations

from ganger.actors.ganeti import notices
from ganger.actors.runtime.mailbox import Answer
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import Message

LATE: tuple[type[Message], ...] = (
    # They carry a serial, a lock file or a peer, or only ask for something.
    messages.RecordState,
    messages.JobWaits,
    messages.JobReturns,
    messages.JobLogAppended,
    messages.AskDependencies,
    messages.AskGate,
    messages.OutputGrew,
    messages.OwnerEnded,
    messages.PeerGone,
    messages.RulesApplied,
    messages.LimitApplied,
    messages.HandOverConfirmed,
    messages.RefuseHandOver,
    messages.ReportConfiguration,
    messages.ReportChain,
    messages.ReportStatuses,
    messages.ReportAllJobs,
    messages.ReportRunning,
    messages.ReportJobs,
    messages.RecheckOwners,
    messages.ReportOwners,
    messages.WeightDue,
    messages.ReportRuleHits,
    messages.ReadRuleHits,
    messages.ListJobVersions,
    messages.ReadLastId,
    messages.StoreChanges,
    messages.AwaitSettled,
    messages.ConfigFilesWritten,
    messages.ReadQueueState,
    messages.ReadProcesses,
    messages.ReadOutput,
    messages.ReadOwner,
    messages.ReadLockTable,
    messages.AwaitLocks,
    messages.LocksAwaitedTooLong,
    messages.QuestionsAnswered,
    messages.ReadLockWaits,
    messages.SweepOwners,
    messages.ExplainOwner,
    messages.SimulateLocks,
    messages.ComponentReplaced,
    messages.DiskRetried,
    messages.AwaitJobChange,
    messages.JobWaitsDue,
    messages.GatheredDue,
    messages.WindowDue,
    messages.ForecastsDue,
    messages.RequestDue,
    messages.WatchDue,
    messages.KillDue,
    messages.StartForkServer,
    messages.FramesWaiting,
    messages.ReadPulse,
    messages.LocalSocketMissing,
    messages.StalledDue,
    messages.FreeDeadOwners,
    messages.TakeLocksOfTasks,
    messages.ReadObjects,
    messages.CountObjects,
    messages.ReadHistory,
    messages.QueryJobs,
    messages.FindJobs,
    messages.InputFlushed,
    messages.ReadPlan,
    messages.ReportOrder,
    messages.StoreEstimates,
    messages.DiskSeenFull,
    messages.LargeFilesGone,
    messages.StoreAges,
    messages.QueryLocks,
    messages.QueryConfiguration,
    messages.QueryFields,
    messages.DescribeCluster,
    messages.RunQuery,
    messages.WholeDue,
    notices.SsconfDue,
    messages.PrepareOpcode,
    messages.ResolveForecasts,
    messages.ReadOpcodeWait,
    messages.ChangesOverdue,
    notices.HostOverdue,
    notices.SweepReservations,
    messages.ReadHolders,
    messages.ListNodes,
    messages.ReadJoinedNodes,
    messages.CheckNode,
    messages.NameLocks,
    messages.ReportNodes,
    messages.MasterDue,
    messages.EndLeftTask,
    messages.ForgetTasks,
    messages.TaskEndDue,
    messages.LeftTaskDue,
    messages.SeenTasksDue,
    messages.ReadFigures,
    messages.NodesRemoved,
    messages.TaskEnded,
    messages.HubWanted,
)
"""The second copy may come any time after the first."""

IN_LINE: tuple[type[Message], ...] = (
    messages.SubmitJobs,
    messages.SubmitFromJob,
    messages.StoreInput,
    messages.RetryJob,
    messages.ListJobs,
    messages.ReadJob,
    messages.WatchJobs,
    messages.StopWatch,
    messages.SetDrain,
    messages.CancelJob,
    messages.ChangeJobPriority,
    messages.ArchiveJob,
    messages.AutoArchiveJobs,
    messages.PurgeJobs,
    messages.ReadDiskUse,
    messages.OutputDropped,
    messages.StateHeldUp,
    messages.NodeAwaited,
    messages.NodesChanged,
    messages.InviteNode,
    messages.RemoveNode,
    messages.CallNode,
    messages.TaskReplyDue,
    messages.TaskStored,
    messages.DiskLimitsChanged,
    messages.DiskWatchDue,
    messages.ExplainJob,
    messages.ListDependencies,
    messages.TestFilters,
    messages.Simulate,
    messages.ReplaceFilter,
    messages.DeleteFilter,
    messages.ListFilters,
    messages.ReadLimits,
    messages.SetLimits,
    messages.SetWatcherPause,
    messages.ChangeObjects,
    messages.SetValues,
    messages.RunOpcode,
    messages.ListLocks,
    messages.ReadInfo,
    messages.RequestLocks,
    messages.TryLocks,
    messages.TakeFreeLocks,
    messages.ReleaseLocks,
    messages.DowngradeLocks,
    messages.KeepLocks,
    messages.AttachJob,
    messages.JobHello,
    messages.JobLeft,
    messages.RulesChanged,
    messages.JobReprioritised,
    messages.JobsFinished,
    messages.ExplainPending,
    messages.JudgeTest,
    messages.JudgeSimulation,
    messages.StatusesReported,
    messages.LimitsChanged,
    messages.PolicyChanged,
    messages.OwnersChanged,
    messages.ForecastsOutdated,
    messages.RuleChainChanged,
    messages.RunSimulation,
    messages.JobsRejected,
    messages.SweepJobs,
    messages.ReportRest,
    messages.RuleChainAcknowledged,
    messages.LimitAcknowledged,
    messages.HandOverRequested,
    messages.JobExited,
    messages.StartFailed,
    messages.StartJobs,
    messages.AdoptJobs,
    messages.LeftOverEnded,
    messages.IdleProcessesDue,
    messages.ComponentReady,
    messages.ComponentFailed,
    messages.ComponentHung,
    messages.RestartDue,
    messages.StopRequested,
    messages.LocksNotWritten,
)
"""The second copy comes before anything else that the same sender says later."""

ONCE: tuple[type[Message], ...] = (
    # Requests that must not reach a second daemon (`resending.SENT_ONCE`).
    messages.StopDaemon,
    messages.CrashComponent,
    # Requests to jobs carry numbers instead, and their senders never repeat them.
    messages.DeliverToJob,
    messages.CancelAnswered,
    messages.PriorityAnswered,
    # The scheduler makes each choice once, and learns from the queue what became of it.
    messages.JobsChosen,
    # They say that jobs are pending again: nobody repeats them but as a whole, when a component was
    # replaced, and a copy that comes after the choice of these jobs would take it back.
    messages.JobsArrived,
    messages.JobsJudged,
    # Some methods of Ganeti's WConfD have another second answer, as there: a second port, or an
    # error that says that the first request was carried out.
    messages.CallMethod,
    messages.CallMethodAsOwner,
    # Results of a component's own thread, and replies on their way out.
    messages.Compacted,
    messages.SegmentMade,
    messages.WholeWritten,
    notices.SsconfWritten,
    notices.OpcodeDecided,
    notices.HostMeasured,
    messages.ReplyDue,
    messages.OwnFiguresMeasured,
    # Timers of the hub, each for one thing.
    messages.FiguresDue,
    messages.FormerListenerDue,
    # From the supervisor, or its own timer, to the keeper of a process, which starts it once.
    messages.StartComponent,
    messages.ReplaceProcess,
    messages.PulseDue,
    messages.RapiStartDue,
    messages.RapiPulseDue,
)


_AGAIN = frozenset(LATE + IN_LINE)


def may_come_again(said: object) -> bool:
    """Whether the receiver may get this item of its mailbox twice."""
    if isinstance(said, Answer):
        return True
    message = said.message if isinstance(said, Envelope) else said
    if isinstance(message, messages.SubmitJobs | messages.RetryJob):
        return message.key is not None
    return type(message) in _AGAIN


def may_be_late(said: object) -> bool:
    """Whether later messages of the same sender may overtake the second copy."""
    return isinstance(said, Envelope) and type(said.message) in LATE
