"""Every message of Ganger, grouped by receiver: the first file to read.

A message is a frozen value. The same object lies in a mailbox and, packed by `frames`,
travels over a socket. A request names its reply (``Request[Reply]``); a notice has none;
a stream is a request that is answered many times, until its last part.

Names: request = verb + noun, notice = past tense, reply = noun. Identifier, sender,
deadline and trace belong to the envelope (`addresses`), not here.

Who may say what is data at the end of the file: `CLIENT_REQUESTS`, `JOB_MESSAGES`,
`RECEIVERS`.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar, get_args

import msgspec

from ..storage.jobs import JobStatus, LogEntry
from ..storage.locks import Owner

PROTOCOL = 1
"""Version of the frames; a peer that speaks another one is told so."""


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


class Message(msgspec.Struct, frozen=True, tag=_snake, tag_field="type", kw_only=True):
    """Anything that is said."""


ReplyT_co = TypeVar("ReplyT_co", bound="Message", covariant=True)


class Request(
    Message,
    Generic[ReplyT_co],
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """Something that is answered, by a ``ReplyT_co`` or a `Failure`.

    A field that is not known is refused: if it is a misspelt ``dry_run``, jobs depend on it.
    """


class Reply(Message, frozen=True, kw_only=True):
    """An answer."""


class Notice(Message, frozen=True, kw_only=True):
    """Something that is not answered."""


class Failure(Reply, frozen=True):
    """The request failed: the name of an error class of `storage.errors`, and its text."""

    error: str
    text: str


class Done(Reply, frozen=True):
    """It is done, and there is nothing more to say."""


# ---------------------------------------------------------------- values inside messages

TrailEntry = tuple[str, str, int]
"""Source, text, nanoseconds since the epoch."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job of a submission.

    ``reason`` is appended to each opcode's trail, ``priority`` set on each opcode that has
    none, ``depends`` put on the first opcode; negative ids count back within the submission
    (-1 is the job before this one).
    """

    ops: list[dict[str, Any]]
    reason: list[TrailEntry] = []
    priority: int | None = None
    depends: list[tuple[int, list[str]]] = []


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon keeps in memory of each live job."""

    id: int
    status: JobStatus
    summary: str
    priority: int
    received: float | None = None
    started: float | None = None
    ended: float | None = None
    process_id: int | None = None
    archived: bool = False
    reason: str = ""


class PendingJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler must know of a job: its order and what it waits for.

    ``depends`` holds (job id, accepted final statuses) of the next opcode; ``limits`` the ad-hoc
    rate limits that its reasons name, each with the number of jobs that may run under it.
    In a simulation a job with a run slot may be ``is_idle``: none of its opcodes runs now;
    ``is_unbegun``: none has run.
    """

    id: int
    priority: int
    depends: tuple[tuple[int, tuple[str, ...]], ...] = ()
    limits: tuple[tuple[str, int], ...] = ()
    is_idle: bool = False
    is_unbegun: bool = False


class LockRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the lock list; ``owners`` and ``pending`` name jobs (or other owners)."""

    name: str
    mode: str | None
    owners: list[str]
    pending: list[tuple[str, list[str]]]


class ComponentState(msgspec.Struct, frozen=True, kw_only=True):
    """One actor or process of the tree, as `ganger status` shows it."""

    name: str
    is_ready: bool
    restarts: int


# ---------------------------------------------------------------- to the job queue


class JobsSubmitted(Reply, frozen=True):
    """The jobs are durable. ``is_repeat``: the key was seen before; these are the first ids.

    ``rejected``: jobs of the submission that were not stored because a filter rule rejects them,
    by their places, each with the text why; ``ids`` leaves them out.
    """

    ids: list[int]
    is_repeat: bool = False
    rejected: dict[int, str] = {}


class SubmitJobs(Request[JobsSubmitted], frozen=True):
    """Store these jobs, all or none. ``dry_run`` checks everything and stores nothing.

    ``key`` makes a retry safe: a second submission under the same key stores nothing and
    answers the ids of the first, as long as not all of those jobs are archived. One that says
    something else is refused.
    """

    jobs: list[JobSpec]
    key: str | None = None
    dry_run: bool = False


class JobRows(Reply, frozen=True):
    """One page of a listing; ``next_after`` is given when there are more."""

    rows: list[JobSummary]
    next_after: int | None = None


class ListJobs(Request[JobRows], frozen=True):
    """Live jobs in id order, from the first above ``after``; ``ids`` asks for just these.

    An unknown id among ``ids`` is an `UnknownJobError`. With ``archived`` archived jobs are
    found too (by id always, in a listing only when asked for).
    """

    ids: list[int] | None = None
    statuses: list[JobStatus] | None = None
    after: int = 0
    limit: int = 1_000
    archived: bool = False


class JobDocument(Reply, frozen=True):
    """The whole job: ``body`` is the JSON of its file with the newest log lines in it.

    ``summary`` is as in a listing; clients need not know the opcodes of users, who make it.
    """

    id: int
    body: bytes
    archived: bool = False
    summary: str = ""


