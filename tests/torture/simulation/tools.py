"""Ganeti's tools in the simulated world: clients at LUXI's socket, which is in memory here.

Each request has a connection of its own. Whoever loses it asks again, unless it has submitted a
job: that one is looked for in the end, and must not be there twice. Clients that wait for changes
of jobs must never sleep while a job is not as they know it (`look_at_rest`).
"""

from __future__ import annotations

import json
import math
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tests.actors.ganeti.queue_parts import answers_of
from tests.torture.simulation.core import Core, Program, Task
from tests.torture.simulation.network import Network, Notice

from ganger.actors.ganeti.peers import Peer
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport.ganeti import luxi
from ganger.transport.messages import JobSpec

if TYPE_CHECKING:
    from tests.torture.simulation.user import User

    from ganger.actors.queue.job_queue import JobQueue

PATIENCE_SECONDS = 180.0
"""How long Ganeti's client library waits for an answer."""
RETRY_SECONDS = 0.5
FORGOTTEN = {"GenericError", "JobLost", "OpPrereqError", "JobQueueError"}
"""Exceptions after which a request is not, or not again, served."""


class Link:
    """A connection: documents on their way to the daemon, and back."""

    def __init__(self, documents: Documents, number: int, pid: int) -> None:
        self.core = documents.core
        self.documents = documents
        self.number = number
        self.pid = pid
        self.is_busy = False
        self._up: deque[tuple[float, bytes | None]] = deque()
        self._down: deque[tuple[float, bytes | None]] = deque()

    def send(self, document: bytes | None) -> None:
        """Send a document; None: close the connection."""
        when = self._later(self._up)
        self._up.append((when, document))
        self.documents.notice.arrive(when)

    def answer(self, document: bytes | None) -> None:
        """What the daemon sends; None: it has closed the connection."""
        self._down.append((self._later(self._down), document))

    def arrived(self) -> list[bytes | None]:
        """What has come to the daemon."""
        return self._take(self._up)

    def take(self) -> list[bytes | None]:
        """What has come to the client."""
        return self._take(self._down)

    def due(self) -> float:
        """When something is there for the client."""
        return self._down[0][0] if self._down else math.inf

    def _later(self, line: deque[tuple[float, bytes | None]]) -> float:
        return max(line[-1][0] if line else 0.0, self.core.clock.now + self.core.delay())

    def _take(self, line: deque[tuple[float, bytes | None]]) -> list[bytes | None]:
        found = []
        while line and line[0][0] <= self.core.clock.now:
            found.append(line.popleft()[1])
        return found


class Documents:
    """Stands for the socket of LUXI (`DocumentSocket`): one document of a connection at a time."""

    file = None

    def __init__(
        self,
        runtime: Any,
        _path: object,
        serve: Callable[[int, bytes], None],
        *,
        ended: Callable[[int], None],
        **_: object,
    ) -> None:
        self.core = Core.active
        assert self.core.current is not None
        self.notice = Notice(self.core, self.core.current.program)
        self.links: dict[int, Link] = {}
        self._runtime = runtime
        self._serve = serve
        self._ended = ended
        self._numbers = 0
        self.core.current.program.closers.append(self.close)

    def open(self, _mode: int, _group: int | None = None) -> None:
        """Let clients in."""
        network = Network.of(self.core)
        if network.documents is not self:
            network.documents = self
            self._runtime.watch(self.notice.number)

    def close(self) -> None:
        """End all connections."""
        network = Network.of(self.core)
        if network.documents is self:
            network.documents = None
        for link in self.links.values():
            link.answer(None)
        self.links.clear()
        self.notice.close()

    def join(self, pid: int) -> Link:
        """A client connects."""
        self._numbers += 1
        self.links[self._numbers] = link = Link(self, self._numbers, pid)
        return link

    @property
    def needs_looks(self) -> bool:
        return bool(self.links)

    def end_stalled(self) -> list[int]:
        return []

    def readable(self, _descriptors: Iterable[int]) -> None:
        self.notice.report()
        for link in list(self.links.values()):
            for document in link.arrived():
                if document is None:
                    del self.links[link.number]
                    if link.is_busy:
                        self._ended(link.number)
                elif link.is_busy:
                    self.core.problem("a tool has asked twice at once")
                else:
                    link.is_busy = True
                    self._serve(link.number, document)

    def reply(self, number: int, document: bytes, *, is_last: bool = False) -> None:
        link = self.links.get(number)
        if link is None:
            return
        self.core.fault_point()
        if not link.is_busy:
            self.core.problem(f"an answer that no tool has asked for: {document!r:.80}")
        link.is_busy = False
        link.answer(document)
        if is_last:
            link.answer(None)
            del self.links[number]

    def peer(self, number: int) -> Peer | None:
        link = self.links.get(number)
        return None if link is None else Peer(link.pid, os.geteuid(), frozenset())


class Call:
    """A request, repeated until it is answered; ``is_once``: not when it may have been heard."""

    def __init__(
        self, method: str, args: list[Any], done: Callable[[Any], None], *, is_once: bool = False
    ) -> None:
        self.method = method
        self.args = args
        self.done = done
        self.is_once = is_once
        self.link: Link | None = None
        self.until = -math.inf
        """Until when it waits for its answer, or before it asks."""

    def document(self) -> bytes:
        return json.dumps({"method": self.method, "args": self.args}).encode()


