"""Jobs of one class, which are judged, held and parked all at once."""

from __future__ import annotations

from unittest import mock

import msgspec
import pytest
from tests.actors.scheduling.schedules import CHAIN

from ganger.actors.scheduling.eligible import Eligible
from ganger.actors.scheduling.scheduling import Schedule
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.prediction.lock_types import LockForecast, exclusive, forecast_of
from ganger.transport.messages import JobVerdict, PendingJob

NEXT = CHAIN + 1
SUCCESS = JobStatus.SUCCESS
HOT = forecast_of(node=exclusive(["hot"]))


def job(job_id: int, job_class: int = 1, **fields: object) -> PendingJob:
    fields = {"priority": 0, **fields}
    return msgspec.convert({"id": job_id, "job_class": job_class, **fields}, PendingJob)


def says(
    of: PendingJob,
    action: str = "ACCEPT",
    rule: str | None = None,
    *,
    limit: int | None = None,
    chain: int = CHAIN,
    is_common: bool = True,
) -> JobVerdict:
    return JobVerdict(
        job=of, action=action, rule=rule, limit=limit, chain=chain, is_common=is_common
    )


def schedule(*verdicts: JobVerdict, slots: int = 20) -> Schedule:
    made = Schedule(slots)
    made.change_chain(CHAIN)
    for one in verdicts:
        made.add(one)
    return made


def many(count: int, action: str = "PAUSE", rule: str | None = "r") -> list[JobVerdict]:
    return [says(job(n), action, rule) for n in range(1, count + 1)]


@pytest.mark.parametrize("forecast", [None, HOT])
def test_a_new_rule_holds_a_class_with_one_verdict(
    forecast: LockForecast | None,
) -> None:
    known = Schedule(20)
    known.change_chain(CHAIN)
    for n in range(1, 1_001):
        alike = PendingJob(id=n, priority=0, job_class=1, forecast=forecast)
        known.add(says(alike, "PAUSE", "old"))
    known.decide()
    known.change_chain(NEXT)
    assert known.decide().unjudged == [1]
    first = PendingJob(id=1, priority=0, job_class=1, forecast=forecast)
    assert known.judge(says(first, "PAUSE", "new", chain=NEXT)) == 1_000
    with mock.patch.object(Eligible, "add", autospec=True) as added:
        decided = known.decide()
    assert (decided.start, decided.unjudged) == ([], [])
    assert added.call_count == 0
    assert len(known._order._held) == 1_000
    for n in (1, 4, 1_000):
        position = known.position(n)
        assert position is not None
        assert (position.action, position.rule) == ("PAUSE", "new")
    assert known.standing_now().obstacles() == {"rule": 1_000}


def test_a_class_is_free_with_one_verdict() -> None:
    known = schedule(*many(100), slots=30)
    assert known.decide().start == []
    known.change_chain(NEXT)
    for n in known.decide().unjudged:
        known.judge(says(job(n), chain=NEXT))
    assert known.decide().start == list(range(1, 31))
    known.learn(7, SUCCESS)
    assert known.decide().start == [31]


def test_others_of_another_priority_pass_or_wait_as_ever() -> None:
    known = schedule(*many(10))
    known.change_chain(NEXT)
    known.add(says(job(11, job_class=2, priority=-1), chain=NEXT))
    known.add(says(job(12, job_class=2, priority=1), chain=NEXT))
    decided = known.decide()
    # Before the last one stand jobs that may start.
    assert decided.start == [11]
    for n in decided.unjudged:
        known.judge(says(job(n), "PAUSE", "new", chain=NEXT))
    assert known.decide().start == [12]


def test_a_limit_parks_a_class_and_lets_its_jobs_go_one_by_one() -> None:
    known = schedule(*(says(job(n), "RATE_LIMIT", "r", limit=2) for n in range(1, 101)))
    assert known.decide().start == [1, 2]
    [line] = known._order._parked.values()
    assert len(line) == 98
    for n in range(1, 11):
        known.learn(n, SUCCESS)
        assert known.decide().start == [n + 2]
    known.change_chain(NEXT)
    for n in known.decide().unjudged:
        known.judge(says(job(n), "RATE_LIMIT", "r", limit=4, chain=NEXT))
    known.judge(says(job(50), "RATE_LIMIT", "r", limit=4, chain=NEXT))
    assert known.decide().start == [13, 14]


