"""A host: the real link to the master, and a model of the queue behind it with its tasks.

The model promises what the real queue does and no more: a job is on disk before it is answered, a
key is known while its job lives, and a name for ever. Tasks are processes of their own: they go on
while no daemon runs.
"""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any

from tests.torture.hosts.side import Side

from ganger.actors.nodes.node_link import NodeLink
from ganger.storage import errors
from ganger.storage.jobs import jobs, outcomes
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.jobs.outcomes import Ending, Outcome
from ganger.storage.nodes import begun_tasks, membership, seals
from ganger.storage.queue_files.output_blocks import Packer, Segment
from ganger.transport import messages

if TYPE_CHECKING:
    from pathlib import Path

    from tests.torture.hosts.hosts_world import HostsWorld

    from ganger.transport.envelopes import Envelope

ARCHIVED_AFTER_SECONDS = 5.0
MISSED_CHANCE = 0.1
"""How likely a kill does not reach its job."""


class Task:
    """A job of the host's queue, as it is on its disk; ``is_alive``: its process runs."""

    def __init__(self, number: int, key: str, argv: list[str]) -> None:
        self.id = number
        self.key = key
        self.seconds, self.size = float(argv[1]), int(argv[2])
        self.status = JobStatus.RUNNING
        self.outcome: Ending | None = None
        self.is_alive = False
        self.is_archived = False
        self.file = b""

    @property
    def data(self) -> bytes:
        """What its command prints."""
        return f"{self.key} ".encode() * self.size

    def document(self) -> messages.JobDocument:
        result: Any = {"stdout_bytes": len(self.data), "stderr_bytes": 0, "truncated": False}
        if self.status is JobStatus.ERROR:
            result = ["OpExecError", ["killed on request"]]
        entry = jobs.OpcodeEntry(input={"OP_ID": "OP_EXEC"}, status=self.status, result=result)
        job = jobs.Job(id=self.id, ops=[entry])
        if self.outcome is not None:
            outcomes.note(job, self.outcome)
        return messages.JobDocument(id=self.id, body=jobs.encode_job(job))


