"""Players of a task on a host: what the hub decides on the master, and what the host decides."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tests.transcripts.player import Command, Player

from ganger.actors.nodes.left_tasks import LeftTasks
from ganger.actors.nodes.node_calls import NodeCalls
from ganger.actors.nodes.task_ends import TaskEnds
from ganger.storage import errors
from ganger.storage.nodes.host_table import HostRecord, HostTable
from ganger.transport import messages
from ganger.transport.envelopes import Envelope

if TYPE_CHECKING:
    from ganger.actors.runtime.component import Runtime


class _Asker:
    """Tells what who has asked hears."""

    def __init__(self, name: str, told: list[str]) -> None:
        self._name = name
        self._told = told

    def tell(self, envelope: Envelope[Any]) -> None:
        match envelope.message:
            case messages.NodeSilent(since=since):
                text = "the node is silent" if since else "the node is back"
            case messages.TaskAnswered(frame=frame):
                text = f"answer {frame.decode()}"
            case messages.TasksEnded(text=why):
                text = f"the locks are free: {why}"
            case messages.TaskEndAwaited(text=what):
                text = f"waiting until {what}"
            case messages.Failure(text=why):
                text = f"refused: {why}"
        self._told.append(f"{self._name} hears: {text}")


class HubTasks(Player):
    """The hub and one node, web1, which joined at 100. Times are seconds."""

    def new(self, _: Command | None = None) -> str:
        self.told: list[str] = []
        self.is_there = True
        self.since = 50.0
        numbers = itertools.count(1)
        sending = self._say, lambda _: self.since, lambda: next(numbers)
        self.calls = NodeCalls(*sending, lambda _: 50.0 * self.is_there, lambda *_: None)
        self.left = LeftTasks(*sending)
        self.table = _table()
        return ""

    def _say(self, _: str, number: int, message: Any) -> bool:
        if self.is_there:
            what = "end the task" if isinstance(message, messages.EndTask) else "call"
            self.told.append(f"to web1: {what}, number {number}")
        return self.is_there

    def _said(self) -> str:
        told = "\n".join(self.told)
        # Askers have this list.
        self.told.clear()
        return told

    def call(self, command: Command) -> str:
        """A job's process calls; its opcode began then."""
        key = f"task-{command.words[0]}"
        if self.left.is_given_up(key):
            return f"job {command.words[0]} is refused: its process is dead"
        asked = messages.CallNode(command.id, "web1", b"", key, float(command.get("began", "120")))
        asker = _Asker(f"job {command.id}", self.told)
        self.calls.take(Envelope(asked, asker, 1, None, b"%d" % command.id), self.table)
        return self._said()

    def end(self, command: Command) -> str:
        """The executor asks for the end of the task that a dead process has left."""
        began = float(command.get("began", "120"))
        asked = messages.EndLeftTask(f"lock-{command.id}", "web1", f"task-{command.id}", began)
        asker = _Asker("the executor", self.told)
        self.left.take(Envelope(asked, asker, 1), self.table)
        return self._said()

    def answers(self, command: Command) -> str:
        """The node answers a call."""
        answered = messages.TaskAnswered(command.words[1].encode())
        self.calls.take_answer(command.id, "web1", answered)
        return self._said()

    def ended(self, command: Command) -> str:
        """The node says that a task has ended: killed, by-itself or never-began."""
        how = command.words[1]
        said = messages.LeftTaskEnded(existed=how != "never-began", was_killed=how == "killed")
        self.left.take_end(command.id, "web1", said, self.table)
        return self._said()

    def silent(self, _: Command) -> str:
        """The node's connection has ended."""
        self.is_there = False
        self.calls.note_silence("web1")
        self.left.note_silence("web1")
        return self._said()

    def back(self, _: Command) -> str:
        """The node has called."""
        self.is_there = True
        return self._look()

    def record(self, command: Command) -> str:
        """The node's record changes: when it joined, or until when its tasks are forgotten."""
        fields = {name: float(value) for name, value in command.pairs}
        self.table = _table(**fields) if fields else HostTable(endpoint="")
        return self._look()

    def dies(self, command: Command) -> str:
        """A job's process is gone."""
        self.calls.forget_caller(b"%d" % command.id)
        return self._said()

    def _look(self) -> str:
        self.calls.look_again("web1", self.table)
        self.left.look_again("web1", self.table)
        return self._said()


def _table(**fields: float) -> HostTable:
    found: dict[str, Any] = {"joined": 100.0, **fields}
    record = HostRecord(name="web1", key="k", **found)
    return HostTable(endpoint="", hosts={"web1": record})


class HostTasks(Player):
    """A host that is to end tasks. Each ``queue`` is the answer to the oldest question."""

    def new(self, _: Command | None = None) -> str:
        self.told: list[str] = []
        self.asked: list[tuple[Any, Any]] = []
        stands_for: Any = self
        runtime: Runtime = stands_for
        self.ends = TaskEnds(runtime, self._say)
        return ""

    def _say(self, message: messages.LeftTaskEnded, number: int) -> None:
        how = "killed" if message.was_killed else "by itself"
        what = f"it has ended, {how}" if message.existed else "it never began"
        self.told.append(f"to the master, number {number}: {what}")

    def ask(self, _: object, request: Any, then: Any, otherwise: Any) -> None:
        """Stands for the runtime."""
        asks: dict[Any, str] = {
            messages.FindJobs: "which job has the key?",
            messages.CancelJob: "kill the job",
            messages.AwaitJobChange: "has the job ended?",
        }
        self.asked.append((then, otherwise))
        self.told.append(f"to the queue: {asks[type(request)]}")

    def later(self, _: float, due: messages.TaskEndDue) -> None:
        """Stands for the runtime."""
        self.told.append(f"later: look for {due.key} again")

    def _said(self) -> str:
        told, self.told = self.told, []
        return "\n".join(told)

    def end(self, command: Command) -> str:
        """The master asks for the end of a task, under a number."""
        self.ends.end(command.words[0], int(command.words[1]))
        return self._said()

    def comes(self, command: Command) -> str:
        """A submission with this key comes, and goes to the queue under a handle."""
        self.ends.note_submission(command.words[0], int(command.words[1]))
        return self._said() or "it goes to the queue"

    def answered(self, command: Command) -> str:
        """The queue has answered the submission with this handle."""
        self.ends.note_answer(command.id)
        return self._said()

    def again(self, command: Command) -> str:
        """It is time to look for a key again."""
        self.ends.look_again(command.words[0])
        return self._said()

    def replaced(self, _: Command) -> str:
        """The queue was replaced."""
        self.ends.forget_submissions()
        return self._said()

    def queue(self, command: Command) -> str:
        """The queue answers."""
        then, otherwise = self.asked.pop(0)
        match command.words[0]:
            case "found":
                then(messages.JobsFound(found=[command.ids_behind]))
            case "kills" | "cannot" as word:
                then(messages.CancelOutcome(accepted=word == "kills", text=""))
            case "final" | "runs" as word:
                final = word == "final"
                then(messages.JobAwaited(values=b"[]", log=b"[]", is_final=final))
            case "archived":
                otherwise(errors.ArchivedJobError())
            case "busy":
                otherwise(errors.DeadlineError())
        return self._said()
