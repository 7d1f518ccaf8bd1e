"""What the daemon works at while it, or a part of it, is killed; and the judge of what came of it.

Every operation bears witness of its own start: a line in a file that only it appends to. And
it holds a kernel lock (flock) for each node that it has locked, as long as any process of its
command lives: a command that finds it taken reports a conflict.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import select
import shutil
import subprocess
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from ganger import Client, GangerError, JobStatus
from ganger.storage.alive import lock_files, process_identity
from ganger.storage.queue_files import job_files
from ganger.storage.queue_files.spool import owner_of

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from tests.torture.tally import Tally

    from ganger.storage.disk.paths import Places

NODES = ("n0", "n1", "n2", "n3", "n4")
DRAIN_SECONDS = 90.0
LEAVE_SECONDS = 10
"""How long what has ended may take to be gone."""

LOOK_SECONDS = 0.01


class Broken(msgspec.Struct):
    """The promises that were found broken."""

    lost: int = 0
    doubled: int = 0
    conflicting: int = 0
    others: list[str] = []

    def count_in(self, tally: Tally, text: str, faults: int = 1) -> None:
        """Count this as what came of ``faults`` faults; ``text`` says what repeats them."""
        tally.injected += faults
        tally.lost += self.lost
        tally.doubled += self.doubled
        tally.conflicting += self.conflicting
        if self.others:
            tally.faults.append(f"{text}: {'; '.join(self.others)}")
        else:
            # Each of the counted has a sentence of its own.
            assert self.lost + self.doubled + self.conflicting == 0
            tally.survived += faults


class Submission(msgspec.Struct, kw_only=True):
    """One submission: its jobs, the witnesses of each, and the reply to its client."""

    key: str
    jobs: list[dict[str, Any]]
    names: list[list[str]]
    ids: list[int] = []
    floor: int = 0
    """The highest id that a client had got when it was made."""


class Purges(msgspec.Struct):
    """The jobs that clients wanted to be purged."""

    asked: set[int] = set()
    """They may be gone."""
    acknowledged: set[int] = set()
    """They must be gone, for good."""


class Book:
    """What the submitters write down: each submission, and the ids that were acknowledged."""

    def __init__(self) -> None:
        self.purges = Purges()
        self.highest = 0
        self.acknowledged = 0
        self.faults: list[str] = []
        self._open: list[Submission] = []
        self._known: set[int] = set()
        self._changed = threading.Condition()

    def begin(self, submission: Submission) -> None:
        """A submission is about to be made."""
        with self._changed:
            submission.floor = self.highest
            self._open.append(submission)

    def acknowledge(self, submission: Submission, ids: list[int]) -> None:
        """Its client got these ids."""
        with self._changed:
            submission.ids = ids
            if len(ids) != len(submission.jobs) or ids != sorted(set(ids)):
                self.faults.append(f"{len(submission.jobs)} jobs were given the ids {ids}")
            if min(ids) <= submission.floor:
                self.faults.append(f"ids {ids} were given out after {submission.floor}")
            if reused := self._known.intersection(ids):
                self.faults.append(f"ids {sorted(reused)} were given out twice")
            self._known.update(ids)
            self.highest = max(self.highest, *ids)
            self.acknowledged += len(ids)
            self._changed.notify_all()

    def known(self) -> list[int]:
        """The jobs that were acknowledged so far and that nobody has wanted to be purged."""
        with self._changed:
            return sorted(self._known - self.purges.asked)

    def purge(self, job_id: int) -> None:
        """This job is about to be purged."""
        with self._changed:
            self.purges.asked.add(job_id)

    def purged(self, job_id: int) -> None:
        """Its client heard that the job is purged."""
        with self._changed:
            self.purges.acknowledged.add(job_id)

    def fail(self, text: str) -> None:
        """A submitter has found something that must not be."""
        with self._changed:
            self.faults.append(text)

    def wait_for_more(self, count: int, seconds: float) -> None:
        """Wait until ``count`` more jobs were acknowledged, or until that takes too long."""
        with self._changed:
            wanted = self.acknowledged + count
            self._changed.wait_for(lambda: self.acknowledged >= wanted, seconds)

    def close(self) -> tuple[list[Submission], list[str]]:
        """The submissions and the faults since this was asked last."""
        with self._changed:
            closed = self._open, self.faults
            self._open, self.faults = [], []
            return closed


class Work:
    """Makes jobs, and judges what became of them, in one directory."""

    def __init__(self, folder: Path, places: Places) -> None:
        self._folder = folder
        self._places = places
        self._witnesses = folder / "witnesses"
        self._guards = folder / "guards"
        self._conflicts = folder / "conflicts"
        self._conflicts_seen = 0
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._counted: dict[str, int] = {}
        for made in (self._witnesses, self._guards):
            made.mkdir(parents=True)

    def name(self) -> str:
        """A name for one opcode, which no other has."""
        with self._lock:
            return str(next(self._numbers))

    def opcode(self, name: str, locks: Mapping[str, str], then: str) -> dict[str, Any]:
        """An opcode that bears witness under ``name``, guards its nodes, and does ``then``."""
        # What it prints is looked for in the output that is kept of the job.
        script = [f'echo "$GANGER_JOB_ID" >> {self._witnesses}/{name}', f"echo began {name}"]
        for descriptor, (node, mode) in enumerate(locks.items(), 3):
            report = f'echo "$GANGER_JOB_ID {name} {mode} {node}" >> {self._conflicts}'
            script.append(f"exec {descriptor}>>{self._guards}/{node}")
            script.append(f"flock --nonblock --{mode} {descriptor} || {report}")
        needs: dict[str, list[str]] = defaultdict(list)
        for node, mode in locks.items():
            needs[mode].append(node)
        return {
            "OP_ID": "OP_EXEC",
            "argv": ["sh", "-c", "\n".join([*script, then])],
            "env": {"GANGER_TEST_FOLDER": str(self._folder)},
            "locks": {"node": dict(needs)} if needs else {},
        }

    def draw(self, dice: random.Random) -> Submission:
        """A submission of a few short jobs that are in each other's way."""
        jobs, names = [], []
        for place in range(dice.choice((1, 1, 1, 2, 3))):
            mine = [self.name() for _ in range(dice.choice((1, 1, 2)))]
            job: dict[str, Any] = {"ops": [self._draw_opcode(name, dice) for name in mine]}
            if place and dice.random() < 0.3:
                job["depends"] = [-1]
            if dice.random() < 0.2:
                job["priority"] = dice.randint(-20, 19)
            jobs.append(job)
            names.append(mine)
        return Submission(key=f"key-{names[0][0]}", jobs=jobs, names=names)

    def _draw_opcode(self, name: str, dice: random.Random) -> dict[str, Any]:
        nodes = dice.sample(NODES, dice.choice((0, 1, 1, 2)))
        locks = {node: "exclusive" if dice.random() < 0.4 else "shared" for node in nodes}
        return self.opcode(name, locks, f"exec sleep {dice.uniform(0.0, 0.05):.3f}")

    # ------------------------------------------------------------ what is promised

    def judge(
        self,
        client: Client,
        submissions: Sequence[Submission],
        killed: Collection[int] = (),
        purges: Purges | None = None,
    ) -> Broken:
        """Wait for the end of everything; what was promised and is not so.

        ``killed`` are the jobs whose process was killed: they may have ended in an error, and
        so may those that depend on them. ``purges``: these jobs are gone on purpose.
        """
        purges = Purges() if purges is None else purges
        broken = Broken()
        there = sorted(info.id for info in client.jobs())
        client.wait(*there, timeout=DRAIN_SECONDS, fields=("status",))
        found = {info.id: info for info in client.jobs(there)} if there else {}
        by_key = defaultdict(list)
        for info in found.values():
            by_key[info.reason].append(info.id)
        may_fail = set(killed)
        for submission in submissions:
            stored = by_key[submission.key]
            given = submission.ids
            if missing := sorted(set(given).difference(stored, purges.asked)):
                broken.lost += len(missing)
                broken.others.append(f"{submission.key} got {given}; {missing} are not its own")
            elif given and stored != [job_id for job_id in given if job_id in stored]:
                broken.others.append(f"{submission.key} got {given}, and is there as {stored}")
            if not given and len(stored) not in (0, len(submission.jobs)):
                broken.others.append(f"{len(stored)} of {len(submission.jobs)} jobs are there")
            # Also what is purged by now has run once.
            ids = given or stored
            may_fail |= _dependants(submission, ids, may_fail)
            self._judge_runs(submission, ids, broken, may_fail)
            for job_id, names in zip(ids, submission.names, strict=False):
                if job_id not in found:
                    continue
                is_whole = found[job_id].status is JobStatus.SUCCESS
                broken.others += _judge_output(client, job_id, names, is_whole=is_whole)
        for job_id, info in found.items():
            if info.status is not JobStatus.SUCCESS and job_id not in may_fail:
                ops = client.job(job_id).ops or []
                results = [op.result for op in ops]
                broken.others.append(f"job {job_id} ended in {info.status}: {results}")
        broken.others += [f"job {job_id} is back" for job_id in self._back(found, purges)]
        self._judge_leftovers(client, broken)
        return broken

    def _back(self, there: Collection[int], purges: Purges) -> list[int]:
        """The jobs that are there though their purge was acknowledged: listed, or as files."""
        names = (path.name for path in self._places.queue.rglob("job-*"))
        left = {job_id for name in names if (job_id := job_files.id_of(name) or owner_of(name))}
        return sorted(purges.acknowledged.intersection(left.union(there)))

    def _judge_runs(
        self, submission: Submission, stored: list[int], broken: Broken, may_fail: Collection[int]
    ) -> None:
        for place, names in enumerate(submission.names):
            job_id = stored[place] if place < len(stored) else None
            for name in names:
                runs = self.runs(name)
                if len(runs) > 1:
                    broken.doubled += 1
                    broken.others.append(f"opcode {name} of job {job_id} ran for jobs {runs}")
                elif runs and runs != [job_id]:
                    broken.others.append(f"opcode {name} of job {job_id} ran for job {runs[0]}")
                elif not runs and job_id is not None and job_id not in may_fail:
                    broken.lost += 1
                    broken.others.append(f"opcode {name} of job {job_id} did not run")

    def runs(self, name: str) -> list[int]:
        """The jobs for which this opcode was started."""
        path = self._witnesses / name
        found = [int(line) for line in path.read_text().split()] if path.exists() else []
        self._counted[name] = len(found)
        return found

    def recount(self) -> int:
        """How many opcodes were started again after they had been judged."""
        before = self._counted.copy()
        return sum(len(self.runs(name)) > max(count, 1) for name, count in before.items())

    def take_conflicts(self) -> list[str]:
        """The conflicts that operations have reported since this was asked last."""
        lines = self._conflicts.read_text().splitlines() if self._conflicts.exists() else []
        new, self._conflicts_seen = lines[self._conflicts_seen :], len(lines)
        return new

    def _judge_leftovers(self, client: Client, broken: Broken) -> None:
        if rows := client.locks():
            broken.others.append(f"locks are left: {rows}")
        if quarantined := client.info().quarantined:
            broken.others.append(f"quarantined: {quarantined}")
        broken.others += [f"a command still runs on {node}" for node in self.guarded()]
        for path in self._places.lock_files.glob("job_*"):
            pid = lock_files.holder(path)
            if pid is not None and not _has_left(path, pid):
                broken.others.append(f"process {pid} still holds {path.name}")
        if conflicts := self.take_conflicts():
            broken.conflicting += len(conflicts)
            broken.others.append(f"in conflict (job opcode mode node): {', '.join(conflicts)}")

    def guarded(self) -> list[str]:
        """The nodes that are still guarded by a command, though all of them have ended."""
        return [path.name for path in sorted(self._guards.iterdir()) if not _is_free(path)]


