"""D15: a command on a host runs once, its job tells its true end, and its locks stay until that.

A master and one host work on this machine, over a line that can be cut. In each round some jobs run
commands on the host, two at a time under the same lock, and one process is killed, or stands still
for a while: any of the master, of the host, of a job or a task; or the line is cut, in both
directions or in one, or its connections end. Or the host's clock is wrong, its disk is full, it
loses all processes and gets an older copy of its data directory, or a copy has a daemon beside it.
Each command writes when it begins and ends, and says so if another one holds its lock meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any

import psutil
from tests.faults.full_disk import fill
from tests.faults.harness import Daemon, stop, wait_until_true
from tests.faults.own_namespaces import problem, told_by
from tests.system.hosts import Host, free_endpoint, until_there
from tests.torture.kills import workload
from tests.torture.kills.cut_line import CutLine, Direction
from tests.torture.kills.host_troubles import WrongClock, copy_directory, power_off, take_back
from tests.torture.tally import Tally

from ganger.storage.nodes import begun_tasks

if TYPE_CHECKING:
    from pathlib import Path

    from ganger import Client

PATIENCE_SECONDS = 60.0
JOBS = 6
LOCKS = 3
DELAY_SECONDS_MAX = 0.5
STILL_SECONDS = 0.3
CUT_SECONDS_MAX = 1.0
DAYS_30 = 30 * 86_400.0
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
    "wrong clock",
    "full disk",
    "host lost",
    "restored directory",
    "second daemon",
)
OF_HOSTS = {"full disk", "host lost", "restored directory", "second daemon"}
LOSING = {"job", "task", "command", "any process", "job without its node", "cut and job", *OF_HOSTS}
"""The faults after which a job may have failed."""

_SCRIPT = """
exec 9>>{lock}
flock -n 9 || echo {name} >> {conflicts}
echo begin >> {witness}
sleep {seconds}
echo end >> {witness}
"""


class Hosts:
    """One master, one host, and what their commands have written."""

    def __init__(self, folder: Path, host_folder: Path | None = None) -> None:
        folder.mkdir()
        self._folder = folder
        self._master = Daemon(folder)
        self._host = Host(host_folder or folder / "host", "web1")
        self._clock = WrongClock(folder / "clock")
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

    def round(self, seed: str, kind: str) -> list[str]:
        """One fault of this kind while commands run: what is wrong then."""
        dice = random.Random(seed)
        names = [f"{seed.replace(' ', '-')}-{place}" for place in range(JOBS)]
        with self._master.client() as client:
            jobs = {client.submit(self._opcode(name, dice)): name for name in names}
            self.tasks += len(jobs)
            time.sleep(dice.random() * DELAY_SECONDS_MAX)
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                self._put_in(kind, client, dice)
        with self._master.client() as client:
            ended = client.wait(*jobs, timeout=PATIENCE_SECONDS)
            wrong = [text for job in ended if (text := self._wrong_with(job, jobs[job.id], kind))]
            wrong += self._wrong_at_rest(client)
        return wrong

    def _wrong_at_rest(self, client: Client) -> list[str]:
        """What is wrong when all jobs have ended, and their locks are free."""
        wait_until_true(lambda: not held(client), "all locks are free")
        until_there(client, "web1")
        with self._host.client() as there:
            wrong = [f"task {one.id} runs on" for one in there.jobs(statuses=["running"])]
        if self._conflicts.exists():
            wrong += [f"{name} shared its lock" for name in self._conflicts.read_text().split()]
            self._conflicts.unlink()
        return wrong

    def _opcode(self, name: str, dice: random.Random) -> dict[str, object]:
        lock = f"i{dice.randrange(LOCKS)}"
        script = _SCRIPT.format(
            lock=self._folder / lock,
            conflicts=self._conflicts,
            witness=self._folder / name,
            name=name,
            seconds=dice.choice(("0", "0.05", "0.3")),
        )
        # Longer than any round; a clock that jumps must not end it.
        limits = {"timeout": 3_600.0, "lost_after": 3_600.0} if dice.random() < 0.5 else {}
        locks = {"instance": {"exclusive": [lock]}}
        words = ["sh", "-c", script]
        return {"OP_ID": "OP_EXEC", "argv": words, "node": "web1", "locks": locks, **limits}

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
            case "wrong clock":
                self._make_clock_wrong(dice)
            case "full disk":
                self._fill_disk(dice)
            case "host lost" | "restored directory":
                self._lose(dice, restores=kind == "restored directory")
            case "second daemon":
                self._start_second(dice)
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

    def _make_clock_wrong(self, dice: random.Random) -> None:
        """Until the next restart the host's clock is wrong, and it jumps while commands run."""
        self._clock.set(dice.uniform(-DAYS_30, DAYS_30))
        self._host.environment = self._clock.environment
        self._host.kill()
        self._host.up()
        self._host.environment = {}
        time.sleep(dice.random() * DELAY_SECONDS_MAX)
        self._clock.set(dice.uniform(-DAYS_30, DAYS_30))

    def _fill_disk(self, dice: random.Random) -> None:
        other = self._host.folder / "other"
        with other.open("ab", buffering=0) as file:
            for _ in range(dice.randrange(1, 4)):
                fill(file)
                time.sleep(dice.random() * DELAY_SECONDS_MAX)
        other.unlink()

    def _lose(self, dice: random.Random, *, restores: bool) -> None:
        """The host loses all processes; perhaps its data directory is an older one then."""
        copy = self._folder / "copy"
        if restores:
            self._host.run("node", "down")
            copy_directory(self._host.data, copy)
            self._host.up()
            time.sleep(dice.random() * DELAY_SECONDS_MAX)
            if dice.random() < 0.3:
                self._host.kill()
                self._host.up()
        begun = begun_tasks.path_of(self._host.places)
        # A copy may also be put back while the host runs.
        kept = begun.read_bytes() if restores and dice.random() < 0.5 else b""
        power_off(self._host, str(self._folder))
        if kept:
            begun.parent.mkdir(mode=0o700)
            begun.write_bytes(kept)
            begun.chmod(0o600)
        if restores:
            shutil.rmtree(self._host.data)
            copy.rename(self._host.data)
        self._host.up()
        take_back(self._master, self._host)

    def _start_second(self, dice: random.Random) -> None:
        """A copy of the directory has a daemon; perhaps the first one is away meanwhile."""
        other = Host(self._folder / "other", "web1")
        copy_directory(self._host.data, other.data)
        is_alone = dice.random() < 0.5
        if is_alone:
            self._host.kill()
        try:
            other.up()
            time.sleep(dice.random() * CUT_SECONDS_MAX)
        finally:
            other.__exit__()
            if is_alone:
                self._host.up()
        take_back(self._master, self._host)

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


