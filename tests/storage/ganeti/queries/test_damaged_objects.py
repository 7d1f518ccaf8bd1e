"""A configuration with missing fields is still answered: it can be served, and repaired."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.storage.ganeti.queries.views import view_of
from tests.storage.queries.recorded_answers import larger

from ganger.storage.ganeti import ssconf, tags
from ganger.storage.ganeti.queries.answering import query
from ganger.storage.ganeti.queries.cluster_info import cluster_info
from ganger.storage.ganeti.queries.resources import RESOURCES

CONTAINERS = ("nodes", "nodegroups", "instances", "networks", "disks")


def holders(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every object of the configuration, and every network interface."""
    yield document["cluster"]
    for container in CONTAINERS:
        for found in document[container].values():
            yield found
            yield from found.get("nics") or ()


def damages() -> Iterator[tuple[int, str]]:
    """The place of an object and one of its fields."""
    for place, found in enumerate(holders(larger())):
        for name in found:
            yield place, name


def fields() -> list[str]:
    """The names of fields that some object has."""
    return sorted({name for _, name in damages()})


@pytest.mark.parametrize("name", fields())
@pytest.mark.parametrize("value", [None, ...], ids=["null", "missing"])
def test_a_field_that_is_missing_everywhere_stops_no_answer(name: str, value: object) -> None:
    document = larger()
    for found in holders(document):
        if name in found and value is None:
            found[name] = None
        else:
            found.pop(name, None)
    view = view_of(document)
    for resource in RESOURCES.values():
        answer = query(resource, view, list(resource.fields))
        assert all(status in {0, 2, 3, 4} for row in answer["data"] for status, _ in row)
    cluster_info(view)
    ssconf.contents(document, "3.0.2")
    tags.search(document, "prod")
