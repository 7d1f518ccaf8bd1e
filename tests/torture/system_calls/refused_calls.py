"""D9: calls on files of the daemon, and of the processes of jobs, are refused while they work.

strace is attached to what runs, makes calls on the files of the data directory fail with a
full disk, a broken one, no descriptors or no quota, once or for as long as it is attached,
and is detached again: then the cause is gone, and everything must go on without a restart.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

from tests.torture.system_calls import strace
from tests.torture.system_calls.refusal_case import Case
from tests.torture.system_calls.refusal_stage import ANY_DESCRIPTOR, Refusal, RefusalStage, Target
from tests.torture.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CAUSES = ("ENOSPC", "EIO", "EMFILE", "EDQUOT")

CALLS: dict[Target, dict[str, int]] = {
    "daemon": {
        "write": 8, "pwrite64": 8, "fdatasync": 8, "fsync": 6, "syncfs": 3, "rename": 5,
        "renameat2": 8, "openat": 12, "ftruncate": 8, "unlink": 3,
    },
    "job": {"write": 2, "fdatasync": 1, "fsync": 1, "renameat2": 2, "openat": 3, "ftruncate": 2},
}  # fmt: skip
"""Whose calls, and up to which of its kind a single one is refused: about as many are made."""

DESCRIPTORS_LEFT_MAX = 5

CASES_PER_DAEMON = 25


class RefusalCampaign:
    """Goes through calls, causes and durations, in an order that ``seed`` decides."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.tally = Tally()
        self._seed = seed
        self._chance = random.Random(seed)
        self._folder = folder
        self._stage: RefusalStage | None = None
        self._stages = itertools.count(1)

    def run(self, count: int) -> None:
        """Put ``count`` faults in."""
        not_reached = 0
        for number, refusal in enumerate(self._refusals()):
            if self.tally.injected >= count or number > 3 * count:
                break
            if number % CASES_PER_DAEMON == 0:
                self.close()
            text = f"seed {self._seed} case {number}: {refusal}"
            try:
                if self._stage is None:
                    place = next(self._stages)
                    self._stage = RefusalStage(self._folder / str(place), place)
                case = Case(self._stage, refusal)
                is_injected = case.run()
            except Exception as error:  # noqa: BLE001 - the next ones shall be tried all the same
                self.tally.failed(f"{text}: {strace.describe(error)}")
                self.close()
                continue
            if case.problems:
                self.tally.lost += case.lost
                self.tally.doubled += case.doubled
                self.tally.failed(f"{text}: {'; '.join(case.problems)}")
                self.close()
            elif is_injected:
                self.tally.judge(text, lost=case.lost, doubled=case.doubled)
            else:
                not_reached += 1
        self.tally.figures["not reached"] = str(not_reached)

    def close(self) -> None:
        """End every process."""
        if self._stage is not None:
            self._stage.close()
        self._stage = None

    def _refusals(self) -> Iterator[Refusal]:
        """Each call in turn, with the next of its faults, until there are none left; then again."""
        while True:
            rounds = [
                self._refusals_of(target, call, last)
                for target, calls in CALLS.items()
                for call, last in calls.items()
            ]
            rounds.append(
                [
                    Refusal(
                        target="daemon",
                        call=ANY_DESCRIPTOR,
                        cause="EMFILE",
                        when="1+",
                        left=left,
                        is_killed=is_killed,
                    )
                    for is_killed in (False, True)
                    for left in range(DESCRIPTORS_LEFT_MAX + 1)
                ]
            )
            self._chance.shuffle(rounds)
            for row in itertools.zip_longest(*rounds):
                yield from (refusal for refusal in row if refusal is not None)

    def _refusals_of(self, target: Target, call: str, last: int) -> list[Refusal]:
        found = []
        for cause in CAUSES:
            found += [
                Refusal(target=target, call=call, cause=cause, when=when, scope="queue")
                for when in ("1+", *map(str, range(1, last + 1)))
            ]
            found.append(Refusal(target=target, call=call, cause=cause, when="1+", is_killed=True))
            if target == "daemon":
                found.append(
                    Refusal(target=target, call=call, cause=cause, when="1+", scope="data")
                )
        self._chance.shuffle(found)
        return found


def run_refused_calls(count: int, seed: int, folder: Path) -> Tally:
    """Refuse ``count`` times a call of the daemon or of a job's process."""
    campaign = RefusalCampaign(seed, folder)
    try:
        campaign.run(count)
    finally:
        campaign.close()
    return campaign.tally
