"""What the hub tells operators of a host. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ...transport import messages

if TYPE_CHECKING:
    from ...storage.nodes.host_table import HostRecord


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
    *,
    silent_since: float,
    open_calls: int,
    left_tasks: int,
) -> messages.NodeState:
    """The host; ``session``: None while it is silent."""
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
        open_calls=open_calls,
        left_tasks=left_tasks,
        problem="" if session else host.problem,
        live={} if session is None else session.live,
    )
