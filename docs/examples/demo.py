"""`make demo`: runs rolling-maintenance.yaml on a daemon of its own and checks the outcome.

    .venv/bin/python -m docs.examples.demo [--chaos [WHAT]] [--seed N] [--files N] [--keep]
        [--data DIR]

Everything happens in a temporary folder. The exit code is 0 only if every job ended as planned,
every step started exactly once, no lock was held by two who exclude each other, the restored
files are as at their source, and nothing was left running.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from docs.examples.demo_findings import Findings
from docs.examples.demo_plan import FILES, NODES, STEPS, load_plan, name_of, needed_by
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ganger import Client, GangerError, JobStatus
from ganger.cli.plans import PlannedJob
from ganger.storage.alive import lock_files, process_identity
from ganger.storage.disk import paths
from ganger.storage.jobs.job_views import JobInfo, StatusChange
from ganger.transport import frames
from ganger.transport.messages import CrashComponent
from ganger.transport.zmq.dealer import Dealer

DEADLINE_SECONDS = 240.0
INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED_EXIT_CODE = 130
PIPE_WIDTH = 120
STOP_SECONDS = 30.0
CHAOS_FIRST_JOBS, CHAOS_NEXT_JOBS = 3, 10
"""With ``--chaos``: after how many ended jobs the first part fails, and each further one."""

COMPONENTS = (
    "config_store",
    "executor",
    "filter_evaluator",
    "job_queue",
    "lock_manager",
    "output_reader",
    "scheduler",
    "wire_listener",
)
VICTIMS = ("daemon", "fork_server", *COMPONENTS)
COLOURS = {
    JobStatus.QUEUED: "dim",
    JobStatus.WAITING: "yellow",
    JobStatus.RUNNING: "bold blue",
    JobStatus.SUCCESS: "green",
    JobStatus.ERROR: "bold red",
    JobStatus.CANCELED: "magenta",
}


# ---------------------------------------------------------------- following it


@dataclass
class Progress:
    """The state of the jobs while they run."""

    plan: Sequence[PlannedJob]
    ids: Sequence[int]
    began: float = field(default_factory=time.monotonic)
    jobs: dict[str, JobInfo] = field(default_factory=dict)
    incidents: list[str] = field(default_factory=list)

    def note(self, change: StatusChange) -> str:
        """Record a change and return the name of its job."""
        name = name_of(self.plan[self.ids.index(change.job_id)])
        self.jobs[name] = change.job
        return name

    @property
    def seconds(self) -> float:
        """Seconds since the plan was submitted."""
        return time.monotonic() - self.began

    @property
    def ended(self) -> int:
        """How many jobs have ended."""
        return sum(job.is_final for job in list(self.jobs.values()))


def picture(progress: Progress) -> Group:
    """The state of everything, as shown in a terminal: a row for each node."""
    nodes = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("node", *STEPS):
        nodes.add_column(heading, no_wrap=True, min_width=0 if heading == "node" else 14)
    for node in NODES:
        nodes.add_row(node, *(cell(progress.jobs.get(f"{step}-{node}")) for step in STEPS))
    others = Table.grid(padding=(0, 2))
    in_grid = {f"{step}-{node}" for step in STEPS for node in NODES}
    rest = [name for name in map(name_of, progress.plan) if name not in in_grid]
    for some in itertools.zip_longest(rest[::2], rest[1::2]):
        others.add_row(
            *itertools.chain(*((name or "", cell(progress.jobs.get(name or ""))) for name in some))
        )
    counts = Counter(job.status for job in list(progress.jobs.values()))
    told = "   ".join(f"{counts[status]} {status}" for status in COLOURS if counts[status])
    foot = Text(f"{progress.seconds:5.1f} s   {told}", style="bold")
    return Group(nodes, others, foot, *(Text(text, style="red") for text in progress.incidents))


def cell(job: JobInfo | None) -> Text:
    """A job's status in its colour."""
    if job is None:
        return Text("")
    return Text(f"{job.status} {span(job)}", style=COLOURS.get(job.status, ""))


