"""What an actor knows and does, without a thread, a clock or a mailbox of its own.

A component gets its messages from a `ComponentActor`, one at a time, and reaches everything
outside through its `Runtime`. Messages come in turns: when no more wait, or after
`settings.TURN_MESSAGES_MAX`, `turn_ended` runs once, and does together what the turn collected: one
flush, one write. Replies that depend on it are sent there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic

if TYPE_CHECKING:
    from collections.abc import Iterable

    # A component without an argument may accept anything.
    from typing_extensions import TypeVar

    from ...storage.disk import paths
    from ...transport.envelopes import Envelope
    from .runtime import Runtime

    MessageT = TypeVar("MessageT", default=Any)
else:
    from typing import TypeVar

    MessageT = TypeVar("MessageT")


class Component(Generic[MessageT]):
    """One actor of the daemon, known by its name, that accepts the messages ``MessageT``."""

    name: ClassVar[str]
    quarantined: tuple[str, ...] = ()
    """A sentence about each file that its start could not read, and has put aside."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.log = runtime.log

    @property
    def places(self) -> paths.Places:
        """Where everything lies."""
        return self.runtime.host.places

    def boot(self) -> None:
        """Build the state from disk and from the living. The first message calls this."""

    def receive(self, envelope: Envelope[MessageT]) -> None:
        """Handle one message."""
        raise NotImplementedError

    def readable(self, descriptors: Iterable[int]) -> None:
        """Handle watched descriptors that are readable or at their end.

        One that `Runtime.forget` has forgotten before its turn is left out: the kernel may have
        given its number to another file meanwhile.
        """
        raise NotImplementedError

    def turn_ended(self) -> None:
        """Do together what the turn collected."""

    def quiet(self) -> None:
        """Do what has time: no message came for `Runtime.patience_seconds`."""

    def close(self) -> None:
        """Free descriptors and the like, at a stop and after a crash."""
