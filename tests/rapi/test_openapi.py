"""The OpenAPI document is made from the declarations of all resources."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from ganger.rapi import openapi, table
from ganger.rapi.declarations import Right


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi.document(table.RESOURCES, "1.2.3")


def test_each_method_of_each_resource_is_described(document: dict[str, Any]) -> None:
    described = {
        (path, method.upper()) for path, methods in document["paths"].items() for method in methods
    }
    declared = {
        (re.sub(r"\{(\w+):\w+\}", r"{\1}", resource.path), name)
        for resource in table.RESOURCES
        for name in resource.methods
    }
    assert described == declared


def test_operations_have_names_of_their_own(document: dict[str, Any]) -> None:
    names = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(set(names)) == len(names)


def test_each_reference_leads_somewhere(document: dict[str, Any]) -> None:
    wanted = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert wanted <= set(document["components"]["schemas"])


def test_parts_of_the_path_are_parameters(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            found = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
            assert found == set(re.findall(r"\{(\w+)\}", path))


def test_what_needs_no_user_says_so(document: dict[str, Any]) -> None:
    free = {
        resource.path
        for resource in table.RESOURCES
        for method in resource.methods.values()
        if method.right is Right.NOTHING
    }
    assert "/healthz" in free
    assert document["paths"]["/healthz"]["get"]["security"] == [{}]
    assert "security" not in document["paths"]["/2/jobs"]["get"]


def test_a_reply_has_no_name_of_a_message(document: dict[str, Any]) -> None:
    assert "type" not in document["components"]["schemas"]["JobExplained"]["properties"]
