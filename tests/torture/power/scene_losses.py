"""The scenes of `test_power_loss_scenes` with other losses of power than `make test` tries."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

from tests.torture.power.power_loss import lose_power_in
from tests.torture.power.test_power_loss_scenes import SCENES
from tests.torture.tally import Tally

if TYPE_CHECKING:
    from pathlib import Path

LOSSES = 4
"""At every moment of a scene, each time that it is played."""


def run_power_loss_in_scenes(count: int, seed: int, folder: Path) -> Tally:
    """Play one scene after the other, and lose the power ``count`` times in all."""
    tally = Tally()
    dice = random.Random(seed)
    for scene in itertools.cycle(SCENES):
        name = f"{scene.__name__} {dice.getrandbits(32)}"
        lose_power_in(scene, folder, name, tally, losses=LOSSES, limit=count)
        if tally.injected >= count:
            return tally
    raise AssertionError("there are no scenes")
