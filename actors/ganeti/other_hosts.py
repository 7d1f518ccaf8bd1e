"""What the hosts of other nodes say of themselves, asked through the hub when a query asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...transport import messages
from ..runtime.addresses import NODE_HUB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...storage import errors
    from ..runtime.component import Runtime

    Figures = Mapping[str, Mapping[str, Any]]

HUB_SECONDS = 6.0
"""How long a query waits for the hub, which waits for hosts for less than that."""


class OtherHosts:
    """Asks the hub, if a host was ever invited."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def ask(
        self, nodes: Sequence[str], storage: Sequence[str], then: Callable[[Figures], None]
    ) -> None:
        """Call ``then`` with the figures of those of the nodes that answer, at once if none can."""
        if not nodes or not self._runtime.host.places.hosts.exists():
            then({})
            return

        def failed(error: errors.GangerError) -> None:
            self._runtime.log.warning("no node says how it is", error=error.text)
            then({})

        request = messages.ReadFigures(nodes=list(nodes), storage=list(storage))
        deadline = self._runtime.clock() + HUB_SECONDS

        def answered(found: messages.FiguresRead) -> None:
            then({name: host.figures for name, host in found.hosts.items()})

        self._runtime.ask(NODE_HUB, request, answered, failed, deadline)
