"""Answers queries for objects of the configuration, and defines the fields of all queries.

For jobs it passes on their queries for other jobs and for locks, too.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from ...storage import errors
from ...storage.cluster.integrity import problems
from ...storage.queries.answering import query_fields
from ...storage.queries.cluster_info import cluster_info
from ...storage.queries.cluster_view import ClusterView
from ...storage.queries.nodes import LIVE_FIELDS, NODES
from ...storage.queries.paging import check_fields
from ...storage.queries.resources import OF_CONFIGURATION, RESOURCES
from ...storage.wording import brief
from ...transport import messages
from ..processes import machine
from ..runtime import query_pages
from ..runtime.addresses import JOB_QUEUE, LOCK_MANAGER
from .known_cluster import known_cluster
from .own_host import OwnHost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ...storage.cluster.configuration import Configuration
    from ...storage.queries.answering import ParsedQuery, Resource
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
        self.own_host = OwnHost(runtime)

    def answer(self, envelope: Envelope, message: Query) -> None:
        """Reply with definitions, or with one page of an answer. Raises `BadRequestError`."""
        match message:
            case messages.QueryFields():
                envelope.reply(_defined(message.what, message.fields))
            case messages.QueryConfiguration():
                self._answer(envelope, message)
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
                self._answer(envelope, asked)

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

    def _answer(self, envelope: Envelope, message: messages.QueryConfiguration) -> None:
        """Reply with a page; ask this machine first, if the query is for what a node says."""
        resource = _resource(OF_CONFIGURATION, message.what)
        asked = query_pages.checked(resource.name, message)
        view = self._newest_view()
        view.known = self._known() if message.what == "cluster" else {}
        live = LIVE_FIELDS.intersection((*asked.fields, *asked.filter_fields))
        with _told_if_damaged(view):
            if resource is NODES and live and _own_node(view) is not None:
                folders = [view.storage_folder, str(self._runtime.host.places.data)]
                then = functools.partial(self._answer_measured, envelope, asked, message.after)
                self.own_host.ask([folder for folder in folders if folder], then)
            else:
                envelope.reply(query_pages.answered(self._runtime, asked, view, message.after))

    def _answer_measured(
        self,
        envelope: Envelope,
        asked: ParsedQuery[Any],
        after: str | None,
        figures: dict[str, Any],
    ) -> None:
        view = self._newest_view()
        try:
            with _told_if_damaged(view):
                own = _own_node(view)
                view.measured = {} if own is None else {own: figures}
                envelope.reply(query_pages.answered(self._runtime, asked, view, after))
        except errors.GangerError as error:
            envelope.refuse(error)
        finally:
            view.measured = {}

    def _newest_view(self) -> ClusterView:
        snapshot = self._snapshot()
        if self._view is None or self._view.configuration is not snapshot:
            self._view = ClusterView(snapshot)
        return self._view


@contextlib.contextmanager
def _told_if_damaged(view: ClusterView) -> Iterator[None]:
    """Raise `IntegrityError` for an error that damage of the configuration explains.

    Getters rely on the types of values, but a damaged configuration is served, too.
    """
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        found = problems(view.configuration)
        if not found:
            raise
        raise errors.IntegrityError(f"the configuration is damaged: {found[0]}") from error


def _own_node(view: ClusterView) -> str | None:
    """The UUID of the node that this machine is; None if the cluster does not have it."""
    found = view.find("nodes", machine.name())
    return None if found is None else found.get("uuid")


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
