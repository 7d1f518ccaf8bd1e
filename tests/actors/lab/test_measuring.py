from __future__ import annotations

import pytest

from ganger.actors.lab import measuring, policies
from ganger.storage.lab.traces import (
    NO_LOCKS,
    Trace,
    TracedJob,
    TracedLevel,
    TracedLocks,
    TracedOpcode,
)

NODE = TracedLocks(node=TracedLevel("exclusive", (1,)), big_lock="shared")


def job(
    number: int, seconds: float, forecast: TracedLocks = NO_LOCKS, locks: TracedLocks | None = None
) -> TracedJob:
    op = TracedOpcode(op="OP_EXEC", command=1, seconds=seconds, forecast=forecast, locks=locks)
    return TracedJob(at=float(number), id=number, ops=(op,))


def test_an_estimate_is_compared_with_the_run_times_of_jobs_that_ended_later() -> None:
    trace = Trace([job(1, 2.0), job(2, 4.0), job(3, 2.0)])
    found = measuring.accuracy(trace, {1: 3.0, 2: 9.0, 3: 6.0})
    assert found is not None
    # Job 3 ended second: 2 s were expected. Job 2 ran twice as long as that.
    assert (found.count, found.median, found.high) == (2, 0.0, 0.5)


def test_a_trace_in_which_nothing_repeats_has_no_errors() -> None:
    assert measuring.accuracy(Trace([job(1, 2.0)]), {1: 3.0}) is None


def test_jobs_that_always_take_the_same_time_end_as_planned() -> None:
    trace = Trace([job(number, 7.0) for number in range(1, 101)], 2)
    fifo, hold_back = policies.compared(trace, ["fifo", "hold-back"], None, lambda *_: None)
    assert fifo.plan_accuracy is None
    assert hold_back.plan_accuracy is not None
    assert hold_back.plan_accuracy.count >= 18
    assert hold_back.plan_accuracy.high == pytest.approx(0)


def test_jobs_that_wait_for_a_known_lock_end_as_planned() -> None:
    trace = Trace([job(number, 7.0, NODE) for number in range(1, 101)], 2)
    [found] = policies.compared(trace, ["hold-back"], None, lambda *_: None)
    assert found.plan_accuracy is not None
    assert found.plan_accuracy.high == pytest.approx(0)


def test_a_plan_knows_no_waits_for_locks_whose_names_are_unknown() -> None:
    unknown = TracedLocks(node=TracedLevel("unknown_exclusive"), big_lock="shared")
    trace = Trace([job(number, 7.0, unknown, NODE) for number in range(1, 101)], 2)
    [found] = policies.compared(trace, ["hold-back"], None, lambda *_: None)
    assert found.plan_accuracy is not None
    assert found.plan_accuracy.median > 0.3
