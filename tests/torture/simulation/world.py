"""A simulated world: the real components and jobs, on one thread, under a seed.

How it works. Everything that the daemon and its jobs consist of is the real code: the
supervisor with all its components, the job actor with its link, the client's session, the
files. Replaced (`patches`) is what they stand on: threads, clocks and timers, socket
pairs and ZeroMQ, fork servers, pidfds. `World.run` lets one task after the other take a step,
chosen by the dice among those for which something is there; each step takes a little virtual
time. When nothing is on its way the world is at rest: the oracle looks at it, and the clock
goes on to the next time limit.

Faults come while a task takes its step, at any of the points where something is seen from
outside: a message, a file, a lock. `World.play` is one whole case: a user's wishes and faults
together (only what must never be is judged), then the faults end and everything must drain.
"""

from __future__ import annotations

import functools
import io
import math
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.actors.config.appending import append_drafts
from tests.torture.kills import workload
from tests.torture.simulation import simulated_daemon
from tests.torture.simulation.core import Character, Core, Killed, Task
from tests.torture.simulation.network import Network
from tests.torture.simulation.oracle import Oracle
from tests.torture.simulation.patches import simulated
from tests.torture.simulation.simulated_daemon import ActorTask, SimulatedDaemon
from tests.torture.simulation.simulated_processes import ForkServer, JobTask
from tests.torture.simulation.tools import Tools
from tests.torture.simulation.user import User

from ganger.actors.config.stored_configuration import Edit
from ganger.actors.queue.job_queue import JobQueue
from ganger.actors.runtime.addresses import CONFIG_STORE
from ganger.actors.runtime.component import Component
from ganger.storage import config_files, settings
from ganger.storage.cluster.configuration import Change
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.filters import rules
from ganger.transport.messages import ReportConfiguration

STEP_SECONDS = 0.0004
STEPS_MAX = 60_000
"""Steps after which a case counts as one that does not come to its end."""

HANG_SECONDS = 10.0
"""Virtual time after which a component that does nothing is noticed."""

DRAIN_SECONDS = 600.0
"""Virtual time within which everything must be at its end once the faults are over."""