class ReadJob(Request[JobDocument], frozen=True):
    """The whole of one job, live or archived."""

    id: int


class OutputPage(Reply, frozen=True):
    """Stored output as it lies in the job's file (`storage.output_blocks`); ``size``: of the file.

    The last block may be cut off: it comes whole in the page that begins with it.
    """

    data: bytes
    size: int


class ReadOutput(Request[OutputPage], frozen=True):
    """A page of a job's stored output, live or archived, from the byte ``offset`` of its file on.

    With ``wait_seconds`` the answer waits for so long if there is nothing, or if the file still has
    the size ``known``. ``bytes_max`` is how much to send at most (0: a page). Of a job
    without output there is nothing.
    """

    id: int
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    bytes_max: Annotated[int, msgspec.Meta(ge=0)] = 0
    wait_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    known: int = 0


class OutputGrew(Notice, frozen=True):
    """From a job process: the file with its output has this size now."""

    job_id: int
    size: int


class JobChanged(Reply, frozen=True):
    """Part of a watch: the job's summary after a change of status (or at the start)."""

    job: JobSummary


class JobLogged(Reply, frozen=True):
    """Part of a watch: new log entries of one opcode."""

    id: int
    op_index: int
    entries: list[LogEntry]


class WatchEnded(Reply, frozen=True):
    """Last part of a watch: every job asked for is final, or the watch was stopped."""


class WatchJobs(Request[JobChanged | JobLogged | WatchEnded], frozen=True):
    """Follow jobs. The first parts tell each job as it is, the rest each change as it comes.

    ``ids`` None follows every job, for ever; otherwise the watch ends by itself when all are
    final. ``log`` asks for log entries, for each job from behind the serial in ``log_after``.
    A watch of every job first tells those that are not final, and those in ``log_after``.
    ``is_of_ends``: no status is told but the final ones.
    """

    ids: list[int] | None = None
    log: bool = False
    log_after: dict[int, int] = {}
    is_of_ends: bool = False


class StopWatch(Notice, frozen=True):
    """The watch started by this peer's request ``request_id`` is no longer wanted."""

    request_id: int


class PeerGone(Notice, frozen=True):
    """A peer cannot be reached any more: its watches end. ``peer`` is its address's key."""

    peer: bytes


class CancelOutcome(Reply, frozen=True):
    """What became of the wish to cancel, with Ganeti's text.

    ``was_canceled``: not accepted, because the job has been canceled before.
    """

    accepted: bool
    text: str
    was_canceled: bool = False


class CancelJob(Request[CancelOutcome], frozen=True):
    """Cancel a pending or waiting job; a running opcode is interrupted only by ``kill``.

    Then its command gets SIGTERM, and SIGKILL if that does not end it; a process that does
    not react at all is ended after a while.
    """

    id: int
    kill: bool = False


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that holds back job ``held``.

    ``jobs``, ``rule`` and ``lock`` name what it consists in; ``since`` is when it began, where that
    is known; ``change`` the smallest change that would remove it.
    """

    kind: Literal["dependency", "limit", "rule", "slots", "order", "lock", "disk", "process"]
    held: int
    text: str
    change: str = ""
    jobs: list[int] = []
    rule: str | None = None
    lock: str | None = None
    since: float | None = None


class JobExplained(Reply, frozen=True):
    """Why a job is not running, or that it is.

    ``obstacles`` begin with the first thing that holds it back; those of the jobs that it depends
    on follow. ``change`` is the smallest change that would let it start. ``ahead``: how many
    pending jobs are looked at before it; None if it is not pending.
    """

    id: int
    status: JobStatus
    text: str
    obstacles: list[Obstacle] = []
    change: str = ""
    priority: int = 0
    ahead: int | None = None


class SetDrain(Request[Done], frozen=True):
    """Refuse all submissions from now on, or take them again. Jobs in the queue go on."""

    is_drained: bool


class RetryJob(Request[JobsSubmitted], frozen=True):
    """Submit a new job like an ended one, from its first opcode that did not succeed on.

    ``is_whole``: from the first one on. ``ops`` replaces its opcodes, as they would be
    submitted. Each of the two jobs names the other. ``key`` makes it safe to repeat this.
    """

    id: int
    is_whole: bool = False
    ops: list[dict[str, Any]] | None = None
    key: str | None = None


class DependenciesListed(Reply, frozen=True):
    """Who waits for which job, as rows of the lock list: ``job/ID``, and who wants what of it."""

    rows: list[LockRow]


class ListDependencies(Request[DependenciesListed], frozen=True):
    """Tell which jobs are waited for."""


class ExplainJob(Request[JobExplained], frozen=True):
    """Tell why this job does not run."""

    id: int


class ArchiveOutcome(Reply, frozen=True):
    """Which jobs were archived, and how many final ones were left (time limit)."""

    archived: list[int]
    left: int = 0


class ArchiveJob(Request[ArchiveOutcome], frozen=True):
    """Move one final job to the archive."""

    id: int


class AutoArchiveJobs(Request[ArchiveOutcome], frozen=True):
    """Archive final jobs that ended more than ``age_seconds`` ago (negative: all final ones)."""

    age_seconds: float
    timeout_seconds: float = 30.0


class PriorityOutcome(Reply, frozen=True):
    """What became of the wish to change the priority, with Ganeti's text."""

    accepted: bool
    text: str


