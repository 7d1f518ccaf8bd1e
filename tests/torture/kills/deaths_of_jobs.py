"""D4: processes of jobs are killed, and stopped: with a daemon, without one, between two.

How long a death stays unnoticed is measured from the moment when the process's pidfd tells of
it, to the moment when a client that watches has seen the end of the job and the list of locks
does not name the job any more. A hundredth of the deaths may take longer than 100 ms and none
longer than a second; because the machine that runs this may be busy with something else, it
is a fault only above two, and the figures tell the rest.
"""

from __future__ import annotations

import calendar
import itertools
import math
import os
import random
import re
import select
import signal
import time
from typing import TYPE_CHECKING, Any

import psutil
from tests.faults.harness import process_of
from tests.torture.kills import victims, workload
from tests.torture.kills.clients import Load
from tests.torture.kills.victims import BREEDER, FAMILY, GATED, Stranger, Target
from tests.torture.kills.workload import Book, Broken, Submission, Work
from tests.torture.system_calls.strace import DirectDaemon
from tests.torture.tally import Tally

from ganger import JobStatus
from ganger.storage.alive import lock_files, process_identity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FAULT_SECONDS = 2.0
ROUND_FAULTS_MAX = 12
SCENE_FAULTS_MAX = 6
EARLY_SECONDS = 0.05
PATIENCE_SECONDS = 30.0
DEATH = re.compile(r"detected death of job (\d+) at (\S+ \S+) UTC: its process ended")
FATES = ("killed", "killed", "reused", "later", "stopped", "done")
"""What becomes of a job while there is no daemon; ``later``: killed when there is one again."""


