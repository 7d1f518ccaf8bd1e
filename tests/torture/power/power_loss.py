"""Loss of power: what was acknowledged is there afterwards, and nothing is done twice.

How it works. A script chosen by a seed runs on a `Machine`, and a `Recorder` writes down each
change on its disk, with what was acknowledged between them. Then the power is lost at a
moment of the record: a `Disk` is brought up to it, and gives what may be left; on that a new
machine is started, without any process and with an empty run directory. `Promises` says
whether it keeps what was acknowledged before that moment. In some cases the new machine is
recorded too, from its first call on, and loses its power again.

A case is named by the seed of its script and its number; `repeat` repeats it alone.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.torture.power.disk import Disk, Image, Loss
from tests.torture.power.job_threads import MachineClock, small_limits
from tests.torture.power.machine import Machine
from tests.torture.power.promises import (
    BrokenPromises,
    Event,
    Promises,
    Shown,
    Submitted,
    Withdrawn,
    work_of,
)
from tests.torture.power.recorder import Entry, Mark, Recorder
from tests.torture.power.script import Script
from tests.torture.tally import Tally

from ganger.storage import settings
from ganger.storage.fsck import repairing
from ganger.storage.fsck.findings import FindingRemedy

CASES_PER_SCRIPT = 120
"""Crash states made from one script, spread over its record."""

ACTIONS_PER_SCRIPT = 70
ACTIONS_AFTER_RECOVERY: Sequence[int] = (0, 10, 25)
SECOND_LOSSES = 3
LATE_FILES_CHANCE = 0.5
RESTING_COMPACTOR_CHANCE = 0.5
"""How likely it is that another thread creates the files of new jobs."""
SECOND_LOSS_CHANCE = 0.12
REPAIR_CHANCE = 0.2
"""How likely it is that `ganger fsck --repair` comes before the start."""
MEMORY = Path("/dev/shm")

Play = Callable[[Machine], None]


def run_power_loss(count: int, seed: int, folder: Path) -> Tally:
    """Make ``count`` crash states, and start a new machine on each."""
    tally = Tally()
    dice = random.Random(seed)
    runs: list[_Run] = []
    with _in_memory(folder) as place:
        while tally.injected < count:
            script = dice.getrandbits(32)
            run = _Run(f"script {script}", random.Random(script), place, tally, limit=count)
            run.record(_play_script)
            wanted = min(CASES_PER_SCRIPT, count - tally.injected)
            run.lose_power(sorted(dice.sample(range(CASES_PER_SCRIPT), wanted)))
            runs.append(run)
    tally.figures = {
        "scripts": str(len(runs)),
        "recorded changes": str(sum(run.changes for run in runs)),
        "losses during or after a recovery": str(sum(run.second_losses for run in runs)),
    }
    return tally


def repeat(script: int, case: int, folder: Path) -> list[str]:
    """One case of a script again, with the second losses that follow from it: what it breaks."""
    tally = Tally()
    with _in_memory(folder) as place:
        run = _Run(f"script {script}", random.Random(script), place, tally)
        run.record(_play_script)
        run.lose_power([case])
    return tally.faults


def lose_power_everywhere(play: Play, folder: Path, *, losses: int, part: float = 1.0) -> list[str]:
    """Play a scene, and lose the power so many times at every moment of it: what that breaks.

    ``part``: which part of the moments is taken, always the same ones of a scene.
    """
    tally = Tally()
    lose_power_in(play, folder, "scene", tally, losses=losses, part=part)
    assert tally.injected > losses
    return tally.faults


def lose_power_in(
    play: Play, folder: Path, name: str, tally: Tally,
    *, losses: int, limit: int | None = None, part: float = 1.0,
) -> None:  # fmt: skip
    """As `lose_power_everywhere`, by ``name`` other losses, up to ``limit`` in the tally."""
    with _in_memory(folder) as place:
        run = _Run(name, random.Random(0), place, tally, limit)
        run.record(play)
        run.lose_power_everywhere(losses, part)


@contextlib.contextmanager
def _in_memory(folder: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: the model flushes, the real disk need not."""
    if not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK)):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="ganger-torture-", dir=MEMORY) as made:
        yield Path(made)


def _play_script(machine: Machine) -> None:
    Script(machine).play(ACTIONS_PER_SCRIPT)


