"""The master: the real hub, lock manager and reaper, and models of what stands around them."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.torture.hosts.job import JobProcess
from tests.torture.hosts.side import Side

from ganger.actors.execution.reaper import Reaper
from ganger.actors.locks.lock_manager import LockManager
from ganger.actors.nodes.node_hub import NodeHub
from ganger.actors.runtime.component import Component
from ganger.actors.store import recovery
from ganger.actors.store.loaded import Loaded
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.nodes import host_table, task_marks
from ganger.storage.nodes.host_table import HostRecord
from ganger.transport import messages
from ganger.transport.envelopes import Envelope

if TYPE_CHECKING:
    from tests.torture.hosts.hosts_world import HostsWorld

COMPONENTS = ("lock_manager", "node_hub", "executor")


class _ToldReaper(Reaper):
    """Tells the master why a task does not hold the locks of its process any more."""

    def __init__(self, executor: TaskExecutor, tell: Any) -> None:
        nobody: Any = {}
        super().__init__(executor.runtime, nobody, nobody, nobody)
        self._tell = tell

    def _tasks_ended(self, lock_file: str, text: str) -> None:
        self._tell(lock_file, text)
        super()._tasks_ended(lock_file, text)


class TaskExecutor(Component[Any]):
    """What the executor does about the tasks of dead processes."""

    name = "executor"

    def boot(self) -> None:
        """Find them."""
        master: Master = self.runtime.host.directory.master  # type: ignore[attr-defined]
        self.reaper = _ToldReaper(self, master.note_task_ended)
        for process in master.jobs:
            if process.lock_file and not process.is_alive:
                self.forget_dead(process)
        self.reaper.end_tasks_of_gone()

    def forget_dead(self, process: JobProcess) -> None:
        """As `Reaper.forget_dead`, for a process that left nothing else behind."""
        if task_marks.is_marked(process.lock_file):
            self.reaper.end_tasks(process.lock_file)
        else:
            ended = messages.OwnerEnded(lock_file=process.lock_file)
            self.runtime.host.directory.tell("lock_manager", Envelope(ended))
            master: Master = self.runtime.host.directory.master  # type: ignore[attr-defined]
            master.note_lost(process, "")

    def receive(self, envelope: Envelope[Any]) -> None:
        """A task is to be looked at again."""
        assert isinstance(envelope.message, messages.LeftTaskDue)
        self.reaper.end_tasks(envelope.message.lock_file)


class _MasterSide(Side):
    master: Master


class Master:
    """The machine with the queue, its jobs and their processes."""

    def __init__(self, world: HostsWorld, root: Path) -> None:
        self.world = world
        self.side = _MasterSide(world.agenda, root)
        self.side.master = self
        self.jobs: list[JobProcess] = []
        self.living: set[str] = set()
        self.flushed: set[str] = set()
        """Lock files of processes whose marks outlive a loss of power."""
        self.boot = "b1"
        self.is_up = False
        self._boots = 1

    def write_table(self, hosts: dict[str, str]) -> None:
        """The hosts that have joined, each with its key."""
        records = {
            name: HostRecord(name=name, key=key, directory=f"directory of {name}", joined=1.0)
            for name, key in hosts.items()
        }
        table = host_table.HostTable(endpoint="tcp://0.0.0.0:7611", hosts=records)
        host_table.write(self.side.places.hosts, table)

    # The daemon.

    def start(self) -> None:
        """The daemon starts; processes of jobs attach to it."""
        if self.is_up:
            return
        self.is_up = True
        self.world.agenda.note("the master starts")
        self.side.models = {"config_store": self._configured, "job_queue": lambda _: None}
        locks = self.side.begin(LockManager)
        self.world.oracle.locks = locks
        self._recover()
        self.start_hub()
        self.side.begin(TaskExecutor)
        for process in self.jobs:
            if process.is_alive:
                process.resend("lock_manager")
            elif not process.told and process.job.ops[0].status is JobStatus.QUEUED:
                self.world.agenda.soon(functools.partial(self._begin, process))

    def _recover(self) -> None:
        """What the queue does as it reads the files of jobs."""
        loaded = Loaded()
        for process in self.jobs:
            job = process.job
            is_final = job.status.is_final
            if not is_final and job.livelock and not process.is_alive:
                recovery._marks_again(job, loaded)
        if loaded.has_marked:
            # No job begins before the reply; here the mailbox has it first.
            self.side.tell("lock_manager", Envelope(messages.TakeLocksOfTasks()))

    def start_hub(self) -> None:
        self.side.begin(NodeHub)
        for process in self.jobs:
            if process.is_alive:
                process.resend("node_hub")

    def kill(self) -> None:
        """The daemon dies; processes of jobs go on."""
        self.is_up = False
        self.side.models = {}
        self.side.kill(*COMPONENTS)

    def lose_power(self, *, loses_all: bool = False) -> None:
        """Everything ends; of what was not flushed anything may be left, or nothing."""
        self.kill()
        for process in self.jobs:
            process.kill()
        self._boots += 1
        self.boot = f"b{self._boots}"
        places, dice = self.side.places, self.world.agenda.dice
        beside = places.hosts.with_name
        unflushed = [places.locks, places.lock_journal, beside("seen.json"), beside("silent.json")]
        for path in unflushed:
            if loses_all or dice.random() < 0.7:
                path.unlink(missing_ok=True)
        for lock_file in list(task_marks.lock_files_in(places.lock_files)):
            path = Path(task_marks.path_of(lock_file))
            if lock_file not in self.flushed and (loses_all or dice.random() < 0.6):
                if dice.random() < 0.5:
                    path.unlink()
                else:
                    path.write_bytes(b"")

    # Jobs.

    def submit(self, fields: dict[str, Any]) -> JobProcess:
        process = JobProcess(self, fields, len(self.jobs) + 1)
        self.jobs.append(process)
        if self.is_up:
            self.world.agenda.soon(functools.partial(self._begin, process))
        return process

    def _begin(self, process: JobProcess) -> None:
        if self.is_up and not process.is_alive and not process.told:
            process.begin()

    def note_left(self, process: JobProcess) -> None:
        """It has ended its job in order."""
        self.world.agenda.soon(functools.partial(self._found_dead, process))

    def kill_job(self, process: JobProcess) -> None:
        """Kill its process."""
        self.world.agenda.note(f"job {process.job_id}: its process is killed")
        process.kill()
        self.world.agenda.soon(functools.partial(self._found_dead, process))

    def _found_dead(self, process: JobProcess) -> None:
        executor: Any = self.side.actors.get("executor")
        if executor is not None and hasattr(executor.component, "reaper") and not process.is_alive:
            executor.component.forget_dead(process)

    def note_task_ended(self, lock_file: str, text: str) -> None:
        for process in self.jobs:
            if process.lock_file == lock_file:
                self.note_lost(process, text)
                self.world.oracle.freed(process, text)

    def note_lost(self, process: JobProcess, text: str) -> None:
        """A process died in the middle of its job: that ends, or begins anew if it had not."""
        if process.told or process.is_alive:
            return
        if process.job.ops[0].status is JobStatus.RUNNING:
            process.job.ops[0].status = JobStatus.ERROR
            process.told = f"lost; {text}"
        else:
            self.world.agenda.soon(functools.partial(self._begin, process))

    def forget_peer(self, peer: bytes) -> None:
        gone = Envelope(messages.PeerGone(peer=peer))
        self.world.agenda.soon(functools.partial(self.side.tell, "node_hub", gone))

    def _configured(self, envelope: Envelope) -> None:
        match envelope.message:
            case messages.ReadObjects():
                found = {"uuid": "c", "cluster_name": "cluster", "name": "node"}
                envelope.reply(messages.ObjectsRead(serial_no=1, objects=[found]))

    def close(self) -> None:
        for process in self.jobs:
            process.kill()
        self.side.close()
        with contextlib.suppress(OSError):
            shutil.rmtree(os.path.dirname(self.side.places.data))
