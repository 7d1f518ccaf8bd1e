"""Which forecasts wait for names of the configuration, and whose they are: pure.

Jobs whose locks the configuration decides carry a question (`declared.question_of_job`); jobs with
the same locks carry the same. The configuration store answers them. Until the first answer nobody
knows which locks a job waits for, so it does not start, and neither does any job that comes after
it. If the store does not answer in time, the job counts with the locks that are known without it.
When the store says that answers may be others, all questions of pending jobs are asked again; the
former answers count until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ...storage.prediction.lock_types import JobForecast

ASKED_AT_ONCE_MAX = 200


class Questions:
    """The questions of pending jobs. ``question_of``: that of a job now; None: it has none."""

    def __init__(self, question_of: Callable[[int], str | None]) -> None:
        self._question_of = question_of
        self._jobs: dict[str, list[int]] = {}
        self._answers: dict[str, JobForecast] = {}
        # In the order of their arrival.
        self._open: dict[str, None] = {}
        self._noted = 0
        self._noted_max = _NOTED_MIN
        self._serial_min = 0
        self.is_asking = False
        """Whether some of them are with the store."""

    def note(self, job_id: int, question: str) -> JobForecast | None:
        """A pending job has this question; returns the answer, if it is known."""
        self._noted += 1
        self._jobs.setdefault(question, []).append(job_id)
        if question not in self._answers:
            self._open[question] = None
        if self._noted > self._noted_max:
            self._forget_ended()
        return self._answers.get(question)

    def next(self) -> list[str]:
        """The questions to ask now; none while others are with the store."""
        if self.is_asking or not self._open:
            return []
        asked: list[str] = []
        for question in list(self._open):
            if not self._forget_if_ended(question):
                asked.append(question)
                if len(asked) == ASKED_AT_ONCE_MAX:
                    break
        self.is_asking = bool(asked)
        return asked

    def answer(
        self, asked: Sequence[str], answers: Iterable[JobForecast], serial_no: int
    ) -> Iterator[tuple[int, JobForecast]]:
        """Take the answers to the first of these questions; the forecasts of jobs that change."""
        self.is_asking = False
        if serial_no < self._serial_min:
            # The configuration has changed since then.
            return
        for question, found in zip(asked, answers, strict=False):
            self._open.pop(question, None)
            if self._answers.get(question) != found:
                self._answers[question] = found
                for job_id in self._jobs.get(question, ()):
                    if self._question_of(job_id) == question:
                        yield job_id, found

    def fail(self) -> None:
        """The store has not answered: ask again when there is a reason to."""
        self.is_asking = False

    def outdate(self, serial_no: int) -> None:
        """Answers from a configuration before this one may be others now."""
        self._serial_min = serial_no
        for question in list(self._jobs):
            if not self._forget_if_ended(question):
                self._open[question] = None

    def _forget_ended(self) -> None:
        for question, jobs in list(self._jobs.items()):
            if not self._forget_if_ended(question):
                self._jobs[question] = [one for one in jobs if self._question_of(one) == question]
        self._noted = sum(map(len, self._jobs.values()))
        self._noted_max = 2 * self._noted + _NOTED_MIN

    def _forget_if_ended(self, question: str) -> bool:
        """Forget a question that no pending job has any more."""
        if any(self._question_of(job_id) == question for job_id in self._jobs.get(question, ())):
            return False
        self._jobs.pop(question, None)
        self._answers.pop(question, None)
        self._open.pop(question, None)
        return True


_NOTED_MIN = 1_000
