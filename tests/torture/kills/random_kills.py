"""D1: the daemon is killed at random moments while clients submit; and while it begins, too.

Each daemon has lock manager and configuration store in its own process, or in another one. Of the
latter kind, sometimes that process alone is killed.
"""

from __future__ import annotations

import itertools
import os
import random
import select
from typing import TYPE_CHECKING

import psutil
from tests.torture.kills import workload
from tests.torture.kills.clients import Load
from tests.torture.kills.workload import Book, Broken, Work
from tests.torture.system_calls.strace import DirectDaemon
from tests.torture.tally import Tally

from ganger.actors.supervision.supervising import policy_of
from ganger.storage import settings

if TYPE_CHECKING:
    from pathlib import Path

ROUND_KILLS_MAX = 8
"""Most kills between two times when everything is judged."""

ACKNOWLEDGED_MAX = 8
AFTERWARDS_SECONDS = 0.04
OTHER_CHANCE = 0.3
BEGIN_SECONDS = 0.6
"""A daemon is killed within so long after its start; most are ready by then."""


class _Campaign:
    def __init__(self, seed: int, folder: Path) -> None:
        self.tally = Tally()
        self._seed = seed
        self._dice = random.Random(seed)
        self._folder = folder
        self._stages = itertools.count(1)
        self._purged = self._acknowledged = self._serials_lost = self._kills_at_begin = 0
        self._others_killed = self._others_killed_of_this = 0
        self._begin_afresh()

    def run(self, count: int) -> None:
        """Kill the daemon ``count`` times."""
        for number in itertools.count(1):
            left = count - self.tally.injected
            if left <= 0:
                break
            kills = min(left, self._dice.randint(1, ROUND_KILLS_MAX))
            text = f"seed {self._seed} round {number}, {kills} kills"
            try:
                broken = self._round(number, kills)
            except Exception as error:  # noqa: BLE001 - the next ones shall be tried all the same
                broken = Broken(others=[workload.tell_error(error)])
            broken.count_in(self.tally, text, kills)
            if broken.others:
                self.close()
                self._begin_afresh()
        self._end()

    def close(self) -> None:
        """End every process."""
        self._acknowledged += self._book.acknowledged
        self._purged += len(self._book.purges.acknowledged)
        self._daemon.__exit__()

    def _begin_afresh(self) -> None:
        folder = self._folder / str(next(self._stages))
        folder.mkdir()
        self._daemon = DirectDaemon(folder)
        self._choose_placement()
        self._work = Work(folder, self._daemon.places)
        self._book = Book()
        self._daemon.up()

    def _round(self, number: int, kills: int) -> Broken:
        with Load(self._daemon, self._work, self._book, f"{self._seed} {number}"):
            try:
                while kills > 0:
                    kills -= self._kill_and_start(kills)
            finally:
                if not self._daemon.is_up:
                    self._daemon.up()
        submissions, faults = self._book.close()
        with self._daemon.client() as client:
            broken = self._work.judge(client, submissions, purges=self._book.purges)
            # Ids must not be given out again when only the archive still knows them.
            client.autoarchive(-1.0)
        broken.others += faults
        return broken

    def _kill_and_start(self, kills_max: int) -> int:
        """One kill under load, and maybe some of the successors while they begin."""
        kills = 1
        self._book.wait_for_more(self._dice.randint(0, ACKNOWLEDGED_MAX), 1.0)
        if self._dice.random() < OTHER_CHANCE and self._kill_other():
            return kills
        self._wait_and_kill(self._dice.uniform(0.0, AFTERWARDS_SECONDS))
        self._choose_placement()
        while kills < kills_max and self._dice.random() < 0.4:
            kills += 1
            self._kills_at_begin += 1
            ready = self._daemon.start()
            try:
                self._wait_and_kill(self._dice.uniform(0.0, BEGIN_SECONDS))
            finally:
                os.close(ready)
                self._choose_placement()
        self._daemon.up()
        return kills

    def _choose_placement(self) -> None:
        """Where the next daemon has lock manager and configuration store."""
        self._daemon.placement = self._dice.choice(settings.PLACEMENTS)
        self._others_killed_of_this = 0

    def _kill_other(self) -> bool:
        """Kill the process that has them, if there is one; too often would end the daemon."""
        limit = policy_of("authority").restarts_max
        if self._daemon.placement == "together" or self._others_killed_of_this >= limit:
            return False
        try:
            self._daemon.kill_authority()
        except (ValueError, psutil.NoSuchProcess):
            # It is being replaced.
            return False
        self._others_killed += 1
        self._others_killed_of_this += 1
        return True

    def _wait_and_kill(self, seconds: float) -> None:
        pidfd = self._daemon.open_pidfd()
        try:
            has_ended = bool(select.select([pidfd], [], [], seconds)[0])
        finally:
            os.close(pidfd)
        assert not has_ended, "the daemon ended by itself"
        self._daemon.kill()
        if self._dice.random() < 0.3:
            self._serials_lost += 1
            (self._daemon.places.queue / "serial").unlink(missing_ok=True)

    def _end(self) -> None:
        if again := self._work.recount():
            self.tally.doubled += again
            self.tally.faults.append(f"seed {self._seed}: {again} opcodes ran again, much later")
        acknowledged = self._acknowledged + self._book.acknowledged
        self.tally.figures["jobs acknowledged"] = str(acknowledged)
        self.tally.figures["jobs purged"] = str(self._purged + len(self._book.purges.acknowledged))
        self.tally.figures["killed at the start"] = str(self._kills_at_begin)
        self.tally.figures["other process killed"] = str(self._others_killed)
        self.tally.figures["serial file deleted"] = str(self._serials_lost)


def run_random_kills(count: int, seed: int, folder: Path) -> Tally:
    """Kill the daemon ``count`` times under load."""
    campaign = _Campaign(seed, folder)
    try:
        campaign.run(count)
    finally:
        campaign.close()
    return campaign.tally
