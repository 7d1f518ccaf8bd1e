"""A master and hosts in virtual time, under a seed: everything that happens between them.

How it works. Real are both sides of the way that a task takes: the hub with its calls and left
tasks, the link with its ends, the process's follower, the marks, the reaper's part in it, the lock
manager, the table of hosts and the seals. Models stand for what these stand on: the network
(`host_network`), the queue and the tasks of a host (`host`), and processes, disks and machines
(`master`). Nothing waits for real time, and one thing happens after the other, so a seed repeats to
the letter.

A world has some jobs and some faults, then the time to drain, then the last look of `hosts_oracle`.
"""

from __future__ import annotations

import functools
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import msgspec
from tests.torture.hosts import host_network
from tests.torture.hosts.agenda import Agenda
from tests.torture.hosts.host import HostMachine
from tests.torture.hosts.host_network import Network
from tests.torture.hosts.hosts_oracle import HostsOracle
from tests.torture.hosts.master import Master

from ganger.actors.nodes import node_hub, node_link
from ganger.actors.processes import sessions
from ganger.storage.alive import lock_files, process_identity
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.nodes import host_table
from ganger.transport import messages
from ganger.transport.envelopes import Envelope

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FAULTS_SECONDS = 10.0
DRAIN_SECONDS = 4_000.0
"""So long a request of the executor may have waited for its repetition."""

HOSTS, LOCKS = 2, 3

FAULTS = (
    "cut both ways",
    "cut one way",
    "connection broken",
    "node daemon killed",
    "host rebooted",
    "hub killed",
    "master killed",
    "master lost its power",
    "job killed",
    "job killed on request",
    "task killed",
    "clock of a host wrong",
    "old directory restored",
    "tasks forgotten",
)


