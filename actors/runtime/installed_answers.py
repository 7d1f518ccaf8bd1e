"""What packages answer for a component: requests of theirs about its state.

They join by the entry point group `ganger.answers`. They run in the turns of the component.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar

from ...storage import entry_points, errors

if TYPE_CHECKING:
    from ...transport.envelopes import Envelope
    from ...transport.messages import Message
    from .component import Component


class AnswerPart:
    """Answers nothing: packages say what they take, and how they answer it."""

    component: ClassVar[str] = ""
    """The name of the component."""

    takes: ClassVar[tuple[type[Message], ...]] = ()
    """The messages that come here."""

    def __init__(self, component: Any) -> None:  # noqa: ANN401 - that which `component` names
        """``component`` has booted."""

    def take(self, envelope: Envelope, message: Any) -> None:  # noqa: ANN401 - one of `takes`
        """Handle one message."""

    def turn_ended(self) -> None:
        """Answer what has waited for the end of the turn."""


@functools.cache
def installed() -> tuple[type[AnswerPart], ...]:
    """What packages bring. It is looked up once."""
    return tuple(entry_points.load(entry_points.ANSWERS).objects.values())


class InstalledAnswers:
    """All answers of a component, as one."""

    def __init__(self, component: Component[Any]) -> None:
        ours = (kind for kind in installed() if kind.component == component.name)
        self._answers = [kind(component) for kind in ours]
        self._takers = {kind: one for one in self._answers for kind in one.takes}

    def take(self, envelope: Envelope, message: Message) -> None:
        """Answer. Raises `BadRequestError` if no package does."""
        taker = self._takers.get(type(message))
        if taker is None:
            text = f"{type(message).__name__}: no installed package serves this request"
            raise errors.BadRequestError(text)
        taker.take(envelope, message)

    def turn_ended(self) -> None:
        """The component's turn ends."""
        for one in self._answers:
            one.turn_ended()
