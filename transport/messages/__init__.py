"""What may be said, and by whom to whom?

All messages: this is the first file to read.

A message is a frozen value. The same object lies in a mailbox and, packed by `transport.frames`,
travels over a socket. A request names its reply (``Request[Reply]``); a notice has none; a stream
is a request with many replies, until its last part.

Names: request = verb + noun, notice = past tense, reply = noun. Identifier, sender and deadline
belong to the envelope (`transport.envelopes`), not here.

Each file has the name of a receiver, and holds what that accepts, with the replies
(`installed_listener`: each listener of a package). The queue and the configuration store have one
for each side that speaks to them, the queue a further one for what clients ask about jobs that wait
(`job_queue_why_and_what_if`). `base` says what a message is, `between_hosts` what masters and nodes
say to each other. A message that several components
accept lies in `several`, a value that several files need in `values`. A new message is a class in
the file of its receiver, its name in a union below, and a ``case`` in the receiver (in the queue a
row of `actors.queue.job_queue`). Without the name or the row a test fails, without the ``case`` the
type check.
"""

from __future__ import annotations

from types import UnionType
from typing import get_args

from .authority_listener import *
from .base import *
from .between_hosts import *
from .config_store import *
from .config_store_from_jobs import *
from .executor import *
from .filter_evaluator import *
from .installed_listener import *
from .job import *
from .job_queue_from_clients import *
from .job_queue_from_components import *
from .job_queue_from_jobs import *
from .job_queue_why_and_what_if import *
from .lock_manager import *
from .node_hub import *
from .node_keeper import *
from .node_link import *
from .output_reader import *
from .rapi_keeper import *
from .scheduler import *
from .several import *
from .supervisor import *
from .values import *

# fmt: off
# ---------------------------------------------------------------- what clients may say

QueueRequest = (
    SubmitJobs | ListJobs | ReadJob | WatchJobs | StopWatch | RetryJob | SetDrain
    | CancelJob | ChangeJobPriority | ArchiveJob | AutoArchiveJobs | PurgeJobs
    | ExplainJob | ListDependencies | TestFilters | Simulate | QueryJobs | ReadPlan
    | ReadRuleHits | ListJobVersions | AwaitJobChange | FindJobs
    | StoreInput
)
ConfigRequest = (
    ReplaceFilter | DeleteFilter | ListFilters | ReadLimits | SetLimits
    | ReadObjects | CountObjects | ChangeObjects | SetValues | ReadHistory
    | QueryConfiguration | QueryFields | DescribeCluster | SetWatcherPause | CallMethod
)
SupervisorRequest = ReadInfo | StopDaemon | CrashComponent

LockRequest = ListLocks | AwaitLocks | ReadLockTable | ReadLockWaits | QueryLocks

NodesRequest = InviteNode | ListNodes | RemoveNode | ForgetTasks

ClientRequest = (
    QueueRequest | ConfigRequest | SupervisorRequest | LockRequest | ReadOutput | NodesRequest
)

ClientReply = (
    JobsSubmitted | JobRows | JobDocument | JobChanged | JobsChanged | JobLogged | WatchEnded
    | CancelOutcome | PriorityOutcome | ArchiveOutcome | PurgeOutcome
    | JobExplained | DependenciesListed | FiltersTested | Simulated | PlanRead | RuleHits
    | JobVersions | JobAwaited | JobsFound | InputStored
    | FilterStored | FiltersListed | LimitsRead | LocksListed | LockTable | LockWaits
    | ObjectsRead | ObjectsCounted | ObjectsChanged | HistoryRead | QueryAnswered
    | ClusterDescribed
    | ConfigAnswered
    | LocksTried | LocksTaken | OwnerRead | OutputPage | DaemonInfo | Done | Failure
    | NodeInvited | NodesListed | TasksForgotten
)

# ---------------------------------------------------------------- what a job process may say