class Tools(Task):
    """Clients of LUXI."""

    def __init__(self, core: Core, user: User) -> None:
        super().__init__(core, "tools", Program(core, "tools"))
        self._user = user
        self._calls: list[Call] = []
        self._marks = 0
        self._unheard: dict[str, JobSpec] = {}
        """Jobs whose submission was not answered, by the comment of their first opcode."""
        self.answers = 0

    def due(self) -> float:
        return min((call.link.due() for call in self._calls if call.link), default=math.inf)

    def alarm(self) -> float:
        return min((call.until for call in self._calls), default=math.inf)

    def step(self) -> None:
        for call in list(self._calls):
            if call.link is None:
                self._send(call)
                continue
            for document in call.link.take():
                if document is None:
                    self._lose(call)
                else:
                    self._hear(call, document)
                break
            else:
                if call.until <= self.core.clock.now:
                    call.link.send(None)
                    self._lose(call)

    def _send(self, call: Call) -> None:
        now = self.core.clock.now
        if call.until > now:
            return
        documents: Documents | None = Network.of(self.core).documents
        call.until = now + RETRY_SECONDS
        if documents is not None:
            call.link = documents.join(self.program.pid)
            call.link.send(call.document())
            call.until = now + PATIENCE_SECONDS

    def _lose(self, call: Call) -> None:
        """The connection was lost, or brought nothing: the request may have been heard."""
        call.link = None
        call.until = self.core.clock.now + RETRY_SECONDS
        if call.is_once:
            self._calls.remove(call)

    def _hear(self, call: Call, document: bytes) -> None:
        assert call.link is not None
        call.link.send(None)
        found = json.loads(document.removesuffix(luxi.END))
        result = found["result"]
        self.core.note("tools", call.method, call.args, found)
        if found["success"]:
            self._calls.remove(call)
            self.answers += 1
            call.done(result)
        elif not (isinstance(result, list) and result[0] in FORGOTTEN):
            self.core.problem(f"{call.method} of a tool was answered with {result!r:.200}")
        elif result[0] == "GenericError":
            # A component was restarted: the outcome is unknown.
            self._lose(call)
        else:
            self._calls.remove(call)
            self._forget(call)

    def _forget(self, call: Call) -> None:
        if call.is_once:
            [[op]] = call.args
            del self._unheard[op["comment"]]

    def ask(
        self, method: str, *args: Any, done: Callable[[Any], None] = lambda _: None, **more: bool
    ) -> None:
        """Begin a request."""
        self._calls.append(Call(method, list(args), done, **more))

    # ------------------------------------------------------------ what they ask for

    def plan(self, seconds: float) -> None:
        """Put everything on the agenda, within so many seconds."""
        dice = self.core.dice
        for _ in range(self.core.character.tool_actions):
            self.core.later(dice.uniform(0.0, seconds), self.act)

    def act(self) -> None:
        """Ask for something."""
        dice, known = self.core.dice, sorted(self._user.acknowledged)
        if not known or dice.random() < 0.25:
            self._submit()
            return
        some = dice.choice(known)
        match dice.choice(("follow", "follow", "follow", "list", "cancel", "locks")):
            case "follow":
                self.follow(some)
            case "list":
                self.ask("QueryJobs", None, ["id", "status"])
            case "cancel":
                self.ask("CancelJob", some, dice.random() < 0.3)
            case "locks":
                self.ask("Query", "lock", ["name", "owner", "pending"], None)

    def _submit(self) -> None:
        spec = self._user.take_job()
        if spec is None:
            return
        self._marks += 1
        mark = f"tool-{self._marks}"
        op = {**spec.ops[0], "comment": mark, "reason": []}
        self._unheard[mark] = JobSpec(ops=[op])

        def done(job_id: int) -> None:
            self._user.note_answered(self._unheard.pop(mark), job_id)

        self.ask("SubmitJob", [op], done=done, is_once=True)

    def follow(self, job_id: int, before: list[str] | None = None, serial: int = 0) -> None:
        """Wait for one change after the other, until the job has ended."""

        def done(result: Any) -> None:
            values, log = result
            serials = [entry[0] for entry in log]
            if serials != sorted(set(serials)) or min(serials, default=serial + 1) <= serial:
                self.core.problem(f"after entry {serial} of job {job_id} came {serials}")
            if not JobStatus(values[0]).is_final:
                self.follow(job_id, values, max([serial, *serials]))

        seconds = self.core.dice.choice((1, 20, 60))
        self.ask("WaitForJobChange", job_id, ["status"], before, serial, seconds, done=done)

    # ------------------------------------------------------------ what the oracle asks

    def look_at_rest(self, queue: JobQueue) -> None:
        """No client sleeps while its job is not as it knows it."""
        for call in self._calls:
            is_heard = call.link is not None and call.link.documents is self._documents()
            if call.method != "WaitForJobChange" or not is_heard:
                continue
            job_id, _, before, serial, _ = call.args
            row = queue.store.table.find(job_id)
            if row is None or row.status.is_final or before != [row.status]:
                status = None if row is None else row.status
                self.core.problem(f"at rest a tool waits for job {job_id}, {before}: {status}")
            elif answers_of(queue).queries.state(row).has_log_after(serial):
                self.core.problem(f"at rest a tool waits for the log of job {job_id}")

    def _documents(self) -> Documents | None:
        found: Documents | None = Network.of(self.core).documents
        return found

    def look_at_end(self, queue: JobQueue) -> None:
        """Every request was answered, and jobs that nobody heard of are there once at most."""
        left = [(call.method, call.args) for call in self._calls]
        if left:
            self.core.problem(f"at the end tools wait for {left!r:.300}")
        there = {row.id for row in queue.store.table}
        there |= set(queue.store.ledger.directory.archived_ids())
        for job_id in sorted(there - self._user.acknowledged):
            job = jobs.decode_job(queue.store.reader.document(job_id).body)
            spec = self._unheard.pop(str(job.ops[0].input.get("comment")), None)
            if spec is not None:
                self._user.note_found(spec, job_id)
