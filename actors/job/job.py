"""The `Job` actor: one per running job, on the main thread of the job's own process.

From the hand-over to the final status it alone writes the job's file. It runs the opcodes
one after the other: dependencies, locks (status ``waiting``), ``running`` made durable
before the operation starts, the result made durable before anything else.

How a state becomes durable. While the daemon is there, the whole state goes into the
daemon's journal, whose flush many jobs share; the file is then written without a flush of
its own. When the daemon does not answer, or the state is large, the process flushes its file
itself. Either way the state carries a serial, so that an older one never wins.

It is an actor without pykka: its mailbox is the link to the daemon, drained on the main
thread while it waits, because a thread and the libraries for one would cost more than a
short job (docs/decisions/job-actor-without-pykka.md).
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ...storage import (
    documents,
    errors,
    job_bounds,
    jobs,
    lock_files,
    opcodes,
    process_identity,
    settings,
)
from ...storage.jobs import JobStatus, OpcodeEvent
from ...storage.locks import Owner
from ...storage.opcodes import catalogue
from ...storage.queue_files import job_files, output_files, spool
from ...transport import messages
from ...transport.messages import Message, Request
from ..operations import commands, registry
from ..processes import control_groups, descendants
from .daemon_link import Link, Received
from .output import JobOutput
from .state_file import StateFile

if TYPE_CHECKING:
    from collections.abc import Sequence

_ControlRequest = messages.CancelRequested | messages.PriorityRequested
_RECORD_SECONDS = 5.0
_RETRY_SECONDS = 1.0
_OWN_ENTRY_BYTES_MAX = 4 * 1024
_LOG_RESENT_MAX = 1_000
_LOG_RESENT_CHARACTERS_MAX = 1_000_000


def run_process(
    job_id: int,
    link: Link,
    lock_directory: str,
    *,
    spare: str,
    identity: process_identity.ProcessIdentity | None = None,
) -> None:
    """The life of a job process: take a lock file, wait for the hand-over, run the job.

    ``spare`` is the path of an unused lock file, if there is one; ``identity`` is this process's.
    """
    stem = lock_files.job_stem(job_id, time.time(), identity or process_identity.own())
    lock_file = lock_files.create(lock_directory, stem, spare=spare)
    pid = os.getpid()
    try:
        hello = messages.JobHello(job_id=job_id, lock_file=lock_file.path, process_id=pid)
        if not link.send(hello, 0):
            return
        go = _wait_for_go(link)
        if go is None:
            return
        attach = messages.AttachJob(job_id=job_id, lock_file=lock_file.path, process_id=pid)
        link.use_socket(go.socket, attach)
        if not go.body:
            # Too large for a frame: an older version, or another program, wrote it.
            go = msgspec.structs.replace(go, body=_read_body(go.queue, job_id))
        job = jobs.decode_job(go.body)
        job.process_id = pid
        owner = Owner(job_id, lock_file.path, pid)
        JobActor(job, link, owner, go).run()
    finally:
        lock_file.remove()
        link.close()


def _wait_for_go(link: Link) -> messages.JobGo | None:
    deadline = time.monotonic() + settings.HAND_OVER_SECONDS
    while link.is_up and (left := deadline - time.monotonic()) > 0:
        link.wait({}, left)
        for received in link.receive():
            if isinstance(received.message, messages.JobGo):
                return received.message
    return None


def _read_body(queue: str, job_id: int) -> bytes:
    body = documents.read(job_files.path(queue, job_id))
    if body is None:
        raise errors.StorageError(f"job {job_id} has no file")
    return body


def load_user_opcodes() -> None:
    """Import the opcodes that users have installed; the daemon has reported broken ones."""
    catalogue.load_user_opcodes()


class CanceledError(Exception):
    """The job was canceled while its opcode waited."""


class ReturnedError(Exception):
    """The job goes back to the queue before its opcode; the text says why."""


class JobRejectedError(Exception):
    """A filter rule, named in the text, rejects the job, which has executed nothing."""


class JobActor:
    """Runs one job. ``owner`` is its name for locks, ``go`` what came with the hand-over."""

    def __init__(self, job: jobs.Job, link: Link, owner: Owner, go: messages.JobGo) -> None:
        self._job = job
        self._link = link
        self._owner = owner
        self._queue = go.queue
        path = job_files.path(go.queue, job.id)
        self._file = StateFile(path, go.spares, self._wait_for_disk)
        self._secrets = go.secrets
        self._chosen = go.chosen
        self._number = 0
        self._unanswered: dict[int, Request[Any]] = {}
        self._answers: dict[int, Message] = {}
        self._received: deque[Received] = deque()
        self._postponed: deque[Received] | None = None
        self._index = 0
        self._is_canceled = False
        self._has_locks = False
        """It holds locks or waits for some."""
        self._is_in_line = False
        self._is_gate_doubted = False
        self._asked_for_locks = False
        self._has_group = False
        self._is_returned = False
        self._must_be_killed = False
        self._log_serial = job.last_log_serial
        self._body_bytes = len(go.body)
        self._budget_or_none: job_bounds.SizeBudget | None = None
        self._durable: messages.RecordState | None = None
        self._output: JobOutput | None = None
        self._output_limit = settings.OUTPUT_BYTES_MAX

    # ------------------------------------------------------------ the opcodes

    def run(self) -> None:
        """Run every opcode that is not final, then send `JobLeft`."""
        for index, op in enumerate(self._job.ops):
            if op.status.is_final:
                continue
            self._index = index
            if not self._run_opcode(op):
                break
        if not self._is_returned and not self._leave_at_once():
            self._record()
        if not self._file.is_stale:
            left = messages.JobLeft(
                job_id=self._job.id, has_locks=self._asked_for_locks, has_group=self._has_group
            )
            self._link.send(left, 0)

    def _run_opcode(self, op: jobs.OpcodeEntry) -> bool:
        """Run one opcode; False if the job has ended with it."""
        try:
            opcode = self._prepare(op)
        except CanceledError:
            jobs.cancel_from(self._job, self._index, self._now())
            return False
        except JobRejectedError as rejected:
            now = self._now()
            text = job_bounds.end_text(str(rejected), len(self._job.ops))
            jobs.cancel_pending(self._job, now, source=jobs.FILTER_SOURCE, text=text)
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
        if self._index < len(self._job.ops) - 1:
            # Until the next one runs the file takes no log.
            self._write_log()
        op.apply(OpcodeEvent.SUCCEED)
        op.result = result
        op.end_timestamp = self._now()
        if self._index == len(self._job.ops) - 1:
            self._job.end_timestamp = op.end_timestamp
            return False
        return True

    def _operate(self, opcode: opcodes.Opcode) -> object:
        # Only the built-in operations are sure to support dry runs.
        if opcode.dry_run and not opcode.built_in:
            return None
        limit = getattr(opcode, "output_limit", None)
        self._output_limit = settings.OUTPUT_BYTES_MAX if limit is None else limit
        if self._output is not None:
            self._output.begin(self._index, self._output_limit)
        follows = descendants.is_followed(opcode)
        if follows is not None:
            descendants.follow(is_wanted=follows)
            self._choose_group(is_own=follows)
        try:
            return registry.operation_for(opcode)(opcode, self)
        finally:
            if self._output is not None:
                self._output.end()
            # Before the end is recorded: what it started must not run under the next locks.
            if follows and (count := descendants.end_all(self)):
                self.log(f"Ended processes that it left behind: {count}")

    def _fitting(self, opcode: opcodes.Opcode, result: object) -> object:
        """The result if the job has room for it; `OperationError` if it has not."""
        if result is None or self._budget.takes_result(result):
            return result
        if isinstance(opcode, catalogue.OpExec) and isinstance(result, dict):
            # The exit code and the sizes always fit.
            return commands.without_tails(result)
        size = len(msgspec.json.encode(result))
        text = (
            f"{opcode.op_id}: the result has {size} bytes as JSON, "
            f"and this job has room for {self._budget.result_bytes}"
        )
        raise opcodes.OperationError("OpResultError", text)

    @property
    def _budget(self) -> job_bounds.SizeBudget:
        """The room for log and results; not computed for a job that has neither."""
        if self._budget_or_none is None:
            self._budget_or_none = job_bounds.SizeBudget(self._job, self._body_bytes)
        return self._budget_or_none

    def _choose_group(self, *, is_own: bool) -> None:
        """Enter the job's own control group, or leave it so that new processes outlive the job."""
        identity = lock_files.identity_of(self._owner.lock_file)
        if not is_own:
            control_groups.leave()
        elif identity is not None:
            self._has_group = True
            control_groups.enter(identity)

    def _prepare(self, op: jobs.OpcodeEntry) -> opcodes.Opcode:
        """Do everything that must come before the operation: dependencies, locks, ``running``."""
        op.start_timestamp = self._now()
        if self._job.start_timestamp is None:
            self._job.start_timestamp = op.start_timestamp
        self._take_messages()
        self._stop_if_canceled()
        opcode = opcodes.parse(self._with_secrets(op.input))
        if self._has_locks:
            self._ask(messages.ReleaseLocks(owner=self._owner))
            self._has_locks = False
        if self._index > 0 and (depends := opcodes.dependencies(op.input)):
            self._check_dependencies(depends)
        if changes := opcode.lock_needs().to_changes():
            if self._index > 0:
                self._pass_gate()
            self._acquire(op, [(name, str(mode)) for name, mode in changes])
        self._stop_if_canceled()
        self._begin(op)
        return opcode

    def _begin(self, op: jobs.OpcodeEntry) -> None:
        """Record that the opcode runs, unless the rules in force do not let it start.

        Cancellations and priorities that come meanwhile wait until the start is decided.
        """
        before = op.status
        op.apply(OpcodeEvent.START)
        op.exec_timestamp = self._now()
        self._postponed = deque()
        try:
            self._record(begins=True)
        except (ReturnedError, JobRejectedError):
            op.status, op.exec_timestamp = before, None
            raise
        finally:
            self._received.extendleft(reversed(self._postponed))
            self._postponed = None
        self._take_messages()

    def _with_secrets(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The opcode's parameters with its secrets, which are in no file."""
        fields = fields | self._secrets.get(self._index, {})
        if opcodes.secret_fields(fields) and opcodes.lost_secret(fields) is not None:
            text = "its secret parameters were lost with the daemon that had them; submit it again"
            raise opcodes.OperationError("OpPrereqError", text)
        return fields

    def _fail(self, error: Exception) -> None:
        result = job_bounds.error_result(registry.encode_exception(error))
        jobs.fail_from(self._job, self._index, self._now(), result)

    def _check_dependencies(self, depends: list[tuple[int, tuple[str, ...]]]) -> None:
        """Return the job to the queue if this opcode must wait for other jobs."""
        plain = [(job_id, list(statuses)) for job_id, statuses in depends]
        outcome = self._ask(messages.AskDependencies(job_id=self._job.id, depends=plain))
        assert isinstance(outcome, messages.DependencyOutcome)
        match outcome.verdict:
            case "open":
                raise ReturnedError("it waits for other jobs")
            case "canceled":
                raise CanceledError
            case "failed":
                raise opcodes.OperationError("OpExecError", outcome.text)

    def _pass_gate(self) -> None:
        """Wait for locks only if the opcode could start then; the record of its start decides."""
        self._is_gate_doubted = False
        asked = messages.AskGate(job_id=self._job.id, chosen=self._chosen)
        answer = self._try_ask(asked, _RECORD_SECONDS)
        if isinstance(answer, messages.GateAnswered):
            self._obey(answer)
        elif answer is None and self._link.is_up:
            # The daemon is there, and slow: ask again later.
            self._is_gate_doubted = True

    def _obey(self, gate: messages.GateAnswered) -> None:
        if gate.is_rejected:
            raise JobRejectedError(gate.text)
        if not gate.is_open:
            raise ReturnedError(gate.text)
        self._chosen = messages.ChosenUnder(gate.chain, self._chosen.limit)

    def _obey_stored_rules(self) -> None:
        """Without a daemon, obey the stored rules, which are never older than those in force."""
        from ..rules import stored_rules  # noqa: PLC0415 - costs more than a short job

        while True:
            try:
                has_begun = self._index > 0
                gate = stored_rules.gate(self._queue, self._job, self._chosen, has_begun=has_begun)
            except (errors.StorageError, errors.DataDirectoryError):
                if not job_files.is_queue_of(self._file.path):
                    raise
                self._wait_for_disk()
            else:
                self._obey(gate)
                return

    def _return(self, op: jobs.OpcodeEntry, reason: str) -> None:
        """Give the job back to the queue, durably and for good, before the process leaves."""
        if self._has_locks:
            with contextlib.suppress(CanceledError):
                self._ask(messages.ReleaseLocks(owner=self._owner))
            self._has_locks = False
        self._take_messages()
        if self._is_canceled:
            jobs.cancel_from(self._job, self._index, self._now())
            return
        self._is_returned = self._file.is_given_back = True
        text = f"Back to the queue before opcode {self._index + 1}: {reason}"
        logged = self._add_to_log([job_bounds.cut(text, _OWN_ENTRY_BYTES_MAX)], is_own=True)
        op.apply(OpcodeEvent.RETURN)
        op.start_timestamp = None
        if not self._job.has_begun:
            self._job.start_timestamp = None
        self._job.livelock = self._job.process_id = None
        serial = self._job.advance_serial()
        body = jobs.encode_job(self._job)
        # The queue owns a state without a lock file, and may go on from it at once. Any later write
        # of this process would replace newer states.
        self._file.write(body, serial, flush=True)
        self._link.send(logged, 0)
        given = messages.JobReturns(job_id=self._job.id, serial=serial, body=_small(body))
        self._link.send(given, self._next_number())

    def _acquire(self, op: jobs.OpcodeEntry, changes: list[tuple[str, str]]) -> None:
        request = messages.RequestLocks(owner=self._owner, priority=op.priority, changes=changes)
        self._asked_for_locks = self._has_locks = self._is_in_line = True
        number = self._send(request)
        try:
            while True:
                answer = self._await(number)
                if isinstance(answer, messages.LocksGranted):
                    return
                if isinstance(answer, messages.LocksPending):
                    self._show_waiting(op)
        finally:
            # Never resent: the lock manager would grant it after the job has given it up.
            self._unanswered.pop(number, None)
            self._is_in_line = False

    def _show_waiting(self, op: jobs.OpcodeEntry) -> None:
        if op.status is JobStatus.QUEUED:
            op.apply(OpcodeEvent.TAKE_UP)
            self._send_waiting()

    def _send_waiting(self) -> None:
        serial = self._job.advance_serial()
        body = jobs.encode_job(self._job)
        self._file.write(body, serial, flush=False)
        waits = messages.JobWaits(job_id=self._job.id, serial=serial, body=_small(body))
        self._link.send(waits, 0)

    def _stop_if_canceled(self) -> None:
        if self._is_canceled:
            raise CanceledError

    # ------------------------------------------------------------ durable states

    def _record(self, *, begins: bool = False) -> None:
        """Make the job's state durable; returns only when it is.

        ``begins``: it starts an opcode. A closed gate raises `ReturnedError` or `JobRejectedError`.
        """
        self._store_state(begins=begins)
        # A successor of the daemon gets this state, never one that is not durable yet.
        self._durable = self._state(self._job.serial, None)

    def _store_state(self, *, begins: bool) -> None:
        serial = self._job.advance_serial()
        body = jobs.encode_job(self._job)
        if len(body) <= settings.JOURNALED_STATE_BYTES_MAX and self._link.is_up:
            state = self._state(serial, body, begins=self._chosen if begins else None)
            answer = self._try_ask(state, _RECORD_SECONDS)
            if isinstance(answer, messages.GateAnswered):
                self._obey(answer)
            if isinstance(answer, messages.StateRecorded):
                # A newer state may have been posted meanwhile, over a link that then broke.
                self._file.is_only_copy &= self._job.serial > serial
                self._file.write(body, serial, flush=False)
                return
        if begins:
            self._obey_stored_rules()
        self._file.is_only_copy = True
        self._file.write(body, serial, flush=True)
        self._link.send(self._state(serial, None), self._next_number())

    def _leave_at_once(self) -> bool:
        """Send the last state and write it, but do not wait until it is durable.

        The queue announces it only when it is durable; until then the file has it, and survives
        the daemon. False if the job must wait: with locks, because they become free with the end
        of this process, and the result must be durable before that.
        """
        if self._asked_for_locks or self._file.is_only_copy or not self._link.outlives_sender:
            return False
        serial = self._job.advance_serial()
        body = jobs.encode_job(self._job)
        if len(body) > settings.JOURNALED_STATE_BYTES_MAX:
            return False
        if not self._link.send(self._state(serial, body, is_unanswered=True), 0):
            return False
        self._file.write(body, serial, flush=False)
        return not self._file.is_stale

    def _post_state(self) -> None:
        """Send a state that the daemon makes durable before it passes on what follows."""
        serial = self._job.advance_serial()
        body = jobs.encode_job(self._job)
        if len(body) <= settings.JOURNALED_STATE_BYTES_MAX and self._link.is_up:
            self._link.send(self._state(serial, body), self._next_number())
            self._file.write(body, serial, flush=False)
        else:
            self._file.is_only_copy = True
            self._file.write(body, serial, flush=True)
            self._link.send(self._state(serial, None), self._next_number())

    def _state(
        self,
        serial: int,
        body: bytes | None,
        *,
        is_unanswered: bool = False,
        begins: messages.ChosenUnder | None = None,
    ) -> messages.RecordState:
        job = self._job
        return messages.RecordState(
            job_id=job.id,
            serial=serial,
            status=job.status,
            priority=job.priority,
            log_serial=self._log_serial,
            started=jobs.seconds(job.start_timestamp),
            ended=jobs.seconds(job.end_timestamp),
            body=body,
            has_locks=self._asked_for_locks,
            is_unanswered=is_unanswered,
            begins=begins,
        )

    def _wait_for_disk(self) -> None:
        self._link.wait({}, _RETRY_SECONDS)
        self._take_messages()

    # ------------------------------------------------------------ messages

    def _send(self, request: Request[Any]) -> int:
        number = self._next_number()
        self._unanswered[number] = request
        self._link.send(request, number)
        return number

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _ask(self, request: Request[Any]) -> Message:
        """The answer to ``request``, however long it takes, from this daemon or a successor."""
        return self._await(self._send(request))

    def _try_ask(self, request: Request[Any], timeout_seconds: float) -> Message | None:
        """The answer to ``request``; None if it does not come in time or the link breaks."""
        number = self._send(request)
        deadline = time.monotonic() + timeout_seconds
        while number not in self._answers and self._link.is_up:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._wait_for_message({}, left)
            self._take_messages()
        self._unanswered.pop(number, None)
        return self._answers.pop(number, None)

    def _await(self, number: int) -> Message:
        while True:
            self._take_messages()
            self._stop_if_canceled()
            answer = self._answers.pop(number, None)
            if isinstance(answer, messages.Failure):
                error = errors.from_wire(answer.error, answer.text)
                if not isinstance(error, errors.TryAgainError):
                    raise error
                # The component that was asked is being replaced; it will say when to
                # repeat the request (`ResendRequested`).
            elif answer is not None:
                if not isinstance(answer, messages.LocksPending):
                    self._unanswered.pop(number, None)
                return answer
            if self._is_gate_doubted and self._is_in_line:
                self._pass_gate()
                # The link may have news of yet other rules as well: look before waiting.
                continue
            if not (self._link.is_up or self._file.has_queue):
                raise errors.StorageError(f"{self._file.path}: the queue directory is gone")
            self._wait_for_message({}, None if self._link.is_up else _RETRY_SECONDS)

    def _wait_for_message(
        self, descriptors: dict[int, int], timeout_seconds: float | None
    ) -> list[int]:
        """Wait for a message or ``descriptors``.

        Does not wait if a message came while a state was written, or if a successor was reached:
        no descriptor reports either.
        """
        is_there = self._received or self._link.has_changed
        return self._link.wait(descriptors, 0 if is_there else timeout_seconds)

    def _take_messages(self) -> None:
        self._received.extend(self._link.receive())
        if self._file.is_being_written:
            # Its handling may write the file too: that must follow this write.
            return
        while self._received:
            received = self._received.popleft()
            if self._postponed is not None and isinstance(received.message, _ControlRequest):
                self._postponed.append(received)
            else:
                self._receive(received.message, received.number)
        if self._link.has_changed:
            self._link.has_changed = False
            self._introduce()

    def _introduce(self) -> None:
        """Send a successor of the daemon everything that its predecessor may not have stored."""
        self._is_gate_doubted = True
        self._resend()
        if self._durable is not None:
            self._link.send(self._durable, self._next_number())
        if self._job.ops[self._index].status in (JobStatus.WAITING, JobStatus.CANCELING):
            self._send_waiting()
        self._resend_log()
        if self._output is not None:
            self._output.send_size()

    def _resend_log(self) -> None:
        """Send the newest log entries to a component that was replaced; the file has the others."""
        self._write_log()
        entries_left, characters_left = _LOG_RESENT_MAX, _LOG_RESENT_CHARACTERS_MAX
        parts: list[messages.JobLogAppended] = []
        for index, op in reversed([*enumerate(self._job.ops)]):
            start = len(op.log)
            while start and entries_left:
                characters_left -= _characters(op.log[start - 1][3])
                if characters_left < 0:
                    entries_left = 0
                    break
                entries_left -= 1
                start -= 1
            if recent := op.log[start:]:
                part = messages.JobLogAppended(job_id=self._job.id, op_index=index, entries=recent)
                parts.append(part)
        for part in reversed(parts):
            self._link.send(part, 0)

    def _receive(self, message: Message, number: int) -> None:
        match message:
            case messages.CancelRequested() | messages.PriorityRequested() if self._is_returned:
                # The queue owns the job again, and handles the request itself.
                return
            case messages.CancelRequested():
                self._answer_cancel(message)
            case messages.PriorityRequested():
                self._answer_priority(message.token, message.priority)
            case messages.GateChanged():
                self._is_gate_doubted = True
            case messages.ResendRequested():
                self._is_gate_doubted = True
                self._resend()
                self._resend_log()
            case _ if number in self._unanswered:
                self._answers[number] = message

    def _resend(self) -> None:
        for number, request in list(self._unanswered.items()):
            self._link.send(request, number)

    def _answer_cancel(self, message: messages.CancelRequested) -> None:
        job_id = self._job.id
        op = self._job.ops[self._index]
        accepted = op.status in (JobStatus.QUEUED, JobStatus.WAITING, JobStatus.CANCELING)
        if accepted:
            self._is_canceled = True
            if op.status is JobStatus.QUEUED:
                op.apply(OpcodeEvent.TAKE_UP)
            if op.status is JobStatus.WAITING:
                op.apply(OpcodeEvent.CANCEL)
                self._post_state()
            text = f"Job {job_id} will be canceled"
        elif message.kill and op.status is JobStatus.RUNNING:
            # Even if the operation succeeds, no other one begins.
            accepted = self._must_be_killed = self._is_canceled = True
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
        self._link.send(answer, 0)

    def _answer_priority(self, token: int, priority: int) -> None:
        job_id = self._job.id
        changed = [op for op in self._job.ops if op.status in (JobStatus.QUEUED, JobStatus.WAITING)]
        for op in changed:
            op.priority = priority
        if changed:
            self._move_in_line(self._job.ops[self._index].priority)
            # Rules may look at priorities: with the new one, the job may not start any more.
            self._chosen = messages.ChosenUnder(0, self._chosen.limit)
            self._is_gate_doubted = True
            self._post_state()
            text = f"Priorities of pending opcodes for job {job_id} have been changed to {priority}"
        else:
            text = f"Job {job_id} had no pending opcodes"
        answer = messages.PriorityAnswered(
            job_id=job_id, token=token, priority=priority, accepted=bool(changed), text=text
        )
        self._link.send(answer, 0)

    def _move_in_line(self, priority: int) -> None:
        """Resend the waiting request for locks with this priority, also to successors."""
        for number, request in list(self._unanswered.items()):
            if isinstance(request, messages.RequestLocks):
                self._unanswered[number] = msgspec.structs.replace(request, priority=priority)
                self._link.send(self._unanswered[number], number)

    # ------------------------------------------------------------ what an operation may use

    @property
    def job_id(self) -> int:
        """The job."""
        return self._job.id

    @property
    def op_index(self) -> int:
        """Place of the running opcode, from 0."""
        return self._index

    @property
    def dry_run(self) -> bool:
        """Whether the operation is to change nothing."""
        return bool(self._job.ops[self._index].input.get("dry_run"))

    def clock(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    def open_input(self, name: str) -> int:
        """A descriptor to read the file ``name`` beside the job with."""
        return os.open(f"{spool.folder(self._queue)}/{name}", os.O_RDONLY | os.O_CLOEXEC)

    def log(self, text: str | list[str], kind: str = "message") -> None:
        """Add one entry to the job log."""
        self._log([text], kind)

    def log_lines(self, lines: list[str], kind: str = "message") -> None:
        """Add one entry for each line."""
        self._log(lines, kind)

    def output(self, data: bytes, stream: str = "stdout") -> int:
        """Keep output of the opcode; how many bytes of it are within its limit."""
        if self._output is None:
            file = output_files.OutputFile(spool.output_path(self._queue, self._job.id))
            self._output = JobOutput(file, self._tell_output, self.log, self.clock)
            self._output.begin(self._index, self._output_limit)
        return self._output.add(data, stream)

    def _tell_output(self, size: int) -> None:
        self._link.send(messages.OutputGrew(job_id=self._job.id, size=size), 0)

    def poll(
        self, descriptors: Mapping[int, int] | Sequence[int], timeout_seconds: float | None
    ) -> list[int]:
        """Wait for one of ``descriptors``, handling the daemon's messages meanwhile."""
        wanted = (
            dict(descriptors)
            if isinstance(descriptors, Mapping)
            else dict.fromkeys(descriptors, select.POLLIN)
        )
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            self._take_messages()
            if self._must_be_killed:
                self._must_be_killed = False
                raise opcodes.KilledError
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if self._file.lacks_log:
                left = self._write_log_if_due(left)
            if self._output is not None:
                left = self._write_output_if_due(self._output, left)
            ready = self._wait_for_message(wanted, left)
            if ready or (deadline is not None and time.monotonic() >= deadline):
                return ready

    def _log(self, entries: Sequence[str | list[str]], kind: str) -> None:
        if entries and (logged := self._add_to_log(entries, kind)).entries:
            self._link.send(logged, 0)
            if time.monotonic() >= self._file.log_due():
                # An operation that never waits gives no other occasion.
                self._write_log()

    def _add_to_log(
        self, entries: Sequence[str | list[str]], kind: str = "message", *, is_own: bool = False
    ) -> messages.JobLogAppended:
        now = self._now()
        added: list[jobs.LogEntry] = []
        for admitted, entry in self._budget.admit(entries, kind, is_own=is_own):
            self._log_serial += 1
            added.append((self._log_serial, now, admitted, entry))
        if added:
            self._job.ops[self._index].log.extend(added)
            self._file.lacks_log = True
        return messages.JobLogAppended(job_id=self._job.id, op_index=self._index, entries=added)

    def _write_log(self) -> None:
        """Write the new log entries into the file, unless the next state does that anyway."""
        is_running = self._job.ops[self._index].status is JobStatus.RUNNING
        if is_running and self._file.takes_log(self._job.serial):
            self._file.write(jobs.encode_job(self._job), self._job.serial, flush=False)

    def _write_log_if_due(self, left: float | None) -> float | None:
        """Write the log if it is due; else shorten the wait to that time."""
        if time.monotonic() >= self._file.log_due():
            self._write_log()
        due = self._file.log_due() - time.monotonic()
        if due <= 0 or not self._file.lacks_log:
            return left
        return due if left is None else min(left, due)

    def _write_output_if_due(self, output: JobOutput, left: float | None) -> float | None:
        """Write the output if it is due; else shorten the wait to that time."""
        output.write_if_due()
        due = output.due()
        if math.isinf(due):
            return left
        rest = max(0.0, due - time.monotonic())
        return rest if left is None else min(left, rest)

    def _now(self) -> jobs.Timestamp:
        return jobs.timestamp(time.time())


def _small(body: bytes) -> bytes | None:
    """The state if it travels in a message; the queue reads a large one from the file."""
    return body if len(body) <= settings.JOURNALED_STATE_BYTES_MAX else None


def _characters(text: str | list[str]) -> int:
    return len(text) if isinstance(text, str) else sum(map(len, text))
