"""What a component stands on: how it speaks, waits, and reads the time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from ...transport.envelopes import Envelope

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...transport.messages import Message
    from .actor import ComponentActor
    from .directory import Address
    from .dispatcher import Alarm
    from .host import Host

MessageT = TypeVar("MessageT", bound="Message")


class Runtime:
    """The runtime of one incarnation of a component."""

    def __init__(self, host: Host, actor: ComponentActor) -> None:
        self.host = host
        self.incarnation = actor.incarnation
        self.log = host.log.bind(component=actor.name)
        self._actor = actor

    # ------------------------------------------------------------ messages

    def tell(self, to: Address[MessageT], message: MessageT) -> None:
        """Send ``message``; it is lost while the component is being restarted."""
        self.forward(to, Envelope(message))

    def forward(self, to: Address[Any], envelope: Envelope) -> None:
        """Pass on ``envelope``; the directory refuses it if the component is being restarted."""
        if self._actor.heartbeat.is_abandoned:
            raise AbandonedError
        self.host.directory.tell(to.name, envelope)

    def depth(self, to: Address[Any]) -> int:
        """How many messages wait in the mailbox of a component."""
        return self.host.directory.depth(to.name)

    # ------------------------------------------------------------ time

    def clock(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    def later(self, seconds: float, message: Message) -> Alarm:
        """Tell this component ``message`` after so many seconds, unless the alarm is canceled."""
        return self._actor.dispatcher.later(seconds, self._actor, message)

    def aside(self, work: Callable[[], Message]) -> None:
        """Do ``work`` in a thread, and tell this component, or its successor, the result."""
        name, directory = self._actor.name, self.host.directory

        def run() -> None:
            directory.tell(name, Envelope(work()))

        self._actor.dispatcher.aside(name, run)

    # ------------------------------------------------------------ descriptors and turns

    def watch(self, descriptor: int) -> None:
        """Call `Component.readable` whenever ``descriptor`` is readable or at its end."""
        self._actor.dispatcher.watch(descriptor, self._actor)

    def forget(self, descriptor: int) -> None:
        """No longer watch ``descriptor``; call this before closing it."""
        self._actor.dispatcher.forget(descriptor)

    @property
    def has_mail(self) -> bool:
        """Whether a message waits for this component."""
        return not self._actor.mailbox.empty()

    @property
    def have_others_work(self) -> bool:
        """Whether another actor of the same dispatcher waits for its turn."""
        return self._actor.dispatcher.have_others_work()

    @property
    def has_news(self) -> bool:
        """Whether a message or a descriptor waits, for this component or one beside it."""
        return self._actor.dispatcher.has_news(self._actor)

    @property
    def patience_seconds(self) -> float | None:
        """How long to wait for a message before `Component.quiet`; None: for ever."""
        return self._actor.patience_seconds

    @patience_seconds.setter
    def patience_seconds(self, seconds: float | None) -> None:
        self._actor.patience_seconds = seconds

    def stop(self) -> None:
        """Stop this component when it has handled what waits."""
        self._actor.stop()


class AbandonedError(BaseException):
    """This component hung and was replaced; nothing it does has an effect."""
