"""The configuration store: the single writer of ``config.data``, in Ganeti's schema.

It tells the others what concerns them: the rules to the filter evaluator, the number of run
slots to the scheduler. What it does not know it keeps.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, assert_never

from ..storage import config_files, settings
from ..transport import messages
from .base import Component

if TYPE_CHECKING:
    from ..transport.addresses import Envelope

ConfigMessage = messages.ReportConfiguration


class ConfigStore(Component):
    """Owns the configuration."""

    name = "config_store"

    def boot(self) -> None:
        """Read the configuration; make a first one if there is none."""
        found = config_files.read(self.places.config)
        if found is None:
            found = config_files.first_configuration(str(uuid.uuid4()), time.time())
            config_files.write(self.places.config, found)
        self._configuration: dict[str, Any] = found
        self._report()

    def receive(self, envelope: Envelope) -> None:
        """Handle one message."""
        message: ConfigMessage = envelope.message  # type: ignore[assignment]
        match message:
            case messages.ReportConfiguration():
                self._report()
            case _:
                assert_never(message)

    def _report(self) -> None:
        rules = list(self._configuration.get("filters", {}).values())
        self.address("filter_evaluator").notify(messages.RulesChanged(rules=rules))
        cluster = self._configuration.get("cluster", {})
        limit = cluster.get("max_running_jobs", settings.RUNNING_JOBS_MAX)
        self.address("scheduler").notify(messages.LimitsChanged(running_jobs_max=limit))
