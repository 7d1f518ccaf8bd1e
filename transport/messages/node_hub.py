"""Messages to the component that has the connections of the nodes, and what it says to these.

It lives in a process of its own. Processes of jobs speak to it directly, clients through the
component that keeps that process.
"""

from __future__ import annotations

import msgspec

from .base import Done, InterimReply, Reply, Request
from .between_hosts import TaskAnswered


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """A node as the hub knows it. Times are seconds since the epoch, 0.0: never.

    ``silent_since``: when its connection ended; 0.0 while it is there. ``live``: what its daemon
    said when it called: ``version``, ``boot_id``, ``memory`` (MiB), ``cpus``.
    """

    name: str
    has_joined: bool
    is_there: bool
    joined: float = 0.0
    called: float = 0.0
    silent_since: float = 0.0
    address: str = ""
    invited_until: float = 0.0
    open_calls: int = 0
    live: dict[str, str | int] = {}


class NodeInvited(Reply, frozen=True):
    """The word with which the host joins, and until when it is valid."""

    token: str
    until: float


class InviteNode(Request[NodeInvited], frozen=True):
    """Let a host of this name join, once, within ``seconds``. May be repeated: each word is good.

    ``endpoint``: where to listen for nodes from now on, such as ``tcp://0.0.0.0:7611``; "": as
    before. ``announced``: where hosts find the master; empty: as before, or this machine's names.
    """

    name: str
    seconds: float = 0.0
    endpoint: str = ""
    announced: list[str] = []


class NodesListed(Reply, frozen=True):
    """The nodes, by name. ``endpoint``: where the hub listens; "": nobody was ever invited.

    ``problem``: why it does not listen there now.
    """

    nodes: list[NodeState]
    endpoint: str = ""
    problem: str = ""


class ListNodes(Request[NodesListed], frozen=True):
    """List the nodes that have joined or were invited."""


class RemoveNode(Request[Done], frozen=True):
    """Forget a node: its connection ends at once, and its key and tokens are not accepted."""

    name: str


class NodeSilent(InterimReply, frozen=True):
    """The node is not there now; the call goes to it when it is back. ``since``: epoch seconds."""

    since: float


class CallNode(Request[TaskAnswered], frozen=True):
    """From a job's process: pass this request on to the daemon of a node, as often as it takes.

    ``frame`` is one of a `TaskRequest`. The hub sends it again after each break of the connection.
    """

    job_id: int
    node: str
    frame: bytes
