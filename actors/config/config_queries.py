"""Answers queries for objects of the configuration, and defines the fields of all queries.

For jobs it passes on their queries for other jobs and for locks, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...storage import errors
from ...storage.cluster.integrity import problems
from ...storage.queries.answering import query_fields
from ...storage.queries.cluster_info import cluster_info
from ...storage.queries.cluster_view import ClusterView
from ...storage.queries.paging import check_fields
from ...storage.queries.resources import OF_CONFIGURATION, RESOURCES
from ...storage.wording import brief
from ...transport import messages
from ..runtime import query_pages
from ..runtime.addresses import JOB_QUEUE, LOCK_MANAGER
from .known_cluster import known_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...storage.cluster.configuration import Configuration
    from ...storage.queries.answering import Resource
    from ...transport.envelopes import Envelope
    from ..runtime.runtime import Runtime

    Query = (
        messages.QueryConfiguration
        | messages.QueryFields
        | messages.DescribeCluster
        | messages.RunQuery
    )


class ConfigQueries:
    """Answers queries from a snapshot, a page at a time. Keeps the view of the last snapshot."""

    def __init__(self, runtime: Runtime, snapshot: Callable[[], Configuration]) -> None:
        self._runtime = runtime
        self._snapshot = snapshot
        self._view: ClusterView | None = None

    def answer(self, envelope: Envelope, message: Query) -> None:
        """Reply with definitions, or with one page of an answer. Raises `BadRequestError`."""
        match message:
            case messages.QueryFields():
                envelope.reply(_defined(message.what, message.fields))
            case messages.QueryConfiguration():
                envelope.reply(self._page(message))
            case messages.DescribeCluster():
                envelope.reply(self._described())
            case messages.RunQuery(is_of_fields=True):
                envelope.reply(_defined(message.what, message.fields))
            case messages.RunQuery(what="job" | "lock"):
                self._pass_on(envelope, message)
            case messages.RunQuery():
                fields = message.fields or []
                asked = messages.QueryConfiguration(
                    message.what, fields, message.filter, message.after
                )
                _resource(RESOURCES, message.what)
                envelope.reply(self._page(asked))

    def _described(self) -> messages.ClusterDescribed:
        """The cluster as a whole."""
        view = ClusterView(self._snapshot(), self._known())
        return messages.ClusterDescribed(info=cluster_info(view))

    def _known(self) -> dict[str, Any]:
        return known_cluster(self._runtime.host.places, self._runtime.wall_clock())

    def _pass_on(self, envelope: Envelope, message: messages.RunQuery) -> None:
        def failed(error: errors.GangerError) -> None:
            if isinstance(error, errors.DeadlineError) and envelope.deadline is None:
                # The job has all the time that it takes.
                self._pass_on(envelope, message)
            else:
                envelope.refuse(error)

        answered, deadline = envelope.reply, envelope.deadline
        fields, raw_filter, after = message.fields or [], message.filter, message.after
        if message.what == "job":
            jobs = messages.QueryJobs(fields, raw_filter, after)
            self._runtime.ask(JOB_QUEUE, jobs, answered, failed, deadline)
        else:
            locks = messages.QueryLocks(fields, raw_filter, after)
            self._runtime.ask(LOCK_MANAGER, locks, answered, failed, deadline)

    def _page(self, message: messages.QueryConfiguration) -> messages.QueryAnswered:
        resource = _resource(OF_CONFIGURATION, message.what)
        snapshot = self._snapshot()
        if self._view is None or self._view.configuration is not snapshot:
            self._view = ClusterView(snapshot)
        asked = query_pages.checked(resource.name, message)
        is_of_cluster = message.what == "cluster"
        self._view.known = self._known() if is_of_cluster else {}
        try:
            return query_pages.answered(self._runtime, asked, self._view, message.after)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            # Getters rely on the types of values, but a damaged configuration is served, too.
            found = problems(snapshot)
            if not found:
                raise
            text = f"the configuration is damaged: {found[0]}"
            raise errors.IntegrityError(text) from error


def _defined(what: str, fields: list[str] | None) -> messages.QueryAnswered:
    """The definitions of fields. Raises `BadRequestError`."""
    check_fields(fields or ())
    found = query_fields(_resource(RESOURCES, what), fields)
    return messages.QueryAnswered(fields=found["fields"], rows=b"[]")


def _resource(known: Mapping[str, Resource[Any]], what: str) -> Resource[Any]:
    found = known.get(what)
    if found is None:
        text = f"what: {brief(what)}: expected one of {', '.join(sorted(known))}"
        raise errors.BadRequestError(text)
    return found
