"""What an opcode declares that it needs, as a forecast."""

from __future__ import annotations

from tests.storage.prediction.shown import shown

from ganger.storage.opcodes import LevelNeeds, LockNeeds
from ganger.storage.prediction.declared_needs import NAMES_MAX
from ganger.storage.prediction.needs import forecast_of_needs, forecast_with_unknowns

MANY = tuple(f"n{number}" for number in range(NAMES_MAX + 1))


def test_a_level_with_very_many_names_is_unknown_in_its_mode() -> None:
    for forecast in (forecast_of_needs, forecast_with_unknowns):
        assert shown(forecast(LockNeeds(node=LevelNeeds(exclusive=MANY)))) == "node X?"
        assert shown(forecast(LockNeeds(node=LevelNeeds(shared=MANY)))) == "node s?"
        assert len(forecast(LockNeeds(node=LevelNeeds(shared=MANY[1:]))).node.names) == NAMES_MAX


def test_the_names_of_other_levels_stay_known() -> None:
    needs = LockNeeds(node=LevelNeeds(shared=MANY), network=LevelNeeds(exclusive=("w",)))
    assert shown(forecast_of_needs(needs)) == "node s?, network X w"
    assert forecast_of_needs(needs).big_lock == "shared"


def test_the_name_for_what_is_unknown_is_a_name_like_any_other_in_real_needs() -> None:
    needs = LockNeeds.of({"node": {"exclusive": ["?"]}})
    assert shown(forecast_of_needs(needs)) == "node X ?"
    assert shown(forecast_with_unknowns(needs)) == "node X?"
