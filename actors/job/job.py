"""`JobActor`: one per running job, on the main thread of the job's own process.

From the hand-over to the final status it alone writes the job's file. It runs the opcodes
one after the other: dependencies, locks (status ``waiting``), ``running`` made durable
before the operation starts. A result becomes durable with the next ``running``, or with the
final status; nobody is told of it before.

It consists of parts: `Conversation` (requests, replies, messages), `OpcodeGate` (may the next
opcode start?), `JobLog`, `StateRecorder` (durable states) and `JobContext` (what operations may
use).

It is an actor without pykka: its mailbox is the link to the daemon, drained on the main
thread while it waits, because a thread and the libraries for one would cost more than a
short job (docs/decisions/job-actor-without-pykka.md).
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable
from typing import Any, assert_never

import msgspec

from ...storage import errors, opcodes, settings
from ...storage.alive import lock_files
from ...storage.disk import reserve
from ...storage.jobs import job_bounds, job_ends, jobs, origins, outcomes
from ...storage.jobs.jobs import JobStatus, OpcodeEvent
from ...storage.jobs.outcomes import Ending, Outcome
from ...storage.locks.locks import Owner
from ...storage.opcodes import catalogue
from ...storage.queue_files import job_files
from ...transport import messages
from ...transport.messages import Message, Request
from ..operations import commands, registry
from ..processes import control_groups, descendants
from .conversation import RETRY_SECONDS, Conversation
from .daemon_link import DaemonLink
from .gate import JobRejectedError, OpcodeGate, ReturnedError
from .job_context import JobContext
from .job_log import JobLog
from .running_job import RunningJob, now
from .state_file import StateFile
from .state_recorder import StateRecorder
from .store_operations import StoreOperations

_OWN_ENTRY_BYTES_MAX = 4 * 1024


class CanceledError(Exception):
    """The job was canceled while its opcode waited."""


class JobActor:
    """Runs one job. ``owner`` is its name for locks, ``go`` what came with the hand-over.

    When the job has ended well, ``give_up`` makes the process free for another one; it returns why
    that cannot be, if so. None: the process ends.
    """

    def __init__(
        self,
        job: jobs.Job,
        link: DaemonLink,
        owner: Owner,
        go: messages.JobGo,
        give_up: Callable[[], str | None] | None = None,
    ) -> None:
        self._give_up = give_up
        self._running = RunningJob(job, owner)
        self._job = job
        self._daemon = Conversation(link, self._receive, self._introduce)
        path = job_files.path(go.queue, job.id)
        self._file = StateFile(path, go.spares, self._wait_for_disk)
        self._secrets = go.secrets
        self._gate = OpcodeGate(self._running, go.chosen, self._daemon, go.queue)
        self._log = JobLog(self._running, len(go.body), self._daemon, self._file)
        self._recorder = StateRecorder(
            self._running, self._daemon, self._file, self._gate, self._log
        )
        self.context = JobContext(self._running, self._daemon, self._log, go.queue)
        """What operations may use."""
        self._store = StoreOperations(self._running, self._daemon, self._await)
        self._is_canceled = False
        self._is_to_be_killed = False
        self._has_locks = False
        """It holds locks or waits for some."""
        self._is_in_line = False
        self._has_group = False
        self._is_returned = False

    # ------------------------------------------------------------ the opcodes

    def run(self) -> bool:
        """Run every opcode that is not final, then send `JobLeft`.

        Returns whether the process has left the job, and is free for another one.
        """
        for index, op in enumerate(self._job.ops):
            if op.status.is_final:
                continue
            self._running.index = index
            if not self._run_opcode(op):
                break
        if not self._is_returned:
            self._note_kill()
            self._recorder.record()
        if self._file.is_stale:
            return False
        self.context.close_output()
        give_up = self._give_up if self._give_up is not None and self._has_ended_well else None
        unclean = None if give_up is None else give_up()
        is_free = give_up is not None and unclean is None
        left = messages.JobLeft(
            job_id=self._job.id,
            has_locks=self._running.asked_for_locks,
            has_group=self._has_group or control_groups.has_entered(),
            is_free=is_free,
            unclean=unclean or "",
        )
        return self._daemon.tell(left) and is_free

    def _note_kill(self) -> None:
        """A job that was to be killed, and has not succeeded, was killed, however it ended."""
        found = outcomes.killed(self._job) if self._is_to_be_killed else None
        if found is not None and found.outcome is Outcome.KILLED:
            outcomes.note(self._job, found)

    @property
    def _has_ended_well(self) -> bool:
        is_unquestioned = not (self._is_canceled or self._is_returned or self._file.is_only_copy)
        has_succeeded = all(op.status is JobStatus.SUCCESS for op in self._job.ops)
        return has_succeeded and is_unquestioned and self._daemon.is_settled

    def close(self) -> None:
        """Let go of all parts: they refer to each other, and no collector runs in this process."""
        self.context.close()
        vars(self).clear()

    def _run_opcode(self, op: jobs.OpcodeEntry) -> bool:
        """Run one opcode; False if the job has ended with it."""
        try:
            opcode = self._prepare(op)
        except CanceledError:
            self._cancel_rest()
            return False
        except JobRejectedError as rejected:
            text = job_bounds.end_text(str(rejected), len(self._job.ops))
            outcomes.note(self._job, Ending(Outcome.REJECTED, str(rejected)))
            job_ends.cancel_pending(self._job, now(), source=jobs.FILTER_SOURCE, text=text)
            return False
        except ReturnedError as returned:
            self._return(op, str(returned))
            return False
        except Exception as error:  # noqa: BLE001 - whatever it is, the job must end with it
            self._fail(error)
            return False
        try:
            result = self._fitting(opcode, self._operate(opcode))
        except Exception as error:  # noqa: BLE001 - likewise
            self._fail(error)
            return False
        is_last = self._running.index == len(self._job.ops) - 1
        if not is_last:
            # Until the next one runs the file takes no log.
            self._log.write()
        op.apply(OpcodeEvent.SUCCEED)
        op.result = result
        op.end_timestamp = now()
        if is_last:
            self._job.end_timestamp = op.end_timestamp
        return not is_last

    def _operate(self, opcode: opcodes.Opcode) -> object:
        # Only the built-in operations are sure to support dry runs.
        if opcode.dry_run and not opcode.built_in:
            return None
        if opcode.runs_in_store:
            result = self._store.run(self.context)
            if not opcode.asked_by:
                return result
        if opcode.asked_by:
            asking = importlib.import_module(opcode.asked_by)
            return asking.run(opcode, self.context, self._daemon, self._await)
        self.context.begin_output(getattr(opcode, "output_limit", None))
        follows = descendants.is_followed(opcode)
        if follows is not None:
            descendants.follow(is_wanted=follows)
            self._choose_group(is_own=follows)
        try:
            return registry.operation_for(opcode)(opcode, self.context)
        finally:
            self.context.end_output()
            # Before the end is recorded: what it started must not run under the next locks.
            if follows and (count := descendants.end_all(self.context)):
                self.context.log(f"Ended processes that it left behind: {count}")

    def _fitting(self, opcode: opcodes.Opcode, result: object) -> object:
        """The result if the job has room for it; `OperationError` if it has not."""
        if result is None or self._log.budget.takes_result(result):
            return result
        if isinstance(opcode, catalogue.OpExec) and isinstance(result, dict):
            # The exit code and the sizes always fit.
            return commands.without_tails(result)
        size = len(msgspec.json.encode(result))
        text = (
            f"{opcode.op_id}: the result has {size} bytes as JSON, "
            f"and this job has room for {self._log.budget.result_bytes}"
        )
        raise opcodes.OperationError("OpResultError", text)

    def _choose_group(self, *, is_own: bool) -> None:
        """Enter the job's own control group, or leave it so that new processes outlive the job."""
        identity = lock_files.identity_of(self._running.owner.lock_file)
        if not is_own:
            control_groups.leave()
        elif identity is not None:
            self._has_group = True
            control_groups.enter(identity)

    def _prepare(self, op: jobs.OpcodeEntry) -> opcodes.Opcode:
        """Do everything that must come before the operation: dependencies, locks, ``running``."""
        op.start_timestamp = now()
        if self._job.start_timestamp is None:
            self._job.start_timestamp = op.start_timestamp
        self._daemon.take_messages()
        self._stop_if_canceled()
        index = self._running.index
        opcode = opcodes.parse(self._with_secrets(op.input))
        if self._has_locks:
            self._release_locks()
        if index > 0 and (depends := opcodes.dependencies(op.input)):
            self._check_dependencies(depends)
        needs = self._needs(opcode)
        op.input.update(opcode.filled_in(needs))
        self._running.locks = [(name, str(mode)) for name, mode in needs.to_changes()]
        if self._running.locks:
            if index > 0:
                self._gate.ask()
            self._acquire(op, self._running.locks)
        self._stop_if_canceled()
        self._begin(op)
        return opcode

    def _needs(self, opcode: opcodes.Opcode) -> opcodes.LockNeeds:
        """The locks that the opcode needs."""
        if opcode.asks_store_for_locks():
            return self._store.prepare()
        needs = opcode.lock_needs()
        # The queue has looked up what our own opcodes name.
        return needs if opcode.built_in else self._store.named(needs)

    def _begin(self, op: jobs.OpcodeEntry) -> None:
        """Record that the opcode runs, unless the rules in force do not let it start.

        Cancellations and priorities that come meanwhile wait until the start is decided.
        """
        before = op.status
        op.apply(OpcodeEvent.START)
        op.exec_timestamp = now()
        self._daemon.postpone_control()
        try:
            self._recorder.record(begins=True)
        except (ReturnedError, JobRejectedError):
            op.status, op.exec_timestamp = before, None
            raise
        finally:
            self._daemon.resume_control()
        if self._running.index == 0:
            origin = origins.origin_of(self._job.extra)
            if origin.is_task and origin.submitter is not None:
                self.context.note_task_begun(origin.submitter.era)
        self._daemon.take_messages()

    def _with_secrets(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The opcode's parameters with its secrets, which are in no file."""
        fields = fields | self._secrets.get(self._running.index, {})
        if opcodes.secret_fields(fields) and opcodes.lost_secret(fields) is not None:
            text = "its secret parameters were lost with the daemon that had them; submit it again"
            raise opcodes.OperationError("OpPrereqError", text)
        return fields

    def _fail(self, error: Exception) -> None:
        result = job_bounds.error_result(registry.encode_exception(error))
        job_ends.fail_from(self._job, self._running.index, now(), result)

    def _cancel_rest(self) -> None:
        job_ends.cancel_from(self._job, self._running.index, now())

    def _check_dependencies(self, depends: list[tuple[int, tuple[str, ...]]]) -> None:
        """Return the job to the queue if this opcode must wait for other jobs."""
        plain = [(job_id, list(statuses)) for job_id, statuses in depends]
        outcome = self._ask(messages.AskDependencies(job_id=self._job.id, depends=plain))
        assert isinstance(outcome, messages.DependencyOutcome)
        if outcome.ending is not None:
            outcomes.note(self._job, outcome.ending)
        match outcome.verdict:
            case "open":
                raise ReturnedError("it waits for other jobs")
            case "canceled":
                raise CanceledError
            case "failed":
                raise opcodes.OperationError("OpExecError", outcome.text)
            case "satisfied":
                return
            case _:
                assert_never(outcome.verdict)

    def _return(self, op: jobs.OpcodeEntry, reason: str) -> None:
        """Give the job back to the queue, durably and for good, before the process leaves."""
        if self._has_locks:
            with contextlib.suppress(CanceledError):
                self._release_locks()
        self._daemon.take_messages()
        if self._is_canceled:
            self._cancel_rest()
            return
        self._is_returned = True
        text = f"Back to the queue before opcode {self._running.index + 1}: {reason}"
        logged = self._log.add([job_bounds.cut(text, _OWN_ENTRY_BYTES_MAX)], is_own=True)
        op.apply(OpcodeEvent.RETURN)
        op.start_timestamp = None
        if not self._job.has_begun:
            self._job.start_timestamp = None
        self._job.livelock = self._job.process_id = None
        self._recorder.give_back(logged)

    # ------------------------------------------------------------ locks and replies

    def _acquire(self, op: jobs.OpcodeEntry, changes: list[tuple[str, str]]) -> None:
        request = messages.RequestLocks(
            owner=self._running.owner, priority=op.priority, changes=changes
        )
        self._running.asked_for_locks = self._has_locks = self._is_in_line = True
        number = self._daemon.send(request)
        try:
            while True:
                answer = self._await(number)
                if isinstance(answer, messages.LocksGranted):
                    return
                if isinstance(answer, messages.LocksPending) and op.status is JobStatus.QUEUED:
                    op.apply(OpcodeEvent.TAKE_UP)
                    self._recorder.show_waiting()
        finally:
            # Never resent: the lock manager would grant it after the job has given it up.
            self._daemon.forget(number)
            self._is_in_line = False

    def _release_locks(self) -> None:
        self._ask(messages.ReleaseLocks(owner=self._running.owner))
        self._has_locks = False

    def _ask(self, request: Request[Any]) -> Message:
        """The answer to ``request``, however long it takes, from this daemon or a successor."""
        return self._await(self._daemon.send(request))

    def _await(self, number: int, *, is_cancelable: bool = True) -> Message:
        while True:
            self._daemon.take_messages()
            if is_cancelable:
                self._stop_if_canceled()
            if (reply := self._daemon.take_reply(number)) is not None:
                return reply
            if self._gate.is_doubted and self._is_in_line:
                self._gate.ask()
                # The link may have news of yet other rules as well: look before waiting.
                continue
            is_up = self._daemon.link.is_up
            if not (is_up or self._file.has_queue):
                raise errors.StorageError(f"{self._file.path}: the queue directory is gone")
            self._daemon.wait({}, None if is_up else RETRY_SECONDS)

    def _stop_if_canceled(self) -> None:
        if self._is_canceled:
            raise CanceledError

    def _wait_for_disk(self, error: errors.StorageError) -> None:
        """The disk refuses a state: tell the daemon, and wait a moment."""
        text = "the disk is full" if reserve.is_full(error) else error.text
        is_end = self._job.status.is_final
        self._daemon.tell(messages.StateHeldUp(job_id=self._job.id, is_end=is_end, text=text))
        self._daemon.rest()

    # ------------------------------------------------------------ messages

    def _introduce(self) -> None:
        """Send a successor of the daemon everything that its predecessor may not have stored."""
        self._gate.is_doubted = True
        self._daemon.resend()
        self._recorder.resend()
        if self._running.op.status in (JobStatus.WAITING, JobStatus.CANCELING):
            self._recorder.show_waiting()
        self._log.resend()
        self.context.resend_size()

    def _receive(self, message: Message) -> None:
        match message:
            case messages.CancelRequested() | messages.PriorityRequested() if self._is_returned:
                # The queue owns the job again, and handles the request itself.
                return
            case messages.CancelRequested():
                self._answer_cancel(message)
            case messages.PriorityRequested():
                self._answer_priority(message.token, message.priority)
            case messages.GateChanged():
                self._gate.is_doubted = True
            case messages.ResendRequested():
                self._gate.is_doubted = True
                self._daemon.resend()
                self._log.resend()

    def _answer_cancel(self, message: messages.CancelRequested) -> None:
        job_id = self._job.id
        op = self._running.op
        accepted = op.status in (JobStatus.QUEUED, JobStatus.WAITING, JobStatus.CANCELING)
        if accepted:
            self._is_canceled = True
            if op.status is JobStatus.QUEUED:
                op.apply(OpcodeEvent.TAKE_UP)
            if op.status is JobStatus.WAITING:
                op.apply(OpcodeEvent.CANCEL)
                self._recorder.post()
            text = f"Job {job_id} will be canceled"
        elif message.kill and op.status is JobStatus.RUNNING:
            # Even if the operation succeeds, no other one begins.
            accepted = self.context.must_be_killed = self._is_canceled = True
            self._is_to_be_killed = True
            text = (
                f"Job {job_id} is running and will be killed: SIGTERM to its command now, "
                "SIGKILL soon after; what does not react at all is ended "
                f"{settings.KILL_SECONDS:g} s from now"
            )
        else:
            text = f"Job {job_id} is no longer waiting in the queue"
        answer = messages.CancelAnswered(
            job_id=job_id, token=message.token, accepted=accepted, text=text
        )
        self._daemon.tell(answer)

    def _answer_priority(self, token: int, priority: int) -> None:
        job_id = self._job.id
        changed = [op for op in self._job.ops if op.status in (JobStatus.QUEUED, JobStatus.WAITING)]
        for op in changed:
            op.priority = priority
        if changed:
            self._daemon.move_in_line(self._running.op.priority)
            self._gate.note_priority()
            self._recorder.post()
            text = f"Priorities of pending opcodes for job {job_id} have been changed to {priority}"
        else:
            text = f"Job {job_id} had no pending opcodes"
        answer = messages.PriorityAnswered(
            job_id=job_id,
            token=token,
            priority=priority,
            accepted=bool(changed),
            text=text,
            signaled=None if changed else os.getpid(),
        )
        self._daemon.tell(answer)
