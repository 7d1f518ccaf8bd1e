"""Messages to the component that has the connections of the nodes, and what it says to these.

It lives in a process of its own. Processes of jobs speak to it directly, clients through the
component that keeps that process.
"""

from __future__ import annotations

import math

import msgspec

from .base import Done, InterimReply, Notice, Reply, Request
from .between_hosts import HostFigures, TaskAnswered


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
    problem: str = ""
    """Why its daemon is refused; empty: it is not."""
    left_tasks: int = 0
    """Tasks whose jobs have lost their processes: locks are kept until the node has ended them."""

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


class JoinedNodes(Reply, frozen=True):
    """The names of the hosts that have joined, there or silent."""

    names: list[str]


class ReadJoinedNodes(Request[JoinedNodes], frozen=True):
    """From a job's process: name the nodes that have hosts."""

    job_id: int


class RemoveNode(Request[Done], frozen=True):
    """Forget a node: its connection ends at once, and its key and tokens are not accepted."""

    name: str


class TasksForgotten(Reply, frozen=True):
    """How many jobs have waited for tasks of the node."""

    jobs: int


class NodeSilent(InterimReply, frozen=True):
    """The node is not there now; the call goes to it when it is back.

    ``since``: epoch seconds; 0.0: it is back, and has the call. ``why``: why its daemon is refused;
    empty: nobody knows of one that was.
    """

    since: float
    why: str = ""


class CallNode(Request[TaskAnswered], frozen=True):
    """From a job's process: pass this request on to the daemon of a node, as often as it takes.

    ``frame`` is one of a `TaskRequest`. The hub sends it again after each break of the connection.
    ``key``: the task's; ``began``: when its opcode began, in epoch seconds. A node that has joined
    since then does not know the task, and is not asked. ``is_start``: the frame starts the task.
    ``asked``: when the process asked, in seconds on the clock of the machine that never goes back.
    """

    job_id: int
    node: str
    frame: bytes
    key: str = ""
    began: float = math.inf
    is_start: bool = False
    asked: float = math.inf


class TasksEnded(Reply, frozen=True):
    """The task that a process has left on a node does not hold its locks any more: why."""

    text: str


class TaskEndAwaited(InterimReply, frozen=True):
    """The node has not said yet that the task has ended. ``text``: for what that waits."""

    text: str


class EndLeftTask(Request[TasksEnded], frozen=True):
    """From the executor: have the task that a dead process has left on a node ended there.

    The reply comes when the node has said so, or when an operator has said that nobody waits for
    it. May be repeated.
    """

    lock_file: str
    node: str
    key: str
    began: float


class ForgetTasks(Request[TasksForgotten], frozen=True):
    """Wait no longer for a node that has not said what became of the tasks that began until now.

    Jobs that wait for it end in an error, and locks that were kept for its tasks are freed.
    """

    name: str


class FiguresRead(Reply, frozen=True):
    """What hosts have said of themselves, by node: those that answered."""

    hosts: dict[str, HostFigures]


class ReadFigures(Request[FiguresRead], frozen=True):
    """From the configuration store, or a job: ask these nodes all at once (`MeasureFigures`).

    The reply comes when each has answered, is known to be silent or has had
    `actors.nodes.node_figures.ANSWER_SECONDS`.
    """

    nodes: list[str]
    storage: list[str] = []
    job_id: int = 0


class FiguresDue(Notice, frozen=True):
    """From the hub to itself: the nodes of this question have had their time."""

    question: int


class NodesRemoved(Notice, frozen=True):
    """From the configuration store: the nodes of these names are not in it any more."""

    names: list[str]


class SeenTasksDue(Notice, frozen=True):
    """From the hub to itself: store how far the tasks of nodes have come."""


class FormerListenerDue(Notice, frozen=True):
    """From the hub to itself: hosts have had the time to leave a listener."""
