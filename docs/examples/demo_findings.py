"""What the demonstration verifies once all jobs of its plan have ended."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.examples.demo_plan import (
    HOT_FIX,
    NODES,
    PLANNED_FAILURES,
    foresee,
    name_of,
    needed_by,
    step_of,
)

from ganger.cli.plans import PlannedJob
from ganger.storage.jobs.job_views import JobInfo


@dataclass(frozen=True)
class Holding:
    """A lock that a step held, from the start of its operation to its end."""

    step: str
    lock: tuple[str, str]
    mode: str
    since: float
    until: float

    def excludes(self, other: Holding) -> bool:
        """Whether the two must not have been held at the same time."""
        is_same = self.lock[0] == other.lock[0] and (
            self.lock[1] == other.lock[1] or "*" in {self.lock[1], other.lock[1]}
        )
        return is_same and "exclusive" in {self.mode, other.mode} and self.step != other.step


class Findings:
    """Compares the outcome of the plan with the expected one. A check returns its faults."""

    def __init__(self, plan: Sequence[PlannedJob], jobs: dict[str, JobInfo], scratch: Path) -> None:
        self._plan = plan
        self._jobs = jobs
        self._scratch = scratch
        self._ends, self._stopped = foresee(plan)

    def all(self) -> Iterator[tuple[str, list[str]]]:
        """Every claim, and the faults that refute it."""
        wrong = len(self._plan) - len(PLANNED_FAILURES) - len(self._stopped)
        yield f"{wrong} jobs succeeded, {len(PLANNED_FAILURES)} failed as planned", self._statuses()
        yield f"{len(self._stopped)} dependants of failures never started", self._dependants()
        yield "every step started exactly once", self._witnesses()
        yield "no two steps held locks that exclude each other", self._overlaps()
        yield (
            f"the urgent {HOT_FIX} overtook jobs that were submitted before it",
            self._overtaking(),
        )
        yield "the catalogue has lost no entry, and every archive is as it says", self._archives()
        yield "the restored files are as at their source", self._restored()

    def _statuses(self) -> list[str]:
        faults = []
        for name, job in self._jobs.items():
            if job.status is not self._ends[name]:
                faults.append(f"{name} ended with {job.status} instead of {self._ends[name]}")
        for name, words in PLANNED_FAILURES.items():
            said = [line.text for op in self._jobs[name].ops or () for line in op.log]
            if not any(words in text for text in said):
                faults.append(f"{name} did not say {words!r}, but {said}")
        return faults

    def _dependants(self) -> list[str]:
        faults = []
        for name in sorted(self._stopped):
            ops = self._jobs[name].ops or []
            faults += [f"{name}: {op.summary} started" for op in ops if op.executed is not None]
            # As in Ganeti, the first opcode has the cause; the others say that it was another's.
            if "Dependency job" not in str(ops[0].result):
                faults.append(f"{name} does not name the failed dependency, but {ops[0].result}")
        return faults

    def _witnesses(self) -> list[str]:
        expected = {}
        for planned in self._plan:
            job = self._jobs[name_of(planned)]
            for op, info in zip(planned.ops, job.ops or (), strict=True):
                if info.executed is not None:
                    expected[step_of(op)] = f"{job.id}\n"
        found = {file.name: file.read_text() for file in (self._scratch / "witness").iterdir()}
        return [
            f"{step}: started by {(found.get(step) or 'nobody').split()}"
            for step in sorted(expected.keys() | found.keys())
            if expected.get(step) != found.get(step)
        ]

    def _overlaps(self) -> list[str]:
        return [
            f"{one.step} and {other.step} both held {'/'.join(one.lock)}"
            for one, other in itertools.combinations(self._holdings(), 2)
            if one.excludes(other) and one.since < other.until and other.since < one.until
        ]

    def _holdings(self) -> Iterator[Holding]:
        for planned in self._plan:
            infos = self._jobs[name_of(planned)].ops or ()
            for op, info in zip(planned.ops, infos, strict=True):
                if info.executed is None or info.ended is None:
                    continue
                for level, modes in op.get("locks", {}).items():
                    for mode, names in modes.items():
                        for name in names:
                            lock = (level, name)
                            yield Holding(step_of(op), lock, mode, info.executed, info.ended)

    def _overtaking(self) -> list[str]:
        hot_fix = self._jobs[HOT_FIX]
        rivals = [
            self._jobs[name_of(job)]
            for number, job in enumerate(self._plan)
            if needed_by(self._plan, number) == [("survey", ["success"])]
        ]
        later = [job for job in rivals if job.id < hot_fix.id and began(job) > began(hot_fix)]
        return [] if later else ["all jobs that were ready with it had begun before it"]

    def _archives(self) -> list[str]:
        store = self._scratch / "store"
        lines = (self._scratch / "catalogue").read_text().splitlines()
        entries = {path: checksum for checksum, path in (line.split() for line in lines)}
        found = {f"store/{file.name}": sha256(file) for file in store.iterdir()}
        left = {f"store/{node}.tar.gz" for node in NODES} - {"store/node05.tar.gz"}
        faults = [f"the catalogue has {sorted(entries)}"] if set(entries) != left else []
        return faults + ([f"the store has {found}"] if found != entries else [])

    def _restored(self) -> list[str]:
        faults = []
        serving = self._scratch / "serving"
        if sorted(folder.name for folder in serving.iterdir()) != sorted({*NODES} - {"node05"}):
            faults.append(f"these nodes serve: {sorted(serving.iterdir())}")
        for folder in serving.iterdir():
            manifest = (self._scratch / "manifests" / folder.name).read_text().splitlines()
            wanted = {line.split("  ", 1)[1]: line.split("  ", 1)[0] for line in manifest}
            found = {
                str(f.relative_to(folder)): sha256(f) for f in folder.rglob("*") if f.is_file()
            }
            if found != wanted:
                faults.append(f"{folder.name}: {sorted(found.items() ^ wanted.items())[:5]} differ")
        return faults


def began(job: JobInfo) -> float:
    """When the first operation of a job started."""
    return min((op.executed for op in job.ops or () if op.executed is not None), default=0.0)


def sha256(file: Path) -> str:
    """The checksum of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()
