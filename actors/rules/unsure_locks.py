"""Jobs whose verdict depends on locks that the configuration decides.

Without the configuration such a job may take any lock of a level. If a rule applied to it only
because of that, or did not, the job is held while the configuration store is asked. An answer holds
until the store says that answers may be others: then the chain of rules gets a new number, and each
job is judged again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ...storage import settings
from ...storage.filters.lock_claims import claims_of_forecast
from ...transport import messages
from ..runtime.addresses import CONFIG_STORE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...storage import errors
    from ...storage.filters.lock_predicate import LockClaim
    from ...transport.messages import JobToJudge
    from ..runtime.component import Runtime
    from .filtering import JobFacts

_ASKED_AT_ONCE_MAX: Final = 200
_ANSWERS_MAX: Final = 10_000


class Unsure(msgspec.Struct, frozen=True):
    """A job that is held until it is known which locks it takes; ``is_running``: it has a slot."""

    arrived: JobToJudge
    is_running: bool


class UnsureLocks:
    """Asks for the locks of these jobs, and has them judged again: ``judge_again`` does that."""

    def __init__(self, runtime: Runtime, judge_again: Callable[[Sequence[Unsure]], None]) -> None:
        self._runtime = runtime
        self._judge_again = judge_again
        self._answers: dict[str, tuple[LockClaim, ...]] = {}
        self._jobs: dict[int, str] = {}
        self._waiting: dict[str, dict[int, Unsure]] = {}
        self._serial_min = 0
        self._is_asking = False

    def known(self, facts: JobFacts) -> JobFacts:
        """The facts with the locks that the configuration store has told."""
        # Without answers nothing is looked up: most chains look at no locks.
        if not self._answers or not facts.has_unknown_locks or facts.question is None:
            return facts
        claims = self._answers.get(facts.question)
        return facts if claims is None else msgspec.structs.replace(facts, claims=claims)

    def wait(self, question: str, job: Unsure) -> None:
        """Have the job judged again when the question is answered."""
        job_id = job.arrived.job.id
        self.forget(job_id)
        self._jobs[job_id] = question
        self._waiting.setdefault(question, {})[job_id] = job
        self.ask()

    def forget(self, job_id: int) -> None:
        """The job has ended, or comes with other facts."""
        question = self._jobs.pop(job_id, None)
        if question is not None and (jobs := self._waiting.get(question)):
            jobs.pop(job_id, None)
            if not jobs:
                del self._waiting[question]

    def clear(self) -> None:
        """Under another chain the scheduler asks for these jobs anew."""
        self._jobs.clear()
        self._waiting.clear()

    def outdate(self, serial_no: int) -> bool:
        """Answers of a configuration before this one may be others; whether any was in use."""
        self._serial_min = serial_no
        was_used = bool(self._answers)
        self._answers.clear()
        self.ask()
        return was_used

    def ask(self) -> None:
        """Ask the configuration store, a bounded number of questions at once."""
        asked = [*self._waiting][:_ASKED_AT_ONCE_MAX]
        if self._is_asking or not asked:
            return
        self._is_asking = True

        def resolved(reply: messages.ForecastsResolved) -> None:
            self._is_asking = False
            if reply.serial_no >= self._serial_min:
                self._take(asked, reply)
            self.ask()

        def failed(error: errors.GangerError) -> None:
            self._is_asking = False
            self._runtime.log.warning("locks of held jobs are not resolved", error=error.text)
            self._runtime.later(settings.FORECAST_SECONDS, messages.ForecastsDue())

        request = messages.ResolveForecasts(questions=asked)
        deadline = self._runtime.clock() + settings.FORECAST_SECONDS
        self._runtime.ask(CONFIG_STORE, request, resolved, failed, deadline)

    def _take(self, asked: Sequence[str], reply: messages.ForecastsResolved) -> None:
        if len(self._answers) >= _ANSWERS_MAX:
            self._answers.clear()
        again: list[Unsure] = []
        for question, found in zip(asked, reply.forecasts, strict=False):
            self._answers[question] = claims_of_forecast(found.of_all)
            jobs = self._waiting.pop(question, {})
            again += jobs.values()
            for job_id in jobs:
                del self._jobs[job_id]
        if again:
            self._judge_again(again)
