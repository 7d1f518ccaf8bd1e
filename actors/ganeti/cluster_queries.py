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
from ..processes import host_figures
from ..runtime.addresses import JOB_QUEUE, LOCK_MANAGER
from .config_queries import ConfigQueries, resource_named
from .known_cluster import known_cluster
from .other_hosts import OtherHosts
from .own_host import OwnHost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ...storage.ganeti.queries.answering import ParsedQuery
    from ...transport.envelopes import Envelope
    from ..config.installed_parts import PartContext


_PARTS = 2
"""What a node says comes from this machine, and from the hub."""


class ClusterQueries:
    """Keeps the view of the last snapshot."""

    def __init__(self, context: PartContext) -> None:
        self._runtime = context.runtime
        self._configuration = context.configuration
        self._view: ClusterView | None = None
        self.own_host = OwnHost(context.runtime)
        self._other_hosts = OtherHosts(context.runtime)
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
        """Call ``then`` with the view, when hosts have said what the query asks of their nodes."""
        view = self._newest_view()
        view.known = self.known() if asked.resource.name == "cluster" else {}
        live = LIVE_FIELDS.intersection((*asked.fields, *asked.filter_fields))
        if asked.resource is not NODES or not live:
            then(view)
            return
        look = functools.partial(_asked_nodes, view, asked)
        own, others, storage = undamaged(view.configuration, look, errors.IntegrityError)
        folders = [] if storage is None else [storage]

        parts: list[dict[str, Mapping[str, Any]]] = []

        def take(figures: dict[str, Mapping[str, Any]]) -> None:
            parts.append(figures)
            if len(parts) == _PARTS:
                self._with_measured(then, parts[0] | parts[1])

        def take_others(figures: Mapping[str, Mapping[str, Any]]) -> None:
            take({others[name]: one for name, one in figures.items() if name in others})

        if own is None:
            take({})
        else:
            here = [*folders, str(self._runtime.host.places.data)]
            self.own_host.ask(here, lambda figures: take({own: figures}))
        self._other_hosts.ask([*others], folders, take_others)

    def _with_measured(
        self, then: Callable[[ClusterView], None], measured: Mapping[str, Mapping[str, Any]]
    ) -> None:
        view = self._newest_view()
        view.measured = measured
        try:
            then(view)
        finally:
            view.measured = {}

    def _newest_view(self) -> ClusterView:
        snapshot = self._configuration.snapshot
        if self._view is None or self._view.configuration is not snapshot:
            self._view = ClusterView(snapshot)
        return self._view


def _asked_nodes(
    view: ClusterView, asked: ParsedQuery[Any]
) -> tuple[str | None, dict[str, str], str | None]:
    """The node that this machine is, the others by name, and the folder with the disks.

    Nodes are UUIDs: those of which the query may tell something. Offline nodes are not asked.
    """
    own = view.find("nodes", host_figures.name())
    nodes: Iterable[Any] = view.container("nodes").values()
    if asked.names is not None:
        named = (view.find("nodes", str(name)) for name in asked.names)
        nodes = [node for node in named if node is not None]
    others = {
        str(node.get("name")): str(node.get("uuid"))
        for node in nodes
        if node is not own and not node.get("offline")
    }
    return (None if own is None else own.get("uuid")), others, view.storage_folder
