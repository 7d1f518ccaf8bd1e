"""The store resolves which locks pending jobs will take, and tells when that may have changed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.actors.runtime.stage import Stage, Staged
from tests.clusters import made_configuration, uuid_of

from ganger.actors.config.config_store import ConfigStore
from ganger.storage import config_files, settings
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.prediction.declared import question_of_job
from ganger.storage.prediction.lock_types import UNKNOWN, exclusive, forecast_of
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import ForecastsOutdated, ForecastsResolved, SetValues

NODE1 = uuid_of("nodes", 1)


@pytest.fixture
def store(stage: Stage) -> Staged[ConfigStore]:
    config_files.write(stage.places.config, made_configuration(nodes=4, instances=6))
    store = stage.start(ConfigStore)
    stage.sent.clear()
    return store


def question(op_id: str, **parameters: Any) -> str:
    found = question_of_job([{"OP_ID": op_id, **parameters}])
    assert found is not None
    return found


SET_NODE = question("OP_NODE_MODIFY_STORAGE", node_name="node1")
REBOOT = question("OP_INSTANCE_REBOOT", instance_name="instance1")


def resolved(store: Staged[ConfigStore], *questions: str) -> ForecastsResolved:
    asked = messages.ResolveForecasts(list(questions))
    return store.ask(asked).answer_as(ForecastsResolved)


def outdated(stage: Stage) -> list[int]:
    """The serial numbers that scheduler and filter evaluator are told: the same."""
    heard = [(name, one) for name, one in stage.sent if isinstance(one, ForecastsOutdated)]
    stage.take(ForecastsOutdated)
    assert [name for name, _ in heard] == ["scheduler", "filter_evaluator"] * (len(heard) // 2)
    return [one.serial_no for _, one in heard[::2]]


def test_questions_are_answered_from_the_configuration(store: Staged[ConfigStore]) -> None:
    found = resolved(store, SET_NODE, REBOOT)
    expected = [
        forecast_of(node=exclusive([NODE1])),
        forecast_of(instance=exclusive(["instance1.example.com"])),
    ]
    assert [one.first for one in found.forecasts] == expected
    assert [one.of_all for one in found.forecasts] == expected
    assert found.serial_no == 7


def test_a_question_that_is_none_has_an_answer_that_knows_nothing(
    store: Staged[ConfigStore],
) -> None:
    [found] = resolved(store, "no question").forecasts
    assert found == (UNKNOWN, UNKNOWN)


def test_a_change_of_what_was_asked_is_told_once_until_it_is_asked_again(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    resolved(store, REBOOT)
    rename = SetValues(
        ObjectKind.INSTANCE, uuid_of("instances", 1), [(["name"], "other.example.com")]
    )
    store.ask(rename)
    assert outdated(stage) == [8]
    assert resolved(store, REBOOT).forecasts[0].first != forecast_of()
    assert outdated(stage) == []
    store.ask(SetValues(ObjectKind.NODE, NODE1, [(["name"], "other.example.com")]))
    store.ask(SetValues(ObjectKind.NODE, NODE1, [(["name"], "another.example.com")]))
    assert outdated(stage) == [9]
    found = resolved(store, question("OP_NODE_MIGRATE", node_name="another"))
    assert found.forecasts[0].first.node.names == (NODE1,)
    assert found.serial_no == 10


def test_other_changes_are_not_told(stage: Stage, store: Staged[ConfigStore]) -> None:
    resolved(store, REBOOT)
    store.ask(SetValues(ObjectKind.INSTANCE, uuid_of("instances", 1), [(["tags"], ["a"])]))
    assert outdated(stage) == []
    assert resolved(store, REBOOT).forecasts[0].first.instance.names == ("instance1.example.com",)


def test_a_store_that_starts_tells_that_older_answers_may_be_others(stage: Stage) -> None:
    config_files.write(stage.places.config, made_configuration())
    stage.make(ConfigStore, incarnation=1).actor.handle(Envelope(messages.Boot()))
    assert outdated(stage) == [7]


def test_a_turn_answers_as_much_as_it_has_time_for(
    store: Staged[ConfigStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "QUERY_SLICE_SECONDS", 0.0)
    assert len(resolved(store, REBOOT, SET_NODE).forecasts) == 1
    monkeypatch.setattr(settings, "QUERY_SLICE_SECONDS", 1e9)
    assert len(resolved(store, REBOOT, SET_NODE).forecasts) == 2
