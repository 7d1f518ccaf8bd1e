"""Queries for filter rules, and definitions of fields."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.actors.runtime.stage import Asker, Stage, Staged
from tests.storage.queries.recorded_answers import larger, recorded

from ganger.actors.config.config_store import ConfigStore
from ganger.storage.ganeti.queries.jobs import OURS
from ganger.storage.ganeti.queries.queue_resources import RESOURCES
from ganger.transport import messages


@pytest.fixture
def store(stage: Stage) -> Staged[ConfigStore]:
    stage.places.config.write_bytes(msgspec.json.encode(larger()))
    return stage.start(ConfigStore)


def answered(asker: Asker) -> dict[str, Any]:
    """The answer, in Ganeti's form."""
    found = asker.answer_as(messages.QueryAnswered)
    return {"fields": found.fields, "data": json.loads(found.rows)}


def test_rules_are_answered_also_if_they_are_named(store: Staged[ConfigStore]) -> None:
    uuids = sorted(larger()["filters"])
    answer = answered(store.ask(messages.QueryConfiguration("filter", ["uuid"])))
    assert answer["data"] == [[[0, uuid]] for uuid in uuids]
    named = messages.QueryConfiguration("filter", ["uuid"], ["==", "uuid", uuids[0]])
    assert answered(store.ask(named))["data"] == [[[0, uuids[0]]]]


def test_the_fields_of_each_resource_are_defined(store: Staged[ConfigStore]) -> None:
    for what, resource in RESOURCES.items():
        found = answered(store.ask(messages.QueryFields(what)))
        assert [field["name"] for field in found["fields"]] == list(resource.fields)
        assert found["data"] == []
    jobs = answered(store.ask(messages.QueryFields("job")))["fields"]
    ganetis = [field for field in jobs if field["name"] not in OURS]
    assert ganetis == recorded("022-QueryFields-job")["fields"]


@pytest.mark.parametrize(
    ("message", "name", "text"),
    [
        (messages.QueryConfiguration("job", ["id"]), "BadRequestError", "what: 'job': expected"),
        (messages.QueryFields("os"), "BadRequestError", "what: 'os': expected one of"),
        (
            messages.QueryConfiguration("filter", ["uuid"], ["==", "uuid", "nobody"]),
            "UnknownObjectError",
            "Filter uuid nobody not found",
        ),
        (
            messages.QueryConfiguration("filter", ["uuid"], ["??", "uuid", "x"]),
            "FilterRuleError",
            "filter[0]: Unknown filter operand '??'; expected one of",
        ),
        (messages.QueryFields("filter", ["x"] * 1_001), "BadRequestError", "fields: expected at"),
    ],
)
def test_a_wrong_query_is_refused_and_says_why(
    store: Staged[ConfigStore], message: messages.Message, name: str, text: str
) -> None:
    refused = store.ask(message).refusal
    assert refused[0] == name
    assert refused[1].startswith(text)