class ChangeJobPriority(Request[PriorityOutcome], frozen=True):
    """Set the priority of every opcode of the job that has not been started."""

    id: int
    priority: int


class StateRecorded(Reply, frozen=True):
    """The state is durable."""

    serial: int


class ChosenUnder(msgspec.Struct, frozen=True):
    """Under which rules a job was let through: the chain, and the limit that it took a place in.

    ``chain`` 0: nobody knows. ``limit`` names a `RATE_LIMIT` rule and its number; "": none.
    """

    chain: int = 0
    limit: str = ""


class GateAnswered(Reply, frozen=True):
    """Whether the next opcode may start; if not, ``text`` says which rule holds the job.

    A closed gate sends the job back to the queue; one that ``is_rejected`` is canceled.
    ``chain`` names the rules that decided.
    """

    is_open: bool
    text: str = ""
    is_rejected: bool = False
    chain: int = 0


class RecordState(Request[StateRecorded | GateAnswered], frozen=True):
    """From a job process: its job's whole new state, to be durable before the answer.

    ``body`` is the text of the job file; None if the process has flushed its file itself.
    ``log_serial`` is the serial of the newest log entry in it. Times are seconds. Without
    ``has_locks`` the process has never asked for any: nobody needs to free them. With
    ``is_unanswered`` nobody waits for the answer: the process is about to exit.

    With ``begins`` the state says that an opcode runs from now on. It is recorded only if the
    rules in force let the opcode start; else the answer is a `GateAnswered`, and nothing is.
    """

    job_id: int
    serial: int
    status: JobStatus
    priority: int
    log_serial: int
    started: float | None = None
    ended: float | None = None
    body: bytes | None = None
    has_locks: bool = True
    is_unanswered: bool = False
    begins: ChosenUnder | None = None


class JobWaits(Notice, frozen=True):
    """From a job process: its job waits for locks or dependencies. Needs not be durable.

    ``body`` is the text of the job file; None for a large one, which is in the file.
    """

    job_id: int
    serial: int
    body: bytes | None


class JobTold(Notice, frozen=True):
    """From a job process: new log entries of one opcode."""

    job_id: int
    op_index: int
    entries: list[LogEntry]


class AskGate(Request[GateAnswered], frozen=True):
    """From a job process: asks whether the filter rules let its next opcode start."""

    job_id: int
    chosen: ChosenUnder = ChosenUnder()


class JobReturns(Request[StateRecorded], frozen=True):
    """From a job process: the job goes back to the queue in this state, and the process leaves.

    Answered when that is durable, as `RecordState`. ``body`` is the text of the job file; None for
    a large one, which is in the file, flushed.
    """

    job_id: int
    serial: int
    body: bytes | None


class DependencyOutcome(Reply, frozen=True):
    """How the dependencies of an opcode stand; ``open``: some of the jobs are not final."""

    verdict: Literal["satisfied", "canceled", "failed", "open"]
    text: str = ""


class AskDependencies(Request[DependencyOutcome], frozen=True):
    """From a job process: asks how the dependencies of its next opcode stand."""

    job_id: int
    depends: list[tuple[int, list[str]]]


class CancelAnswered(Notice, frozen=True):
    """From a job process: its answer to `CancelRequested` number ``token``."""

    job_id: int
    token: int
    accepted: bool
    text: str


class PriorityAnswered(Notice, frozen=True):
    """From a job process: its answer to `PriorityRequested` number ``token``."""

    job_id: int
    token: int
    priority: int
    accepted: bool
    text: str


Verdict = Literal["canceled", "failed", "rejected"]
"""What becomes of a pending job that will never start."""


class JobsChosen(Notice, frozen=True):
    """From the scheduler: start ``start``; ``eligible`` wait for no other job any more.

    ``doomed`` jobs have a dependency that can no longer be satisfied, or a rule rejects them:
    each with the verdict and the text. ``report`` is the number of the queue's last report that
    the choice is based on (see `JobsArrived`), ``chain`` names the rules; ``limits`` has the
    `RATE_LIMIT` rules in which jobs of ``start`` took a place (see `ChosenUnder`). ``priorities``
    is the number of the last `JobReprioritised` that it goes by.
    """

    start: list[int]
    report: int = 0
    chain: int = 0
    limits: dict[int, str] = {}
    priorities: int = 0
    doomed: list[tuple[int, Verdict, str]] = []
    eligible: list[int] = []


class ReportStatuses(Notice, frozen=True):
    """From the scheduler: tell what is known of these jobs, named in dependencies."""

    ids: list[int]


class ReportQueue(Notice, frozen=True):
    """From a scheduler or filter evaluator that starts afresh: tell what is in the queue."""


