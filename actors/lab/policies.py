"""The policies that a trace can be played under, by name; what each of them gives. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ...storage import errors
from ...storage.prediction.policy import Policy
from . import bounds, measuring
from .real_locks import RealLocks
from .replay import Player

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...storage.lab.traces import Trace
    from ...storage.prediction.estimates import Accuracy

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
    """The figures of one policy, in seconds.

    ``slots_waiting``: the part of the time in run slots that jobs spent waiting for locks.
    ``accuracy``: how wrong estimates of run times would have been; ``plan_accuracy``: how wrong
    plans of the ends of some jobs would have been, made as they came. What a bound does not say is
    None; plans are measured for the last policy alone.
    """

    policy: str
    makespan: float
    wait_mean: float
    wait_p99: float | None = None
    wait_max: float | None = None
    slots_waiting: float | None = None
    accuracy: Accuracy | None = None
    plan_accuracy: Accuracy | None = None


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
    last = next((name for name in reversed(names) if name != BOUND), "")
    return [_result(trace, locks, name, used, progress, is_measured=name == last) for name in names]


def _result(
    trace: Trace,
    locks: RealLocks,
    name: str,
    slots: int,
    progress: Progress,
    *,
    is_measured: bool,
) -> Result:
    if name == BOUND:
        least = bounds.bound(trace, locks, slots)
        return Result(BOUND, least.makespan, least.wait_mean)
    policy = _POLICIES[name]
    plans = measuring.PlanMeasure(len(trace.jobs)) if is_measured else None

    def tell(done: int, total: int) -> None:
        progress(name, done, total)

    played = Player(trace, locks, slots, policy, progress=tell, plans=plans).play()
    return Result(
        name,
        played.makespan,
        played.wait_mean,
        played.wait_quantile(_P99),
        played.wait_max,
        played.slots_waiting,
        measuring.accuracy(trace, played.ends),
        None if plans is None else plans.accuracy(played.ends),
    )
