"""Whether the dependencies of a job are satisfied: pure.

The scheduler asks it about pending jobs, the queue (`lifecycle.dependencies_of`) about the later
opcodes of jobs that run. It ends none: `actors.queue.choices` ends a pending job, and the job's
process (`JobActor._check_dependencies`) one that runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from ...storage.jobs.jobs import JobStatus
from ...storage.jobs.outcomes import ALWAYS, ANY_FAILED, FAILURES, JobEnd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Dependencies = tuple[tuple[int, tuple[str, ...]], ...]
"""The jobs that a job waits for, each with the accepted words."""


class DependencyState(msgspec.Struct, frozen=True):
    """Whether a job's dependencies are satisfied.

    ``text`` names the one that failed, and ``decisive`` is its id; None: several together failed.
    If the verdict is ``open`` all the same, the others decide whether the job fails or is canceled.
    """

    verdict: Literal["satisfied", "canceled", "failed", "open"]
    text: str = ""
    open: tuple[int, ...] = ()
    decisive: int | None = None


def dependency_outcome(
    depends: Iterable[tuple[int, Iterable[str]]], ends: Mapping[int, JobEnd | None]
) -> DependencyState:
    """Evaluate dependencies, given what is known of these jobs (None: no such job).

    A word is a final status, an outcome, `ALWAYS` or `ANY_FAILED`. A canceled job cancels its
    dependants at once, unless they accept how it ended. A dependant fails only when no dependency
    is open any more, because an open one could still be canceled. An empty list accepts any status
    but ``canceled``; a missing job is an error. Of all jobs with `ANY_FAILED` one must have failed:
    the others need not end, and none of them cancels.
    """
    still_open: list[int] = []
    failure, decisive = "", None
    group = []
    for job_id, wanted in depends:
        accepted = tuple(wanted)
        if ANY_FAILED in accepted:
            group.append(job_id)
        elif not _has_ended(job_id, ends):
            still_open.append(job_id)
        elif not accepts(accepted, end := ends[job_id]):
            if end is not None and end.status is JobStatus.CANCELED:
                return DependencyState("canceled", decisive=job_id)
            if not failure:
                failure, decisive = _failure(job_id, end, accepted), job_id
    if group and not any(has_failed(ends.get(job_id)) for job_id in group):
        waiting = [job_id for job_id in group if not _has_ended(job_id, ends)]
        still_open += waiting
        if not waiting and not failure:
            failure = f"Dependency error: {none_failed(group)}"
            decisive = group[0] if len(set(group)) == 1 else None
    if still_open:
        return DependencyState("open", failure, tuple(still_open), decisive)
    verdict: Literal["failed", "satisfied"] = "failed" if failure else "satisfied"
    return DependencyState(verdict, failure, decisive=decisive)


def none_failed(group: Iterable[int]) -> str:
    """That none of these jobs has failed, in words."""
    ids = sorted(set(group))
    if len(ids) == 1:
        return f"job {ids[0]} did not fail"
    return f"none of the jobs {', '.join(map(str, ids))} failed"


def accepts(wanted: tuple[str, ...], end: JobEnd | None) -> bool:
    """Whether this end of a single job satisfies one of the words; None: there is no such job."""
    if end is None:
        return False
    if not wanted:
        return end.status is not JobStatus.CANCELED
    return ALWAYS in wanted or end.status in wanted or end.outcome in wanted


def cancels(wanted: tuple[str, ...], end: JobEnd | None) -> bool:
    """Whether this end of one dependency cancels the job, whatever becomes of the others."""
    if end is None or end.status is not JobStatus.CANCELED or ANY_FAILED in wanted:
        return False
    return not accepts(wanted, end)


def has_failed(end: JobEnd | None) -> bool:
    """Whether the job has failed, in the sense of `ANY_FAILED`."""
    return end is not None and end.outcome in FAILURES


def _has_ended(job_id: int, ends: Mapping[int, JobEnd | None]) -> bool:
    end = ends.get(job_id)
    return job_id in ends and (end is None or end.status.is_final)


def _failure(job_id: int, end: JobEnd | None, accepted: tuple[str, ...]) -> str:
    if end is None:
        return f"Dependency error: Job {job_id} not found"
    return (
        f"Dependency job {job_id} finished with status '{end.status}', "
        f"not one of '{', '.join(accepted)}' as required"
    )