class _JobStage:
    """One directory, its daemon, and what is done to the jobs in it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._daemon = DirectDaemon(folder)
        self._work = Work(folder, self._daemon.places)
        self._book = Book()
        self._daemon.up()
        self._client = self._daemon.client()
        self._watcher = self._daemon.client()
        self.seconds: list[float] = []
        self.counts: dict[str, int] = {}
        self._dice = random.Random()
        self._submissions: list[Submission] = []
        self._killed: set[int] = set()
        self._others: list[str] = []

    def close(self) -> None:
        """End every process."""
        self._client.close()
        self._watcher.close()
        self._daemon.__exit__()

    def round(self, seed: str, faults: int) -> Broken:
        """Put in some faults under load, and judge what has come of them."""
        self._dice = random.Random(seed)
        self._submissions, self._killed, self._others = [], set(), []
        with Load(self._daemon, self._work, self._book, seed, 1):
            try:
                while faults > 0:
                    faults -= self._put_in(faults)
            finally:
                if not self._daemon.is_up:
                    self._daemon.up()
        submissions, noticed = self._book.close()
        broken = self._work.judge(
            self._client, [*self._submissions, *submissions], self._killed, self._book.purges
        )
        self._client.autoarchive(-1.0)
        broken.others += [*self._others, *noticed]
        return broken

    def _put_in(self, faults_max: int) -> int:
        """One or more faults; returns how many."""
        cases: list[tuple[str, int, Callable[[], None]]] = [
            ("running", 10, self._kill_running),
            ("waiting", 2, self._kill_waiting),
            ("early", 3, self._kill_early),
            ("spare", 1, self._kill_spare),
            ("stopped", 1, self._stop_and_continue),
            ("pid reused", 2, self._reuse_pid),
        ]
        if faults_max > 1 and self._dice.random() < 0.15:
            count = min(faults_max, self._dice.randint(2, SCENE_FAULTS_MAX))
            self._restart_between(count)
            return count
        name, _, case = self._dice.choices(cases, [weight for _, weight, _ in cases])[0]
        self._count(name)
        case()
        return 1

    def _count(self, name: str, number: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + number

    # ------------------------------------------------------------ the cases

    def _start(self, *targets: Target, are_waited_for: bool) -> None:
        self._submissions += victims.start(self._client, targets, are_waited_for=are_waited_for)

    def _target(self, *commands: str) -> Target:
        return Target(self._work, self._folder, self._dice.choice(commands))

    def _kill_running(self) -> None:
        target = self._target(GATED, GATED, FAMILY, BREEDER)
        self._start(target, are_waited_for=self._dice.random() < 0.5)
        self._measure(target.job_id, target.kill)
        self._end(target)

    def _kill_waiting(self) -> None:
        target = self._target(GATED)
        self._start(target, are_waited_for=True)
        process_id = process_of(self._client, target.waiter_id)
        pidfd = process_identity.open_pidfd(process_id)

        def kill() -> float:
            victims.send_kill(pidfd)
            assert select.select([pidfd], [], [], PATIENCE_SECONDS)[0]
            return time.monotonic()

        self._measure(target.waiter_id, kill)
        os.close(pidfd)
        target.open_gate()
        self._check(target.job_id, JobStatus.SUCCESS)
        target.close()

    def _kill_early(self) -> None:
        """Kill a short job's process at some time after its lock file was made."""
        submission = self._work.draw(self._dice)
        ids = self._client.submit_many(submission.jobs, key=submission.key, reason=submission.key)
        submission.ids = ids
        self._submissions.append(submission)
        found = self._find_process(ids[0])
        if found is None:
            return
        pid, pidfd = found
        # From here on it may die or not, or serve another job by then.
        if not select.select([pidfd], [], [], self._dice.uniform(0, EARLY_SECONDS))[0]:
            self._kill_serving(pid, pidfd)
        os.close(pidfd)
        [job, *_] = self._client.wait(*ids, timeout=PATIENCE_SECONDS)
        if job.status is JobStatus.ERROR:
            self._check_text(job.id, (job.ops or [])[-1].result, 0.0)
        elif job.status is not JobStatus.SUCCESS:
            self._others.append(f"job {job.id}, killed early, is {job.status}")

    def _kill_serving(self, pid: int, pidfd: int) -> None:
        """Kill a process, whichever job it serves at that moment."""
        folder = self._daemon.places.lock_files
        self._killed |= victims.kill_with_its_jobs(pid, pidfd, folder)

    def _find_process(self, job_id: int) -> tuple[int, int] | None:
        """The job's process and its pidfd as soon as it has a lock file; None if it has ended."""
        while not self._client.job(job_id).is_final:
            for path in self._daemon.places.lock_files.glob(f"job_{job_id:06d}_*"):
                pid = lock_files.holder(path)
                if pid is None or (pidfd := victims.open_pidfd(pid)) is None:
                    continue
                if lock_files.holder(path) == pid:
                    return pid, pidfd
                # It ended in between, and the number may be another job's by now.
                os.close(pidfd)
        return None

    def _kill_spare(self) -> None:
        """Kill a child of the fork server without a job, which may have been given one by now."""
        [server] = psutil.Process(self._daemon.pid()).children()
        held = {lock_files.holder(path) for path in self._daemon.places.lock_files.glob("job_*")}
        spares = [child.pid for child in server.children() if child.pid not in held]
        pid = self._dice.choice(spares) if spares else 0
        pidfd = victims.open_pidfd(pid) if spares else None
        if pidfd is not None:
            # Fresh, or after other jobs.
            self._count("spare after other jobs", victims.is_between_jobs(pid))
            self._kill_serving(pid, pidfd)
            assert select.select([pidfd], [], [], PATIENCE_SECONDS)[0]
            os.close(pidfd)
        submission = self._work.draw(self._dice)
        submission.ids = self._client.submit_many(
            submission.jobs, key=submission.key, reason=submission.key
        )
        self._submissions.append(submission)
        for job_id in submission.ids:
            self._check(job_id, JobStatus.SUCCESS)

    def _stop_and_continue(self) -> None:
        target = self._target(GATED)
        self._start(target, are_waited_for=True)
        os.kill(target.process_id, signal.SIGSTOP)
        self._kill_spare()
        self._check_alive(target)
        os.kill(target.process_id, signal.SIGCONT)
        target.open_gate()
        self._check(target.job_id, JobStatus.SUCCESS)
        self._end(target)

    def _reuse_pid(self) -> None:
        """The process dies, and its pid is another's, before the daemon can look."""
        target = self._target(GATED, FAMILY)
        self._start(target, are_waited_for=True)
        os.kill(self._daemon.pid(), signal.SIGSTOP)
        try:
            # Every thread of it rests from here on.
            os.waitid(os.P_PID, self._daemon.pid(), os.WSTOPPED)
            target.kill_all()
            stranger = Stranger.with_pid(target.process_id)
        finally:
            os.kill(self._daemon.pid(), signal.SIGCONT)
        self._count("really" if stranger else "not possible here")
        self._check_dead(target.job_id, 0.0)
        self._end(target)
        self._dismiss(stranger)

    def _dismiss(self, stranger: Stranger | None) -> None:
        if stranger is not None:
            if harm := stranger.harm():
                self._others.append(f"a stranger with a job's pid was harmed: {harm}")
            stranger.end()

    # ------------------------------------------------------------ a restart in between

    def _restart_between(self, count: int) -> None:
        fates = [self._dice.choice(FATES) for _ in range(count)]
        targets = []
        for fate in fates:
            self._count(f"{fate} without a daemon" if fate != "later" else "adopted")
            can_fork = fate in ("killed", "later")
            targets.append(self._target(*((GATED, FAMILY, BREEDER) if can_fork else (GATED,))))
        self._start(*targets, are_waited_for=True)
        self._daemon.kill()
        strangers = [self._do(fate, target) for fate, target in zip(fates, targets, strict=True)]
        self._daemon.up()
        for fate, target in zip(fates, targets, strict=True):
            self._judge_fate(fate, target)
        for target in targets:
            self._end(target)
        for stranger in strangers:
            self._dismiss(stranger)

    def _do(self, fate: str, target: Target) -> Stranger | None:
        match fate:
            case "killed":
                target.kill()
            case "reused":
                target.kill_all()
                stranger = Stranger.with_pid(target.process_id)
                self._count("really" if stranger else "in the file only")
                if stranger is None:
                    stranger = Stranger.begin()
                    victims.record_process_id(
                        self._daemon.places.queue, target.job_id, stranger.process_id
                    )
                return stranger
            case "stopped":
                os.kill(target.process_id, signal.SIGSTOP)
            case "done":
                target.open_gate()
                target.wait_for_end()
        return None

    def _judge_fate(self, fate: str, target: Target) -> None:
        match fate:
            case "killed" | "reused":
                self._check_dead(target.job_id, 0.0)
            case "later":
                self._measure(target.job_id, target.kill)
            case "stopped":
                self._check_alive(target)
                os.kill(target.process_id, signal.SIGCONT)
                target.open_gate()
                self._check(target.job_id, JobStatus.SUCCESS)
            case "done":
                self._check(target.job_id, JobStatus.SUCCESS)

    # ------------------------------------------------------------ what is promised

    def _measure(self, job_id: int, kill: Callable[[], float]) -> None:
        """Kill, and measure how long it takes until a watching client and the locks tell."""
        parts = self._watcher.watch(job_id, log=False, timeout=PATIENCE_SECONDS)
        next(parts)
        before = time.time()
        died = kill()
        for _ in parts:
            # The last part is the end of the job.
            continue
        while self._is_owner(job_id):
            assert time.monotonic() - died < PATIENCE_SECONDS, f"job {job_id} keeps its lock"
        seconds = time.monotonic() - died
        self.seconds.append(seconds)
        if seconds > FAULT_SECONDS:
            self._others.append(f"the death of job {job_id} was noticed after {seconds:.3f} s")
        self._check_dead(job_id, before)

    def _is_owner(self, job_id: int) -> bool:
        name = str(job_id)
        return any(
            name in row.owners or any(name in owners for _, owners in row.pending)
            for row in self._client.locks()
        )

    def _check_dead(self, job_id: int, not_before: float) -> None:
        self._killed.add(job_id)
        self._check_text(job_id, self._check(job_id, JobStatus.ERROR), not_before)

    def _check_text(self, job_id: int, result: Any, not_before: float) -> None:
        match = DEATH.search(str(result))
        if match is None or int(match[1]) != job_id:
            self._others.append(f"job {job_id} died, and says {result!r}")
            return
        when = calendar.timegm(time.strptime(match[2], "%Y-%m-%d %H:%M:%S"))
        if not math.floor(not_before) <= when <= time.time():
            self._others.append(f"job {job_id} died after {not_before}, and says {match[2]}")

    def _check_alive(self, target: Target) -> None:
        job, waiter = self._client.job(target.job_id), self._client.job(target.waiter_id)
        statuses = (job.status, waiter.status)
        if statuses != (JobStatus.RUNNING, JobStatus.WAITING) or not self._is_owner(job.id):
            self._others.append(f"job {job.id} was stopped; it and its waiter are {statuses}")

    def _check(self, job_id: int, status: JobStatus) -> Any:
        [job] = self._client.wait(job_id, timeout=PATIENCE_SECONDS)
        result = job.ops[0].result if job.ops else None
        if job.status is not status:
            self._others.append(f"job {job_id} is {job.status} and not {status}: {result}")
        return result

    def _end(self, target: Target) -> None:
        """The job that waited for the target's lock must have got it."""
        if target.waiter_id:
            self._check(target.waiter_id, JobStatus.SUCCESS)
        target.close()


