"""Envelopes: the answer goes to the sender of the request."""

from __future__ import annotations

from ganger.storage import errors
from ganger.transport import messages
from ganger.transport.envelopes import Envelope


class Sender:
    """Collects the envelopes that it gets."""

    def __init__(self) -> None:
        self.received: list[Envelope] = []

    def tell(self, envelope: Envelope) -> None:
        self.received.append(envelope)

    @property
    def failures(self) -> list[tuple[str, str]]:
        return [
            (envelope.message.error, envelope.message.text)
            for envelope in self.received
            if isinstance(envelope.message, messages.Failure)
        ]


def test_an_answer_carries_the_number_of_its_request() -> None:
    sender = Sender()
    request = Envelope(messages.ReadInfo(), sender, number=7, peer=b"p")
    request.reply(messages.Done())
    request.refuse(errors.BusyError("later"))
    assert sender.received == [
        Envelope(messages.Done(), number=7),
        Envelope(messages.Failure("BusyError", "later"), number=7),
    ]


def test_the_reply_to_a_notice_goes_nowhere() -> None:
    notice = Envelope(messages.Boot())
    notice.reply(messages.Done())
    notice.refuse(errors.BusyError())
