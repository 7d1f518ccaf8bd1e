"""Rows of which a start has read only what it needs, until the rest of their texts is looked at.

How it works. To find what follows from the parameters of a job takes ten times as long as to read
when it came, its priority and its serial; jobs that are alike share it, others do not. So a start
makes rows without it. Whatever looks at the rest of such a row has it read then. The report of
all jobs, with which scheduler and filter evaluator begin, reads those that are left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...storage.jobs import job_headers
from ...storage.jobs.jobs import JobStatus
from ...storage.queue_files import job_files
from .job_classes import class_of, received_of, text_of
from .job_rows import JobClass, Phase, Row

if TYPE_CHECKING:
    from collections.abc import Callable

    Newest = Callable[[int], bytes | None]
    """The newest text of a job; None: there is none. May raise `StorageError`."""

_NOTHING_KNOWN = JobClass()


class LazyRows:
    """Stands for what the rows of one table lack, and reads it."""

    def __init__(self) -> None:
        self._newest: Newest = lambda _: None
        self._failed: Callable[[str], None] = lambda _: None
        self.has_rows = False
        """Whether there are, or were, such rows."""

        self.problems: dict[int, str] = {}
        """Jobs whose texts could not be read when they were looked at, each with the reason."""

    def read_from(self, newest: Newest, failed: Callable[[str], None]) -> None:
        """Read from there from now on; ``failed`` takes a text that names a job once."""
        self._newest, self._failed = newest, failed

    def forget(self) -> None:
        """Read nothing more: the queue has ended."""
        self._newest, self._failed = lambda _: None, lambda _: None

    def row(self, job_id: int, body: bytes) -> Row | None:
        """The row of the pending job in this text; None if the whole text has to be decoded."""
        head = job_headers.head_of(body)
        if head is None or head.id != job_id:
            return None
        self.has_rows = True
        return Row(
            id=job_id,
            status=JobStatus.WAITING if head.is_dependent else JobStatus.QUEUED,
            priority=head.priority,
            received=received_of(head.received_timestamp),
            key=text_of(head.ganger_key),
            digest=text_of(head.ganger_digest),
            origin=head.origin,
            serial=head.ganger_serial,
            job_class=self,
        )

    def class_of(self, row: Row) -> JobClass:
        """Read what the row lacks, and put it there; nothing is known if that fails."""
        try:
            # No text is that of no job.
            job = job_files.read_job(self._newest(row.id) or b"", row.id)
        except errors.StorageError as error:
            if row.id not in self.problems:
                self.problems[row.id] = f"job-{row.id}: {error.text}"
                self._failed(self.problems[row.id])
            return _NOTHING_KNOWN
        self.problems.pop(row.id, None)
        row.job_class = found = class_of(job, Phase.PENDING)
        return found


class RowLoader:
    """Rows of texts that a start does not decode as a whole."""

    def __init__(self, unread: LazyRows) -> None:
        self._unread = unread
        self._decoded = 0

    def row(self, job_id: int, body: bytes) -> Row | None:
        """The row of the pending job in this text; None if the whole text has to be decoded."""
        if self._decoded < settings.DECODED_AT_START_MAX:
            return None
        return self._unread.row(job_id, body)

    def note_decoded(self) -> None:
        """A text was decoded as a whole, after `row` gave none."""
        self._decoded += 1
