"""The model of `tests/properties/test_queue_model.py` in more cases than `make test` plays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis
from hypothesis import core
from hypothesis.stateful import run_state_machine_as_test
from tests.properties.test_queue_model import QueueAgainstModel, TestQueue
from tests.torture.tally import Tally

if TYPE_CHECKING:
    from pathlib import Path


def run_queue_model(count: int, seed: int, _folder: Path) -> Tally:
    """Play ``count`` cases; the first that fails is made small, and ends the campaign."""
    tally = Tally()
    drawn = hypothesis.settings(
        TestQueue.settings,
        max_examples=count,
        derandomize=False,
        database=None,
        # Whether a draw is slow says more about the machine than about the queue.
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
        deadline=None,
    )
    before = core.global_force_seed
    setattr(core, "global_force_seed", seed)  # noqa: B010 - it is typed as what it is at first
    try:
        run_state_machine_as_test(QueueAgainstModel, settings=drawn)
    except AssertionError as error:
        notes = getattr(error, "__notes__", [])
        tally.failed("; ".join([f"{type(error).__name__}: {error}", *notes]))
    else:
        for _ in range(count):
            tally.passed()
    finally:
        setattr(core, "global_force_seed", before)  # noqa: B010 - likewise
    return tally
