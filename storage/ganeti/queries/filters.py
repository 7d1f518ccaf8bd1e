"""The resource ``filter``: the rules for jobs, as they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...cluster.configuration import Configuration
from ...cluster.objects import ObjectKind
from ...natural_order import natural_key
from .answering import Resource
from .fields import Field, FieldKind, stored, table


def _fields() -> Iterator[Field[Configuration]]:
    for name, title, doc in (
        ("action", "Action", "Filter action"),
        ("predicates", "Predicates", "List of filter predicates"),
        ("priority", "Priority", "Filter priority"),
        ("reason_trail", "ReasonTrail", "Reason why this filter was added"),
        ("uuid", "UUID", "Filter ID"),
        ("watermark", "Watermark", "Highest job ID used at the time when the filter was added"),
    ):
        yield stored(name, title, FieldKind.OTHER, doc, name)


def _mark(rule: Mapping[str, Any]) -> str:
    return str(rule.get("uuid", ""))


def _place_of(rule: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a key
    return natural_key(_mark(rule))


FILTERS: Final = Resource(
    "filter",
    table(_fields()),
    lambda now: sorted((rule for _, rule in now.objects(ObjectKind.FILTER)), key=_place_of),
    _mark,
    natural_key,
    find=lambda now, wanted: now.get(ObjectKind.FILTER, str(wanted)),
    noun="Filter uuid",
    name_field="uuid",
)
"""Filter rules, in the natural order of their UUIDs."""
