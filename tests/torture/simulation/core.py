"""What everything in the simulated world stands on: clock, dice, programs, descriptors, faults.

One thread of control at a time. A *task* is something that takes steps: an actor, a job's
process, a fork server, a client. A *program* is what a system would call a process: it owns
descriptors and lock files, and it can be killed. `World` (in `world`) chooses who takes the
next step; here is what the tasks share.
"""

from __future__ import annotations

import heapq
import math
import os
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import msgspec

from ganger.storage.alive import lock_files
from ganger.storage.alive.process_identity import ProcessIdentity

NUMBERS_FROM = 1_000_000
"""Descriptors of the simulated world have numbers that no real one has."""

Kind = Literal["action", "message", "restart"]
"""Of an entry on the agenda: done from outside, on its way, or the time limit of a component."""

START = 1_000.0
EPOCH = 1_700_000_000.0


class Killed(BaseException):
    """The program of the task that runs was killed: nothing more may happen in it."""


class Character(msgspec.Struct, frozen=True, kw_only=True):
    """What kind of world it is. Chances are per step of a task, times in virtual seconds.

    ``is_causal``: each mailbox is one line, as within one process; otherwise what goes to and
    from components that could live in another process may overtake what others say.
    """

    is_causal: bool
    delay_seconds: float
    slow_chance: float
    jobs: int
    actions: int
    slots: int
    has_late_dependencies: bool
    """Whether later opcodes wait for other jobs; then there are run slots for all."""
    segment_bytes: int
    crash_chance: float
    daemon_chance: float
    job_chance: float
    disturbance_chance: float
    blows: int
    """How many faults come at moments that have nothing to do with steps."""
    wall_pace: float
    """How fast the wall clock goes: a slow one gives many things the same time."""
    focus: str
    """The component that fails ten times as often as the others; "" for none."""
    quiet_seconds: float
    """How long faults go on after the last action."""
    has_large_jobs: bool = False
    """Whether some opcodes read much, and some states are too large for the journal."""
    repeat_chance: float = 0.0
    """How likely a message comes twice, if it may (`repeating`)."""
    has_tag_jobs: bool = False
    """Whether each job also sets a tag of the cluster, and removes it in the end."""
    reuses_processes: bool = False
    """Whether a process that has ended a job well takes another one."""
    holds_back: bool = False
    """Whether jobs that are certain to wait for locks get no run slot."""
    has_alike_jobs: bool = False
    """Whether most jobs differ in nothing but ids, and some rules do not look at these."""
    has_waiters: bool = False
    """Whether clients wait for each change of each job."""
    tool_actions: int = 0
    """How many requests come in at LUXI's socket; 0: there is none."""
    purges: int = 0
    """How often a user has jobs purged."""


CALM = Character(
    is_causal=True,
    delay_seconds=0.0,
    slow_chance=0.0,
    jobs=0,
    actions=0,
    slots=1,
    has_late_dependencies=False,
    segment_bytes=1_000_000,
    crash_chance=0.0,
    daemon_chance=0.0,
    job_chance=0.0,
    disturbance_chance=0.0,
    blows=0,
    wall_pace=1.0,
    focus="",
    quiet_seconds=0.0,
)
"""A world in which nothing goes wrong by itself."""


class VirtualClock:
    """Virtual time: seconds that never go back, and a wall clock that may jump."""

    def __init__(self, wall_pace: float) -> None:
        self.now = START
        self.offset = EPOCH
        self._wall_pace = wall_pace

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return int(self.now * 1e9)

    def time(self) -> float:
        return (self.now - START) * self._wall_pace + self.offset

    def time_ns(self) -> int:
        return int(self.time() * 1e9)


class Program:
    """A process as the system knows it."""

    def __init__(self, core: Core, name: str) -> None:
        self.core = core
        self.name = name
        self.pid = core.free_pid()
        self.mark = core.new_mark(self.pid)
        self.is_alive = True
        self.is_stopped = False
        self.ended_at = math.inf
        self.handles: dict[int, Handle] = {}
        self.lock_files: list[lock_files.LockFile] = []
        self.closers: list[Callable[[], None]] = []
        self.owner: object = None
        self.shown_job: int | None = None
        """The job that it says to serve; 0: none; None: that for which it was made."""
        self.said_at = 0.0
        """When the last of its messages arrives; 0: it has sent none."""
        core.programs[self.pid] = self

    def end(self) -> None:
        """It is gone, in whatever way: the system closes and unlocks what it had."""
        if not self.is_alive:
            return
        self.is_alive = False
        # What it had said lies where its end is noticed, so it is there first.
        self.ended_at = max(self.said_at, self.core.clock.now + self.core.delay())
        del self.core.programs[self.pid]
        for held in self.lock_files:
            os.close(lock_files.own_files.pop(held.path))
        self.lock_files.clear()
        for closer in self.closers:
            closer()
        for handle in list(self.handles.values()):
            handle.close()


class Task:
    """Something that takes steps. ``fuse``: fault points to pass before it fails."""

    def __init__(self, core: Core, name: str, program: Program) -> None:
        self.core = core
        self.name = name
        self.program = program
        self.fuse: int | None = None
        self.weight = 1.0

    @property
    def is_able(self) -> bool:
        """Whether it can take a step at all."""
        return self.program.is_alive and not self.program.is_stopped

    def due(self) -> float:
        """When the next message for it is there."""
        raise NotImplementedError

    def alarm(self) -> float:
        """When a time limit of its own runs out."""
        return math.inf

    def step(self) -> None:
        """Do the next thing."""
        raise NotImplementedError

    def fail(self) -> None:
        """The fuse has burnt down: raise what ends the step."""
        self.program.end()
        raise Killed


