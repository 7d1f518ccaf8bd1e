"""How much of the disk output, archive and journal take: measured when somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import errors
from ...storage.queue_files.disk_use import DiskMeter
from ...transport import messages

if TYPE_CHECKING:
    from ...transport.envelopes import Envelope
    from ..runtime.component import Runtime
    from ..runtime.works import Work


class DiskWatch:
    """Measures in slices; those who ask meanwhile wait for the next measurement."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._meter = DiskMeter(runtime.host.places)
        self._asked: list[Envelope] = []
        self._is_measuring = False

    def answer(self, envelope: Envelope) -> None:
        """Measure, and answer."""
        self._asked.append(envelope)
        if not self._is_measuring:
            self._is_measuring = True
            self._runtime.work(self._measuring())

    def _measuring(self) -> Work:
        while self._asked:
            asked, self._asked = self._asked, []
            try:
                use = yield from self._meter.measuring()
            except errors.StorageError as error:
                for envelope in asked:
                    envelope.refuse(error)
            else:
                for envelope in asked:
                    envelope.reply(messages.DiskUseRead(use))
        self._is_measuring = False
        return None
