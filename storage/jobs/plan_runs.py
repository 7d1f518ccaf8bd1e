"""Which jobs of one plan's name are those of the newest plan: its submission, and retries. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Member(NamedTuple):
    """A job of a plan: when it was received, and which job it repeats."""

    received: float | None
    retry_of: int | None


def newest_run(members: Mapping[int, Member]) -> list[int]:
    """The jobs of the newest plan, in order, among all of that name, which are given by their ids.

    The jobs of a plan were received at one moment. A retry belongs to the plan of the job that it
    repeats; if that is not among these, only where there is nothing but retries.

    >>> newest_run({1: Member(7.0, None), 2: Member(8.0, None), 3: Member(9.0, 1)})
    [2]
    """
    first: dict[int, int] = {}
    for job_id in sorted(members):
        # A job has a lower id than its retries.
        repeated = members[job_id].retry_of
        first[job_id] = job_id if repeated is None else first.get(repeated, repeated)
    submitted = [job_id for job_id, member in members.items() if member.retry_of is None]
    if not submitted:
        return sorted(members)
    received = members[max(submitted)].received
    return [
        job_id
        for job_id, known in first.items()
        if known in members and members[known].received == received
    ]
