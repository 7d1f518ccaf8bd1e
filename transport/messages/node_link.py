"""Messages to the component with which a node calls its master."""

from __future__ import annotations

from .base import Notice
from .between_hosts import HostFigures


class TaskReplyDue(Notice, frozen=True):
    """A component has answered a call of the master: send this frame, under this handle."""

    handle: int
    frame: bytes


class TaskStored(Notice, frozen=True):
    """A task is durable: send this frame, unless it has ended within so many ``seconds``."""

    handle: int
    job_id: int
    frame: bytes
    seconds: float


class TaskEnded(Notice, frozen=True):
    """A job has ended for whose end the master has asked, with the call under this handle."""

    handle: int
    job_id: int


class TaskEndDue(Notice, frozen=True):
    """From the component to itself: look again for the task of this key, which must end."""

    key: str


class OwnFiguresMeasured(Notice, frozen=True):
    """From a thread: what this machine says of itself."""

    host: HostFigures


class MasterDue(Notice, frozen=True):
    """From the component to itself: try the next endpoint, if the master has not answered."""
