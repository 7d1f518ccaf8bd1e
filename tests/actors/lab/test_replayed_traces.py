from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.actors.lab import bounds, policies
from ganger.actors.lab.real_locks import RealLocks
from ganger.actors.lab.replay import Played, Player
from ganger.storage import errors
from ganger.storage.lab import generating
from ganger.storage.lab.traces import (
    NO_LOCKS,
    Trace,
    TracedJob,
    TracedLevel,
    TracedLocks,
    TracedOpcode,
)
from ganger.storage.prediction.policy import Policy

NODE_1 = TracedLocks(node=TracedLevel("exclusive", (1,)), big_lock="shared")
NODE_2 = TracedLocks(node=TracedLevel("exclusive", (2,)), big_lock="shared")
ALL_NODES = TracedLocks(node=TracedLevel("all_exclusive"), big_lock="shared")
SOME_NODE = TracedLocks(node=TracedLevel("unknown_exclusive"), big_lock="shared")
EVERYTHING = TracedLocks(big_lock="exclusive")


def op(
    seconds: float, forecast: TracedLocks = NO_LOCKS, locks: TracedLocks | None = None
) -> TracedOpcode:
    return TracedOpcode(op="OP_EXEC", seconds=seconds, forecast=forecast, locks=locks)


def job(number: int, *ops: TracedOpcode, at: float = 0, **more: Sequence[int]) -> TracedJob:
    return TracedJob(at=at, id=number, ops=ops, depends=tuple(more.get("depends", ())))


def played(*jobs: TracedJob, slots: int = 2, policy: Policy = policies.FIFO) -> Played:
    trace = Trace(list(jobs), slots)
    return Player(trace, RealLocks(trace), slots, policy).play()


def least(*jobs: TracedJob, slots: int = 2) -> bounds.Bound:
    trace = Trace(list(jobs), slots)
    return bounds.bound(trace, RealLocks(trace), slots)


def test_jobs_without_locks_run_as_far_as_there_are_run_slots() -> None:
    found = played(job(1, op(3)), job(2, op(5)), job(3, op(4)))
    assert found.ends == {1: 3, 2: 5, 3: 7}
    assert found.waits == [0, 0, 3]
    assert (found.makespan, found.slots_waiting) == (7, 0)


def test_a_job_waits_for_its_locks_in_its_run_slot() -> None:
    found = played(job(1, op(4, NODE_1)), job(2, op(4, NODE_1)), job(3, op(1)))
    assert found.ends == {1: 4, 2: 8, 3: 5}
    # Two jobs stood in slots for 4 and 8 seconds, one for 1; the second waited for 4.
    assert found.slots_waiting == pytest.approx(4 / 13)


def test_a_job_gives_its_locks_back_between_two_opcodes() -> None:
    found = played(job(1, op(2, NODE_1), op(9, NODE_2)), job(2, op(1, NODE_1)))
    assert found.ends == {2: 3, 1: 11}


@pytest.mark.parametrize("forecast", [ALL_NODES, EVERYTHING, NODE_1])
def test_whole_levels_and_the_big_lock_keep_others_out(forecast: TracedLocks) -> None:
    found = played(job(1, op(4, forecast)), job(2, op(1, NODE_1)))
    assert found.ends == {1: 4, 2: 5}


def test_what_an_opcode_really_took_counts_not_what_was_foreseen() -> None:
    found = played(job(1, op(4, SOME_NODE, locks=NODE_2)), job(2, op(1, NODE_1)))
    assert found.ends == {2: 1, 1: 4}


def test_an_unknown_lock_is_one_of_those_that_the_trace_names() -> None:
    trace = Trace([job(1, op(1, NODE_1)), job(2, op(1, NODE_2)), job(3, op(1, SOME_NODE))])
    taken = RealLocks(trace).of(trace.jobs[2].ops[0], 3)
    assert taken == (("cluster/BGL", "shared"), ("node/2", "exclusive"))


def test_a_job_comes_when_its_time_has_come_and_after_those_it_depends_on() -> None:
    found = played(job(1, op(4), at=10), job(2, op(1), at=11, depends=[1]))
    assert found.ends == {1: 14, 2: 15}
    assert found.makespan == 5


def test_an_opcode_without_run_time_ends_at_once() -> None:
    assert played(job(1, op(0, NODE_1), op(0))).ends == {1: 0}


def test_progress_is_told() -> None:
    trace = Trace([job(number, op(1)) for number in range(1, 1_001)])
    told: list[tuple[int, int]] = []
    told_of = Player(
        trace, RealLocks(trace), 5, policies.FIFO, progress=lambda *numbers: told.append(numbers)
    )
    told_of.play()
    assert told == [(500, 1_000), (1_000, 1_000)]