def held(client: Client) -> list[str]:
    """Which locks have owners."""
    return [one.name for one in client.locks() if one.owners and one.name != "cluster/BGL"]


def _full_disk(seed: str, folder: Path) -> list[str]:
    """A round on a host with a small disk, which needs a mount namespace of its own."""
    folder.mkdir()
    (folder / "seed").write_text(seed)
    return list(told_by("tests.torture.kills.full_disk_round", folder)["wrong"])


def run_tasks_on_hosts(count: int, seed: int, folder: Path) -> Tally:
    """Kill ``count`` processes, or have them stand still, while commands run on a host."""
    tally, kinds = Tally(), dict.fromkeys(KINDS, 0)
    if why_not := problem():
        del kinds["full disk"]
        tally.figures["full disk left out"] = why_not
    tasks = 0
    hosts = Hosts(folder / "0")
    try:
        for number in range(1, count + 1):
            name = f"{seed} {number}"
            kind = random.Random(f"{name} kind").choice([*kinds])
            kinds[kind] += 1
            try:
                if kind == "full disk":
                    wrong = _full_disk(name, folder / f"small-{number}")
                    tasks += JOBS
                else:
                    wrong = hosts.round(name, kind)
            except Exception as error:  # noqa: BLE001 - the next ones shall be tried all the same
                wrong = [workload.tell_error(error)]
            if not wrong:
                tally.passed()
                continue
            tally.failed(f"seed {seed} fault {number} ({kind}): {'; '.join(wrong)}")
            if kind == "full disk":
                continue
            hosts.close()
            tasks += hosts.tasks
            hosts = Hosts(folder / str(number))
    finally:
        hosts.close()
    tally.figures["tasks"] = str(tasks + hosts.tasks)
    tally.figures |= {kind: str(times) for kind, times in kinds.items() if times}
    return tally
