"""The policies that a trace can be played under, by name; what each of them gives. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ...storage import errors
from ...storage.prediction.policy import Policy
from . import bounds, measuring
from .player import Player
from .real_locks import RealLocks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...storage.prediction.estimates import Accuracy
    from ...storage.prediction.traces import Trace

    Progress = Callable[[str, int, int], None]

BOUND = "bound"
FIFO = Policy(is_predictive=False)
FIRST = Policy(is_predictive=True, holds_back=False, all_opcodes=False)
"""The heuristic of the document: the first opcode alone counts."""

_POLICIES = {
    "fifo": FIFO,
    "predictive-first": FIRST,
    "predictive": replace(FIRST, all_opcodes=True),
    "hold-back-first": replace(FIRST, holds_back=True),
    "hold-back": replace(FIRST, holds_back=True, all_opcodes=True),
}
POLICIES = tuple(_POLICIES)
"""The policies in the order in which tables show them."""

_P99 = 0.99


class Result(msgspec.Struct, frozen=True):
    """The figures of one policy, in seconds; ``accuracy``: how wrong estimates would have been.

    ``slots_waiting``: the part of the time in run slots that jobs spent waiting for locks. What a
    bound does not say is None.
    """

    policy: str
    makespan: float
    wait_mean: float
    wait_p99: float | None = None
    wait_max: float | None = None
    slots_waiting: float | None = None
    accuracy: Accuracy | None = None


def check(names: Sequence[str]) -> None:
    """Raise `TraceError` for a policy that does not exist."""
    known = (*POLICIES, BOUND)
    for name in names:
        if name not in known:
            raise errors.TraceError(
                f"--policy: there is no policy {name[:60]!r}; known are {', '.join(known)}"
            )


def compared(
    trace: Trace, names: Sequence[str], slots: int | None, progress: Progress
) -> list[Result]:
    """The trace played under each of these policies, and the bound, in this order.

    ``progress`` hears the policy, and how many of the jobs have ended.
    """
    check(names)
    used = trace.slots if slots is None else slots
    locks = RealLocks(trace)
    return [_result(trace, locks, name, used, progress) for name in names]


def _result(trace: Trace, locks: RealLocks, name: str, slots: int, progress: Progress) -> Result:
    if name == BOUND:
        least = bounds.bound(trace, locks, slots)
        return Result(BOUND, least.makespan, least.wait_mean)
    policy = _POLICIES[name]
    played = Player(
        trace, locks, slots, policy, lambda done, total: progress(name, done, total)
    ).play()
    return Result(
        name,
        played.makespan,
        played.wait_mean,
        played.wait_quantile(_P99),
        played.wait_max,
        played.slots_waiting,
        measuring.accuracy(trace, played.ends),
    )
