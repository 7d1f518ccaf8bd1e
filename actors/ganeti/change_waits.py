"""Answers clients that wait for a change of a job: when it has changed, and when their time is up.

A turn of the queue notes which jobs have changed (`wait_list`). At its end each is read once, and
compared with what its waits know. One alarm is for all: it rings when the first wait is due.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from ...storage import errors
from ...transport import messages
from ...transport.envelopes import Envelope
from ..runtime.addresses import JOB_QUEUE
from .job_state import checked_fields
from .wait_list import Wait, WaitList, key_of

if TYPE_CHECKING:
    from ..runtime.component import Runtime
    from ..runtime.dispatcher import Alarm
    from ..store.job_rows import Row
    from ..store.job_store import JobStore
    from .job_queries import JobQueries
    from .job_state import JobState


JOB_WAITS_SLICE_SECONDS = 0.005
"""Time that the queue spends on those of one turn; the others are looked at in the next one."""


class ChangeWaits:
    """Begins the waits, and answers them."""

    def __init__(self, runtime: Runtime, store: JobStore, queries: JobQueries) -> None:
        self._runtime = runtime
        self._store = store
        self._queries = queries
        self.waits = store.reader.waits = WaitList()
        self._alarm: Alarm | None = None
        self._rings_at = math.inf
        self._last: tuple[int, int, JobState] | None = None
        """The job that was read last, its version, and its state."""

    def open(self, envelope: Envelope, message: messages.AwaitJobChange) -> None:
        """Answer at once, or begin to wait. Raises `UnknownJobError` or `BadRequestError`."""
        fields, serial = checked_fields(message.fields), message.log_serial
        self.waits.stop(key_of(envelope, message))
        row = self._row(message.id)
        state = self._queries.state(row)
        has_news = state.has_log_after(serial) or not state.has(fields, message.values)
        if has_news or row.status.is_final or message.seconds <= 0:
            envelope.reply(_answer(row, state, fields, serial))
            return
        # The envelope, too, lets go of what may be large.
        bare = msgspec.structs.replace(message, fields=[], values=None)
        reply_to = Envelope(bare, envelope.reply_to, envelope.number, peer=envelope.peer)
        due = self._runtime.clock() + message.seconds
        self.waits.open(Wait(reply_to, bare, fields, known=state.mark(fields), due=due))
        self._ring_by(due)

    def ring(self) -> None:
        """The alarm has rung, or there is work left from the turn before."""
        self.waits.expire(self._runtime.clock())
        self._silence()
        if (due := self.waits.next_due) is not None:
            self._ring_by(due)

    def turn_ended(self) -> None:
        """Answer those whose jobs have changed and whose time is up, until the slice is over."""
        end = math.inf
        while self._look_at_next():
            # The time begins with the first one: to read its job may take as long.
            now = self._runtime.clock()
            end = min(end, now + JOB_WAITS_SLICE_SECONDS)
            if now >= end and self.waits.has_work:
                # In the next turn: the components beside this one come first.
                self._runtime.tell(JOB_QUEUE, messages.JobWaitsDue())
                return
        self._last = None

    def _look_at_next(self) -> bool:
        """Look at one wait, if there is one to be looked at."""
        if (overdue := self.waits.next_overdue()) is not None:
            self._look_at(overdue, is_overdue=True)
        elif (wait := self.waits.next_changed()) is not None:
            self._look_at(wait)
        else:
            return False
        return True

    def _look_at(self, wait: Wait, *, is_overdue: bool = False) -> None:
        try:
            row = self._row(wait.job_id)
            state = self._state(row)
            is_same = state.mark(wait.fields) == wait.known
            has_news = not is_same or state.has_log_after(wait.log_serial)
            if not (is_overdue or has_news or row.status.is_final):
                return
            reply = _answer(row, state, wait.fields, wait.log_serial)
        except errors.GangerError as error:
            self.waits.stop(wait.key)
            wait.envelope.refuse(error)
        else:
            self.waits.stop(wait.key)
            wait.envelope.reply(reply)

    def _row(self, job_id: int) -> Row:
        row = self._store.table.find(job_id)
        if row is not None:
            return row
        text = f"there is no live job {job_id}"
        if self._store.is_archived(job_id):
            raise errors.ArchivedJobError(text)
        raise errors.UnknownJobError(text)

    def _state(self, row: Row) -> JobState:
        version = self.waits.version(row.id)
        if self._last is None or self._last[:2] != (row.id, version):
            self._last = row.id, version, self._queries.state(row)
        return self._last[2]

    def _ring_by(self, due: float) -> None:
        if due >= self._rings_at:
            return
        self._silence()
        seconds = max(0.0, due - self._runtime.clock())
        self._alarm = self._runtime.later(seconds, messages.JobWaitsDue())
        self._rings_at = due

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._rings_at = None, math.inf


def _answer(
    row: Row, state: JobState, fields: tuple[str, ...], serial: int | None
) -> messages.JobAwaited:
    values = state.values(fields)
    log = state.log_after(serial, values)
    return messages.JobAwaited(values=values, log=log, is_final=row.status.is_final)
