"""Resolves for the scheduler and the filter evaluator which locks jobs will take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import settings
from ...storage.prediction.declared import answer_to_job, changes_forecasts
from ...storage.prediction.declared_needs import LookupSnapshot
from ...transport import messages
from ..runtime.addresses import FILTER_EVALUATOR, SCHEDULER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...storage.cluster.configuration import Change, Configuration
    from ...storage.prediction.lock_types import JobForecast
    from ...transport.envelopes import Envelope
    from ..runtime.component import Runtime
    from .stored_configuration import StoredConfiguration


class Forecasts:
    """Answers from the present snapshot, and tells when answers may be others.

    What it looked up is kept until a change concerns it: most changes concern no forecast.
    """

    def __init__(self, runtime: Runtime, stored: StoredConfiguration) -> None:
        self._runtime = runtime
        self._stored = stored
        self._names: LookupSnapshot | None = None
        stored.when_changed(self._note)

    def begin(self) -> None:
        """Tell both that a predecessor's answers may be others: it may not have told."""
        self._tell_outdated(self._stored.snapshot.serial_no)

    def answer(self, envelope: Envelope, message: messages.ResolveForecasts) -> None:
        """Answer as many questions as a turn has time for, and one at least."""
        if self._names is None:
            self._names = LookupSnapshot(self._stored.snapshot)
        found = list(self._answers(message.questions, self._names))
        serial_no = self._stored.snapshot.serial_no
        envelope.reply(messages.ForecastsResolved(forecasts=found, serial_no=serial_no))

    def _answers(self, questions: Sequence[str], names: LookupSnapshot) -> Iterable[JobForecast]:
        end = self._runtime.clock() + settings.QUERY_SLICE_SECONDS
        for question in questions:
            yield answer_to_job(question, names)
            if self._runtime.clock() >= end:
                return

    def _note(self, before: Configuration, after: Configuration, changes: Sequence[Change]) -> None:
        # Without names nothing was answered since the last change that concerned any forecast.
        if self._names is not None and changes_forecasts(before, after, changes):
            self._names = None
            self._tell_outdated(after.serial_no)

    def _tell_outdated(self, serial_no: int) -> None:
        outdated = messages.ForecastsOutdated(serial_no=serial_no)
        self._runtime.tell(SCHEDULER, outdated)
        self._runtime.tell(FILTER_EVALUATOR, outdated)