class HostMachine:
    """A machine with a node daemon, or without one for a while."""

    def __init__(self, world: HostsWorld, root: Path, name: str, key: str) -> None:
        self.world = world
        self.agenda = world.agenda
        self.name = name
        self.key = key
        self.side = Side(world.agenda, root)
        self.tasks: dict[int, Task] = {}
        self.forgotten: list[Task] = []
        """Those that an older copy of the data directory does not know."""
        self.last_id = 0
        self.is_up = False
        self.run = 0
        self._watches: dict[int, list[Envelope]] = {}
        self._waits: list[tuple[Envelope, Any]] = []
        found = membership.Membership(
            cluster="c",
            cluster_name="cluster",
            name=name,
            endpoints=["tcp://10.0.0.1:7611"],
            server="server",
            public=key,
            secret="s",
            directory=f"directory of {name}",
        )
        for folder in (self.side.places.data, self.side.places.run):
            folder.mkdir(exist_ok=True, parents=True)
        membership.write(self.side.places, found)
        world.network.sides[key] = self.side

    # The daemon.

    def start(self) -> None:
        """The node daemon starts: it takes the tasks over."""
        if self.is_up:
            return
        self.is_up = True
        self.run += 1
        self.agenda.note(f"{self.name}: the daemon starts")
        self.side.models = {"job_queue": self.take, "output_reader": self.take}
        for task in self.tasks.values():
            if task.status is JobStatus.RUNNING and not task.is_alive:
                self._lose(task)
        self.side.begin(NodeLink)

    def kill(self) -> None:
        """The node daemon dies; tasks go on."""
        self.is_up = False
        self.side.models = {}
        self._watches.clear()
        self._waits.clear()
        self.side.kill("node_link")

    def lose_all(self) -> None:
        """All processes end, and the daemon is not there."""
        self.kill()
        for task in (*self.tasks.values(), *self.forgotten):
            task.is_alive = False

    def reboot(self) -> None:
        """Of what is in memory nothing is left."""
        self.lose_all()
        begun_tasks.path_of(self.side.places).unlink(missing_ok=True)

    def copy(self) -> dict[str, Any]:
        """A copy of the data directory."""
        path = seals.path_of(self.side.places.data)
        seal = path.read_bytes() if path.exists() else None
        return {"tasks": copy.deepcopy(self.tasks), "last_id": self.last_id, "seal": seal}

    def put_back(self, kept: dict[str, Any]) -> None:
        """The data directory is as it was, while no daemon runs.

        What the copy does not know runs on. The rest ends: nobody promises anything else of a
        command that runs while its lock file is replaced.
        """
        assert not self.is_up
        known = {task.key for task in kept["tasks"].values()}
        self.forgotten = [*self.forgotten, *self.living()]
        for task in self.forgotten:
            task.is_alive = task.is_alive and task.key not in known
        kept = copy.deepcopy(kept)
        self.tasks, self.last_id = kept["tasks"], kept["last_id"]
        for task in self.living():
            task.is_alive = False
        if kept["seal"] is not None:
            seals.path_of(self.side.places.data).write_bytes(kept["seal"])
        self.agenda.note(f"{self.name} has an old directory, with {len(self.tasks)} tasks")

    def living(self) -> list[Task]:
        return [task for task in self.tasks.values() if task.is_alive]

    # Tasks.

    def _commit(self, run: int, envelope: Envelope) -> None:
        """The job is on disk: it is answered, and starts."""
        if run != self.run or not self.is_up:
            return
        message = envelope.message
        assert isinstance(message, messages.SubmitJobs)
        [spec] = message.jobs
        for task in self.tasks.values():
            if task.key == message.key and not task.is_archived:
                envelope.reply(messages.JobsSubmitted(ids=[task.id], is_repeat=True))
                return
        self.last_id += 1
        made = Task(self.last_id, str(message.key), spec.ops[0]["argv"])
        self.tasks[made.id] = made
        made.is_alive = True
        assert message.submitter is not None
        if why := begun_tasks.note(self.side.places, made.id, message.submitter.era):
            self.agenda.problem(f"{self.name}: the task {made.id} may not begin: {why}")
        self.world.oracle.started(self, made)
        self.agenda.later(made.seconds, functools.partial(self._finish, made))
        self.agenda.later(made.seconds / 2, functools.partial(self._print, made, 0.5))
        envelope.reply(messages.JobsSubmitted(ids=[made.id]))

    def _print(self, task: Task, share: float) -> None:
        if task.is_alive:
            part = task.data[: int(len(task.data) * share)]
            done = len(task.file) and len(task.data) // 2
            if part[done:]:
                segment = Segment(1, part[done:])
                task.file += Packer().pack(0, [segment], len(task.file))
            self._look()

    def _finish(self, task: Task) -> None:
        if task.is_alive:
            self._print(task, 1.0)
            self._end(task, JobStatus.SUCCESS, None)

    def _lose(self, task: Task) -> None:
        ending = Ending(Outcome.LOST, "its process ended without a result")
        self._end(task, JobStatus.ERROR, ending)

    def kill_task(self, task: Task) -> None:
        """The process of the task is killed."""
        if task.is_alive:
            task.is_alive = False
            if self.is_up:
                self._lose(task)

    def _end(self, task: Task, status: JobStatus, ending: Ending | None) -> None:
        task.is_alive = False
        task.status, task.outcome = status, ending
        self.agenda.note(f"{self.name}: task {task.key} ends: {status}")
        for envelope in self._watches.pop(task.id, []):
            envelope.reply(messages.WatchEnded())
        self._look()
        self.agenda.later(ARCHIVED_AFTER_SECONDS, lambda: setattr(task, "is_archived", True))

    # What the link asks.

    def take(self, envelope: Envelope) -> None:
        message = envelope.message
        match message:
            case messages.ReadLastId():
                envelope.reply(messages.LastId(last_id=self.last_id))
            case messages.FindJobs():
                found = [task.id for task in self.tasks.values() if task.key in message.names]
                envelope.reply(messages.JobsFound(found=[found]))
            case messages.SubmitJobs():
                self.agenda.soon(functools.partial(self._commit, self.run, envelope))
            case messages.PeerGone():
                self._watches.clear()
                self._waits = [one for one in self._waits if not one[0].peer]
            case messages.CancelJob():
                self._cancel(envelope, self._known(envelope, message.id))
            case messages.WatchJobs():
                self._watch(envelope, message)
            case messages.ReadJob():
                if (task := self._known(envelope, message.id)) is not None:
                    envelope.reply(task.document())
            case messages.AwaitJobChange() | messages.ReadOutput():
                self._wait(envelope)
            case _:
                self.agenda.problem(f"{self.name}: the model does not know {message}")

    def _known(self, envelope: Envelope, number: int) -> Task | None:
        task = self.tasks.get(number)
        if task is None:
            envelope.refuse(errors.UnknownJobError(f"there is no job {number}"))
        return task

    def _watch(self, envelope: Envelope, message: messages.WatchJobs) -> None:
        assert message.ids is not None
        task = self._known(envelope, message.ids[0])
        if task is None:
            return
        if task.status.is_final:
            envelope.reply(messages.WatchEnded())
        else:
            self._watches.setdefault(task.id, []).append(envelope)

    def _cancel(self, envelope: Envelope, task: Task | None) -> None:
        if task is None:
            return
        accepted = not task.status.is_final and self.agenda.dice.random() >= MISSED_CHANCE
        envelope.reply(messages.CancelOutcome(accepted=accepted, text=""))
        if accepted:
            self.agenda.later(self.agenda.dice.random(), functools.partial(self._killed, task))

    def _killed(self, task: Task) -> None:
        if task.is_alive:
            self._end(task, JobStatus.ERROR, Ending(Outcome.KILLED, ""))

    def _wait(self, envelope: Envelope) -> None:
        message: Any = envelope.message
        if self._known(envelope, message.id) is None:
            return
        if isinstance(message, messages.AwaitJobChange):
            seconds = message.seconds
        else:
            seconds = message.wait_seconds
        entry = envelope, message
        self._waits.append(entry)
        self._look()
        run = self.run

        def due() -> None:
            if run == self.run and entry in self._waits:
                self._look(entry)

        self.agenda.later(seconds, due)

    def _look(self, due: tuple[Envelope, Any] | None = None) -> None:
        """Answer those who have waited for this, or long enough."""
        for entry in list(self._waits):
            envelope, message = entry
            task = self.tasks[message.id]
            reply: messages.Message | None = None
            if isinstance(message, messages.ReadOutput):
                data = task.file[message.offset :]
                if data or entry is due or not message.wait_seconds:
                    reply = messages.OutputPage(data=data, size=len(task.file))
            elif task.is_archived:
                self._waits.remove(entry)
                envelope.refuse(errors.ArchivedJobError())
                continue
            elif task.status.is_final or message.values is None or entry is due:
                is_final = task.status.is_final
                reply = messages.JobAwaited(values=b"[]", log=b"[]", is_final=is_final)
            if reply is not None:
                self._waits.remove(entry)
                envelope.reply(reply)
