"""Where hosts find the master: what an invitation may say, and what it says by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import errors
from ...storage.access import endpoints
from ...storage.nodes import tokens
from ...storage.version import version
from ...transport import messages
from ..processes import machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...storage.access.keys import KeyPair
    from ...storage.nodes.host_table import HostTable
    from ...transport.zmq.router import Router


LEAVE_SECONDS = 5.0
"""How long a listener stays that hosts are to leave, so that they hear of it."""


def check(message: messages.InviteNode) -> None:
    """Raise `BadRequestError` if an endpoint of the invitation can be none."""
    problems = [endpoints.problem(one, is_listening=False) for one in message.announced]
    if message.endpoint:
        problems.append(endpoints.problem(message.endpoint, is_listening=True))
    for problem in filter(None, problems):
        raise errors.BadRequestError(problem)


def token(
    node: str,
    router: Router,
    announced: Sequence[str],
    *,
    cluster: tuple[str, str],
    pair: KeyPair,
    until: float,
) -> str:
    """The word with which a host joins as this node. ``announced``: where; empty: by itself.

    ``cluster``: UUID and name; ``pair``: the keys that it may use once.
    """
    assert router.server_key is not None
    made = tokens.Token(
        cluster=cluster[0],
        cluster_name=cluster[1],
        node=node,
        endpoints=_places(router, announced),
        server=router.server_key,
        public=pair.public,
        secret=pair.secret,
        until=until,
    )
    return tokens.encode(made)


def greeting(
    node: str, cluster: str, router: Router | None, table: HostTable | None
) -> messages.NodeGreeted:
    """What a host is told that is let in: also where it finds the master from now on."""
    assert router is not None
    assert table is not None
    places = _places(router, table.announced)
    return messages.NodeGreeted(
        cluster=cluster,
        name=node,
        endpoints=places,
        protocol=messages.NODE_PROTOCOL,
        version=version(),
    )


def _places(router: Router, announced: Sequence[str]) -> list[str]:
    return list(announced) or own_endpoints(router.endpoints[0])


def own_endpoints(endpoint: str) -> list[str]:
    """Where hosts may find this machine, if it listens at ``endpoint``."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    if host.strip("[]") not in ("0.0.0.0", "::", "*"):  # noqa: S104 - what the operator has said
        return [endpoint]
    found = [*machine.addresses(), machine.host_name()]
    return [f"tcp://{f'[{one}]' if ':' in one else one}:{port}" for one in dict.fromkeys(found)]
