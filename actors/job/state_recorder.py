"""Makes the states of a running job durable.

While the daemon is there, the whole state goes into the daemon's journal, whose flush many jobs
share; the file is then written without a flush of its own. When the daemon does not answer, or
the state is large, the process flushes its file itself; the journal gets the digest of the text.
Either way the state carries a serial, so that an older one never wins.
"""

from __future__ import annotations

from ...storage import settings
from ...storage.jobs import jobs
from ...storage.log import records
from ...transport import messages
from .conversation import Conversation
from .gate import OpcodeGate
from .job_log import JobLog
from .running_job import RunningJob
from .state_file import StateFile


class StateRecorder:
    """Records the job as it stands, in the ways that the moments of its life need."""

    def __init__(
        self,
        running: RunningJob,
        daemon: Conversation,
        file: StateFile,
        gate: OpcodeGate,
        log: JobLog,
    ) -> None:
        self._running = running
        self._daemon = daemon
        self._file = file
        self._gate = gate
        self._log = log
        self._durable: messages.RecordState | None = None
        self._digest: bytes | None = None
        """Of the newest durable state, if the journal lacks it."""

    def record(self, *, begins: bool = False) -> None:
        """Make the job's state durable; returns only when it is.

        ``begins``: it starts an opcode. A closed gate raises `ReturnedError` or `JobRejectedError`.
        """
        self._store(begins=begins)
        # A successor of the daemon gets this state, never one that is not durable yet.
        self._durable = self._state(self._running.job.serial, None, digest=self._digest)

    def _store(self, *, begins: bool) -> None:
        serial, body = self._next_state()
        if _is_small(body) and self._daemon.link.is_up:
            state = self._state(serial, body, begins=self._gate.chosen if begins else None)
            answer = self._daemon.try_ask(state)
            if isinstance(answer, messages.GateAnswered):
                self._gate.obey(answer)
            if isinstance(answer, messages.StateRecorded):
                self._file.is_only_copy = False
                self._digest = None
                self._file.write(body, serial, flush=False)
                return
        if begins:
            self._gate.obey_stored_rules()
        self._flush(serial, body)

    def post(self) -> None:
        """Send a state that the daemon makes durable before it passes on what follows."""
        serial, body = self._next_state()
        if _is_small(body) and self._daemon.link.is_up:
            self._daemon.post(self._state(serial, body))
            self._file.write(body, serial, flush=False)
        else:
            self._flush(serial, body)

    def show_waiting(self) -> None:
        """Write and send that the job waits for locks; nothing needs that to be durable.

        A large state is flushed all the same: the daemon keeps no other one from then on.
        """
        serial, body = self._next_state()
        self._file.write(body, serial, flush=not _is_small(body))
        waits = messages.JobWaits(job_id=self._running.job.id, serial=serial, body=_small(body))
        self._daemon.tell(waits)

    def give_back(self, logged: messages.JobLogAppended) -> None:
        """Return the job to the queue, durably; ``logged`` is the last entry of its log."""
        self._file.is_given_back = True
        serial, body = self._next_state()
        # The queue owns a state without a lock file, and may go on from it at once. Any later write
        # of this process would replace newer states.
        self._file.write(body, serial, flush=True)
        self._daemon.tell(logged)
        small = _small(body)
        digest = records.digest_of(body) if small is None else None
        job_id = self._running.job.id
        self._daemon.post(
            messages.JobReturns(job_id=job_id, serial=serial, body=small, digest=digest)
        )

    def resend(self) -> None:
        """Tell a successor of the daemon what is durable."""
        if self._durable is not None:
            self._daemon.post(self._durable)

    def _flush(self, serial: int, body: bytes) -> None:
        self._file.is_only_copy = True
        self._file.write(body, serial, flush=True)
        self._digest = records.digest_of(body)
        self._daemon.post(self._state(serial, None, digest=self._digest))

    def _next_state(self) -> tuple[int, bytes]:
        """The job's next serial, and the job with it as its file has it."""
        serial = self._running.job.advance_serial()
        return serial, jobs.encode_job(self._running.job)

    def _state(
        self,
        serial: int,
        body: bytes | None,
        *,
        begins: messages.ChosenUnder | None = None,
        digest: bytes | None = None,
    ) -> messages.RecordState:
        job = self._running.job
        return messages.RecordState(
            job_id=job.id,
            serial=serial,
            status=job.status,
            priority=job.priority,
            log_serial=self._log.serial,
            started=jobs.seconds(job.start_timestamp),
            ended=jobs.seconds(job.end_timestamp),
            body=body,
            has_locks=self._running.asked_for_locks,
            begins=begins,
            digest=digest,
        )


def _is_small(body: bytes) -> bool:
    return len(body) <= settings.JOURNALED_STATE_BYTES_MAX


def _small(body: bytes) -> bytes | None:
    """The state if it travels in a message; the queue reads a large one from the file."""
    return body if _is_small(body) else None
