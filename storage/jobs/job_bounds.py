"""Limits the size of a job, so that its stored form fits into a frame. Reads no files.

How it works. A job's *stored form* is the JSON text of its file, of at most `JOB_BYTES_MAX`. All
opcodes together share these parts of it:

- the submitted opcodes: at most `JOB_SUBMITTED_BYTES_MAX`, which `actors/admission/submitting` sees
  to;
- the log: at most `JOB_LOG_BYTES_MAX`; then one entry says that the log ends there, and only
  entries of the job's process itself follow, up to `JOB_LOG_RESERVE_BYTES`;
- time stamps, statuses, and the texts of an end: `JOB_END_BYTES_MAX`;
- results: the rest, at least a quarter of a MiB.

A larger job, which an older version or Ganeti stored, runs like any other. Readers get a copy of
it from `shortened`, which says what is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from .. import settings
from . import jobs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LOG_MARK = "Log limit of this job reached ({limit} bytes): what follows is not kept here"
"""The last entry of a log that is full."""

CUT_KEY = "ganger_cut"
"""Extra key of a shortened copy of a job: what is left out."""

_ENTRY_BYTES = len('[,[,],"",]') + 18 + 12 + 7
"""Largest entry of the log without its kind and text: serial and time have this many digits."""

_END_TEXT_BYTES_MIN = 200
_PLACE_BYTES = 400

_encode = msgspec.json.Encoder().encode


# ---------------------------------------------------------------- while it runs


class SizeBudget:
    """The bytes of the stored form that a job's process has left for log and results."""

    def __init__(self, job: jobs.Job, body_bytes: int) -> None:
        logged = sum(len(_encode(op.log)) for op in job.ops if op.log)
        results = sum(len(_encode(op.result)) for op in job.ops if op.result is not None)
        submitted = body_bytes - logged - results
        kept = settings.JOB_LOG_BYTES_MAX + settings.JOB_LOG_RESERVE_BYTES
        room = settings.JOB_BYTES_MAX - submitted - kept - settings.JOB_END_BYTES_MAX
        self.result_bytes = max(0, room - results)
        """Bytes left for results."""
        self._log_bytes = settings.JOB_LOG_BYTES_MAX - logged
        self._own_bytes = settings.JOB_LOG_RESERVE_BYTES + min(0, self._log_bytes)
        self._is_marked = self._log_bytes < 0

    def admit(self, entries: Sequence[Any], kind: str, *, is_own: bool) -> list[tuple[str, Any]]:
        """The entries for which the log has room, with their kinds.

        Where the log becomes full, `LOG_MARK` is among them. ``is_own``: the entries come from the
        job's process, not from the operation. `TypeError` if JSON cannot hold an entry, and
        `ValueError` if one is nested too deep; then no room is used.
        """
        for entry in entries:
            if not isinstance(entry, str):
                check_depth(msgspec.json.decode(_encode(entry)))
        try:
            sizes = [_ENTRY_BYTES + len(kind) + len(_encode(entry)) for entry in entries]
        except UnicodeEncodeError:
            return self.admit([plain(entry) for entry in entries], kind, is_own=is_own)
        total = sum(sizes)
        if total <= self._log_bytes:
            self._log_bytes -= total
            return [(kind, entry) for entry in entries]
        kept: list[tuple[str, Any]] = []
        for entry, size in zip(entries, sizes, strict=True):
            if not self._is_marked and size <= self._log_bytes:
                self._log_bytes -= size
                kept.append((kind, entry))
                continue
            kept += self._mark()
            if is_own and size <= self._own_bytes:
                self._own_bytes -= size
                kept.append((kind, entry))
        return kept

    def _mark(self) -> list[tuple[str, str]]:
        if self._is_marked:
            return []
        self._is_marked = True
        self._log_bytes = 0
        text = LOG_MARK.format(limit=settings.JOB_LOG_BYTES_MAX)
        self._own_bytes -= _ENTRY_BYTES + len(text)
        return [("message", text)]

    def takes_result(self, result: object) -> bool:
        """Whether a result fits; if so, use its room."""
        size = 0 if result is None else len(_encode(result))
        if size > self.result_bytes:
            return False
        self.result_bytes -= size
        return True


