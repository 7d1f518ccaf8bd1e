"""The table of placement: each component has a dispatcher, and the supervisor one of its own."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from ganger.actors.listeners.authority_listener import AuthorityListener
from ganger.actors.nodes.node_hub import NodeHub
from ganger.actors.nodes.node_link import NodeLink
from ganger.actors.runtime.component import Component
from ganger.actors.supervision.authority import Authority
from ganger.actors.supervision.placement import (
    APART,
    COMPONENTS,
    CORE,
    INSTALLED,
    NOTIFIED_OF_REPLACEMENT,
    PLACEMENT,
    SUPERVISION,
    components,
    elsewhere,
)
from ganger.storage import settings
from ganger.storage.disk import paths
from ganger.transport import messages


def test_each_component_has_a_dispatcher() -> None:
    beside: tuple[type[Component], ...] = (Authority, AuthorityListener, NodeHub, NodeLink)
    every = [each.name for each in (*beside, *COMPONENTS)]
    assert sorted(every) == sorted(PLACEMENT)
    own = {*PLACEMENT} - {each.name for each in INSTALLED.classes}
    assert {*own, "supervisor", "installed_listener"} == set(messages.ACCEPTED)


def test_no_component_shares_the_supervisors_dispatcher_which_stops_them_all() -> None:
    assert SUPERVISION not in PLACEMENT.values()


def test_each_placement_that_the_command_line_offers_is_one_line_of_the_table() -> None:
    assert tuple(APART) == settings.PLACEMENTS
    assert {name for apart in APART.values() for name in apart} <= {*PLACEMENT}


def test_what_lives_in_another_process_is_reached_through_its_keeper() -> None:
    places = paths.Places(Path("/d"), Path("/r"))
    for placement, apart in APART.items():
        there = elsewhere(placement, places)
        assert there == dict.fromkeys(apart, str(places.authority_socket))
        assert (Authority in components(there)) == bool(there)


def test_what_works_for_long_or_waits_for_the_disk_does_not_hold_up_the_path_of_a_job() -> None:
    beside_the_path = ("filter_evaluator", "config_store", "output_reader")
    assert CORE not in {PLACEMENT[name] for name in beside_the_path}


def test_every_component_that_takes_the_news_of_a_replacement_gets_it() -> None:
    takers = [
        name
        for name, accepted in messages.ACCEPTED.items()
        if messages.ComponentReplaced in get_args(accepted) and name != "authority_listener"
    ]
    assert sorted(NOTIFIED_OF_REPLACEMENT) == sorted(takers)
