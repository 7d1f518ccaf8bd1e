"""Which forecasts wait for names of the configuration, and whose they are."""

from __future__ import annotations

import pytest

from ganger.actors.scheduling.forecast_questions import ASKED_AT_ONCE_MAX, Questions
from ganger.storage.prediction.lock_types import JobForecast, exclusive, forecast_of

A, B = (JobForecast(one, one) for one in (forecast_of(node=exclusive([n])) for n in "ab"))


class Asked:
    """Questions of jobs that a test lets come and go."""

    def __init__(self) -> None:
        self.jobs: dict[int, str] = {}
        self.questions = Questions(self.jobs.get)

    def note(self, job_id: int, question: str) -> JobForecast | None:
        self.jobs[job_id] = question
        return self.questions.note(job_id, question)

    def answer(
        self, asked: list[str], *answers: JobForecast, serial_no: int = 1
    ) -> list[tuple[int, JobForecast]]:
        return list(self.questions.answer(asked, answers, serial_no))


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_jobs_with_the_same_question_ask_once(asked: Asked) -> None:
    assert [asked.note(n, "x") for n in (1, 2)] == [None, None]
    assert asked.questions.next() == ["x"]
    assert asked.questions.next() == []
    assert asked.answer(["x"], A) == [(1, A), (2, A)]
    assert asked.note(3, "x") == A
    assert asked.questions.next() == []


def test_questions_that_were_left_over_are_asked_again(asked: Asked) -> None:
    for job_id in range(ASKED_AT_ONCE_MAX + 5):
        asked.note(job_id, str(job_id))
    first = asked.questions.next()
    assert len(first) == ASKED_AT_ONCE_MAX
    assert asked.answer(first, A, B) == [(0, A), (1, B)]
    assert asked.questions.next()[0] == "2"


def test_after_a_change_all_are_asked_again_and_old_answers_count_until_then(
    asked: Asked,
) -> None:
    asked.note(1, "x")
    asked.answer(asked.questions.next(), A)
    asked.questions.outdate(5)
    assert asked.note(2, "x") == A
    assert asked.questions.next() == ["x"]
    # From a configuration before the change.
    assert asked.answer(["x"], A, serial_no=4) == []
    assert asked.questions.next() == ["x"]
    assert asked.answer(["x"], B, serial_no=5) == [(1, B), (2, B)]


def test_an_answer_that_stays_the_same_concerns_no_job(asked: Asked) -> None:
    asked.note(1, "x")
    asked.answer(asked.questions.next(), A)
    asked.questions.outdate(5)
    assert asked.answer(asked.questions.next(), A, serial_no=5) == []


def test_questions_of_jobs_that_are_gone_are_not_asked(asked: Asked) -> None:
    asked.note(1, "x")
    asked.note(2, "y")
    del asked.jobs[1]
    assert asked.questions.next() == ["y"]
    # It came back with other opcodes.
    asked.jobs[2] = "z"
    assert asked.answer(["y"], A) == []


def test_a_store_that_does_not_answer_is_asked_again(asked: Asked) -> None:
    asked.note(1, "x")
    assert asked.questions.next() == ["x"]
    asked.questions.fail()
    assert asked.questions.next() == ["x"]


def test_jobs_that_come_and_go_fill_no_memory(asked: Asked) -> None:
    for job_id in range(20_000):
        asked.note(job_id, f"x{job_id % 7}" if job_id % 2 else str(job_id))
        asked.jobs.pop(job_id - 10, None)
    known = asked.questions
    assert len(known._jobs) + sum(map(len, known._jobs.values())) <= 3_000
    assert len(known._open) <= 1_500
