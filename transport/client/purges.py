"""Requests that purge jobs, page by page, and what they have done together. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from ...storage import errors, plain_values, settings
from ...storage.jobs.jobs import check_id
from ..messages import PurgeJobs
from . import requests

if TYPE_CHECKING:
    from ..messages import PurgeOutcome


class PurgedJobs(msgspec.Struct):
    """What was purged: ``jobs``, each with the bytes that it took on the disk.

    ``left_out``: jobs that stay although they were meant, each with why. ``looked_at``: meanwhile,
    the job up to which all were looked at.
    """

    jobs: dict[int, int] = {}
    left_out: dict[int, str] = {}
    looked_at: int | None = None

    @property
    def freed_bytes(self) -> int:
        """The bytes that all of them took."""
        return sum(self.jobs.values())

    def take(self, asked: PurgeJobs, page: PurgeOutcome) -> PurgeJobs | None:
        """Add a page; the request for the next one, if there is more."""
        self.jobs.update(page.jobs)
        self.left_out.update(page.left_out)
        self.looked_at = page.next_after
        if page.next_after is None:
            return None
        return msgspec.structs.replace(asked, after=page.next_after)


def purges(
    ids: Iterable[int] | None,
    *,
    older_than: float | None,
    larger_than: int,
    dry_run: bool,
) -> Iterator[PurgeJobs]:
    """The first request of each part. `BadRequestError` if nothing, or nonsense, is asked for."""
    if isinstance(ids, str | bytes):
        raise errors.BadRequestError("ids: expected a list of ids, got a text")
    wanted = None if ids is None else [check_id(job_id) for job_id in ids]
    if not requests.is_whole(larger_than) or not 0 <= larger_than <= plain_values.INTEGER_MAX:
        raise errors.BadRequestError("larger_than: expected a number of bytes, from 0 on")
    age = None if older_than is None else requests.checked_age(older_than)
    if wanted is None and age is None and not larger_than:
        raise errors.BadRequestError("purge: give ids, older_than or larger_than")
    if wanted is None:
        yield PurgeJobs(age_seconds=age, bytes_min=larger_than, is_dry_run=dry_run)
        return
    for start in range(0, len(wanted), settings.PURGE_PAGE_JOBS):
        yield PurgeJobs(
            ids=wanted[start : start + settings.PURGE_PAGE_JOBS],
            age_seconds=age,
            bytes_min=larger_than,
            is_dry_run=dry_run,
        )