def span(job: JobInfo) -> str:
    """How long a job took, or has been running."""
    if job.started is None:
        return "not started" if job.is_final else ""
    return f"{(job.ended or time.time()) - job.started:.2f} s"


@contextmanager
def shown(progress: Progress, console: Console) -> Iterator[Callable[[str], None]]:
    """Show the progress: a live picture in a terminal, else a line for each job that ends."""
    if not console.is_terminal:

        def tell(name: str) -> None:
            if progress.jobs[name].is_final:
                count = f"[{progress.ended:2}/{len(progress.plan)}]"
                print(f"{count} {progress.seconds:5.1f} s  {name:20} {progress.jobs[name].status}")

        yield tell
        return
    with Live(get_renderable=lambda: picture(progress), console=console, refresh_per_second=8):
        yield lambda _name: None


def follow(client: Client, progress: Progress, console: Console, chaos: Chaos | None) -> None:
    """Watch until every job has ended."""
    with shown(progress, console) as tell:
        for part in client.watch(*progress.ids, log=False, timeout=DEADLINE_SECONDS):
            if not isinstance(part, StatusChange):
                continue
            tell(progress.note(part))
            if chaos is not None and (incident := chaos.strike(progress.ended)):
                progress.incidents.append(f"{progress.seconds:5.1f} s   {incident}")
                if not console.is_terminal:
                    print(progress.incidents[-1])


def summary(plan: Sequence[PlannedJob], jobs: dict[str, JobInfo]) -> Table:
    """The outcome of each job."""
    table = Table(title="What became of each job", title_justify="left")
    for heading in ("id", "job", "status", "took", "of it for locks", "waited for"):
        table.add_column(heading, justify="right" if heading in {"id", "took"} else "left")
    for number, planned in enumerate(plan):
        job = jobs[name_of(planned)]
        status = Text(str(job.status), style=COLOURS[job.status])
        timed = [(op.started, op.executed) for op in job.ops or () if op.started and op.executed]
        waited = sum(executed - started for started, executed in timed)
        needed = ", ".join(name for name, _ in needed_by(plan, number))
        times = (span(job), f"{waited:.2f} s" if timed else "")
        table.add_row(str(job.id), name_of(planned), status, *times, needed)
    return table


# ---------------------------------------------------------------- making things fail


def victims(what: str, seed: int) -> list[str]:
    """The parts that fail, in order. Any: two components, the fork servers, the whole daemon."""
    if what != "any":
        return [what] * 3
    chance = random.Random(seed)
    chosen = [*chance.sample(COMPONENTS, 2), "fork_server", "daemon"]
    chance.shuffle(chosen)
    return chosen


class Chaos:
    """Makes parts of the daemon fail while the plan runs. ``what``: one of `VICTIMS`, or any."""

    def __init__(self, daemon: Daemon, what: str, seed: int) -> None:
        self._daemon = daemon
        self._left = victims(what, seed)
        self._due = CHAOS_FIRST_JOBS
        self._struck: Counter[str] = Counter()
        print(f"Chaos: seed {seed}, in this order: {', '.join(self._left)}")

    def strike(self, ended: int) -> str | None:
        """Make the next part fail if it is time; return its name."""
        if not self._left or ended < self._due:
            return None
        self._due = ended + CHAOS_NEXT_JOBS
        victim = self._left.pop(0)
        self._struck[victim] += 1
        if victim == "daemon":
            self._daemon.kill()
            self._daemon.up()
        elif victim == "fork_server":
            for process in self._daemon.fork_servers():
                process.kill()
        else:
            self._crash(victim)
        return f"{victim} was made to fail"

    def doubts(self) -> list[str]:
        """The parts that did not fail, or were not replaced, according to the daemon's log."""
        faults = [f"it was too late for {victim}" for victim in self._left]
        told: Counter[str] = Counter()
        for line in (self._daemon.places.data / "daemon.log").read_text().splitlines():
            entry = json.loads(line)
            if entry["event"] == "restarting":
                told[entry["name"].partition(":")[0]] += 1
            told["daemon"] += entry["event"] == "ready"
        told["daemon"] -= 1
        return faults + [
            f"{victim} was struck {count} times and replaced {told[victim]} times"
            for victim, count in self._struck.items()
            if told[victim] < count
        ]

    def _crash(self, component: str) -> None:
        # Not through `Client`, which would repeat the request if the listener fails with it.
        dealer = Dealer(f"ipc://{self._daemon.places.socket}")
        try:
            deadline = time.monotonic() + STOP_SECONDS
            frame = frames.encode(CrashComponent(component=component), 1)
            while not dealer.send(frame) and time.monotonic() < deadline:
                dealer.receive(0.05)
            dealer.receive(1.0)
        finally:
            dealer.close()