class ReportJobs(Notice, frozen=True):
    """From the scheduler: let these jobs be judged anew, under the rules now in force."""

    ids: list[int]


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest change that would let a pending job start.

    ``depends``: these must end as required. ``rules``: filter rules to be deleted. ``ends``: of
    each group one running job must end; ``slots``: or there are so many run slots, instead of the
    ends that make one free. ``priority``: the worst priority that puts it first. ``is_turn``: no
    such change is known; it starts when those before it have had their turn.
    """

    depends: list[int] = []
    rules: list[str] = []
    ends: list[list[int]] = []
    slots: int | None = None
    priority: int | None = None
    is_turn: bool = False


class LockRemedy(msgspec.Struct, frozen=True, kw_only=True):
    """What would give a job its locks: these jobs end; ``priority``: and it has this one."""

    ends: list[int] = []
    priority: int | None = None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a pending job stands in the schedule.

    ``open``: dependencies that are not final; ``failing``: how another one has failed it already,
    so that it ends when these have. ``full``: its buckets without a place, each with its
    size, who is in it, and who waits for a place before it. ``ahead``: how many stand before it,
    and the first of them. ``holding``: the rules that hold it, one behind the other.
    """

    open: list[int] = []
    failing: str = ""
    full: list[tuple[str, int, list[int], list[int]]] = []
    action: str = "ACCEPT"
    rule: str | None = None
    ahead: int = 0
    first_ahead: list[int] = []
    running: list[int] = []
    slots: int = 0
    priority: int = 0
    best_priority: int = 0
    holding: list[str] = []
    remedy: Remedy = Remedy()


class PendingExplained(Notice, frozen=True):
    """From the scheduler: how a job stands; None: it is not pending any more."""

    token: int
    standing: Standing | None