class _Run:
    """One record, and the losses of power in it."""

    def __init__(
        self, name: str, dice: random.Random, folder: Path, tally: Tally, limit: int | None = None
    ) -> None:
        self._name = name
        self._dice = dice
        self._root = folder / "machine"
        self._tally = tally
        self._limit = limit
        self._clock = MachineClock()
        self._actions_after = ACTIONS_AFTER_RECOVERY
        self._second_losses = SECOND_LOSSES
        self._entries: list[Entry] = []
        self._judged: set[object] | None = None
        self.second_losses = 0

    @property
    def changes(self) -> int:
        """How many changes on the disk were recorded."""
        return sum(not isinstance(entry, Mark) for entry in self._entries)

    def record(self, play: Play) -> None:
        """Let it all happen once, on a new data directory."""
        self._clear()
        (self._root / "data").mkdir()
        recorder = Recorder(self._root / "data")
        with pytest.MonkeyPatch.context() as patch:
            small_limits(patch)
            _choose_who_creates(patch, self._name)
            self._clock.install(patch)
            recorder.install(patch)
            machine = Machine(self._root, self._dice, self._clock, recorder.happened)
            _connect(machine, recorder, patch)
            try:
                machine.boot()
                play(machine)
            finally:
                machine.power_off()
        recorder.check()
        self._entries = recorder.entries

    def lose_power(self, cases: Sequence[int]) -> None:
        """Lose it in these cases, of which each has a part of the record to itself."""
        moments: list[tuple[int, str, random.Random]] = []
        for case in cases:
            name = f"{self._name} case {case}"
            dice = random.Random(name)
            share = (case + dice.random()) / CASES_PER_SCRIPT
            moments.append((round(share * len(self._entries)), name, dice))
        self._lose_at(moments)

    def lose_power_everywhere(self, losses: int, part: float) -> None:
        """Lose it so many times at this part of the moments; after a recovery nothing else happens.

        What the same promises and the same rest of the disk come to is looked at once.
        """
        self._actions_after = (0,)
        self._second_losses = 1
        self._judged = set()
        moments: list[tuple[int, str, random.Random]] = []
        every = range(len(self._entries) + 1)
        taken = random.Random(self._name).sample(every, math.ceil(part * len(every)))
        for moment in sorted(taken):
            for number in range(losses):
                name = f"{self._name} moment {moment} loss {number}"
                moments.append((moment, name, random.Random(name)))
        self._lose_at(moments)

    def _lose_at(self, moments: Sequence[tuple[int, str, random.Random]]) -> None:
        disk = Disk()
        past: list[Event] = []
        done = 0
        for moment, name, dice in moments:
            if self._is_enough:
                return
            _bring_up(disk, past, self._entries[done:moment])
            done = moment
            loss = Loss.chosen(dice)
            image = disk.crash(dice, loss)
            where = f"{name} ({moment} of {len(self._entries)}, {loss})"
            is_recorded = dice.random() < SECOND_LOSS_CHANCE
            if not is_recorded and self._is_judged(image, past):
                continue
            recorder = self._restart(where, image, past, dice, is_recorded=is_recorded)
            if is_recorded and recorder is not None:
                recorder.check()
                self._lose_again(where, recorder, past)

    def _is_judged(self, image: Image, past: Sequence[Event]) -> bool:
        if self._judged is None:
            return False
        known = len(self._judged)
        self._judged.add((len(past), frozenset(image.tree().items())))
        return len(self._judged) == known

    @property
    def _is_enough(self) -> bool:
        return self._limit is not None and self._tally.injected >= self._limit

    def _lose_again(self, where: str, recorder: Recorder, past: Sequence[Event]) -> None:
        for number in range(self._second_losses):
            if self._is_enough:
                return
            dice = random.Random(f"{where} {number}")
            moment = dice.randint(0, len(recorder.entries))
            disk, events = Disk(recorder.start), list(past)
            _bring_up(disk, events, recorder.entries[:moment])
            loss = Loss.chosen(dice)
            image = disk.crash(dice, loss)
            again = f"{where}, then {number} ({moment} of {len(recorder.entries)}, {loss})"
            self.second_losses += 1
            self._restart(again, image, events, dice, is_recorded=False)

    def _restart(
        self, where: str, image: Image, past: Sequence[Event], dice: random.Random,
        *, is_recorded: bool,
    ) -> Recorder | None:  # fmt: skip
        """Start a machine on what is left, and judge it; its record, if it lived long enough."""
        self._clear()
        image.materialise(self._root / "data")
        recorder = Recorder(self._root / "data", image)
        with pytest.MonkeyPatch.context() as patch:
            small_limits(patch)
            if random.Random(f"files {where}").random() < LATE_FILES_CHANCE:
                # A start leaves all segments to the compactor, which writes all files.
                patch.setattr(settings, "FILES_UNWRITTEN_MAX", 0)
                patch.setattr(settings, "FILES_AT_ONCE", 0)
            _choose_who_creates(patch, where)
            self._clock.install(patch)
            self._clock.now += dice.choice((3.0, 1000.0))
            if is_recorded:
                recorder.install(patch)
            machine = Machine(self._root, dice, self._clock, recorder.happened)
            _connect(machine, recorder, patch)
            try:
                if not is_recorded and random.Random(f"repair {where}").random() < REPAIR_CHANCE:
                    _repair(machine)
                self._tell(where, _judge(machine, past))
                if is_recorded:
                    Script(machine).play(dice.choice(self._actions_after))
            except Exception as error:  # noqa: BLE001 - one more way to break a promise
                self._tally.failed(f"{where}: {type(error).__name__}: {error}")
                return None
            finally:
                machine.power_off()
        return recorder

    def _tell(self, where: str, broken: BrokenPromises) -> None:
        text = "; ".join([where, *broken.sentences])
        if broken.other and not (broken.lost or broken.doubled or broken.conflicting):
            self._tally.failed(text)
        else:
            self._tally.judge(
                text,
                lost=len(broken.lost),
                doubled=len(broken.doubled),
                conflicting=len(broken.conflicting),
            )

    def _clear(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)
        self._root.mkdir()


