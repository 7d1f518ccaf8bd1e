"""How wrong estimates of run times would have been on a trace. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage.prediction.estimates import Estimates, accuracy_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...storage.prediction.estimates import Accuracy
    from ...storage.prediction.traces import Trace


def accuracy(trace: Trace, ends: Mapping[int, float]) -> Accuracy | None:
    """The errors of all estimates, made from the jobs that had ended before; None: there was none.

    ``ends``: when each job ended. As in the queue, a job is learnt when it ends.
    """
    estimates = Estimates()
    found: list[float] = []
    for job in sorted(trace.jobs, key=lambda job: ends[job.id]):
        for op in job.ops:
            known = estimates.of_key(op.key)
            if known is not None and op.seconds > 0:
                found.append(abs(known.typical - op.seconds) / op.seconds)
        for op in job.ops:
            estimates.learn(op.key, op.seconds)
    return accuracy_of(found)
