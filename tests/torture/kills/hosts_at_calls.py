"""D15: each process on the way of a command to a host is killed at each of its calls.

First a command runs on the host while strace records what one of the processes calls: of the
master its daemon, its hub, and the processes of jobs; of the host its daemon, and those of tasks.
Then each of these calls becomes a kill, while another command runs. It must begin at most once,
its end must be true, and its locks free behind that.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from typing import TYPE_CHECKING

import psutil
from tests.faults.harness import wait_until_gone
from tests.torture.kills import workload
from tests.torture.kills.kill_at_calls import CALLS, NOT_REACHED_MAX, in_turns
from tests.torture.kills.tasks_on_hosts import PATIENCE_SECONDS, Hosts
from tests.torture.system_calls import strace
from tests.torture.system_calls.strace import Tracer
from tests.torture.tally import Tally

from ganger import GangerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ganger import Client

VICTIMS = ("master", "hub", "job", "node daemon", "task")
_CALLS = tuple(call for call in CALLS if call != "openat")
"""To open a file changes nothing: what is created is written, too."""

_LOOK_SECONDS = 0.02


class _Followed(threading.Thread):
    """A command on the host, from its submission to its end, with a client that repeats itself."""

    def __init__(self, client: Client, opcode: dict[str, object], key: str) -> None:
        super().__init__(daemon=True)
        self.problem = ""
        self.job = 0
        self._client, self._opcode, self._key = client, opcode, key

    def run(self) -> None:
        """Submit it, and wait for its end."""
        try:
            self.job = self._client.submit(self._opcode, key=self._key, timeout=PATIENCE_SECONDS)
            self._client.wait(self.job, timeout=PATIENCE_SECONDS)
        except GangerError as error:
            self.problem = repr(error)


class Stage(Hosts):
    """A master and a host, whose processes are traced."""

    def record(self, victim: str, name: str) -> list[tuple[str, int]]:
        """The calls of this process, or these, while a command runs: which, and how often by then.

        Each thread counts its own ones: it is the first to have made so many that is killed.
        """
        # What remains from the first job serves the next ones.
        with self._master.client() as client:
            self._run(client, f"{name}-first")
            with Tracer(self._processes(victim), strace.tracing(_CALLS), follows=True) as tracer:
                self._run(client, name)
        begun = [found for line in tracer.lines if (found := strace.BEGUN.match(line))]
        most: Counter[str] = Counter()
        for (_, call), count in Counter((one[1], one[2]) for one in begun).items():
            most[call] = max(most[call], count)
        return [(call, at + 1) for call in sorted(most) for at in range(most[call])]

    def kill(self, victim: str, call: str, number: int, name: str) -> list[str] | None:
        """Kill it there: what is wrong then; None: it did not come to that."""
        words = strace.killing(call, number, after=False)
        pids = self._processes(victim)

        def replace() -> None:
            tracer.kill()
            if victim in ("master", "node daemon"):
                wait_until_gone(*pids)
                (self._master if victim == "master" else self._host).up()

        with self._master.client() as client:
            # Connected before strace counts: only the command's own calls do.
            client.info(timeout=PATIENCE_SECONDS)
            with Tracer(pids, words, follows=True) as tracer:
                job, is_killed = self._run(client, name, lambda: _has_killed(tracer), replace)
            [ended] = client.wait(job, timeout=PATIENCE_SECONDS)
            kind = "job" if victim in ("job", "task") else "node daemon"
            wrong = [text] if (text := self._wrong_with(ended, name, kind)) else []
            wrong += self._wrong_at_rest(client)
        return wrong if is_killed else None

    def _run(
        self,
        client: Client,
        name: str,
        is_killed: Callable[[], bool] = lambda: False,
        replace: Callable[[], None] = lambda: None,
    ) -> tuple[int, bool]:
        """A command from beginning to end; its job, and whether something was killed.

        ``replace``: what is done as soon as that ``is_killed``.
        """
        self.tasks += 1
        is_replaced = False
        followed = _Followed(client, self._opcode(name, random.Random(name)), name)
        followed.start()
        is_over = False
        while not is_over:
            # The kill may come with the very end.
            is_over = not followed.is_alive()
            if not is_replaced and is_killed():
                is_replaced = True
                replace()
            followed.join(_LOOK_SECONDS)
        assert not followed.problem, followed.problem
        return followed.job, is_replaced

    def _processes(self, victim: str) -> list[int]:
        side = self._host if victim in ("node daemon", "task") else self._master
        daemon = psutil.Process(side.pid())
        if victim in ("master", "node daemon"):
            return [daemon.pid]
        with self._master.client() as client:
            hub = self._hub(client).pid
        if victim == "hub":
            return [hub]
        servers = [one for one in daemon.children() if one.pid != hub]
        return [one.pid for each in servers for one in (each, *each.children(recursive=True))]


def _has_killed(tracer: Tracer) -> bool:
    return any("killed by SIGKILL" in line for line in tracer.lines)


class _Campaign:
    """Goes through the calls of each victim in turn, in an order that ``seed`` decides."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.tally = Tally()
        self._seed, self._folder = seed, folder
        self._chance = random.Random(seed)
        self._numbers = itertools.count(1)
        self._calls: dict[str, int] = {}
        self._killed: Counter[str] = Counter()
        self._tasks = 0
        self.stage = Stage(folder / "0")

    def run(self, count: int) -> None:
        """Kill ``count`` times."""
        not_reached = 0
        for victim, call, number in self._points():
            if self.tally.injected >= count or not_reached > (NOT_REACHED_MAX + 1) * count:
                break
            name = f"{self._seed}-{next(self._numbers)}"
            try:
                wrong = self.stage.kill(victim, call, number, name)
            except Exception as error:  # noqa: BLE001 - the next ones shall be tried all the same
                wrong = [workload.tell_error(error)]
            if wrong is None:
                not_reached += 1
                continue
            self._killed[victim] += 1
            if not wrong:
                self.tally.passed()
                continue
            where = f"seed {self._seed} kill {name}: {victim} at {call} {number}"
            self.tally.failed(f"{where}: {'; '.join(wrong)}")
            self._begin_afresh(name)
        self.tally.figures["tasks"] = str(self._tasks + self.stage.tasks)
        self.tally.figures |= {
            one: f"{times} (at {self._calls[one]} calls)" for one, times in self._killed.items()
        }
        self.tally.figures["not reached"] = str(not_reached)

    def _points(self) -> Iterator[tuple[str, str, int]]:
        """From each victim in turn, until all of its calls were taken; then all again."""
        while True:
            victims = list(VICTIMS)
            self._chance.shuffle(victims)
            yield from in_turns([self._points_of(victim) for victim in victims])

    def _points_of(self, victim: str) -> Iterator[tuple[str, str, int]]:
        found = self.stage.record(victim, f"{self._seed}-{next(self._numbers)}")
        self._calls[victim] = len(found)
        self._chance.shuffle(found)
        for call, number in found:
            yield victim, call, number

    def _begin_afresh(self, name: str) -> None:
        self._tasks += self.stage.tasks
        self.stage.close()
        self.stage = Stage(self._folder / name)


def run_hosts_at_each_call(count: int, seed: int, folder: Path) -> Tally:
    """Kill ``count`` processes, each at another of its system calls."""
    campaign = _Campaign(seed, folder)
    try:
        campaign.run(count)
    finally:
        campaign.stage.close()
    return campaign.tally