QueueReportOfJob = (
    RecordState | JobWaits | JobReturns | JobLogAppended | AskDependencies | AskGate
    | CancelAnswered | PriorityAnswered | OutputDropped | StateHeldUp | NodeAwaited
    | SubmitFromJob
)
LockRequestOfJob = (
    RequestLocks | TryLocks | TakeFreeLocks | ReleaseLocks | DowngradeLocks | KeepLocks | ReadOwner
)
ExecutorReportOfJob = JobHello | JobLeft | AttachJob
ConfigRequestOfJob = (
    PrepareOpcode | NameLocks | RunOpcode | RunQuery | CallMethodAsOwner | CheckNode
)

JobMessage = (
    QueueReportOfJob | LockRequestOfJob | ExecutorReportOfJob | ConfigRequestOfJob | OutputGrew
    | CallNode | ReadJoinedNodes | ReadFigures
)

ToJob = (
    JobGo | NextJob | CancelRequested | PriorityRequested | GateChanged | ResendRequested
    | StateRecorded | GateAnswered | DependencyOutcome | LocksGranted | LocksPending
    | LocksTried | LocksTaken | OwnerRead
    | OpcodePrepared | OpcodeRan | QueryAnswered | ConfigAnswered
    | TaskAnswered | NodeSilent | JoinedNodes | FiguresRead | JobsSubmitted
    | Done | Failure
)

# ---------------------------------------------------------------- between the hub and a node

NodeRequest = JoinCluster | GreetMaster | RotateKey
FromNode = NodeRequest | TaskAnswered | LeftTaskEnded | FiguresMeasured | Failure
ToNode = CallTask | EndTask | MeasureFigures | NodeGreeted | Failure

FromMasterToHost = NodeGreeted | Failure
"""What a host hears that joins."""

TaskRequest = RunTask | StoreInput | AwaitTask | ReadOutput | CancelJob
"""What a job's process may ask of the daemon of a node: its task is a job there."""

TaskReply = (
    JobsSubmitted | InputStored | JobDocument | OutputPage | CancelOutcome | Failure
)

# ---------------------------------------------------------------- what each component accepts
# The names above come from outside. All others are said by components.

ConfigMessage = (
    ConfigRequest | ConfigRequestOfJob
    | ReportConfiguration | RulesApplied | LimitApplied | ComponentReplaced
    | ResolveForecasts | ReportNodes
    | WholeDue | WholeWritten | PartNotice | ChangesOverdue
    | LocksNotWritten
    | ReadOpcodeWait
)
LockMessage = (
    LockRequest | LockRequestOfJob | LocksAwaitedTooLong | QuestionsAnswered | FreeDeadOwners
    | OwnerEnded | RecheckOwners | ReportOwners | SweepOwners | ExplainOwner | SimulateLocks
    | ReadHolders | DiskRetried | TakeLocksOfTasks
)
FilterMessage = (
    RulesChanged | JobsArrived | JobReprioritised | JobsFinished | ReportChain | ExplainPending
    | JudgeTest | JudgeSimulation | WindowDue | ReportOrder | ForecastsOutdated | ForecastsDue
)
SchedulerMessage = (
    JobsJudged | JobsFinished | JobReprioritised | StatusesReported | LimitsChanged
    | PolicyChanged | ForecastsOutdated | RuleChainChanged | OwnersChanged | WeightDue
    | ExplainPending | RunSimulation | ReportOrder | ReportRuleHits
)
QueueMessage = (
    QueueRequest | QueueReportOfJob
    | JobsChosen | JobsRejected | ReportStatuses | ReportAllJobs | ReportRunning | ReportJobs
    | ReportRest | ReadLastId | ReadQueueState | SweepJobs
    | RuleChainChanged | RuleChainAcknowledged | LimitAcknowledged | HandOverRequested
    | JobExited | StartFailed | PeerGone | DiskRetried | Compacted | SegmentMade
    | StoreEstimates | StoreAges | DiskSeenFull | LargeFilesGone | JobWaitsDue | GatheredDue
    | StoreChanges | ConfigFilesWritten | AwaitSettled | InputFlushed
    | NodesChanged
)
ReaderMessage = ReadOutput | OutputGrew | ReadDiskUse | DiskLimitsChanged | DiskWatchDue
ExecutorMessage = (
    ExecutorReportOfJob
    | StartJobs | AdoptJobs | HandOverConfirmed | RefuseHandOver | DeliverToJob
    | StartForkServer | ReadProcesses | ComponentReplaced
    | RequestDue | WatchDue | KillDue | LeftTaskDue | LeftOverEnded | IdleProcessesDue
)
InstalledListenerMessage = StalledDue | LocalSocketMissing
ListenerMessage = ReplyDue | FramesWaiting | LocalSocketMissing | ComponentReplaced
AuthorityMessage = (
    StartComponent | ReplaceProcess | PulseDue | FramesWaiting | ComponentReplaced
)
NodeHubMessage = (
    NodesRequest | CallNode | ReadJoinedNodes | EndLeftTask | ReadFigures | FiguresDue
    | NodesRemoved | SeenTasksDue | FormerListenerDue | PeerGone | FramesWaiting
)
NodeKeeperMessage = HubWanted | PulseDue | FramesWaiting | ReplaceProcess | ComponentReplaced
NodeLinkMessage = (
    TaskStored | TaskEnded | TaskReplyDue | TaskEndDue | OwnFiguresMeasured | MasterDue
    | FramesWaiting | ComponentReplaced
)
AuthorityListenerMessage = (
    StartComponent | ReadPulse | ReplyDue | FramesWaiting | LocalSocketMissing | ComponentReplaced
)
RapiKeeperMessage = RapiStartDue | RapiPulseDue
SupervisorMessage = (
    SupervisorRequest
    | ComponentReady | ComponentFailed | ComponentHung
    | RestartDue | StopRequested
)

