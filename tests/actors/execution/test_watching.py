"""What the end of a process means for its job."""

from __future__ import annotations

import pytest

from ganger.actors.execution.watching import ATTEMPTS_MAX, ChildPhase, NextStep, after_end


@pytest.mark.parametrize("attempts", range(1, ATTEMPTS_MAX))
def test_a_process_that_never_spoke_is_replaced(attempts: int) -> None:
    assert after_end(ChildPhase.ASKED, attempts) is NextStep.RETRY


@pytest.mark.parametrize("attempts", [ATTEMPTS_MAX, ATTEMPTS_MAX + 1])
def test_replacing_has_a_limit(attempts: int) -> None:
    assert after_end(ChildPhase.ASKED, attempts) is NextStep.GIVE_UP


@pytest.mark.parametrize("phase", [ChildPhase.GREETED, ChildPhase.CONFIRMED])
@pytest.mark.parametrize("attempts", [1, ATTEMPTS_MAX, 100])
def test_a_process_that_sent_its_name_is_never_replaced_unasked(
    phase: ChildPhase, attempts: int
) -> None:
    # It may have begun: only the job's state can tell, and the job queue has that.
    assert after_end(phase, attempts) is NextStep.REPORT


def test_a_job_gets_more_than_one_attempt() -> None:
    assert ATTEMPTS_MAX > 1