# ---------------------------------------------------------------- the daemon


class Daemon:
    """The demonstration's own daemon, started and stopped as a user would."""

    def __init__(self, data: Path, scratch: Path, has_test_hooks: bool) -> None:  # noqa: FBT001
        scratch.mkdir()
        self.places = paths.places(data)
        self.scratch = scratch
        self._is_up = False
        self._options = ["--test-hooks"] if has_test_hooks else []

    def up(self) -> None:
        """``ganger up``."""
        self._is_up = True
        print(self._ganger("up", "--no-rapi", *self._options))

    def down(self) -> None:
        """``ganger down``, unless the daemon was stopped."""
        if self._is_up:
            self._is_up = False
            print(self._ganger("down"))

    def _ganger(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "ganger.cli.main", "--data", str(self.places.data)]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise GangerError(f"ganger {arguments[0]}: {done.stderr.strip()}")
        return done.stdout.strip()

    def kill(self) -> None:
        """End the daemon without warning, and wait until it has gone."""
        descriptor = process_identity.open_pidfd(self._pid())
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            select.select([descriptor], [], [], STOP_SECONDS)
        finally:
            os.close(descriptor)

    def _pid(self) -> int:
        # From the file, not from the daemon, which may be busy with replacing a failed part.
        pid = lock_files.holder(self.places.queue / "lock")
        assert pid is not None
        return pid

    def processes(self) -> list[psutil.Process]:
        """Every process that belongs to this daemon: itself, fork servers, jobs, commands."""
        signs = [str(self.places.data), str(self.places.run), str(self.scratch)]
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                words = [*process.cmdline(), process.cwd()]
                own = process.pid == os.getpid()
                if not own and any(sign in word for sign in signs for word in words):
                    found.append(process)
        return found

    def fork_servers(self) -> list[psutil.Process]:
        """The fork servers: children of the daemon, as jobs are not."""
        return psutil.Process(self._pid()).children()

    def end(self, ids: Sequence[int]) -> None:
        """In any state: cancel jobs that have not started, stop, leave no process."""
        if self._is_up:
            with suppress(GangerError), Client(self.places.data, timeout=5.0) as client:
                for job_id in ids:
                    client.cancel(job_id)
        # The terminal may be closed, so that printing fails.
        with suppress(GangerError, OSError):
            self.down()
        # The next call finds a process that was just being started.
        deadline = time.monotonic() + STOP_SECONDS
        while (left := self.processes()) and time.monotonic() < deadline:
            for process in left:
                with suppress(psutil.Error):
                    process.kill()
            still_running(left, seconds=1.0)

    def leftovers(self) -> list[psutil.Process]:
        """The processes that have not ended after a fair time."""
        return still_running(self.processes(), seconds=10.0)


