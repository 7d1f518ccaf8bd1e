"""D15: a command on a host runs once, its job tells its true end, and its locks stay until that.

A master and one host work on this machine, over a line that can be cut. In each round some jobs run
commands on the host, two at a time under the same lock, and one process is killed, or stands still
for a while: any of the master, of the host, of a job or a task; or the line is cut, in both
directions or in one, or its connections end. Each command writes when it begins and ends, and says
so if another one holds its lock meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any

import psutil
from tests.faults.harness import Daemon, stop, wait_until_true
from tests.system.hosts import Host, free_endpoint, until_there
from tests.torture.kills import workload
from tests.torture.kills.cut_line import CutLine, Direction
from tests.torture.tally import Tally

if TYPE_CHECKING:
    from pathlib import Path

    from ganger import Client

PATIENCE_SECONDS = 60.0
JOBS = 6
LOCKS = 3
DELAY_SECONDS_MAX = 0.5
STILL_SECONDS = 0.3
CUT_SECONDS_MAX = 1.0
BOTH: tuple[Direction, Direction] = ("up", "down")

KINDS = (
    "node daemon",
    "master",
    "hub",
    "job",
    "task",
    "command",
    "any process",
    "still",
    "any still",
    "job without its node",
    "cut",
    "cut one way",
    "broken",
    "cut and master",
    "cut and job",
)
LOSING = {"job", "task", "command", "any process", "job without its node", "cut and job"}
"""The faults after which a job may have failed."""

_SCRIPT = """
exec 9>>{lock}
flock -n 9 || echo {name} >> {conflicts}
echo begin >> {witness}
sleep {seconds}
echo end >> {witness}
"""


class _Hosts:
    """One master, one host, and what their commands have written."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._master = Daemon(folder)
        self._host = Host(folder / "host", "web1")
        self._conflicts = folder / "conflicts"
        self._master.up()
        endpoint = free_endpoint()
        self._line = CutLine(endpoint)
        words = ("--listen", endpoint, "--announce", self._line.endpoint)
        _, *line = self._master.run("node", "invite", "web1", *words).stdout.split()
        self._host.run(*line)
        self.tasks = 0

    def close(self) -> None:
        """End every process."""
        self._host.__exit__()
        self._master.__exit__()
        self._line.close()

    def round(self, seed: str) -> tuple[str, list[str]]:
        """One fault while commands run: which, and what is wrong then."""
        dice = random.Random(seed)
        names = [f"{seed.replace(' ', '-')}-{place}" for place in range(JOBS)]
        with self._master.client() as client:
            jobs = {client.submit(self._opcode(name, dice)): name for name in names}
            self.tasks += len(jobs)
            kind = dice.choice(KINDS)
            time.sleep(dice.random() * DELAY_SECONDS_MAX)
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                self._put_in(kind, client, dice)
        with self._master.client() as client:
            ended = client.wait(*jobs, timeout=PATIENCE_SECONDS)
            wrong = [text for job in ended if (text := self._wrong_with(job, jobs[job.id], kind))]
            wait_until_true(lambda: not _held(client), "all locks are free")
            until_there(client, "web1")
        with self._host.client() as there:
            wrong += [f"task {one.id} runs on" for one in there.jobs(statuses=["running"])]
        if self._conflicts.exists():
            wrong += [f"{name} shared its lock" for name in self._conflicts.read_text().split()]
            self._conflicts.unlink()
        return kind, wrong

    def _opcode(self, name: str, dice: random.Random) -> dict[str, object]:
        lock = f"i{dice.randrange(LOCKS)}"
        script = _SCRIPT.format(
            lock=self._folder / lock,
            conflicts=self._conflicts,
            witness=self._folder / name,
            name=name,
            seconds=dice.choice(("0", "0.05", "0.3")),
        )
        locks = {"instance": {"exclusive": [lock]}}
        return {"OP_ID": "OP_EXEC", "argv": ["sh", "-c", script], "node": "web1", "locks": locks}

    def _wrong_with(self, job: Any, name: str, kind: str) -> str:
        path = self._folder / name
        lines = path.read_text().split() if path.exists() else []
        told = f"job {job.id} ({job.outcome}: {job.reason_ended})"
        if lines.count("begin") > 1:
            return f"{told} began its command {lines.count('begin')} times"
        if job.outcome == "success":
            return "" if lines == ["begin", "end"] else f"{told} has only {lines}"
        return "" if kind in LOSING else f"{told} after a fault that loses nothing"

    # ------------------------------------------------------------ the faults

    def _put_in(  # noqa: PLR0912 - a table
        self, kind: str, client: Client, dice: random.Random
    ) -> None:
        match kind:
            case "node daemon":
                self._host.kill()
                self._host.up()
            case "master":
                self._master.replace_killed()
            case "hub":
                self._hub(client).kill()
            case "job":
                self._kill_job(client, dice)
            case "task":
                with self._host.client() as there:
                    self._kill_job(there, dice)
            case "command":
                self._kill_command(dice)
            case "any process":
                dice.choice(self._others(client)).kill()
            case "still":
                self._stand_still(self._host.pid())
            case "any still":
                self._stand_still(dice.choice(self._others(client)).pid)
            case "cut" | "cut one way" | "cut and master" | "cut and job":
                self._cut(kind, client, dice)
            case "broken":
                self._line.break_all()
            case _:
                self._host.kill()
                try:
                    self._kill_job(client, dice)
                    if dice.random() < 0.5:
                        self._master.replace_killed()
                finally:
                    self._host.up()

    def _stand_still(self, pid: int) -> None:
        stop(pid)
        time.sleep(STILL_SECONDS)
        os.kill(pid, signal.SIGCONT)

    def _cut(self, kind: str, client: Client, dice: random.Random) -> None:
        """Cut the line for a while; perhaps something dies meanwhile, or connections end."""
        way: Direction = "up" if dice.random() < 0.5 else "down"
        self._line.cut(*((way,) if kind == "cut one way" else BOTH))
        try:
            time.sleep(dice.random() * CUT_SECONDS_MAX)
            if kind == "cut and master":
                self._master.replace_killed()
            elif kind == "cut and job":
                self._kill_job(client, dice)
            if dice.random() < 0.5:
                self._line.break_all()
        finally:
            self._line.mend()

    def _others(self, client: Client) -> list[psutil.Process]:
        """Every process of master and host but their daemons."""
        pids = (client.info().pid, self._host.pid())
        return [one for pid in pids for one in psutil.Process(pid).children(recursive=True)]

    def _hub(self, client: Client) -> psutil.Process:
        children = psutil.Process(client.info().pid).children()
        return next(one for one in children if any('"node_hub"' in word for word in one.cmdline()))

    def _kill_job(self, client: Client, dice: random.Random) -> None:
        running = [job for job in client.jobs(statuses=["running"]) if job.process_id]
        if running:
            os.kill(dice.choice(running).process_id or 0, signal.SIGKILL)

    def _kill_command(self, dice: random.Random) -> None:
        with self._host.client() as there:
            running = [job for job in there.jobs(statuses=["running"]) if job.process_id]
        if running:
            found = psutil.Process(dice.choice(running).process_id).children()
            if found:
                found[0].kill()


def _held(client: Client) -> list[str]:
    return [one.name for one in client.locks() if one.owners and one.name != "cluster/BGL"]


def run_tasks_on_hosts(count: int, seed: int, folder: Path) -> Tally:
    """Kill ``count`` processes, or have them stand still, while commands run on a host."""
    tally, kinds = Tally(), dict.fromkeys(KINDS, 0)
    tasks = 0
    hosts = _Hosts(folder / "0")
    try:
        for number in range(1, count + 1):
            kind = "?"
            try:
                kind, wrong = hosts.round(f"{seed} {number}")
                kinds[kind] += 1
            except Exception as error:  # noqa: BLE001 - the next ones shall be tried all the same
                wrong = [workload.tell_error(error)]
            if not wrong:
                tally.passed()
                continue
            tally.failed(f"seed {seed} fault {number} ({kind}): {'; '.join(wrong)}")
            hosts.close()
            tasks += hosts.tasks
            hosts = _Hosts(folder / str(number))
    finally:
        hosts.close()
    tally.figures["tasks"] = str(tasks + hosts.tasks)
    tally.figures |= {kind: str(times) for kind, times in kinds.items() if times}
    return tally
