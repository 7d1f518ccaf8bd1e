"""Which stored changes are in force, and who waits to hear of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...transport import messages
    from ...transport.envelopes import Envelope


class PendingAcks:
    """Numbered changes of one kind, and the requests that wait until they are in force."""

    def __init__(self, serial: int) -> None:
        self.serial = serial
        self._unanswered: list[tuple[int, Envelope, messages.Reply]] = []

    @property
    def is_awaited(self) -> bool:
        """Whether a request waits for one of them."""
        return bool(self._unanswered)

    def add(self, envelope: Envelope, answer: messages.Reply) -> None:
        """Number a stored change; send ``answer`` when it is in force."""
        self.serial += 1
        self._unanswered.append((self.serial, envelope, answer))

    def in_force(self, serial: int) -> None:
        """Answer all changes up to this serial."""
        waiting, self._unanswered = self._unanswered, []
        for number, envelope, answer in waiting:
            if number <= serial:
                envelope.reply(answer)
            else:
                self._unanswered.append((number, envelope, answer))
