"""Which jobs a retry depends on: the retries of those that keep the old job from succeeding. Pure.

A job that was skipped depends on one that ended otherwise than it wants. To depend on that one
again would only skip the new job, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import errors, opcodes, settings
from ...storage.jobs import jobs, outcomes
from ..scheduling.depending import accepts, dependency_outcome, none_failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...storage.jobs.outcomes import JobEnd
    from ..scheduling.depending import Dependencies

    FindEnd = Callable[[int], JobEnd | None]
    FindRetries = Callable[[int], Iterable[int]]


def renew_dependencies(
    job: jobs.Job, retry_of: int, end_of: FindEnd, retries_of: FindRetries
) -> None:
    """Let a new job, a retry, depend on the newest suitable retries of the jobs that failed.

    ``end_of`` tells how a job has ended, ``retries_of`` which jobs repeat one. `JobStateError` if
    the new job would be skipped whatever is still to come: it names the job to be retried first.
    """
    for op in job.ops:
        depends = tuple(opcodes.dependencies(op.input))
        if not depends:
            continue
        renewed = tuple(
            (_suitable(target, words, end_of, retries_of), words) for target, words in depends
        )
        _check(renewed, retry_of, end_of)
        if renewed != depends:
            op.input["depends"] = [[target, list(words)] for target, words in renewed]


def _suitable(target: int, words: tuple[str, ...], end_of: FindEnd, retries_of: FindRetries) -> int:
    """The job itself if it may satisfy the dependency, else such a retry of it, else the newest.

    Retries may have been retried, too. At most `settings.RETRIES_NOTED_MAX` of them are looked at.
    """
    found, left = target, [target]
    for _ in range(settings.RETRIES_NOTED_MAX):
        if not left:
            break
        one = left.pop()
        if _may_satisfy(words, end_of(one)):
            return one
        found = max(found, one)
        left += sorted(retries_of(one))
    return found


def _may_satisfy(words: tuple[str, ...], end: JobEnd | None) -> bool:
    if end is None:
        return False
    # Of a group of jobs one must have failed: which others have, does not matter.
    return outcomes.ANY_FAILED in words or not end.status.is_final or accepts(words, end)


def _check(depends: Dependencies, retry_of: int, end_of: FindEnd) -> None:
    ends = {target: end_of(target) for target, _ in depends}
    state = dependency_outcome(depends, ends)
    if state.verdict != "canceled" and not state.text:
        return
    raise errors.JobStateError(
        f"a retry of job {retry_of} would be skipped: {_cause(depends, ends, state.decisive)}"
    )


def _cause(depends: Dependencies, ends: dict[int, JobEnd | None], decisive: int | None) -> str:
    """Which job keeps the new one from starting, and what helps."""
    end = None if decisive is None else ends[decisive]
    words = next((words for target, words in depends if target == decisive), ())
    if decisive is None or outcomes.ANY_FAILED in words:
        group = [target for target, words in depends if outcomes.ANY_FAILED in words]
        return f"it runs if another job has failed, and {none_failed(group)}"
    if end is None or end.outcome is None:
        return f"it depends on job {decisive}, which there is no more"
    ended = f"it depends on job {decisive}, which {outcomes.VERBS[end.outcome]}"
    if end.outcome is outcomes.Outcome.SUCCESS:
        return f"{ended}, not {' or '.join(words)}"
    return f"{ended}; {errors.RETRY_FIRST.format(decisive)}"