class HostsWorld:
    """One world."""

    def __init__(self, seed: str, root: Path) -> None:
        self.agenda = Agenda(seed)
        self.dice = self.agenda.dice
        self.oracle = HostsOracle(self)
        self.master = Master(self, root / "master")
        self.master.side.when_turned = self._turned
        self.network = Network(self.agenda, self.master.side)
        self.hosts = [
            HostMachine(self, root / f"web{number}", f"web{number}", f"key{number}".ljust(40, "x"))
            for number in range(1, HOSTS + 1)
        ]
        self._joined_anew: list[HostMachine] = []
        self.master.write_table({host.name: host.key for host in self.hosts})

    def start(self) -> None:
        """All machines begin."""
        self.master.start()
        for host in self.hosts:
            host.start()

    def _turned(self, name: str) -> None:
        if name == "lock_manager":
            self.oracle.look_at_locks()

    # One case.

    def play(self, faults: int, jobs: int) -> None:
        """Jobs and faults, then the time to drain, then the last look."""
        dice = self.dice
        self.network.delay_seconds = dice.choice((0.001, 0.02, 0.2))
        self.network.repeat_chance = dice.choice((0.0, 0.1))
        self.network.reorder_chance = dice.choice((0.0, 0.0, 0.1))
        self.start()
        for _ in range(jobs):
            self.agenda.later(dice.uniform(0.0, FAULTS_SECONDS), self.submit)
        for _ in range(faults):
            self.agenda.later(dice.uniform(0.5, FAULTS_SECONDS), self._strike)
        self.agenda.run(self.agenda.now + FAULTS_SECONDS + 20.0)
        self._end_faults()
        self.drain()
        self.oracle.look_at_end()

    def drain(self) -> None:
        """Go on until every job has ended."""
        end = self.agenda.now + DRAIN_SECONDS
        self.agenda.run(end, self._is_quiet)

    def _is_quiet(self) -> bool:
        state = getattr(self.oracle.locks, "_state", None)
        told = all(process.told and not process.is_alive for process in self.master.jobs)
        return told and state is not None and not state.owners() and not self._living()

    def _living(self) -> list[str]:
        return [
            task.key
            for host in self.hosts
            for task in host.living()
            if task.key not in self.oracle.exempt
        ]

    def _end_faults(self) -> None:
        """From now on everything goes well."""
        self.network.repeat_chance = self.network.reorder_chance = 0.0
        self.master.start()
        for host in self.hosts:
            host.start()
        self.agenda.later(30.0, self._tend)

    def _tend(self) -> None:
        """An operator looks after hosts that must join anew, or had to."""
        for host in self.hosts:
            self._joined(host)
        for host in self._joined_anew:
            self.forget_tasks(host)
        if not self._is_quiet():
            self.agenda.later(30.0, self._tend)

    def submit(self, **fields: Any) -> None:
        """A job with a command on a host."""
        dice = self.dice
        lock = f"i{dice.randrange(LOCKS)}"
        opcode = {
            "OP_ID": "OP_EXEC",
            "argv": ["run", str(dice.choice((0.01, 0.5, 3.0, 8.0))), str(dice.choice((0, 1, 50)))],
            "node": dice.choice(self.hosts).name,
            "locks": {"instance": {"exclusive": [lock]}},
            **fields,
        }
        if dice.random() < 0.15:
            opcode["lost_after"] = 5.0
        self.master.submit(opcode)

    # Faults.

    def _strike(self) -> None:
        kind = self.dice.choice(FAULTS)
        if self.strike(kind):
            self.agenda.injected[kind] += 1

    def strike(self, kind: str) -> bool:  # noqa: PLR0912 - a table
        """Put this fault in; False if there is nothing that it could hit."""
        dice, host, later = self.dice, self.dice.choice(self.hosts), self.agenda.later
        self.agenda.note(f"FAULT {kind} ({host.name})")
        alive = [process for process in self.master.jobs if process.is_alive]
        begun = [one for one in alive if one.job.ops[0].status is JobStatus.RUNNING]
        match kind:
            case "cut both ways":
                self.network.cut(host.key, {"up", "down"}, dice.choice((0.5, 8.0, 20.0)))
            case "cut one way":
                self.network.cut(host.key, {dice.choice(("up", "down"))}, dice.choice((0.5, 8.0)))
            case "connection broken":
                for one in list(self.network.connections.values()):
                    if one.dealer.key == host.key:
                        self.network.end(one)
            case "node daemon killed":
                host.kill()
                later(dice.choice((0.01, 1.0, 10.0)), host.start)
            case "host rebooted":
                host.reboot()
                later(dice.choice((1.0, 10.0)), host.start)
            case "hub killed" if self.master.is_up:
                self.master.side.kill("node_hub")
                later(0.2, functools.partial(self._restart_hub))
            case "master killed":
                self.master.kill()
                later(dice.choice((0.01, 1.0, 10.0)), self.master.start)
            case "master lost its power":
                self.master.lose_power()
                later(dice.choice((1.0, 10.0)), self.master.start)
            case "job killed" if alive:
                self.master.kill_job(dice.choice(alive))
            case "job killed on request" if begun:
                chosen = dice.choice(begun)
                chosen.must_be_killed = True
                chosen.resume()
            case "task killed" if host.living():
                host.kill_task(dice.choice(host.living()))
            case "clock of a host wrong":
                host.side.clock_error = dice.choice((-7.0, 7.0)) * 3_600
            case "old directory restored":
                restore = functools.partial(self._restore, host, host.copy())
                later(dice.choice((0.5, 5.0)), restore)
            case "tasks forgotten" if self.master.is_up and dice.random() < 0.3:
                self.forget_tasks(host)
            case _:
                return False
        return True

    def _restart_hub(self) -> None:
        if self.master.is_up and "node_hub" not in self.master.side.actors:
            self.master.start_hub()

    def forget_tasks(self, host: HostMachine) -> None:
        """An operator says that nobody waits for what has begun on this host."""
        self.oracle.exempt |= {process.task_key for process in self.master.jobs}
        asked = Envelope(messages.ForgetTasks(name=host.name))
        self.master.side.tell("node_hub", asked)

    def _restore(self, host: HostMachine, kept: dict[str, Any]) -> None:
        """The host gets back the data directory that it had a while ago, perhaps with a reboot."""
        host.kill()
        if self.dice.random() < 0.5:
            self.agenda.note(f"{host.name} is rebooted")
            host.reboot()
        host.put_back(kept)
        self.agenda.later(1.0, host.start)
        self.agenda.later(8.0, functools.partial(self._join_anew, host))

    def _join_anew(self, host: HostMachine) -> None:
        """If it is refused, it joins anew, and an operator forgets what it had."""
        places = self.master.side.places
        table = host_table.read(places.hosts)
        assert table is not None
        if not table.hosts[host.name].problem:
            return
        # Its hub would do so, asked by `ganger node join`: the table is all that matters.
        self.forget_tasks(host)
        self.agenda.later(2.0, functools.partial(self._joined, host))

    def _joined(self, host: HostMachine) -> None:
        hub: Any = self.master.side.actors.get("node_hub")
        table = None if hub is None else hub.component._table
        if table is None or not table.hosts[host.name].problem:
            return
        record = msgspec.structs.replace(
            table.hosts[host.name], joined=self.master.side.today, seal="", problem=""
        )
        self._joined_anew.append(host)
        hub.component._store(host_table._with(table, record), "joined anew", host.name)

    def close(self) -> None:
        """Leave nothing behind."""
        for host in self.hosts:
            host.side.close()
        self.master.close()


@contextmanager
def hosts_world(seed: str, root: Path) -> Iterator[HostsWorld]:
    """One world; nothing is left of it afterwards."""
    folder = root / "case"
    folder.mkdir(parents=True)
    made: list[HostsWorld] = []

    def is_dead(path: object) -> bool:
        return str(path) not in made[0].master.living

    with (
        patch.object(node_hub, "Router", host_network.Router),
        patch.object(node_link, "Dealer", host_network.Dealer),
        patch.object(lock_files, "is_dead", is_dead),
        patch.object(sessions, "end_left_over", lambda _: None),
        patch.object(process_identity, "boot", lambda: made[0].master.boot),
    ):
        made.append(HostsWorld(seed, folder))
        try:
            yield made[0]
        finally:
            made[0].close()
            shutil.rmtree(folder, ignore_errors=True)