def test_a_verdict_for_the_meantime_is_that_of_its_job_alone() -> None:
    known = schedule(*many(10))
    known.change_chain(NEXT)
    known.judge(says(job(5), "PAUSE", "slow", chain=NEXT, is_common=False))
    for n in known.decide().unjudged:
        known.judge(says(job(n), chain=NEXT))
    assert known.decide().start == [1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert known.judge(says(job(5), chain=NEXT)) == 0
    assert known.decide().start == [5]


def test_rules_that_look_at_ids_judge_each_job() -> None:
    known = schedule(*many(1_000))
    known.change_chain(NEXT, tells_alike_apart=True)
    asked = known.decide().unjudged
    assert asked == list(range(1, 101))
    for n in asked:
        action = "PAUSE" if n < 80 else "ACCEPT"
        known.judge(says(job(n), action, "r", chain=NEXT, is_common=False))
    decided = known.decide()
    assert decided.start == list(range(80, 100))
    # The next chain does not look at ids.
    known.change_chain(NEXT + 1)
    for n in decided.start:
        known.judge(says(job(n), chain=NEXT + 1))
    known.learn(80, SUCCESS)
    assert known.decide().unjudged == [*range(1, 80), 100, 101]
    # One verdict counts for those that were judged alone, too.
    known.judge(says(job(100), chain=NEXT + 1))
    assert known.decide().start == [1]


def test_an_older_verdict_takes_no_job_out_of_its_class() -> None:
    known = schedule(*many(10, "ACCEPT", None), slots=0)
    known.change_chain(NEXT)
    known.judge(says(job(9), chain=NEXT))
    known.judge(says(job(10), "PAUSE", "old"))
    known.judge(says(job(8), chain=0, is_common=False))
    # One that comes unjudged is like the others.
    assert known.add(JobVerdict(job=job(11))) == 0
    known.limit(20)
    decided = known.decide()
    assert (decided.unjudged, decided.start) == ([], list(range(1, 12)))


def test_a_job_with_another_priority_leaves_its_class() -> None:
    known = schedule(*many(10), slots=20)
    known.reprioritise(9, -1)
    known.change_chain(NEXT, reads_opcodes=True)
    assert known.decide().unjudged == [9, 1]
    known.judge(says(job(1), "PAUSE", "r", chain=NEXT))
    known.judge(says(job(9, job_class=0, priority=-1), chain=NEXT))
    assert known.decide().start == [9]
    known.reprioritise(8, -1)
    decided = known.decide()
    assert decided.unjudged == [8]


def test_a_rule_that_begins_to_apply_counts_once_for_each_job() -> None:
    known = Schedule(0)
    known.change_chain(CHAIN)
    assert sum(known.add(one) for one in many(10)) == 10
    known.change_chain(NEXT)
    assert known.judge(says(job(10), "PAUSE", "r", chain=NEXT)) == 0
    assert known.judge(says(job(9), "PAUSE", "r", chain=NEXT)) == 0
    known.change_chain(NEXT + 1)
    assert known.judge(says(job(1), "PAUSE", "s", chain=NEXT + 1)) == 10
    assert known.add(says(job(11), "PAUSE", "s", chain=NEXT + 1)) == 1
    assert known.add(JobVerdict(job=job(12))) == 1
    assert known.rule_of(12) == "s"


def test_of_many_classes_a_bounded_number_is_judged_at_a_time() -> None:
    known = Schedule(20)
    known.change_chain(CHAIN)
    for job_class in range(1, 301):
        for n in (0, 1):
            known.add(says(job(2 * job_class + n, job_class)))
    known.change_chain(NEXT)
    asked = known.decide().unjudged
    assert asked == list(range(2, 202, 2))
    for n in asked:
        known.judge(says(job(n, n // 2), "PAUSE", "r", chain=NEXT))
    assert known.decide().start == []
    for n in range(1, 602):
        known.learn(n, SUCCESS)
    assert (len(known._classes), known._order.lanes) == (0, [])


def test_a_job_that_is_explained_gets_the_verdict_of_its_class() -> None:
    known = schedule(*many(10), slots=0)
    known.change_chain(NEXT)
    assert known.lacks_verdict(10)
    assert known.decide(0.0, {10}).unjudged == [10]
    known.judge(says(job(10), chain=NEXT))
    assert not known.lacks_verdict(9)
