"""Values made by a schema are as it says, and others are not: the fuzzer must not be blind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.torture.fuzz import schemas

from ganger.rapi import openapi, table

DOCUMENT = openapi.document(table.RESOURCES, "1")
COMPONENTS = DOCUMENT["components"]["schemas"]

POINT = {
    "type": "object",
    "required": ["x"],
    "properties": {
        "x": {"type": "integer"},
        "name": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"enum": ["a", "b"]}]},
        "next": {"type": "array", "items": {"$ref": "#/components/schemas/Point"}},
    },
    "additionalProperties": False,
}
POINTS = {"Point": POINT}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"x": 1, "name": None, "pair": [1, "a"], "next": [{"x": 2}]}, ""),
        ([], "[] is no object"),
        ({}, "['x'] missing"),
        ({"x": True}, "x: True is no integer"),
        ({"x": 1.0}, "x: 1.0 is no integer"),
        ({"x": 1, "y": 1}, "y is not declared"),
        ({"x": 1, "name": 5}, "name: 5 is no string and 5 is no null"),
        ({"x": 1, "pair": [1]}, "pair: 1 items instead of 2"),
        ({"x": 1, "pair": [1, "c"]}, "pair: 'c' is none of ['a', 'b']"),
        ({"x": 1, "next": [{"x": 1}, {"x": None}]}, "next: x: None is no integer"),
    ],
)
def test_a_value_that_is_not_as_declared_is_named(value: Any, expected: str) -> None:
    assert schemas.mismatch(value, {"$ref": "#/components/schemas/Point"}, POINTS) == expected


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
@pytest.mark.parametrize("name", ["Change", "NewJob", "NewRule", "Rule"])
def test_what_is_made_for_a_body_of_ours_is_as_declared(name: str, data: st.DataObject) -> None:
    value = data.draw(schemas.values(COMPONENTS[name], COMPONENTS))
    assert schemas.mismatch(_listed(value), COMPONENTS[name], COMPONENTS) == ""


def _listed(value: Any) -> Any:
    """The value as it is after JSON: with lists instead of tuples."""
    if isinstance(value, dict):
        return {name: _listed(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_listed(one) for one in value]
    return value
