"""The plan of the demonstration, rolling-maintenance.yaml, and how each of its jobs must end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ganger import JobStatus
from ganger.cli.plans import PlannedJob, read

PLAN = Path(__file__).with_name("rolling-maintenance.yaml")
PLANNED_FAILURES = {
    "verify-node05": "store/node05.tar.gz: FAILED",
    "restore-last-year": "store/last-year.tar.gz: Cannot open: No such file or directory",
}
"""The jobs that are meant to fail by themselves, and the text that their command must print."""

HOT_FIX = "hot-fix"
NODES = [f"node{number:02}" for number in range(1, 13)]
STEPS = ("manifest", "archive", "verify", "restore")

FILES = 4_000
"""How many files the plan gives to a node, at most."""


def load_plan(scratch: Path, files: int = FILES) -> list[PlannedJob]:
    """The plan with ``scratch`` in place of $DEMO, each job after those it waits for.

    A node gets at most so many ``files``.
    """
    text = PLAN.read_text().replace("$DEMO", str(scratch))
    assert text.count(f" {FILES:_}, ") == 1
    return read(text.replace(f" {FILES:_}, ", f" {files}, "), PLAN.name)


def name_of(job: PlannedJob) -> str:
    """The name of a job of the plan, which every job of this plan has."""
    assert job.name is not None
    return job.name


def needed_by(plan: Sequence[PlannedJob], number: int) -> list[tuple[str, list[str]]]:
    """The jobs that the one at place ``number`` waits for: names, and statuses it accepts."""
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