class World(Core):
    """One case."""

    def __init__(self, character: Character, seed: str, folder: Path) -> None:
        super().__init__(character, random.Random(seed))
        self.places = simulated_daemon.make_folder(folder)
        self.oracle = Oracle(self)
        # A job that waits between two opcodes keeps its run slot, even from the job it waits for.
        self.slots = character.jobs if character.has_late_dependencies else character.slots
        self.slots_ever = self.slots
        self.daemon: SimulatedDaemon | None = None
        self.log = io.StringIO()
        self.steps = 0
        self.jumps: random.Random | None = None
        """Chooses when and how far the wall clock jumps, apart from all else; None: never."""
        self.places.data.mkdir()
        first = config_files.first_configuration("simulated", 0.0)
        first["cluster"]["max_running_jobs"] = self.slots
        first["cluster"]["predictive_queue"] = {"holds_back": character.holds_back}
        config_files.write(self.places.config, first)
        self.start_daemon()
        self.user = User(self)
        self.add(self.user)
        self.tools = Tools(self, self.user) if character.tool_actions else None
        if self.tools is not None:
            self.add(self.tools)

    # One case.

    def play(self) -> None:
        """Wishes and faults, then the time to drain, then the last look."""
        last = self.user.plan()
        if self.tools is not None:
            self.tools.plan(last)
        for _ in range(self.character.blows):
            self.later(self.dice.uniform(0.0, last), self._strike)
        end = self.clock.now + last + self.character.quiet_seconds
        self.later(last + self.character.quiet_seconds, self.end_faults)
        self.run(lambda: self.clock.now >= end)
        end = self.clock.now + DRAIN_SECONDS
        self.run(lambda: self.clock.now >= end)
        self.oracle.look_at_end()

    def end_faults(self) -> None:
        """From now on everything goes well, and nothing is held back."""
        self.has_faults = False
        for program in self.programs.values():
            program.is_stopped = False
        self.configure(slots=self.slots, insists=True)
        self.user.rules.clear()

    def run(self, is_over: Any) -> None:
        """Take steps until it is over, or nothing can ever happen any more."""
        while not is_over():
            if self.steps >= STEPS_MAX:
                self.problem(f"no end after {STEPS_MAX} steps")
                return
            if not self._advance():
                return

    def settle(self) -> None:
        """Go on until nothing is on its way; time limits do not run out."""
        while self._advance(goes_on=False):
            pass
        self.oracle.look_at_rest()

    def _advance(self, *, goes_on: bool = True, waits: bool = True) -> bool:
        """Do the next thing; False: there is none.

        At rest the clock goes on to the next time limit only if ``goes_on``, and while
        components have patience only if ``waits``.
        """
        now = self.clock.now
        ready, next_message, next_alarm = self._look_around(now)
        entry = self.next_entry()
        if entry <= now and (not ready or self.dice.random() < 0.3):
            self.run_entry()
            self._clear_up()
            return True
        if ready:
            self._take_step(self._choose(ready))
            return True
        if waits and next_message < min(entry, next_alarm):
            self.clock.now = next_message
            return True
        is_at_rest = math.isinf(next_message) and not self.entries["message"]
        if not goes_on and (is_at_rest or not waits):
            return False
        if is_at_rest:
            self.oracle.look_at_rest()
        moment = min(entry, next_alarm, next_message)
        if math.isinf(moment):
            return False
        self.clock.now = moment
        return True

    def _look_around(self, now: float) -> tuple[list[Task], float, float]:
        ready = []
        next_message = next_alarm = math.inf
        for task in self.tasks:
            if not task.is_able:
                continue
            due, alarm = task.due(), task.alarm()
            if due <= now or alarm <= now:
                ready.append(task)
            else:
                next_message = min(next_message, due)
                next_alarm = min(next_alarm, alarm)
        return ready, next_message, next_alarm

    def _choose(self, ready: list[Task]) -> Task:
        if len(ready) == 1:
            return ready[0]
        return self.dice.choices(ready, [task.weight for task in ready])[0]

    def _take_step(self, task: Task) -> None:
        self.steps += 1
        self.clock.now += self.dice.expovariate(1.0) * STEP_SECONDS
        if self.jumps is not None:
            self._jump(self.jumps)
        if self.has_faults:
            self._arm(task)
        # What was decided just now may have been its end.
        if task.is_able:
            self.current = task
            try:
                task.step()
            except Killed:
                pass
            finally:
                self.current = None
                task.fuse = None
        if isinstance(task, ActorTask) and isinstance(task.component, JobQueue):
            queue = task.daemon.component("job_queue") if task.program.is_alive else None
            if queue is not None:
                self.oracle.look_at(queue)
                self.oracle.releases.look_at_queue(queue)
        if isinstance(task, ActorTask) and task.name == "lock_manager" and task.program.is_alive:
            self.oracle.releases.look_at_locks(task)
        self._clear_up()

    def _clear_up(self) -> None:
        """What follows from the ends of programs."""
        for other in [one for one in self.tasks if not one.program.is_alive]:
            if isinstance(other, JobTask) and not other.is_over:
                self.current = other
                other.step()
                self.current = None
            if other in self.tasks:
                self.tasks.remove(other)
        daemon = self.daemon
        if daemon is not None and daemon.shutdown.is_over.is_set() and daemon.program.is_alive:
            daemon.die()
        if daemon is not None and not daemon.program.is_alive:
            self.daemon = None
            self.later(self.dice.choice((0.0, 0.1, 1.0, 8.0)), self.start_daemon, "restart")

    # What happens from outside.

    def start_daemon(self) -> None:
        """The daemon is started (again)."""
        self.note("daemon", "starts")
        self.daemon = SimulatedDaemon(self, self.places, self.log)

    def restart_daemon(self) -> None:
        """It dies, and its successor is there at once."""
        assert self.daemon is not None
        self.daemon.die()
        self.start_daemon()

    def jobs(self, job_id: int | None = None) -> list[JobTask]:
        """The processes of jobs that live, all or those of one."""
        found = [task for task in self.tasks if isinstance(task, JobTask)]
        return [task for task in found if job_id in (None, task.job_id)]

    def configure(
        self, *, slots: int, rules: list[dict[str, Any]] | None = None, insists: bool = False
    ) -> None:
        """Other limits, and rules if any are given, as the configuration store sends them."""
        daemon = self.daemon
        store = None if daemon is None else daemon.component("config_store")
        queue = None if daemon is None else daemon.component("job_queue")
        if store is None or queue is None or store._stored.is_storing:
            # The configuration does not change while a store reads it, or without the log.
            if insists:
                again = functools.partial(self.configure, slots=slots, rules=rules, insists=True)
                self.later(0.1, again)
            return
        if (queue.store.ledger.segments.changes.newest or 0) > store._stored._known:
            # The last change of its predecessor was still on its way as this one read the log.
            self.run_as(self._task_of(store).program, self._task_of(store).crash)
            self.later(
                0.1, functools.partial(self.configure, slots=slots, rules=rules, insists=insists)
            )
            return
        self.slots, self.slots_ever = slots, max(self.slots_ever, slots)
        stored = store._stored
        before = stored.snapshot
        limited = {**before.cluster, "max_running_jobs": slots}
        changes = [Change(ObjectKind.CLUSTER, before.cluster_uuid, limited)]
        if rules is not None:
            changes += [
                Change(ObjectKind.FILTER, uuid, None) for uuid in before.document["filters"]
            ]
            changes += [Change(ObjectKind.FILTER, rule["uuid"], rule) for rule in rules]
        stored.draft(Edit(changes, "the user", ""), self.clock.now)
        before_this, self.current = self.current, self._task_of(queue)
        try:
            append_drafts(stored, queue.store.change_log, queue.store.ledger)
        finally:
            self.current = before_this
        store._rules.load()
        store.runtime.tell(CONFIG_STORE, ReportConfiguration())

    def _task_of(self, component: Component) -> ActorTask:
        """The task that stands for the component."""
        [found] = [
            task
            for task in self.tasks
            if isinstance(task, ActorTask) and task.component is component
        ]
        return found

    def stored_rules(self) -> tuple[rules.FilterRule, ...]:
        """The filter rules that the configuration store has."""
        assert self.daemon is not None
        store = self.daemon.component("config_store")
        return tuple(store._rules.known.values())

    def _jump(self, dice: random.Random) -> None:
        if dice.random() < 0.01:
            self.injected["clock jumped"] += 1
            self.clock.offset += dice.choice((-1, 1)) * dice.choice((30.0, 1.0)) * 86_400

    # Faults.

    def _arm(self, task: Task) -> None:
        """Decide whether the task fails in its next step, and where."""
        dice, character = self.dice, self.character
        roll = dice.random()
        if isinstance(task, JobTask | ForkServer):
            if roll < character.job_chance:
                task.fuse = dice.randint(0, 4)
        elif isinstance(task, ActorTask):
            roll /= 10.0 if task.name == character.focus else 1.0
            if roll < character.crash_chance:
                task.fuse = dice.randint(0, 8)
            elif roll < character.crash_chance + character.daemon_chance:
                self._kill_daemon(task.daemon)
        if dice.random() < character.disturbance_chance:
            self._disturb()

    def _strike(self) -> None:
        """A fault out of the blue."""
        daemon, jobs = self.daemon, self.jobs()
        if not self.has_faults:
            return
        match self.dice.choice(("daemon", "job", "job", "other")):
            case "daemon" if daemon is not None and daemon.program.is_alive:
                self._kill_daemon(daemon)
            case "job" if jobs:
                self._kill_job(self.dice.choice(jobs))
            case _:
                self._disturb()

    def _kill_job(self, task: JobTask) -> None:
        self.injected["job killed"] += 1
        self.note(task.name, "is killed")
        task.program.end()

    def _kill_daemon(self, daemon: SimulatedDaemon) -> None:
        if self.dice.random() < 0.2:
            self.injected["daemon stopped"] += 1
            self.run_as(daemon.program, daemon.stop)
            return
        self.injected["daemon killed"] += 1
        daemon.die()

    def _disturb(self) -> None:  # noqa: PLR0912 - a table
        """Something else goes wrong, or changes."""
        dice = self.dice
        daemon, jobs = self.daemon, self.jobs()
        match dice.choice(
            (
                *("crash", "crash", "hang", "kill", "stop", "cut", "wire", "server", "configure"),
                "clean",
            )
        ):
            case "hang" if daemon is not None and daemon.program.is_alive:
                actor = dice.choice(list(daemon.actors.values()))
                if not actor.is_over and not actor.is_hung:
                    actor.hang(HANG_SECONDS)
            case "crash" if daemon is not None and daemon.program.is_alive:
                living = [task for task in daemon.actors.values() if not task.is_over]
                self.run_as(daemon.program, dice.choice(living).crash)
            case "kill" if jobs:
                self._kill_job(dice.choice(jobs))
            case "stop" if jobs:
                self._stop_for_a_while(dice.choice(jobs))
            case "cut" if jobs:
                self._cut_channel(dice.choice(jobs))
            case "wire":
                self.injected["connection lost"] += 1
                network = Network.of(self)
                network.cut(dice.choice(network.callers))
            case "server":
                for task in self.tasks:
                    if isinstance(task, ForkServer):
                        self.injected["fork server killed"] += 1
                        task.program.end()
            case "clean":
                self.injected["folders cleaned"] += 1
                self.note("somebody", "cleans the folders")
                workload.clean_folders(self.places)
            case "configure" if not self.character.has_late_dependencies:
                self.configure(slots=dice.randint(1, 4))
                self.user.rules.change()
            case _:
                pass

    def _stop_for_a_while(self, task: JobTask) -> None:
        self.injected["job stopped for a while"] += 1
        task.program.is_stopped = True

        def go_on() -> None:
            task.program.is_stopped = False

        self.later(self.dice.expovariate(0.2), go_on)

    def _cut_channel(self, task: JobTask) -> None:
        """As the daemon does with a channel whose other end does not read."""
        for handle in list(task.program.handles.values()):
            if hasattr(handle, "shutdown"):
                self.injected["channel cut"] += 1
                handle.shutdown(2)

    def end(self) -> None:
        """Nothing of it goes on."""
        self.has_faults = False
        if self.daemon is not None and self.daemon.program.is_alive:
            self.daemon.die()
        for program in list(self.programs.values()):
            program.end()
        for task in self.tasks:
            if isinstance(task, JobTask) and not task.is_over:
                self.current = task
                task.step()
        self.current = None


@contextmanager
def playground(folder: Path) -> Iterator[Path]:
    """A folder for many cases, in memory if there is such a place; the world is simulated."""
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() else folder
    root = Path(tempfile.mkdtemp(prefix="ganger-world-", dir=place))
    try:
        with simulated():
            yield root
    finally:
        shutil.rmtree(root)


@contextmanager
def world(character: Character, seed: str, root: Path) -> Iterator[World]:
    """One world; nothing is left of it afterwards."""
    settings.JOURNAL_SEGMENT_BYTES = character.segment_bytes
    # In every other world the compactor writes the files of new jobs when the queue rests.
    settings.FILES_UNWRITTEN_MAX = random.Random(f"files {seed}").choice((0, 1_000))
    folder = root / "case"
    folder.mkdir()
    made = World(character, seed, folder)
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(folder)
