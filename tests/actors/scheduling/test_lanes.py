"""What the order of jobs with locks costs; tests/properties says that the order is right."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import pytest
from tests.actors.scheduling.schedules import CHAIN

from ganger.actors.runtime.slices import done
from ganger.actors.scheduling import queue_position
from ganger.actors.scheduling.eligible import Eligible
from ganger.actors.scheduling.scheduling import Schedule
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.prediction.lock_types import (
    ALL_EXCLUSIVE,
    NO_LOCKS,
    LockForecast,
    exclusive,
    forecast_of,
    shared,
)
from ganger.storage.prediction.policy import Policy
from ganger.transport.messages import JobVerdict, PendingJob, ReportOrder

SUCCESS = JobStatus.SUCCESS
HOT = forecast_of(node=exclusive(["hot"]))
NODES = forecast_of(node=ALL_EXCLUSIVE)
HOLDS_BACK = Policy(holds_back=True)


def verdict(
    job_id: int, forecast: LockForecast | None = None, *, priority: int = 0, chain: int = CHAIN
) -> JobVerdict:
    job = PendingJob(id=job_id, priority=priority, forecast=forecast)
    return JobVerdict(job=job, chain=chain)


def schedule(*verdicts: JobVerdict, slots: int = 20, policy: Policy = HOLDS_BACK) -> Schedule:
    made = Schedule(slots, CHAIN, policy=policy)
    for one in verdicts:
        made.add(one)
    return made


def release(known: Schedule, job_id: int) -> None:
    known.learn(job_id, SUCCESS)
    known.locks_changed(job_id, NO_LOCKS)


def own(job_id: int) -> LockForecast:
    """Locks of which no two jobs have the same, beside the one that all of them want."""
    return forecast_of(instance=exclusive([f"i{job_id}"]), node=exclusive(["hot"]))


def test_one_job_of_a_hot_lock_runs_and_the_free_ones_pass() -> None:
    jobs = [verdict(n, HOT) for n in range(1, 101)]
    known = schedule(*jobs, *(verdict(n) for n in range(101, 105)), slots=4)
    # The free ones weigh less.
    assert known.decide(0.0).start == [1, 101, 102, 103]
    for n in (101, 102, 103):
        known.learn(n, SUCCESS)
    assert known.decide(1.0).start == [104]
    release(known, 1)
    assert known.decide(2.0).start == [2]


def test_an_urgent_job_is_not_held_back_behind_a_less_urgent_one() -> None:
    # Otherwise others like it could share the lock one after the other, and the urgent job waits.
    sharing = forecast_of(node=shared(["hot"]))
    for priority, starts in ((-20, []), (-19, []), (-18, [2])):
        known = schedule(verdict(1, sharing, priority=priority))
        assert known.decide(0.0).start == [1]
        known.locks_changed(1, sharing)
        known.add(verdict(2, HOT, priority=-19))
        assert known.decide(0.0).start == starts
        position = known.position(2)
        assert (position is None) is bool(starts)
        if position is not None:
            assert [one.jobs for one in position.held_back] == [[1]]


def test_a_lock_change_moves_lanes_and_not_jobs() -> None:
    known = schedule(*(verdict(n, own(n)) for n in range(1, 2_001)))
    assert known.decide(0.0).start == [1]
    with mock.patch.object(Eligible, "add", autospec=True) as entered:
        for n in range(1, 200):
            known.locks_changed(n, own(n))
            release(known, n)
            assert known.decide(float(n)).start == [n + 1]
    assert entered.call_count == 0


def test_what_other_jobs_need_costs_a_lock_change_nothing() -> None:
    names = [forecast_of(node=exclusive([f"n{n}"])) for n in range(2_000)]
    known = schedule(*(verdict(n, names[n - 2]) for n in range(2, 2_002)), slots=1)
    assert known.decide(0.0).start == [2]
    known.limit(0)
    with mock.patch.object(Eligible, "regroup", autospec=True) as regrouped:
        for name in names:
            known.locks_changed("somebody", name)
    # They stand in one lane, whose names are not looked up before its first job may start.
    assert regrouped.call_count == 0
    assert len(known._order._order.lanes) == 1


def test_few_first_jobs_are_compared_however_many_wait() -> None:
    """The groups are as many as there are shapes beside locks that are taken."""
    shapes: list[Callable[[int], LockForecast]] = [
        lambda n: forecast_of(node=exclusive([f"n{n % 50}"])),
        lambda n: forecast_of(node=shared([f"n{n % 50}"])),
        own,
        lambda _: forecast_of(node=ALL_EXCLUSIVE),
    ]
    counts = []
    for pending in (400, 4_000):
        jobs = [verdict(n, shapes[n % 4](n)) for n in range(1, pending + 1)]
        known = schedule(*jobs, slots=10)
        running = known.decide(0.0).start
        for _ in range(100):
            release(known, running.pop(0))
            running += known.decide(0.0).start
        counts.append(len(known._order._order._groups[0]))
    assert counts[0] <= 12
    assert counts[1] <= counts[0] + 2


def test_a_pass_looks_up_a_bounded_number_of_jobs_and_starts_none_too_early() -> None:
    known = Schedule(2, CHAIN, policy=HOLDS_BACK, looks_max=100)
    for n in range(1, 501):
        known.add(verdict(n, own(n)))
    known.add(verdict(501, priority=1))
    passes = []
    decided = known.decide(0.0)
    while decided.due_at == 0.0:
        passes.append(decided.start)
        decided = known.decide(0.0)
    passes.append(decided.start)
    assert passes[0] == [1]
    assert passes[-1] == [501]
    assert all(not start for start in passes[1:-1])
    assert 5 <= len(passes) <= 7


def test_stale_places_fill_no_memory() -> None:
    known = schedule(*(verdict(n, own(n)) for n in range(1, 51)), slots=0)
    known.limit(1)
    known.decide(0.0)
    for _ in range(2_000):
        known.locks_changed("somebody", HOT)
        known.decide(0.0)
        known.locks_changed("somebody", NO_LOCKS)
        known.decide(0.0)
    groups = known._order._order._groups[0].values()
    assert sum(len(group._heads) for group in groups) <= 20 + 4 * len(known._order._order.lanes)


def test_lanes_that_are_empty_leave_nothing() -> None:
    known = schedule(*(verdict(n, own(n)) for n in range(1, 21)), slots=1)
    running = known.decide(0.0).start
    while running:
        release(known, running.pop())
        running += known.decide(0.0).start
    assert not known._order._order.lanes
    assert not known._order._order._groups
    assert not known._prediction.taken.watchers
    assert not known._prediction.taken


@pytest.mark.parametrize("policy", [Policy(is_predictive=False), HOLDS_BACK])
def test_jobs_without_locks_stand_in_one_lane(policy: Policy) -> None:
    forecast = HOT if not policy.is_predictive else NO_LOCKS
    known = schedule(*(verdict(n, forecast) for n in range(1, 101)), slots=2, policy=policy)
    assert known.decide(0.0).start == [1, 2]
    assert known._order._order.is_plain
    assert not known._prediction.taken


def test_a_running_job_that_comes_back_takes_no_locks_any_more() -> None:
    known = schedule(verdict(1, HOT), verdict(2, HOT))
    assert known.decide(0.0).start == [1]
    known.add(verdict(1, HOT, priority=1))
    assert known.decide(0.0).start == [2]


def test_a_complete_report_keeps_the_locks_of_jobs_that_still_run() -> None:
    known = schedule(verdict(1, HOT), verdict(2, HOT))
    assert known.decide(0.0).start == [1]
    known.replace_all([verdict(2, HOT)], [verdict(1, HOT)])
    assert known.decide(0.0).start == []
    known.replace_all([verdict(2, HOT)], [])
    assert known.decide(0.0).start == [2]


def test_a_verdict_on_a_running_job_keeps_its_locks() -> None:
    known = schedule(verdict(1, HOT), verdict(2, HOT))
    assert known.decide(0.0).start == [1]
    known.change_chain(CHAIN + 1)
    known.judge(verdict(1, HOT, chain=CHAIN + 1))
    known.judge(verdict(2, HOT, chain=CHAIN + 1))
    assert known.decide(0.0).start == []
    release(known, 1)
    assert known.decide(0.0).start == [2]


def test_jobs_in_the_line_of_a_bucket_keep_the_order_of_weights() -> None:
    def limited(job_id: int, forecast: LockForecast | None) -> JobVerdict:
        job = PendingJob(id=job_id, priority=0, forecast=forecast, limits=(("1:x", 1),))
        return JobVerdict(job=job, chain=CHAIN)

    policy = Policy(holds_back=False)
    known = schedule(limited(1, None), limited(2, HOT), limited(3, None), policy=policy)
    assert known.decide(0.0).start == [1]
    known.locks_changed("somebody", HOT)
    release(known, 1)
    assert known.decide(1.0).start == [3]


def test_the_order_says_which_locks_jobs_have_and_begin_with() -> None:
    known = schedule(verdict(1, HOT), verdict(2, HOT), verdict(3), verdict(4, own(4)))
    assert known.decide(0.0).start == [1, 3]
    found = done(known.standing_now().reported(ReportOrder(9), 9))
    assert (found.standing, found.holds_back) == ([1], True)
    by_job = {job_id: found.locks[index] for job_id, index in found.lock_sets.items()}
    assert by_job == {1: HOT, 2: HOT, 4: own(4)}
    known.locks_changed(1, own(1))
    known.locks_changed("somebody", NODES)
    found = done(known.standing_now().reported(ReportOrder(9), 9))
    assert found.standing == []
    assert found.locks[found.lock_sets[1]] == own(1)


def test_the_order_has_locks_until_there_are_too_many_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_position, "LOCK_NAMES_MAX", 3)
    known = schedule(*(verdict(n, own(n)) for n in (1, 2)), verdict(3, HOT), slots=1)
    found = done(known.standing_now().reported(ReportOrder(9), 9))
    assert len(found.pending) == 3
    assert sorted(found.lock_sets) == [1, 3]


@pytest.mark.parametrize("forecast", [None, HOT])
def test_other_rules_put_all_held_jobs_into_order_without_a_look_at_each(
    forecast: LockForecast | None,
) -> None:
    known = Schedule(1, CHAIN, policy=HOLDS_BACK)
    known.add(verdict(1, HOT, priority=-5))
    assert known.decide(0.0).start == [1]
    known.limit(20)
    for n in range(2, 1_000):
        job = PendingJob(id=n, priority=-6, forecast=forecast)
        known.add(JobVerdict(job=job, action="PAUSE", rule="r", chain=CHAIN))
    known.decide(1.0)
    with mock.patch.object(Eligible, "add", autospec=True) as added:
        known.change_chain(CHAIN + 1)
    assert added.call_count == 0
    assert len(known._order._order) == 998
    known.judge(JobVerdict(job=PendingJob(id=1, priority=-5), chain=CHAIN + 1))
    # In order, and judged under the new rules before any starts.
    assert known.decide(2.0).unjudged == list(range(2, 102))


@pytest.mark.parametrize("forecast", [None, HOT])
def test_of_a_long_queue_the_first_jobs_are_looked_at_and_the_answer_says_so(
    monkeypatch: pytest.MonkeyPatch, forecast: LockForecast | None
) -> None:
    monkeypatch.setattr(queue_position, "EXPLAINED_JOBS_MAX", 50)
    known = schedule(*(verdict(n, forecast) for n in range(1, 1_001)), slots=1)
    known.decide(0.0)
    for job_id, ahead, has_more in ((2, 0, False), (52, 50, False), (1_000, 50, True)):
        position = known.position(job_id)
        assert position is not None
        # Locks hold the others back.
        assert position.ahead == (0 if forecast else ahead)
        assert position.has_more_ahead is has_more
        assert len(list(known.contention(job_id, None).others)) <= 51


def test_jobs_that_all_differ_stand_in_as_many_lanes_as_there_are_locks_taken() -> None:
    known = Schedule(20, CHAIN, policy=HOLDS_BACK)
    for n in range(1, 2_001):
        job = PendingJob(id=n, priority=0, forecast=forecast_of(instance=exclusive([f"i{n}"])))
        known.add(JobVerdict(job=job, chain=CHAIN, is_common=True))
    for _ in range(100):
        for job_id in known.decide(1.0).start:
            release(known, job_id)
        assert len(known._order.lanes) <= 2
