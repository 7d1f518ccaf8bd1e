"""Answers queries for objects of the configuration, and defines the fields of all queries."""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

from ...storage import errors, version
from ...storage.filters import fields_of, parse_filter
from ...storage.queries.answering import query_fields
from ...storage.queries.cluster_view import ClusterView
from ...storage.queries.paging import check_fields
from ...storage.queries.resources import OF_CONFIGURATION, RESOURCES
from ...storage.wording import brief
from ...transport import messages
from ..runtime import query_pages
from ..runtime.addresses import JOB_QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...storage.cluster.configuration import Configuration
    from ...storage.queries.answering import Resource
    from ...transport.envelopes import Envelope
    from ..runtime.runtime import Runtime

_LARGEST_OF_32_BITS = 2**32

_OF_QUEUE = "drain_flag"
"""The field of the cluster that the job queue knows."""


def _defined(message: messages.QueryFields) -> messages.QueryAnswered:
    """The definitions of fields. Raises `BadRequestError`."""
    check_fields(message.fields or ())
    found = query_fields(_resource(RESOURCES, message.what), message.fields)
    return messages.QueryAnswered(fields=found["fields"], rows=b"[]")


class ConfigQueries:
    """Answers queries from a snapshot, a page at a time. Keeps the view of the last snapshot."""

    def __init__(self, runtime: Runtime, snapshot: Callable[[], Configuration]) -> None:
        self._runtime = runtime
        self._snapshot = snapshot
        self._view: ClusterView | None = None

    def answer(
        self, envelope: Envelope, message: messages.QueryConfiguration | messages.QueryFields
    ) -> None:
        """Reply with definitions, or with one page of an answer. Raises `BadRequestError`."""
        if isinstance(message, messages.QueryFields):
            envelope.reply(_defined(message))
            return
        resource = _resource(OF_CONFIGURATION, message.what)
        asked = {*message.fields, *fields_of(parse_filter(message.filter))}
        if not (message.what == "cluster" and _OF_QUEUE in asked):
            envelope.reply(self._page(resource, message, {}))
            return

        def answered(found: messages.QueueReport) -> None:
            envelope.reply(self._page(resource, message, {_OF_QUEUE: found.is_drained}))

        state = messages.ReadQueueState()
        self._runtime.ask(JOB_QUEUE, state, answered, envelope.refuse, envelope.deadline)

    def _page(
        self,
        resource: Resource[ClusterView],
        message: messages.QueryConfiguration,
        known: Mapping[str, Any],
    ) -> messages.QueryAnswered:
        snapshot = self._snapshot()
        if self._view is None or self._view.configuration is not snapshot:
            self._view = ClusterView(snapshot)
        self._view.known = {**known_of_cluster(), **known} if message.what == "cluster" else {}
        return query_pages.answered(self._runtime, resource, self._view, message)


@functools.cache
def known_of_cluster() -> dict[str, Any]:
    """What the configuration does not hold of the cluster, but this process knows.

    No watcher can be paused, so ``watcher_pause`` is never set.
    """
    return {
        "software_version": version.GANETI_RELEASE,
        "vcs_version": f"ganger {version.version()}",
        "architecture": [
            "64bits" if sys.maxsize > _LARGEST_OF_32_BITS else "32bits",
            os.uname().machine,
        ],
        "watcher_pause": None,
    }


def _resource(known: Mapping[str, Resource[Any]], what: str) -> Resource[Any]:
    found = known.get(what)
    if found is None:
        text = f"what: {brief(what)}: expected one of {', '.join(sorted(known))}"
        raise errors.BadRequestError(text)
    return found
