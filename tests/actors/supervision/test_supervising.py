"""When a component that failed is started again."""

from __future__ import annotations

import pytest

from ganger.actors.supervision.supervising import (
    BOOT_LOOKS_FACTOR,
    DEFAULT_POLICY,
    POLICIES,
    Record,
    Sight,
    after_failure,
    after_look,
)


def failures(component: str, times: list[float]) -> list[tuple[str, float]]:
    """What is decided about failures at these times."""
    record = Record()
    decided: list[tuple[str, float]] = []
    for now in times:
        decision = after_failure(component, record, now)
        record = decision.record
        decided.append((decision.action, decision.delay_seconds))
    return decided


def test_the_first_restart_is_at_once_and_the_next_ones_wait_longer() -> None:
    decided = failures("job_queue", [0.0, 1.0, 2.0, 3.0, 4.0])
    assert decided == [("restart", delay) for delay in (0.0, 0.1, 0.2, 0.4, 0.8)]


def test_a_component_that_fails_too_often_is_given_up() -> None:
    decided = failures("job_queue", [float(number) for number in range(6)])
    assert decided[-1] == ("give_up", 0.0)
    assert [action for action, _ in decided[:-1]] == ["restart"] * DEFAULT_POLICY.restarts_max


def test_failures_before_the_window_do_not_count() -> None:
    window = DEFAULT_POLICY.window_seconds
    times = [number * window for number in range(50)]
    assert failures("job_queue", times) == [("restart", 0.0)] * 50
    # Five within the window are the most at any time.
    often = [number * (window / 5) for number in range(50)]
    assert {action for action, _ in failures("job_queue", often)} == {"restart"}
    too_often = [number * (window / 5 - 0.01) for number in range(50)]
    assert failures("job_queue", too_often)[5][0] == "give_up"


def test_no_delay_is_longer_than_the_longest() -> None:
    decided = failures("fork_server:lean", [number * 0.1 for number in range(20)])
    delays = [delay for _, delay in decided]
    assert delays == sorted(delays)
    assert delays[-1] == POLICIES["fork_server:lean"].longest_delay_seconds


@pytest.mark.parametrize("component", ["fork_server:lean", "fork_server:full"])
def test_a_fork_server_may_fail_more_often(component: str) -> None:
    decided = failures(component, [0.0] * 21)
    assert [action for action, _ in decided] == ["restart"] * 20 + ["give_up"]


def test_the_record_counts_every_restart_and_forgets_old_failures() -> None:
    record = Record()
    for number in range(10):
        record = after_failure("job_queue", record, number * 1_000.0).record
    assert record.restarts == 10
    assert record.failures == (9_000.0,)


def test_giving_up_is_no_restart() -> None:
    record = Record(failures=(1.0,) * 5, restarts=5)
    assert after_failure("job_queue", record, 1.0).record.restarts == 5


def looks(*sights: Sight | None, limit: int = 3) -> list[int]:
    """At which looks (from 1) a component that is seen like this is said to hang."""
    seen: dict[str, tuple[Sight, int]] = {}
    found = []
    for number, sight in enumerate(sights, start=1):
        seen, hung = after_look(seen, {} if sight is None else {"job_queue": sight}, limit)
        if hung:
            found.append(number)
    return found


def test_a_component_seen_at_one_message_too_often_hangs_and_is_reported_once() -> None:
    assert looks(*[Sight(7)] * 10) == [3]


def test_a_component_that_makes_progress_or_waits_does_not_hang() -> None:
    assert looks(*[Sight(number // 2) for number in range(40)]) == []
    assert looks(Sight(1), Sight(1), None, Sight(1), Sight(1), None) == []


def test_building_the_state_may_take_longer_than_a_message() -> None:
    booting = Sight(1, is_booting=True)
    assert looks(*[booting] * (3 * BOOT_LOOKS_FACTOR)) == [3 * BOOT_LOOKS_FACTOR]
