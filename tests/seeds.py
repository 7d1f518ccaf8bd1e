"""The seed of tests that draw by chance: a fixed one, unless ``GANGER_SEED`` says otherwise."""

from __future__ import annotations

import os
from typing import Final

SEED: Final = 20_261_124
"""Without ``GANGER_SEED``, so that a run of the tests can be repeated as it was."""

VARIABLE: Final = "GANGER_SEED"


def explores() -> bool:
    """Whether each run is to draw anew: ``GANGER_SEED=random``."""
    return os.environ.get(VARIABLE, "") == "random"


def seed() -> int:
    """The seed of this run; it is printed, to be repeated with ``GANGER_SEED=<the number>``."""
    given = os.environ.get(VARIABLE, "")
    chosen = int.from_bytes(os.urandom(4), "big") if given == "random" else int(given or SEED)
    print(f"seed {chosen}: repeat with {VARIABLE}={chosen}")
    return chosen