class WantedLock(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that a job waits for: who holds it (job, mode, since when), and who is ahead."""

    name: str
    mode: str
    holders: list[tuple[int, str, float | None]] = []
    ahead: list[int] = []


class OwnerExplained(Notice, frozen=True):
    """From the lock manager: what the owner of a lock file waits for, in lock order."""

    token: int
    locks: list[WantedLock]
    remedy: LockRemedy = LockRemedy()


class SweepJobs(Notice, frozen=True):
    """From the filter evaluator: send the next pending jobs with ids above ``after``."""

    after: int
    chain: int


class JobsRejected(Notice, frozen=True):
    """From the filter evaluator: rules reject these pending jobs; each with the text why."""

    jobs: list[tuple[int, str]]


class ChainNoted(Notice, frozen=True):
    """From the scheduler: what follows was decided under the rules of this serial."""

    serial: int


class LimitNoted(Notice, frozen=True):
    """From the scheduler: what follows was decided with this number of run slots."""

    serial: int
    running_jobs_max: int


class ReportLastId(Notice, frozen=True):
    """From the configuration store: answer with a `LastIdReported`."""

    token: int


class ReportRunning(Notice, frozen=True):
    """From an executor that starts afresh: tell which jobs were handed over."""


class DiskRetried(Notice, frozen=True):
    """From the receiver's own timer: find out whether the disk takes writes again."""


class JournalCut(Notice, frozen=True):
    """From a thread of the receiver's own: old segments of the journal are gone.

    ``error`` says why the file system could not be flushed; they are there still, then.
    """

    incarnation: int
    error: str | None = None


class HandOverAsked(Notice, frozen=True):
    """From the executor: a child waits for `JobGo`; ``lock_file`` is what it locked.

    The envelope's reply address is that of the child.
    """

    job_id: int
    lock_file: str
    process_id: int


class JobExited(Notice, frozen=True):
    """From the executor: the process is gone, and its lock with it.

    ``has_left``: it said that it wrote its last state to its file. ``was_killed``: on request.
    ``exit_code`` is that of the process, below 0 the number of the signal that ended it; None if
    it is not known.
    """

    job_id: int
    lock_file: str
    has_left: bool
    was_killed: bool = False
    exit_code: int | None = None


class StartFailed(Notice, frozen=True):
    """From the executor: no process could be made for the job."""

    job_id: int
    text: str


class RuleChainChanged(Notice, frozen=True):
    """From the filter evaluator, to queue and scheduler: other rules are in force from now on.

    ``chain`` names them in verdicts; ``serial`` is that of the configuration (see
    `RulesChanged`). ``rules`` are those that may apply now or later, in no order.
    """

    chain: int
    serial: int
    reads_opcodes: bool
    rules: list[dict[str, Any]] = []


# ---------------------------------------------------------------- to the filter evaluator


class JobArrived(msgspec.Struct, frozen=True, kw_only=True):
    """A pending job as the filter evaluator sees it.

    ``inputs`` of its opcodes are None where nobody has looked at them yet: they are asked for
    when they matter (`ReportJobs`), or read from the job's file if they are ``is_in_file``.
    """

    job: PendingJob
    inputs: list[dict[str, Any]] | None
    is_in_file: bool = False


class JobsArrived(Notice, frozen=True):
    """From the job queue: these jobs are durable and wait, and these hold a run slot.

    ``is_all``: forget all others; ``report`` counts these. ``is_repeat``: nothing new, they are
    to be judged anew. ``sweep``: the answer to a `SweepJobs` for this chain; ``next_after`` is
    None at its end.
    """

    jobs: list[JobArrived]
    running: list[JobArrived] = []
    is_all: bool = False
    is_repeat: bool = False
    report: int = 0
    sweep: int | None = None
    next_after: int | None = None


class RulesChanged(Notice, frozen=True):
    """From the configuration store: all filter rules, as stored.

    ``serial`` grows with each change; it comes back in a `RulesInForce`.
    """

    rules: list[dict[str, Any]]
    serial: int = 0


class ReportChain(Notice, frozen=True):
    """From a job queue that starts afresh: tell which rules are in force."""


class ExplainPending(Notice, frozen=True):
    """From the job queue, through the filter evaluator: answer with a `PendingExplained`.

    It comes behind the job itself, judged under the rules in force. The evaluator replaces ``job``
    by the rules that hold it, one behind the other, and the verdict once they are gone.
    """

    token: int
    id: int
    job: JobArrived | None = None
    holding: list[str] = []
    then: JobVerdict | None = None


class JudgingDue(Notice, frozen=True):
    """From the evaluator itself: go on with what it has not judged to the end."""


class WindowDue(Notice, frozen=True):
    """From the evaluator's own timer: a rule may have come into force, or have expired."""


# ---------------------------------------------------------------- to the scheduler


class JobVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A job with the rule that applies to it: action and, for a limit, its number.

    ``chain``: the rule chain under which this holds; 0: it has not been judged.
    """

    job: PendingJob
    action: str = "ACCEPT"
    rule: str | None = None
    limit: int | None = None
    chain: int = 0


class JobsJudged(Notice, frozen=True):
    """From the filter evaluator: jobs with their verdicts. The other fields as above."""

    jobs: list[JobVerdict]
    running: list[JobVerdict] = []
    is_all: bool = False
    is_repeat: bool = False
    report: int = 0


class JobsFinished(Notice, frozen=True):
    """From the job queue: these jobs are final (durably), each with its status."""

    jobs: list[tuple[int, JobStatus]]


class StatusesReported(Notice, frozen=True):
    """From the job queue: the statuses asked for; None: there is no such job."""

    jobs: list[tuple[int, JobStatus | None]]


class JobReprioritised(Notice, frozen=True):
    """From the job queue, through the filter evaluator: a pending job's new priority.

    ``number`` counts these; it comes back in a `JobsChosen`.
    """

    id: int
    priority: int
    number: int = 0


class LimitsChanged(Notice, frozen=True):
    """From the configuration store: the number of run slots.

    ``serial`` grows with each change; it comes back in a `LimitInForce`.
    """

    running_jobs_max: int
    serial: int = 0


# ---------------------------------------------------------------- to the lock manager


class LocksGranted(Reply, frozen=True):
    """All locks of the request are held."""


class LocksPending(Reply, frozen=True):
    """Not yet: the request is queued behind these owners. `LocksGranted` follows."""

    blockers: list[Owner]


class RequestLocks(Request[LocksGranted | LocksPending], frozen=True):
    """Change the owner's locks, all or nothing: (lock name, shared | exclusive | release).

    Repeated while it waits, with the priority that the owner has by then.
    """

    owner: Owner
    priority: int
    changes: list[tuple[str, str]]


class ReleaseLocks(Request[Done], frozen=True):
    """Drop every lock and pending request of the owner."""

    owner: Owner


class OwnerEnded(Notice, frozen=True):
    """The process with this lock file has ended: everything it held is free."""

    lock_file: str


class OwnersDoubted(Notice, frozen=True):
    """From an executor that starts afresh: owners may have died while nobody looked."""


class ExplainOwner(Notice, frozen=True):
    """From the job queue: answer with an `OwnerExplained`."""

    token: int
    lock_file: str


class LocksListed(Reply, frozen=True):
    """Every lock that is held or wanted, in natural order."""

    rows: list[LockRow]


class ListLocks(Request[LocksListed], frozen=True):
    """Who holds which lock, and who waits."""


# ---------------------------------------------------------------- to the configuration store


class ReportConfiguration(Notice, frozen=True):
    """From a component that starts afresh: tell what of the configuration concerns it."""


class LastIdReported(Notice, frozen=True):
    """From the job queue: the last id that it has handed out."""

    token: int
    last_id: int


class RulesInForce(Notice, frozen=True):
    """From the job queue: from now on nothing happens any more under older rules."""

    serial: int


class LimitInForce(Notice, frozen=True):
    """From the job queue: no job gets a process any more beyond the run slots of this serial."""

    serial: int


class FilterStored(Reply, frozen=True):
    """The rule is stored, and in force."""

    uuid: str


class ReplaceFilter(Request[FilterStored], frozen=True, kw_only=True):
    """Store a filter rule; answered when it is in force.

    Without ``uuid`` it gets one; a rule that has the given one is replaced. The watermark is
    taken at that moment. ``reason`` is a text or a whole reason trail; times are seconds since
    the epoch.
    """

    uuid: str | None = None
    priority: Any = 0
    predicates: Any = []
    action: Any = "CONTINUE"
    reason: Any = ""
    valid_from: Any = None
    valid_until: Any = None


class RuleTest(msgspec.Struct, frozen=True, kw_only=True):
    """Which rule applies to a job now, and which would: UUID and action; None: no rule does."""

    id: int
    status: JobStatus
    now: tuple[str, str] | None
    then: tuple[str, str] | None


class FiltersTested(Reply, frozen=True):
    """One page of `TestFilters`; ``next_after`` is None on the last one."""

    rows: list[RuleTest]
    next_after: int | None = None


class TestFilters(Request[FiltersTested], frozen=True):
    """Tell which rule applies to each job that is not final, and which would, if.

    If ``rule`` (as for `ReplaceFilter`) were stored, and the rule ``without`` deleted. Nothing
    is changed.
    """

    rule: ReplaceFilter | None = None
    without: str | None = None
    after: int = 0


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A job that would not start or go on, and the first thing that would hold it back."""

    id: int
    kind: str
    text: str


class Simulated(Reply, frozen=True):
    """What would happen: ``start`` at once, in this order; ``ended`` without a process.

    ``granted``: jobs with a process that would get the locks they wait for. ``paused``: those that
    a rule would hold before their next opcode. ``counts`` has how many of the others would wait,
    by kind of obstacle; ``waiting`` the first of them, in order.
    """

    start: list[int]
    granted: list[int] = []
    paused: list[int] = []
    ended: list[tuple[int, str]] = []
    counts: dict[str, int] = {}
    waiting: list[Waiting] = []


class Simulate(Request[Simulated], frozen=True):
    """Tell what would start, wait and be rejected if all this were so. Changes nothing.

    ``rule`` and ``without`` as for `TestFilters`; ``priorities`` of pending jobs; the number of
    run slots; ``ended``: jobs that have ended, each with its status.
    """

    rule: ReplaceFilter | None = None
    without: str | None = None
    priorities: dict[int, int] = {}
    running_jobs_max: Annotated[int, msgspec.Meta(ge=1)] | None = None
    ended: dict[int, JobStatus] = {}


class JudgeTest(Notice, frozen=True):
    """From the job queue: judge these jobs under both sets of rules; the asker is answered."""

    test: TestFilters
    last_id: int
    jobs: list[JobArrived]
    statuses: list[JobStatus]
    next_after: int | None


class JudgeSimulation(Notice, frozen=True):
    """From the job queue: a page of the jobs that a simulation is about."""

    token: int
    simulation: Simulate
    last_id: int
    jobs: list[JobArrived]
    running: list[JobArrived] = []
    next_after: int | None = None


class SimulationFailed(Notice, frozen=True):
    """From the filter evaluator: the simulation cannot be had; the asker is told why."""

    token: int
    text: str


class SimulationPage(Notice, frozen=True):
    """From the filter evaluator: send the next page."""

    token: int
    after: int


class RunSimulation(Notice, frozen=True):
    """From the filter evaluator to the scheduler: every job, judged; answer the queue."""

    token: int
    simulation: Simulate
    jobs: list[JobVerdict]
    running: list[JobVerdict]


class SimulationDone(Notice, frozen=True):
    """From the scheduler: what would happen. Rules are still named by their UUIDs."""

    token: int
    outcome: Simulated


class SimulateLocks(Notice, frozen=True):
    """From the job queue: who would get locks if the owners of these lock files were gone."""

    token: int
    ended: list[str]


class LocksSimulated(Notice, frozen=True):
    """From the lock manager: jobs that would get their locks, and those that would still wait.

    ``count`` is how many would; ``waiting`` names the first of them, in line.
    """

    token: int
    granted: list[int]
    waiting: list[Waiting]
    count: int


class LimitsRead(Reply, frozen=True):
    """How many jobs may run at once; ``tracked_jobs_max`` is kept for Ganeti's tools.

    ``running_jobs_possible`` is smaller if the daemon may not open enough files for so many; only
    so many run then. None: there are enough.
    """

    running_jobs_max: int
    tracked_jobs_max: int
    running_jobs_possible: int | None = None


class ReadLimits(Request[LimitsRead], frozen=True):
    """Tell the limits of the queue."""


class SetLimits(Request[LimitsRead], frozen=True):
    """Change limits of the queue; None leaves one as it is. Jobs that run go on."""

    running_jobs_max: Annotated[int, msgspec.Meta(ge=1)] | None = None
    tracked_jobs_max: Annotated[int, msgspec.Meta(ge=1)] | None = None


class DeleteFilter(Request[Done], frozen=True):
    """Delete a filter rule; answered when it is no longer in force."""

    uuid: str


class FilterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A filter rule as stored. ``state``: whether its window is open, still to come, or over."""

    uuid: str
    watermark: int
    priority: int
    predicates: list[Any]
    action: Any
    reason_trail: list[Any]
    valid_from: float | None = None
    valid_until: float | None = None
    state: Literal["in force", "not yet", "expired"] = "in force"


class FiltersListed(Reply, frozen=True):
    """Filter rules, in the order in which they are looked at."""

    filters: list[FilterRow]


class ListFilters(Request[FiltersListed], frozen=True):
    """Tell the filter rules; None: all of them."""

    uuids: list[str] | None = None


# ---------------------------------------------------------------- to the executor


class StartJobs(Notice, frozen=True):
    """From the job queue: make a process for each of these jobs: (id, needs user opcodes)."""

    jobs: list[tuple[int, bool]]


class HandOverConfirmed(Notice, frozen=True):
    """From the job queue: the child that holds this lock file was told to go on."""

    job_id: int
    lock_file: str


class RefuseHandOver(Notice, frozen=True):
    """From the job queue: the job must not start now; the child that asked has to go."""

    job_id: int
    lock_file: str


class AdoptJobs(Notice, frozen=True):
    """From the job queue: these jobs were handed over before: (id, lock file, pid)."""

    jobs: list[tuple[int, str, int | None]]


class TellJob(Notice, frozen=True):
    """Deliver a message to a job process, over whatever channel it has now."""

    job_id: int
    message: CancelRequested | PriorityRequested | GateChanged


class RequestDue(Notice, frozen=True):
    """From the executor's own timer: ask again for a process that could not be asked for."""

    job_id: int


class WatchDue(Notice, frozen=True):
    """From the executor's own timer: look again for a process that could not be watched."""

    job_id: int
    lock_file: str


class KillDue(Notice, frozen=True):
    """From the executor's own timer: the process was asked to end, and had its time."""

    job_id: int
    lock_file: str


class StartForkServer(Notice, frozen=True):
    """From the supervisor: the fork server of this template may be started (again)."""

    template: str


class ComponentReplaced(Notice, frozen=True):
    """From the supervisor: this component lost its memory; repeat what it has not answered."""

    component: str


class JobHello(Notice, frozen=True):
    """From a child: it holds this lock file and waits for `JobGo`."""

    job_id: int
    lock_file: str
    process_id: int


class JobLeft(Notice, frozen=True):
    """From a job process: its last state is in its file; it is about to exit.

    ``has_locks`` as for `RecordState`; ``has_group``: it may have made a control group.
    """

    job_id: int
    has_locks: bool = True
    has_group: bool = True


class AttachJob(Request[Done], frozen=True):
    """From a job process, over ZeroMQ: the daemon that forked it is gone; reach it here."""

    job_id: int
    lock_file: str
    process_id: int


# ---------------------------------------------------------------- to a listener


class ReplyDue(Notice, frozen=True):
    """To a listener, within its process: send ``message`` to a peer under ``number``."""

    peer: bytes
    number: int
    message: Message


class FramesWaiting(Notice, frozen=True):
    """To a listener, within its process: read the sockets, though no descriptor says so."""


class DoorMissing(Notice, frozen=True):
    """To a listener, within its process: the file of the local door is gone; put it back."""


# ---------------------------------------------------------------- to a job process


class JobGo(Notice, frozen=True):
    """The hand-over is durable: ``body`` is the job file; from here on it is yours alone.

    An empty ``body`` stands for one too large for a frame, which is to be read from the file.
    ``queue`` is the queue directory, ``socket`` where the daemon's successor will listen,
    ``spares`` are files in the directory lent for writing new versions (`storage.inodes`),
    ``secrets`` the parameters of each opcode (by its place) that are never written, ``chosen``
    the rules under which the job was let through.
    """

    body: bytes
    spares: list[str]
    secrets: dict[int, dict[str, Any]]
    queue: str
    socket: str
    chosen: ChosenUnder = ChosenUnder()


class CancelRequested(Notice, frozen=True):
    """Somebody wants the job canceled, or killed; answer with `CancelAnswered`."""

    token: int
    kill: bool = False


class PriorityRequested(Notice, frozen=True):
    """Somebody wants another priority; answer with `PriorityAnswered`."""

    token: int
    priority: int


class GateChanged(Notice, frozen=True):
    """Other filter rules are in force: a process that waits asks the gate again."""


class ResendRequested(Notice, frozen=True):
    """A component was replaced: repeat every request that has no answer."""


# ---------------------------------------------------------------- to the supervisor


class DaemonInfo(Reply, frozen=True):
    """What the daemon says of itself; times in seconds since the epoch."""

    pid: int
    version: str
    protocol: int
    data: str
    started: float
    endpoints: list[str]
    components: list[ComponentState]
    counts: dict[str, int]
    quarantined: list[str]
    flushes: int
    memory: dict[str, int]
    is_read_only: bool = False
    is_drained: bool = False
    opcode_problems: list[str] = []


class ReadInfo(Request[DaemonInfo], frozen=True):
    """What daemon is this, and how is it."""


class StopDaemon(Request[Done], frozen=True):
    """Stop the daemon; running jobs go on."""


class CrashComponent(Request[Done], frozen=True):
    """Test hook: make a component fail. Refused unless the daemon was started with hooks."""

    component: str
    how: Literal["crash", "hang"] = "crash"


class QueueReport(Notice, frozen=True):
    """From the job queue to the supervisor, on request: what `DaemonInfo` needs."""

    token: int
    counts: dict[str, int]
    quarantined: list[str]
    flushes: int
    is_read_only: bool
    is_drained: bool = False


class ReportCounts(Notice, frozen=True):
    """From the supervisor: answer with a `QueueReport`."""

    token: int


class ExecutorReport(Notice, frozen=True):
    """From the executor to the supervisor, on request: memory in bytes by process.

    0 bytes: nobody could tell.
    """

    token: int
    pid: int
    memory: dict[str, int]


class ComponentReady(Notice, frozen=True):
    """A component has built its state and takes messages."""

    component: str
    incarnation: int


class ComponentFailed(Notice, frozen=True):
    """A component has stopped because of an error it did not expect."""

    component: str
    incarnation: int
    text: str


class ComponentHung(Notice, frozen=True):
    """From the watchdog to the supervisor: a component has been at one message for too long."""

    component: str
    incarnation: int
    text: str


class RestartDue(Notice, frozen=True):
    """From the supervisor's own timer: the component may be started again."""

    component: str


class StopAsked(Notice, frozen=True):
    """The operator wants the daemon to stop (a signal came)."""


class Boot(Notice, frozen=True):
    """First message of every component: build your state, then say that you are ready."""


# ---------------------------------------------------------------- who may say what, to whom

ClientRequest = (
    SubmitJobs
    | ListJobs
    | ReadJob
    | ReadOutput
    | WatchJobs
    | StopWatch
    | CancelJob
    | ArchiveJob
    | AutoArchiveJobs
    | ChangeJobPriority
    | ExplainJob
    | SetDrain
    | RetryJob
    | ListDependencies
    | TestFilters
    | Simulate
    | ReadLimits
    | SetLimits
    | ListLocks
    | ReplaceFilter
    | DeleteFilter
    | ListFilters
    | ReadInfo
    | StopDaemon
    | CrashComponent
)

JobMessage = (
    RecordState
    | JobWaits
    | JobTold
    | OutputGrew
    | AskDependencies
    | AskGate
    | JobReturns
    | CancelAnswered
    | PriorityAnswered
    | RequestLocks
    | ReleaseLocks
    | JobHello
    | JobLeft
    | AttachJob
)

ToJob = (
    JobGo
    | CancelRequested
    | PriorityRequested
    | GateChanged
    | ResendRequested
    | StateRecorded
    | DependencyOutcome
    | GateAnswered
    | LocksGranted
    | LocksPending
    | Done
    | Failure
)

ClientReply = (
    JobsSubmitted
    | JobRows
    | JobDocument
    | OutputPage
    | JobChanged
    | JobLogged
    | WatchEnded
    | CancelOutcome
    | ArchiveOutcome
    | PriorityOutcome
    | JobExplained
    | DependenciesListed
    | FiltersTested
    | Simulated
    | LimitsRead
    | LocksListed
    | FilterStored
    | FiltersListed
    | DaemonInfo
    | Done
    | Failure
)

CLIENT_REQUESTS: tuple[type[Message], ...] = get_args(ClientRequest)
JOB_MESSAGES: tuple[type[Message], ...] = get_args(JobMessage)

RECEIVERS: dict[type[Message], str] = {
    **dict.fromkeys(
        (
            SubmitJobs,
            ListJobs,
            ReadJob,
            WatchJobs,
            StopWatch,
            CancelJob,
            ArchiveJob,
            AutoArchiveJobs,
            ChangeJobPriority,
            ExplainJob,
            SetDrain,
            RetryJob,
            ListDependencies,
            TestFilters,
            Simulate,
            RecordState,
            JobWaits,
            JobTold,
            AskDependencies,
            AskGate,
            JobReturns,
            CancelAnswered,
            PriorityAnswered,
        ),
        "job_queue",
    ),
    **dict.fromkeys((RequestLocks, ReleaseLocks, ListLocks), "lock_manager"),
    **dict.fromkeys(
        (ReplaceFilter, DeleteFilter, ListFilters, ReadLimits, SetLimits), "config_store"
    ),
    **dict.fromkeys((ReadOutput, OutputGrew), "output_reader"),
    **dict.fromkeys((JobHello, JobLeft, AttachJob), "executor"),
    **dict.fromkeys((ReadInfo, StopDaemon, CrashComponent), "supervisor"),
}
"""Which component receives what comes in from outside the daemon."""

WAITING_REQUESTS: tuple[type[Message], ...] = (WatchJobs, RequestLocks)
"""Requests that are rightly answered late: no deadline of the door applies to them."""
