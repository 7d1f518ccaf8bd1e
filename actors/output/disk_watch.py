"""How much of the disk the queue takes, and what follows: a limit for all output, and retention.

Measures when somebody asks, and every few seconds while there is a limit; the queue itself looks
whether anything is free when it writes. At the limit of all output, the processes of jobs find a
refusal beside their jobs (`output_limits`). What is kept too long, or is too much, the queue
purges, page by page, the oldest first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import errors, settings, wording
from ...storage.disk import reserve
from ...storage.disk.disk_parts import DiskLimits
from ...storage.queue_files import output_limits
from ...storage.queue_files.disk_use import DiskMeter
from ...storage.queue_files.output_limits import OutputLimits
from ...transport import messages
from ..runtime.addresses import CONFIG_STORE, JOB_QUEUE

if TYPE_CHECKING:
    from ...storage.disk.disk_parts import DiskUse
    from ...transport.envelopes import Envelope
    from ..runtime.component import Runtime
    from ..runtime.dispatcher import Alarm
    from ..runtime.works import Work


class DiskWatch:
    """Measures in slices; those who ask meanwhile wait for the next measurement."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._queue = str(runtime.host.places.queue)
        self._meter = DiskMeter(runtime.host.places)
        self._asked: list[Envelope] = []
        self._is_measuring = False
        self._next_look: Alarm | None = None
        self._limits = DiskLimits()
        self._is_purging = False
        self._taken = 0
        self._grown: dict[int, int] = {}
        """The sizes of output that has grown since the disk was measured."""
        self._before: dict[int, int] = {}
        """The sizes of output that had grown before that."""
        self._looked_at = -settings.RETENTION_SECONDS
        """When jobs were last looked at that may be too old."""

    def begin(self) -> None:
        """Ask for the limits: the store tells only of changes."""
        self._runtime.ask(
            CONFIG_STORE,
            messages.ReadLimits(),
            lambda read: self.change_limits(read.disk),
            lambda error: self._runtime.log.warning("limits are not known", error=error.text),
        )

    def change_limits(self, limits: DiskLimits) -> None:
        """Go by these limits."""
        was_limited, self._limits = self._is_limited, limits
        self._looked_at = -settings.RETENTION_SECONDS
        if not limits.output_bytes:
            self._put_in_force("")
        if not was_limited and self._is_limited:
            self.look()

    @property
    def _is_limited(self) -> bool:
        limits = self._limits
        return bool(limits.output_bytes or limits.keep_bytes or limits.keep_seconds)

    def look(self) -> None:
        """It is time to measure, if there is a limit."""
        if self._is_limited:
            self._look_later()
            self._measure()

    def _look_later(self) -> None:
        # An alarm that comes twice must not become two for ever.
        if self._next_look is not None:
            self._next_look.cancel()
        self._next_look = self._runtime.later(settings.DISK_WATCH_SECONDS, messages.DiskWatchDue())

    def _note_space(self, space: reserve.Space) -> None:
        if reserve.is_low(space):
            self._runtime.tell(JOB_QUEUE, messages.DiskSeenFull())

    def note_growth(self, job_id: int, size: int) -> None:
        """Measure before it is time, if what has grown since may reach the limit."""
        limit = self._limits.output_bytes
        if limit:
            self._grown[job_id] = size
            grown = sum(now - self._before.get(one, 0) for one, now in self._grown.items())
            if self._taken < limit <= self._taken + grown:
                self._measure()

    def answer(self, envelope: Envelope) -> None:
        """Measure, and answer."""
        self._asked.append(envelope)
        self._measure()

    def _measure(self) -> None:
        if not self._is_measuring:
            self._is_measuring = True
            self._runtime.work(self._measuring())

    def _measuring(self) -> Work:
        is_first = True
        while is_first or self._asked:
            is_first = False
            asked, self._asked = self._asked, []
            try:
                use = yield from self._meter.measuring()
            except errors.StorageError as error:
                for envelope in asked:
                    envelope.refuse(error)
            else:
                for envelope in asked:
                    envelope.reply(messages.DiskUseRead(use))
                self._note_space(reserve.Space(use.free, use.total))
                self._judge(use)
        self._is_measuring = False
        return None

    # ------------------------------------------------------------ limits

    def _judge(self, use: DiskUse) -> None:
        limits, taken = self._limits, use.output + use.archive
        self._taken, self._before, self._grown = taken, self._grown, {}
        if limits.output_bytes:
            is_reached = taken >= limits.output_bytes
            self._put_in_force(
                f"output and archive take {wording.size(taken)}, and the limit for all jobs is "
                f"{wording.size(limits.output_bytes)}"
                if is_reached
                else ""
            )
        if self._is_purging:
            return
        if limits.keep_bytes and taken > limits.keep_bytes:
            enough = taken - limits.keep_bytes
            self._purge(messages.PurgeJobs(bytes_enough=enough))
        elif limits.keep_seconds:
            now = self._runtime.clock()
            if now >= self._looked_at + settings.RETENTION_SECONDS:
                self._looked_at = now
                self._purge(messages.PurgeJobs(age_seconds=limits.keep_seconds))

    def _put_in_force(self, refusal: str) -> None:
        limits = OutputLimits(self._limits.output_job_bytes, refusal)
        try:
            output_limits.write(self._queue, limits)
        except errors.StorageError as error:
            self._runtime.log.error("the limits of output cannot be written", error=error.text)

    # ------------------------------------------------------------ retention

    def _purge(self, message: messages.PurgeJobs) -> None:
        """Have the queue purge a page of jobs, and go on with the next one."""
        self._is_purging = True

        def purged(page: messages.PurgeOutcome) -> None:
            self._is_purging = False
            if page.jobs:
                freed = sum(size for _, size in page.jobs)
                self._runtime.log.info("old jobs are purged", count=len(page.jobs), freed=freed)
            if page.next_after is not None:
                self._purge(message.behind(page))

        def refused(error: errors.GangerError) -> None:
            self._is_purging = False
            self._runtime.log.warning("old jobs cannot be purged now", error=error.text)

        self._runtime.ask(JOB_QUEUE, message, purged, refused)
