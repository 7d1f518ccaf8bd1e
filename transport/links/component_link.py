"""The link to another process of the daemon, as the components of this one see it.

It stands in the directory as the receiver of the other process's components, and keeps the requests
that wait for a reply from there. The owner of the socket gives it the frames that come, and sends
those that it makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...storage import errors
from ..envelopes import Envelope
from ..messages import Failure, Request
from . import link_frames
from .link import Link

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..envelopes import Directory


class _Asked(NamedTuple):
    """A request to a component of the other process."""

    to: str
    envelope: Envelope


class ComponentLink(Link[_Asked]):
    """``send`` takes a frame from any thread; False: the other process does not take it.

    It repeats nothing: the components do (`Runtime.ask`), and listeners refuse what a replaced
    component has forgotten. ``own``: the component that has the socket here, and its method that
    receives; its messages skip its mailbox, so that what follows finds what they did.
    """

    def __init__(
        self,
        directory: Directory,
        send: Callable[[bytes], bool],
        clock: Callable[[], float],
        own: tuple[str, Callable[[Any], None]] | None = None,
    ) -> None:
        super().__init__(repeats=False)
        self._directory = directory
        self._send = send
        self._clock = clock
        self._own = own

    def tell(self, to: str, envelope: Envelope) -> bool:
        """Send ``envelope`` to the component ``to`` over there; False if that process is gone."""
        number = 0
        if isinstance(envelope.message, Request) and envelope.reply_to is not None:
            # Before it is sent: the reply may come at once, in another thread.
            number = self.ask(_Asked(to, envelope))
        seconds = None if envelope.deadline is None else envelope.deadline - self._clock()
        try:
            frame = link_frames.encode(to, envelope.message, number, seconds)
        except errors.FrameError as error:
            self.withdraw(number)
            envelope.refuse(error)
            return True
        if self._send(frame):
            return True
        self.withdraw(number)
        return False

    def take(self, data: bytes) -> None:
        """A frame has come: pass on its message. Raises `FrameError`."""
        frame = link_frames.decode(data)
        if not frame.to:
            asked = self.take_reply(frame.number, frame.message)
            if asked is not None:
                asked.envelope.reply(frame.message)
            return
        number, seconds = frame.number, frame.deadline_seconds
        deadline = None if seconds is None else self._clock() + seconds
        reply_to = _ReplyOverLink(self._send) if number else None
        envelope: Envelope = Envelope(frame.message, reply_to, number, deadline)
        if self._own is not None and self._own[0] == frame.to:
            self._own[1](envelope)
        else:
            self._directory.tell(frame.to, envelope)

    def forget(self, component: str) -> None:
        """A component over there was replaced: its predecessor answers nothing more.

        Those who asked repeat their requests, or refuse them, as if it lived in this process.
        """
        self.drop(lambda asked: asked.to == component)


class LinkedReceiver:
    """Stands in the directory for a component of another process."""

    def __init__(self, link: ComponentLink, name: str) -> None:
        self._link = link
        self._name = name

    def tell(self, envelope: Envelope) -> bool:
        """Send ``envelope``; False if the other process is gone."""
        return self._link.tell(self._name, envelope)

    def depth(self) -> int:
        """How many requests wait for that process."""
        return len(self._link.open)


class _ReplyOverLink:
    """The address of a sender in the other process."""

    __slots__ = ("_send",)

    def __init__(self, send: Callable[[bytes], bool]) -> None:
        self._send = send

    def tell(self, envelope: Envelope) -> None:
        try:
            frame = link_frames.encode("", envelope.message, envelope.number)
        except errors.FrameError as error:
            failure = Failure(error.name, error.text)
            frame = link_frames.encode("", failure, envelope.number)
        self._send(frame)
