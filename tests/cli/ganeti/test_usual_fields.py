"""``ganger query`` without ``--fields`` shows fields that objects of the configuration have."""

from __future__ import annotations

from ganger.cli.ganeti import query
from ganger.storage.ganeti.queries.queue_resources import RESOURCES
from ganger.storage.ganeti.queries.resources import RESOURCES as OBJECTS


def test_the_usual_fields_of_each_resource_exist() -> None:
    known = {**RESOURCES, **OBJECTS}
    assert query._USUAL.keys() == known.keys()
    for what, fields in query._USUAL.items():
        assert {*fields.split(",")} <= known[what].fields.keys()
