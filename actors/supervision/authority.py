"""The component that keeps the process of locks and configuration, where these live apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from ...transport import messages
from ...transport.envelopes import Envelope
from ..processes.process_keeper import LISTENER, ProcessKeeper, ProcessLostError

if TYPE_CHECKING:
    from pathlib import Path


class Authority(ProcessKeeper[messages.AuthorityMessage]):
    """Keeps the process of the components that the placement puts elsewhere."""

    name = "authority"
    does = "locks and configuration"

    @property
    def _names(self) -> list[str]:
        return list(self.runtime.host.elsewhere)

    @property
    def _socket(self) -> Path:
        return self.places.authority_socket

    def boot(self) -> None:
        """Start the process, and wait until it can be reached."""
        self._open()

    def receive(self, envelope: Envelope[messages.AuthorityMessage]) -> None:
        """Handle one message."""
        message = envelope.message
        match message:
            case messages.StartComponent():
                self._start_component(message)
            case messages.ReplaceProcess():
                raise ProcessLostError(message.reason)
            case messages.PulseDue():
                self._ask_for_pulse()
            case messages.FramesWaiting():
                pass  # The end of this turn reads them.
            case messages.ComponentReplaced():
                if message.component not in self.runtime.host.elsewhere:
                    self._link.tell(LISTENER, Envelope(message))
            case _:
                assert_never(message)
