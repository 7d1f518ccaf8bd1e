"""The steps beside the model find a lock state that is broken."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.properties import locking_steps
from tests.torture.locks.model_steps import STEPS_MAX, Episode, run_locking_model
from tests.torture.locks.test_linearizing import GrantsConflicting, LosesWakeUps, ServesTheLastFirst

from ganger.actors.locks.locking import LockState


@pytest.mark.parametrize("broken", [GrantsConflicting, LosesWakeUps, ServesTheLastFirst])
def test_a_broken_lock_state_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: type[LockState]
) -> None:
    monkeypatch.setattr(locking_steps, "LockState", broken)
    tally = run_locking_model(500, 1, tmp_path)
    assert tally.faults
    assert not tally.is_clean


NAMED = {"a repeated request names the present first of those that defer it": (1231092995, 1704)}


@pytest.mark.parametrize("name", NAMED)
def test_what_an_episode_once_found_is_mended(name: str) -> None:
    assert Episode(*NAMED[name]).play(STEPS_MAX) is None


def test_an_episode_repeats_itself() -> None:
    told: list[list[str]] = [[], [], []]
    for seed, steps in zip((7, 7, 8), told, strict=True):
        episode = Episode(seed, 0, steps.append)
        assert episode.play(50) is None
        assert episode.steps_taken == 50
    assert told[0] == told[1] != told[2]
