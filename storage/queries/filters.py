"""The resource ``filter``: the rules for jobs, as they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .answering import Resource
from .cluster_view import ClusterView
from .fields import Field, Kind, stored, table


def _fields() -> Iterator[Field[ClusterView]]:
    for name, title, doc in (
        ("action", "Action", "Filter action"),
        ("predicates", "Predicates", "List of filter predicates"),
        ("priority", "Priority", "Filter priority"),
        ("reason_trail", "ReasonTrail", "Reason why this filter was added"),
        ("uuid", "UUID", "Filter ID"),
        ("watermark", "Watermark", "Highest job ID used at the time when the filter was added"),
    ):
        yield stored(name, title, Kind.OTHER, doc, name)


FILTERS: Final = Resource(
    "filter",
    table(_fields()),
    lambda view: [rule for _, rule in sorted(view.container("filters").items())],
    lambda rule: str(rule.get("uuid", "")),
    str,
    find=lambda view, wanted: view.container("filters").get(str(wanted)),
    noun="Filter uuid",
    name_field="uuid",
)
"""Filter rules, in the order of their UUIDs."""