def run_deaths_of_jobs(count: int, seed: int, folder: Path) -> Tally:
    """Put in ``count`` faults, most of which kill the process of a job."""
    tally = Tally()
    seconds: list[float] = []
    counts: dict[str, int] = {}
    stages = itertools.count(1)
    with victims.adopting():
        stage = _JobStage(folder / str(next(stages)))
        stage.seconds, stage.counts = seconds, counts
        try:
            for number in itertools.count(1):
                faults = min(ROUND_FAULTS_MAX, count - tally.injected)
                if faults <= 0:
                    break
                try:
                    broken = stage.round(f"{seed} {number}", faults)
                except Exception as error:  # noqa: BLE001 - the next ones shall be tried too
                    broken = Broken(others=[workload.tell_error(error)])
                broken.count_in(tally, f"seed {seed} round {number}", faults)
                if broken.others:
                    stage.close()
                    stage = _JobStage(folder / str(next(stages)))
                    stage.seconds, stage.counts = seconds, counts
        finally:
            stage.close()
    _show(tally, seconds, counts)
    return tally


def _show(tally: Tally, seconds: list[float], counts: dict[str, int]) -> None:
    ordered = sorted(seconds)
    if ordered:
        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
            value = ordered[math.ceil(share * len(ordered)) - 1]
            tally.figures[f"noticed {name}"] = f"{value * 1_000:.1f} ms"
        tally.figures["measured"] = str(len(ordered))
        tally.figures["over 1 s"] = str(sum(value > 1.0 for value in ordered))
    for name, number in sorted(counts.items()):
        tally.figures[name] = str(number)
