"""D6: every component, the fork server, the daemon and jobs' processes are killed under load.

Crashes are spread over the components, because each may fail only so often within a minute;
then the daemon is killed, or one component is made to fail until the restart limit ends it. In
every other round, lock manager and configuration store live in a process of their own, which is
killed, too.
"""

from __future__ import annotations

import itertools
import os
import random
import select
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING

import psutil
from tests.faults.harness import Daemon, wait_for_end
from tests.torture.kills import victims, workload
from tests.torture.kills.clients import Load
from tests.torture.kills.victims import Target
from tests.torture.kills.workload import Book, Broken, Submission, Work
from tests.torture.tally import Tally

from ganger import JobStatus
from ganger.actors.supervision.placement import COMPONENTS
from ganger.actors.supervision.supervising import policy_of
from ganger.storage import settings
from ganger.storage.alive import lock_files, process_identity
from ganger.transport import frames
from ganger.transport.messages import CrashComponent
from ganger.transport.zmq.dealer import Dealer

if TYPE_CHECKING:
    from pathlib import Path

PARTS = [component.name for component in COMPONENTS]
CRASHES_MAX = 3
"""How often one component is made to fail in the life of a daemon: fewer than it may."""

FORK_SERVER = "fork_server:lean"
AUTHORITY = "authority"
AUTHORITY_PROCESS = "authority process"
ROUND_FAULTS_MAX = 12
PATIENCE_SECONDS = 30.0
BETWEEN_SECONDS = 0.05
LOOK_SECONDS = 0.2
ASK_SECONDS = 0.02