def still_running(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """The processes that do not end within this time. A zombie counts as ended."""
    deadline = time.monotonic() + seconds
    left = []
    for process in processes:
        with suppress(ProcessLookupError):
            descriptor = process_identity.open_pidfd(process.pid)
            if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
                left.append(process)
            os.close(descriptor)
    return left


# ---------------------------------------------------------------- the whole


@dataclass
class Demonstration:
    """One run of the plan on one daemon. ``holds`` until a claim is refuted."""

    daemon: Daemon
    console: Console
    chaos: Chaos | None
    files: int = FILES
    ids: list[int] = field(default_factory=list)
    holds: bool = True

    def run(self) -> None:
        """Start the daemon, run the plan, stop the daemon, and check everything."""
        self.daemon.up()
        plan = load_plan(self.daemon.scratch, self.files)
        with Client(self.daemon.places.data) as client:
            self.ids += client.submit_many([job.as_submission() for job in plan])
            print(f"Submitted {len(plan)} jobs as one batch: ids {self.ids[0]} to {self.ids[-1]}")
            progress = Progress(plan, self.ids)
            follow(client, progress, self.console, self.chaos)
            seconds = progress.seconds
            found = client.wait(*self.ids, timeout=DEADLINE_SECONDS)
            jobs = {name_of(job): info for job, info in zip(plan, found, strict=True)}
            self.console.print(summary(plan, jobs))
            self.console.print(f"{len(plan)} jobs in {seconds:.1f} s. Verified:", style="bold")
            for claim, faults in Findings(plan, jobs, self.daemon.scratch).all():
                self.claim(claim, faults)
            self.claim("no lock is held any more", [str(row) for row in client.locks()])
        if self.chaos is not None:
            self.claim("what was made to fail was replaced", self.chaos.doubts())
        self.daemon.down()
        self.claim("nothing was left running", [str(one) for one in self.daemon.leftovers()])
        print("Everything held." if self.holds else "NOT everything held.")

    def claim(self, claim: str, faults: Sequence[str]) -> None:
        """Print whether a claim holds: it does if there are no faults."""
        self.holds = self.holds and not faults
        mark = "[bold red]FAILED[/]" if faults else "[green]ok[/]    "
        self.console.print(f"  {mark} {claim}", highlight=False)
        for fault in faults[:10]:
            self.console.print(Text(f"         {fault}"), highlight=False)


def main() -> int:
    """Run the demonstration; 0 if everything held."""
    arguments = parse_arguments()
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=True)
    for number in INTERRUPTIONS:
        signal.signal(number, signal.default_int_handler)
    base = Path(tempfile.mkdtemp(prefix="ganger-demo-"))
    daemon = Daemon(arguments.data or base / "data", base / "scratch", arguments.chaos is not None)
    chaos = Chaos(daemon, arguments.chaos, arguments.seed) if arguments.chaos else None
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    demonstration = Demonstration(daemon, console, chaos, arguments.files)
    try:
        demonstration.run()
    except KeyboardInterrupt:
        print("\nInterrupted: cleaning up", file=sys.stderr)
        return INTERRUPTED_EXIT_CODE
    except GangerError as error:
        print(f"demo: {error.text}", file=sys.stderr)
        return error.exit_code
    finally:
        for number in INTERRUPTIONS:
            signal.signal(number, signal.SIG_IGN)
        daemon.end(demonstration.ids)
        if arguments.keep:
            print(f"Kept: {daemon.scratch} (files), {daemon.places.data} (data directory)")
        else:
            shutil.rmtree(base, ignore_errors=True)
            shutil.rmtree(daemon.places.run, ignore_errors=True)
    return 0 if demonstration.holds else 1


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Run the rolling maintenance and check it.")
    parser.add_argument("--keep", action="store_true", help="leave all files in place")
    parser.add_argument("--data", type=Path, metavar="DIR", help="new or empty data directory")
    parser.add_argument(
        "--chaos",
        nargs="?",
        const="any",
        choices=["any", *VICTIMS],
        metavar="WHAT",
        help="make WHAT fail several times meanwhile: " + ", ".join(["any", *VICTIMS]),
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=random.randrange(2**32),
        metavar="N",
        help="repeat the --chaos of an earlier run, which told its seed",
    )
    parser.add_argument(
        "--files", type=int, default=FILES, metavar="N", help="a node gets at most N files"
    )
    arguments = parser.parse_args()
    if arguments.data is not None and arguments.data.exists() and any(arguments.data.iterdir()):
        parser.error(f"--data: {arguments.data} is not empty")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
