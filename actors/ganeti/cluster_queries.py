"""What queries for objects of Ganeti's configuration look at, and the opcodes that query.

For jobs it passes on their queries for other jobs and for locks, too.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ...storage import errors
from ...storage.cluster.damage import undamaged
from ...storage.ganeti.queries.cluster_info import cluster_info
from ...storage.ganeti.queries.cluster_view import ClusterView
from ...storage.ganeti.queries.nodes import LIVE_FIELDS, NODES
from ...storage.ganeti.queries.queue_resources import RESOURCES as CORE_RESOURCES
from ...storage.ganeti.queries.resources import RESOURCES
from ...transport import messages
from ..runtime.addresses import JOB_QUEUE, LOCK_MANAGER
from . import host_figures
from .config_queries import ConfigQueries, resource_named
from .known_cluster import known_cluster
from .own_host import OwnHost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...storage.ganeti.queries.answering import ParsedQuery
    from ...transport.envelopes import Envelope
    from ..config.installed_parts import PartContext


class ClusterQueries:
    """Keeps the view of the last snapshot."""

    def __init__(self, context: PartContext) -> None:
        self._runtime = context.runtime
        self._configuration = context.configuration
        self._view: ClusterView | None = None
        self.own_host = OwnHost(context.runtime)
        self._answers = ConfigQueries(context, self.with_source)

    def known(self) -> dict[str, Any]:
        """What the configuration does not hold of the cluster."""
        return known_cluster(self._runtime.host.places, self._runtime.wall_clock())

    def describe(self, envelope: Envelope) -> None:
        """Reply with the cluster as a whole."""
        view = ClusterView(self._configuration.snapshot, self.known())
        envelope.reply(messages.ClusterDescribed(info=cluster_info(view)))

    def answer(
        self, envelope: Envelope, message: messages.QueryConfiguration | messages.QueryFields
    ) -> None:
        """Reply to a query. Raises `BadRequestError`."""
        self._answers.answer(envelope, message)

    def run(self, envelope: Envelope, message: messages.RunQuery) -> None:
        """Answer an opcode that queries. Raises `BadRequestError`."""
        fields = message.fields or []
        if message.is_of_fields:
            self.answer(envelope, messages.QueryFields(message.what, message.fields))
        elif message.what in ("job", "lock"):
            self._pass_on(envelope, message)
        else:
            resource_named({**CORE_RESOURCES, **RESOURCES}, message.what)
            asked = messages.QueryConfiguration(message.what, fields, message.filter, message.after)
            self.answer(envelope, asked)

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

    def with_source(self, asked: ParsedQuery[Any], then: Callable[[ClusterView], None]) -> None:
        """Call ``then`` with the view, when this machine has said what the query asks of a node."""
        view = self._newest_view()
        view.known = self.known() if asked.resource.name == "cluster" else {}
        live = LIVE_FIELDS.intersection((*asked.fields, *asked.filter_fields))
        if asked.resource is NODES and live:
            look = functools.partial(_own_node, view)
            own, storage = undamaged(view.configuration, look, errors.IntegrityError)
            if own is not None:
                folders = [storage, str(self._runtime.host.places.data)]
                measured = functools.partial(self._with_measured, then, own)
                self.own_host.ask([folder for folder in folders if folder], measured)
                return
        then(view)

    def _with_measured(
        self, then: Callable[[ClusterView], None], own: str, figures: Mapping[str, Any]
    ) -> None:
        view = self._newest_view()
        view.measured = {own: figures}
        try:
            then(view)
        finally:
            view.measured = {}

    def _newest_view(self) -> ClusterView:
        snapshot = self._configuration.snapshot
        if self._view is None or self._view.configuration is not snapshot:
            self._view = ClusterView(snapshot)
        return self._view


def _own_node(view: ClusterView) -> tuple[str | None, str | None]:
    """The UUID of the node that this machine is, if it is one, and the folder with its disks."""
    found = view.find("nodes", host_figures.name())
    return (None if found is None else found.get("uuid")), view.storage_folder
