"""`make demo`: runs rolling-maintenance.yaml on a daemon of its own and checks what came of it.

    .venv/bin/python docs/examples/demo.py [--chaos [WHAT]] [--keep] [--data DIR]

Everything happens in a temporary folder. The exit code is 0 only if every job ended as planned,
every step started exactly once, no lock was held by two who exclude each other, the restored
files are as at their source, and nothing was left running.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ganger import Client, GangerError, JobStatus
from ganger.cli.plans import PlannedJob, read
from ganger.storage import settings
from ganger.storage.job_views import JobInfo, StatusChange
from ganger.transport import frames
from ganger.transport.messages import CrashComponent
from ganger.transport.wire import Dealer

PLAN = Path(__file__).with_name("rolling-maintenance.yaml")
PLANNED_FAILURES = {
    "verify-node05": "store/node05.tar.gz: FAILED",
    "restore-last-year": "store/last-year.tar.gz: Cannot open: No such file or directory",
}
"""The jobs that are meant to fail by themselves, and what their command has to say."""

HOT_FIX = "hot-fix"
NODES = [f"node{number:02}" for number in range(1, 13)]
STEPS = ("manifest", "archive", "verify", "restore")

DEADLINE_SECONDS = 240.0
STOP_SECONDS = 30.0
CHAOS_AFTER_JOBS = (3, 20, 40)
"""With ``--chaos``: something is made to fail when so many jobs have ended."""

COMPONENTS = (
    "config_store",
    "executor",
    "filter_evaluator",
    "job_queue",
    "lock_manager",
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


# ---------------------------------------------------------------- the plan


def load_plan(scratch: Path) -> list[PlannedJob]:
    """The plan with ``scratch`` in place of $DEMO, each job behind those it waits for."""
    return read(PLAN.read_text().replace("$DEMO", str(scratch)), PLAN.name)


def name_of(job: PlannedJob) -> str:
    """The name of a job of the plan, which every job of this plan has."""
    assert job.name is not None
    return job.name


def needed_by(plan: Sequence[PlannedJob], number: int) -> list[tuple[str, list[str]]]:
    """What the job at place ``number`` waits for: names, and statuses it accepts."""
    return [(name_of(plan[number + back]), accepted) for back, accepted in plan[number].depends]


def foresee(plan: Sequence[PlannedJob]) -> tuple[dict[str, JobStatus], set[str]]:
    """How each job must end, and which of them must never start."""
    ends: dict[str, JobStatus] = {}
    stopped: set[str] = set()
    for number, job in enumerate(plan):
        name = name_of(job)
        if any(ends[needed] not in accepted for needed, accepted in needed_by(plan, number)):
            stopped.add(name)
        is_failure = name in stopped or name in PLANNED_FAILURES
        ends[name] = JobStatus.ERROR if is_failure else JobStatus.SUCCESS
    return ends, stopped


def step_of(op: dict[str, object]) -> str:
    """The name of an opcode's step: what its script calls ``$0``."""
    argv = op["argv"]
    assert isinstance(argv, list)
    return str(argv[3])


# ---------------------------------------------------------------- following it


@dataclass
class Progress:
    """What is known of the jobs while they run."""

    plan: Sequence[PlannedJob]
    ids: Sequence[int]
    began: float = field(default_factory=time.monotonic)
    jobs: dict[str, JobInfo] = field(default_factory=dict)
    incidents: list[str] = field(default_factory=list)

    def note(self, change: StatusChange) -> str:
        """Take in a change and say whose it is."""
        name = name_of(self.plan[self.ids.index(change.job_id)])
        self.jobs[name] = change.job
        return name

    @property
    def seconds(self) -> float:
        """Since the plan was submitted."""
        return time.monotonic() - self.began

    @property
    def ended(self) -> int:
        """How many jobs have ended."""
        return sum(job.is_final for job in list(self.jobs.values()))


def picture(progress: Progress) -> Group:
    """The state of everything, as shown in a terminal: a row for each node."""
    nodes = Table(title="Rolling maintenance", title_justify="left", min_width=70)
    for heading in ("node", *STEPS):
        nodes.add_column(heading, no_wrap=True)
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
    """A job's status in its colour; how long it took, once it has ended."""
    if job is None:
        return Text("")
    words = str(job.status)
    if job.is_final:
        words = f"{words} {job.ended - job.started:.1f} s" if job.ended and job.started else words
    return Text(words, style=COLOURS.get(job.status, ""))


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


def summary(progress: Progress, jobs: dict[str, JobInfo]) -> Table:
    """What became of each job."""
    table = Table(title="What became of each job", title_justify="left")
    for heading in ("id", "job", "status", "took", "of it for locks", "waited for"):
        table.add_column(heading, justify="right" if heading in {"id", "took"} else "left")
    for number, planned in enumerate(progress.plan):
        job = jobs[name_of(planned)]
        waited = sum((op.executed or 0) - op.started for op in job.ops or () if is_timed(op))
        needed = ", ".join(name for name, _ in needed_by(progress.plan, number))
        took = "-" if job.ended is None or job.started is None else f"{job.ended - job.started:.2f} s"
        status = Text(str(job.status), style=COLOURS[job.status])
        locks = f"{waited:.2f} s" if waited >= 0.005 else ""
        table.add_row(str(job.id), name_of(planned), status, took, locks, needed)
    return table