class _ComponentStage:
    """One directory, its daemon, and what is killed of it."""

    def __init__(self, folder: Path, counts: Counter[str]) -> None:
        folder.mkdir()
        self._folder = folder
        self._daemon = Daemon(folder)
        self._work = Work(folder, self._daemon.places)
        self._book = Book()
        self._daemon.up()
        self._counts = counts
        self._dice = random.Random()
        self._crashes: Counter[str] = Counter()
        self._killed: set[int] = set()
        self._others: list[str] = []
        self._submissions: list[Submission] = []
        self._targets: list[Target] = []

    def close(self) -> None:
        """End every process."""
        for target in self._targets:
            target.close()
        self._daemon.__exit__()

    def round(self, seed: str, faults: int, placement: str) -> Broken:
        """Put in some faults under load, and judge what has come of them."""
        if self._daemon.placement != placement:
            self._daemon.run("down")
            self._crashes.clear()
            self._daemon.placement = placement
            self._daemon.up()
        self._dice = random.Random(seed)
        self._killed, self._others, self._submissions = set(), [], []
        with Load(self._daemon, self._work, self._book, seed):
            try:
                while faults > 0:
                    faults -= self._put_in(faults)
            finally:
                self._daemon.up()
        submissions, noticed = self._book.close()
        with self._daemon.client() as client:
            broken = self._work.judge(
                client, [*self._submissions, *submissions], self._killed, self._book.purges
            )
            self._check_restarts()
            client.autoarchive(-1.0)
        broken.others += [*self._others, *noticed]
        return broken

    def _put_in(self, faults_max: int) -> int:
        """One or more faults; returns how many."""
        self._book.wait_for_more(self._dice.randint(0, 4), 1.0)
        select.select([], [], [], self._dice.uniform(0.0, BETWEEN_SECONDS))
        parts = [*PARTS, FORK_SERVER]
        if self._daemon.placement == "apart":
            parts += [AUTHORITY, AUTHORITY_PROCESS]
        left = [part for part in parts if self._crashes[_failing(part)] < CRASHES_MAX]
        limit = policy_of(PARTS[0]).restarts_max + 1
        if faults_max >= limit and (not left or self._dice.random() < 0.02):
            return self._fail_until_the_end(self._dice.choice(PARTS))
        if not left or self._dice.random() < 0.04:
            self._kill_daemon()
            return 1
        if self._dice.random() < 0.15:
            self._kill_job()
            return 1
        if self._dice.random() < 0.1:
            self._counts["folders cleaned"] += 1
            workload.clean_folders(self._daemon.places)
            return 1
        together = self._dice.sample(
            left, min(len(left), faults_max, self._dice.choice((1, 1, 2, 3)))
        )
        for part in together:
            self._kill_part(part)
        return len(together)

    # ------------------------------------------------------------ what is killed

    def _kill_part(self, part: str) -> None:
        self._counts[part] += 1
        self._crashes[_failing(part)] += 1
        if part == FORK_SERVER:
            self._kill_fork_server()
        elif part == AUTHORITY_PROCESS:
            self._kill_authority()
        else:
            self._crash(part)

    def _crash(self, part: str) -> None:
        """Make a component fail. While it is being replaced it cannot: then ask again."""
        wanted = self._crashes[part]
        # It may have to wait for a process that is being replaced, too.
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            self._daemon.crash(part)
            if self._restarts(part) >= wanted:
                return
        self._others.append(f"{part} did not fail on request")

    def _restarts(self, part: str) -> int:
        with self._daemon.client() as client:
            info = client.info(timeout=PATIENCE_SECONDS)
        return next((found.restarts for found in info.components if found.name == part), 0)

    def _kill_fork_server(self) -> None:
        # Between two servers there is none for a moment: the restarted one is waited for.
        before = self._restarts(FORK_SERVER)
        for _ in range(1_000):
            servers = self._daemon.fork_servers()
            if servers and servers[0].status() != psutil.STATUS_ZOMBIE:
                pidfd = process_identity.open_pidfd(servers[0].pid)
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                wait_for_end(pidfd)
                return
            before = self._restarts(FORK_SERVER)
        self._others.append(f"there is no fork server after {before} restarts")

    def _kill_authority(self) -> None:
        wanted = self._crashes[AUTHORITY]
        for _ in range(1_000):
            try:
                self._daemon.kill_authority()
            except (ValueError, psutil.NoSuchProcess):
                # It is being replaced.
                continue
            while self._restarts(AUTHORITY) < wanted:
                # The daemon notices its end by itself.
                select.select([], [], [], ASK_SECONDS)
            return
        self._others.append("there is no process of the lock manager")

    def _kill_daemon(self) -> None:
        self._counts["daemon"] += 1
        pidfd = process_identity.open_pidfd(self._pid())
        self._check_restarts()
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        wait_for_end(pidfd)
        self._crashes.clear()
        self._daemon.up()

    def _kill_job(self) -> None:
        self._counts["job"] += 1
        for path in self._daemon.places.lock_files.glob("job_*"):
            pid = lock_files.holder(path)
            if pid is None or (pidfd := victims.open_pidfd(pid)) is None:
                continue
            folder = self._daemon.places.lock_files
            killed = victims.kill_with_its_jobs(pid, pidfd, folder)
            os.close(pidfd)
            self._killed |= killed
            if killed:
                return

    def _fail_until_the_end(self, part: str) -> int:
        """One component fails again and again: the daemon must end, and say why."""
        self._counts["restart limit"] += 1
        target = Target(self._work, self._folder)
        self._targets.append(target)
        with self._daemon.client() as client:
            self._submissions += victims.start(client, [target], are_waited_for=True)
        pidfd = process_identity.open_pidfd(self._pid())
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not select.select([pidfd], [], [], ASK_SECONDS)[0]:
            assert time.monotonic() < deadline, f"the daemon goes on though {part} always fails"
            self._crash_if_there(part, pidfd)
        os.close(pidfd)
        said = (self._daemon.data / "daemon.out").read_text()
        if f"component {part} failed too often" not in said:
            self._others.append(f"the daemon ended, and said {said[-300:]!r}")
        self._crashes.clear()
        self._daemon.up()
        with self._daemon.client() as client:
            job = client.job(target.job_id)
            if job.status is not JobStatus.RUNNING or job.process_id != target.process_id:
                self._others.append(f"job {job.id} is {job.status} after the restart limit")
            target.open_gate()
            for ended in client.wait(target.job_id, target.waiter_id, timeout=PATIENCE_SECONDS):
                if ended.status is not JobStatus.SUCCESS:
                    self._others.append(f"job {ended.id} is {ended.status}")
        return policy_of(part).restarts_max + 1

    def _crash_if_there(self, part: str, pidfd: int) -> None:
        """As `Daemon.crash`, of a daemon that may end meanwhile."""
        dealer = Dealer(f"ipc://{self._daemon.places.socket}")
        try:
            message = frames.encode(CrashComponent(component=part), 1)
            while not dealer.send(message):
                dealer.receive(LOOK_SECONDS)
                if select.select([pidfd], [], [], 0)[0]:
                    return
            while not isinstance(answer := dealer.receive(LOOK_SECONDS), bytes):
                # News of the connection are no answer; nor is silence, if the listener is gone.
                if answer is None:
                    return
        finally:
            dealer.close()

    def _check_restarts(self) -> None:
        """Every component that failed was started again, as often as it failed."""
        for part, count in self._crashes.items():
            if part == FORK_SERVER:
                # Those of an executor that fails are ended by it, and are no failures.
                continue
            restarts = self._restarts(part)
            if restarts < count:
                self._others.append(f"{part} failed {count} times, restarted {restarts} times")

    def _pid(self) -> int:
        pid = lock_files.holder(self._daemon.places.queue / "lock")
        assert pid is not None, "the daemon ended by itself"
        return pid


def _failing(part: str) -> str:
    """The component that fails when this is killed."""
    return AUTHORITY if part == AUTHORITY_PROCESS else part


def run_component_kills(count: int, seed: int, folder: Path) -> Tally:
    """Kill ``count`` parts of the system under load."""
    tally = Tally()
    counts: Counter[str] = Counter()
    stages = itertools.count(1)
    stage = _ComponentStage(folder / str(next(stages)), counts)
    try:
        for number in itertools.count(1):
            faults = min(ROUND_FAULTS_MAX, count - tally.injected)
            if faults <= 0:
                break
            try:
                placement = settings.PLACEMENTS[number % len(settings.PLACEMENTS)]
                broken = stage.round(f"{seed} {number}", faults, placement)
            except Exception as error:  # noqa: BLE001 - the next ones shall be tried all the same
                broken = Broken(others=[workload.tell_error(error)])
            broken.count_in(tally, f"seed {seed} round {number}", faults)
            if broken.others:
                stage.close()
                stage = _ComponentStage(folder / str(next(stages)), counts)
    finally:
        stage.close()
    for name, number in sorted(counts.items()):
        tally.figures[name] = str(number)
    return tally
