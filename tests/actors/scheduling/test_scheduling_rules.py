"""Which pending job starts now under filter rules: buckets, held and rejected jobs, new rules."""

from __future__ import annotations

import pytest
from tests.actors.scheduling.schedules import CHAIN, schedule, started, verdict

from ganger.actors.scheduling.scheduling import Pass, Schedule, Unsatisfiable
from ganger.storage.jobs import JobStatus
from ganger.transport.messages import JobVerdict

SUCCESS, CANCELED = JobStatus.SUCCESS, JobStatus.CANCELED
NEXT = CHAIN + 1


def limited(
    job_id: int, limit: int = 1, *, rule: str = "r", priority: int = 0, chain: int = CHAIN
) -> JobVerdict:
    """A job to which a rule applies that limits."""
    return verdict(
        job_id, action="RATE_LIMIT", rule=rule, limit=limit, priority=priority, chain=chain
    )


def judge(known: Schedule, *verdicts: JobVerdict) -> None:
    for one in verdicts:
        known.judge(one)


# Held, rejected, continued.


def test_a_paused_job_takes_no_slot() -> None:
    known = schedule(verdict(1, priority=-20, action="PAUSE", rule="r"), verdict(2), slots=1)
    assert started(known) == [2]
    assert known.pending_count == 1


def test_a_rejected_job_is_unsatisfiable_with_the_rule_and_takes_no_slot() -> None:
    known = schedule(verdict(1, action="REJECT", rule="r"), verdict(2), slots=1)
    decided = known.decide()
    assert decided.start == [2]
    assert decided.unsatisfiable == [Unsatisfiable(1, "rejected", "rejected by filter rule r")]
    assert known.pending_count == 0


def test_dependants_of_a_rejected_job_are_canceled_with_it() -> None:
    known = schedule(verdict(1, action="REJECT", rule="r"), verdict(2, (1, "success")))
    assert [one.id for one in known.decide().unsatisfiable] == [1]
    known.finish(1, CANCELED)
    assert known.decide().unsatisfiable == [Unsatisfiable(2, "canceled", "")]


def test_a_job_under_a_continuing_rule_starts() -> None:
    assert started(schedule(verdict(1, action="CONTINUE"))) == [1]


# Buckets.


def test_no_more_jobs_run_under_a_limiting_rule_than_it_says() -> None:
    known = schedule(*(limited(n, 2) for n in range(1, 6)), verdict(6))
    assert started(known) == [1, 2, 6]
    assert started(known) == []
    known.finish(2, SUCCESS)
    assert started(known) == [3]


def test_each_rule_has_a_bucket_of_its_own() -> None:
    known = schedule(limited(1), limited(2), limited(3, rule="q"), limited(4, rule="q"))
    assert started(known) == [1, 3]
    known.finish(3, SUCCESS)
    assert started(known) == [4]


def test_the_first_in_order_gets_the_place_that_gets_free() -> None:
    known = schedule(limited(1), limited(2), limited(3))
    assert started(known) == [1]
    known.add(limited(4, priority=-1))
    known.reprioritise(3, -2)
    known.finish(1, SUCCESS)
    assert started(known) == [3]
    known.finish(3, SUCCESS)
    assert started(known) == [4]
    known.finish(4, SUCCESS)
    assert started(known) == [2]


def test_a_limited_job_stands_in_line_for_a_slot_with_all_others() -> None:
    known = schedule(limited(1), limited(3), verdict(2), verdict(4), slots=1)
    assert started(known) == [1]
    for ended, expected in ((1, 2), (2, 3), (3, 4)):
        known.finish(ended, SUCCESS)
        assert started(known) == [expected]


def test_a_place_that_got_free_without_a_slot_is_taken_when_there_is_one() -> None:
    known = schedule(limited(1), limited(2), verdict(3), slots=2)
    assert started(known) == [1, 3]
    known.limit(1)
    known.finish(1, SUCCESS)
    assert started(known) == []
    known.limit(2)
    assert started(known) == [2]


