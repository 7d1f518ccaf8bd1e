"""The process of a job on the master: the real follower of a task, on a strand of its own."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tests.torture.hosts.strand import Strand

from ganger.actors.operations import on_node
from ganger.storage import errors, opcodes
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.locks.locks import Owner
from ganger.storage.nodes import task_marks
from ganger.storage.opcodes import KilledError, OperationError
from ganger.transport import frames, messages
from ganger.transport.envelopes import Envelope

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.torture.hosts.master import Master

NOBODY = 2_147_483_000
"""Pids from here on are those of no process."""


class JobProcess:
    """It takes its locks, has its command run on a node, and notes the end. Also its context."""

    dry_run = False
    op_index = 0

    def __init__(self, master: Master, fields: dict[str, Any], number: int) -> None:
        self.master = master
        self.agenda = master.world.agenda
        self.job_id = number
        self.job = jobs.Job(
            id=number,
            ops=[jobs.OpcodeEntry(input=fields)],
            received_timestamp=jobs.timestamp(master.side.today),
        )
        self.told = ""
        """What its end says; "": it has not ended."""
        self.output_bytes = b""
        self.logged: list[str] = []
        self.must_be_killed = False
        self.is_to_be_killed = False
        self.is_alive = False
        self.lock_file = ""
        self.strand: Strand | None = None
        self._attempts = 0

    # The process.

    def begin(self) -> None:
        """A process takes the job, which has not begun."""
        self._attempts += 1
        pid = NOBODY + self.job_id
        name = f"job_{self.job_id:06}_{self._attempts}_{pid}.1.{self.master.boot}"
        self.lock_file = self.job.livelock = str(self.master.side.places.lock_files / name)
        self.owner = Owner(self.job_id, self.lock_file, pid)
        self.is_alive = True
        self._open: dict[int, tuple[str, messages.Message]] = {}
        self._replies: dict[int, list[messages.Message]] = {}
        self._numbers = self._attempts * 1_000_000
        self._wakings = 0
        self.master.living.add(self.lock_file)
        self.strand = Strand(self._run)
        self.resume()

    def kill(self) -> None:
        """SIGKILL."""
        if not self.is_alive or self.strand is None:
            return
        self.is_alive = False
        self.master.living.discard(self.lock_file)
        if not self.strand.is_over:
            self.strand.kill()
        self.master.forget_peer(self._peer)

    def resume(self) -> None:
        """It has something to do."""
        if self.is_alive and self.strand is not None:
            self._wakings += 1
            self.strand.resume()

    def _run(self) -> None:
        opcode: Any = opcodes.parse(self.job.ops[0].input)
        self.locks = [(name, str(mode)) for name, mode in opcode.lock_needs().to_changes()]
        request = messages.RequestLocks(owner=self.owner, priority=0, changes=self.locks)
        number = self._send("lock_manager", request)
        while not isinstance(self._wait([number], None), messages.LocksGranted):
            pass
        # Durable before the operation begins.
        entry = self.job.ops[0]
        entry.status = JobStatus.RUNNING
        entry.exec_timestamp = jobs.timestamp(self.master.side.today)
        try:
            result = on_node.run_on_node(opcode, self)
        except (OperationError, errors.GangerError) as error:
            self._note_end(JobStatus.ERROR, str(error))
        else:
            assert result is not None
            self._note_end(JobStatus.SUCCESS, "success")
        self.is_alive = False
        self.master.living.discard(self.lock_file)
        self.master.note_left(self)

    def _note_end(self, status: JobStatus, text: str) -> None:
        self.job.ops[0].status = status
        self.told = text
        self.master.world.oracle.told(self, text)

    @property
    def _peer(self) -> bytes:
        return self.lock_file.encode()

    # What it sends, again to each successor of who answers.

    def _send(self, name: str, request: messages.Message) -> int:
        self._numbers += 1
        self._open[self._numbers] = name, request
        self._post(self._numbers)
        return self._numbers

    def _post(self, number: int) -> None:
        name, request = self._open[number]
        envelope = Envelope(request, _Reply(self), number, None, self._peer)
        self.agenda.soon(functools.partial(self.master.side.tell, name, envelope))

    def resend(self, name: str) -> None:
        """Who has this name was replaced."""
        for number, (to, _) in sorted(self._open.items()):
            if to == name and self.is_alive:
                self._post(number)

    def take_reply(self, envelope: Envelope) -> None:
        number, message = envelope.number, envelope.message
        if number not in self._open or not self.is_alive:
            return
        if isinstance(message, messages.Failure):
            error = errors.from_wire(message.error, message.text)
            if isinstance(error, errors.RequestInterruptedError | errors.ComponentRestartedError):
                return
        if not isinstance(message, messages.NodeSilent | messages.LocksPending):
            del self._open[number]
        self._replies.setdefault(number, []).append(message)
        self.resume()

    # The context of the operation.

    def _wait(self, numbers: Collection[int], seconds: float | None) -> messages.Message | None:
        found = self.node_reply(numbers, seconds)
        return None if found is None else found[1]

    def node_reply(
        self, numbers: Collection[int], timeout_seconds: float | None = None
    ) -> tuple[int, messages.Message] | None:
        end = None if timeout_seconds is None else self.agenda.now + timeout_seconds
        if end is not None:
            self.agenda.later(max(0.0, end - self.agenda.now), self.resume)
        assert self.strand is not None
        while True:
            for number in numbers:
                if self._replies.get(number):
                    message = self._replies[number].pop(0)
                    if isinstance(message, messages.Failure):
                        raise errors.from_wire(message.error, message.text)
                    return number, message
            if self.must_be_killed:
                self.must_be_killed = False
                raise KilledError
            if end is not None and self.agenda.now >= end:
                return None
            self.strand.park()

    def check_node(self, node: str) -> None:
        """It may begin."""

    @property
    def task_key(self) -> str:
        return task_marks.key_of(self.job, 0)

    def joined_nodes(self) -> set[str]:
        return {host.name for host in self.master.world.hosts}

    def call_node(self, node: str, key: str, request: messages.TaskRequest) -> int:
        call = messages.CallNode(
            job_id=self.job_id,
            node=node,
            frame=frames.encode(request, 1),
            key=key,
            began=jobs.seconds(self.job.ops[0].exec_timestamp) or 0.0,
            is_start=isinstance(request, messages.RunTask),
            asked=self.clock(),
        )
        return self._send("node_hub", call)

    def forget_call(self, number: int) -> None:
        self._open.pop(number, None)
        self._replies.pop(number, None)

    def mark_task(self, node: str) -> str:
        began = jobs.seconds(self.job.ops[0].exec_timestamp) or 0.0
        marked = task_marks.MarkedTask(node, self.task_key, began, self.locks)
        task_marks.write(self.lock_file, [marked])
        return self.task_key

    def keep_mark(self) -> None:
        task_marks.keep(self.lock_file)
        if task_marks.is_marked(self.lock_file):
            self.master.flushed.add(self.lock_file)

    def unmark_task(self, key: str) -> None:
        assert key == self.task_key
        task_marks.remove(self.lock_file)

    def tell_silent(self, text: str) -> None:
        self.agenda.note(f"job {self.job_id}: {text or 'its node is back'}")

    def clock(self) -> float:
        return self.agenda.now

    def log(self, text: object, kind: str = "message") -> None:
        self.logged.append(str(text))
        self.agenda.note(f"job {self.job_id} logs {text} ({kind})")

    def log_lines(self, lines: object, kind: str = "message") -> None:
        """The last lines of output."""

    def output(self, data: bytes, stream: str = "stdout") -> int:
        assert stream == "stdout"
        self.output_bytes += data
        return len(data)

    def poll(self, _: object, timeout_seconds: float | None) -> list[int]:
        self._wait((), timeout_seconds)
        return []

    def open_input(self, name: str) -> int:
        raise NotImplementedError(name)


class _Reply:
    """Takes the replies to a process."""

    def __init__(self, process: JobProcess) -> None:
        self._process = process
        self._lock_file = process.lock_file

    def tell(self, envelope: Envelope) -> None:
        process = self._process
        if process.lock_file == self._lock_file:
            process.agenda.soon(functools.partial(process.take_reply, envelope))