# ---------------------------------------------------------------- what components answer each other

ComponentReply = (
    LastId | QueueReport | ExecutorReport | DiskUseRead
    | PendingExplained | OwnerExplained | SimulationJudged | LocksSimulated | LockHolders
    | OrderReported
    | OpcodeWait | ForecastsResolved | ChangesStored
    | TasksEnded | TaskEndAwaited
)
# fmt: on

ACCEPTED: dict[str, UnionType] = {
    "config_store": ConfigMessage,
    "lock_manager": LockMessage,
    "filter_evaluator": FilterMessage,
    "scheduler": SchedulerMessage,
    "job_queue": QueueMessage,
    "output_reader": ReaderMessage,
    "executor": ExecutorMessage,
    "node_hub": NodeHubMessage,
    "node_keeper": NodeKeeperMessage,
    "node_link": NodeLinkMessage,
    "authority": AuthorityMessage,
    "authority_listener": AuthorityListenerMessage,
    "rapi_keeper": RapiKeeperMessage,
    "installed_listener": InstalledListenerMessage,
    "wire_listener": ListenerMessage,
    "supervisor": SupervisorMessage,
}
"""What each component accepts, besides `Boot`; ``installed_listener``: each one of a package."""

JOB_MESSAGES: tuple[type[Message], ...] = get_args(JobMessage)

OWNER_REQUESTS = get_args(LockRequestOfJob | CallMethodAsOwner)
"""What a client may say as an owner of locks and reservations."""

_FROM_OUTSIDE = get_args(ClientRequest | JobMessage)

SIGNED = tuple(kind for kind in _FROM_OUTSIDE if "sender" in kind.__struct_fields__)
"""Requests with a ``sender``: the door fills in who asks, whatever the client says."""

SUBMITTED = tuple(kind for kind in _FROM_OUTSIDE if "submitter" in kind.__struct_fields__)
"""Requests with a ``submitter``: the door fills in which user asks."""

REVEALING = tuple(kind for kind in _FROM_OUTSIDE if "reveals" in kind.__struct_fields__)
"""Requests whose replies have secrets, if their door allows it."""

RECEIVERS: dict[type[Message], str] = {
    kind: component
    for component, accepted in ACCEPTED.items()
    for kind in get_args(accepted)
    if kind in _FROM_OUTSIDE
}
"""Which component receives what comes in from outside the daemon."""
