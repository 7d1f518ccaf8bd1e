"""The table of placement: each component has a dispatcher, and the supervisor one of its own."""

from __future__ import annotations

from typing import get_args

from ganger.actors.supervision.placement import (
    COMPONENTS,
    CORE,
    NOTIFIED_OF_REPLACEMENT,
    PLACEMENT,
    SUPERVISION,
)
from ganger.transport import messages


def test_each_component_has_a_dispatcher() -> None:
    assert [component.name for component in COMPONENTS] == list(PLACEMENT)
    assert {*PLACEMENT, "supervisor"} == set(messages.ACCEPTED)


def test_no_component_shares_the_supervisors_dispatcher_which_stops_them_all() -> None:
    assert SUPERVISION not in PLACEMENT.values()


def test_what_judges_rules_for_long_does_not_hold_up_the_path_of_a_job() -> None:
    beside_the_path = ("filter_evaluator", "lock_manager", "config_store", "output_reader")
    assert CORE not in {PLACEMENT[name] for name in beside_the_path}


def test_every_component_that_takes_the_news_of_a_replacement_gets_it() -> None:
    takers = [
        name
        for name, accepted in messages.ACCEPTED.items()
        if messages.ComponentReplaced in get_args(accepted)
    ]
    assert sorted(NOTIFIED_OF_REPLACEMENT) == sorted(takers)
