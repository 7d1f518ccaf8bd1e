"""Configurations as queries look at them."""

from __future__ import annotations

from typing import Any

from ganger.storage.cluster.configuration import Configuration
from ganger.storage.ganeti.queries.cluster_view import ClusterView


def view_of(document: dict[str, Any], known: dict[str, Any] | None = None) -> ClusterView:
    """The view of a configuration in a query."""
    return ClusterView(Configuration.load(document), known or {})