def test_a_job_needs_a_place_in_each_of_its_buckets() -> None:
    a, b = ("1:a", 1), ("1:b", 1)
    known = schedule(
        verdict(1, limits=(a,)), verdict(2, limits=(b,)), verdict(3, limits=(a, b)), verdict(4)
    )
    assert started(known) == [1, 2, 4]
    known.finish(1, SUCCESS)
    assert started(known) == []
    known.finish(2, SUCCESS)
    assert started(known) == [3]
    known.add(verdict(5, limits=(a,)))
    known.add(verdict(6, limits=(b,)))
    assert started(known) == []
    known.finish(3, SUCCESS)
    assert started(known) == [5, 6]


def test_the_limit_of_a_rule_and_one_in_a_reason_both_hold() -> None:
    jobs = [
        verdict(n, action="RATE_LIMIT", rule="r", limit=2, limits=(("1:x", 1),)) for n in (1, 2)
    ]
    known = schedule(*jobs, limited(3, 2), limited(4, 2))
    assert started(known) == [1, 3]
    known.finish(3, SUCCESS)
    assert started(known) == [4]
    known.finish(1, SUCCESS)
    assert started(known) == [2]


def test_a_paused_job_takes_no_place_in_its_buckets() -> None:
    # Ganeti counts it, so that it blocks the bucket for as long as it is paused.
    x = (("1:x", 1),)
    known = schedule(verdict(1, action="PAUSE", rule="r", limits=x), verdict(2, limits=x))
    assert started(known) == [2]


def test_a_job_without_a_slot_takes_no_place_in_its_buckets() -> None:
    x = (("1:x", 1),)
    known = schedule(verdict(1), verdict(2, limits=x), slots=1)
    assert started(known) == [1]
    known.add(verdict(3, limits=x, priority=-1))
    known.finish(1, SUCCESS)
    assert started(known) == [3]


def test_a_job_that_is_pending_again_gives_its_places_back() -> None:
    known = schedule(limited(1), limited(2, priority=-1))
    assert started(known) == [2]
    known.add(limited(2, priority=1))
    assert started(known) == [1]


def test_a_canceled_job_in_a_line_is_passed_over() -> None:
    known = schedule(limited(1), limited(2), limited(3))
    assert started(known) == [1]
    known.finish(2, CANCELED)
    known.finish(1, SUCCESS)
    assert started(known) == [3]


def test_more_run_than_may_when_they_ran_before_and_then_none_starts() -> None:
    known = schedule(limited(5, 2))
    known.replace_all([limited(5, 2)], running=[limited(n, 2) for n in (1, 2, 3)])
    assert started(known) == []
    for ended, expected in ((1, []), (2, [5])):
        known.finish(ended, SUCCESS)
        assert started(known) == expected


# Other rules.


def test_nothing_starts_under_rules_that_are_no_longer_in_force() -> None:
    known = schedule(verdict(1), verdict(2), slots=2)
    known.change_chain(NEXT)
    decided = known.decide()
    assert (decided.start, decided.unjudged) == ([], [1, 2])
    # Asked for once; a verdict that was on its way then does not count.
    known.judge(verdict(1))
    assert known.decide().unjudged == [1]
    judge(known, verdict(1, chain=NEXT), verdict(2, action="PAUSE", rule="r", chain=NEXT))
    decided = known.decide()
    assert (decided.start, decided.unjudged) == ([1], [])


def test_a_job_that_was_never_judged_does_not_start() -> None:
    known = Schedule(20)
    known.add(verdict(1, chain=0))
    assert started(known) == []
    known.change_chain(CHAIN)
    known.judge(verdict(1, chain=0))
    assert known.decide() == Pass([], [], [], [], [1])


def test_no_job_passes_one_that_is_still_to_be_judged() -> None:
    known = schedule(verdict(1), slots=1)
    known.change_chain(NEXT)
    known.add(verdict(2, chain=NEXT))
    decided = known.decide()
    assert (decided.start, decided.unjudged) == ([], [1])
    known.judge(verdict(1, chain=NEXT))
    assert started(known) == [1]


def test_a_job_that_an_older_rule_held_back_is_looked_at_again() -> None:
    known = schedule(verdict(1, action="PAUSE", rule="r"), limited(2), limited(3))
    assert started(known) == [2]
    known.change_chain(NEXT)
    assert known.decide().unjudged == [2]
    known.judge(verdict(2, chain=NEXT))
    assert known.decide().unjudged == [1, 3]
    judge(known, verdict(1, chain=NEXT), verdict(3, chain=NEXT))
    assert started(known) == [1, 3]


