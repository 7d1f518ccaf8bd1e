"""The directory: which component is behind which name, in this process or in another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ...storage import errors

if TYPE_CHECKING:
    from ...transport.envelopes import Envelope

MessageT_contra = TypeVar("MessageT_contra", contravariant=True)


class Address(Generic[MessageT_contra]):
    """The address of a component by name: it outlives the component's restarts.

    The type parameter is the union of messages that the component accepts.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Address({self.name!r})"


class Receiver(Protocol):
    """What stands behind an address: an actor of this process, or a socket to another one."""

    def tell(self, envelope: Envelope) -> bool:
        """Take ``envelope``; False if the component has ended. Never blocks."""

    def depth(self) -> int:
        """How many messages wait there."""


class Directory:
    """The receivers of all components by name. The supervisor writes, everybody reads."""

    def __init__(self) -> None:
        self._receivers: dict[str, Receiver] = {}

    def enter(self, name: str, receiver: Receiver) -> None:
        """``receiver`` is now behind ``name``."""
        self._receivers[name] = receiver

    def remove(self, name: str) -> None:
        """No component is behind ``name`` for now."""
        self._receivers.pop(name, None)

    def tell(self, name: str, envelope: Envelope) -> None:
        """Send ``envelope``; a request to a component that is being restarted is refused."""
        receiver = self._receivers.get(name)
        if receiver is None or not receiver.tell(envelope):
            text = f"component {name} is being restarted"
            envelope.refuse(errors.ComponentRestartedError(text))

    def depth(self, name: str) -> int:
        """How many messages wait for ``name``."""
        receiver = self._receivers.get(name)
        return 0 if receiver is None else receiver.depth()
