"""The purged jobs of which the log may still have states.

A state of a purged job that is read again must not bring the job back, whatever a loss of power
leaves of the segments. So each new segment repeats which jobs were purged, as long as an older one
may have a state of them: also one that was deleted, until a flush has followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

_Ids = set[int]


class PurgedJobs:
    """Which purged jobs the next segment repeats. Changes nothing on disk."""

    def __init__(self) -> None:
        self.ids: set[int] = set()
        """They are in no file. This stays one object: another thread may look into it."""

        # Of each older segment the jobs whose states it has; None: it may have those of any job.
        self._older: list[_Ids | None] = []
        self._deleted: list[_Ids | None] = []

    def begin(self, purged: Iterable[int]) -> None:
        """Start with what the segments of a predecessor say."""
        self.ids.update(purged)
        self._older.append(None)

    def note(self, ids: Iterable[int], newest: Container[int]) -> None:
        """These jobs are purged. ``newest``: the jobs whose states the newest segment has."""
        self.ids.update(one for one in ids if self._is_logged(one, newest))

    def segment_begun(self, before: set[int]) -> None:
        """A segment has begun. ``before``: the jobs whose states the one before it has."""
        self._older.append(before)

    def segments_gone(self, left: int, newest: Container[int]) -> None:
        """After a flush, the older segments were deleted, but for the last ``left`` of them."""
        gone = len(self._older) - left
        self._deleted, self._older = self._older[:gone], self._older[gone:]
        self.ids.intersection_update([one for one in self.ids if self._is_logged(one, newest)])

    def _is_logged(self, job_id: int, newest: Container[int]) -> bool:
        others = (*self._older, *self._deleted)
        return job_id in newest or any(ids is None or job_id in ids for ids in others)
