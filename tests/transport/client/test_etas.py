from __future__ import annotations

import pytest

from ganger.storage.prediction.estimates import Estimate
from ganger.storage.prediction.lock_types import exclusive, forecast_of
from ganger.transport.client.etas import JobEta, etas_of
from ganger.transport.messages import PlanRead

MAKE = Estimate(4, 10.0, 20.0)


def read(**fields: object) -> PlanRead:
    known = {
        "now": 1_000.0, "slots": 1, "works": [MAKE, None], "running": [], "pending": [], "count": 0,
    }  # fmt: skip
    return PlanRead(**{**known, **fields})  # type: ignore[arg-type]


def test_a_running_job_ends_when_its_typical_time_is_over() -> None:
    found = etas_of(read(running=[(1, 0, 4.0)]))
    assert found.of(1) == JobEta(
        id=1, end=1_006.0, run_seconds=10.0, usual_seconds=10.0, elapsed=4.0, count=4
    )


@pytest.mark.parametrize(
    ("elapsed", "run_seconds", "is_overdue"),
    [(0.0, 10.0, False), (10.0, 20.0, False), (19.0, 20.0, False), (20.0, 20.0, True)],
)
def test_an_estimate_is_never_below_what_has_elapsed(
    elapsed: float, run_seconds: float, *, is_overdue: bool
) -> None:
    one = etas_of(read(running=[(1, 0, elapsed)])).of(1)
    assert (one.run_seconds, one.is_overdue) == (run_seconds, is_overdue)
    assert one.end == (None if is_overdue else 1_000.0 - elapsed + run_seconds)
    assert one.unknown == ("overdue" if is_overdue else "")
    assert (one.elapsed, one.usual_seconds) == (elapsed, 10.0)


def test_a_job_that_has_run_for_minutes_and_took_no_second_before_is_overdue() -> None:
    one = etas_of(read(works=[Estimate(9, 0.3, 0.4)], running=[(1, 0, 420.0)])).of(1)
    assert (one.run_seconds, one.end, one.is_overdue) == (420.0, None, True)


def test_who_waits_for_an_overdue_job_has_an_unknown_end_too() -> None:
    """For its end, its lock, or its run slot; the others are planned as ever."""
    lock = forecast_of(node=exclusive(["n1"]))
    jobs = {
        "works": [Estimate(9, 10.0, 20.0)],
        "running": [(1, 0, 420.0)],
        "pending": [(2, 0, [1], False), (3, 0, [2], False), (4, 0, [], False), (5, 0, [], False)],
        "count": 4,
        "locks": [lock],
        "lock_sets": {1: 0, 4: 0},
        "holds_back": True,
    }
    found = etas_of(read(**jobs, slots=2))
    assert {job_id: found.of(job_id).unknown for job_id in (1, 2, 3, 4)} == dict.fromkeys(
        (1, 2, 3, 4), "overdue"
    )
    assert [found.of(job_id).is_overdue for job_id in (1, 2)] == [True, False]
    assert found.of(5).end == 1_010.0
    assert etas_of(read(**jobs, slots=1)).of(5).unknown == "overdue"


def test_of_a_running_job_without_history_it_is_known_how_long_it_has_run() -> None:
    assert etas_of(read(running=[(1, 1, 420.0)])).of(1) == JobEta(
        id=1, elapsed=420.0, unknown="history"
    )


def test_pending_jobs_follow_in_order() -> None:
    found = etas_of(
        read(running=[(1, 0, 0.0)], pending=[(3, 0, [], False), (2, 0, [], False)], count=2)
    )
    assert (found.of(3).start, found.of(3).end) == (1_010.0, 1_020.0)
    assert (found.of(2).start, found.of(2).end) == (1_020.0, 1_030.0)
    assert list(found.jobs) == [1, 3, 2]


def test_a_job_without_history_has_no_end_and_is_a_guess_for_others() -> None:
    found = etas_of(read(usual=5.0, pending=[(2, 1, [], False), (3, 0, [], False)], count=2))
    assert found.of(2) == JobEta(id=2, start=1_000.0, unknown="history")
    assert found.of(3) == JobEta(
        id=3,
        start=1_005.0,
        end=1_015.0,
        run_seconds=10.0,
        usual_seconds=10.0,
        count=4,
        guesses=1,
    )


def test_a_job_that_is_held_is_unknown() -> None:
    found = etas_of(read(pending=[(2, 0, [], True), (3, 0, [2], False)], count=2))
    assert {found.of(2).unknown, found.of(3).unknown} == {"held"}


def test_a_job_beyond_the_plan_is_far() -> None:
    assert etas_of(read()).of(7).unknown == "ended"
    assert etas_of(read(count=1)).of(7).unknown == "far"


def test_a_job_waits_for_the_locks_of_the_running_one() -> None:
    one = forecast_of(node=exclusive(["n1"]))
    jobs = {"running": [(1, 0, 4.0)], "pending": [(2, 0, [], False), (3, 0, [], False)], "count": 2}
    found = etas_of(
        read(**jobs, slots=9, locks=[one], lock_sets={1: 0, 2: 0}, holds_back=True),
    )
    assert (found.of(2).start, found.of(3).start) == (1_006.0, 1_000.0)


def test_a_running_job_that_waits_for_its_locks_ends_later() -> None:
    one = forecast_of(node=exclusive(["n1"]))
    running = [(1, 0, 0.0), (2, 0, 4.0)]
    found = etas_of(
        read(running=running, slots=2, locks=[one], lock_sets={1: 0, 2: 0}, standing=[1])
    )
    assert (found.of(1).start, found.of(1).end) == (None, 1_016.0)
