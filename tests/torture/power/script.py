"""A script: what happens to a machine, one thing after the other, by the dice."""

from __future__ import annotations

import random

from tests.torture.power.machine import LOCKS, Machine, opcode

from ganger.actors.store.job_rows import Phase
from ganger.transport.messages import JobSpec

INTERRUPTION = 0.15
REFUSALS = (0.0, 0.0, 0.03, 0.2)
"""How likely it is that a flush fails, of which each script has one."""
UNHEARD = 0.25
"""How likely it is then that the disk refuses what the kernel brings it by itself, too."""
RETRY_CHANCE = 0.3
"""How likely it is, before each action, that the disk is tried again if it failed."""
STEPS = (0, 1, 1, 2, 5)
"""How many files another thread creates before each action, if one is at it."""
JOBS_MAX = 10


class Script:
    """Plays on a machine, with its dice."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._dice = machine.dice
        machine.interruption = INTERRUPTION
        # Dice of their own: a script is the same one whether or not flushes fail in it.
        self._disk_dice = random.Random(str(machine.dice.getstate()))
        machine.disk_dice = self._disk_dice
        machine.refusal = self._disk_dice.choice(REFUSALS)

    def play(self, count: int) -> None:
        """Let ``count`` things happen."""
        for _ in range(count):
            self._happen()
        if self._machine.is_up:
            self._machine.end_turn()

    def _happen(self) -> None:
        machine = self._machine
        machine.clock.now += self._dice.choice((0.001, 0.01, 0.2, 1.5))
        if self._disk_dice.random() < machine.refusal * UNHEARD:
            machine.refuse_writing_back()
        if machine.is_up and self._disk_dice.random() < RETRY_CHANCE:
            machine.run_timers()
        if machine.is_up:
            machine.step_aside(self._disk_dice.choice(STEPS))
        running = [one for one in machine.processes.values() if one.is_started]
        if running and self._dice.random() < 0.45:
            machine.step(self._dice.choice(running))
        elif not machine.is_up:
            if self._dice.random() < 0.4:
                machine.boot_in_vain()
            return
        else:
            actions = self._dice.choices(list(_ACTIONS), list(_ACTIONS.values()))
            getattr(self, actions[0])()
        if machine.is_up and self._dice.random() < 0.65:
            machine.end_turn()

    def _any_job(self, *phases: Phase) -> int | None:
        table = self._machine.queue.component.store.table
        ids = [row.id for row in table if row.phase in phases]
        return self._dice.choice(ids) if ids else None

    def _submit(self) -> None:
        if len(self._machine.queue.component.store.table) > JOBS_MAX:
            self._machine.autoarchive()
            return
        place = f"{self._dice.getrandbits(48)}"
        key = f"key-{place}" if self._dice.random() < 0.5 else None
        count = self._dice.choice((1, 1, 1, 2, 4))
        self._machine.submit(*(self._spec(f"{place}.{job}") for job in range(count)), key=key)

    def _spec(self, name: str) -> JobSpec:
        ops = []
        for index in range(self._dice.choice((1, 1, 2, 3))):
            words = range(self._dice.choice((1, 1, 1, 150, 400)))
            text = " ".join(f"{name}.{index}.{word}" for word in words)
            node = self._dice.choice(LOCKS) if self._dice.random() < 0.3 else None
            ops.append(opcode(text, words=self._dice.choice((0, 0, 1, 3)), node=node))
        return JobSpec(ops=ops)

    def _choose(self) -> None:
        if self._dice.random() < 0.5:
            self._machine.rest()
        job_id = self._any_job(Phase.PENDING)
        if job_id is not None:
            self._machine.choose(job_id)

    def _cancel(self) -> None:
        job_id = self._any_job(Phase.PENDING, Phase.STARTING, Phase.HANDED_OVER)
        if job_id is not None:
            self._machine.cancel(job_id)

    def _reprioritise(self) -> None:
        job_id = self._any_job(Phase.PENDING, Phase.STARTING, Phase.HANDED_OVER)
        if job_id is not None:
            self._machine.reprioritise(job_id, self._dice.randint(-20, 19))

    def _archive(self) -> None:
        table = self._machine.queue.component.store.table
        ids = [row.id for row in table if row.status.is_final]
        if ids:
            self._machine.archive(self._dice.choice(ids))

    def _purge(self) -> None:
        store = self._machine.queue.component.store
        ids = [row.id for row in store.table if row.phase is Phase.ENDED and row.status.is_final]
        ids += store.ledger.directory.archived_ids()
        if ids:
            self._machine.purge(*self._disk_dice.sample(ids, min(len(ids), 2)))

    def _autoarchive(self) -> None:
        self._machine.autoarchive()

    def _configure(self) -> None:
        self._machine.configure()

    def _authorise(self) -> None:
        self._machine.authorise()

    def _kill_process(self) -> None:
        if self._machine.processes:
            self._machine.end(self._dice.choice(list(self._machine.processes.values())))

    def _crash_daemon(self) -> None:
        self._machine.crash_daemon()

    def _wait(self) -> None:
        self._machine.clock.now += self._dice.uniform(0.5, 3.0)


_ACTIONS = {
    "_submit": 8,
    "_choose": 10,
    "_cancel": 3,
    "_reprioritise": 3,
    "_archive": 3,
    "_autoarchive": 1,
    "_purge": 1,
    "_configure": 2,
    "_authorise": 1,
    "_kill_process": 1,
    "_crash_daemon": 2,
    "_wait": 2,
}
"""What may happen in a running daemon, and how often."""
