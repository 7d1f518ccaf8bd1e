"""When a component that failed is started again: pure decisions of the supervisor.

Each component may fail a number of times within a window; each restart waits longer than
the last. Whoever fails more often takes the daemon down with a clear error: jobs that run
go on, and nothing acknowledged is lost.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Policy(msgspec.Struct, frozen=True):
    """How a component is restarted. Times in seconds."""

    restarts_max: int = 5
    window_seconds: float = 60.0
    first_delay_seconds: float = 0.0
    longest_delay_seconds: float = 5.0


DEFAULT_POLICY = Policy()

POLICIES: dict[str, Policy] = {
    # A fork server holds no state, and a system short of memory may kill it repeatedly.
    "fork_server:lean": Policy(restarts_max=20),
    "fork_server:full": Policy(restarts_max=20),
}
"""What differs from `DEFAULT_POLICY`, by component."""

_SECOND_DELAY_SECONDS = 0.1


class Record(msgspec.Struct, frozen=True):
    """What is remembered of a component's failures: their times, and how many ever."""

    failures: tuple[float, ...] = ()
    restarts: int = 0


class Decision(msgspec.Struct, frozen=True):
    """Start again after ``delay_seconds``, or give up."""

    action: Literal["restart", "give_up"]
    delay_seconds: float
    record: Record


def after_failure(component: str, record: Record, now: float) -> Decision:
    """What to do about a failure at ``now`` (monotonic seconds)."""
    policy = POLICIES.get(component, DEFAULT_POLICY)
    recent = tuple(when for when in record.failures if now - when < policy.window_seconds)
    failures = (*recent, now)
    if len(failures) > policy.restarts_max:
        return Decision("give_up", 0.0, Record(failures, record.restarts))
    return Decision("restart", _delay(policy, len(recent)), Record(failures, record.restarts + 1))


def _delay(policy: Policy, failures_before: int) -> float:
    if failures_before == 0:
        return policy.first_delay_seconds
    grown = _SECOND_DELAY_SECONDS * 2.0 ** (failures_before - 1)
    return float(min(grown, policy.longest_delay_seconds))
