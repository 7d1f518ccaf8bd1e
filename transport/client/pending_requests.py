"""The requests of a client that wait for a reply, as its `Session` keeps them. No decisions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, TypeVar

from ...storage import errors
from ..messages import JobRows, Message, Request
from .watch_progress import WatchProgress

ReplyT = TypeVar("ReplyT", bound=Message)


def _nothing() -> None:
    """The callback of a request that nothing follows."""


class PendingRequest:
    """A request under way. The session calls ``changed`` when `has_news` may have become true."""

    def __init__(self, number: int, deadline: float | None) -> None:
        self.number = number
        self.deadline = deadline
        self.is_done = False
        self.error: Exception | None = None
        self.changed: Callable[[], None] = _nothing
        self.is_sent = False
        self.may_be_done = False
        """Whether the daemon may have carried out an earlier sending whose reply is lost."""
        self.failure: errors.GangerError | None = None
        self.retries = 0
        self.interruptions = 0
        """How often its component was restarted before it replied."""
        self.losses = 0
        """How often the connection was lost before the reply came."""
        self.retry_at: float | None = None

    def has_news(self) -> bool:
        """Whether the caller can take something now: the reply, a part of a watch, or the end."""
        return self.is_done


class PendingCall(PendingRequest, Generic[ReplyT]):
    """A request with one reply."""

    def __init__(self, number: int, message: Request[ReplyT], deadline: float) -> None:
        super().__init__(number, deadline)
        self.began = -math.inf
        self.message = message
        self.frame: bytes | None = None
        self.reply: ReplyT | None = None
        self.probes: PendingWatch | None = None

    def result(self) -> ReplyT:
        """The reply; raises the error if there is one."""
        assert self.is_done
        if self.error is not None:
            raise self.error
        assert self.reply is not None
        return self.reply


class PendingWatch(PendingRequest):
    """A watch under way."""

    def __init__(
        self, number: int, progress: WatchProgress, deadline: float | None, now: float
    ) -> None:
        super().__init__(number, deadline)
        self.progress = progress
        self.began = self.heard_at = now
        self.failing_since: float | None = None
        self.probe: PendingCall[JobRows] | None = None
        self.is_paused = False
        self.is_expired = False
        """The deadline is over: only a last probe is under way."""
        # On a connection that lives, parts may still come under a number that was given up.
        self.earlier_numbers: list[int] = []

    def has_news(self) -> bool:
        return self.is_done or self.progress.waiting_count > 0
