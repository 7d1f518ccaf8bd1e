"""What the hub tells operators of a host. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ...transport import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...storage.nodes.host_table import HostRecord
    from .silences import Silences


class Session(msgspec.Struct):
    """The connection of a node that has said who it is."""

    peer: bytes
    address: str
    since: float
    live: dict[str, str | int]
    run: str = ""


def state(
    host: HostRecord,
    session: Session | None,
    silences: Silences,
    open_calls: Callable[[str], int],
    left_tasks: Callable[[str], int],
) -> messages.NodeState:
    """The host; ``session``: None while it is silent."""
    silent_since = silences.since_of(host.name)
    open_until = [one.until for one in host.invitations if not one.used_by]
    return messages.NodeState(
        name=host.name,
        has_joined=bool(host.key),
        is_there=session is not None,
        joined=host.joined,
        called=0.0 if session is None else session.since,
        silent_since=max(silent_since, host.joined) if host.key and session is None else 0.0,
        address="" if session is None else session.address,
        invited_until=max(open_until, default=0.0),
        open_calls=open_calls(host.name),
        left_tasks=left_tasks(host.name),
        problem="" if session else host.problem or silences.why(host.name),
        live={} if session is None else session.live,
    )
