"""The log of a running job: its limits, its way to the daemon, and into the job's file."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from ...storage.jobs import job_bounds, jobs
from ...storage.jobs.jobs import JobStatus
from ...storage.queue_files.output_blocks import IN_OUTPUT
from ...transport import messages
from .conversation import Conversation
from .running_job import RunningJob, now
from .state_file import StateFile

if TYPE_CHECKING:
    from collections.abc import Sequence

RESENT_MAX = 1_000
RESENT_CHARACTERS_MAX = 1_000_000
"""How much of the log a component gets that was replaced; the file has the rest."""


class JobLog:
    """Adds entries to the opcode whose turn it is. ``body_bytes``: size of the job when it came."""

    def __init__(
        self, running: RunningJob, body_bytes: int, daemon: Conversation, file: StateFile
    ) -> None:
        self._running = running
        self._daemon = daemon
        self._file = file
        self.serial = running.job.last_log_serial
        self._body_bytes = body_bytes
        self._budget: job_bounds.SizeBudget | None = None

    @property
    def told_serial(self) -> int:
        """The serial of the newest entry that is no output; 0: there is none."""
        logs = (op.log for op in self._running.job.ops)
        told = (entry[0] for log in logs for entry in log if entry[2] not in IN_OUTPUT)
        return max(told, default=0)

    @property
    def budget(self) -> job_bounds.SizeBudget:
        """The room for log and results; not computed for a job that has neither."""
        if self._budget is None:
            self._budget = job_bounds.SizeBudget(self._running.job, self._body_bytes)
        return self._budget

    def log(self, entries: Sequence[str | list[str]], kind: str = "message") -> None:
        """Add entries, and send them."""
        if entries and (logged := self.add(entries, kind)).entries:
            self._daemon.tell(logged)
            # An operation that never waits gives no other occasion.
            self.write_if_due()

    def add(
        self, entries: Sequence[str | list[str]], kind: str = "message", *, is_own: bool = False
    ) -> messages.JobLogAppended:
        """Add the entries for which there is room, and return the message that says so."""
        stamp = now()
        added: list[jobs.LogEntry] = []
        for admitted, entry in self.budget.admit(entries, kind, is_own=is_own):
            self.serial += 1
            added.append((self.serial, stamp, admitted, entry))
        if added:
            self._running.op.log.extend(added)
            self._file.lacks_log = True
        return self._message(self._running.index, added)

    def write(self) -> None:
        """Write the new entries into the file, unless the next state does that anyway."""
        job = self._running.job
        if self._running.op.status is JobStatus.RUNNING and self._file.takes_log(job.serial):
            self._file.write(jobs.encode_job(job), job.serial, flush=False)

    def write_if_due(self) -> None:
        """Write the new entries if it is time."""
        if time.monotonic() >= self._file.log_due():
            self.write()

    def due(self) -> float:
        """When to write new entries; infinite if there are none, or no occasion yet."""
        due = self._file.log_due()
        return due if self._file.lacks_log and due > time.monotonic() else math.inf

    def resend(self) -> None:
        """Send the newest entries to a component that was replaced; the file has the others."""
        self.write()
        entries_left, characters_left = RESENT_MAX, RESENT_CHARACTERS_MAX
        parts: list[messages.JobLogAppended] = []
        for index, op in reversed([*enumerate(self._running.job.ops)]):
            start = len(op.log)
            while start and entries_left:
                characters_left -= _characters(op.log[start - 1][3])
                if characters_left < 0:
                    entries_left = 0
                    break
                entries_left -= 1
                start -= 1
            if recent := op.log[start:]:
                parts.append(self._message(index, recent))
        for part in reversed(parts):
            self._daemon.tell(part)

    def _message(self, index: int, entries: list[jobs.LogEntry]) -> messages.JobLogAppended:
        return messages.JobLogAppended(job_id=self._running.job.id, op_index=index, entries=entries)


def _characters(text: str | list[str]) -> int:
    return len(text) if isinstance(text, str) else sum(map(len, text))
