"""Whether the dependencies of a job are satisfied: pure.

The scheduler asks it about pending jobs, the queue (`lifecycle.dependencies_of`) about the later
opcodes of jobs that run. It ends none: `actors.queue.choices` ends a pending job, and the job's
process (`JobActor._check_dependencies`) one that runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from ...storage.jobs.jobs import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Dependencies = tuple[tuple[int, tuple[str, ...]], ...]
"""The jobs that a job waits for, each with the accepted statuses."""


class DependencyState(msgspec.Struct, frozen=True):
    """Whether a job's dependencies are satisfied.

    ``text`` names the one that failed. If the verdict is ``open`` all the same, the others decide
    whether the job fails or is canceled.
    """

    verdict: Literal["satisfied", "canceled", "failed", "open"]
    text: str = ""
    open: tuple[int, ...] = ()


def dependency_outcome(
    depends: Iterable[tuple[int, Iterable[str]]], statuses: Mapping[int, JobStatus | None]
) -> DependencyState:
    """Evaluate dependencies, given the statuses known (None: no such job).

    A canceled job cancels its dependants at once, unless they accept ``canceled``. A dependant
    fails only when no dependency is open any more, because an open one could still be canceled. An
    empty list accepts any other final status; a missing job, or another status, is an error.
    """
    still_open = []
    failure = ""
    for job_id, wanted in depends:
        status = statuses.get(job_id)
        accepted = tuple(wanted)
        if job_id not in statuses or (status is not None and not status.is_final):
            still_open.append(job_id)
        elif status is JobStatus.CANCELED and status not in accepted:
            return DependencyState("canceled")
        else:
            failure = failure or _failure(job_id, status, accepted)
    if still_open:
        return DependencyState("open", failure, tuple(still_open))
    return DependencyState("failed", failure) if failure else DependencyState("satisfied")


def cancelers(depends: Iterable[tuple[int, Iterable[str]]]) -> frozenset[int]:
    """The jobs whose cancellation cancels a job with these dependencies."""
    return frozenset(
        job_id for job_id, wanted in depends if JobStatus.CANCELED not in tuple(wanted)
    )


def _failure(job_id: int, status: JobStatus | None, accepted: tuple[str, ...]) -> str:
    if status is None:
        return f"Dependency error: Job {job_id} not found"
    if not accepted or status in accepted:
        return ""
    return (
        f"Dependency job {job_id} finished with status '{status}', "
        f"not one of '{', '.join(accepted)}' as required"
    )
