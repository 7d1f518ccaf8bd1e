"""The configuration store on a stage: it tells each what concerns it, and keeps the rest."""

from __future__ import annotations

import msgspec
import pytest
from tests.actors.stage import Stage

from ganger.actors.config_store import ConfigStore
from ganger.storage import config_files, settings
from ganger.transport import messages
from ganger.transport.addresses import Envelope

RULE = {"uuid": "aaaaaaaa-0000-4000-8000-000000000000", "watermark": 1, "action": "PAUSE"}


def test_the_first_start_makes_a_configuration(stage: Stage) -> None:
    stage.start(ConfigStore)
    found = config_files.read(stage.places.config)
    assert found is not None
    assert found["cluster"]["max_running_jobs"] == settings.RUNNING_JOBS_MAX
    assert len(found["cluster"]["uuid"]) == 36


def test_the_next_start_leaves_it_as_it_is(stage: Stage) -> None:
    data = b'{"cluster": {"max_running_jobs": 7},  "filters": {}, "of_somebody": [1]}\n'
    stage.places.config.write_bytes(data)
    stage.start(ConfigStore)
    assert stage.places.config.read_bytes() == data


def test_each_is_told_what_concerns_it(stage: Stage) -> None:
    configuration = {"cluster": {"max_running_jobs": 7}, "filters": {"a": RULE}}
    stage.places.config.write_bytes(msgspec.json.encode(configuration))
    store = stage.start(ConfigStore)
    store.notify(messages.ReportConfiguration())
    assert stage.take_one(messages.RulesChanged, to="filter_evaluator").rules == [RULE]
    assert stage.take_one(messages.LimitsChanged, to="scheduler").running_jobs_max == 7


@pytest.mark.parametrize("data", [b"{}", b'{"cluster": {}}'])
def test_what_is_not_configured_has_its_default(stage: Stage, data: bytes) -> None:
    stage.places.config.write_bytes(data)
    store = stage.start(ConfigStore)
    store.notify(messages.ReportConfiguration())
    assert stage.take_one(messages.RulesChanged).rules == []
    assert stage.take_one(messages.LimitsChanged).running_jobs_max == settings.RUNNING_JOBS_MAX


def test_it_tells_without_being_asked_when_it_starts(stage: Stage) -> None:
    component = ConfigStore(stage.surroundings, 1)
    component.on_receive(Envelope(messages.Boot()))
    assert [type(message) for _, message in stage.told] == [
        messages.RulesChanged,
        messages.LimitsChanged,
        messages.ComponentReady,
    ]


def test_a_broken_configuration_is_no_configuration(stage: Stage) -> None:
    stage.places.config.write_bytes(b'{"cluster": {"max_running_jobs": 0}}')
    component = ConfigStore(stage.surroundings, 1)
    component.on_receive(Envelope(messages.Boot()))
    failed = stage.take_one(messages.ComponentFailed, to="supervisor")
    assert failed.text == (
        f"{stage.places.config}: cluster.max_running_jobs: expected a positive integer, got 0"
    )
