"""Many steps of the lock manager's decisions, each compared with the slow model.

    python -m tests.torture.locks.model_steps SEED EPISODE

plays one episode again and prints its steps.
"""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

from tests.properties.locking_model import EXCLUSIVE, LEVELS, LOCKS, OWNERS, SHARED
from tests.properties.locking_steps import Changes, LockingSteps
from tests.torture.tally import Tally

from ganger.storage.locks.locks import LockChange

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ganger.storage.locks.locks import Owner

STEPS_MAX = 60
"""Steps of one episode, after which every owner is served."""


def run_locking_model(count: int, seed: int, _folder: Path) -> Tally:
    """Take ``count`` steps: after each one the state, its journal and the model must agree."""
    tally = Tally()
    number = 0
    while tally.injected < count:
        episode = Episode(seed, number)
        fault = episode.play(min(STEPS_MAX, count - tally.injected))
        tally.injected += episode.steps_taken
        tally.survived += episode.steps_taken - (fault is not None)
        if fault is not None:
            tally.faults.append(f"seed {seed} episode {number}: {fault}")
        number += 1
    tally.figures["episodes"] = str(number)
    return tally


class Episode:
    """From a state without locks to one in which every owner was served."""

    def __init__(self, seed: int, number: int, show: Callable[[str], None] | None = None) -> None:
        self._dice = random.Random(f"{seed} locking {number}")
        self._steps = LockingSteps()
        self._show = show
        self.steps_taken = 0
        # Which ways to go on are likely differs from one episode to the next.
        self._ways = list(self._all_ways())
        self._weights = [self._dice.choice((0.2, 1.0, 3.0)) for _ in self._ways]
        self._lively_owners = self._dice.sample(OWNERS, self._dice.randint(2, len(OWNERS)))

    def play(self, steps_max: int) -> str | None:
        """Play it; what went wrong, if anything did."""
        try:
            for _ in range(steps_max):
                self.steps_taken += 1
                [way] = self._dice.choices(self._ways, self._weights)
                way()
                self._steps.check()
            self._steps.finish()
        # Whatever the lock state raises is a finding; `pytest.raises` fails with an exception that
        # is no `Exception`.
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return f"step {self.steps_taken}: {type(error).__name__}: {error}"
        return None

    def _all_ways(self) -> tuple[Callable[[], None], ...]:
        return (
            self._request,
            self._request_what_matters,
            self._request_what_matters,
            self._try_request,
            self._take_what_is_free,
            self._repeat,
            self._set_priority,
            self._give_back,
            self._release_lock_file,
            self._reload,
        )

    def _note(self, *words: object) -> None:
        if self._show is not None:
            self._show(" ".join(str(word) for word in words))

    # Each way draws, says and takes one step.

    def _request(self) -> None:
        owner, priority, changes = self._owner(), self._priority(), self._changes()
        self._note("request", owner.identifier, priority, changes)
        self._steps.request(owner, priority, changes)

    def _request_what_matters(self) -> None:
        idle = [owner for owner in self._steps.model.idle() if owner in self._lively_owners]
        if not idle:
            self._repeat()
            return
        owner, dice = self._dice.choice(idle), self._dice
        candidates = self._steps.mattering(owner)
        chosen = dice.sample(candidates, min(len(candidates), dice.randint(1, 2)))
        change = dice.choice((LockChange.SHARED, LockChange.EXCLUSIVE))
        changes = tuple((lock, change) for lock in sorted(chosen))
        priority = self._priority()
        self._note("request", owner.identifier, priority, changes)
        self._steps.request(owner, priority, changes)

    def _try_request(self) -> None:
        owner, changes = self._owner(), self._changes()
        self._note("try", owner.identifier, changes)
        self._steps.try_request(owner, changes)

    def _take_what_is_free(self) -> None:
        dice = self._dice
        modes = (SHARED, EXCLUSIVE)
        wanted = {(dice.choice(LOCKS), dice.choice(modes)) for _ in range(dice.randint(0, 4))}
        owner, at_least = self._owner(), dice.randint(0, 2)
        self._note("take free", owner.identifier, sorted(wanted), at_least)
        self._steps.take_what_is_free(owner, wanted, at_least)

    def _repeat(self) -> None:
        if not self._steps.model.line:
            self._request()
            return
        request, priority = self._dice.choice(self._steps.model.line), self._priority()
        self._note("repeat", request.owner.identifier, priority)
        self._steps.repeat(request, priority)

    def _set_priority(self) -> None:
        if not self._steps.model.line:
            self._request()
            return
        request = self._dice.choice(self._steps.model.line)
        priority = self._dice.choice((-10, -5, 0, 5))
        self._note("set priority", request.owner.identifier, priority)
        self._steps.set_priority(request, priority)

    def _give_back(self) -> None:
        owner, steps, dice = self._owner(), self._steps, self._dice
        way, level = dice.randrange(4), dice.choice(LEVELS)
        kept = set(dice.sample(LOCKS, dice.randint(0, len(LOCKS))))
        self._note("give back", owner.identifier, way, level, sorted(kept))
        if way == 0:
            steps.release_owner(owner)
        elif way == 1:
            steps.free_level(owner, level)
        elif way == 2:
            steps.downgrade_level(owner, level)
        else:
            steps.intersect(owner, kept)

    def _release_lock_file(self) -> None:
        self._note("release the lock file of two owners")
        self._steps.release_lock_file()

    def _reload(self) -> None:
        self._note("reload")
        self._steps.reload()

    def _owner(self) -> Owner:
        return self._dice.choice(self._lively_owners)

    def _priority(self) -> int:
        return self._dice.choice((0, 0, 0, -5))

    def _changes(self) -> Changes:
        dice = self._dice
        kinds = (*LockChange, LockChange.EXCLUSIVE)
        count = dice.randint(1, 3)
        return tuple((dice.choice(LOCKS), dice.choice(kinds)) for _ in range(count))


if __name__ == "__main__":
    played = Episode(int(sys.argv[1]), int(sys.argv[2]), print)
    sys.exit(played.play(STEPS_MAX))