class Handle:
    """A descriptor of a program."""

    def __init__(self, core: Core, program: Program) -> None:
        self.core = core
        self.program = program
        self.number = core.new_number()
        self.is_closed = False
        core.handles[self.number] = self
        program.handles[self.number] = self

    def fileno(self) -> int:
        return -1 if self.is_closed else self.number

    def due(self) -> float:
        """When it is readable."""
        raise NotImplementedError

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            del self.core.handles[self.number]
            self.program.handles.pop(self.number, None)


class ProcessHandle(Handle):
    """A pidfd: readable when the process has ended."""

    def __init__(self, core: Core, program: Program, target: Program) -> None:
        super().__init__(core, program)
        self.target = target

    def due(self) -> float:
        return self.target.ended_at


class VirtualTimer:
    """Stands for `threading.Timer`, on the virtual clock."""

    def __init__(
        self, seconds: float, function: Callable[[], None], kind: Kind = "restart"
    ) -> None:
        self._seconds = seconds
        self._function = function
        self._kind = kind
        self.daemon = False

    def start(self) -> None:
        core = Core.active
        task = core.current
        assert task is not None
        program = task.program

        def run_out() -> None:
            if program.is_alive:
                core.run_as(program, self._function)

        core.later(self._seconds, run_out, self._kind)


class Core:
    """Clock, dice, and everything that is registered by number or name."""

    active: ClassVar[Core]

    def __init__(self, character: Character, dice: random.Random) -> None:
        self.character = character
        self.dice = dice
        self.clock = VirtualClock(character.wall_pace)
        self.programs: dict[int, Program] = {}
        self.handles: dict[int, Handle] = {}
        self.current: Task | None = None
        self.has_faults = True
        self.injected: Counter[str] = Counter()
        self.problems: list[str] = []
        self.trace: list[str] | None = None
        self.entries: Counter[Kind] = Counter()
        """How many entries of each kind are on the agenda."""
        self.tasks: list[Task] = []
        self.oracle: Any = None
        self.network: Any = None
        self._agenda: list[tuple[float, int, Callable[[], None], Kind]] = []
        self._numbers = NUMBERS_FROM
        self._entries = 0
        self._started = 0
        self._ended_pids: deque[int] = deque(range(5_000_001, 5_000_040))
        Core.active = self

    def add(self, task: Task) -> None:
        """One more takes steps from now on."""
        task.weight = self.dice.choice((0.1, 0.5, 1.0, 1.0, 1.0, 2.0))
        self.tasks.append(task)

    # Numbers.

    def new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def new_mark(self, pid: int) -> ProcessIdentity:
        """What names the next process with this number, and no other."""
        self._started += 1
        return ProcessIdentity(pid, self._started, "world")

    def free_pid(self) -> int:
        """A number that is free now; the numbers of the dead come round again soon."""
        while True:
            pid = self._ended_pids.popleft()
            self._ended_pids.append(pid)
            if pid not in self.programs:
                return pid

    # Time.

    def delay(self) -> float:
        """How long something takes to get where it goes."""
        roll = self.dice.random()
        if roll >= self.character.slow_chance:
            return 0.0
        return self.dice.expovariate(1.0) * self.character.delay_seconds

    def later(self, seconds: float, function: Callable[[], None], kind: Kind = "action") -> None:
        """Do this when so many seconds have gone by."""
        self._entries += 1
        self.entries[kind] += 1
        entry = (self.clock.now + seconds, self._entries, function, kind)
        heapq.heappush(self._agenda, entry)

    def next_entry(self) -> float:
        return self._agenda[0][0] if self._agenda else math.inf

    def run_entry(self) -> None:
        _, _, function, kind = heapq.heappop(self._agenda)
        self.entries[kind] -= 1
        function()

    def run_as(self, program: Program, function: Callable[[], None]) -> None:
        """Call ``function`` as if a thread of ``program`` did."""
        before, self.current = self.current, Thread(self, program)
        try:
            function()
        except Killed:
            pass
        finally:
            self.current = before

    # Faults.

    def fault_point(self) -> None:
        """Something that is seen from outside is about to happen: here a task may fail."""
        task = self.current
        if task is None:
            return
        if not task.program.is_alive:
            raise Killed
        if task.fuse is None:
            return
        task.fuse -= 1
        if task.fuse < 0:
            task.fuse = None
            task.fail()

    def note(self, *words: object) -> None:
        """One line of the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.clock.now - START:10.4f} {' '.join(map(str, words))}")

    def problem(self, text: str) -> None:
        """Something is not as promised."""
        self.note("PROBLEM", text)
        self.problems.append(f"at {self.clock.now - START:.3f} s: {text}")


class Thread(Task):
    """A passing thread of a program, which the simulation does not schedule."""

    def __init__(self, core: Core, program: Program) -> None:
        super().__init__(core, program.name, program)

    def due(self) -> float:
        return math.inf

    def step(self) -> None:
        raise AssertionError(self.name)