def test_running_jobs_count_under_a_limit_that_came_later() -> None:
    known = schedule(verdict(1), verdict(2))
    assert started(known) == [1, 2]
    known.change_chain(NEXT)
    known.add(limited(3, chain=NEXT))
    decided = known.decide()
    assert (decided.start, decided.unjudged) == ([], [1, 2])
    judge(known, limited(1, chain=NEXT), verdict(2, chain=NEXT))
    assert started(known) == []
    known.finish(1, SUCCESS)
    assert started(known) == [3]


def test_a_running_job_that_ends_unjudged_is_waited_for_no_longer() -> None:
    known = schedule(verdict(1))
    assert started(known) == [1]
    known.change_chain(NEXT)
    known.add(verdict(2, chain=NEXT))
    assert known.decide().unjudged == [1]
    known.finish(1, SUCCESS)
    assert started(known) == [2]


def test_a_larger_limit_is_in_force_with_the_new_chain() -> None:
    known = schedule(limited(1), limited(2), limited(3))
    assert started(known) == [1]
    known.change_chain(NEXT)
    judge(known, *(limited(n, 2, chain=NEXT) for n in (1, 2, 3)))
    assert started(known) == [2]


def test_what_the_rules_say_of_an_unknown_job_does_not_matter() -> None:
    known = schedule()
    known.judge(verdict(9))
    assert started(known) == []
    assert known.pending_count == 0


def test_a_job_that_waits_for_dependencies_is_judged_before_they_are_satisfied() -> None:
    known = schedule(verdict(1), verdict(2, (1, "success")))
    assert started(known) == [1]
    known.judge(verdict(2, action="PAUSE", rule="r"))
    known.finish(1, SUCCESS)
    assert started(known) == []


@pytest.mark.parametrize("pending", [100, 3_000])
def test_a_pass_after_new_rules_asks_for_a_bounded_number(pending: int) -> None:
    known = schedule(*map(verdict, range(1, pending + 1)), slots=1)
    known.change_chain(NEXT)
    asked = known.decide().unjudged
    assert asked == list(range(1, min(pending, 500) + 1))
    assert known.decide().unjudged == []


def test_jobs_that_are_judged_anew_again_and_again_fill_no_memory() -> None:
    known = schedule(*map(verdict, range(1, 101)), slots=0)
    for chain in range(NEXT, NEXT + 50):
        known.change_chain(chain)
        judge(known, *(verdict(n, chain=chain) for n in range(1, 101)))
        known.decide()
    lines = (known._heap, known._held, *known._parked.values())
    assert sum(map(len, lines)) <= 300


def test_a_pass_costs_what_starts_and_not_what_stands_in_a_line() -> None:
    known = schedule(*(limited(n) for n in range(1, 5_001)))
    assert started(known) == [1]
    [line] = known._parked.values()
    before = len(line)
    known.finish(1, SUCCESS)
    assert started(known) == [2]
    assert before - len(line) in {1, 2}
    assert len(known._heap) <= 1


# Priorities that rules look at.


def test_after_a_change_of_its_priority_a_job_is_judged_before_it_starts() -> None:
    known = schedule(verdict(1), slots=0)
    known.change_chain(NEXT, reads_opcodes=True)
    judge(known, verdict(1, chain=NEXT))
    known.reprioritise(1, -5)
    known.limit(1)
    assert known.decide() == Pass([], [], [], [], [1])
    judge(known, verdict(1, priority=-5, action="PAUSE", rule="r", chain=NEXT))
    assert started(known) == []
    known.reprioritise(1, 5)
    assert known.decide().unjudged == [1]
    judge(known, verdict(1, priority=5, chain=NEXT))
    assert started(known) == [1]


def test_rules_that_look_at_ids_alone_need_not_be_asked_again() -> None:
    known = schedule(verdict(1), slots=0)
    known.change_chain(NEXT)
    judge(known, verdict(1, chain=NEXT))
    known.reprioritise(1, -5)
    known.limit(1)
    assert started(known) == [1]


def test_what_rules_look_at_is_known_after_everything_was_told_anew() -> None:
    known = schedule(verdict(1), slots=0)
    known.change_chain(NEXT, reads_opcodes=True)
    known.replace_all([verdict(1, chain=NEXT)], [])
    known.reprioritise(1, -5)
    known.limit(1)
    assert known.decide().unjudged == [1]
