"""The resources of the core, by their names. Parts of the configuration store bring others."""

from __future__ import annotations

from typing import Any, Final

from .answering import Resource
from .filters import FILTERS
from .jobs import JOBS
from .locks import LOCKS

RESOURCES: Final[dict[str, Resource[Any]]] = {
    resource.name: resource for resource in (FILTERS, JOBS, LOCKS)
}
"""Their sources: a configuration, the rows of jobs, and those of locks."""
