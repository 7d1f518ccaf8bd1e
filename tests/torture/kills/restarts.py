"""D5: the daemon goes and comes back while jobs run, wait for locks, and end without it.

It is killed and stopped in turn, with the commands that a user has. What is promised: running
processes go on, and are the same afterwards; the successor reports what ended meanwhile, with its
whole log; a job that waits for a lock waits on, and gets it from the successor. Now and then the
campaign deletes the folders of sockets and lock files, before or after the daemon goes.
"""

from __future__ import annotations

import itertools
import os
import random
import select
import signal
from typing import TYPE_CHECKING, Any

from tests.faults.harness import Daemon, wait_for_end
from tests.torture.kills import victims, workload
from tests.torture.kills.clients import Load
from tests.torture.kills.victims import Target
from tests.torture.kills.workload import Book, Broken, Submission, Work
from tests.torture.tally import Tally

from ganger import JobStatus
from ganger.storage.alive import process_identity

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_SECONDS = 30.0
TARGETS_MAX = 5
KINDS = ("away", "away", "later", "going", "chain")
"""When a job ends: without a daemon, with the successor, or at about the time when the daemon
goes; or it goes on without one as far as its locks reach, and there it waits."""


class _RestartStage:
    """One directory, its daemon, and the jobs in it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._daemon = Daemon(folder)
        self._work = Work(folder, self._daemon.places)
        self._book = Book()
        self._daemon.up()
        self._client = self._daemon.client()
        self._others: list[str] = []
        self._submissions: list[Submission] = []
        self.ended_alone = 0
        self.cleaned = 0

    def close(self) -> None:
        """End every process."""
        self._client.close()
        self._daemon.__exit__()

    def round(self, seed: str, *, is_killed: bool) -> Broken:
        """One restart under load."""
        dice = random.Random(seed)
        self._others, self._submissions = [], []
        kinds = [dice.choice(KINDS) for _ in range(dice.randint(2, TARGETS_MAX))]
        targets = {self._target(kind): kind for kind in kinds}
        self._submissions += victims.start(self._client, [*targets], are_waited_for=True)
        dependants = self._depend(targets)
        processes = self._processes(targets)
        with Load(self._daemon, self._work, self._book, seed, 1):
            try:
                self._restart(targets, dice, is_killed=is_killed)
            finally:
                self._daemon.up()
            self._check_processes(targets, processes)
            for target, kind in targets.items():
                if kind == "later":
                    target.open_gate(f"word {target.name}")
            for target, kind in targets.items():
                self._check_target(target, kind)
            for job_id in dependants:
                self._check(job_id)
        submissions, noticed = self._book.close()
        broken = self._work.judge(
            self._client, [*self._submissions, *submissions], purges=self._book.purges
        )
        self._client.autoarchive(-1.0)
        broken.others += [*self._others, *noticed]
        return broken

    def _target(self, kind: str) -> Target:
        target = Target(self._work, self._folder)
        if kind == "chain":
            target.add_opcode(self._work)
        return target

    def _depend(self, targets: dict[Target, str]) -> list[int]:
        """A job that has no process yet, for each that ends while there is no daemon."""
        wanted = [target for target, kind in targets.items() if kind == "away"]
        if not wanted:
            return []
        names = [[self._work.name()] for _ in wanted]
        jobs = [
            {"ops": [self._work.opcode(name, {}, "exec true")], "depends": [target.job_id]}
            for target, [name] in zip(wanted, names, strict=True)
        ]
        key = f"key-{names[0][0]}"
        ids = self._client.submit_many(jobs, key=key, reason=key)
        self._submissions.append(Submission(key=key, jobs=jobs, names=names, ids=ids))
        return ids

    def _restart(self, targets: dict[Target, str], dice: random.Random, *, is_killed: bool) -> None:
        for target, kind in targets.items():
            if kind == "going":
                target.open_gate(f"word {target.name}")
        select.select([], [], [], dice.uniform(0.0, 0.02))
        cleans = dice.choice(("before", "after", "never", "never", "never"))
        self.cleaned += cleans != "never"
        pid = self._daemon.pid()
        if cleans == "before":
            workload.clean_folders(self._daemon.places)
        if is_killed:
            descriptor = process_identity.open_pidfd(pid)
            os.kill(pid, signal.SIGKILL)
            wait_for_end(descriptor)
        else:
            self._daemon.run("down")
        if cleans == "after":
            workload.clean_folders(self._daemon.places)
        for target, kind in targets.items():
            if kind in ("away", "chain"):
                target.open_gate(f"word {target.name}")
            if kind == "away":
                target.wait_for_end()
                self.ended_alone += 1

    def _processes(self, targets: dict[Target, str]) -> dict[int, int | None]:
        ids = [job_id for target in targets for job_id in (target.job_id, target.waiter_id)]
        return {info.id: info.process_id for info in self._client.jobs(ids)}

    def _check_processes(self, targets: dict[Target, str], before: dict[int, int | None]) -> None:
        after = self._processes(targets)
        if after != before:
            changed = {job_id: (pid, after.get(job_id)) for job_id, pid in before.items()}
            self._others.append(f"jobs have other processes now: {changed}")

    def _check_target(self, target: Target, kind: str) -> None:
        job = self._check(target.job_id)
        expected = [f"began {target.name}", "started", f"word {target.name}"]
        ops = job.ops or []
        lines = [entry.text for entry in ops[0].log]
        tail = ops[0].result["stdout_tail"] if isinstance(ops[0].result, dict) else ops[0].result
        if lines != expected or tail != "".join(f"{line}\n" for line in expected):
            self._others.append(f"job {job.id} ({kind}) said {lines}, and its result says {tail!r}")
        self._check(target.waiter_id)
        target.close()

    def _check(self, job_id: int) -> Any:
        [job] = self._client.wait(job_id, timeout=PATIENCE_SECONDS)
        if job.status is not JobStatus.SUCCESS:
            self._others.append(
                f"job {job_id} is {job.status}: {[op.result for op in job.ops or []]}"
            )
        return job


def run_restarts(count: int, seed: int, folder: Path) -> Tally:
    """Restart the daemon ``count`` times while jobs run, every other time by a SIGKILL."""
    tally = Tally()
    stages = itertools.count(1)
    stage = _RestartStage(folder / str(next(stages)))
    ended_alone = cleaned = 0
    try:
        for number in range(1, count + 1):
            is_killed = number % 2 == 1
            text = f"seed {seed} restart {number} ({'SIGKILL' if is_killed else 'down'})"
            try:
                broken = stage.round(f"{seed} {number}", is_killed=is_killed)
            except Exception as error:  # noqa: BLE001 - the next ones shall be tried all the same
                broken = Broken(others=[workload.tell_error(error)])
            broken.count_in(tally, text)
            if broken.others:
                ended_alone += stage.ended_alone
                cleaned += stage.cleaned
                stage.close()
                stage = _RestartStage(folder / str(next(stages)))
    finally:
        stage.close()
    tally.figures["jobs ended without a daemon"] = str(ended_alone + stage.ended_alone)
    tally.figures["folders cleaned"] = str(cleaned + stage.cleaned)
    return tally
