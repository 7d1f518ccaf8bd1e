"""What must never be, in the world of hosts: it sees all machines at once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.torture.hosts.host import HostMachine, Task
    from tests.torture.hosts.hosts_world import HostsWorld
    from tests.torture.hosts.job import JobProcess

UNKNOWN = "it is not known whether "
NEVER = "its command never began"


class HostsOracle:
    """Knows which tasks have begun, what was told of them, and who has which lock."""

    def __init__(self, world: HostsWorld) -> None:
        self._world = world
        self.starts: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.doubled = self.lost = self.conflicting = 0
        self.locks: Any = None
        """The lock manager that lives, or lived last."""
        self.exempt: set[str] = set()
        """Keys of tasks for which an operator said that nobody waits."""
        self._tasks: dict[str, Task] = {}
        self._never: set[str] = set()

    def started(self, host: HostMachine, task: Task) -> None:
        """A task begins on a host."""
        self.starts[task.key] += 1
        self._tasks[task.key] = task
        self._world.agenda.note(f"{host.name}: task {task.key} begins")
        if self.starts[task.key] > 1:
            self.doubled += 1
            self._world.agenda.problem(f"{task.key} began {self.starts[task.key]} times")
        if task.key in self._never:
            self._world.agenda.problem(f"{task.key} began after it was told that it never did")
        self.look_at_locks()

    def look_at_locks(self) -> None:
        """Each living task has its locks, and nobody else has."""
        state = getattr(self.locks, "_state", None)
        if state is None:
            return
        held = {lock: owner for owner in state.owners() for lock, _ in state.list_locks(owner)}
        for process in self._world.master.jobs:
            task = self._tasks.get(process.task_key)
            if task is None or not task.is_alive or task.key in self.exempt:
                continue
            for lock, mode in process.locks:
                if mode == "exclusive" and held.get(lock) != process.owner:
                    self.conflicting += 1
                    text = f"{task.key} runs, and {lock} has {held.get(lock)}"
                    self._world.agenda.problem(text)
                    self.exempt.add(task.key)

    def told(self, process: JobProcess, text: str) -> None:
        """A job tells its end."""
        key = process.task_key
        task = self._tasks.get(key)
        self.ends[text.partition(":")[0]] += 1
        self._world.agenda.note(f"job {process.job_id} tells: {text}")
        if UNKNOWN in text:
            return
        if text == "success":
            if task is None or task.is_alive or str(task.status) != "success":
                self._world.agenda.problem(f"{key} succeeded, as its job says; it is {task}")
            elif process.output_bytes != task.data and not self._is_told_missing(process, task):
                sizes = f"{len(process.output_bytes)} bytes of {len(task.data)}"
                self._world.agenda.problem(f"{key}: {sizes} of output")
        elif text.startswith("the command was lost") and (task is None or task.is_alive):
            self._world.agenda.problem(f"{key} was lost, as its job says")

    def _is_told_missing(self, process: JobProcess, task: Task) -> bool:
        """Whether the job says how much a host has lost of the output with its directory."""
        missing = len(task.data) - len(process.output_bytes)
        return missing > 0 and any(f": {missing} byte" in text for text in process.logged)

    def freed(self, process: JobProcess, text: str) -> None:
        """The locks of a dead process are freed, for this reason."""
        key = process.task_key
        task = self._tasks.get(key)
        self._world.agenda.note(f"job {process.job_id} is rid of its task: {text}")
        if UNKNOWN in text:
            return
        if task is not None and task.is_alive and key not in self.exempt:
            self._world.agenda.problem(f"{key} runs: {text}")
        if text.startswith(NEVER):
            self._never.add(key)
            if self.starts[key]:
                self._world.agenda.problem(f"{key} has begun: {text}")

    def look_at_end(self) -> None:
        """All is over: every job has ended, and no lock is held."""
        for process in self._world.master.jobs:
            if not process.told:
                self.lost += 1
                self._world.agenda.problem(f"job {process.job_id} has no end")
        held = [owner.identifier for owner in self.locks._state.owners()]
        if held:
            self._world.agenda.problem(f"jobs {held} hold locks for ever")
        for key, task in self._tasks.items():
            if task.is_alive and key not in self.exempt:
                self._world.agenda.problem(f"{key} runs for ever")