def check_depth(value: object) -> None:
    """Raise `ValueError` if ``value``, read from JSON, is too deep for a reader."""
    level = [value]
    for _ in range(settings.STORED_DEPTH_MAX + 1):
        containers = [item for item in level if isinstance(item, dict | list | tuple)]
        if not containers:
            return
        level = [
            inner
            for item in containers
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    raise ValueError(f"nested more than {settings.STORED_DEPTH_MAX} levels deep")


def plain(entry: object) -> object:
    """The entry of a log as JSON can hold it: lone surrogates are escaped."""
    if isinstance(entry, list):
        return [plain(part) for part in entry]
    return str(entry).encode("utf-8", "backslashreplace").decode()


# ---------------------------------------------------------------- texts of an end


def end_text(text: str, opcodes: int) -> str:
    """``text`` cut so that each of so many opcodes can hold it twice."""
    limit = settings.JOB_END_BYTES_MAX // 4 // max(1, opcodes)
    return cut(text, max(limit, _END_TEXT_BYTES_MIN))


def cut(text: str, bytes_max: int) -> str:
    """``text`` if it fits into ``bytes_max`` as JSON; else its start, and how long it is."""
    if len(text) * 6 + 2 <= bytes_max or len(_encode(text)) <= bytes_max:
        return text
    mark = f" [{len(text)} characters in all, the rest is cut]"
    room = max(0, bytes_max - len(mark) - 2)
    low, high = 0, min(len(text), room)
    while low < high:
        middle = (low + high + 1) // 2
        if len(_encode(text[:middle])) - 2 <= room:
            low = middle
        else:
            high = middle - 1
    return text[:low] + mark


def error_result(result: list[Any]) -> list[Any]:
    """The result of an opcode that failed, ``[name, [*details]]``, bounded."""
    if len(_encode(result)) <= settings.ERROR_RESULT_BYTES_MAX:
        return result
    name, details = result
    text = details[0] if details and isinstance(details[0], str) else _encode(details).decode()
    half = settings.ERROR_RESULT_BYTES_MAX // 2
    return [cut(str(name), _PLACE_BYTES), [cut(text, half)]]


# ---------------------------------------------------------------- reading what is too large


def shortened(body: bytes, place: str) -> bytes:
    """The text of a job file if it fits into a frame; else that of a shortened copy, with marks.

    ``place`` names the file itself in the mark.
    """
    if len(body) <= settings.JOB_BYTES_MAX:
        return body
    job = jobs.decode_job(body)
    note = f"{len(body)} bytes, too large to be sent: this is a shortened copy of {place}"
    job.extra = {
        **_without_large(job.extra, settings.JOB_END_BYTES_MAX // 8),
        CUT_KEY: cut(note, 2 * _PLACE_BYTES),
    }
    room = settings.JOB_BYTES_MAX - settings.JOB_END_BYTES_MAX
    if len(job.ops) > settings.OPCODES_PER_JOB_MAX:
        job.extra[CUT_KEY] += f"; it has {len(job.ops)} opcodes"
        job.ops = job.ops[: settings.OPCODES_PER_JOB_MAX]
    each = room // max(1, len(job.ops))
    job.op_extras = []
    for op in job.ops:
        op.input = _without_large(op.input, each // 3)
        op.result = _without_large(op.result, each // 3)
        op.log = _last_entries(op.log, each // 3)
    return jobs.encode_job(job)


def _without_large(value: Any, bytes_max: int) -> Any:  # noqa: ANN401 - what JSON holds
    """The value, with a mark in place of each part that is too large."""
    size = len(_encode(value))
    if size <= bytes_max:
        return value
    if isinstance(value, dict) and value:
        kept = {
            name: item
            for name, item in value.items()
            if not isinstance(name, str) or len(name) <= _PLACE_BYTES
        }
        each = bytes_max // max(1, len(kept)) - _PLACE_BYTES
        if each > _PLACE_BYTES:
            return {name: _without_large(item, each) for name, item in kept.items()}
        small = {name: item for name, item in kept.items() if name == "OP_ID" and _is_short(item)}
        return {**small, CUT_KEY: f"{size} bytes are left out"}
    if isinstance(value, str):
        return cut(value, bytes_max)
    return f"[{size} bytes are left out]"


def _is_short(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _PLACE_BYTES


def _last_entries(log: list[jobs.LogEntry], bytes_max: int) -> list[jobs.LogEntry]:
    """The newest entries that fit, after one that counts those left out."""
    kept: list[jobs.LogEntry] = []
    left = bytes_max - _PLACE_BYTES
    for serial, stamp, kind, text in reversed(log):
        left -= _ENTRY_BYTES + len(_encode(kind)) + len(_encode(text))
        if left < 0:
            break
        kept.append((serial, stamp, kind, text))
    missing = len(log) - len(kept)
    if missing:
        serial, stamp, _, _ = log[missing - 1]
        kept.append((serial, stamp, "message", f"[{missing} earlier entries are left out]"))
    kept.reverse()
    return kept


def log_parts(
    log: Sequence[jobs.LogEntry], bytes_max: int | None = None
) -> Iterator[list[jobs.LogEntry]]:
    """The entries in parts of up to ``bytes_max`` as JSON; an entry that is larger is cut.

    None: a quarter of a frame.
    """
    limit = settings.FRAME_BYTES_MAX // 4 if bytes_max is None else bytes_max
    if len(log) <= 1_000 and sum(_length(entry[3]) for entry in log) * 6 <= limit:  # noqa: PLR2004
        yield list(log)
        return
    part: list[jobs.LogEntry] = []
    left = limit
    for serial, stamp, kind, text in log:
        size = _ENTRY_BYTES + len(_encode(kind)) + len(_encode(text))
        entry = (serial, stamp, kind, text)
        if size > limit:
            size = limit
            entry = (serial, stamp, cut(kind, _PLACE_BYTES), _without_large(text, limit // 2))
        if size > left and part:
            yield part
            part, left = [], limit
        part.append(entry)
        left -= size
    if part:
        yield part


def _length(text: object) -> int:
    return len(text) if isinstance(text, str) else settings.FRAME_BYTES_MAX
