"""A host shows its token to the master, and tells its own key: the first half of a join."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...storage import errors
from ...storage.access.keys import KeyPair
from .. import frames
from ..messages import Failure, FromMasterToHost, JoinCluster, NodeGreeted, RotateKey
from ..zmq.connection_event import ConnectionEvent
from ..zmq.dealer import Dealer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...storage.nodes.membership import Membership
    from ...storage.nodes.tokens import Token

ENDPOINT_SECONDS = 5.0
"""How long each of the masters' endpoints may take."""

_UNKNOWN = (
    "the master does not know this token: it is of another cluster, was taken back, or is long past"
    "; `ganger node invite {name}` on the master gives a new one"
)


def join(token: Token, public: str, directory: str) -> NodeGreeted:
    """Join at the first endpoint that answers. Repeatable with the same key.

    `NotAllowedError`: the token is used, too old or unknown. `DaemonUnreachableError`: no endpoint
    answers.
    """
    pair = KeyPair(public=token.public, secret=token.secret, server=token.server)
    asked = JoinCluster(key=public, directory=directory)
    return _ask(token.endpoints, pair, asked, _UNKNOWN.format(name=token.node))


def tell_new_key(found: Membership, public: str) -> None:
    """Tell the master this host's next public key, with the present one. Raises as `join`."""
    pair = KeyPair(public=found.public, secret=found.secret, server=found.server)
    asked = RotateKey(key=public, directory=found.directory)
    _ask(found.endpoints, pair, asked, "the master does not know this host's key")


def _ask(
    endpoints: Iterable[str], pair: KeyPair, asked: JoinCluster | RotateKey, unknown: str
) -> NodeGreeted:
    """The answer of the first endpoint that gives one. ``unknown``: it does not know the key."""
    problems = []
    for endpoint in endpoints:
        try:
            return _ask_at(endpoint, pair, asked, unknown)
        except errors.DaemonUnreachableError as error:
            problems.append(f"{endpoint}: {error.text}")
    raise errors.DaemonUnreachableError(f"no master answers: {'; '.join(problems)}")


def _ask_at(
    endpoint: str, pair: KeyPair, asked: JoinCluster | RotateKey, unknown: str
) -> NodeGreeted:
    dealer, end = Dealer(endpoint, pair), time.monotonic() + ENDPOINT_SECONDS
    try:
        while (left := end - time.monotonic()) > 0:
            item = dealer.receive(left)
            if isinstance(item, bytes):
                answer: Any = frames.decode(item, FromMasterToHost).message
                if isinstance(answer, Failure):
                    raise errors.from_wire(answer.error, answer.text)
                assert isinstance(answer, NodeGreeted)
                return answer
            if item is ConnectionEvent.MADE:
                dealer.send(frames.encode(asked, 1))
            elif item is ConnectionEvent.REFUSED:
                raise errors.NotAllowedError(unknown)
            elif item is ConnectionEvent.FAILED:
                raise errors.DaemonUnreachableError("it is no master of this cluster")
    finally:
        dealer.close()
    raise errors.DaemonUnreachableError(f"no answer within {ENDPOINT_SECONDS:g} s")
