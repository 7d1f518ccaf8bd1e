"""Records that go into the log with the next flush, which is made for others, or at rest.

For an end that a loss of power may take, and for a task of a node, which is to be durable before it
starts: it is made ready meanwhile, and the flush of its start serves both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import settings
from ...storage.log.records import StateStored
from .effects import ignore, nothing

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...storage.log.journal import Journal
    from ...storage.log.records import Record, StoredRecord
    from .effects import Effects, Failed
    from .file_writer import FileWriter
    from .log_segments import LogSegments


class LazyRecords:
    """Appends them. ``are_there``: some are still to be written."""

    def __init__(
        self, journal: Journal, segments: LogSegments, files: FileWriter, effects: Effects
    ) -> None:
        self._journal = journal
        self._segments = segments
        self._files = files
        self._effects = effects
        self.are_there = False
        self._late_since = 0.0

    def store_state(self, job_id: int, serial: int, body: bytes) -> None:
        """A job's whole new state, which counts at once: the job's file has it as well."""
        self._append(StateStored(job_id, serial, body), [job_id])
        self._files.add(job_id, serial, body)

    def store_new(
        self,
        jobs: list[tuple[int, int, bytes]],
        record: StoredRecord,
        done: Callable[[], None],
        failed: Failed,
    ) -> None:
        """New jobs (id, serial, body), which ``record`` has; ``done`` when they are durable.

        They stay if the flush fails: when the disk works again, a new segment has them.
        """
        self._append(record, [job_id for job_id, _, _ in jobs])
        self._files.add_new(jobs)
        self._effects.add_late(self._journal.position, done, failed)

    def hurry(self, now: float) -> None:
        """Let nobody wait for long because others keep the queue from resting."""
        if not self._effects.has_late:
            self._late_since = now
        elif now - self._late_since > settings.LAZY_SECONDS:
            self.hasten(nothing)

    def hasten(self, done: Callable[[], None], failed: Failed = ignore) -> None:
        """Do this when all that was appended is durable: the next commit flushes it."""
        self._effects.awaited = self._journal.position
        self._effects.add(done, failed)

    def _append(self, record: Record | StoredRecord, job_ids: list[int]) -> None:
        self._journal.append(record)
        self._segments.is_fresh = False
        self._segments.cover(job_ids)
        self.are_there = True
