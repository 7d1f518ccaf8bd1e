"""How the dependencies of a job stand: pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from ..storage.jobs import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

Dependencies = tuple[tuple[int, tuple[str, ...]], ...]
"""Jobs that another one waits for, each with the statuses that it accepts."""


class Outcome(msgspec.Struct, frozen=True):
    """How a job's dependencies stand."""

    verdict: Literal["satisfied", "canceled", "failed", "open"]
    text: str = ""
    open: tuple[int, ...] = ()


def dependency_outcome(
    depends: Iterable[tuple[int, Iterable[str]]], statuses: dict[int, JobStatus | None]
) -> Outcome:
    """Evaluate dependencies in order, given the statuses known (None: no such job).

    The rules are Ganeti's (scheduler facts, section 7): a canceled job cancels its
    dependants unless ``canceled`` was asked for; an empty list accepts any other final
    status; a missing job, or a status that was not asked for, is an error.
    """
    still_open = []
    for job_id, wanted in depends:
        if job_id not in statuses:
            still_open.append(job_id)
            continue
        status = statuses[job_id]
        if status is None:
            return Outcome("failed", f"Dependency error: Job {job_id} not found")
        accepted = tuple(wanted)
        if not status.is_final:
            still_open.append(job_id)
        elif status is JobStatus.CANCELED and status not in accepted:
            return Outcome("canceled")
        elif accepted and status not in accepted:
            text = (
                f"Dependency job {job_id} finished with status '{status}', "
                f"not one of '{', '.join(accepted)}' as required"
            )
            return Outcome("failed", text)
    if still_open:
        return Outcome("open", open=tuple(still_open))
    return Outcome("satisfied")