def _dependants(submission: Submission, stored: list[int], failing: Collection[int]) -> set[int]:
    """The jobs of the submission that depend on one that may fail."""
    found: set[int] = set()
    for (before, job_id), job in zip(itertools.pairwise(stored), submission.jobs[1:], strict=False):
        if job.get("depends") == [-1] and (before in failing or before in found):
            found.add(job_id)
    return found


def _is_free(guard: Path) -> bool:
    with guard.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            wait = ["flock", "--wait", str(LEAVE_SECONDS), str(guard), "true"]
            return subprocess.run(wait, check=False).returncode == 0
    return True


def _has_left(path: Path, pid: int) -> bool:
    """Whether the process ends, or leaves the job of this lock file for another one, in time."""
    deadline = time.monotonic() + LEAVE_SECONDS
    try:
        pidfd = process_identity.open_pidfd(pid)
    except ProcessLookupError:
        return True
    try:
        while lock_files.holder(path) == pid and time.monotonic() < deadline:
            if select.select([pidfd], [], [], LOOK_SECONDS)[0]:
                return True
        return lock_files.holder(path) != pid
    finally:
        os.close(pidfd)


def clean_folders(places: Places) -> None:
    """Delete what others might: the folder in memory, and the lock files for good measure."""
    for folder in (places.run, places.lock_files):
        shutil.rmtree(folder, ignore_errors=True)


def tell_error(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {error.text if isinstance(error, GangerError) else error}"


def _judge_output(
    client: Client, job_id: int, names: Sequence[str], *, is_whole: bool
) -> list[str]:
    """What each operation printed is in the job's output: once, and if all succeeded, all of it."""
    output = b"".join(chunk.data for chunk in client.logs(job_id, stream="stdout"))
    printed = [output.count(b"began %s\n" % name.encode()) for name in names]
    if max(printed, default=0) > 1 or (is_whole and min(printed, default=1) < 1):
        return [f"job {job_id} printed {names} {printed} times: {output[:200]!r}"]
    return []
