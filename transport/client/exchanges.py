"""What a client's `Session` keeps of each request under way. No I/O, and no decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ...storage import errors
from ..messages import JobRows, Message, Request
from .watches import Watch

ReplyT = TypeVar("ReplyT", bound=Message)


def _nothing() -> None:
    """Stand-in for a callback."""


class Exchange:
    """A request under way. ``changed`` is called when there is something new about it."""

    def __init__(self, number: int, deadline: float | None) -> None:
        self.number = number
        self.deadline = deadline
        self.is_done = False
        self.error: Exception | None = None
        self.changed: Callable[[], None] = _nothing
        self.is_sent = False
        self.may_be_done = False
        """Whether an earlier sending may have been carried out, though its answer is lost."""
        self.failure: errors.GangerError | None = None
        self.retries = 0
        self.interruptions = 0
        """How often its component was restarted before it answered."""
        self.losses = 0
        """How often the connection was lost before the answer came."""
        self.retry_at: float | None = None

    def has_news(self) -> bool:
        """Whether something of it, or the end, can be had now."""
        return self.is_done


class Call(Exchange, Generic[ReplyT]):
    """A request with one reply."""

    def __init__(self, number: int, message: Request[ReplyT], deadline: float) -> None:
        super().__init__(number, deadline)
        self.message = message
        self.frame: bytes | None = None
        self.reply: ReplyT | None = None
        self.probes: Stream | None = None

    def result(self) -> ReplyT:
        """The reply; raises the error if it is one."""
        assert self.is_done
        if self.error is not None:
            raise self.error
        assert self.reply is not None
        return self.reply


class Stream(Exchange):
    """A watch under way."""

    def __init__(self, number: int, watch: Watch, deadline: float | None, now: float) -> None:
        super().__init__(number, deadline)
        self.watch = watch
        self.began = self.heard_at = now
        self.failing_since: float | None = None
        self.probe: Call[JobRows] | None = None
        self.is_paused = False
        self.is_expired = False
        """The deadline is over: only how the jobs stand is asked."""
        # Parts may still come under a number given up on a connection that lives.
        self.earlier_numbers: list[int] = []

    def has_news(self) -> bool:
        """As for any other; of a watch, its parts."""
        return self.is_done or self.watch.waiting_count > 0