def _connect(machine: Machine, recorder: Recorder, patch: pytest.MonkeyPatch) -> None:
    """Let the machine decide what its disk does, until ``patch`` is undone.

    What was opened meanwhile may hold the recorder's `close` for ever, and through it the machine
    with all its descriptors.
    """

    def refuse_writing_back() -> None:
        machine.was_refused = True
        recorder.refuse_writing_back()

    patch.setattr(recorder, "before_change", machine.interrupt)
    patch.setattr(recorder, "is_flush_refused", machine.refuses_flush)
    machine.refuse_writing_back = refuse_writing_back
    machine.evict_all = recorder.evict_all


def _choose_who_creates(patch: pytest.MonkeyPatch, where: str) -> None:
    """Have the compactor write the files of new jobs when the queue rests, or the queue."""
    if random.Random(f"thread {where}").random() < RESTING_COMPACTOR_CHANCE:
        patch.setattr(settings, "FILES_UNWRITTEN_MAX", 0)


def _bring_up(disk: Disk, events: list[Event], entries: Sequence[Entry]) -> None:
    for entry in entries:
        if isinstance(entry, Mark):
            events.append(entry.event)
        else:
            disk.take(entry)


def _repair(machine: Machine) -> None:
    """Repair the directory: nothing may be left to an operator. Fails otherwise."""
    if not machine.places.queue.is_dir():
        return
    left = repairing.repair(machine.places, lambda _: None, lambda _done, _total: None).findings
    hard = [one for one in left if one.remedy is not FindingRemedy.NONE]
    assert not hard, "; ".join(f"{one.kind} {one.path}: {one.what}" for one in hard)


def _judge(machine: Machine, past: Sequence[Event]) -> BrokenPromises:
    """Start the machine, and compare what it shows with what was promised."""
    promised = Promises()
    for event in past:
        promised.take(event)
    machine.boot()
    found = machine.look(promised.keys, set(promised.jobs))
    broken = promised.broken_by(found)
    broken.conflicting += [f"lock {name} is held by the dead" for name in machine.refused_locks()]
    # From now on these are promised too: a client has seen them.
    ids = {work_of(job): job_id for job_id, (job, _) in found.jobs.items()}
    for number, offer in promised.offers.items():
        if all(work in ids for work in offer.work):
            machine.note(Submitted(number, tuple(ids[work] for work in offer.work)))
        else:
            machine.note(Withdrawn(number))
    machine.note(Shown(tuple(found.jobs)))
    return broken