def test_no_schedule_is_shorter_than_its_work_on_all_slots() -> None:
    assert least(*(job(number, op(3)) for number in range(1, 6))).makespan == 7.5


def test_no_schedule_is_shorter_than_the_work_of_one_lock() -> None:
    jobs = [job(number, op(3, NODE_1)) for number in range(1, 4)]
    assert least(*jobs, slots=20).makespan == 9
    assert least(*jobs, job(4, op(2, ALL_NODES)), slots=20).makespan == 11
    assert least(*jobs, slots=20).wait_mean == 3


def test_no_schedule_is_shorter_than_a_chain_of_dependencies() -> None:
    jobs = [job(1, op(3)), job(2, op(4), depends=[1]), job(3, op(1), at=5, depends=[2])]
    assert least(*jobs, slots=20).makespan == 8


locks = st.sampled_from([NO_LOCKS, NODE_1, NODE_2, ALL_NODES, SOME_NODE, EVERYTHING])
opcodes = st.builds(op, st.integers(0, 9), locks)
drawn_jobs = st.lists(
    st.tuples(st.lists(opcodes, min_size=1, max_size=3), st.integers(0, 20), st.booleans()),
    min_size=1,
    max_size=12,
)


@given(drawn_jobs, st.integers(1, 4), st.sampled_from(policies.POLICIES))
def test_no_policy_beats_the_bound_and_every_job_ends(
    drawn: list[tuple[list[TracedOpcode], int, bool]], slots: int, policy: str
) -> None:
    jobs = [
        job(number, *ops, at=at, depends=[number - 1] if follows and number > 1 else [])
        for number, (ops, at, follows) in enumerate(drawn, 1)
    ]
    trace = Trace(jobs, slots)
    [found, limit] = policies.compared(trace, [policy, "bound"], None, lambda *_: None)
    assert found.makespan >= limit.makespan - 1e-6
    assert found.wait_mean >= limit.wait_mean - 1e-6
    assert found.wait_max is not None
    assert found.wait_p99 is not None
    assert found.wait_max >= found.wait_p99 >= -1e-6


@pytest.mark.slow
@pytest.mark.parametrize("kind", generating.KINDS)
def test_generated_traces_stay_above_the_bound(kind: str) -> None:
    trace = generating.generate(kind, 300, random.Random(3))
    *found, limit = policies.compared(
        trace, [*policies.POLICIES, policies.BOUND], None, lambda *_: None
    )
    assert all(one.makespan >= limit.makespan - 1e-6 for one in found)
    assert all(one.wait_mean >= limit.wait_mean - 1e-6 for one in found)


def test_a_policy_that_does_not_exist_is_named() -> None:
    with pytest.raises(errors.TraceError, match=r"^--policy: there is no policy 'lifo'; known are"):
        policies.check(["fifo", "lifo"])


def test_a_lighter_job_passes_those_that_would_wait() -> None:
    jobs = [job(1, op(9, NODE_1)), job(2, op(9, NODE_1)), job(3, op(9, NODE_1)), job(4, op(1))]
    assert played(*jobs).ends[4] == 19
    assert played(*jobs, policy=Policy(holds_back=False)).ends[4] == 1


def test_a_job_that_is_certain_to_wait_is_held_back() -> None:
    jobs = [job(1, op(9, NODE_1)), job(2, op(9, NODE_1)), job(3, op(20))]
    found = played(*jobs, policy=Policy(holds_back=True))
    assert found.ends == {1: 9, 2: 18, 3: 20}
    assert found.slots_waiting == 0


def test_of_many_old_waiters_only_one_stands_in_a_run_slot() -> None:
    waiters = [job(number, op(600, NODE_1)) for number in range(1, 9)]
    free = [job(100 + number, op(300), at=100 * number) for number in range(40)]
    found = played(*waiters, *free, slots=5, policy=Policy())
    # One runs and one waits, so three slots are for the others all the time.
    assert max(found.ends.values()) == 8 * 600
    assert all(found.ends[one.id] - one.at == 300 for one in free)


def test_a_job_that_needs_two_busy_locks_is_not_starved() -> None:
    both = TracedLocks(node=TracedLevel("exclusive", (1, 2)), big_lock="shared")
    busy = [
        job(number, op(20, NODE_1 if number % 2 else NODE_2), at=10 * number)
        for number in range(1, 600)
    ]
    found = played(*busy, job(1_000, op(1, both), at=55), slots=5, policy=Policy())
    ages = Policy().seconds_until_weightless
    # Until its weight is gone others pass it. Then it stands in line, and they wait for it.
    assert 55 < found.ends[1_000] <= 55 + ages + 60
