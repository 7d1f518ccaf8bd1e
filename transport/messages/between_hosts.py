"""What the master and its nodes say to each other, over the connection that the node has made."""

from __future__ import annotations

import msgspec

from .base import Reply, Request
from .job_queue_from_clients import JobDocument, JobsSubmitted
from .values import JobSpec

NODE_PROTOCOL = 2
"""Which messages a master and its nodes understand: with another number they do not work together.

Raised when one side would not understand the other one any more; `test_hosts_of_other_versions`
tells. 1: what came before there was a number.
"""


class TaskAnswered(Reply, frozen=True):
    """The frame with the reply of the node's daemon."""

    frame: bytes


class CallTask(Request[TaskAnswered], frozen=True):
    """From the hub to a node: answer this frame. It may come again.

    ``known_key``: only if there is a task of this key; "": it may also start one.
    """

    frame: bytes
    known_key: str = ""


class RunTask(Request[JobDocument | JobsSubmitted], frozen=True):
    """Store this job, unless one of its name came before, and run it.

    If it ends within so many ``seconds``, the answer is the ended job, else the job's id as for
    `SubmitJobs`: nothing has started before that is durable.
    """

    spec: JobSpec
    key: str
    seconds: float = 0.0


class AwaitTask(Request[JobDocument], frozen=True):
    """Read the job when it has ended. `UnknownJobError`: there is no such job."""

    id: int


class LeftTaskEnded(Reply, frozen=True):
    """From a node: no task of this key runs there, and none will be started.

    ``existed``: there was one. ``was_killed``: it had not ended by itself.
    """

    existed: bool
    was_killed: bool = False


class EndTask(Request[LeftTaskEnded], frozen=True):
    """From the hub to a node: kill the task of this key, and answer when it has ended.

    It may come again, and for a task that never came.
    """

    key: str


class HostFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a host says of itself. ``figures``: by the names of the live fields of nodes in queries.

    ``time``: its clock, in epoch seconds. ``files``: of the ssconf files that were copied there,
    each by its name, the SHA-1 in hexadecimal.
    """

    figures: dict[str, int | str | None]
    version: str = ""
    protocol: int = 0
    time: float = 0.0
    files: dict[str, str] = {}


class FiguresMeasured(Reply, frozen=True):
    """From a node: what it says of itself."""

    host: HostFigures


class MeasureFigures(Request[FiguresMeasured], frozen=True):
    """From the hub to a node: say how much memory, processors and disk the host has now.

    ``storage``: the first of these folders that exists has the disk; if none does, the data
    directory's counts.
    """

    storage: list[str]


class NodeGreeted(Reply, frozen=True):
    """The master knows this node, and takes its calls. Said again when ``endpoints`` change.

    ``endpoints``: where hosts find the master from now on; empty: as before. ``protocol``: its
    `NODE_PROTOCOL`. ``version``: of Ganger.
    """

    cluster: str
    name: str
    endpoints: list[str] = []
    protocol: int = 1
    version: str = ""


class GreetMaster(Request[NodeGreeted], frozen=True):
    """From a node, first on each connection: here I am.

    ``directory``: the identity of its data directory. ``live``: as in `NodeState`, and its
    ``protocol`` (`NODE_PROTOCOL`) and ``era`` (`storage.nodes.begun_tasks`), which every master can
    read there. ``run``: a word of its own for each daemon. ``last_id``: the highest id of its
    queue. ``seal``, ``following_seal``: as in `storage.nodes.seals`.
    """

    directory: str
    run: str = ""
    last_id: int = 0
    seal: str = ""
    following_seal: str = ""
    live: dict[str, str | int] = {}


class RotateKey(Request[NodeGreeted], frozen=True):
    """From a node: it will call with this public key. Both are good until it has. Repeatable."""

    key: str
    directory: str


class JoinCluster(Request[NodeGreeted], frozen=True):
    """From a host that shows the key of its token: this is my own public key. May be repeated."""

    key: str
    directory: str
