"""What a job's process says to the daemon and hears from it: requests, replies, other messages.

A request without a reply is sent again when a component or the whole daemon was replaced. Other
messages go to the job's actor, one at a time, whenever it asks for them or waits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from ...storage import errors
from ...transport import messages
from ...transport.links.link import Received
from ...transport.messages import Message, Request
from .daemon_link import DaemonLink

REPLY_SECONDS = 5.0
"""How long `Conversation.try_ask` waits for a reply."""

RETRY_SECONDS = 1.0
"""How long to wait for a disk that refuses, or for a daemon that is gone."""

_ControlRequest = messages.CancelRequested | messages.PriorityRequested


class Conversation:
    """The job's requests, and the messages that have come.

    ``receive`` handles a message that is no reply, ``introduce`` a successor of the daemon.
    """

    def __init__(
        self, link: DaemonLink, receive: Callable[[Message], None], introduce: Callable[[], None]
    ) -> None:
        self.link = link
        self._receive = receive
        self._introduce = introduce
        self._has_missed = False
        self._replies: dict[int, Message] = {}
        self._received: deque[Received] = deque()
        self._postponed: deque[Received] | None = None

    # Sending.

    def tell(self, message: Message) -> bool:
        """Send a message without a reply; False if it is lost."""
        return self.link.send(message, 0)

    def post(self, message: Message) -> None:
        """Send a message whose reply is of no interest."""
        self.link.send(message, self.link.next_number())

    def send(self, request: Request[Any]) -> int:
        """Send a request, now and whenever its receiver is replaced; its number."""
        number = self.link.ask(request)
        self.link.send(request, number)
        return number

    def resend(self) -> None:
        """Send the requests without a reply again."""
        for number, request in self.link.due():
            self.link.send(request, number)

    def move_in_line(self, priority: int) -> None:
        """Send the request for locks again, with this priority; also to successors."""
        for number, request in self.link.due():
            if isinstance(request, messages.RequestLocks):
                moved = msgspec.structs.replace(request, priority=priority)
                self.link.open[number] = moved
                self.link.send(moved, number)

    def forget(self, number: int) -> None:
        """Do not send this request again."""
        self.link.withdraw(number)

    # Replies.

    def take_reply(self, number: int) -> Message | None:
        """The reply to a request, if one has come. Raises the error that it stands for."""
        reply = self._replies.pop(number, None)
        if isinstance(reply, messages.Failure):
            error = errors.from_wire(reply.error, reply.text)
            if not isinstance(error, errors.TryAgainError):
                raise error
            # The component that was asked is being replaced; it will say when to
            # repeat the request (`ResendRequested`).
            return None
        return reply

    def try_ask(self, request: Request[Any]) -> Message | None:
        """The reply to ``request``; None if it does not come in time or the link breaks."""
        number = self.send(request)
        deadline = time.monotonic() + REPLY_SECONDS
        while number not in self._replies and self.link.is_up:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self.wait({}, left)
            self.take_messages()
        self.forget(number)
        self._has_missed |= number not in self._replies
        return self._replies.pop(number, None)

    @property
    def is_settled(self) -> bool:
        """Whether each request has had its reply in time, from the daemon that made the process."""
        return not (self.link.open or self._has_missed) and self.link.is_first

    # Waiting, and other messages.

    def wait(self, descriptors: dict[int, int], timeout_seconds: float | None) -> list[int]:
        """Wait for a message or ``descriptors``: the ready ones.

        Does not wait if a message came while a state was written, or if a successor was reached:
        no descriptor reports either.
        """
        is_there = self._received or self.link.has_changed
        return self.link.wait(descriptors, 0 if is_there else timeout_seconds)

    def rest(self) -> None:
        """Wait a moment while the disk refuses.

        Handles nothing: that may write the job's file too, and must follow the write that waits.
        """
        self.link.wait({}, RETRY_SECONDS)
        self._received.extend(self.link.receive())

    def take_messages(self) -> None:
        """Handle everything that has come."""
        self._received.extend(self.link.receive())
        while self._received:
            received = self._received.popleft()
            if self.link.take_reply(received.number, received.message) is not None:
                self._replies[received.number] = received.message
            elif self._postponed is not None and isinstance(received.message, _ControlRequest):
                self._postponed.append(received)
            else:
                self._receive(received.message)
        if self.link.has_changed:
            self.link.has_changed = False
            self._introduce()

    def postpone_control(self) -> None:
        """Let cancellations and priorities wait until `resume_control`."""
        self._postponed = deque()

    def resume_control(self) -> None:
        """`take_messages` handles what was postponed, in its order, before what came later."""
        assert self._postponed is not None
        self._received.extendleft(reversed(self._postponed))
        self._postponed = None
