"""When the supervisor restarts a component that failed, and which one hangs: pure decisions.

Each component may fail a number of times within a window; each restart waits longer than
the last. One failure more ends the daemon with a clear error: jobs that run go on, and
nothing acknowledged is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping


class Policy(msgspec.Struct, frozen=True):
    """How a component is restarted. Times in seconds."""

    restarts_max: int = 5
    window_seconds: float = 60.0
    first_delay_seconds: float = 0.0
    longest_delay_seconds: float = 5.0
    when_hung: Literal["replace", "restart_daemon"] = "restart_daemon"


DEFAULT_POLICY = Policy()

DAEMON = "daemon"
"""Name under which `POLICIES` has the daemon as a whole."""

POLICIES: dict[str, Policy] = {
    # These keep everything in memory, or only read files. A component that writes files or owns
    # sockets cannot be replaced beside a hanging thread that may go on: the whole daemon begins
    # anew, and the kernel ends the thread.
    "filter_evaluator": Policy(when_hung="replace"),
    "output_reader": Policy(when_hung="replace"),
    "scheduler": Policy(when_hung="replace"),
    # The daemon itself, which begins anew when such a component hangs.
    DAEMON: Policy(restarts_max=5, window_seconds=3600.0),
    # Nobody but jobs on nodes needs it: the daemon goes on without.
    "node_keeper": Policy(restarts_max=1_000_000),
    # A fork server holds no state, and a system short of memory may kill it repeatedly.
    "fork_server:lean": Policy(restarts_max=20),
    "fork_server:full": Policy(restarts_max=20),
}
"""What differs from `DEFAULT_POLICY`, by component."""

_SECOND_DELAY_SECONDS = 0.1


def policy_of(component: str) -> Policy:
    """The policy of this component."""
    return POLICIES.get(component, DEFAULT_POLICY)


class Record(msgspec.Struct, frozen=True):
    """The failures of a component: the times of recent ones, and the count of all."""

    failures: tuple[float, ...] = ()
    restarts: int = 0


class Decision(msgspec.Struct, frozen=True):
    """Start again after ``delay_seconds``, or give up."""

    action: Literal["restart", "give_up"]
    delay_seconds: float
    record: Record


def after_failure(component: str, record: Record, now: float) -> Decision:
    """What to do about a failure at ``now`` (monotonic seconds)."""
    policy = policy_of(component)
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


class Sight(msgspec.Struct, frozen=True):
    """A component seen at work: the number of its message, and whether that is its first."""

    number: int
    is_booting: bool = False


BOOT_LOOKS_FACTOR = 10
"""How much longer a component may take to build its state than for any other message."""


def after_look(
    seen: Mapping[str, tuple[Sight, int]], now: Mapping[str, Sight], looks_max: int
) -> tuple[dict[str, tuple[Sight, int]], list[str]]:
    """The sights after one more look at the working components, and the names of those that hang.

    ``seen``: each one's last sight and how often in a row it was the same. This counts looks,
    not seconds: while the whole process is stopped, no look happens and no component hangs.
    """
    counted = {}
    hung = []
    for name, sight in now.items():
        before, looks = seen.get(name, (sight, 0))
        looks = looks + 1 if before == sight else 1
        counted[name] = (sight, looks)
        # Exactly at the limit, so that each hang is reported once.
        if looks == looks_max * (BOOT_LOOKS_FACTOR if sight.is_booting else 1):
            hung.append(name)
    return counted, hung
