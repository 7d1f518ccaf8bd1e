"""All pages of an answer, for tests of queries."""

from __future__ import annotations

import json
from typing import Any

from ganger.storage.ganeti.queries.answering import Resource, query
from ganger.storage.ganeti.queries.paging import Bounds, Page, page

UNBOUNDED = Bounds(10**9, 10**9, lambda: False)
ONE_BY_ONE = Bounds(10**9, 10**9, lambda: True)


def pages(
    resource: Resource[Any],
    source: object,
    fields: list[str],
    raw_filter: object = None,
    bounds: Bounds = ONE_BY_ONE,
    *,
    is_classic: bool = False,
) -> list[Page]:
    """All pages of an answer."""

    def one(after: str | None) -> Page:
        return page(
            resource, source, fields, raw_filter, after, bounds=bounds, is_classic=is_classic
        )

    found = [one(None)]
    while (after := found[-1].next_after) is not None:
        found.append(one(after))
        assert len(found) < 1_000
    return found


def rows(found: list[Page]) -> list[Any]:
    return [row for one in found for row in json.loads(one.rows)]


def check_whole(resource: Resource[Any], source: object) -> None:
    """Pages of one item each are the whole answer together."""
    field = resource.name_field
    whole = json.loads(json.dumps(query(resource, source, [field])))
    found = pages(resource, source, [field])
    assert rows(found) == whole["data"]
    assert len(found) == max(1, len(whole["data"]))
    assert all(one.fields == whole["fields"] for one in found)
