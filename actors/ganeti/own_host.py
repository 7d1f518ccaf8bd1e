"""What this machine answers as a node of the cluster, measured when a query asks.

A thread measures: a file system may hang. Queries that come meanwhile share the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..processes import host_figures
from . import notices

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..runtime.component import Runtime
    from ..runtime.dispatcher import Alarm

    Figures = dict[str, Any]


OWN_HOST_SECONDS = 5.0
"""How long a query waits for the figures of this machine: a file system may hang."""


class OwnHost:
    """Measures this machine. One that does not answer in time has no figures."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: list[Callable[[Figures], None]] = []
        self._alarm: Alarm | None = None
        """Of the measurement that is under way."""
        self._number = 0
        self._is_overdue = False

    def ask(self, storage: Sequence[str], then: Callable[[Figures], None]) -> None:
        """Later call ``then`` with the figures; ``storage``: as `host_figures.figures` takes it.

        At once, and without figures, while an earlier measurement hangs.
        """
        if self._is_overdue:
            then({})
            return
        self._waiting.append(then)
        if self._alarm is not None:
            return
        self._number += 1
        overdue = notices.HostOverdue(number=self._number)
        self._alarm = self._runtime.later(OWN_HOST_SECONDS, overdue)
        self._runtime.in_thread(lambda: notices.HostMeasured(figures=host_figures.figures(storage)))

    def note_measured(self, message: notices.HostMeasured) -> None:
        """The thread has measured: answer all that wait."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._is_overdue = None, False
        self._answer(message.figures)

    def note_overdue(self, message: notices.HostOverdue) -> None:
        """The thread hangs: answer all that wait without figures."""
        if self._alarm is None or message.number != self._number:
            return
        self._is_overdue = True
        self._runtime.log.warning("the figures of this machine are overdue")
        self._answer({})

    def _answer(self, figures: Figures) -> None:
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(figures)
