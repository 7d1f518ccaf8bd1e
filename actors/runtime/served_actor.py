"""An actor as its dispatcher, its host and its runtime see it; `ComponentActor` is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ...storage import errors
    from ...transport.envelopes import Envelope
    from .mailbox import Heartbeat, Mailbox


class ServedActor(Protocol):
    """An actor that a dispatcher serves."""

    name: str
    incarnation: int
    heartbeat: Heartbeat
    patience_seconds: float | None
    """How long it waits for a message before its quiet turn; None: for ever."""
    quiet_at: float | None
    """When its quiet turn is due, in seconds of the monotonic clock; None: never."""
    readable: list[int]
    """Its watched descriptors of which its next turn is to hear."""

    @property
    def mailbox(self) -> Mailbox:
        """The messages that wait."""

    @property
    def is_over(self) -> bool:
        """Whether it takes no more messages."""

    @property
    def asks(self) -> bool:
        """Whether its component waits for a reply."""

    def tell(self, envelope: Envelope) -> bool:
        """Put ``envelope`` into the mailbox; False if the actor has ended."""

    def put(self, item: object) -> None:
        """Put an item of any kind into the mailbox."""

    def depth(self) -> int:
        """How many messages wait."""

    def run_turn(self) -> None:
        """Handle what waits."""

    def run_quiet_turn(self) -> None:
        """Let the component do what has time."""

    def stop(self) -> None:
        """Stop it when it has handled what waits."""

    def stop_within(self, seconds: float) -> bool:
        """Stop it when it has handled what waits; False if that takes longer."""

    def abandon(self, refusal: errors.GangerError) -> None:
        """Give up on it, as it hangs, and refuse every request that waits for it."""

    def crash(self, message: object) -> None:
        """End it with the error that is being handled, over ``message``."""
