"""What the operations of a running job may use: its log, output and input, and waiting."""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...storage import errors, opcodes, settings
from ...storage.disk import paths
from ...storage.jobs import jobs
from ...storage.nodes import begun_tasks, task_marks
from ...storage.queue_files import output_blocks, output_files, output_limits, spool
from ...transport import frames, messages
from .conversation import Conversation
from .job_log import JobLog
from .output import JobOutput
from .running_job import RunningJob

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class JobContext:
    """The `OperationContext` of each opcode of a job, one after the other."""

    def __init__(self, running: RunningJob, daemon: Conversation, log: JobLog, queue: str) -> None:
        self._running = running
        self._daemon = daemon
        self._log = log
        self._queue = queue
        self._output: JobOutput | None = None
        self._output_limit = settings.OUTPUT_BYTES_MAX
        self._limits = output_limits.LimitsInForce(queue)
        self._tasks = 0
        """How many tasks on nodes the opcode has begun."""
        self._marked: dict[str, task_marks.MarkedTask] = {}
        """Those that may run, by their keys."""
        self.must_be_killed = False
        """The next `poll` raises `KilledError`."""

    @property
    def job_id(self) -> int:
        """The job."""
        return self._running.job.id

    @property
    def op_index(self) -> int:
        """Place of the running opcode, from 0."""
        return self._running.index

    @property
    def own_key(self) -> str:
        """A word that the running opcode of this job has, and no other one."""
        return task_marks.key_of(self._running.job, self.op_index)

    @property
    def data_directory(self) -> str:
        """The data directory of the job's daemon."""
        return self._queue.rpartition("/")[0]

    @property
    def dry_run(self) -> bool:
        """Whether the operation is to change nothing."""
        return bool(self._running.op.input.get("dry_run"))

    def clock(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    def open_input(self, name: str) -> int:
        """A descriptor to read the file ``name`` beside the job with."""
        return os.open(f"{spool.folder(self._queue)}/{name}", os.O_RDONLY | os.O_CLOEXEC)

    def log(self, text: str | list[str], kind: str = "message") -> None:
        """Add one entry to the job log."""
        self.log_lines([text], kind)

    def log_lines(self, lines: Sequence[str | list[str]], kind: str = "message") -> None:
        """Add one entry for each line."""
        self._log.log(lines, kind)
        if self._output is not None and kind not in output_blocks.IN_OUTPUT:
            self._output.note_logged(self._log.serial)

    def output(self, data: bytes, stream: str = "stdout") -> int:
        """Keep output of the opcode; how many bytes of it are within its limit."""
        if self._output is None:
            path = spool.output_path(self._queue, self.job_id)
            file = output_files.OutputFile(path, lambda: self._limits.now().refusal)
            self._output = JobOutput(
                file, self._send_size, self.log, self.clock, self._tell_dropped
            )
            self._output.begin(self.op_index, self._output_limit)
            if (serial := self._log.told_serial) > 0:
                self._output.note_logged(serial)
        self._output.limit_job(self._limits.now().job_bytes)
        return self._output.add(data, stream)

    def begin_output(self, limit: int | None) -> None:
        """Another opcode begins, and may have this many bytes of output (None: the usual limit)."""
        self._tasks = 0
        self._output_limit = settings.OUTPUT_BYTES_MAX if limit is None else limit
        if self._output is not None:
            self._output.begin(self.op_index, self._output_limit)

    def end_output(self) -> None:
        """The opcode has ended: make its output durable."""
        if self._output is not None:
            self._output.end()

    def close_output(self) -> None:
        """No opcode follows: close the file, so that the process is as it was before the job."""
        if self._output is not None:
            self._output.close()

    def close(self) -> None:
        """Let go of the output."""
        self.close_output()
        self._output = None

    def resend_size(self) -> None:
        """Tell a successor of the daemon how much output there is."""
        if self._output is not None:
            self._output.send_size()

    def poll(
        self, descriptors: Mapping[int, int] | Sequence[int], timeout_seconds: float | None
    ) -> list[int]:
        """Wait for one of ``descriptors``, handling the daemon's messages meanwhile."""
        wanted = (
            dict(descriptors)
            if isinstance(descriptors, Mapping)
            else dict.fromkeys(descriptors, select.POLLIN)
        )
        return self._poll(wanted, timeout_seconds, lambda: False)

    def _poll(
        self, wanted: dict[int, int], timeout_seconds: float | None, is_done: Callable[[], bool]
    ) -> list[int]:
        deadline = math.inf if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            self._daemon.take_messages()
            if is_done():
                return []
            if self.must_be_killed:
                self.must_be_killed = False
                raise opcodes.KilledError
            due = min(deadline, self._write_what_is_due())
            left = None if math.isinf(due) else max(0.0, due - time.monotonic())
            ready = self._daemon.wait(wanted, left)
            if ready or time.monotonic() >= deadline:
                return ready

    # Calls of nodes, and on a node.

    def note_task_begun(self, era: str) -> None:
        """A task of a node begins, which came in this era. `OperationError`: it may not."""
        if why := begun_tasks.note(paths.places(self.data_directory), self.job_id, era):
            raise opcodes.OperationError("OpExecError", why)

    def check_node(self, node: str) -> None:
        """Ask whether a command may begin there. Raises why not, and `KilledError`."""
        self.node_reply([self._daemon.send(messages.CheckNode(self.job_id, node))])

    def joined_nodes(self) -> set[str]:
        """The names of the hosts that have joined. Raises `KilledError`."""
        found = self.node_reply([self._daemon.send(messages.ReadJoinedNodes(self.job_id))])
        assert found is not None
        assert isinstance(found[1], messages.JoinedNodes)
        return set(found[1].names)

    def ask_hosts(self, nodes: Sequence[str]) -> dict[str, messages.HostFigures]:
        """What these hosts say of themselves now: those that answer soon. Raises `KilledError`."""
        asked = messages.ReadFigures(nodes=list(nodes), job_id=self.job_id)
        found = self.node_reply([self._daemon.send(asked)])
        assert found is not None
        assert isinstance(found[1], messages.FiguresRead)
        return found[1].hosts

    def call_node(self, node: str, key: str, request: messages.TaskRequest) -> int:
        """Ask the daemon of a node about a task, as often as it takes; the number of the call."""
        call = messages.CallNode(
            job_id=self.job_id,
            node=node,
            frame=frames.encode(request, 1),
            key=key,
            began=self._began,
            is_start=isinstance(request, messages.RunTask),
            asked=self.clock(),
        )
        return self._daemon.send(call)

    @property
    def _began(self) -> float:
        return jobs.seconds(self._running.op.exec_timestamp) or 0.0

    def keep_mark(self) -> None:
        """The opcode ends, and if its task is marked, that may run on: also after a power loss."""
        try:
            task_marks.keep(self._running.owner.lock_file)
        except errors.StorageError as error:
            self.log(f"A loss of power may free the locks of the command: {error.text}")

    def mark_task(self, node: str) -> str:
        """A task may run on this node from now on: if this process dies, its locks are kept.

        Returns the task's key, its name on the node: the n-th of an opcode has always the same.
        """
        number, self._tasks = self._tasks, self._tasks + 1
        key = task_marks.key_of(self._running.job, self.op_index, number)
        locks = self._running.locks
        self._marked[key] = task_marks.MarkedTask(node, key, self._began, locks)
        try:
            self._write_marks(flush=number > 0 or self._running.op.input.get("node") != node)
        except errors.StorageError:
            del self._marked[key]
            raise
        return key

    def unmark_task(self, key: str) -> None:
        """The task has ended, or never was.

        While others run, the mark stays as it was flushed: it names one that has ended, too.
        """
        del self._marked[key]
        if not self._marked:
            task_marks.remove(self._running.owner.lock_file)

    def _write_marks(self, *, flush: bool) -> None:
        marked = [*self._marked.values()]
        task_marks.write(self._running.owner.lock_file, marked, flush=flush)

    def node_reply(
        self, numbers: Collection[int], timeout_seconds: float | None = None
    ) -> tuple[int, messages.Message] | None:
        """Wait for a reply to one of these calls: its number, and what the hub says; None: none.

        Raises `KilledError` as `poll` does, and the error for which a `Failure` of the hub stands.
        """
        found: list[tuple[int, messages.Message]] = []

        def has_reply() -> bool:
            for number in numbers:
                if (reply := self._daemon.take_reply(number)) is not None:
                    found.append((number, reply))
                    return True
            return False

        self._poll({}, timeout_seconds, has_reply)
        return found[0] if found else None

    def forget_call(self, number: int) -> None:
        """Nobody waits for the reply to this call any more."""
        self._daemon.forget(number)

    def tell_silent(self, text: str) -> None:
        """Tell the daemon what the job waits for on a node; "": for nothing any more."""
        self._daemon.tell(messages.NodeAwaited(job_id=self.job_id, text=text))

    def _write_what_is_due(self) -> float:
        """Write log and output if it is time; when to do so again."""
        self._log.write_if_due()
        due = self._log.due()
        if self._output is not None:
            self._output.write_if_due()
            due = min(due, self._output.due())
        return due

    def _tell_dropped(self, text: str) -> None:
        self._daemon.tell(messages.OutputDropped(job_id=self.job_id, text=text))

    def _send_size(self, size: int) -> None:
        self._daemon.tell(messages.OutputGrew(job_id=self.job_id, size=size))
