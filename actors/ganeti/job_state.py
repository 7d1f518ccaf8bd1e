"""What a client that waits for a change of a job gets: values of fields, and new log entries.

Reads no files.

Source: Ganeti 3.0, LUXI, ``WaitForJobChange``.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...storage import errors, settings
from ...storage.ganeti.queries.jobs import JOBS, JobRow
from ...storage.jobs import job_bounds
from ...storage.plain_values import encoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...storage.jobs.jobs import Job, LogEntry

_ROOM_BYTES: Final = settings.FRAME_BYTES_MAX - settings.QUERY_ROW_RESERVE_BYTES
_LOG_ROOM_BYTES_MIN: Final = 64 * 1024
_MARK_BYTES: Final = 32

FIELDS_MAX: Final = 100
"""Most fields of one wait: it keeps them."""


def checked_fields(names: Sequence[str]) -> tuple[str, ...]:
    """The fields as a wait keeps them: without the texts of the request.

    If one is unknown, all are. `BadRequestError` if there are too many.
    """
    if len(names) > FIELDS_MAX:
        raise errors.BadRequestError(f"fields: expected at most {FIELDS_MAX}, got {len(names)}")
    known = [JOBS.fields[name].definition.name for name in names if name in JOBS.fields]
    return tuple(known) if len(known) == len(names) else ("",) * len(names)


class JobState:
    """A live job at one moment. Each part is made once, for all clients that wait for it.

    ``row`` has the job itself. ``log_until``: the serial up to which its log has no gaps. What
    comes behind a gap waits for the entries before it: a client names only the last one it has.
    """

    def __init__(self, row: JobRow, log_until: float = math.inf) -> None:
        self._row = row
        self._entries = _without_gaps(row.whole(), log_until)
        self._values: dict[tuple[str, ...], bytes] = {}
        self._marks: dict[tuple[str, ...], bytes] = {}
        self._logs: dict[tuple[int, int], bytes] = {}

    def values(self, fields: tuple[str, ...]) -> bytes:
        """The bare values of the fields, as a JSON array; all null if one is unknown.

        Raises `BadRequestError` if they are too large for a reply.
        """
        found = self._values.get(fields)
        if found is None:
            shown: list[Any] = [None] * len(fields)
            if all(name in JOBS.fields for name in fields):
                shown = [JOBS.fields[name].get({}, self._row).value for name in fields]
            found = encoded(shown)
            room = _ROOM_BYTES - _LOG_ROOM_BYTES_MIN
            if len(found) > room:
                raise errors.BadRequestError(
                    f"job {self._row.id}: these fields of it have {len(found)} bytes as JSON, and "
                    f"a reply has room for {room}; ask for fewer fields"
                )
            self._values[fields] = found
        return found

    def mark(self, fields: tuple[str, ...]) -> bytes:
        """Tells the values of the fields from others: so a wait need not keep large ones."""
        values = self.values(fields)
        if len(values) <= _MARK_BYTES:
            return values
        found = self._marks.get(fields)
        if found is None:
            digest = hashlib.blake2b(values, digest_size=_MARK_BYTES).digest()
            found = self._marks[fields] = digest
        return found

    def has(self, fields: tuple[str, ...], values: object) -> bool:
        """Whether the fields have these values, as JSON; None: no values."""
        return values is not None and msgspec.json.decode(self.values(fields)) == values

    def has_log_after(self, serial: int | None) -> bool:
        """Whether the log has an entry with a higher serial; None: an entry at all."""
        return bool(self._entries) and self._entries[-1][0] > (serial or 0)

    def log_after(self, serial: int | None, values: bytes) -> bytes:
        """The entries with higher serials, as a JSON array that fits beside the ``values``.

        A later request gets those for which there is no room.
        """
        begin = bisect.bisect_right(self._entries, serial or 0, key=lambda entry: entry[0])
        if begin == len(self._entries):
            return b"[]"
        room = _ROOM_BYTES - len(values)
        found = self._logs.get((begin, room))
        if found is None:
            part = next(job_bounds.log_parts(self._entries[begin:], room))
            found = self._logs[begin, room] = encoded(part)
        return found


def _without_gaps(job: Job, until: float) -> list[LogEntry]:
    """The entries of all opcodes, in order, up to the first gap behind ``until``."""
    entries = sorted(itertools.chain.from_iterable(op.log for op in job.ops), key=_serial)
    last = 0
    for place, entry in enumerate(entries):
        if entry[0] > until and entry[0] != last + 1:
            return entries[:place]
        last = entry[0]
    return entries


def _serial(entry: LogEntry) -> int:
    return entry[0]
